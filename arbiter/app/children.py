"""What runs in the supervisor's children: a worker, and control.

Both are forked from one parent that has imported everything and opened nothing. SIGINT is the supervisor's to judge,
since a console sends it to the whole group; SIGTERM tells a worker to drain.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granian import _granian
from granian._futures import _new_cbscheduler
from granian.constants import HTTPModes, RuntimeModes
from granian.server.common import WORKERS_METHODS
from granian.server.mp import WorkerProcess

from arbiter.app import linux
from arbiter.app.port import Port
from arbiter.app.rsgi import App
from arbiter.app.worker import Worker
from arbiter.config.snapshot import Snapshot
from arbiter.lines import Line, Serving
from arbiter.log import Log
from arbiter.plugins import PluginFailed

_log = Log(__name__)

CANNOT_START = 3
"""Exit code of a child that has said why it cannot start; trying again at once would change nothing."""

STOPPING = "stopping"
"""A file in the run directory: the supervisor's word that the SIGTERM which control gets now is meant for it."""


Control = Callable[[Snapshot, Path, int, Path, Line], None]
"""(snapshot, socket path, parent's pid, path of the file `STOPPING`, line to the supervisor)"""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a child is forked with. `control` is what the control process runs (`arbiter.control.main.run`, which the
    command line knows and we do not). `line` is its end of the line to the supervisor; `others` are the supervisor's
    own ends of all lines, and `bell` are the ends of its bell: a child has no business with them.
    """

    snapshot: Snapshot
    control: Control
    run_dir: Path
    parent: int
    line: Line
    others: tuple[Line, ...]
    bell: tuple[int, int]

    def let_go(self) -> None:
        """In the child: close what is the supervisor's. A line ends when nobody else holds an end of it."""
        for other in self.others:
            other.close()
        for descriptor in self.bell:
            os.close(descriptor)


def run_control(setup: Setup, listener: socket.socket | None) -> None:
    """Be the control process; returns once it was told to stop, or its parent is gone.

    `listener` is the workers' unix socket, inherited: kept open here it would take connections that nobody answers.
    """
    if listener is not None:
        listener.close()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    setup.let_go()
    linux.release_signals()
    linux.name_process("arbiter-control")
    try:
        setup.control(
            setup.snapshot, setup.run_dir / "control.sock", setup.parent, setup.run_dir / STOPPING, setup.line
        )
    except Exception as error:  # the process's own exit guard; the supervisor starts another one
        _log.error("control failed", error=error)
        sys.exit(CANNOT_START)
    if os.getppid() != setup.parent:
        # Nobody else is left to tidy up after a supervisor that was killed.
        shutil.rmtree(setup.run_dir, ignore_errors=True)


@WorkerProcess.wrap_target  # type: ignore[untyped-decorator]
def run_worker(
    worker_id: int,
    setup: Setup,
    sock: Any,
    ipc: Any,
    loop: asyncio.AbstractEventLoop,
    runtime_mode: RuntimeModes,
    runtime_threads: int,
    runtime_blocking_threads: int | None,
    blocking_threads: int,
    blocking_threads_idle_timeout: int,
    backpressure: int,
    task_impl: Any,
    http_mode: HTTPModes,
    http1_settings: Any,
    http2_settings: Any,
    websockets: bool,
    static_path: Any,
    log_access_fmt: str | None,
    ssl_ctx: Any,
    scope_opts: Any,
    metrics: Any,
) -> None:
    """Granian's own RSGI worker, with its end in our hands.

    Granian's server stops accepting at once and then waits, without limit, for what is in flight and for every
    connection with half a request on it. So SIGTERM tells our worker first, which ends what is in flight shortly
    before `server.drain` is over, and at `server.drain` we leave, whoever is still connected. Granian is told when
    whoever has connected was heard (`port`).
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Until it serves there is nothing to drain.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    setup.let_go()
    linux.release_signals()
    linux.die_with_parent(setup.parent)
    linux.name_process(f"arbiter-w{worker_id}")
    made: list[Worker] = []

    def make_worker(loop: asyncio.AbstractEventLoop) -> Worker:
        made.append(Worker(setup.snapshot, setup.run_dir, worker_id, loop, setup.line))
        return made[0]

    app = App(make_worker)
    stopping = _granian.WorkerSignal()
    stopped = asyncio.Event()

    async def until_stopped() -> None:
        await stopped.wait()

    def on_term() -> None:
        if app.drain():
            port.close(loop, stopping.set)
            loop.call_later(made[0].services.snapshot.server.drain_s, stopped.set)

    stopping.add_cb(lambda: loop.call_soon_threadsafe(stopped.set))
    make: Any = _granian.RSGIWorker  # its stub knows fewer arguments than it takes
    try:
        app.begin(loop)
        own, shared = sock
        holder = shared if own is None else own.build()  # only now: who connects waits for somebody who serves
        port = Port(holder)
        loop.add_signal_handler(signal.SIGTERM, on_term)
        server = make(
            worker_id,
            (None, holder),
            ipc,
            runtime_threads,
            runtime_blocking_threads,
            blocking_threads,
            blocking_threads_idle_timeout,
            backpressure,
            http_mode,
            http1_settings,
            http2_settings,
            websockets,
            static_path,
            *ssl_ctx,
            metrics,
        )
        serve_with = getattr(server, WORKERS_METHODS[runtime_mode][holder.is_uds()])
        serve_with(_new_cbscheduler(loop, app.answer, impl_asyncio=True), loop, stopping)
    except PluginFailed as error:
        _log.error(str(error))
        sys.exit(CANNOT_START)
    except Exception as error:  # the process's own exit guard: a worker that cannot start says why, on a line of ours
        _log.error("a worker cannot start", error=error)
        sys.exit(CANNOT_START)
    setup.line.send(Serving())
    loop.run_until_complete(until_stopped())
    app.end(loop)
