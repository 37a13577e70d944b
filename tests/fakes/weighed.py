"""How much memory Python has given out in a worker, told whenever a test asks.

make_front(plugins=[{"use": "tests.fakes.weighed:Weighed", "required": True}])
weigh(front.worker)                       # bytes; a garbage collection comes before
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import tracemalloc
from pathlib import Path

from arbiter.config.snapshot import Snapshot
from arbiter.plugins import Plugin
from tests.fakes.gateway import until

FOLDER = "TEST_WEIGHED"


class Weighed(Plugin):
    async def startup(self, snapshot: Snapshot) -> None:
        tracemalloc.start()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self._tell)

    def _tell(self) -> None:
        gc.collect()
        told = Path(os.environ[FOLDER], str(os.getpid()))
        told.with_suffix(".new").write_text(str(tracemalloc.get_traced_memory()[0]))
        told.with_suffix(".new").rename(told)


def weigh(pid: int, folder: Path) -> int:
    """Bytes that the worker `pid`, whose environment names `folder`, has in use."""
    told = folder / str(pid)
    told.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    until(told.exists, "the weight")
    return int(told.read_text())
