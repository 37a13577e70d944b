"""AWS event streams: both twins, whatever the network and whoever the sender."""

from __future__ import annotations

import importlib
import random
import struct
import zlib
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import eventstream as compiled
from arbiter._speedups.py import eventstream as reference
from tests.fakes.eventstream import chunk, error, event, exception, header, message, texts

HELLO = b'{"delta":{"text":"hello"},"contentBlockIndex":0}'
STREAM = (
    event("messageStart", b'{"role":"assistant"}')
    + event("contentBlockDelta", HELLO)
    + chunk(b'{"type":"ping"}')
    + event("empty", b"")
    + exception("throttlingException", b'{"message":"slow down"}')
    + error("InternalError", "it broke")
)
EXPECTED = [
    (b"event", b"messageStart", b'{"role":"assistant"}'),
    (b"event", b"contentBlockDelta", HELLO),
    (b"event", b"chunk", b'{"bytes": "eyJ0eXBlIjoicGluZyJ9", "p": "abcdefgh"}'),
    (b"event", b"empty", b""),
    (b"exception", b"throttlingException", b'{"message":"slow down"}'),
    (b"error", b"InternalError", b"it broke"),
]


@pytest.fixture
def eventstream(side: str) -> ModuleType:
    return importlib.import_module(f"arbiter._speedups.{side}.eventstream")


# Source: the test suite of AWS's own implementations (awslabs/aws-c-event-stream, "encoded/positive").
@pytest.mark.parametrize(
    ("hex_", "payload"),
    [
        ("000000100000000005c248eb7d98c8ff", b""),
        ("0000001d00000000fd528c5a7b27666f6f273a27626172277dc3653936", b"{'foo':'bar'}"),
        (
            "0000002d0000001041c424b80a6576656e742d74797065040000a00c7b27666f6f273a27626172277d36f480a0",
            b"{'foo':'bar'}",
        ),
        (
            "0000003d0000002007fd83960c636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e"
            "7b27666f6f273a27626172277d8d9c08b1",
            b"{'foo':'bar'}",
        ),
    ],
    ids=["empty", "no-headers", "number-header", "text-header"],
)
def test_awss_own_messages_are_read(eventstream: Any, hex_: str, payload: bytes) -> None:
    """A message that names no type is an event, as those of services before there were exceptions."""
    reader = eventstream.MessageReader()
    assert reader.feed(bytes.fromhex(hex_)) == [(b"event", b"", payload)] and reader.fault is None


def test_a_stream_is_its_messages(eventstream: Any) -> None:
    reader = eventstream.MessageReader()
    assert reader.feed(STREAM) == EXPECTED
    assert (reader.fault, reader.held) == (None, 0)


def test_any_cut_gives_the_same_messages(eventstream: Any) -> None:
    """At every byte, and byte by byte."""
    for cut in range(len(STREAM)):
        reader = eventstream.MessageReader()
        assert reader.feed(STREAM[:cut]) + reader.feed(STREAM[cut:]) == EXPECTED
        assert reader.held == 0
    reader = eventstream.MessageReader()
    assert [one for i in range(len(STREAM)) for one in reader.feed(STREAM[i : i + 1])] == EXPECTED


def test_what_is_not_whole_is_held_and_said_to_be(eventstream: Any) -> None:
    first = len(event("messageStart", b'{"role":"assistant"}'))
    reader = eventstream.MessageReader()
    assert reader.feed(STREAM[: first + 40]) == EXPECTED[:1] and reader.held == 40


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_goes_unnoticed(eventstream: Any, bit: int) -> None:
    """Both checksums are checked: what was read before the damage is handed out, and nothing after it."""
    first, second = event("messageStart", b"{}"), event("contentBlockDelta", HELLO)
    for place in range(len(second)):
        damaged = bytearray(second)
        damaged[place] ^= 1 << bit
        reader = eventstream.MessageReader()
        assert reader.feed(first + bytes(damaged) + first) == [(b"event", b"messageStart", b"{}")]
        assert reader.fault is not None and "checksum" in str(reader.fault), (place, bit)
        assert (reader.feed(first), reader.held) == ([], 0)


def prelude(total: int, headers: int) -> bytes:
    raw = struct.pack(">II", total, headers)
    return raw + struct.pack(">I", zlib.crc32(raw))


@pytest.mark.parametrize(
    ("total", "headers", "words"),
    [
        (0, 0, "impossible"),
        (15, 0, "impossible"),
        (16, 1, "impossible"),
        (0xFFFFFFFF, 0xFFFFFFFF, "impossible"),
        (1 << 20, (128 << 10) + 1, "impossible"),
        (0xFFFFFFFF, 0, "over the limit of 16777216 bytes"),
        ((16 << 20) + 1, 0, "over the limit"),
    ],
)
def test_an_absurd_length_is_refused_at_its_first_twelve_bytes(
    eventstream: Any, total: int, headers: int, words: str
) -> None:
    """Nothing is kept for it, whatever else comes."""
    reader = eventstream.MessageReader()
    assert reader.feed(prelude(total, headers)[:-1]) == [] and reader.fault is None
    assert reader.feed(prelude(total, headers)[-1:]) == [] and words in str(reader.fault)
    assert reader.feed(b"x" * 100_000) == [] and reader.held == 0


def test_the_limit_is_the_callers(eventstream: Any) -> None:
    reader = eventstream.MessageReader(64)
    assert reader.feed(message(b"", b"x" * 48)) == [(b"event", b"", b"x" * 48)]
    assert reader.feed(message(b"", b"x" * 49)) == [] and "the limit of 64 bytes" in str(reader.fault)


KINDS = [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (6, 5), (8, 8), (9, 16)]


@pytest.mark.parametrize(("kind", "size"), KINDS)
def test_headers_of_every_type_are_passed_over(eventstream: Any, kind: int, size: int) -> None:
    """Also one that has a name of ours, and is no text."""
    odd = header(b"x", kind, b"\x01" * size) + header(b":event-type", kind, b"\x01" * size)
    reader = eventstream.MessageReader()
    assert reader.feed(message(odd + texts(event_type="e"), b"p")) == [(b"event", b"e", b"p")]


@pytest.mark.parametrize(
    "headers",
    [
        b"\x00",
        b"\x00\x07\x00\x00",
        b"\x05abc",
        b"\x01",
        b"\x01a",
        b"\x01a\x0a",
        b"\x01a\xff",
        b"\x01a\x07",
        b"\x01a\x07\x00",
        b"\x01a\x07\x00\x05abcd",
        b"\x01a\x07\xff\xff",
        b"\x01a\x06\x00\x05abcd",
        b"\x01a\x04\x00\x00\x00",
        b"\x01a\x09" + b"\x00" * 15,
        b"\x01a\x05" + b"\x00" * 7,
        texts(event_type="e")[:-1],
        texts(event_type="e") + b"\x00",
    ],
)
def test_headers_that_lie_about_their_lengths_are_a_fault(eventstream: Any, headers: bytes) -> None:
    """The payload behind them is no header, whatever they claim."""
    reader = eventstream.MessageReader()
    assert reader.feed(message(headers, b"payload of some length that must not be read as headers")) == []
    assert "headers cannot be read" in str(reader.fault)


@pytest.mark.parametrize("sort", ["", "Event", "initial", "events", "exceptio"])
def test_a_message_of_an_unknown_type_is_a_fault(eventstream: Any, sort: str) -> None:
    reader = eventstream.MessageReader()
    assert reader.feed(message(texts(message_type=sort, event_type="e"), b"")) == []
    assert "unknown type" in str(reader.fault)


def test_a_long_message_in_small_pieces_costs_what_it_weighs(eventstream: Any) -> None:
    """Four megabytes in pieces of a kilobyte: nothing is looked at before it is whole."""
    big = event("contentBlockDelta", b"x" * (4 << 20))
    reader = eventstream.MessageReader()
    found = [one for i in range(0, len(big), 1024) for one in reader.feed(big[i : i + 1024])]
    assert [(name, len(payload)) for _, name, payload in found] == [(b"contentBlockDelta", 4 << 20)]


def read(module: Any, pieces: list[bytes]) -> tuple[list[Any], str | None, int]:
    reader = module.MessageReader(1 << 16)
    found = [one for piece in pieces for one in reader.feed(piece)]
    return found, str(reader.fault) if reader.fault else None, reader.held


OURS = [b":message-type", b":event-type", b":exception-type", b":error-code", b":error-message"]
HEADERS = st.lists(
    st.tuples(
        st.sampled_from([*OURS, b"x"]),
        st.integers(0, 11),
        st.sampled_from([b"event", b"exception", b"error", b"", b"\x00\x01", b"a" * 16]),
    ),
    max_size=5,
).map(lambda some: b"".join(header(*one) for one in some))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(HEADERS, st.binary(max_size=40)), max_size=4), st.binary(max_size=30), st.integers(0, 2**32))
def test_the_twins_agree_on_any_bytes(some: list[tuple[bytes, bytes]], noise: bytes, seed: int) -> None:
    data = b"".join(message(*one) for one in some) + noise
    choose = random.Random(seed)
    cuts = sorted(choose.randrange(len(data) + 1) for _ in range(choose.randrange(6)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert read(reference, pieces) == read(compiled, pieces) == read(reference, [data])
