"""The supervisor: Granian's main process, which starts workers and control, watches them, and ends them in order.

    arbiter serve
    |- supervisor    this process: no request, no file of anybody's is touched here
    |- worker x N    the data plane
    `- control x 1   recorder, administration

Granian's own loop ends the server when a worker dies twice within seconds; ours brings it back, with growing waits,
and gives up only on a worker that cannot even start.
"""

from __future__ import annotations

import asyncio
import dataclasses
import multiprocessing
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from granian._futures import _future_watcher_wrapper, _new_cbscheduler
from granian import _granian
from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.log import LogLevels
from granian.rsgi import _callback_wrapper, _callbacks_from_target
from granian.server.common import WORKERS_METHODS
from granian.server.mp import MPServer, WorkerProcess

from arbiter import __version__
from arbiter.app import linux
from arbiter.config.load import Source
from arbiter.config.snapshot import Snapshot
from arbiter.log import Log
from arbiter.plugins import PluginFailed

_log = Log(__name__)

_BACKLOG = 4096  # idle keep-alive connections count against Granian's backpressure; excess clients would hang
_KILL_AFTER_S = 5.0  # beyond server.drain
_QUICK_S = 5.0  # a worker that lived shorter than this died young
_YOUNG_DEATHS = 5  # this many in a row: it cannot start, and restarting will not help
_RESTART_WAITS_S = (0.0, 0.1, 0.5, 1.0, 2.0)
_CONTROL_STOPS_S = 15.0
_POLL_S = 0.2


def serve(snapshot: Snapshot, *, source: Source | None = None, demo: bool = False) -> int:
    """Run the gateway until it is told to stop; returns the exit code (0, or 1 where it could not go on)."""
    snapshot = _with_admin_token(snapshot)
    if not _is_free(snapshot):
        where = snapshot.server.socket or f"{snapshot.server.bind}:{snapshot.server.port}"
        print(f"arbiter: {where} is in use; choose another with --port (or PORT=…)", file=sys.stderr)
        return 1
    run_dir = Path(tempfile.mkdtemp(prefix="arbiter-"))
    try:
        return Supervisor(snapshot, run_dir, source=source, demo=demo).run()
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)


def _with_admin_token(snapshot: Snapshot) -> Snapshot:
    """Reachable from elsewhere and no gate configured: make a token for this run, and print it once."""
    admin, server = snapshot.admin, snapshot.server
    if admin.token or admin.forward_auth_header or server.socket or server.bind in ("127.0.0.1", "::1", "localhost"):
        return snapshot
    token = secrets.token_urlsafe(24)
    print(f"arbiter: no admin.token is configured; for this run it is {token}", file=sys.stderr, flush=True)
    return dataclasses.replace(snapshot, admin=dataclasses.replace(admin, token=token))


def _is_free(snapshot: Snapshot) -> bool:
    if snapshot.server.socket:
        return True
    family = socket.AF_INET6 if ":" in snapshot.server.bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((snapshot.server.bind, snapshot.server.port))
        except OSError:
            return False
    return True


class Supervisor(MPServer):  # type: ignore[misc]  # granian is half typed, so Any here
    """Granian's server with our worker in it, and control beside it."""

    def __init__(self, snapshot: Snapshot, run_dir: Path, *, source: Source | None, demo: bool) -> None:
        server = snapshot.server
        self._snapshot = snapshot
        self._run_dir = run_dir
        self._source = source
        self._demo = demo
        self._control: Any = None
        self._control_deaths = 0
        self._control_due = 0.0
        self._young_deaths = 0
        self._exit_code = 0
        self.interrupt_children: list[int] = []  # set anew by Granian's own constructor
        super().__init__(
            "arbiter",
            address=server.bind,
            port=server.port,
            uds=Path(server.socket) if server.socket else None,
            interface=Interfaces.RSGI,
            workers=server.workers,
            blocking_threads=1,
            runtime_threads=1,
            runtime_mode=RuntimeModes.st,
            loop=Loops.uvloop,
            http=HTTPModes.http1,
            websockets=False,
            backlog=_BACKLOG,
            backpressure=_BACKLOG,
            log_level=LogLevels.warning,
            respawn_failed_workers=True,
            workers_kill_timeout=max(1, round(server.drain_s + _KILL_AFTER_S)),
        )

    def run(self) -> int:
        # Workers inherit the snapshot by being forked; nothing is read again or pickled.
        multiprocessing.set_start_method("fork", force=True)
        setup = Setup(self._snapshot, self._run_dir, os.getpid())
        self.serve(spawn_target=_run_worker, target_loader=lambda: setup, wrap_loader=False)
        return self._exit_code

    # --- Granian's steps, with ours added -----------------------------------------------------------------------------

    def startup(self, spawn_target: Any, target_loader: Any) -> None:
        self._start_control()
        super().startup(spawn_target, target_loader)
        server = self._snapshot.server
        where = f"unix:{server.socket}" if server.socket else f"http://{_shown(server.bind)}:{server.port}"
        _log.info("serving", url=where, workers=server.workers, version=__version__, epoch=self._snapshot.epoch)
        if self._demo:
            _say_hello(where)

    def signal_handler_reload(self, *args: Any, **kwargs: Any) -> None:
        """HUP. Granian would respawn every worker, which a changed configuration does not need."""
        _log.warn("reload is not built yet: restart to apply a changed configuration")

    def _serve_loop(self, spawn_target: Any, target_loader: Any) -> None:
        while not self.interrupt_signal:
            self.main_loop_interrupt.wait(_POLL_S)
            if self.interrupt_signal:
                return
            if self.interrupt_children:
                self.main_loop_interrupt.clear()
                dead, self.interrupt_children = sorted(set(self.interrupt_children)), []
                if not self._may_restart(dead):
                    self._exit_code = 1
                    return
                self._respawn_workers(dead, spawn_target, target_loader)
            self._watch_control()

    def shutdown(self, exit_code: int = 0) -> None:
        _log.info("stopping")
        # Control first hears of nothing: the workers' last rows are still to come.
        self.interrupt_children = []
        super().shutdown(exit_code)
        self._stop_control()

    # --- workers ------------------------------------------------------------------------------------------------------

    def _may_restart(self, dead: list[int]) -> bool:
        young = any(time.monotonic() - self.wrks[index].birth < _QUICK_S for index in dead)
        self._young_deaths = self._young_deaths + 1 if young else 0
        if self._young_deaths >= _YOUNG_DEATHS:
            _log.error("workers keep dying as soon as they start; the lines above say why. Giving up")
            return False
        wait_s = _RESTART_WAITS_S[min(self._young_deaths, len(_RESTART_WAITS_S) - 1)]
        _log.warn("a worker died and is replaced", workers=[index + 1 for index in dead], wait_s=wait_s)
        if wait_s:
            time.sleep(wait_s)
        return True

    # --- control ------------------------------------------------------------------------------------------------------

    def _start_control(self) -> None:
        snapshot, run_dir, parent = self._snapshot, self._run_dir, os.getpid()
        context = multiprocessing.get_context("fork")
        self._control = context.Process(name="arbiter-control", target=_run_control, args=(snapshot, run_dir, parent))
        self._control.start()

    def _watch_control(self) -> None:
        control = self._control
        if control is None or control.is_alive():
            return
        now = time.monotonic()
        if not self._control_due:
            wait_s = _RESTART_WAITS_S[min(self._control_deaths, len(_RESTART_WAITS_S) - 1)]
            self._control_deaths += 1
            self._control_due = now + wait_s
            _log.warn("control died and is restarted; rows wait in the journal", exit=control.exitcode)
        if now >= self._control_due:
            self._control_due = 0.0
            self._start_control()

    def _stop_control(self) -> None:
        control = self._control
        if control is None or not control.is_alive():
            return
        control.terminate()
        control.join(_CONTROL_STOPS_S)
        if control.is_alive():
            _log.warn("control did not stop in time; what is left in the journal is recorded at the next start")
            control.kill()
            control.join()


def _shown(bind: str) -> str:
    """An address a person can open: every interface is also this one."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)
    return f"[{host}]" if ":" in host else host


def _say_hello(url: str) -> None:
    body = '{"model":"echo","messages":[{"role":"user","content":"hello"}]}'
    print(
        f"\nArbiter is serving at {url} on its embedded echo provider.\n\n"
        f"  try it     curl {url}/v1/chat/completions -H 'content-type: application/json' \\\n"
        f"               -d '{body}'\n"
        f"  watch it   {url}/admin/ui/\n"
        "  stop it    Ctrl-C\n",
        flush=True,
    )


# --- in the children --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """What a worker is forked with."""

    snapshot: Snapshot
    run_dir: Path
    parent: int


def _run_control(snapshot: Snapshot, run_dir: Path, parent: int) -> None:
    from arbiter.control.main import run  # its web framework has no place in the workers' memory

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if number != signal.SIGTERM else signal.SIG_DFL)
    run(snapshot, run_dir / "control.sock", parent)


@WorkerProcess.wrap_target  # type: ignore[untyped-decorator]
def _run_worker(
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
    """Granian's own RSGI worker, but that SIGTERM tells our worker before it tells Granian's server.

    Granian's server stops accepting at once and then waits, without limit, for what is in flight; the worker's drain
    is what ends that.
    """
    from arbiter.app.rsgi import App
    from arbiter.app.worker import Worker

    linux.die_with_parent(setup.parent)
    app = App(lambda loop: Worker(setup.snapshot, setup.run_dir, worker_id, loop))
    callback, begin, end = _callbacks_from_target(app)
    stopping = _granian.WorkerSignal()
    stopped = asyncio.Event()

    async def until_stopped() -> None:
        await stopped.wait()

    def on_term() -> None:
        app.drain()
        stopping.set()

    stopping.add_cb(lambda: loop.call_soon_threadsafe(stopped.set))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_term)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        begin(loop)
    except PluginFailed as error:
        _log.error(str(error))
        sys.exit(1)
    make: Any = _granian.RSGIWorker  # its stub knows fewer arguments than it takes
    server = make(
        worker_id,
        sock,
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
    serve_with = getattr(server, WORKERS_METHODS[runtime_mode][(sock[0] or sock[1]).is_uds()])
    wrapped = _future_watcher_wrapper(_callback_wrapper(callback, log_access_fmt))
    serve_with(_new_cbscheduler(loop, wrapped, impl_asyncio=True), loop, stopping)
    loop.run_until_complete(until_stopped())
    end(loop)
