"""Tables on the console: as wide as it is, and whole on a pipe."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.cli.table import Column, filled, number, render, soft, trace, width

HEAD = (
    Column("time"),
    trace(),
    soft("model", least=10),
    soft("provider", spare=2),
    number("in"),
    number("cached", spare=3),
    number("cost", spare=1),
)
ROWS = [
    ("11-30 21:41:22", "05c780a0522e", "claude-sonnet-4-5-of-the-team", "anthropic-eu", 114_202, 98_000, "$0.02522"),
    ("11-30 21:41:23", "99ed18030347", "gpt-5.2", None, 7, None, "unpriced"),
]


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def test_a_table_is_aligned_and_cannot_move_the_cursor() -> None:
    assert render(("a", "bb"), [("x", None), ("日本", "\x1b[2J")]) == "a     bb\n----  ----\nx     -\n日本  ?[2J\n"


def test_numbers_end_below_each_other_and_so_does_their_head() -> None:
    assert render(("model", number("in")), [("a", 12345), ("b", None)]) == (
        "model     in\n-----  -----\na      12345\nb          -\n"
    )


def test_a_pipe_gets_all_of_it() -> None:
    head, _, first, second = render(HEAD, ROWS).splitlines()
    assert head.split() == ["time", "trace", "model", "provider", "in", "cached", "cost"]
    assert first.split()[2:] == [
        "05c780a0522e",
        "claude-sonnet-4-5-of-the-team",
        "anthropic-eu",
        "114202",
        "98000",
        "$0.02522",
    ]
    assert second.split()[2:] == ["99ed18030347", "gpt-5.2", "-", "7", "-", "unpriced"]


def test_a_narrow_console_costs_the_ends_of_names_first_then_the_least_important_columns() -> None:
    """What was left out is said, and of a trace id is left what it can be asked for by."""
    wide = render(HEAD, ROWS, within=85)
    assert "cached" in wide and "05c780a0 " in wide and "…" in wide and "narrow" not in wide
    middle = render(HEAD, ROWS, within=70)
    assert "claud…" in middle and "114202" in middle and middle.endswith("(too narrow for cached)\n")
    narrow = render(HEAD, ROWS, within=55).splitlines()
    assert narrow[0].split() == ["time", "trace", "model", "in", "cost"]
    assert narrow[-1] == "(too narrow for provider, cached)"
    assert render(HEAD, ROWS, within=30).splitlines()[2].endswith("…")


def test_a_column_that_went_comes_back_where_a_wider_one_went_after_it() -> None:
    head = ("a", number("small", spare=3), Column("wide", spare=2), Column("x", spare=1))
    rows = [("aaaa", 1, "w" * 30, "x")]
    assert render(head, rows, within=20).splitlines()[0].split() == ["a", "small", "x"]


CELLS = st.one_of(st.none(), st.integers(0, 10**12), st.text(max_size=30))


@given(st.lists(st.tuples(*[CELLS] * len(HEAD)), max_size=5), st.integers(1, 150), st.sampled_from(["", "      "]))
def test_no_line_is_wider_than_the_console(rows: list[tuple[object, ...]], within: int, indent: str) -> None:
    for line in render(HEAD, rows, within=within + len(indent), indent=indent).splitlines():
        assert columns(line) <= within + len(indent)


def test_a_column_in_which_nothing_stands_is_left_out_but_for_the_first() -> None:
    head, rows = filled((Column("a"), Column("b"), Column("c")), [(None, None, 0), (None, "", None)])
    assert [column.head for column in head] == ["a", "c"] and rows == [[None, 0], [None, None]]


def test_how_wide_a_line_may_be_is_what_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a pipe: `watch` sets it. Without it a pipe has no end."""
    assert width() is None
    monkeypatch.setenv("COLUMNS", "72")
    assert width() == 72
    for nothing in ("", "0", "many"):
        monkeypatch.setenv("COLUMNS", nothing)
        assert width() is None
