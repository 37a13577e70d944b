"""A server of a test's in a process of its own: it goes on, and remembers, whatever becomes of the gateway.

class Witness(Apart):
    def seen(self): return self._ask("/seen")       # in the test's process

if __name__ == "__main__":                          # in its own
    serve(handle)                                   # a callback for each connection, as asyncio's servers have them
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

ROOT = Path(__file__).parent.parent.parent


class Apart:
    """The process, as tests start and ask it. `MODULE` is what runs in it."""

    MODULE: ClassVar[str]

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", self.MODULE]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.close()  # it ends with us, also when we are killed
        process.wait(30)
        process.stdout.close()

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as told:
            return json.load(told)


def serve(handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Be that process: serve at a port that is told on standard output, until standard input ends."""

    async def main() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=4096)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
