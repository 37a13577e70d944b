"""Rows read from MessagePack: both twins, and msgspec as the judge of what they read and refuse."""

from __future__ import annotations

import gc
import sys
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from arbiter._speedups.c import unpacker as compiled
from arbiter._speedups.py import unpacker as reference
from tests.fakes.rows import attempt_row, request_row


class Plain(msgspec.Struct, array_like=True, gc=False):
    """A row of which every field is read here."""

    text: str
    number: int | None = None
    truth: bool = False
    texts: list[str] | None = None
    pairs: dict[str, str] | None = None
    raw: Annotated[bytes | None, Meta(extra={"a": 1})] = None


class Row(Plain, array_like=True, gc=False):
    """A row that has always some that are msgspec's, who then reads all of it."""

    small: Annotated[int, Meta(lt=100)] = 0
    any: Any = None


def plain(row):
    return Plain(*[getattr(row, name) for name in Plain.__struct_fields__])


@pytest.fixture(params=[reference, compiled], ids=["py", "c"])
def unpacker(request):
    return request.param


TEXTS = st.sampled_from(["", "a", "team-a", "x" * 31, "x" * 32, "ä" * 40, "x" * 300]) | st.text(
    st.characters(codec="utf-8"), max_size=40
)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.sampled_from(
    [sign * 2**bits + by for sign in (1, -1) for bits in (5, 7, 8, 15, 16, 31, 32, 62) for by in (-1, 0, 1)]
)
ROWS = st.builds(
    Row,
    TEXTS,
    st.none() | NUMBERS,
    st.booleans(),
    st.none() | st.lists(TEXTS, max_size=20),
    st.none() | st.dictionaries(TEXTS, TEXTS, max_size=20),
    st.none() | st.binary(max_size=300),
    st.integers(0, 120),
    st.none() | st.floats(allow_nan=False) | TEXTS,
)


def read_by_msgspec(data, kind=Row):
    """What msgspec makes of it: a row, or the words in which it refuses."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        return type(error), str(error)


def read(unpack, data, at=0):
    try:
        return unpack(data, at)
    except (msgspec.DecodeError, ValueError) as error:
        return type(error), str(error)


@settings(deadline=None, max_examples=200)
@given(st.lists(ROWS, max_size=8), st.binary(max_size=3))
def test_rows_are_read_as_msgspec_reads_them_whatever_came_before(rows, head):
    """What a row has in common with the one before is the same; what it has not is its own."""
    for kind, some in ((Row, rows), (Plain, [plain(row) for row in rows])):
        packed = [msgspec.msgpack.encode(row) for row in some]
        expected = [read_by_msgspec(data, kind) for data in packed]
        for module in (reference, compiled):
            unpack = module.Unpacker(kind).unpack
            assert [read(unpack, head + data, len(head)) for data in packed] == expected


@settings(deadline=None, max_examples=200)
@given(ROWS, ROWS, st.data())
def test_what_is_damaged_is_refused_as_msgspec_refuses_it(before, row, data):
    """Cut anywhere, or with a byte changed, and the next one is read all the same."""
    whole = msgspec.msgpack.encode(row)
    at = data.draw(st.integers(0, len(whole) - 1))
    for bad in (whole[:at], whole[:at] + bytes((data.draw(st.integers(0, 255)),)) + whole[at + 1 :], whole + b"\xc0"):
        for module in (reference, compiled):
            unpack = module.Unpacker(Row).unpack
            assert read(unpack, msgspec.msgpack.encode(before)) == read_by_msgspec(msgspec.msgpack.encode(before))
            # As it is written: a changed byte may make a number none (NaN), which equals nothing.
            assert repr(read(unpack, bad)) == repr(read_by_msgspec(bad))
            assert read(unpack, whole) == read_by_msgspec(whole)


FORMS = {
    "a text of 8 bits": b"\x91\xd9\x01a",
    "a text of 16 bits": b"\x91\xda\x00\x01a",
    "a text of 32 bits": b"\x91\xdb\x00\x00\x00\x01a",
    "a row of 16 bits": b"\xdc\x00\x01\xa1a",
    "a row of 32 bits": b"\xdd\x00\x00\x00\x01\xa1a",
    "more fields": b"\x99\xa1a\xc0\xc2\xc0\xc0\xc0\x00\xc0\xa1b",
    "a list of 16 bits": b"\x98\xa1a\xc0\xc2\xdc\x00\x01\xa1b\xc0\xc0\x00\xc0",
    "a list that claims much": b"\x98\xa1a\xc0\xc2\xdc\xff\xff\xa1b\xc0\xc0\x00\xc0",
    "a dictionary of 16 bits": b"\x98\xa1a\xc0\xc2\xc0\xde\x00\x01\xa1b\xa1c\xc0\x00\xc0",
    "a name twice": b"\x98\xa1a\xc0\xc2\xc0\x82\xa1b\xa1c\xa1b\xa1d\xc0\x00\xc0",
    "bytes of 16 bits": b"\x98\xa1a\xc0\xc2\xc0\xc0\xc5\x00\x01b\x00\xc0",
    "bytes of 32 bits": b"\x98\xa1a\xc0\xc2\xc0\xc0\xc6\x00\x00\x00\x01b\x00\xc0",
    "bytes that claim much": b"\x98\xa1a\xc0\xc2\xc0\xc0\xc6\xff\xff\xff\xffb\x00\xc0",
    "numbers with room to spare": b"\x98\xa1a\xcf" + bytes(7) + b"\x01\xc2\xc0\xc0\xc0\xd3" + bytes(7) + b"\x05\xc0",
    "a lone surrogate": b"\x91\xa3\xed\xa0\x80",
    "no UTF-8": b"\x91\xa1\xff",
    "a text where a number stands": b"\x98\xa1a\xa1b\xc2\xc0\xc0\xc0\x00\xc0",
    "a number where a text stands": b"\x91\x01",
    "nothing where a text stands": b"\x91\xc0",
    "a truth where a number stands": b"\x98\xa1a\xc3\xc2\xc0\xc0\xc0\x00\xc0",
    "a number where a truth stands": b"\x98\xa1a\xc0\x01\xc0\xc0\xc0\x00\xc0",
    "a number in a list of texts": b"\x98\xa1a\xc0\xc2\x91\x01\xc0\xc0\x00\xc0",
    "a whole float": b"\x98\xa1a\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\xc2\xc0\xc0\xc0\x00\xc0",
    "too large for its bound": b"\x98\xa1a\xc0\xc2\xc0\xc0\xc0\x64\xc0",
    "no array": b"\xa1a",
    "nothing at all": b"",
}


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_every_form_is_read_as_msgspec_reads_it(unpacker, data):
    unpack = unpacker.Unpacker(Row).unpack
    for _ in range(2):
        assert read(unpack, data) == read_by_msgspec(data)
        assert read(unpack, b"\x98\xa1z\x07\xc3\x91\xa1b\x81\xa1b\xa1c\xc4\x01d\x05\xa1e") == Row(
            "z", 7, True, ["b"], {"b": "c"}, b"d", 5, "e"
        )


def test_rows_of_the_ledger_come_back(unpacker):
    for number in (1, 2, 3):
        request = request_row(number, labels={"a": "b"}, repairs=["x"], message="é", follows_compaction=True)
        attempt = attempt_row(request, sample=b"\xff", rate_limits={"a": "b"}, cost_pd=2**60)
        for row in (request, attempt):
            assert unpacker.Unpacker(type(row)).unpack(b"head" + msgspec.msgpack.encode(row), 4) == row


def test_no_two_rows_share_what_can_be_changed(unpacker):
    """Whoever changes a row's list or dictionary changes no other's, nor what is read next."""
    unpack = unpacker.Unpacker(Plain).unpack
    data = msgspec.msgpack.encode(Plain("a", texts=["b", "c"], pairs={"d": "e"}))
    first, second = unpack(data), unpack(data)
    assert second.texts is not None and second.pairs is not None
    second.texts[0], second.pairs["d"] = 5, 6
    second.texts.clear()
    second.pairs[7] = 8
    assert first == unpack(data) == Plain("a", texts=["b", "c"], pairs={"d": "e"})


def test_a_list_that_is_emptied_while_the_next_row_is_read_is_not_looked_into(unpacker):
    """To make a list may collect garbage, and have Python run that has the row before."""
    unpack = unpacker.Unpacker(Plain).unpack
    data = msgspec.msgpack.encode(Plain("a", texts=[f"text {number}" for number in range(5000)]))
    rows, lengths = [unpack(data)], []

    def empty(phase, info):
        for row in rows:
            row.texts.clear()

    kept = [[] for _ in range(500)]  # the interpreter keeps some freed lists at hand, and collects nothing for those
    before = gc.get_threshold()
    gc.callbacks.append(empty)
    gc.set_threshold(1)
    try:
        for _ in range(20):
            row = unpack(data)
            lengths.append(len(row.texts))
            rows.append(row)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(empty)
    assert kept and lengths == [5000] * 20


def test_owners_are_counted(unpacker):
    """Nothing is let go of twice, and nothing kept but what the last row had."""
    unpack = unpacker.Unpacker(Plain).unpack
    data = msgspec.msgpack.encode(Plain("some text", 12345, texts=["another text"]))
    rows = [unpack(data) for _ in range(100)]
    text, number = rows[0].text, rows[0].number
    for other in range(100):
        unpack(msgspec.msgpack.encode(Plain(f"other {other}", other, texts=[f"{other}"])))
    del rows
    assert (sys.getrefcount(text), sys.getrefcount(number)) == (2, 2)


def test_what_is_no_plain_array_is_told_at_once():
    class Mapped(msgspec.Struct, gc=False):
        a: int

    class Known(msgspec.Struct, array_like=True):
        a: int

    class Frozen(msgspec.Struct, array_like=True, gc=False, frozen=True):
        a: int

    class Checked(msgspec.Struct, array_like=True, gc=False):
        a: int

        def __post_init__(self) -> None: ...

    for kind in (Mapped, Known, Frozen, Checked):
        with pytest.raises(TypeError):
            compiled.Unpacker(kind)
