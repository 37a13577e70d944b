"""How deep a JSON text goes, told without decoding it.

A decoder that recurses would be stopped by its own limit, which differs between versions and lies far above ours
(SPEC 14.1); most members of a request are never decoded here at all, but somebody behind us does decode them.
"""

from __future__ import annotations

import re

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def is_deeper(data: bytes, limit: int) -> bool:
    """Whether objects and arrays are nested more than `limit` deep. What is no JSON gets some answer, and no error."""
    if data.count(b"{") + data.count(b"[") <= limit:
        return False
    depth = 0
    for byte in _STRING.sub(b"", data):
        if byte in b"{[":
            depth += 1
            if depth > limit:
                return True
        elif byte in b"}]":
            depth -= 1
    return False
