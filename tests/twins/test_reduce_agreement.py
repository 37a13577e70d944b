"""The two sides of the reducer tell the same story of any stream, sensible or hostile, cut anywhere."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import reduce as c_reduce
from arbiter._speedups.py import reduce as py_reduce
from arbiter._speedups.py import sse as py_sse
from tests.twins.streams import Story, compact, ended, fed

# Everything that an event may look like, likely members and unlikely values mixed; then bytes broken at random.
SCALARS = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        7,
        -1,
        1.5,
        1e300,
        10**20,
        "",
        "x",
        "error",
        "stop",
        "a",
        "b",
        "ping",
        'é🌍\n"\\',
        "\ud83c",
    ]
)
KEYS = st.sampled_from(
    ["id", "model", "object", "choices", "usage", "error", "type", "x_groq", "index", "delta", "finish_reason",
     "item", "response", "output", "summary",
     "content", "reasoning", "reasoning_content", "refusal", "tool_calls", "function", "function_call", "name",
     "arguments", "text", "thinking", "partial_json", "message", "stop_reason", "content_block", "input", "other",
     "\ud83c"]
)  # fmt: skip
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
FRAGMENT = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([0, 1, None]) | ANY,
        "id": st.sampled_from(["a", "b", "", None]) | ANY,
        "function": st.fixed_dictionaries(
            {}, optional={"name": st.sampled_from(["f", "", None]) | ANY, "arguments": st.sampled_from(["{", ""]) | ANY}
        ),
        "type": ANY,
    },
)
DELTA = st.fixed_dictionaries(
    {},
    optional={
        "content": st.text(max_size=12) | ANY,
        "reasoning": st.text(max_size=3) | ANY,
        "reasoning_content": st.text(max_size=3) | ANY,
        "refusal": ANY,
        "tool_calls": st.lists(FRAGMENT, max_size=2) | ANY,
        "text": st.text(max_size=12) | ANY,
        "thinking": st.text(max_size=3) | ANY,
        "partial_json": st.text(max_size=3) | ANY,
        "stop_reason": st.sampled_from(["end_turn", None]) | ANY,
        "other": ANY,
    },
)
CHOICE = st.fixed_dictionaries(
    {"index": st.sampled_from([0, 1, 63, 64]), "delta": DELTA},
    optional={"finish_reason": st.sampled_from([None, None, "stop", ""]), "usage": ANY, "logprobs": ANY},
)
RESPONSES = [
    f"response.{kind}"
    for kind in (
        "created", "queued", "in_progress", "completed", "incomplete", "failed", "cancelled", "output_text.delta",
        "output_text.delta", "refusal.delta", "reasoning_text.delta", "reasoning_summary_text.delta", "audio.delta",
        "function_call_arguments.delta", "custom_tool_call_input.delta", "mcp_call_arguments.delta",
        "code_interpreter_call_code.delta", "output_text.done", "output_item.added", "output_item.done",
        "content_part.added", "content_part.done", "web_search_call.in_progress", "",
    )
]  # fmt: skip
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "compaction", "x_output"])},
    optional={
        "name": ANY,
        "arguments": ANY,
        "input": ANY,
        "code": ANY,
        "encrypted_content": ANY,
        "content": st.lists(st.dictionaries(KEYS, ANY, max_size=3), max_size=2) | ANY,
        "summary": ANY,
    },
)
PART = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=12) | ANY,
        "thought": st.sampled_from([True, False]) | ANY,
        "thoughtSignature": ANY,
        "functionCall": st.fixed_dictionaries({}, optional={"name": ANY, "args": ANY}) | ANY,
        "other": ANY,
    },
)
CANDIDATE = st.fixed_dictionaries(
    {"content": st.fixed_dictionaries({}, optional={"parts": st.lists(PART, max_size=2) | ANY, "role": ANY}) | ANY},
    optional={"index": st.sampled_from([0, 1]) | ANY, "finishReason": st.sampled_from(["STOP", "", None]) | ANY},
)
EVENT = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["i", "j", "", None]) | ANY,
        "model": st.sampled_from(["m", "", None]) | ANY,
        "service_tier": st.sampled_from(["default", "", None]) | ANY,
        "object": st.sampled_from(["chat.completion.chunk", "error"]) | ANY,
        "choices": st.lists(CHOICE, max_size=2) | ANY,
        "usage": st.sampled_from([None, {}, {"prompt_tokens": 1.5, "d": {"e": "f"}}]) | ANY,
        "error": st.sampled_from([None, None, {}, {"m": 1}]) | ANY,
        "x_groq": ANY,
        "type": st.sampled_from(
            ["content_block_delta", "content_block_delta", "content_block_start", "content_block_stop", "message_start",
             "message_delta", "message_stop", "ping", "error", "keepalive", *RESPONSES]
        ) | ANY,
        "delta": DELTA | st.text(max_size=12) | ANY,
        "item": ITEM | ANY,
        "response": st.fixed_dictionaries(
            {},
            optional={
                "id": st.sampled_from(["i", ""]) | ANY,
                "model": ANY,
                "output": st.lists(ITEM | ANY, max_size=2) | ANY,
                "usage": st.sampled_from([None, {}, {"input_tokens": 1.5}]) | ANY,
                "incomplete_details": st.sampled_from([None, {"reason": "max_output_tokens"}]) | ANY,
                "service_tier": ANY,
            },
        )
        | ANY,
        "message": ANY,
        "content_block": ANY,
        "candidates": st.lists(CANDIDATE | ANY, max_size=2) | ANY,
        "usageMetadata": st.sampled_from([None, {}, {"promptTokenCount": 1.5}]) | ANY,
        "promptFeedback": st.sampled_from([None, {"blockReason": "SAFETY"}]) | ANY,
        "modelVersion": st.sampled_from(["m", ""]) | ANY,
        "responseId": st.sampled_from(["r", ""]) | ANY,
        "other": ANY,
    },
)  # fmt: skip
NAME = st.sampled_from(["", "", "", "event: error\n", "event: ping\n", "event: content_block_delta\n"])


@st.composite
def events(draw: st.DrawFn) -> bytes:
    style = draw(st.sampled_from([{}, {"separators": (",", ":")}, {"ensure_ascii": True, "indent": None}]))
    value = draw(EVENT | EVENT | ANY)
    payload = json.dumps(value, **style)
    if draw(st.booleans()):
        payload = compact(value)
    data = payload.encode("utf-8", "surrogatepass" if draw(st.integers(0, 20)) == 0 else "replace")
    if draw(st.integers(0, 3)) == 0 and data:
        at = draw(st.integers(0, len(data) - 1))
        data = (
            data[:at]
            + draw(st.sampled_from([b"", b",", b'"', b"}", b"\\u00", b"\xff", b"0", b" ", b"\n\n"]))
            + data[at + 1 :]
        )
    return draw(NAME).encode() + b"data: " + data + draw(st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r", b"\n"]))


@settings(deadline=None, max_examples=200)
@given(
    stream=st.lists(events() | st.sampled_from([b": c\n\n", b"data: [DONE]\n\n", b"data: [\n"]), max_size=6).map(
        b"".join
    ),
    cuts=st.lists(st.integers(0, 800), max_size=6),
    tap=st.sampled_from(["ChatTap", "MessagesTap", "ResponsesTap", "GeminiTap"]),
    limit=st.sampled_from([1 << 20, 150]),
)
def test_the_twins_agree_on_any_stream(stream: bytes, cuts: list[int], tap: str, limit: int) -> None:
    """Same marks, same ranges, same counters, same faults: on odd shapes, on broken bytes, for any cut."""
    whole = Story(py_reduce, tap, stream, limit=limit)
    pieces = Story(py_reduce, tap, stream, cuts, limit)
    assert pieces == whole
    assert Story(c_reduce, tap, stream, limit=limit) == whole
    compiled = Story(c_reduce, tap, stream, cuts, limit)
    assert compiled == whole
    assert compiled.boundaries == pieces.boundaries


@settings(deadline=None, max_examples=100)
@given(stream=st.binary(max_size=300), tap=st.sampled_from(["ChatTap", "MessagesTap", "ResponsesTap", "GeminiTap"]))
def test_the_twins_agree_on_noise(stream: bytes, tap: str) -> None:
    """Bytes that are nothing at all."""
    for data in (
        stream,
        b"data: " + stream + b"\n\n",
        b'data: {"choices":[{"index":0,"delta":{"content":"' + stream + b'"}}]}\n\n',
        b'data: {"candidates":[{"content":{"parts":[{"text":"' + stream + b'"}]}}]}\n\n',
    ):
        assert Story(c_reduce, tap, data) == Story(py_reduce, tap, data)


@settings(deadline=None, max_examples=100)
@given(stream=st.lists(events() | st.sampled_from([b": c\r\n\r\n", b"\n", b"\r"]), max_size=5).map(b"".join))
def test_ranges_are_ordered_and_hold_their_event(stream: bytes) -> None:
    """Ranges never overlap, and each read by itself gives the payload it was marked with."""
    for module in (py_reduce, c_reduce):
        story = Story(module, "ChatTap", stream)
        last = (0, 0)
        for _, start, stop, payload in story.marks:
            assert start >= last[1] or (start, stop) == last
            last = (start, stop)
            reader = py_sse.SSEReader()
            assert [data for _, data in fed(reader, stream[start:stop]) + ended(reader)] == [payload]


HEADS = st.sampled_from(
    [
        '{"id":"i","model":"m","choices":',
        '{"id":"i","model":"m","created":1,"choices":',
        '{"id":"","model":"","choices":',
        '{"id":"i","model":"m","service_tier":"flex","choices":',
        '{"id":"i","model":"m","service_tier":null,"choices":',
        '{"usage":{"prompt_tokens":1},"choices":',
        '{"usage":null,"error":null,"choices":',
        '{"x":"\\ud83c","choices":',
        '{"id":"j","object":"error","choices":',
        '{"choices":[],"choices":',
    ]
)
TAILS = st.sampled_from(
    [
        '[{"index":0,"delta":{"content":"abc"}}]}',
        '[{"index":0,"delta":{"content":"abc"}}],"usage":{"prompt_tokens":2}}',
        '[{"index":0,"delta":{"content":"\\ud83c"}}],"usage":{"prompt_tokens":3}}',
        '[{"index":0,"delta":{"content":"abc"}}],"id":"k","model":"n"}',
        '[{"index":0,"delta":{"content":"abc"}}],"choices":[]}',
        '[{"index":0,"delta":{"content":"abc"}}],"service_tier":"default","service_tier":""}',
        '[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}',
        '[{"index":1,"delta":{}},{"index":0,"delta":{"reasoning":"r"}}],"usage":null}',
        '[{"index":0,"delta":{},"finish_reason":"stop"}]}',
        '[],"usage":{"prompt_tokens":4}}',
        '[{"index":0}]',
        "null}",
        "",
    ]
)


@settings(deadline=None, max_examples=200)
@given(chunks=st.lists(st.tuples(HEADS, TAILS), max_size=8), cuts=st.lists(st.integers(0, 800), max_size=4))
def test_the_twins_agree_on_chunks_that_begin_alike(chunks: list[tuple[str, str]], cuts: list[int]) -> None:
    """What was read at the beginning of one chunk may serve the next one, and must serve it right."""
    stream = "".join(f"data: {head}{tail}\n\n" for head, tail in chunks)
    assert Story(c_reduce, "ChatTap", stream, cuts) == Story(py_reduce, "ChatTap", stream)
