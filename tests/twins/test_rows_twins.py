"""Rows as MessagePack and values moved between objects: both twins, and msgspec as the judge of the bytes."""

from __future__ import annotations

import gc
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import rows as compiled
from arbiter._speedups.py import rows as reference
from arbiter.ledger.row import AttemptRow, RequestRow
from tests.fakes.rows import attempt_row, request_row


class Row(msgspec.Struct, array_like=True, gc=False):
    a: Any = None
    b: Any = None
    c: Any = None


class Slotted:
    __slots__ = ("x", "y")


@pytest.fixture(params=[reference, compiled], ids=["py", "c"])
def rows(request):
    return request.param


TEXTS = st.text(st.characters(codec="utf-8"), max_size=40) | st.integers(30, 300).map(lambda size: "ä" * size)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.sampled_from(
    [sign * 2**bits + by for sign in (1, -1) for bits in (5, 7, 8, 15, 16, 31, 32, 62) for by in (-1, 0, 1)]
)
SIMPLE = st.none() | st.booleans() | NUMBERS | TEXTS | st.binary(max_size=300) | st.floats(allow_nan=False)
VALUES = st.recursive(
    SIMPLE, lambda inner: st.lists(inner, max_size=20) | st.dictionaries(TEXTS | NUMBERS, inner, max_size=20)
)


@settings(deadline=None, max_examples=500)
@given(VALUES, VALUES, VALUES, st.binary(max_size=5))
def test_a_row_is_written_as_msgspec_does(a, b, c, head):
    row = Row(a, b, c)
    expected = head + msgspec.msgpack.encode(row)
    assert reference.Packer(Row).pack(row, head) == expected
    assert compiled.Packer(Row).pack(row, head) == expected


@pytest.mark.parametrize("size", [0, 15, 16, 31, 32, 255, 256, 65535, 65536])
def test_whatever_has_a_length_is_written_as_msgspec_does(rows, size):
    for value in ("x" * size, b"x" * size, ["x"] * size, {str(number): None for number in range(size)}, "ü" * size):
        assert rows.Packer(Row).pack(Row(value)) == msgspec.msgpack.encode(Row(value))


def test_rows_of_the_ledger_are_written_as_msgspec_does(rows):
    request = request_row(7, labels={"a": "b"}, repairs=["x"], message="é", follows_compaction=True)
    attempt = attempt_row(request, sample=b"\xff", rate_limits={"a": "b"}, cost_pd=2**60)
    assert rows.Packer(RequestRow).pack(request) == msgspec.msgpack.encode(request)
    assert rows.Packer(AttemptRow).pack(attempt, b"head") == b"head" + msgspec.msgpack.encode(attempt)


@pytest.mark.parametrize("odd", ["\ud800", 2**64, -(2**63) - 1, object(), [["\udfff"]], {"\ud800": 1}])
def test_what_has_no_form_is_refused_as_msgspec_refuses_it(rows, odd):
    """And what was written before it is nobody's."""
    with pytest.raises((ValueError, TypeError, OverflowError)) as refused:
        msgspec.msgpack.encode(Row("a", odd))
    with pytest.raises(refused.type):
        rows.Packer(Row).pack(Row("a", odd))
    assert rows.Packer(Row).pack(Row(1)) == b"\x93\x01\xc0\xc0"


@pytest.mark.parametrize("other", [(1, 2), msgspec.UNSET, {1, 2}, 2**63, [[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]])
def test_what_is_seldom_is_msgspecs_to_write(rows, other):
    row = Row(other)
    try:
        expected = msgspec.msgpack.encode(row)
    except Exception as refused:
        with pytest.raises(type(refused)):
            rows.Packer(Row).pack(row)
    else:
        assert rows.Packer(Row).pack(row) == expected


def test_a_row_of_another_kind_is_written_all_the_same(rows):
    class More(Row):
        d: int = 4

    assert rows.Packer(Row).pack(More(1)) == msgspec.msgpack.encode(More(1))


def test_values_move_and_their_owners_are_counted(rows):
    """Nothing is left behind that nobody owns, and nothing is let go of twice."""
    source, target, old, new = Slotted(), Row(), object(), object()
    target.a, source.x, source.y = old, new, [1]
    owners = sys.getrefcount(old), sys.getrefcount(new)
    rows.Moves(Slotted, Row, {"x": "a", "y": "c"})(source, target)
    assert target.a is new and target.b is None and target.c == [1]
    assert (sys.getrefcount(old), sys.getrefcount(new)) == (owners[0] - 1, owners[1] + 1)
    del source, target
    gc.collect()
    assert sys.getrefcount(new) == owners[1] - 1


def test_values_move_between_objects_of_these_classes_alone(rows):
    moves = rows.Moves(Slotted, Row, {"x": "a"})
    with pytest.raises(AttributeError):
        moves(Slotted(), Row())
    for source, target in ((Row(), Row()), (Slotted(), Slotted()), (object(), Row())):
        with pytest.raises(TypeError):
            moves(source, target)


def test_what_is_no_field_is_told_at_once():
    class Plain:
        x = 1

    class Frozen(msgspec.Struct, frozen=True, gc=False):
        a: int

    class Known(msgspec.Struct):
        a: int

    for source, target, fields in (
        (Plain, Row, {"x": "a"}),
        (Slotted, Row, {"z": "a"}),
        (Slotted, Frozen, {"x": "a"}),
        (Slotted, Known, {"x": "a"}),
    ):
        with pytest.raises(TypeError):
            compiled.Moves(source, target, fields)
