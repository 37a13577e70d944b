"""The SSE reader: every line ending, every cut, every bound; on both sides."""

from __future__ import annotations

import itertools
import time
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import sse as c_sse
from arbiter._speedups.py import sse as py_sse
from arbiter.errors import Garbled
from tests.twins.streams import ended, fed

Event = tuple[bytes, bytes]

STREAM = (
    "\ufeff: hello\n\n"
    "event: message_start\ndata: {}\n\n"
    "data:no space\nid: 7\nretry: 10\n\n"
    "data: two\ndata: lines\ndata\n\n"
    "event: keepalive\n\n"
    "data:\n\n"
    ": ping\n"
    "data: 你好🌍é\n: inside\nevent: late\n\n"
    "\n\n"
    "data:  kept space \nunknown: x\ndatax: y\n\n"
    "data: last, without its blank line"
)
EVENTS = [
    (b"message_start", b"{}"),
    (b"", b"no space"),
    (b"", b"two\nlines\n"),
    (b"late", "你好🌍é".encode()),
    (b"", b" kept space "),
    (b"", b"last, without its blank line"),
]
ENDS = {"LF": "\n", "CRLF": "\r\n", "CR": "\r"}


def read(module: ModuleType, pieces: list[bytes], limit: int = 1 << 20) -> tuple[list[Event], str | None]:
    """The events of a whole stream, and the fault that ended it."""
    reader = module.SSEReader(limit)
    events: list[Event] = []
    try:
        for piece in pieces:
            reader.open(piece)
            events.extend(iter(reader.next, None))
        for _ in range(2):
            reader.end()
            events.extend(iter(reader.next, None))
    except Garbled as error:
        return events, str(error)
    return events, None


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(at)]


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_each_line_ending_gives_the_same_events(sse: ModuleType, end: str) -> None:
    """LF, CRLF and CR are one and the same to whoever reads the events."""
    assert read(sse, [STREAM.replace("\n", end).encode()]) == (EVENTS, None)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_any_cut_gives_the_same_events(sse: ModuleType, end: str) -> None:
    """However the network slices the bytes, inside a character or a CRLF too, the reader hands out the same events."""
    stream = STREAM.replace("\n", end).encode()
    for cut in range(len(stream)):
        assert read(sse, [stream[:cut], stream[cut:]]) == (EVENTS, None), cut
    assert read(sse, [bytes([byte]) for byte in stream]) == (EVENTS, None)


def test_line_endings_may_be_mixed(sse: ModuleType) -> None:
    """A stream that changes its line ending in the middle loses nothing and gains nothing."""
    stream = b"data: a\r\n\ndata: b\r\r\ndata: c\n\r\ndata: d\r\n\r\n\r\ndata: e\r\r"
    expected = [(b"", bytes([letter])) for letter in b"abcde"]
    for cut in range(len(stream)):
        assert read(sse, [stream[:cut], stream[cut:]]) == (expected, None), cut


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_event_is_handed_out_with_its_own_last_byte(sse: ModuleType, end: str) -> None:
    """No event waits for the next one, not even where a lone CR could still become a CRLF."""
    reader = sse.SSEReader()
    for letter in ("a", "b", "c"):
        assert fed(reader, f"data: {letter}{end}{end}".encode()) == [(b"", letter.encode())]


def test_the_byte_order_mark_counts_only_at_the_start(sse: ModuleType) -> None:
    """A BOM in front of the first field is dropped; one in the middle of the stream makes an unknown field."""
    stream = "\ufeffdata: a\n\n\ufeffdata: b\n\ndata: c\n\n".encode()
    for cut in range(6):
        assert read(sse, [stream[:cut], stream[cut:]]) == ([(b"", b"a"), (b"", b"c")], None)


def test_half_a_byte_order_mark_is_no_event(sse: ModuleType) -> None:
    assert read(sse, [b"\xef", b"\xbb"]) == ([], None)


def test_events_without_data_are_not_reported(sse: ModuleType) -> None:
    """Comments, lone names and empty data are keepalives, not events."""
    assert read(sse, [b": a\n\nevent: b\n\ndata:\n\ndata\n\nid: 1\n\n\n\n"]) == ([], None)


def test_a_name_belongs_to_its_own_event_only(sse: ModuleType) -> None:
    assert read(sse, [b"event: a\n\ndata: 1\n\nevent: b\nevent: c\ndata: 2\n\nevent\ndata: 3\n\n"]) == (
        [(b"", b"1"), (b"c", b"2"), (b"", b"3")],
        None,
    )


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff",
        b"\xc3",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\x80",
        b"\xe0\x9f\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xf5\x80\x80\x80",
        b"\xe2\x82x",
        b"\xf0\x9f\x8cx",
        b"\xc1\xbf",
        b"x" * 40 + b"\xff",
    ],
)
def test_invalid_utf8_in_an_event_is_a_protocol_error(sse: ModuleType, bad: bytes) -> None:
    """What came before the broken event is handed out first, then each call fails."""
    reader = sse.SSEReader()
    reader.open(b"data: a\n\ndata: " + bad + b"\n\ndata: c\n\n")
    assert reader.next() == (b"", b"a")
    for _ in range(2):
        with pytest.raises(Garbled, match="UTF-8"):
            reader.next()
        with pytest.raises(Garbled, match="UTF-8"):
            fed(reader, b"data: d\n\n")
    with pytest.raises(Garbled, match="UTF-8"):
        ended(reader)


def test_an_event_at_the_limit_passes_and_one_byte_more_fails(sse: ModuleType) -> None:
    """The limit counts the event's own bytes, line ends included, whether it comes in one read or in many."""
    event = b"data: " + b"x" * 100 + b"\n\n"
    for step in (1, 7, 1000):
        slices = [event[at : at + step] for at in range(0, len(event), step)]
        assert read(sse, slices * 3, limit=108) == ([(b"", b"x" * 100)] * 3, None)
        events, fault = read(sse, slices, limit=107)
        assert events == []
        assert fault is not None
        assert "107" in fault


def test_an_endless_line_is_cut_off_at_the_limit(sse: ModuleType) -> None:
    """A tail that never ends does not grow for ever: not as data, not as a comment, not as many short lines."""
    for piece in (b"x" * 64, b": " + b"x" * 62, b"data: x\n" * 8):
        reader = sse.SSEReader(1000)
        for _ in range(15):
            assert fed(reader, piece) == []
        with pytest.raises(Garbled):
            fed(reader, piece)


def test_many_comments_are_not_one_large_event(sse: ModuleType) -> None:
    reader = sse.SSEReader(100)
    for _ in range(100):
        assert fed(reader, b": keepalive\n\n") == []
    assert fed(reader, b"data: x\n\n") == [(b"", b"x")]


def test_a_two_megabyte_event_in_small_reads_is_whole(sse: ModuleType) -> None:
    """Image results come as one line of megabytes; the reads that bring it are small."""
    data = b'{"image":"' + b"QUJD" * (2 << 18) + b'"}'
    stream = b"data: a\n\ndata: " + data + b"\n\ndata: z\n\n"
    assert read(sse, [stream[at : at + 65536] for at in range(0, len(stream), 65536)], 16 << 20) == (
        [(b"", b"a"), (b"", data), (b"", b"z")],
        None,
    )


def test_nothing_follows_the_end(sse: ModuleType) -> None:
    """A finished reader is finished: more bytes are a bug of the caller."""
    reader = sse.SSEReader()
    assert ended(reader) == []
    with pytest.raises(ValueError, match="finished"):
        reader.open(b"data: a\n\n")


# Bytes that like to meet: line ends, field names, bits of UTF-8.
FRAGMENTS = st.sampled_from(
    [b"\r", b"\n", b"\r\n", b"\n\n", b"\r\r", b":", b" ", b"data", b"data:", b"data: x", b"event: e", b"event",
     b"id: 1", b": c", b"\xef", b"\xbb", b"\xbf", b"\xef\xbb\xbf", b"\xc3\xa9", b"\xf0\x9f", b"\x8c\x8d", b"\x00", b"y"]
)  # fmt: skip
HOSTILE = st.lists(FRAGMENTS | st.binary(max_size=4), max_size=40).map(b"".join)
CUTS = st.lists(st.integers(0, 120), max_size=12)


@settings(deadline=None, max_examples=200)
@given(stream=HOSTILE, cuts=CUTS, limit=st.sampled_from([5, 12, 30, 1 << 20]))
def test_the_twins_agree_on_any_bytes(stream: bytes, cuts: list[int], limit: int) -> None:
    """Same events, same faults, whatever the bytes, the cuts and the limit."""
    whole = read(py_sse, [stream], limit)
    assert read(py_sse, pieces(stream, cuts), limit) == whole
    assert read(c_sse, [stream], limit) == whole
    assert read(c_sse, pieces(stream, cuts), limit) == whole


def test_what_nobody_asked_for_is_passed_over(sse: ModuleType) -> None:
    """Who stops in the middle of a read goes on with the next one; the unfinished event between them stays whole."""
    reader = sse.SSEReader()
    reader.open(b"data: a\n\ndata: b\n\ndata: c\n\nda")
    assert reader.next() == (b"", b"a")
    assert fed(reader, b"ta: d\n\n") == [(b"", b"d")]
    assert reader.next() is None


@pytest.mark.parametrize("fill", [b"x", b"data: x\n", b": c\n"], ids=["one line", "data lines", "comments inside"])
def test_an_event_that_dribbles_in_is_read_once(sse: ModuleType, fill: bytes) -> None:
    """What is held is neither copied nor read again at every read: 20,000 reads of 4 MB held would be 80 GB."""
    reader = sse.SSEReader()
    piece = fill * ((4 << 20) // len(fill))
    assert fed(reader, b"data: a\n" + piece) == []
    began = time.process_time()
    for _ in range(20_000):
        assert fed(reader, fill) == []
    assert time.process_time() - began < 5.0
    ((_, data),) = fed(reader, b"\n\n")
    assert data.startswith(b"a")
