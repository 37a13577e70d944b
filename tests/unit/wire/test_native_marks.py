"""Cache marks of a native request, where the operator took them over: replaced, and nothing else touched."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.errors import BadRequest
from arbiter.model import Target
from arbiter.wire.native import MESSAGES, fidelity, open_body, splice

MARK = {"type": "ephemeral"}


def sent(body: dict[str, Any] | bytes, whose: Literal["auto", "client", "arbiter", "off"], **target: Any):
    raw = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return splice(open_body(raw), MESSAGES, "m", Target(prompt_cache=whose, **target), asks_usage=False)


def marks(body: bytes) -> list[str]:
    """The paths of all marks in `body`."""
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            if "cache_control" in value:
                found.append(path)
            for name, inner in value.items():
                walk(inner, f"{path}.{name}")
        elif isinstance(value, list):
            for n, inner in enumerate(value):
                walk(inner, f"{path}[{n}]")

    walk(json.loads(body), "$")
    return found


WHOLE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "tools": [{"name": "a", "input_schema": {}, "cache_control": MARK}, {"name": "b", "input_schema": {"big": 1}}],
    "system": "Be kind.",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": MARK}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "a", "input": {"n": 1.50, "cache_control": "mine"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "text", "text": "ok", "cache_control": MARK}],
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("whose", ["auto", "client"])
def test_the_clients_marks_are_its_own(whose: Any) -> None:
    """By default a native request keeps every byte (SPEC 2.8)."""
    assert fidelity(sent(WHOLE, whose).changed) == "verbatim"


def test_arbiter_marks_the_last_tool_the_system_prompt_and_the_newest_message() -> None:
    """The client's own go, also those inside a tool result; a string that is marked becomes a block."""
    spliced = sent(WHOLE, "arbiter")
    assert marks(spliced.body) == [
        "$.tools[1]",
        "$.system[0]",
        "$.messages[1].content[1].input",  # an argument of that name is no mark, and stays
        "$.messages[2].content[0]",
    ]
    body = json.loads(spliced.body)
    assert body["system"] == [{"type": "text", "text": "Be kind.", "cache_control": MARK}]
    assert body["tools"][1]["cache_control"] == MARK
    assert spliced.changed == ("$.tools", "$.system", "$.messages")


def test_off_takes_all_marks_out() -> None:
    """Strings stay strings: nothing needs a block."""
    body = sent(WHOLE, "off").body
    assert marks(body) == ["$.messages[1].content[1].input"]
    assert json.loads(body)["system"] == "Be kind."


def test_the_lifetime_is_the_operators() -> None:
    assert b'"cache_control":{"type":"ephemeral","ttl":"1h"}' in sent(WHOLE, "arbiter", prompt_cache_ttl="1h").body


def test_everything_but_the_marks_keeps_its_bytes() -> None:
    """Numbers, order and unknown members are the client's."""
    raw = (
        b'{"model":"m","messages":[{"role":"user","content":[{"x_new":[1.50,12345678901234567890],"type":"text",'
        b'"text":"\\u00e9\\ud83d\\ude00"}]}]}'
    )
    assert sent(raw, "off").body == raw
    assert sent(raw, "arbiter").body == raw.replace(b'ude00"', b'ude00","cache_control":{"type":"ephemeral"}')


def test_no_mark_sits_where_none_may() -> None:
    """Not on thinking, not on empty text, not on a trailing turn of the assistant's."""
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": " "}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Once"}]},
    ]
    assert marks(sent({"model": "m", "messages": turns}, "arbiter").body) == ["$.messages[0].content[0]"]
    turns = [{"role": "user", "content": ""}, {"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]
    assert marks(sent({"model": "m", "messages": turns}, "arbiter").body) == []


@pytest.mark.parametrize(
    "members",
    ['"messages":3', '"messages":[3]', '"messages":[{"role":"user","content":[1]}]',
     '"system":[{"type":"text","text":3}],"messages":[]', '"x":1'],
)  # fmt: skip
def test_a_request_that_cannot_be_opened_goes_out_as_it_came(members: str) -> None:
    """The upstream says what is wrong with it, in words that its client knows."""
    raw = f'{{"model":"m",{members}}}'.encode()
    assert sent(raw, "arbiter").body == raw


def test_a_conversation_that_grew_keeps_its_beginning() -> None:
    """But for the marks, the bytes of turn n are the same in request n+1 (SPEC 2.4)."""
    turns = [{"role": role, "content": text} for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"))]
    bodies = [sent({"model": "m", "messages": turns[:n]}, "arbiter").body for n in (1, 3)]
    short, long = (body.replace(b',"cache_control":{"type":"ephemeral"}', b"") for body in bodies)
    assert long.startswith(short.removesuffix(b"]}"))


TEXT = {"type": "text", "text": "x"}
MARKED = {**TEXT, "cache_control": MARK}
HALF = '{"type":"text","text":"x\\ud83d"}'


def asked(*blocks: Any, **members: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(blocks)}], **members}


@pytest.mark.parametrize(
    "body",
    [
        asked({"type": "text", "text": " ", "cache_control": MARK}, MARKED),
        asked({"type": "thinking", "thinking": "t", "signature": "s", "cache_control": MARK}, MARKED),
        asked({"type": None, "cache_control": MARK}, {"cache_control": MARK}, 7, None, "x", [], MARKED),
        asked({"type": "text", "text": 5, "cache_control": MARK}, MARKED),
        {"model": "m", "messages": [None, {"role": 5, "content": [MARKED]}, {"role": "assistant", "content": None}]},
        {"model": "m", "messages": [{"content": [MARKED]}, {"role": "user", "content": {"a": 1}}]},
        asked({"type": "document", "source": {"type": "content", "content": [MARKED]}}, MARKED),
        asked({"type": "search_result", "content": [MARKED], "cache_control": MARK}),
        asked({"type": "tool_result", "content": [{"type": "search_result", "content": [MARKED]}]}),
        asked({"type": "tool_search_tool_result", "content": {"tool_references": [{"cache_control": MARK}]}}),
        asked(MARKED, system=[MARKED], tools=[{"type": "mcp_toolset", "cache_control": MARK}], cache_control=MARK),
        asked(TEXT, system=7, tools={"cache_control": 1}, cache_control=None),
    ],
)
def test_no_mark_of_the_clients_is_left(body: dict[str, Any]) -> None:
    """Wherever it sat, and whatever stands beside it; there are never more than Arbiter's three."""
    odd = ["$.tools"] if isinstance(body.get("tools"), dict) else []  # no list of tools: the upstream will say so
    assert marks(sent(body, "off").body) == odd
    spliced = sent(body, "arbiter")
    left = marks(spliced.body)
    assert len(left) <= 3 and all(path.count("[") <= 2 for path in left)
    assert sent(spliced.body, "arbiter").body == spliced.body
    for turn in json.loads(spliced.body)["messages"]:
        for block in (turn or {}).get("content") or ():
            if isinstance(block, dict) and "cache_control" in block:
                assert block["type"] not in ("thinking", None) and block.get("text", "x").strip()


@pytest.mark.parametrize("whose", ["off", "arbiter"])
def test_half_an_emoji_switches_nothing_off(whose: Any) -> None:
    """Agents cut texts; the half leaves as it came, and the marks are the operator's all the same."""
    raw = json.dumps(asked(MARKED, "HALF", MARKED), separators=(",", ":")).replace('"HALF"', HALF).encode()
    body = sent(raw, whose).body
    assert HALF.encode() in body and len(marks(body)) == (whose == "arbiter")
    last = json.dumps(asked(MARKED, "HALF"), separators=(",", ":")).replace('"HALF"', HALF).encode()
    assert marks(sent(last, "arbiter").body) == ["$.messages[0].content[1]"]


def test_a_mark_spelled_with_escapes_is_one() -> None:
    raw = json.dumps(asked(MARKED, {"type": "tool_result", "content": [MARKED]}, TEXT)).encode()
    for spelling in (b"cache\\u005fcontrol", b"\\u0063ache_contro\\u006C"):
        spelled = raw.replace(b"cache_control", spelling)
        assert sent(spelled, "off").body == sent(raw, "off").body
        assert marks(sent(spelled, "off").body) == []


@pytest.mark.parametrize("pretty", [None, 2])
@pytest.mark.parametrize("first", [False, True])
def test_what_was_marked_is_the_same_as_what_never_was(pretty: int | None, first: bool) -> None:
    """Blanks and all: a mark that moved on changes nothing of the turns before (SPEC 2.4)."""
    marked = {"cache_control": MARK, **TEXT} if first else MARKED
    once, never = (json.dumps(asked({"type": "tool_result", "content": [one]}, one), indent=pretty).encode()
                   for one in (marked, TEXT))  # fmt: skip
    assert sent(once, "off").body == sent(never, "off").body
    assert sent(once, "arbiter").body == sent(never, "arbiter").body
    mine = sent(never, "arbiter").body
    assert mine.replace(b',"cache_control":{"type":"ephemeral"}', b"") == sent(never, "off").body


def test_the_requests_own_mark_goes() -> None:
    """Anthropic would put it on the last block; where Arbiter marks, or nobody may, it is not the client's to ask."""
    body = {"model": "m", "cache_control": MARK, "messages": []}
    assert sent(body, "off").body == b'{"model":"m","messages":[]}'
    assert fidelity(sent(body, "off").changed) == "$.cache_control"
    assert marks(sent(body, "auto").body) == ["$"]


def test_a_tool_that_waits_to_be_found_is_not_marked() -> None:
    """It is not part of the prompt's beginning, and Anthropic refuses a mark on it."""
    tools = [{"name": "a"}, {"name": "b", "defer_loading": True}]
    assert marks(sent(asked(tools=tools), "arbiter").body) == ["$.tools[0]"]


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ({"messages": [0] * 200_001}, "messages: more than 200,000 entries"),
        ({"system": [0] * 150_000, "messages": [0] * 100_000}, "messages: more than 200,000 entries"),
        (asked(*[{**dict.fromkeys(map(str, range(1000))), **MARKED}] * 250), "messages: more than 200,000 entries"),
        ({"tools": [{"name": "f", "cache_control": None}] * 20_001, "messages": []}, "tools: more than 20,000 cache"),
    ],
)
def test_nobody_searches_for_ever(members: dict[str, Any], what: str) -> None:
    """Anthropic refuses such requests too; what would leave with the client's marks does not leave."""
    with pytest.raises(BadRequest, match=what) as caught:
        sent({"model": "m", **members}, "arbiter")
    assert caught.value.param in ("messages", "tools")


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_marks(inner) for name, inner in value.items() if name != "cache_control"}
    return [without_marks(inner) for inner in value] if isinstance(value, list) else value


words = st.sampled_from(
    ["type", "text", "content", "source", "role", "cache_control", "input", "tool_use", "user", "é,]}"]
)
anything = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | words | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)


@given(
    body=st.dictionaries(st.sampled_from(["tools", "system", "messages", "cache_control"]), anything),
    whose=st.sampled_from(["off", "arbiter"]),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
@settings(max_examples=300)
def test_nothing_but_marks_is_ever_touched(body: Any, whose: Any, indent: int | None, ascii_only: bool) -> None:
    """Whatever JSON it is: what leaves is the same without its marks, and has nothing left to be taken out."""
    raw = json.dumps({"model": "m", **body}, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    off = sent(raw, "off").body
    assert without_marks(json.loads(off)) == without_marks(json.loads(raw))
    once = sent(raw, whose).body
    assert sent(once, whose).body == once
    assert sent(once, "off").body == sent(sent(raw, "arbiter").body if whose == "arbiter" else raw, "off").body
