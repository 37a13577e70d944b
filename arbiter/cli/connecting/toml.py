"""TOML, edited in place by tomlkit, and read by Python's own reader, which thus judges what tomlkit made of it."""

from __future__ import annotations

import tomllib
from collections.abc import MutableMapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Item

from arbiter.cli.connecting.tree import Broken, Misfit, Named, Place


def parse(text: str) -> dict[str, Any]:
    """The value. Errors: Broken."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Broken(str(error) or "it is nested too deeply") from None


def put(text: str, place: Place, value: Any) -> str:
    """`text` with `value` at the place; what is missing on the way becomes a table. Errors: Broken, Misfit."""
    document = _read(text)
    table = document
    for depth, step in enumerate(map(_key, place[:-1])):
        if step not in table:
            table[step] = _new(table, has_tables_only=depth + 2 < len(place))
        table = _table(table[step])
    table[_key(place[-1])] = value
    return tomlkit.dumps(document)


def drop(text: str, place: Place) -> str:
    """`text` without what stands at the place, which must."""
    document = _read(text)
    table = document
    for step in place[:-1]:
        table = _table(table[_key(step)])
    del table[_key(place[-1])]
    return tomlkit.dumps(document)


def _read(text: str) -> MutableMapping[str, Any]:
    parse(text)
    try:
        return tomlkit.parse(text)
    except (TOMLKitError, RecursionError) as error:
        raise Broken(str(error)) from None


def _new(above: MutableMapping[str, Any], *, has_tables_only: bool) -> Item:
    """An empty table; inside of an inline table they are inline, too."""
    if isinstance(above, InlineTable):
        return tomlkit.inline_table()
    return tomlkit.table(is_super_table=has_tables_only)  # which needs no header of its own


def _table(value: Any) -> MutableMapping[str, Any]:
    if not isinstance(value, MutableMapping):
        raise Misfit("a table is expected")
    return value


def _key(step: str | Named) -> str:
    assert isinstance(step, str), "no agent has a list of tables"
    return step
