"""What becomes of earlier reasoning on the way from a chat client to a chat server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.model import Message, RedactedThinking, Request, Target, Thinking, ToolCall
from arbiter.wire import native
from arbiter.wire.chat_build import build_request
from arbiter.wire.chat_thoughts import respelled
from arbiter.wire.openai_servers import SERVERS, taken

CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
USER = {"role": "user", "content": 'I say "reasoning": no'}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": '{"reasoning_content":"a file"}'}
CONTENT, REASONING, BOTH = (
    {"reasoning_content": "hm"},
    {"reasoning": "hm"},
    {"reasoning_content": "hm", "reasoning": "x"},
)
DETAILS = {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}]}
EXTRA = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
SIGNED = [CALLS[0] | EXTRA]
UNSIGNED = [CALLS[0] | {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}]
GOOGLE = "generativelanguage.googleapis.com"
HIDDEN = {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}


def told(model: str, server: str, *turns: dict[str, Any], moved: bool = False) -> tuple[list[dict[str, Any]], int]:
    """What is sent of `turns`, which are the assistant's, and in how many of them something was left out."""
    messages = [USER, *({"role": "assistant", "content": "", **turn} for turn in turns), RESULT]
    members = native.open_body(json.dumps({"model": "m", "messages": messages}).encode()).members
    stripped, left_out = respelled(members, taken(model, server, moved=moved), moved=moved)
    sent = json.loads(bytes(stripped.members["messages"]))
    assert sent[0] == USER and sent[-1] == RESULT
    assert stripped.changed == (() if sent == messages else ("$.messages",))
    assert stripped.changed or stripped.members is members
    said = [{name: value for name, value in one.items() if name not in ("role", "content")} for one in sent[1:-1]]
    return said, left_out


@pytest.mark.parametrize(
    ("model", "server", "moved", "turn", "expected", "left_out"),
    [
        # A server that nobody knows gets what its client brings, as long as nobody else has answered.
        ("deepseek-v4-pro", "proxy.test", False, REASONING | {"tool_calls": CALLS}, REASONING, 0),
        ("gpt-5", "proxy.test", False, CONTENT, CONTENT, 0),
        ("my-model", "proxy.test", True, BOTH | DETAILS, BOTH | DETAILS, 0),
        ("qwen3-coder", "proxy.test", True, REASONING, REASONING, 0),
        # Afterwards: none for a model whose maker takes none, some for one whose maker must have it.
        ("gpt-5", "proxy.test", True, CONTENT, {}, 1),
        ("mistral-large", "proxy.test", True, DETAILS, {}, 1),
        ("deepseek-v4-pro", "proxy.test", True, REASONING | {"tool_calls": CALLS}, REASONING | CONTENT, 0),
        ("deepseek-v4-pro", "proxy.test", True, {"tool_calls": CALLS}, {"reasoning_content": ""}, 0),
        ("deepseek-v4-pro", "proxy.test", True, {"tool_calls": CALLS} | HIDDEN, HIDDEN | {"reasoning_content": ""}, 0),
        ("deepseek-v4-pro", "proxy.test", True, REASONING, REASONING, 0),  # it said something, and called nothing
        ("kimi-k2.6", "proxy.test", True, {"tool_calls": None}, {}, 0),
        # OpenRouter wants its details back, whichever model is behind it.
        ("openai/gpt-5", "openrouter.ai", True, BOTH | HIDDEN, BOTH | HIDDEN, 0),
        # A vendor's own server has one member.
        ("deepseek-v4-pro", "api.deepseek.com", False, CONTENT | {"tool_calls": CALLS}, CONTENT, 0),
        ("deepseek-v4-pro", "api.deepseek.com", False, {"tool_calls": CALLS}, {}, 0),
        ("deepseek-v4-pro", "api.deepseek.com", True, {"tool_calls": CALLS}, {"reasoning_content": ""}, 0),
        ("deepseek-v4-pro", "api.deepseek.com", True, {"reasoning_content": None, "tool_calls": CALLS},
         {"reasoning_content": ""}, 0),
        ("deepseek-v4-pro", "api.deepseek.com", True, {"reasoning_content": "", **REASONING}, CONTENT, 0),
        ("kimi-k2.6", "api.moonshot.ai", False, BOTH | DETAILS, CONTENT, 0),
        ("glm-4.7", "api.z.ai", False, DETAILS, CONTENT, 0),
        ("openai/gpt-oss-120b", "api.groq.com", False, CONTENT, REASONING, 0),
        ("qwen/qwen3-32b", "api.groq.com", False, DETAILS, REASONING, 0),
        ("llama-3.3-70b-versatile", "api.groq.com", False, REASONING, {}, 1),
        ("moonshotai/kimi-k2-instruct", "api.groq.com", True, {"tool_calls": CALLS}, {}, 0),
        ("gpt-oss-120b", "api.cerebras.ai", False, HIDDEN, {}, 0),
        ("magistral-medium", "api.mistral.ai", False, HIDDEN, {}, 1),
        ("gpt-5", "api.openai.com", False, {"reasoning_content": "", "reasoning_details": []}, {}, 0),
        # Google's signatures are beside a message and its calls.
        ("gpt-oss-120b", "api.groq.com", False, {"tool_calls": SIGNED} | EXTRA, {"tool_calls": CALLS}, 0),
        ("gpt-5", "proxy.test", True, {"tool_calls": SIGNED} | EXTRA, {"tool_calls": CALLS}, 0),
        ("gpt-5", "proxy.test", False, {"tool_calls": SIGNED} | EXTRA, EXTRA, 0),
        ("gemini-3-pro", GOOGLE, False, {"tool_calls": SIGNED} | EXTRA, EXTRA, 0),
        ("gemini-3-pro", GOOGLE, False, {"tool_calls": CALLS * 2} | CONTENT, {"tool_calls": UNSIGNED + CALLS}, 1),
        ("gemini-2.5-pro", GOOGLE, False, {"tool_calls": CALLS} | BOTH, {}, 1),
    ],
)  # fmt: skip
def test_the_target_decides_which_member_is_sent(
    model: str, server: str, moved: bool, turn: dict[str, Any], expected: dict[str, Any], left_out: int
) -> None:
    """A member that a server refuses is not sent, one that it needs is, and nothing else changes (SPEC 4.7a)."""
    calls = {"tool_calls": turn["tool_calls"]} if "tool_calls" in turn else {}
    assert told(model, server, turn, moved=moved) == ([calls | expected], left_out)


def test_a_thought_moves_as_the_json_that_it_was() -> None:
    """Escapes, blanks and half a surrogate stay: what a provider has cached of a conversation is found again."""
    before = (
        rb'[{"role":"user","content":"a"}, { "role" : "assistant" , "reasoning_content" : "\u00e9\ud83d \/" , "x":1 }]'
    )
    after = rb'[{"role":"user","content":"a"}, { "role" : "assistant" ,"reasoning":"\u00e9\ud83d \/", "x":1 }]'
    members = native.open_body(b'{"model":"m","messages":' + before + b"}").members
    stripped, _ = respelled(members, taken("gpt-oss-120b", "api.groq.com"), moved=False)
    assert bytes(stripped.members["messages"]) == after


_TURNS = st.fixed_dictionaries(
    {},
    optional={
        "reasoning_content": st.sampled_from([None, "", "hm"]),
        "reasoning": st.sampled_from([None, "", "ah"]),
        "reasoning_details": st.sampled_from([None, [], DETAILS["reasoning_details"], HIDDEN["reasoning_details"]]),
        "tool_calls": st.sampled_from([None, [], CALLS, CALLS + SIGNED]),
        "extra_content": st.sampled_from([None, EXTRA["extra_content"]]),
    },
)


@given(st.lists(_TURNS, max_size=4), st.sampled_from(sorted(SERVERS)), st.booleans())
def test_no_vendor_is_sent_a_member_that_it_does_not_know(turns: list[Any], server: str, moved: bool) -> None:
    """And what was respelled once needs no respelling: a conversation that grows keeps its beginning."""
    for model in ("gpt-oss-120b", "deepseek-v4-pro", "gpt-5", "gemini-3-flash", "m"):
        member = taken(model, server).reasoning
        found, _ = told(model, server, *turns, moved=moved)
        assert all({name for name in one if name.startswith("reasoning")} <= {member} for one in found)
        assert server == GOOGLE or "extra_content" not in json.dumps(found)
        assert told(model, server, *found, moved=moved) == (found, 0)


@pytest.mark.parametrize(
    ("model", "server", "moved", "spelling", "expected"),
    [
        ("deepseek-v4-pro", "vllm.test", False, "reasoning", "reasoning"),
        ("deepseek-v4-pro", "vllm.test", True, "reasoning", "reasoning_content"),
        ("qwen/qwen3-32b", "api.groq.com", False, "reasoning_content", "reasoning"),
        ("qwen/qwen3-32b", "api.groq.com", False, None, "reasoning"),
        ("zai-glm-4.7", "api.cerebras.ai", False, None, "reasoning"),
        ("gpt-oss-120b", "api.fireworks.ai", False, None, "reasoning_content"),
        ("llama-3.3-70b", "api.groq.com", False, None, None),
        ("gpt-oss-120b", "api.mistral.ai", False, "reasoning", None),
        ("my-model", "vllm.test", True, "reasoning", "reasoning"),
    ],
)
def test_a_request_that_is_built_anew_spells_as_the_target_does(
    model: str, server: str, moved: bool, spelling: str | None, expected: str | None
) -> None:
    parts = Thinking("hm", spelling=spelling), ToolCall("c1", "f", "{}")
    request = Request(model=model, messages=(Message("user", "a"), Message("assistant", parts)))
    body = json.loads(build_request(request, Target(server=server, moved=moved)))
    found = {name: value for name, value in body["messages"][1].items() if name.startswith("reasoning")}
    assert found == ({expected: "hm"} if expected is not None else {})


def test_a_call_that_is_built_anew_for_google_says_that_it_was_made_elsewhere() -> None:
    proof = RedactedThinking(json.dumps(EXTRA), place="call")
    calls = ToolCall("c1", "f", "{}"), ToolCall("c2", "f", "{}")
    for parts, expected in ((calls, UNSIGNED[0]), ((proof, *calls), SIGNED[0])):
        request = Request(model="gemini-3-pro", messages=(Message("user", "a"), Message("assistant", parts)))
        body = json.loads(build_request(request, Target(server=GOOGLE)))
        assert body["messages"][1]["tool_calls"] == [expected, CALLS[0] | {"id": "c2"}]
