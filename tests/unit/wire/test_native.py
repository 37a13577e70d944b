"""The native lane's two promises: what need not change does not, and what must is named."""

from __future__ import annotations

import json
import time
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from arbiter.errors import BadRequest, Cut
from arbiter.model import Target
from arbiter.pieces import LEAST_BYTES, Pieces
from arbiter.wire.course import Ending
from arbiter.wire.native import CHAT, GEMINI, MESSAGES, RESPONSES, fidelity, open_body, splice
from arbiter.wire.native_stream import NativeStream

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def spliced(body: bytes, wire: str = CHAT, model: str = "up", *, drop: bool = True):
    opened = open_body(body)
    return splice(opened, wire, model, Target(drop_attribution=drop), asks_usage=opened.stream)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.text(max_size=10), json_values, max_size=6))
def test_every_untouched_member_keeps_its_bytes(members):
    """Upstream members are the client's but for the declared changes (SPEC 2.1): digit for digit, blank for blank."""
    members.pop("stream", None)
    members.pop("stream_options", None)
    members["model"] = "asked"
    texts = {name: json.dumps(value, ensure_ascii=False, indent=1) for name, value in members.items()}
    body = "{" + ",\n ".join(f"{json.dumps(name)} : {text}" for name, text in texts.items()) + "}"
    sent = spliced(body.encode())
    raw = msgspec.json.decode(sent.body, type=dict[str, msgspec.Raw])
    assert list(raw) == list(members)
    for name, text in texts.items():
        expected = b'"up"' if name == "model" else text.encode()
        assert bytes(raw[name]) == expected
    assert fidelity(sent.changed) == "model-only"


def test_an_equal_model_leaves_the_request_verbatim():
    sent = spliced(b'{"model":"up","messages":[ 1.50 , 12345678901234567890 ]}')
    assert fidelity(sent.changed) == "verbatim"
    assert sent.body == b'{"model":"up","messages":[ 1.50 , 12345678901234567890 ]}'


@pytest.mark.parametrize(
    ("body", "is_kept"),
    [
        (b'{"model":"m","messages":[{"a": 1}],"x":1}', True),
        (b'{"model":"m","\xc3\xa4":"\xc3\xa4"}', True),
        (b'{"model": "m"}', False),
        (b'{"model":"m"} ', False),
        (b' {"model":"m"}', False),
        (b'{"model":"m","x":1,"x":1}', False),
        (b'{"model":"n","model":"m"}', False),
    ],
)
def test_what_is_sent_is_the_same_whether_it_was_copied_or_not(body: bytes, is_kept: bool) -> None:
    """The very body that came only where it would be written so: a conversation's bytes do not depend on that."""
    opened = open_body(body)
    sent = splice(opened, CHAT, "m", Target(), asks_usage=False).body
    assert (sent is body) == is_kept
    assert sent == msgspec.json.encode(opened.members)
    other = msgspec.structs.replace(opened, members={**opened.members, "y": Raw(b"2")})
    assert splice(other, CHAT, "m", Target(), asks_usage=False).body == msgspec.json.encode(other.members)
    renamed = splice(opened, CHAT, "k", Target(), asks_usage=False).body
    assert renamed == msgspec.json.encode({**opened.members, "model": "k"})


@pytest.mark.parametrize(("wire", "name"), [(CHAT, "messages"), (GEMINI, "contents"), (RESPONSES, "input")])
@pytest.mark.parametrize("size", [10, LEAST_BYTES - 1, LEAST_BYTES, 3 * LEAST_BYTES])
def test_a_long_conversation_is_sent_from_where_it_came(wire: str, name: str, size: int) -> None:
    """The same bytes as of a short one, which is copied."""
    told = b'["%b"]' % (b"x" * (size - 4))
    body = b'{"model":"m", "x":"\\u0000","%b":%b,"y\\u0000":[1]}' % (name.encode(), told)
    opened = open_body(body)
    sent = splice(opened, wire, "k", Target(), asks_usage=False).body
    model = {} if wire == GEMINI else {"model": "k"}
    assert bytes(sent) == msgspec.json.encode({**model, "x": "\0", name: Raw(told), "y\0": [1]})
    assert len(sent) == len(bytes(sent))
    assert isinstance(sent, Pieces) == (size >= LEAST_BYTES)
    if isinstance(sent, Pieces):
        assert sent.pieces[1].obj is opened.members[name]


def test_of_duplicate_keys_only_the_one_we_routed_by_goes_out():
    """A second "model" must not reach an upstream that reads the first: that would be a way around every policy."""
    sent = spliced(b'{"model":"forbidden","model":"asked","x":1}', model="asked")
    assert sent.body.count(b'"model"') == 1
    assert json.loads(sent.body)["model"] == "asked"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, {"include_usage": True}),
        ("null", {"include_usage": True}),
        ("{}", {"include_usage": True}),
        ('{"include_usage":false,"x":1}', {"include_usage": True, "x": 1}),
    ],
)
def test_a_stream_always_asks_for_usage(options, expected):
    """SPEC 2.5: the books need it, whether or not the client asked."""
    member = "" if options is None else f',"stream_options":{options}'
    sent = spliced(f'{{"model":"up","stream":true{member}}}'.encode())
    assert json.loads(sent.body)["stream_options"] == expected
    assert sent.asked_usage
    assert fidelity(sent.changed) == "$.stream_options.include_usage"


def test_a_client_that_asked_for_usage_itself_changes_nothing():
    sent = spliced(b'{"model":"up","stream":true,"stream_options":{"include_usage":true}}')
    assert (fidelity(sent.changed), sent.asked_usage) == ("verbatim", False)


@pytest.mark.parametrize("half", [r"\ud83c", r"\udf0d", r"cut \ud83c\ud83c\udf0d off", r"\\\ud83c"])
def test_half_an_emoji_passes_as_it_came(half):
    """JSON allows the escape of half a surrogate pair, and agents do cut text in the middle of one (SPEC 2.1)."""
    text = f'[ {{"role":"user","content":"{half}"}} ]'
    body = f'{{ "a" : 1 , "model":"asked","messages" : {text} ,"a":"{half}","z":[1.50] }}'
    sent = spliced(body.encode())
    assert sent.body == f'{{"a":"{half}","model":"up","messages":{text},"z":[1.50]}}'.encode()
    assert fidelity(sent.changed) == "model-only"


def test_half_an_emoji_passes_in_stream_options_too():
    sent = spliced(rb'{"model":"up","stream":true,"stream_options":{"x":"\ud83c"}}')
    assert rb'"stream_options":{"x":"\ud83c","include_usage":true}' in sent.body


def test_stream_options_of_many_members_are_refused():
    options = b",".join(b'"%d":1' % n for n in range(1025))
    with pytest.raises(BadRequest, match="`stream_options` has more than 1,024 members"):
        spliced(b'{"model":"up","stream":true,"stream_options":{%b}}' % options)


def test_the_widest_body_that_is_taken_has_1024_members():
    members = {"model": "up"} | {str(n): n for n in range(1023)}
    assert len(open_body(json.dumps(members).encode()).members) == 1024


ATTRIBUTION = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli;"}


def test_the_attribution_line_is_dropped_and_nothing_else_of_the_system_prompt_moves():
    rest = '{"type":"text","text":"You are…","cache_control":{"type":"ephemeral"}}'
    body = f'{{"model":"up","system":[{json.dumps(ATTRIBUTION)}, {rest} ],"messages":[]}}'.encode()
    dropped = spliced(body, MESSAGES)
    assert fidelity(dropped.changed) == "$.system[0]"
    assert bytes(msgspec.json.decode(dropped.body, type=dict[str, msgspec.Raw])["system"]) == f"[{rest}]".encode()
    assert not spliced(body, MESSAGES, drop=False).changed


def test_dropping_the_attribution_line_decodes_no_other_entry():
    """An array of millions of entries costs its bytes, not an object for each; the first may have members too."""
    first = json.dumps({**ATTRIBUTION, "x": [1] * 1000})
    body = b'{"model":"up","system":[%b,%b1]}' % (first.encode(), b"1," * (1 << 20))
    tracemalloc.start()
    try:
        dropped = spliced(body, MESSAGES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert dropped.body == b'{"model":"up","system":[%b1]}' % (b"1," * (1 << 20))
    assert peak < 8 * len(body)


@pytest.mark.parametrize(
    "system",
    [
        '"x-anthropic-billing-header: a string is not the line"',
        '[{"type":"text","text":"x"},"x-anthropic-billing-header:"]',
        "[]",
    ],
)
def test_only_the_first_entry_of_an_array_is_the_attribution_line(system):
    assert spliced(f'{{"model":"up","system":{system}}}'.encode(), MESSAGES).changed == ()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not valid JSON"),
        (b'{"model":"m",}', "trailing comma"),
        (b"[1]", "must be a JSON object"),
        (b"{}", "`model` is missing"),
        (b'{"model":7}', "`model` must be a string"),
        (b'{"model":""}', "`model` is empty"),
        (b'{"model":"m","stream":"yes"}', "`stream` must be true or false"),
        (b'{"model":"m","deep":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "nested too deeply"),
        (b'{"model":"m","deep":' + b"[" * 201 + b"]" * 201 + b"}", "nested too deeply"),
        (b'{"model":"m",' + b",".join(b'"%d":1' % n for n in range(1024)) + b"}", "more than 1,024 members"),
        (b'{"model":"m","x":"\xff"}', r"not valid UTF-8 \(byte 18\)"),
        (b'{"model":"m","x":"ab\xed\xa0\x80"}', r"not valid UTF-8 \(byte 20\)"),
        (rb'{"model":"\ud800"}', "`model` holds half of a surrogate pair"),
        (rb'{"model":"m","\ud800":1}', "name of a member holds half of a surrogate pair"),
        (rb'{"model":"m","x":"\ud800","y":01}', "invalid number"),
        (rb'{"model":"m","x":"\ud800"', "truncated"),
    ],
)
def test_a_body_we_cannot_open_is_refused_with_its_reason(body, says):
    with pytest.raises(BadRequest, match=says):
        open_body(body)


# --- streams ----------------------------------------------------------------------------------------------------------


def event(data: object) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def chunk(delta: object = None, finish: str | None = None, **more: object) -> bytes:
    return event({"id": "c1", "object": "chat.completion.chunk", "model": "m",
                  "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more})  # fmt: skip


HELLO = chunk({"role": "assistant", "content": ""}) + chunk({"content": "Hel"}) + chunk({"content": "lo"})
FINISH = chunk(finish="stop")
USAGE = event(
    {
        "id": "c1",
        "object": "chat.completion.chunk",
        "choices": [],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
)
DONE = b"data: [DONE]\n\n"


def run(stream: NativeStream, *pieces: bytes, error: Cut | None = None) -> bytes:
    out = b"".join(stream.feed(piece) for piece in pieces)
    return out + stream.end(error)


def chat(*, drop_usage: bool = False) -> NativeStream:
    return NativeStream(CHAT, drop_usage=drop_usage, limit=1 << 20)


def test_what_one_read_gave_goes_on_as_the_very_object():
    """Bytes that need no change are not even copied."""
    stream = chat()
    data = HELLO
    assert stream.feed(data) is data


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 60), max_size=40), st.booleans())
def test_any_cut_of_the_stream_gives_the_same_bytes(sizes, drop_usage):
    whole = HELLO + b": a comment\n\n" + FINISH + USAGE + DONE
    pieces, at = [], 0
    for size in sizes:
        pieces.append(whole[at : at + size])
        at += size
    pieces.append(whole[at:])
    stream = chat(drop_usage=drop_usage)
    got = run(stream, *[piece for piece in pieces if piece])
    assert got == (whole.replace(USAGE, b"") if drop_usage else whole)
    assert (stream.ending, stream.repairs) == (Ending.COMPLETE, [])


def test_a_usage_that_rides_on_a_content_chunk_stays():
    riding = chunk({"content": "x"}, usage={"prompt_tokens": 1, "completion_tokens": 1})
    stream = chat(drop_usage=True)
    assert run(stream, riding + FINISH + DONE) == riding + FINISH + DONE


def test_a_missing_done_is_added_after_a_finish_reason():
    stream = chat()
    assert run(stream, HELLO + FINISH) == HELLO + FINISH + DONE
    assert (stream.ending, stream.repairs) == (Ending.COMPLETE, ["terminal_event"])


def test_a_missing_blank_line_at_the_end_is_added():
    stream = chat()
    assert run(stream, HELLO + FINISH + b"data: [DONE]\n") == HELLO + FINISH + DONE
    assert (stream.ending, stream.repairs) == (Ending.COMPLETE, ["blank_line"])


def test_a_stream_that_dies_gets_no_done():
    """No client may mistake a cut for an end (SPEC 2.7); the half event at the end is not passed on."""
    stream = chat()
    assert run(stream, HELLO + b'data: {"choices":[{"del', error=Cut("gone")) == HELLO
    assert stream.ending is Ending.CUT


def test_a_done_without_a_finish_reason_counts_as_a_stop_and_is_marked():
    stream = chat()
    assert run(stream, HELLO + DONE) == HELLO + DONE
    assert (stream.ending, stream.finish_inferred) == (Ending.COMPLETE, True)


def test_an_error_event_is_the_last_word():
    """vLLM sends its [DONE] after the error; passed on, it would say that all went well. The relay sends the error."""
    stream = chat()
    failure = event({"error": {"message": "engine died", "code": 500}})
    assert run(stream, HELLO + failure + DONE) == HELLO
    assert stream.last_words == failure
    assert stream.ending is Ending.FAILED
    assert stream.failure is not None and b"engine died" in stream.failure


def test_an_error_event_that_the_end_of_the_stream_completes_is_one_too():
    stream = chat()
    failure = event({"error": {"message": "engine died"}})
    assert stream.feed(HELLO + failure[:-1]) == HELLO
    assert stream.end(None) == b""
    assert (stream.ending, stream.last_words, stream.repairs) == (Ending.FAILED, failure, ["blank_line"])


def test_bytes_that_are_no_text_cut_the_stream_behind_the_events_before_them():
    """Whatever stands before them in the same read, a mark too, still goes out."""
    for before in (HELLO, HELLO + chunk(finish="stop")):
        stream = chat()
        assert stream.feed(before + b'data: {"x":"\xff"}\n\n' + DONE) == before
        assert stream.ending is Ending.CUT
        assert stream.garbled is not None


def call(index: int, ident: str | None, name: str | None, arguments: str) -> dict[str, object]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "function": function} | ({"id": ident, "type": "function"} if ident else {})


def test_parallel_calls_that_all_came_at_index_0_get_indices_of_their_own():
    first = chunk({"tool_calls": [call(0, "a", "one", "")]})
    more = chunk({"tool_calls": [call(0, None, None, "{}")]})
    second = chunk({"tool_calls": [call(0, "b", "two", "")]})
    stream = chat()
    out = run(stream, first + more + second + more + chunk(finish="tool_calls") + DONE)
    indices = [
        fragment["index"]
        for line in out.split(b"\n\n")
        if line.startswith(b"data: {")
        for fragment in json.loads(line[6:])["choices"][0]["delta"].get("tool_calls", ())
    ]
    assert indices == [0, 0, 1, 1]
    assert (stream.ending, stream.repairs) == (Ending.COMPLETE, ["tool_indices"])


def named(name: str, **more: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **more})}\n\n".encode()


MESSAGE = (
    named("message_start", message={"id": "msg_1", "model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}})
    + named("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + named("ping")
    + named("content_block_delta", index=0, delta={"type": "text_delta", "text": "hi"})
    + named("content_block_stop", index=0)
)
MESSAGE_END = named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
MESSAGE_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


def test_a_messages_stream_passes_whole_and_a_missing_message_stop_is_added():
    whole = NativeStream(MESSAGES, drop_usage=False, limit=1 << 20)
    assert run(whole, MESSAGE + MESSAGE_END + MESSAGE_STOP) == MESSAGE + MESSAGE_END + MESSAGE_STOP
    assert whole.repairs == []
    short = NativeStream(MESSAGES, drop_usage=False, limit=1 << 20)
    assert run(short, MESSAGE + MESSAGE_END) == MESSAGE + MESSAGE_END + MESSAGE_STOP
    assert (short.ending, short.repairs) == (Ending.COMPLETE, ["terminal_event"])
    dead = NativeStream(MESSAGES, drop_usage=False, limit=1 << 20)
    assert run(dead, MESSAGE) == MESSAGE
    assert dead.ending is Ending.CUT


def test_pings_and_comments_are_no_events():
    """They move no first-event budget, and they are not output."""
    stream = NativeStream(MESSAGES, drop_usage=False, limit=1 << 20)
    stream.feed(b": hi\n\n" + named("ping"))
    assert not stream.has_event
    stream.feed(MESSAGE)
    assert stream.has_event


GEMINIS = [
    b'data: {"candidates":[{"content":{"parts":[{"text":"a: b"}],"role":"model"}}]}\r\n\r\n',
    b'data: {"candidates":[{"content":{"parts":[{"text":"c"}]},"finishReason":"STOP"}]}\r\n\r\n',
]
OTHERS = b"\xef\xbb\xbf: hi\n\n%b:ping\n\n: ping\r\n\r\nevent: x\nid: 7\n%b: bye\n\n\n"


@settings(deadline=None, max_examples=80)
@given(st.lists(st.integers(1, 60), max_size=30), st.booleans())
def test_between_geminis_events_there_is_nothing_but_these(sizes, is_cut):
    """Google's SDKs fail on any line that is no `data: `: python-genai reads it as JSON, go-genai ends the stream. A
    server that sends keepalives is made to look like Google's."""
    whole = OTHERS % tuple(GEMINIS)
    whole = whole.rstrip(b"\n").removesuffix(b": bye").rstrip(b"\r\n") if is_cut else whole
    stream = NativeStream(GEMINI, drop_usage=False, limit=1 << 20)
    pieces, at = [], 0
    for size in (*sizes, len(whole)):
        pieces.append(whole[at : at + size])
        at += size
    got = run(stream, *[piece for piece in pieces if piece])
    assert got.replace(b"\r\n", b"\n") == b"".join(GEMINIS).replace(b"\r\n", b"\n")
    assert (stream.ending, stream.repairs[0]) == (Ending.COMPLETE, "comments")


def test_what_google_sends_goes_on_as_it_came():
    """The very object; also an error that it writes into a stream in lines of its own, which its SDKs read."""
    stream = NativeStream(GEMINI, drop_usage=False, limit=1 << 20)
    assert stream.feed(GEMINIS[0]) is GEMINIS[0]
    error = b'{\n  "error": {\n    "code": 503, "message": "busy"\n  }\n}\n\n'
    assert stream.feed(error) == error and stream.repairs == []


ODD = st.sampled_from([None, True, 0, 1, -1, 7, 1.5, "", "a", [], [1], {}, {"index": 0}])
ODD_CALL = ODD | st.fixed_dictionaries(
    {}, optional={"index": ODD, "id": ODD | st.just("b"), "function": ODD | st.fixed_dictionaries({"name": ODD})}
)
ODD_CHOICE = ODD | st.fixed_dictionaries(
    {},
    optional={
        "index": ODD,
        "delta": ODD | st.fixed_dictionaries({"tool_calls": ODD | st.lists(ODD_CALL, max_size=4)}),
    },
)


@settings(deadline=None, max_examples=300)
@given(st.lists(ODD | st.lists(ODD_CHOICE, max_size=3), max_size=5))
def test_no_shape_of_a_chunk_breaks_the_repair_of_indices(chunks):
    """What is no call, no choice or no index is passed on: the stream goes on behind it, whatever it was."""
    clash = event({"choices": [{"delta": {"tool_calls": [call(0, "a", "f", ""), call(0, "b", "g", "")]}}]})
    stream = chat()
    stream.feed(clash)
    for choices in chunks:
        out = stream.feed(event({"object": "chat.completion.chunk", "choices": choices}))
        assert json.loads(out[6:])["object"] == "chat.completion.chunk"
    assert stream.ending is Ending.OPEN


@pytest.mark.parametrize("odd", [{"id": 7}, 7, {"id": "c", "index": [1]}, {"id": ["x"]}, {"index": {}}])
def test_an_odd_call_beside_one_that_is_repaired_keeps_what_it_is(odd):
    stream = chat()
    stream.feed(chunk({"tool_calls": [call(0, "a", "f", "")]}))
    out = stream.feed(chunk({"tool_calls": [call(0, "b", "g", ""), odd]}))
    assert json.loads(out[6:])["choices"][0]["delta"]["tool_calls"] == [call(1, "b", "g", ""), odd]


def test_a_stream_of_more_calls_than_we_keep_is_cut_before_the_one_too_many():
    stream = chat()
    calls = [chunk({"tool_calls": [call(n, f"i{n}", "f", "")]}) for n in range(1030)]
    assert run(stream, *calls) == b"".join(calls[:1024])
    assert stream.ending is Ending.CUT
    assert "more than 1,024 tool calls" in str(stream.garbled)


def test_a_large_event_that_dribbles_in_is_not_copied_at_every_read():
    """Ten thousand reads of one unfinished event keep its pieces; joining them each time would copy 40 GB here."""
    stream = NativeStream(CHAT, drop_usage=False, limit=16 << 20)
    whole = b'data: {"choices":[],"x":"' + b"x" * (4 << 20) + b'"}\n\n'
    began = time.process_time()
    out = [
        stream.feed(whole[:-10_000]),
        *(stream.feed(whole[n : n + 1]) for n in range(len(whole) - 10_000, len(whole))),
    ]
    assert time.process_time() - began < 2.0
    assert b"".join(out) == whole
