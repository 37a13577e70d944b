"""Rows taken apart into columns and put together again: both twins, and the rows themselves as the judge."""

from __future__ import annotations

import gc
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter._speedups.c import columns as compiled
from arbiter._speedups.py import columns as reference


class Row(msgspec.Struct):
    a: Any = None
    b: Any = None
    c: Any = None


@pytest.fixture(params=[reference, compiled], ids=["py", "c"])
def columns(request):
    return request.param


VALUES = st.none() | st.integers(-2, 2) | st.sampled_from(["", "x", "y"]) | st.lists(st.integers(0, 1), max_size=1)
ROWS = st.builds(Row, VALUES, VALUES, VALUES)


@given(st.lists(ROWS, max_size=6))
def test_a_column_holds_what_the_rows_have_there(rows):
    """And there is none where no row has anything."""
    expected = [[getattr(row, name) for row in rows] for name in ("c", "a")]
    expected = [one if any(value is not None for value in one) else None for one in expected]
    for module in (reference, compiled):
        assert module.Taker(Row, ["c", "a"]).take(rows) == module.Taker(Row, ["c", "a"]).take(tuple(rows)) == expected


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_a_column_varies_where_two_of_its_values_differ(column):
    expected = any(value != column[0] for value in column)
    assert reference.varies(column) is expected
    assert compiled.varies(column) is expected


def test_the_same_text_twice_is_no_difference(columns):
    assert columns.varies(["".join(("a", "b")), "".join(("a", "b"))]) is False


@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.lists(st.booleans(), min_size=1, max_size=4))
def test_of_the_rows_of_a_statement_the_first_is_whole(at_once, groups, more, varying):
    """Of the others there is what varies, and rows that fill no statement are left out."""
    rows = groups * at_once
    table = [[(column, row) for row in range(rows + more)] for column in range(len(varying))]
    expected = []
    for first in range(0, rows, at_once):
        values = [column[first] for column in table]
        for row in range(first + 1, first + at_once):
            values += [column[row] for column, is_one in zip(table, varying, strict=True) if is_one]
        expected.append(tuple(values))
    assert reference.together(table, varying, rows, at_once) == expected
    assert compiled.together(table, varying, rows, at_once) == expected


def test_owners_are_counted(columns):
    """Nothing is left behind that nobody owns, and nothing is let go of twice."""
    value = object()
    owners = sys.getrefcount(value)
    rows = [Row(value, value) for _ in range(4)]
    taken = columns.Taker(Row, ["a", "b", "c"]).take(rows)
    made = columns.together(taken[:2], [True, False], 4, 2)
    assert made == [(value, value, value)] * 2
    assert sys.getrefcount(value) == owners + 8 + 8 + 6
    del rows, taken, made
    gc.collect()
    assert sys.getrefcount(value) == owners


def test_what_does_not_fit_is_told():
    with pytest.raises(TypeError):
        compiled.Taker(Row, ["d"])
    with pytest.raises(TypeError):
        compiled.Taker(Row, ["a"]).take([Row(), object()])
    with pytest.raises(ValueError, match="shorter"):
        compiled.together([[1, 2, 3]], [True], 4, 2)
    with pytest.raises(ValueError):
        compiled.together([[1, 2]], [True, False], 2, 2)
    with pytest.raises(ValueError):
        compiled.together([[1, 2, 3]], [True], 3, 2)
