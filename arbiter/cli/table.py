"""Plain tables for the console, as wide as it is."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ELLIPSIS = "…"
GAP = "  "
LEAST = 8  # columns that are left of a name: enough to be told from others
TRACE_COLUMNS = 12


@dataclass(frozen=True, slots=True)
class Column:
    """A column's head, and how it gives way on a narrow console.

    `is_number`: its cells end below each other. `least`: they may be cut to so many columns; 0: they are shown whole.
    `is_beginning`: what is left of one does for all of it. `spare`: the column may be left out, and the higher the
    sooner; 0 is needed.
    """

    head: str
    is_number: bool = False
    least: int = 0
    is_beginning: bool = False
    spare: int = 0


def soft(head: str, spare: int = 0, least: int = LEAST) -> Column:
    """A column of names or words, which may be cut."""
    return Column(head, least=least, spare=spare)


def number(head: str, spare: int = 0) -> Column:
    """A column of numbers, which never are."""
    return Column(head, is_number=True, spare=spare)


def trace() -> Column:
    """A column of trace ids, of which `TRACE_COLUMNS` tell one from another, and `LEAST` are enough to ask for it."""
    return Column("trace", least=LEAST, is_beginning=True)


def render(
    head: Sequence[Column | str], rows: Iterable[Sequence[object]], *, within: int | None = None, indent: str = ""
) -> str:
    """Aligned columns under their heads, ending with a line break; None is shown as a dash.

    Units: `within` is how many columns of the console a line may take, `indent` included; what is needed beyond that is
    cut from names, then from the table, whose last line names what was left out. None: as many as `width` says.
    """
    columns = [Column(one) if isinstance(one, str) else one for one in head]
    cells = [[plain(value) for value in row] for row in rows]
    widths = [
        max(_width(text) for text in (column.head, *(row[at] for row in cells))) for at, column in enumerate(columns)
    ]
    within = width() if within is None else within
    kept = list(range(len(columns)))
    if within is not None:
        within = max(1, within - len(indent))
        kept, widths = _fit(columns, widths, within)
    lines = [[column.head for column in columns], ["-" * width for width in widths], *cells]
    shown = [_line([(row[at], widths[at], columns[at]) for at in kept], within) for row in lines]
    left_out = [column.head for at, column in enumerate(columns) if at not in kept]
    if left_out:
        shown.append(_cut(f"(too narrow for {', '.join(left_out)})", within or 0))
    return "".join(f"{indent}{line}\n" for line in shown)


def render_told(head: Sequence[Column | str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose last column is what it is for: beside the others where all of it fits, else whole below its row."""
    cells, within = list(rows), width()
    beside = render(head, cells, within=sys.maxsize)
    if within is None or all(_width(line) <= within for line in beside.splitlines()):
        return beside
    names, rule, *lines = render(head[:-1], [row[:-1] for row in cells], within=within).splitlines()
    told = [f"{' ' * LEAST}{plain(row[-1])}" for row in cells]
    paired = [line for pair in zip(lines, told, strict=False) for line in pair]
    return "".join(f"{line}\n" for line in (names, rule, *paired, *lines[len(told) :]))


def filled(head: Sequence[Column], rows: Iterable[Sequence[object]]) -> tuple[list[Column], list[list[object]]]:
    """A table without the columns in which nothing stands, but for the first."""
    cells = [list(row) for row in rows]
    kept = [at for at in range(len(head)) if not at or any(row[at] not in (None, "") for row in cells)]
    return [head[at] for at in kept], [[row[at] for at in kept] for row in cells]


def width() -> int | None:
    """How many columns a line may have: what COLUMNS says, else what the terminal has; a pipe or a file has no end."""
    if not (os.environ.get("COLUMNS") or sys.stdout.isatty()):
        return None
    return shutil.get_terminal_size((0, 0)).columns or None


def plain(value: object) -> str:
    """What a console may be shown of a value."""
    # A model name comes from outside: it must not move the cursor or colour the terminal.
    return "-" if value is None else "".join(c if c.isprintable() else "?" for c in str(value))


def _fit(columns: Sequence[Column], widths: Sequence[int], within: int) -> tuple[list[int], list[int]]:
    """The columns that stay, and how wide all of them are. One is left out only where cutting cells is not enough."""
    least = [_least(column, width) for column, width in zip(columns, widths, strict=True)]

    def over(kept: Sequence[int], widths: Sequence[int]) -> int:
        return sum(widths[at] for at in kept) + len(GAP) * (len(kept) - 1) - within

    kept = list(range(len(columns)))
    spare = sorted((at for at in kept if columns[at].spare), key=lambda at: (columns[at].spare, at))
    for at in reversed(spare):
        if over(kept, least) > 0:
            kept.remove(at)
    for at in spare:  # a wide one that had to go may leave room for one that went before it
        if at not in kept and over([*kept, at], least) <= 0:
            kept = sorted([*kept, at])
    fitted = list(widths)
    for _ in range(over(kept, widths)):
        room = [at for at in kept if fitted[at] > least[at]]
        if not room:
            break
        fitted[max(room, key=lambda at: (columns[at].is_beginning, fitted[at], at))] -= 1
    return kept, fitted


def _least(column: Column, width: int) -> int:
    return min(width, max(column.least, _width(column.head))) if column.least else width


def _line(cells: Sequence[tuple[str, int, Column]], within: int | None) -> str:
    parts = []
    for text, width, column in cells:
        text = text[:width] if column.is_beginning else _cut(text, width)
        space = " " * (width - _width(text))
        parts.append(space + text if column.is_number else text + space)
    line = GAP.join(parts).rstrip()
    return line if within is None else _cut(line, within)


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    # Names and ids often begin alike, and differ at their end: both are shown.
    ending = "" if " " in text else text[-(width // 2) :]
    while ending and _width(ending) > width // 2:
        ending = ending[1:]
    while text and _width(text) + _width(ending) > width - 1:
        text = text[:-1]
    return text + ELLIPSIS + ending


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)
