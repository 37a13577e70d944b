"""A gateway with a bug: what it is told to stumble over in an upstream's stream breaks the reader of that.

Front(folder, plugins=[{"use": "tests.fakes.buggy:BuggyReader"}])
"""

from __future__ import annotations

from typing import Any

from arbiter.plugins import Plugin
from arbiter.wire.native_stream import NativeStream

STUMBLES = b"stumble"


class BuggyReader(Plugin):
    async def startup(self, snapshot: Any) -> None:
        feed = NativeStream.feed

        def fed(self: NativeStream, data: bytes) -> bytes:
            if STUMBLES in data:
                raise RuntimeError("a bug of the reader")
            return feed(self, data)

        NativeStream.feed = fed  # type: ignore[method-assign]
