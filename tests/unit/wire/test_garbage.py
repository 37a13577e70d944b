"""Whatever an upstream sends, nothing but a documented error comes of it. `ARBITER_EXAMPLES` says how hard to try."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.errors import ArbiterError, Garbled, InStreamError, UpstreamStatus
from arbiter.fold import collect, unfold
from arbiter.model import Ended, Event, Failed
from arbiter.wire.format import FORMATS
from tests.fakes import grammar
from tests.fakes.vectors import CASES, read_by

EACH = pytest.mark.parametrize("wire", list(FORMATS))

NAMES = re.findall(
    r"\S+",
    """
    id object model created type choices index delta message content role text tool_calls function name arguments
    function_call finish_reason usage prompt_tokens completion_tokens total_tokens prompt_tokens_details error code
    reasoning reasoning_content reasoning_details refusal logprobs thinking signature data input partial_json
    content_block stop_reason stop_sequence input_tokens output_tokens cache_creation x_groq summary detail
    response item item_id output_index content_index summary_index output status incomplete_details reason call_id
    namespace candidates parts thought thoughtSignature functionCall args finishReason usageMetadata promptTokenCount
    candidatesTokenCount thoughtsTokenCount totalTokenCount promptFeedback blockReason modelVersion responseId
    """,
)
WORDS = re.findall(
    r"\S+",
    """
    text thinking redacted_thinking tool_use message_start message_delta message_stop content_block_start
    content_block_delta content_block_stop message error ping stop length tool_calls end_turn text_delta
    thinking_delta input_json_delta signature_delta function chat.completion.chunk [DONE] response.created
    response.output_item.added response.output_item.done response.output_text.delta response.completed response.failed
    response.function_call_arguments.delta response.custom_tool_call_input.delta response.reasoning_text.delta
    response.reasoning_summary_text.delta response.refusal.delta response.incomplete function_call custom_tool_call
    reasoning output_text refusal completed STOP MAX_TOKENS MALFORMED_FUNCTION_CALL model
    """,
)

BROKEN = "\ue0ff"
"""Written as a byte that is no UTF-8."""

scalars = st.one_of(
    st.sampled_from(
        [None, True, False, 0, 1, 2, -1, 1.5, 1e400, 2**63, 10**30, "", "{", "{}", '{"a":1}', "\ud83d", "\n", BROKEN]
    ),
    st.sampled_from(WORDS),
    st.integers(),
    st.text(max_size=4),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)


@st.composite
def chunks(draw: st.DrawFn) -> object:
    """An object that looks like a chunk down to some depth, and then like nothing."""
    delta = draw(st.dictionaries(st.sampled_from(NAMES), values, max_size=3))
    calls = draw(st.lists(st.dictionaries(st.sampled_from(["index", "id", "function", "type"]), values), max_size=2))
    if draw(st.booleans()):
        functions = draw(st.lists(st.dictionaries(st.sampled_from(["name", "arguments"]), values), max_size=2))
        calls = [{**call, "function": function} for call, function in zip(calls, functions, strict=False)]
    if calls and draw(st.booleans()):
        delta["tool_calls"] = calls
    choice = {"index": 0, "delta": delta, "finish_reason": draw(st.none() | scalars)}
    if draw(st.integers(0, 4)) == 0:
        choice[draw(st.sampled_from(NAMES))] = draw(values)
    return {"id": draw(scalars), "choices": [choice], "usage": draw(st.none() | values)}


@st.composite
def events(draw: st.DrawFn) -> object:
    """The same for an event of a message stream."""
    kinds = [word for word in WORDS if word.startswith(("message_", "content_", "error", "ping"))]
    event: dict[str, object] = {"type": draw(st.sampled_from(kinds)), "index": draw(st.integers(0, 2))}
    for name in ("delta", "content_block", "message"):
        inner = draw(st.dictionaries(st.sampled_from(NAMES), values, max_size=4))
        event[name] = {"type": draw(st.sampled_from(WORDS)), **inner}
    if draw(st.integers(0, 4)) == 0:
        event[draw(st.sampled_from(NAMES))] = draw(values)
    return {**event, "usage": draw(st.none() | values)}


@st.composite
def items(draw: st.DrawFn) -> object:
    """The same for an event of a response."""
    event: dict[str, object] = {"type": draw(st.sampled_from([word for word in WORDS if word.startswith("response.")]))}
    event |= {"output_index": draw(st.integers(0, 2)), "delta": draw(st.text(max_size=3) | values)}
    for name in ("item", "response"):
        inner = draw(st.dictionaries(st.sampled_from(NAMES), values, max_size=4))
        kinds = st.sampled_from(["message", "function_call", "custom_tool_call", "reasoning", "web_search_call"])
        event[name] = {"type": draw(kinds), "call_id": draw(scalars), "name": "f", **inner}
    if draw(st.integers(0, 4)) == 0:
        event[draw(st.sampled_from(NAMES))] = draw(values)
    return event


def payload(value: object) -> bytes:
    """JSON as bytes; half of a surrogate pair is escaped, an infinity is written as no JSON has it."""
    return json.dumps(value).encode().replace(b"\\ue0ff", b"\xff")


payloads = st.one_of(
    *(made().map(payload) for made in (chunks, events, items)),
    values.map(payload),
    st.just(b"[DONE]"),
    st.binary(max_size=20),
)
frames = st.tuples(st.sampled_from([b"", *(word.encode() for word in WORDS[:11])]), payloads)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A vector with some bytes of it changed, lost, or told twice."""
    data = bytearray(read_by(draw(st.sampled_from(CASES))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 60))
        match draw(st.sampled_from(["change", "lose", "repeat", "insert"])):
            case "change":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "lose":
                del data[at : at + length]
            case "repeat":
                data[at:at] = data[at : at + length]
            case "insert":
                data[at:at] = draw(st.sampled_from([b"null", b'""', b"[", b"{}", b"-1", b"\\ud800", b"\n\n", b"0.5"]))
    return bytes(data)


def check(wire: str, told: list[Event]) -> None:
    """What was read ends once, and can be written for clients of every format."""
    assert [event for event in told if isinstance(event, Ended | Failed)] == told[-1:]
    for client, judge in grammar.JUDGES.items():
        writer = FORMATS[client].writer("T", "m", 1700000000)
        try:
            out = b"".join(writer.write(event) for event in told)
        except Garbled:
            continue  # interleaved in a way that this client's format cannot tell
        assert judge(out).ending == ("complete" if isinstance(told[-1], Ended) else "error")


@EACH
@given(found=st.lists(frames, max_size=8))
def test_a_reader_never_raises(wire: str, found: list[tuple[bytes, bytes]]) -> None:
    """Frames of JSON that resembles the format, of other JSON, and of none."""
    reader = FORMATS[wire].reader()
    told = [event for frame in found for event in reader.read(*frame)]
    check(wire, told + reader.finish())


@EACH
@given(data=mutated() | st.binary(max_size=60))
def test_a_broken_stream_is_read_to_some_end(wire: str, data: bytes) -> None:
    reader = FORMATS[wire].reader()
    check(wire, reader.feed(data) + reader.finish())


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A unary body that looks like one of some format, or does not."""
    chunk = draw(chunks())
    assert isinstance(chunk, dict)
    choice = {**chunk["choices"][0], "message": chunk["choices"][0].pop("delta")}
    blocks = draw(st.lists(st.dictionaries(st.sampled_from(NAMES), values, max_size=5), max_size=3))
    content = [{"type": draw(st.sampled_from(WORDS)), **block} for block in blocks]
    message = {"type": "message", "content": draw(st.just(content) | values), "stop_reason": draw(scalars)}
    item = draw(items())
    assert isinstance(item, dict)
    response = {"status": draw(scalars), "output": [item["item"]], "usage": chunk["usage"], "error": draw(scalars)}
    made = [{**chunk, "choices": [choice]}, {**message, "usage": chunk["usage"]}, response]
    return payload(draw(st.sampled_from(made)))


@EACH
@given(body=bodies() | payloads)
def test_a_body_is_an_answer_or_an_upstreams_error(wire: str, body: bytes) -> None:
    try:
        answer = FORMATS[wire].parse_answer(body)
    except (Garbled, InStreamError):
        return
    assert collect(unfold(answer)) == answer
    for client in FORMATS.values():
        grammar.strict(client.write_answer(answer, "T", "m", 1700000000).decode())


@EACH
@given(status=st.integers(400, 599), body=payloads | bodies(), kind=st.sampled_from(["text/html", "application/json"]))
def test_an_error_body_is_always_some_error(wire: str, status: int, body: bytes, kind: str) -> None:
    error = FORMATS[wire].parse_error(status, [("Content-Type", kind)], body)
    assert isinstance(error, UpstreamStatus) and str(error)
    inside: ArbiterError = FORMATS[wire].parse_error_event(body)
    assert isinstance(inside, InStreamError) and str(inside)
    for client in FORMATS.values():
        for told in (error, inside):
            grammar.strict(client.write_error(told, "T")[2].decode())
            assert client.write_error_event(told, "T").endswith(b"\n\n")


@pytest.mark.parametrize(
    ("wire", "payload"),
    [
        ("openai-chat", b'{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"f","arguments":%b}}]}}]}'),
        ("openai-chat", b'{"choices":[{"index":0,"delta":{"reasoning":%b}}]}'),
        ("openai-chat", b'{"choices":[{"index":0,"delta":{"nobody knows":%b}}]}'),
        ("openai-responses", b'{"type":"response.output_text.delta","delta":"a","nobody knows":%b}'),
        ("anthropic-messages", b'{"type":"content_block_start","content_block":{"type":"tool_use","input":%b}}'),
    ],
)
@pytest.mark.parametrize("value", [b'"\xff"', b'{"a":"\xff"}'])
def test_bytes_that_are_no_text_are_a_fault_wherever_they_stand(wire: str, payload: bytes, value: bytes) -> None:
    """Also where what holds them is kept as it came, and looked into later or never."""
    *_, failed = FORMATS[wire].reader().read(b"", payload % value)
    assert isinstance(failed, Failed) and isinstance(failed.error, Garbled) and "UTF-8" in str(failed.error)
