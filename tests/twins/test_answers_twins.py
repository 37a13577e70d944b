"""What a whole answer says of itself, on both sides: shapes of real servers, odd ones, and any made of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import answers as c_answers
from arbiter._speedups.py import answers as py_answers
from arbiter.errors import ArbiterError, Garbled
from arbiter.fold import collect
from arbiter.wire.format import FORMATS
from tests.fakes import vectors

FOLDER = Path(__file__).parents[1] / "vectors"
READ = {"openai-chat": "chat", "anthropic-messages": "messages", "openai-responses": "responses",
        "google-gemini": "gemini"}  # fmt: skip
CASES = [path for name in READ for path in sorted((FOLDER / name).iterdir()) if path.is_dir()]
WHOLE = [
    (vector["format"], vector["answer"])
    for path in sorted((FOLDER / "usage").glob("*.json"))
    if "answer" in (vector := json.loads(path.read_bytes())) and vector["format"] in READ
]

CHAT: dict[str, Any] = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1700000000, "model": "m", "system_fingerprint": "fp_1",
    "service_tier": "default",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant", "content": "é\n!", "refusal": None, "reasoning_content": "hmm", "annotations": [],
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "run", "arguments": '{"a":1}'}}],
            },
            "logprobs": None, "finish_reason": "tool_calls",
        },
        {"index": 1, "message": {"content": None, "reasoning": "h"}, "finish_reason": "stop"},
    ],
    "usage": {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
}  # fmt: skip
MESSAGES: dict[str, Any] = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
    "content": [
        {"type": "thinking", "thinking": "hmm", "signature": "s"}, {"type": "text", "text": "é\n!", "citations": None},
        {"type": "tool_use", "id": "t", "name": "run", "input": {"a": [1, -2.5e3]}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "compaction", "content": "so far"},
    ],
    "stop_reason": "tool_use", "stop_sequence": None, "context_management": None,
    "usage": {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 3, "service_tier": "standard"},
}  # fmt: skip
RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1700000000.5, "model": "m", "status": "completed",
    "error": None, "incomplete_details": None, "instructions": "be good", "service_tier": "default",
    "output": [
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hmm"}], "content": None},
        {"type": "reasoning", "id": "rt", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "id": "m", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "é\n!", "annotations": []}, {"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "id": "f", "call_id": "c", "name": "run", "arguments": '{"a":1}'},
        {"type": "custom_tool_call", "id": "g", "call_id": "d", "name": "patch", "input": "***"},
    ],
    "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3},
}  # fmt: skip
GEMINI: dict[str, Any] = {
    "candidates": [
        {
            "content": {
                "parts": [
                    {"text": "hmm", "thought": True}, {"text": "é\n!", "thoughtSignature": "s"},
                    {"text": "?", "thought": False}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
                ],
                "role": "model",
            },
            "finishReason": "STOP", "index": 0, "safetyRatings": [],
        },
        {"content": {"role": "model"}, "finishReason": "MAX_TOKENS"},
    ],
    "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 3, "thoughtsTokenCount": 2},
    "modelVersion": "m", "responseId": "r", "createTime": "2026-12-01T00:00:00Z",
}  # fmt: skip
USUAL = [("openai-chat", CHAT), ("anthropic-messages", MESSAGES), ("openai-responses", RESPONSE),
         ("google-gemini", GEMINI)]  # fmt: skip
CALLS = {"openai-chat", "anthropic-messages", "openai-responses"}
"""Whose calls are read in one pass as well: Gemini's have objects for arguments."""


def compact(answer: object) -> bytes:
    return json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def outcome(read: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return read(body)
    except Garbled as error:
        return str(error)


def assert_they_agree(format: str, body: bytes) -> None:
    read = READ[format]
    assert outcome(getattr(c_answers, read), body) == outcome(getattr(py_answers, read), body), body


def folded(case: Path) -> list[tuple[str, bytes]]:
    """The answer that a stream would have been, as each format writes it."""
    answer = collect(vectors.read(case))
    return [(name, FORMATS[name].write_answer(answer, "trace", "m", 1_700_000_000, asked={})) for name in READ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_both_sides_say_the_same_of_what_servers_said(case: Path) -> None:
    """Compact or indented, and in whichever format it is written."""
    try:
        written = folded(case)
    except ArbiterError:
        return  # a stream that failed is no answer
    for format, body in written:
        assert_they_agree(format, body)
        assert_they_agree(format, json.dumps(json.loads(body), indent=2).encode())


@pytest.mark.parametrize(("format", "answer"), WHOLE)
def test_both_sides_say_the_same_of_whole_answers(format: str, answer: Any) -> None:
    assert_they_agree(format, compact(answer))


@pytest.mark.parametrize(("format", "answer"), USUAL)
def test_what_is_usual_is_read_in_one_pass(monkeypatch: pytest.MonkeyPatch, format: str, answer: Any) -> None:
    """None of it goes to the reference, whatever stands beside it; all of it is what the reference would say."""
    read = READ[format]
    with_more = {**answer, "more": [{}, [], {"a": [None, True, "é"]}]}
    bodies = [compact(answer), json.dumps(answer, indent=1).encode(), compact(with_more)]
    said = [getattr(py_answers, read)(body) for body in bodies]
    assert all(one[0] and one[1] and one[3] and one[5] and one[6] and one[7] for one in said)
    assert all(one[8][:1] == (("run",) if format in CALLS else ()) for one in said)
    with monkeypatch.context() as patch:
        patch.setattr(py_answers, read, None)
        assert [getattr(c_answers, read)(body) for body in bodies] == said


def test_a_tool_called_many_times_is_told_each_time(answers: ModuleType) -> None:
    calls = [{"function": {"name": f"t{number}", "arguments": "{}"}} for number in range(40)]
    for count in (31, 32, 33, 40):
        said = answers.chat(compact({"choices": [{"message": {"tool_calls": calls[:count]}}]}))
        assert said[8] == tuple(f"t{number}" for number in range(count)) and said[7] == 2 * count


def test_a_long_answer_is_told_as_a_short_one(answers: ModuleType) -> None:
    for size in (answers.SHORT_BYTES - 200, answers.SHORT_BYTES + 1):
        assert answers.chat(compact({"choices": [{"message": {"content": "é" * (size // 2)}}]}))[7] == size // 2 * 2


@pytest.mark.parametrize(
    ("format", "body"),
    [
        ("openai-chat", b'{"choices":[],"choices":[{"finish_reason":"stop"}]}'),
        ("openai-chat", b'{"choices":[{"finish_reason":""},{"finish_reason":null}]}'),
        ("openai-chat", b'{"choices":[{"message":{"content":"\\ud83d"}}]}'),
        ("openai-chat", b'{"choices":[{"message":{"content":"\\ud83d\\ude00"}}]}'),
        ("openai-chat", b'{"choices":[{"message":{"content":"\xff"}}]}'),
        ("openai-chat", b'{"choices":[],"more":"\xff"}'),
        ("openai-chat", b'{"choices":[],"usage":{"a":"\\ud83d"}}'),
        ("openai-chat", b'{"choices":[],"usage": {"prompt_tokens":1} }'),
        ("openai-chat", b'{"choices":[],"i\\u0064":"a"}'),
        ("openai-chat", b'{"choices":[{"message":{"tool_calls":[{"function":{"arguments":null}}]}}]}'),
        ("openai-chat", b'{"choices":[{"message":{"tool_calls":[{"function":null},{"function":{}}]}}]}'),
        ("openai-chat", b'{"choices":null,"error":{"message":"no"}}'),
        ("openai-chat", b'{"choices":[],"error":{"message":"no"}}'),
        ("openai-chat", b'{"choices":[]} x'),
        ("openai-chat", b'\xef\xbb\xbf{"choices":[]}'),
        ("openai-chat", b'{"choices":[' + b"[" * 600 + b"]" * 600 + b"]}"),
        ("openai-chat", b'{"choices":[],"more":' + b"[" * 100 + b"]" * 100 + b"}"),
        ("openai-chat", b'{"choices":[],"more":123456789012345678901234567890}'),
        ("anthropic-messages", b'{"content":[{"type":"tool_use","input":null,"name":null}]}'),
        ("anthropic-messages", b'{"content":[{"input":"a\\nb","type":"tool_use"}]}'),
        ("anthropic-messages", b'{"content":[{"text":"no type"}]}'),
        ("anthropic-messages", b'{"content":[],"service_tier":"x"}'),
        ("anthropic-messages", b'{"type":"error","error":{"type":"overloaded_error","message":"no"}}'),
        ("openai-responses", b'{"status":"failed","output":[],"error":{"code":"x"}}'),
        ("openai-responses", b'{"status":"incomplete","incomplete_details":{"reason":"length"},"output":[]}'),
        ("openai-responses", b'{"output":[{"type":"web_search_call","id":"w"}]}'),
        ("openai-responses", b'{"output":[{"type":"function_call","name":""}]}'),
        ("openai-responses", b'{"output":[{"type":"compaction","encrypted_content":"abc"}]}'),
        ("openai-responses", b'{"output":[{"type":"message","content":"text"}]}'),
        ("google-gemini", b'{"candidates":[]}'),
        ("google-gemini", b'{"candidates":null,"usageMetadata":{"totalTokenCount":1}}'),
        ("google-gemini", b'{"candidates":[{"content":null,"finishReason":""}],"modelVersion":"","responseId":""}'),
        ("google-gemini", b'{"candidates":[{"finishReason":"FINISH_REASON_UNSPECIFIED"}]}'),
        ("google-gemini", b'{"candidates":[{"finishReason":""},{"finishReason":"STOP"}]}'),
        ("google-gemini", b'{"candidates":[{"finishReason":"A","index":1},{"finishReason":"B","index":0}]}'),
        ("google-gemini", b'{"candidates":[{"finishReason":"A","index":null},{"finishReason":"B","index":-0}]}'),
        ("google-gemini", b'{"candidates":[],"usageMetadata":{ }}'),
        ("google-gemini", b'{"candidates":[],"usageMetadata":{    }}'),
        ("google-gemini", b'{"candidates":[],"usageMetadata":[{"a":1}]}'),
        ("google-gemini", b'{"candidates":[],"usageMetadata": {"a":1.0} }'),
        ("google-gemini", b'{"candidates":[],"error":{"message":"no"}}'),
        ("google-gemini", b'{"candidates":[],"type":"error"}'),
        ("google-gemini", b'{"candidates":[],"type":"ping"}'),
        ("google-gemini", b'{"error":{"code":400,"message":"no"}}'),
        ("google-gemini", b'{"promptFeedback":{"blockReason":"SAFETY"}}'),
        ("google-gemini", b'{"candidates":[],"promptFeedback":{"blockReason":"SAFETY"}}'),
        ("google-gemini", b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a": 1}}}]}}]}'),
        ("google-gemini", b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}},{"text":"a"}]}}]}'),
        ("google-gemini", b'{"candidates":[{"content":{"parts":[{"text":"a","thought":null}]}}]}'),
        ("google-gemini", b'{"candidates":[{"content":{"parts":[{"text":"a","thought":"true"}]}}]}'),
        ("google-gemini", b'{"candidates":[{"content":{"parts":[{"text":"\\ud83d","thought":true}]}}]}'),
        ("google-gemini", b'[{"candidates":[{"content":{"parts":[{"text":"a"}]}}]},{"candidates":[]}]'),
        ("google-gemini", b'[]'),
    ],
)  # fmt: skip
def test_what_is_odd_is_said_alike(format: str, body: bytes) -> None:
    assert_they_agree(format, body)


ODD = st.sampled_from([
    None, True, 0, -1, 1.5, 10**20, "", "a", "é", "\ud83d", "\U0001f600", "\x00", "tool_use", "failed", [], {}, [None],
    ["a"], [{}], {"a": None}, {"type": "text", "text": "é"}, {"type": "tool_use", "name": "x", "input": {}},
    {"type": "reasoning", "summary": [{"text": "s"}]}, {"function": {"name": "f", "arguments": {"a": 1}}},
])  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Everything that stands in an answer: in what, and where."""
    found = []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        found.append((value, key))
        if isinstance(inner, dict | list):
            found += places(inner)
    return found


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(USUAL), st.lists(st.tuples(st.integers(0, 10**6), ODD), min_size=1, max_size=4), st.booleans())
def test_both_sides_say_the_same_with_odd_values_anywhere(
    usual: tuple[str, Any], changes: list[tuple[int, Any]], escaped: bool
) -> None:
    format, answer = usual[0], copy.deepcopy(usual[1])
    for number, odd in changes:
        found = places(answer)
        if found:
            inside, key = found[number % len(found)]
            inside[key] = copy.deepcopy(odd)
    assert_they_agree(format, json.dumps(answer, ensure_ascii=escaped).encode("utf-8", "surrogatepass"))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(USUAL), st.integers(0, 10**6), st.integers(0, 3), st.binary(max_size=3))
@example(USUAL[0], 0, 1, b"[")
def test_both_sides_say_the_same_of_any_bytes(usual: tuple[str, Any], at: int, gone: int, put: bytes) -> None:
    """A few bytes lost, and others in their place."""
    body = compact(usual[1])
    at %= len(body) + 1
    assert_they_agree(usual[0], body[:at] + put + body[at + gone :])


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(USUAL), st.integers(0, 10**6), ODD)
def test_a_member_that_comes_again_counts_alike(usual: tuple[str, Any], number: int, odd: Any) -> None:
    """The last one of a name wins, wherever it stands."""
    members = [(inside, key) for inside, key in places(usual[1]) if isinstance(inside, dict)]
    inside, key = members[number % len(members)]
    object_, again = compact(inside), compact({key: odd})
    for doubled in (object_[:-1] + b"," + again[1:], again[:-1] + b"," + object_[1:]):
        assert_they_agree(usual[0], compact(usual[1]).replace(object_, doubled, 1))
