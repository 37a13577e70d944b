"""A plugin that switches the garbage collector off, so that whatever waits for it is seen to wait."""

from __future__ import annotations

import gc

from arbiter.plugins import Plugin


class NoCollector(Plugin):
    async def startup(self, snapshot: object) -> None:
        gc.disable()
