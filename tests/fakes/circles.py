"""A plugin that switches the garbage collector off, and says at the end what would have waited for it."""

from __future__ import annotations

import collections
import gc
import json
from pathlib import Path

from arbiter.config.snapshot import Snapshot
from arbiter.plugins import Plugin

FOUND = "circles.json"
"""In the data directory: how many objects of which of the gateway's classes were in circles, once it has stopped."""


class Circles(Plugin):
    async def startup(self, snapshot: Snapshot) -> None:
        self._found = Path(snapshot.data_dir) / FOUND
        gc.collect()
        gc.disable()

    async def shutdown(self) -> None:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = [type(one) for one in gc.garbage]
        gc.set_debug(0)
        gc.garbage.clear()
        names = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
        ours = collections.Counter(name for name in names if name.startswith("arbiter."))
        self._found.write_text(json.dumps(ours), "utf-8")
