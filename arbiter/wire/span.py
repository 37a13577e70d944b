"""How far a JSON text has come that arrives in slices."""

from __future__ import annotations

from arbiter._speedups import nesting

BLANK = " \t\r\n"


class Span:
    """Says of a JSON text, slice by slice, whether it is whole: its first object, array or string has ended.

    Nothing of the text is kept, and nothing is checked but brackets and quotes. A bare number or word is never whole:
    more of it may come.
    """

    __slots__ = ("_state", "opener", "whole")

    def __init__(self) -> None:
        self.whole = False
        self.opener = ""  # its first character that is no blank
        self._state = 0

    def feed(self, text: str) -> str:
        """Take a slice; return it without what stands behind the end."""
        if self.whole:
            return ""
        if not self.opener:
            self.opener = text.lstrip(BLANK)[:1]
        if self.opener not in ("{", "[", '"'):
            return text
        data = text.encode("utf-8", "surrogatepass")
        end, self._state = nesting.follow(data, self._state)
        if end < 0:
            return text
        self.whole = True
        return text if end == len(data) else data[:end].decode("utf-8", "surrogatepass")
