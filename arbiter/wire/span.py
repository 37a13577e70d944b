"""How far a JSON text has come that arrives in slices."""

from __future__ import annotations

import re

_STRUCTURE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)


class Span:
    """Says of a JSON text, slice by slice, whether it is whole: its first object, array or string has ended.

    Nothing of the text is kept, and nothing is checked but brackets and quotes. A bare number or word is never whole:
    more of it may come.
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "whole")

    def __init__(self) -> None:
        self.whole = False
        self._depth = 0
        self._in_string = False
        self._escaped = False  # the last slice ended behind a backslash

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text) and not self.whole:
            if not self._in_string:
                found = _STRUCTURE.search(text, at)
                if found is None:
                    return
                at = found.end()
                if found[0] == '"':
                    self._in_string = True
                else:
                    self._depth += 1 if found[0] in "{[" else -1
                    self.whole = self._depth <= 0
                continue
            if self._escaped:
                self._escaped = False
                at += 1
            inside = _INSIDE.match(text, at)
            at = inside.end() if inside is not None else at
            if at < len(text):
                self._escaped = text[at] == "\\"  # the last character: what it escapes is yet to come
                self._in_string = self._escaped
                self.whole = not self._in_string and self._depth == 0
                at += 1
