"""Plain tables for the console."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence


def render(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Aligned columns under their heads, ending with a line break; None is shown as a dash."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(_width(row[column]) for row in [list(head), *cells]) for column in range(len(head))]
    lines = [_line(list(head), widths), _line(["-" * width for width in widths], widths)]
    lines += [_line(row, widths) for row in cells]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    # A model name comes from outside: it must not move the cursor or colour the terminal.
    return "-" if value is None else "".join(c if c.isprintable() else "?" for c in str(value))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)
