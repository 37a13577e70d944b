"""Plain tables for the console."""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Iterable, Sequence

ELLIPSIS = "…"
GAP = "  "


def render(head: Sequence[str], rows: Iterable[Sequence[object]], within: int | None = None, soft: str = "") -> str:
    """Aligned columns under their heads, ending with a line break; None is shown as a dash.

    Units: `within` is the most columns of the console a line may take; the widest of the columns named in `soft`
    gives way, cell by cell, as far as its head.
    """
    cells = [[plain(value) for value in row] for row in rows]
    widths = [max(_width(row[column]) for row in [list(head), *cells]) for column in range(len(head))]
    if within is not None:
        _narrow(widths, head, within, soft.split())
        cells = [[_cut(cell, width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    lines = [_line(list(head), widths), _line(["-" * width for width in widths], widths)]
    lines += [_line(row, widths) for row in cells]
    return "\n".join(lines) + "\n"


def local(at_ms: int) -> datetime.datetime:
    """The local moment; the first or the last of the calendar for what lies beyond it."""
    try:
        return datetime.datetime.fromtimestamp(at_ms / 1000)
    except (ValueError, OverflowError, OSError):
        return datetime.datetime.min if at_ms < 0 else datetime.datetime.max


def plain(value: object) -> str:
    """What a console may be shown of a value."""
    # A model name comes from outside: it must not move the cursor or colour the terminal.
    return "-" if value is None else "".join(c if c.isprintable() else "?" for c in str(value))


def _narrow(widths: list[int], head: Sequence[str], within: int, soft: Sequence[str]) -> None:
    over = sum(widths) + len(GAP) * (len(widths) - 1) - within
    for _ in range(over):
        room = [(widths[at], at) for at, name in enumerate(head) if name in soft and widths[at] > _width(name)]
        if not room:
            return
        widths[max(room)[1]] -= 1


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    # Names and ids often begin alike, and differ at their end: both are shown.
    ending = "" if " " in text else text[-(width // 2) :]
    while text and _width(text) + _width(ending) > width - 1:
        text = text[:-1]
    return text + ELLIPSIS + ending


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)
