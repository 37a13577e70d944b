"""Settings files as texts: edited, and the edits taken back, whatever else was changed meanwhile.

Each edit is checked: the new text is read again, and must say what the old one said and the edit besides. So a file
that an editor of ours does not understand well enough is left alone, and never damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from arbiter.cli.connecting import dotenv, jsonc, toml, word, yaml
from arbiter.cli.connecting.tree import MISSING, Broken, Place, drop, lookup, put, same

Edit = tuple[Place, Any]


class Format(Protocol):
    """What each format's module offers."""

    def parse(self, text: str) -> Any: ...

    def put(self, text: str, place: Place, value: Any) -> str: ...

    def drop(self, text: str, place: Place) -> str: ...


FORMATS: dict[str, Format] = {"json": jsonc, "toml": toml, "yaml": yaml, "env": dotenv, "word": word}


def edited(kind: str, text: str, edits: Sequence[Edit]) -> str:
    """`text` with the edits made, where MISSING means: nothing stands there. What holds already stays as it is written.

    Errors: Broken.
    """
    format = FORMATS[kind]
    before = format.parse(text)
    for place, value in edits:
        if value is MISSING:
            text = _drop(format, text, place, before)
        else:
            text = _put(format, text, place, value)
    return text


def reverted(kind: str, text: str, original: str, edits: Sequence[Edit]) -> tuple[str, list[Place]]:
    """`text` without the edits, and the places where something else stands by now, which were left alone.

    `original` is the text before the edits; what stood there comes back. Errors: Broken.
    """
    format, kept = FORMATS[kind], []
    before = format.parse(original)
    for place, value in reversed(edits):
        now, old = lookup(format.parse(text), place), lookup(before, place)
        if same(now, old):
            continue
        if not same(now, value):
            kept.append(place)
        elif old is MISSING:
            text = _drop(format, text, place, before)
        else:
            text = _put(format, text, place, old)
    return text, kept


def is_empty(kind: str, text: str) -> bool:
    """Whether nothing is left in it, not even a comment."""
    return "".join(text.split()) in (("", "{}", "[]") if kind in ("json", "yaml") else ("",))


def _put(format: Format, text: str, place: Place, value: Any) -> str:
    tree = format.parse(text)
    if same(lookup(tree, place), value):
        return text
    wanted = put(tree, place, value)
    return _checked(format, format.put(text, place, value), wanted)


def _drop(format: Format, text: str, place: Place, before: Any) -> str:
    """Without what stands there, and without what was made to hold it and holds nothing else. `before` has the rest."""
    tree = format.parse(text)
    if lookup(tree, place) is MISSING:
        return text
    while len(place) > 1 and len(lookup(tree, place[:-1])) == 1:
        above = lookup(before, place[:-1])
        if above is None:
            return _put(format, text, place[:-1], None)
        if above is not MISSING:
            break
        place = place[:-1]
    return _checked(format, format.drop(text, place), drop(tree, place))


def _checked(format: Format, text: str, wanted: Any) -> str:
    try:
        text.encode()
        if same(format.parse(text) or None, wanted or None):
            return text
    except (Broken, UnicodeEncodeError):
        pass
    raise Broken("it is written in a way that cannot be edited safely; this much has to be done by hand")
