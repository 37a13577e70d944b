"""Tools that came before: an agent sends one list of them with every turn, often the longest part of a request.

What was read of a list is kept with its bytes, and with it what was made of it for an upstream. It is found again by
its hash, and is the same only where every byte is: who has found two texts of one hash must not be handed another
client's tools. Both looks at 60 KB take a fortieth of what it takes to read them. What is kept are values that nobody
changes. Which client sent a list does not matter, since nothing but its bytes went into them.

Lists are kept in two generations: what is asked for again moves into the young one, and where that is full it becomes
the old one, which is forgotten. Requests are read in several threads: each step is one that they cannot disturb, but
for the count of bytes, which may miss a list or two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import xxhash
from msgspec import Raw

from arbiter.model import OpaqueTool, Tool
from arbiter.wire.json import Members, encode

LEAST_BYTES = 1 << 10
"""A shorter list is read in as little time as it takes to look for it."""
MOST_BYTES = 4 << 20
"""Of all lists in a worker, what was read and made of them included: some twenty of Claude Code's, which are 60 KB."""
MOST_OF_ONE_BYTES = MOST_BYTES // 8
EACH_BYTES = 256
"""What a tool takes, or a name, beside its text: a list of short ones is much larger once it is read."""
MOST_MADE = 8
"""Of what is made of one list: a client's tools go to few kinds of upstream."""

Tools = tuple[Tool | OpaqueTool, ...]
T = TypeVar("T")


class Kept(tuple[Tool | OpaqueTool, ...]):
    """The tools of one list, and what was made of them."""

    made: dict[object, Any]


_Key = tuple[str, int]


class Toolbox:
    """The lists that were sent last."""

    def __init__(self) -> None:
        self._young: dict[_Key, tuple[bytes, Kept]] = {}
        self._old: dict[_Key, tuple[bytes, Kept]] = {}
        self._young_bytes = 0

    def known(self, format: str, raw: Raw) -> Kept | None:
        """Return what was read of this list of tools when it came in `format`, None where it is not known."""
        if len(memoryview(raw)) < LEAST_BYTES:
            return None
        text = bytes(raw)
        key = _key(format, text)
        found = self._young.get(key)
        if found is not None:
            return found[1] if found[0] == text else None
        found = self._old.get(key)
        if found is None or found[0] != text:
            return None
        self._add(key, text, found[1])
        return found[1]

    def keep(self, format: str, raw: Raw | None, tools: Tools) -> Tools:
        """Return `tools`, which were read of a list that is not known; it is from now on."""
        if raw is None or not LEAST_BYTES <= len(memoryview(raw)) <= MOST_OF_ONE_BYTES:
            return tools
        text = bytes(raw)
        if _size_of(text, tools) > MOST_BYTES // 2:
            return tools
        kept = Kept(tools)
        kept.made = {}
        self._add(_key(format, text), text, kept)
        return kept

    def made(self, tools: Tools, what: object, make: Callable[[], T]) -> T:
        """Return what `make` returns, which depends on `tools` and `what` alone, and is changed by nobody: from the
        last time, where these tools are kept."""
        if type(tools) is not Kept:
            return make()
        found: T | None = tools.made.get(what)
        if found is None:
            found = make()
            size = _weight(found) + _weight(what)
            if len(tools.made) < MOST_MADE and size <= MOST_OF_ONE_BYTES:
                tools.made[what] = found
                self._young_bytes += size
                self._age()  # what is made of lists that are here may be more than they are
        return found

    def encoded(self, tools: Tools, what: object, build: Callable[[], list[Any]]) -> bytes:
        """Return as JSON what `build` returns, b"" where that is nothing. The rest is as for `made`."""

        def make() -> bytes:
            built = build()
            return encode(built) if built else b""

        return self.made(tools, what, make)

    def _add(self, key: _Key, text: bytes, tools: Kept) -> None:
        self._age()
        self._young[key] = text, tools
        made = sum(_weight(what) + _weight(found) for what, found in tuple(tools.made.items()))
        self._young_bytes += _size_of(text, tools) + made

    def _age(self) -> None:
        if self._young_bytes > MOST_BYTES // 2:
            self._old, self._young, self._young_bytes = self._young, {}, 0


def _key(format: str, text: bytes) -> _Key:
    return format, xxhash.xxh3_64_intdigest(text)


def _size_of(text: bytes, tools: Tools) -> int:
    return 2 * len(text) + EACH_BYTES * len(tools)


def _weight(value: object) -> int:
    """How much memory something takes that was made, or that says what was."""
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, Raw):
        return len(memoryview(value))
    if isinstance(value, dict):
        return EACH_BYTES + sum(map(_weight, value.values()))
    if isinstance(value, (tuple, list, frozenset)):
        return sum(EACH_BYTES + _weight(one) for one in value)
    return EACH_BYTES


_TOOLBOX = Toolbox()
known, keep, made, encoded = _TOOLBOX.known, _TOOLBOX.keep, _TOOLBOX.made, _TOOLBOX.encoded


def without(members: Members) -> Members:
    """Return the members of a request whose tools are known, to read what else there is."""
    return {**members, "tools": _NONE}


_NONE = Raw(b"null")
