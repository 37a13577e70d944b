"""What each event of a chat stream means to the side reducer, on both sides; ranges, cuts and bounds."""

from __future__ import annotations

import itertools
import json
from types import ModuleType
from typing import Any

import pytest

from arbiter._speedups.py import sse as py_sse
from arbiter.errors import Garbled
from tests.twins.streams import CHAT, DONE, MESSAGES, TOKENS, Story, call, chat, compact, delta, ended, event, fed


def kinds(module: ModuleType, *events: str) -> list[str]:
    return Story(module, "ChatTap", "".join(events)).kinds


def test_a_chat_stream_is_told(reduce: ModuleType) -> None:
    """Counters, finish, usage, tool names and ids of an ordinary stream, with marks only where something matters."""
    story = Story(reduce, "ChatTap", CHAT)
    assert story.kinds == ["FINISH", "USAGE_ONLY", "DONE"]
    assert story.facts == {
        "boundary": len(CHAT.encode()),
        "offset": len(CHAT.encode()),
        "events": 10,
        "pings": 0,
        "text_bytes": len('Grüße, "usage":{"prompt_tokens":1},"finish_reason":"stop" \n🌍'.encode()),
        "thinking_bytes": 5,
        "argument_bytes": len('{"path":"/tmp"}'),
        "finish": b"tool_calls",
        "finished": True,
        "done": True,
        "errored": False,
        "tool_names": [b"read_file"],
        "response_id": b"chatcmpl-1",
        "model": b"m-1",
        "usage": compact(TOKENS).encode(),
        "service_tier": None,
        "fingerprint": None,
    }


@pytest.mark.parametrize(("tap", "stream"), [("ChatTap", CHAT), ("MessagesTap", MESSAGES)])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_any_cut_tells_the_same(reduce: ModuleType, tap: str, stream: str, end: str) -> None:
    """However the network slices the bytes, marks, ranges and counts come out the same."""
    data = stream.replace("\n", end).encode()
    whole = Story(reduce, tap, data)
    assert len(whole.marks) == 3
    for cut in range(0, len(data), 7):
        assert Story(reduce, tap, data, [cut, cut + 1]) == whole, cut
    assert Story(reduce, tap, data, list(range(len(data)))) == whole


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_ranges_and_gaps_rebuild_the_stream(reduce: ModuleType, end: str) -> None:
    """A mark's range is the event's own block, whole: cut out, neighbours and comments stay as they were."""
    lines = [
        "\ufeff: c",
        "",
        "event: x",
        "data: {}",
        "",
        ": ka",
        "",
        'data: {"a":',
        ": in",
        "data: 1}",
        "",
        "",
        "data: []",
        "",
    ]
    stream = (end.join(lines) + end).encode()
    story = Story(reduce, "ChatTap", stream)
    assert [payload for _, _, _, payload in story.marks] == [b"{}", b'{"a":\n1}', b"[]"]
    edges = [0, *(edge for _, start, stop, _ in story.marks for edge in (start, stop)), len(stream)]
    assert edges == sorted(edges)
    for (_, start, stop, payload), (a, b) in zip(story.marks, itertools.pairwise(edges[::2]), strict=False):
        assert [data for _, data in fed(py_sse.SSEReader(), stream[start:stop])] == [payload]
        assert b"data" not in stream[a:start] or a != start
        assert b >= stop
    gaps = b"".join(stream[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
    assert gaps == "".join(["\ufeff: c", end, end, ": ka", end, end, end]).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_what_lies_before_the_boundary_is_whole(reduce: ModuleType, end: str) -> None:
    """Whoever forwards up to the boundary forwards whole events only, and all of them at once."""
    data = (CHAT + ": bye\n\n").replace("\n", end).encode()
    tap = reduce.ChatTap()
    last = 0
    for at in range(len(data)):
        tap.feed(data[at : at + 1])
        assert last <= tap.boundary <= at + 1
        last = tap.boundary
        reader = py_sse.SSEReader()
        complete = len(fed(reader, data[:last]))
        assert ended(reader) == []
        assert complete == tap.events
    tap.end()
    assert tap.boundary == len(data)


def test_an_event_passes_the_boundary_with_its_last_byte(reduce: ModuleType) -> None:
    """Nothing waits for the next read, also where a lone CR could still become a CRLF."""
    for end in ("\n", "\r\n", "\r"):
        tap = reduce.ChatTap()
        for count in (1, 2, 3):
            piece = chat(delta(content="x")).replace("\n", end).encode()
            tap.feed(piece)
            assert (tap.boundary, tap.events) == (count * len(piece), count)


def test_a_line_feed_after_the_cut_belongs_to_the_same_line_end(reduce: ModuleType) -> None:
    """A CRLF cut in two ends one line, not two: the event's range holds both halves."""
    stream = b"data: {}\r\n\r\ndata: {}\r\n\r\n"
    tap = reduce.ChatTap()
    assert tap.feed(stream[:11]) == []
    assert tap.boundary == 0
    assert [mark[1:3] for mark in tap.feed(stream[11:])] == [(0, 12), (12, 24)]


def test_the_word_usage_inside_a_text_is_text(reduce: ModuleType) -> None:
    """No guess by substring: what a model writes about chunks is not a chunk."""
    hostile = '{"choices":[],"usage":{"prompt_tokens":1}} "finish_reason":"stop" [DONE] "error":{}'
    story = Story(
        reduce, "ChatTap", chat(delta(content=hostile)) + chat(delta(tool_calls=[call(0, arguments=hostile)]))
    )
    assert (story.kinds, story.tap.usage, story.tap.finish) == ([], None, None)
    assert (story.tap.text_bytes, story.tap.argument_bytes) == (len(hostile), len(hostile))


@pytest.mark.parametrize(
    ("raw", "size"),
    [
        (r"\n\t\"\\\/\b\f\r", 8),
        (r"\u0041\u00e9\u20ac", 6),
        (r"\ud83c\udf0d", 4),
        (r"\ud83c", 3),
        (r"\udf0d", 3),
        (r"\ud83cx", 4),
        (r"\ud83c\ud83c\udf0d", 7),
        (r"\ud83c\ud83c", 6),
        (r"\ud83c\n", 4),
        ("\x7f", 1),
        ("\u2028", 3),
        ("x" * 1000, 1000),
    ],
)
def test_text_is_counted_after_unescaping(reduce: ModuleType, raw: str, size: int) -> None:
    """Half an emoji, which models do send, counts as its replacement would, and breaks nothing."""
    event = 'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
    story = Story(reduce, "ChatTap", event % raw)
    assert (story.kinds, story.tap.text_bytes) == ([], size)
    event = 'data: {"type":"content_block_delta","delta":{"text":"a%sb","thinking":"%s"}}\n\n'
    story = Story(reduce, "MessagesTap", event % (raw, raw))
    assert (story.kinds, story.tap.text_bytes, story.tap.thinking_bytes) == ([], size + 2, size)


def test_usage_beside_a_broken_emoji_is_kept(reduce: ModuleType) -> None:
    """The usage survives whatever text it rides with."""
    story = Story(
        reduce,
        "ChatTap",
        r'data: {"choices":[{"index":0,"delta":{"content":"\ud83c"}}], "usage": {"prompt_tokens": 3}}' + "\n\n",
    )
    assert (story.kinds, story.tap.usage) == ([], b'{"prompt_tokens":3}')


def test_usage_on_every_chunk_is_last_wins(reduce: ModuleType) -> None:
    """A usage that rides on content is read and left alone; only the event without choices is the synthetic one."""
    running = [chat(delta(content="x"), usage={"completion_tokens": count, "cost": 0.0001}) for count in (1, 2, 3)]
    story = Story(reduce, "ChatTap", "".join(running))
    assert (story.kinds, story.tap.usage) == ([], b'{"completion_tokens":3,"cost":0.0001}')


def test_usage_in_front_of_the_choices_is_read_every_time(reduce: ModuleType) -> None:
    """Also where a chunk begins with the very bytes of one before."""
    first = 'data: {"usage":{"prompt_tokens":1},"choices":[{"index":0,"delta":{}}]}\n\n'
    other = 'data: {"choices":[],"usage":{"prompt_tokens":2}}\n\n'
    for stream, last in ((first, 1), (first + other, 2), (first + other + first, 1)):
        assert Story(reduce, "ChatTap", stream).tap.usage == b'{"prompt_tokens":%d}' % last


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (chat(usage=TOKENS), ["USAGE_ONLY"]),
        (chat(usage=TOKENS, choices=None), ["USAGE_ONLY"]),
        (chat(delta(role="assistant", content=""), usage=TOKENS), []),
        (chat(usage=None, prompt_filter_results=[{"prompt_index": 0}]), []),
        (chat(usage={}), []),
        (chat({**delta(), "usage": TOKENS}), []),
        (chat(delta(), x_groq={"id": "r", "usage": TOKENS}), []),
    ],
)
def test_the_synthetic_usage_event_is_known_by_its_shape(reduce: ModuleType, last: str, expected: list[str]) -> None:
    """No choices and a usage: that one, and no other, may be removed (SPEC 2.5)."""
    story = Story(reduce, "ChatTap", chat(delta(content="x")) + last)
    assert story.kinds == expected
    assert story.tap.usage == (compact(TOKENS).encode() if "total_tokens" in last else None)


def test_every_choice_finishes_by_itself(reduce: ModuleType) -> None:
    """With n > 1 a choice may end while another goes on; the stream has finished when all have."""
    events = [
        chat(delta(0, content="a"), delta(1, content="b")),
        chat(delta(1, "length")),
        chat(delta(0, content="c")),
        chat(delta(0, "stop")),
    ]
    assert kinds(reduce, *events) == ["FINISH", "FINISH"]
    half = Story(reduce, "ChatTap", "".join(events[:3])).tap
    assert (half.finish, half.finished, half.text_bytes) == (b"length", False, 3)
    whole = Story(reduce, "ChatTap", "".join(events)).tap
    assert (whole.finish, whole.finished) == (b"stop", True)
    far = Story(reduce, "ChatTap", chat(delta(64, content="a")) + chat(delta(0, "stop"))).tap
    assert (far.finish, far.finished) == (b"stop", False)


@pytest.mark.parametrize(
    ("trailer", "expected"),
    [
        (delta(finish="stop"), []),
        (delta(finish="stop", role="assistant", content=""), []),
        (delta(), []),
        (delta(content=None, tool_calls=[]), []),
        (delta(finish="length"), ["AFTER_FINISH"]),
        (delta(content="x"), ["AFTER_FINISH"]),
        (delta(finish="stop", content="x"), ["AFTER_FINISH"]),
        (delta(reasoning_content="x"), ["AFTER_FINISH"]),
        (delta(refusal="x"), ["AFTER_FINISH"]),
        (delta(tool_calls=[call(0)]), ["AFTER_FINISH"]),
        (delta(1, content="x"), []),
    ],
)
def test_after_the_finish_only_repetition_is_silent(
    reduce: ModuleType, trailer: dict[str, Any], expected: list[str]
) -> None:
    """A repeated finish and an empty delta are habits of some servers; data or another finish is a fault (SPEC 2.6)."""
    events = [chat(delta(content="a")), chat(delta(finish="stop")), chat(trailer, usage=TOKENS)]
    assert kinds(reduce, *events, DONE) == ["FINISH", *expected, "DONE"]


def test_data_after_done_or_an_error_is_data_after_the_end(reduce: ModuleType) -> None:
    more = chat(delta(content="x"))
    assert kinds(reduce, more, DONE, more) == ["DONE", "AFTER_FINISH"]
    assert kinds(reduce, more, 'data: {"error":{"message":"x"}}\n\n', more) == ["ERROR", "AFTER_FINISH"]


def test_a_whole_call_with_its_finish_in_one_chunk_is_in_order(reduce: ModuleType) -> None:
    """Ollama sends it so: the data of that chunk came before its finish."""
    story = Story(reduce, "ChatTap", chat(delta(finish="tool_calls", tool_calls=[call(0, "a", "f", "{}")])))
    assert (story.kinds, story.tap.tool_names, story.tap.argument_bytes) == (["FINISH"], [b"f"], 2)


@pytest.mark.parametrize(
    "event",
    [
        'data: {"error":{"message":"overloaded","code":503}}\n\n',
        'data: {"error":"overloaded"}\n\n',
        'data: {"object":"error","message":"x","code":400}\n\n',
        'data: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n',
        'event: error\ndata: {"message":"x"}\n\n',
        "event: error\ndata: out of memory\n\n",
        chat(delta(finish="error", content=""), error={"code": 502, "message": "x"}),
    ],
)
def test_an_error_inside_a_200_is_an_error(reduce: ModuleType, event: str) -> None:
    """Each way to report a failure in the middle of a stream is one mark, and never a finish."""
    story = Story(reduce, "ChatTap", chat(delta(content="x")) + event)
    assert (story.kinds, story.tap.errored, story.tap.finish) == (["ERROR"], True, None)


def test_a_null_error_is_none(reduce: ModuleType) -> None:
    assert kinds(reduce, chat(delta(content="x"), error=None), chat(delta(content="x"), error={})) == []


def test_parallel_calls_at_one_index_clash(reduce: ModuleType) -> None:
    """The second call at an index, its later fragments, and every fragment from then on; each with its place."""
    events = [
        chat(delta(tool_calls=[call(0, "a", "f", "{")])),
        chat(delta(tool_calls=[call(0, arguments="}")])),
        chat(delta(tool_calls=[call(0, "b", "g", "{")])),
        chat(delta(tool_calls=[call(0, arguments="}")])),
        chat(delta(content="between")),
        chat(delta(tool_calls=[call(1, "c", "h", "{}")])),
        chat(delta(tool_calls=[call(0, "a", "f", "{}")])),
    ]
    story = Story(reduce, "ChatTap", "".join(events))
    assert [story.marks[i][3].decode() for i in range(4)] == [events[i].strip()[6:] for i in (2, 3, 5, 6)]
    assert story.kinds == ["CLASH"] * 4
    assert story.tap.tool_names == [b"f", b"g", b"h"]
    assert [story.tap.index_of(0, ident) for ident in (b"a", b"b", b"c", b"d")] == [0, 1, 2, -1]
    assert (story.tap.calls(0), story.tap.calls(1)) == (3, 0)
    assert story.tap.argument_bytes == 8


def test_two_calls_in_one_delta_may_clash(reduce: ModuleType) -> None:
    assert kinds(reduce, chat(delta(tool_calls=[call(0, "a", "f"), call(0, "b", "g")]))) == ["CLASH"]


@pytest.mark.parametrize(
    "fragments",
    [
        [call(0, "a", "f"), call(0, "a", "f"), call(0, "", None, "x"), call(1, "b", "g")],
        [call(None, "a", "f", "{}"), call(None, None, None, "x"), call(None, "b", "g", "{}")],
        [call(0, None, "f"), call(0, "a"), call(0, None, "f", "x"), call(1, None, "g")],
        [call(0, "a"), call(0, None, "f"), call(5, "b", "g")],
    ],
)
def test_calls_that_do_not_collide_are_left_alone(reduce: ModuleType, fragments: list[dict[str, Any]]) -> None:
    """Repeated ids, missing indices, missing ids, late names and gaps are odd, but nobody's index is taken."""
    events = [chat(delta(tool_calls=[fragment])) for fragment in fragments]
    story = Story(reduce, "ChatTap", "".join(events))
    assert (story.kinds, story.tap.tool_names, story.tap.calls(0)) == ([], [b"f", b"g"], 2)


def test_the_same_index_in_two_choices_is_no_clash(reduce: ModuleType) -> None:
    events = chat(delta(0, tool_calls=[call(0, "a", "f")]), delta(1, tool_calls=[call(0, "b", "f")]))
    assert kinds(reduce, events) == []


def test_arguments_that_are_an_object_are_counted_as_json(reduce: ModuleType) -> None:
    story = Story(reduce, "ChatTap", chat(delta(tool_calls=[call(0, "a", "f", {"city": "Oslo"})])))
    assert story.tap.argument_bytes == len('{"city":"Oslo"}')


def test_other_shapes_of_output_are_counted(reduce: ModuleType) -> None:
    """Parts (Mistral), the old function_call, both names of the reasoning at once: once each."""
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "abc"}]
    story = Story(
        reduce,
        "ChatTap",
        chat(delta(content=parts))
        + chat(delta(function_call={"name": "f", "arguments": "{}"}))
        + chat(delta(reasoning="xyz", reasoning_content="xyz"))
        + chat(delta(refusal="no")),
    )
    assert (story.kinds, story.tap.tool_names) == ([], [b"f"])
    assert (story.tap.text_bytes, story.tap.thinking_bytes, story.tap.argument_bytes) == (5, 5, 2)


@pytest.mark.parametrize("foreign", ['{"warning":"x"}', "[1]", "null", '"text"', "7", '{"choices":7}', '{"usage":{}}'])
def test_json_that_is_no_chunk_is_foreign(reduce: ModuleType, foreign: str) -> None:
    """A side-channel object passes untouched and is named."""
    assert kinds(reduce, f"data: {foreign}\n\n", chat(delta(content="x"))) == ["FOREIGN"]


@pytest.mark.parametrize(
    "bad",
    ['{"choices":[{"delta":{"content":"x"}', "{'a':1}", '{"a":1}}', '{"a":NaN}', '{"a":01}', '{"a":"\x01"}',
     r'{"a":"\x"}', '{"choices":[{"index":0,"delta":{"content":"x"}},]}', "nul",
     '{"choices":[{"index":0,"delta":{"content":"x"}}]} x', '{"choices":[{"index":0,"delta":{"content":"x\\u12"}}]}',
     '{"choices":[{"index":0,"delta":{}}],"x":-}'],
)  # fmt: skip
def test_what_is_not_json_is_malformed(reduce: ModuleType, bad: str) -> None:
    """One broken event is named and costs nothing else."""
    story = Story(reduce, "ChatTap", f"{chat(delta(content='a'))}data: {bad}\n\n{chat(delta(content='b'))}")
    assert (story.kinds, story.tap.text_bytes, story.tap.events) == (["MALFORMED"], 2, 3)


@pytest.mark.parametrize("depth", [30, 31, 32, 33, 197, 198, 10_000, 300_000])
@pytest.mark.parametrize("tap", ["ChatTap", "MessagesTap"])
def test_deep_nesting_is_bounded(reduce: ModuleType, tap: str, depth: int) -> None:
    """200 levels are read, more are refused, and no depth overruns the stack."""
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        deep = f"{opening * depth}0{closing * depth}"
        stream = 'data: {"type":"content_block_delta","choices":[{"index":0,"delta":{"x":DEEP}}]}\n\n'
        stream = stream.replace("DEEP", deep)
        stream = stream.replace('"type":"content_block_delta",', "") if tap == "ChatTap" else stream
        story = Story(reduce, tap, stream, limit=16 << 20)
        # The event's own object, choices, choice and delta are four levels more.
        assert story.kinds == (["MALFORMED"] if depth + 4 > 200 else [])


def test_a_bracket_inside_a_string_is_no_level(reduce: ModuleType) -> None:
    story = Story(reduce, "ChatTap", chat(delta(content="[{" * 500 + '\\"[')))
    assert (story.kinds, story.tap.text_bytes) == ([], 1003)


def test_whitespace_between_tokens_is_json_too(reduce: ModuleType) -> None:
    """Indented chunks, over several data lines, mean the same."""
    chunk = json.dumps({"choices": [delta(content="abc")], "usage": {"a": 1}}, indent=1)
    stream = "".join(f"data: {line}\n" for line in chunk.split("\n")) + "\n"
    story = Story(reduce, "ChatTap", stream)
    assert (story.kinds, story.tap.text_bytes, json.loads(story.tap.usage)) == ([], 3, {"a": 1})


def test_of_two_members_of_one_name_the_last_counts(reduce: ModuleType) -> None:
    """As every JSON decoder of the clients has it."""
    stream = (
        'data: {"choices":[{"index":0,"delta":{"content":"aaa","content":"b"}}]}\n\n'
        'data: {"choices":[],"choices":[{"index":0,"delta":{"content":"c"}}]}\n\n'
        'data: {"choices":[{"index":0,"delta":{"\\u0063ontent":"ddd"}}]}\n\n'
    )
    story = Story(reduce, "ChatTap", stream)
    assert (story.kinds, story.tap.text_bytes) == ([], 5)


def test_the_first_id_and_model_stay(reduce: ModuleType) -> None:
    """Azure's first chunk names no model; some servers give each chunk an id of its own."""
    stream = (
        chat(id="", model="")
        + chat(delta(content="x"), id="a", model="m")
        + chat(delta(content="x"), id="b", model="n")
    )
    story = Story(reduce, "ChatTap", stream)
    assert (story.tap.response_id, story.tap.model) == (b"a", b"m")


def test_pings_and_blank_data_are_no_events(reduce: ModuleType) -> None:
    for tap in ("ChatTap", "MessagesTap"):
        story = Story(
            reduce,
            tap,
            'event: ping\ndata: {"type": "ping"}\n\ndata: {"type":"ping"}\n\nevent: ping\ndata: {}\n\ndata:  \n\n',
        )
        assert (story.kinds, story.tap.events, story.tap.pings) == ([], 0, 3)


def test_an_unterminated_last_event_is_an_event(reduce: ModuleType) -> None:
    """The end of the stream completes what only lacks its blank line, and names what is cut in the middle."""
    story = Story(reduce, "ChatTap", CHAT.removesuffix("\n\n"))
    assert story.kinds == ["FINISH", "USAGE_ONLY", "DONE"]
    assert story.marks[-1][1:] == (len(CHAT.encode()) - 14, len(CHAT.encode()) - 2, b"[DONE]")
    assert Story(reduce, "ChatTap", chat(delta(content="x"))[:-9]).kinds == ["MALFORMED"]


def test_a_fault_comes_after_the_marks_before_it(reduce: ModuleType) -> None:
    """The boundary stays before the broken event, so nothing of it is forwarded."""
    tap = reduce.ChatTap(200)
    done = b"data: [DONE]\n\n"
    assert len(tap.feed(done + b"data: \xff\n\n")) == 1
    assert tap.boundary == len(done)
    with pytest.raises(Garbled, match="UTF-8"):
        tap.feed(b"")
    with pytest.raises(Garbled, match="200"):
        reduce.MessagesTap(200).feed(b"data: " + b"x" * 200)


@pytest.mark.parametrize("choices", [1, 2])
def test_more_calls_than_we_keep_are_told_and_not_kept(reduce: ModuleType, choices: int) -> None:
    """An upstream that opens calls without end costs neither memory nor time: the first one too many is marked."""
    tap = reduce.ChatTap(1 << 20)
    for n in range(reduce.MAX_CALLS):
        assert tap.feed(chat(delta(n % choices, tool_calls=[call(n, f"i{n}", f"n{n}")])).encode()) == []
    assert sum(map(tap.calls, range(choices))) == len(tap.tool_names) == reduce.MAX_CALLS
    for extra in (call(5000, "one-more", "x"), call(5001, None, "x"), call(5002, "i0")):
        ((kind, _, _, _),) = tap.feed(chat(delta(tool_calls=[extra])).encode())
        assert kind == reduce.EXCESS
    assert sum(map(tap.calls, range(choices))) == len(tap.tool_names) == reduce.MAX_CALLS
    assert tap.feed(chat(delta(tool_calls=[call(7 * choices, arguments="{}")])).encode()) == []


def test_calls_begin_in_constant_time(reduce: ModuleType) -> None:
    """All at one index, the worst: each gets the next free index, and none is found by a walk over those before it."""
    tap = reduce.ChatTap(1 << 20)
    for n in range(reduce.MAX_CALLS):
        tap.feed(chat(delta(tool_calls=[call(0, f"i{n}", "f")])).encode())
        assert tap.index_of(0, f"i{n}".encode()) == n


def test_names_and_ids_are_kept_up_to_a_size(reduce: ModuleType) -> None:
    tap = reduce.ChatTap(1 << 20)
    big = "n" * (reduce.MAX_KEPT_BYTES // 3 - 10)
    marks = [tap.feed(chat(delta(tool_calls=[call(n, f"i{n}", big)])).encode()) for n in range(4)]
    assert [bool(mark) for mark in marks] == [False, False, False, True]
    assert marks[3][0][0] == reduce.EXCESS


def test_choices_and_blocks_without_end_are_told_too(reduce: ModuleType) -> None:
    chats, blocks = reduce.ChatTap(1 << 20), reduce.MessagesTap(1 << 20)
    for n in range(reduce.MAX_CALLS):
        assert chats.feed(chat(delta(n + 100, content="x")).encode()) == []
        block = {"type": "tool_use", "id": "t", "name": "ls", "input": {}}
        blocks.feed(event("content_block_start", index=n, content_block=block).encode())
    assert chats.feed(chat(delta(9999, content="x")).encode())[0][0] == reduce.EXCESS
    marks = blocks.feed(event("content_block_start", index=0, content_block=block).encode())
    assert marks[0][0] == reduce.EXCESS
    assert len(blocks.tool_names) == reduce.MAX_CALLS


def test_a_legacy_name_on_every_chunk_is_one_name(reduce: ModuleType) -> None:
    tap = reduce.ChatTap(1 << 20)
    for _ in range(reduce.MAX_CALLS + 1):
        assert tap.feed(chat(delta(function_call={"name": "f", "arguments": "x"})).encode()) == []
    assert tap.tool_names == [b"f"]


def test_usages_that_cannot_be_merged_are_not(reduce: ModuleType) -> None:
    """A number beyond all bounds, and a usage that would grow with every event: the last one stands alone."""
    tap = reduce.MessagesTap(1 << 20)
    for _ in range(4):
        tap.feed(b'data: {"type":"message_delta","delta":{},"usage":{"output_tokens":1e999}}\n\n')
    large = b'{"a":"%s"}' % (b"x" * reduce.MAX_KEPT_BYTES)
    assert reduce.merge(large, b'{"b":1}') == b'{"b":1}'


def test_log_probabilities_do_not_make_an_event_too_large(reduce: ModuleType) -> None:
    """A server that sends its whole answer in one chunk sends all of them in it; 130 values are one token's."""
    tap = reduce.ChatTap(16 << 20)
    probable = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    said = {**delta(content="x"), "logprobs": {"content": [probable] * (reduce.MAX_VALUES // 3), "refusal": None}}
    assert tap.feed(chat(said).encode()) == []
    assert tap.text_bytes == 1


@pytest.mark.parametrize("where", ["choices", "other"])
def test_an_event_of_too_many_values_is_not_decoded(reduce: ModuleType, where: str) -> None:
    """Four bytes would become a hundred: such an event is passed on unread, and the stream goes on."""
    tap = reduce.ChatTap(16 << 20)
    many = [1] * (reduce.MAX_VALUES - 10)
    choice = [many] if where == "choices" else []
    assert tap.feed(chat(delta(content="x", more=choice), other=many if not choice else 0).encode()) == []
    assert tap.text_bytes == 1
    many += [1] * 20
    ((kind, _, _, _),) = tap.feed(chat(delta(content="x", more=choice), other=many if not choice else 0).encode())
    assert kind == reduce.MALFORMED
    assert tap.text_bytes == 1
    assert tap.feed(chat(delta(content="y" * (4 << 20))).encode()) == []
    assert tap.text_bytes == 1 + (4 << 20)


def test_the_fingerprint_is_that_of_the_event_with_the_id(reduce: ModuleType) -> None:
    """OpenAI repeats it in each; whoever changes it on the way is not followed, and null is none."""
    first, later, nothing = (chat(delta(content="a"), system_fingerprint=one) for one in ("fp_1", "fp_2", None))
    told = [Story(reduce, "ChatTap", stream).tap.fingerprint for stream in (first + later, nothing + later, nothing)]
    assert told == [b"fp_1", None, None]
