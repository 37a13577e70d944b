"""Items are taken out of a request to an upstream of the client's own format, and of nothing else a byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.wire import bound, bound_responses, native, unsealed, vault
from arbiter.wire.format import FORMATS
from arbiter.wire.gemini_sealed import signature_of
from arbiter.wire.native import CHAT, GEMINI, MESSAGES, RESPONSES
from arbiter.wire.restored import HandedAlong
from arbiter.wire.vault import Origin, Sealed, Thought, Vault, digest

VAULT = Vault((b"k" * 32,))
DEEP = Origin(CHAT, b"", "", "deepseek-chat")
ITEM = VAULT.seal(Sealed(DEEP, ("call_1",), 0, digest(""), (Thought(0, 0, "hm"),)), None)
TRACE = "0" * 31 + "a"
USER = {"role": "user", "content": "Hi — 思"}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "ok"}]}
FUNCTION = {"name": "f", "arguments": "{}"}
CALLS = [{"id": "call_1", "type": "function", "function": FUNCTION}]


def out(format: str, model: str = "m", **members: Any) -> tuple[dict[str, Any], tuple[str, ...], bytes]:
    """The request without items, its changed paths, and its conversation as bytes."""
    opened = native.open_body(json.dumps({"model": model, **members}, indent=1).encode()).members
    assert unsealed.may_hold(format, opened)
    handed = HandedAlong(FORMATS[format].parse_request(opened), VAULT, None)
    stripped = unsealed.unsealed(format, opened, handed, model)
    found = {name: json.loads(bytes(raw)) for name, raw in stripped.members.items()}
    (name,) = (one for one in ("messages", "input", "contents") if one in stripped.members)
    return found, stripped.changed, bytes(stripped.members[name])


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "call_1", "name": "f", "input": {"n": 1.0}}
    return {"role": "assistant", "content": [*blocks, call]}


REDACTED = {"type": "redacted_thinking", "data": ITEM}
UNSIGNED = {"type": "thinking", "thinking": "hm", "signature": ""}
SIGNED = {"type": "thinking", "thinking": "theirs", "signature": "sig"}
FOREIGN = {"type": "redacted_thinking", "data": "theirs"}


def test_messages_lose_items_and_unsigned_thoughts_beside_them() -> None:
    turns = [
        USER,
        said(SIGNED, FOREIGN, UNSIGNED, REDACTED),
        RESULT,
        USER,
        {"role": "assistant", "content": [UNSIGNED]},
    ]
    found, changed, raw = out(MESSAGES, messages=turns, max_tokens=9)
    assert found["messages"] == [USER, said(SIGNED, FOREIGN), RESULT, USER, turns[-1]]
    assert changed == ("$.messages",)
    assert json.dumps(USER, indent=1).encode().replace(b"\n", b"\n  ") in raw  # blanks and escapes as they came


@pytest.mark.parametrize("signature", [vault.UNSIGNED, "gemini#CiQB"])
def test_messages_lose_what_others_thought_and_said_so(signature: str) -> None:
    """A signature that Anthropic never made: it would refuse the block. In an open loop the budget goes with it."""
    theirs = {"type": "thinking", "thinking": "hm", "signature": signature}
    turns = [USER, said(SIGNED, theirs), RESULT]
    found, changed, _ = out(MESSAGES, messages=turns, max_tokens=9, thinking={"type": "enabled", "budget_tokens": 1024})
    assert found["messages"] == [USER, said(SIGNED), RESULT]
    assert found["thinking"] == {"type": "disabled"} and changed == ("$.messages", "$.thinking")
    alone = [USER, {"role": "assistant", "content": [theirs]}, USER]
    assert out(MESSAGES, messages=alone, max_tokens=9)[0]["messages"] == [USER, USER]


def test_a_message_of_items_alone_is_none() -> None:
    item = VAULT.seal(Sealed(DEEP, (), 0, digest(""), (Thought(0, 0, "hm"),)), None)
    alone = {"role": "assistant", "content": [UNSIGNED, {"type": "redacted_thinking", "data": item}]}
    assert out(MESSAGES, messages=[USER, alone, USER], max_tokens=9)[0]["messages"] == [USER, USER]


BUDGET = {"type": "enabled", "budget_tokens": 1024}
CLEARS = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}


@pytest.mark.parametrize(
    ("more", "thinking", "expected"),
    [
        ((), BUDGET, {"type": "disabled"}),  # the loop is open
        ((USER,), BUDGET, BUDGET),  # it is closed
        ((), {"type": "adaptive"}, {"type": "adaptive"}),
        ((), {"type": "disabled"}, {"type": "disabled"}),
        ((), None, None),
    ],
)
def test_a_budget_is_given_up_while_the_loop_is_open(more: tuple[Any, ...], thinking: Any, expected: Any) -> None:
    """Anthropic would want a thought of its own in front of each call; and refuses edits of thinking without it."""
    members = {} if thinking is None else {"thinking": thinking, "context_management": CLEARS}
    found, changed, _ = out(MESSAGES, messages=[USER, said(REDACTED), RESULT, *more], max_tokens=9, **members)
    is_off = thinking == BUDGET and not more
    assert found.get("thinking") == expected
    assert ("context_management" in found) == (thinking is not None and not is_off)
    assert changed == (("$.messages", "$.thinking", "$.context_management") if is_off else ("$.messages",))


def message(**members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": CALLS, **members}


DETAIL = {"type": "reasoning.encrypted", "data": ITEM, "id": "call_1"}
THEIRS = {"type": "reasoning.encrypted", "data": "theirs"}


@pytest.mark.parametrize(
    ("model", "sent", "expected"),
    [
        ("gpt-5", message(reasoning_details=[DETAIL]), message()),
        ("gpt-5", message(reasoning_details=[THEIRS, DETAIL]), message(reasoning_details=[THEIRS])),
        ("deepseek-chat", message(reasoning_details=[DETAIL]), message(reasoning_content="hm")),
        (
            "deepseek-chat",
            message(reasoning_content="supplied", reasoning_details=[DETAIL]),
            message(reasoning_content="supplied"),
        ),
    ],
)
def test_a_chat_loses_items_and_deepseek_gets_their_text(model: str, sent: Any, expected: Any) -> None:
    result = {"role": "tool", "tool_call_id": "call_1", "content": ITEM}  # a text that quotes one is a text
    found, changed, _ = out(CHAT, model, messages=[USER, sent, result])
    assert found["messages"] == [USER, expected, result] and changed == ("$.messages",)


def test_responses_lose_items_and_what_the_gateway_told_of_them() -> None:
    ours = [
        {"type": "reasoning", "id": f"rs_{TRACE}_0", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "id": f"rs_{TRACE}_1", "summary": [], "encrypted_content": ITEM},
    ]
    theirs = [
        {"type": "reasoning", "id": "rs_0123", "summary": []},
        {"type": "reasoning", "id": "rs_4567", "summary": [], "encrypted_content": "theirs"},
    ]
    call = {"type": "function_call", "call_id": "call_1", **FUNCTION}
    found, changed, _ = out(RESPONSES, input=[USER, *ours, *theirs, call])
    assert found["input"] == [USER, *theirs, call] and changed == ("$.input",)


BARE_CALL: dict[str, Any] = {"functionCall": {"name": "f", "args": {"n": 1.0}}}
SIGNED_CALL = BARE_CALL | {"thoughtSignature": signature_of(ITEM or "", "call_1")}
ELSEWHERE = SIGNED_CALL | {"thoughtSignature": "skip_thought_signature_validator"}
THEIRS = {"text": "Hi", "thoughtSignature": "c2ln"}
EMPTY = {"text": "", "thoughtSignature": SIGNED_CALL["thoughtSignature"]}


@pytest.mark.parametrize(
    ("model", "sent", "expected"),
    [
        ("gemini-3-pro", [THEIRS, SIGNED_CALL, SIGNED_CALL], [THEIRS, ELSEWHERE, BARE_CALL]),
        ("gemini-3-pro", [BARE_CALL, SIGNED_CALL], [BARE_CALL, BARE_CALL]),  # only a first call is looked at
        ("gemini-2.5-pro", [SIGNED_CALL], [BARE_CALL]),
        ("gemini-3-pro", [THEIRS, SIGNED_CALL, EMPTY], [THEIRS, ELSEWHERE]),
        ("gemini-3-pro", [{"text": "Hi", "thought_signature": EMPTY["thoughtSignature"]}, SIGNED_CALL],
         [{"text": "Hi"}, ELSEWHERE]),
    ],
)  # fmt: skip
def test_gemini_is_told_that_a_call_was_made_elsewhere(model: str, sent: list[Any], expected: list[Any]) -> None:
    """It refuses a turn's first call without a signature; nothing is left of a text that bore only an item."""
    user, result = {"role": "user", "parts": [{"text": "Hi — 思"}]}, {"functionResponse": {"name": "f", "response": {}}}
    turns = [user, {"role": "model", "parts": sent}, {"role": "user", "parts": [result] * len(sent)}]
    found, changed, raw = out(GEMINI, model, contents=turns)
    assert found["contents"] == [user, {"role": "model", "parts": expected}, turns[2]] and changed == ("$.contents",)
    assert json.dumps(user, indent=1).encode().replace(b"\n", b"\n  ") in raw  # blanks and escapes as they came


def test_a_content_of_nothing_but_an_item_says_nothing() -> None:
    turns = [{"role": "model", "parts": [EMPTY]}, {"role": "model", "parts": [SIGNED_CALL]}]
    found, _, _ = out(GEMINI, "gemini-3-pro", contents=turns)
    assert found["contents"] == [{"role": "model", "parts": [{"text": ""}]}, {"role": "model", "parts": [ELSEWHERE]}]


def test_what_is_sealed_binds_nobody_to_anybody() -> None:
    """The continuity guard has no say in it: whoever is asked gets of it what is its own."""
    messages = native.open_body(json.dumps({"model": "m", "messages": [said(REDACTED, UNSIGNED)]}).encode()).members
    assert bound.marks(messages) == []
    items = [
        {"type": "reasoning", "id": f"rs_{TRACE}_1", "encrypted_content": ITEM},
        {"type": "reasoning", "id": f"rs_{TRACE}_0"},
    ]
    assert (
        bound_responses.marks(native.open_body(json.dumps({"model": "m", "input": items}).encode()).members, None) == []
    )


@pytest.mark.parametrize(
    ("format", "name", "value", "holds"),
    [
        (MESSAGES, "messages", [said(REDACTED)], True),
        (MESSAGES, "messages", [{"role": "user", "content": f"What is `{ITEM}`?"}], False),
        (MESSAGES, "messages", [{"role": "user", "content": f'{{"data":"{ITEM}"}}'}], False),  # a file that holds one
        (CHAT, "messages", [message(reasoning_details=[DETAIL])], True),
        (RESPONSES, "input", [{"type": "reasoning", "encrypted_content": ITEM}], True),
        (RESPONSES, "input", "no array", False),
        ("embeddings", "input", [ITEM], False),  # a text like any other
        (GEMINI, "contents", [ITEM], False),  # no spelling of this format's
        (GEMINI, "contents", [{"role": "model", "parts": [SIGNED_CALL]}], True),
        (GEMINI, "contents", [{"role": "user", "parts": [{"text": f"Is {EMPTY} one?"}]}], False),
    ],
)
def test_only_where_an_item_could_be_is_looked_for_one(format: str, name: str, value: Any, holds: bool) -> None:
    """Or a native request that merely speaks of one would have to be one that the gateway understands."""
    members = native.open_body(json.dumps({"model": "m", name: value}).encode()).members
    assert unsealed.may_hold(format, members) == holds
