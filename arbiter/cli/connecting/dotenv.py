"""A `.env` file: a variable a line."""

from __future__ import annotations

import re

from arbiter.cli.connecting.tree import Place

_LINE = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=[ \t]*([^\r\n]*?)[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_PLAIN = re.compile(r"[\w@%+:,./=-]*", re.ASCII)


def parse(text: str) -> dict[str, str]:
    """Each variable's value as it is written there, quotes and all but ours removed; of several the last."""
    return {found[1]: _unquoted(found[2]) for found in _LINE.finditer(text)}


def put(text: str, place: Place, value: str) -> str:
    """`text` with the variable set in the line that it had last, else in one at the end."""
    (name,) = place
    found = _last(text, str(name))
    if found is not None:
        return text[: found.start(2)] + _quoted(value) + text[found.end(2) :]
    newline = "\r\n" if "\r\n" in text else "\n"
    lead = text if not text or text.endswith("\n") else text + newline
    return f"{lead}{name}={_quoted(value)}{newline}"


def drop(text: str, place: Place) -> str:
    """`text` without the line that set the variable last, which there must be."""
    found = _last(text, str(place[0]))
    assert found is not None
    return text[: found.start()] + text[found.end() :]


def _last(text: str, name: str) -> re.Match[str] | None:
    return next((found for found in reversed(list(_LINE.finditer(text))) if found[1] == name), None)


def _quoted(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else f"'{value}'" if "'" not in value else f'"{value}"'


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and text[0] not in text[1:-1]:
        return text[1:-1]
    return text
