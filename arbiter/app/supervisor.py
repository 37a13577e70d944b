"""The supervisor: Granian's main process, which starts workers and control, watches them, and ends them in order.

    arbiter serve
    |- supervisor    this process: no request, and of files only the configuration's
    |- worker x N    the data plane
    `- control x 1   recorder, administration

Theory of operation. One thread waits for everything at once: a child that ends or says something on its line, the bell
(a pipe that our signal handlers write to), and the moment at which a dead child's successor is due. There is no other
thread, so a fork never copies a lock that somebody holds. Granian's own loop ends the server when a worker dies twice
within seconds; ours brings it back, sooner or later by how its predecessors fared, and gives up only where no worker
can even begin to serve. A changed configuration is handed to the children that are there (`reload`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.mp import MPServer

from arbiter import __version__, log, own
from arbiter.app import linux, preflight, running
from arbiter.app.child import Child
from arbiter.app.children import CANNOT_START, STOPPING, Control, Setup, run_control, run_worker
from arbiter.app.preflight import CannotStart
from arbiter.app.reload import FileWatch, Reloads
from arbiter.config.load import ConfigError, Source, with_keys
from arbiter.config.snapshot import Snapshot
from arbiter.lines import Damaged, Line, Prices, Reload
from arbiter.log import Log

_log = Log(__name__)

_BACKLOG = 4096
# Granian counts idle keep-alive connections against this, and lets whoever comes after them hang: the limit of open
# files is to be met first.
_BACKPRESSURE = 1 << 20
_KILL_AFTER_S = 5.0  # beyond server.drain
_GIVE_UP_AFTER = 5  # so many failed starts in a row while nobody serves
_CONTROL_STOPS_S = 15.0
_LOOK_EVERY_S = 10.0  # at a state that its users call damaged
_TWICE_S = 1.0  # two signals closer than this are one: wrappers like to pass a console's signal on

# Through our log, as text of ours; Granian would print to standard output.
# A connection's buffer grows with its requests' bodies, and stays: Granian's own 417 KB were kept by every open stream
# of an agent. A head has to fit into it.
_READ_BYTES = 128 << 10
_GRANIAN_LOG = {"loggers": {"_granian": {"handlers": [], "propagate": True}}}


def serve(snapshot: Snapshot, control: Control, *, source: Source, watch: FileWatch | None = None) -> int:
    """Run the gateway until it is told to stop; returns the exit code (0, or 1 where it could not go on).

    A reload asks `source` again; `watch` asks for one whenever the file changes.
    """
    os.umask(0o077)  # SPEC 14.3: whatever any of our processes makes is for this user only
    linux.allow_open_files()
    try:
        preflight.check(snapshot)
        with preflight.state_held(snapshot):
            run_dir = preflight.make_run_dir(snapshot.state_dir)
            try:
                own.make_key(run_dir)
                running.announce(snapshot.data_dir, run_dir, keeps_nothing=snapshot.storage.url == "none")
                if not source.demo:  # whose provider speaks every format as its own
                    preflight.make_reasoning_key(snapshot)
                # What was changed before anybody could be told of it.
                snapshot = with_keys(snapshot)
                preflight.set_damage_aside(snapshot)
                token = _AdminToken()
                snapshot = token(snapshot)
                # Printed once means that no log line shows it again.
                log.setup(snapshot.telemetry.log_level, snapshot.telemetry.log_format, secrets=snapshot.secrets())
                return Supervisor(snapshot, control, run_dir, source, watch, token).run()
            finally:
                running.withdraw(snapshot.data_dir, run_dir)
                shutil.rmtree(run_dir, ignore_errors=True)
    except (CannotStart, ConfigError) as error:
        print(f"arbiter: {error}", file=sys.stderr)
        return 1


class _AdminToken:
    """Reachable from elsewhere and no gate configured: a token is made for this run, printed once, and kept through
    every reload."""

    def __init__(self) -> None:
        self._made = ""

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        admin, server = snapshot.admin, snapshot.server
        is_near = server.socket is not None or server.bind in ("127.0.0.1", "::1", "localhost")
        if admin.token or admin.forward_auth_header or is_near:
            return snapshot
        if not self._made:
            self._made = secrets.token_urlsafe(24)
            what = "/admin/ needs this token, made for this run only (set admin.token to keep one)"
            print(f"arbiter: {what}: {self._made}", file=sys.stderr, flush=True)
        return dataclasses.replace(snapshot, admin=dataclasses.replace(admin, token=self._made))


class Supervisor(MPServer):  # type: ignore[misc]  # granian is half typed, so Any here
    """Granian's server with our worker in it, and control beside it."""

    def __init__(
        self,
        snapshot: Snapshot,
        control: Control,
        run_dir: Path,
        source: Source,
        watch: FileWatch | None,
        finish: Callable[[Snapshot], Snapshot],
    ) -> None:
        server = snapshot.server
        self._control_main = control
        self._run_dir = run_dir
        self._is_demo = source.demo
        self._socket = Path(server.socket) if server.socket else None
        self._exit_code = 0
        self._stops: list[float] = []  # when we were told to
        self._look_again_at = 0.0
        self._prices: Prices | None = None  # as control last told of them
        self._has_served = False
        self._is_announced = False
        self._bell, self._ringer = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._ringer, False)
        self._control = Child("control", self._make_control)
        self._workers = [Child(f"worker-{n + 1}", partial(self._make_worker, n)) for n in range(server.workers)]
        self._reloads = Reloads(source, snapshot, self._control, self._workers, finish, watch)
        super().__init__(
            "arbiter",
            address=server.bind,
            port=server.port,
            uds=self._socket,
            interface=Interfaces.RSGI,
            workers=server.workers,
            blocking_threads=1,
            runtime_threads=1,
            runtime_mode=RuntimeModes.st,
            loop=Loops.uvloop,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(max_buffer_size=max(_READ_BYTES, 2 * snapshot.limits.headers)),
            websockets=False,
            backlog=_BACKLOG,
            backpressure=_BACKPRESSURE,
            log_level=LogLevels.error,
            log_dictconfig=_GRANIAN_LOG,
        )

    def run(self) -> int:
        # Workers inherit the snapshot by being forked; nothing is read again or pickled.
        multiprocessing.set_start_method("fork", force=True)
        try:
            self.serve(spawn_target=run_worker, target_loader=lambda: None, wrap_loader=False)
        finally:
            # Whatever went wrong: nobody may outlive us, and multiprocessing would wait for them.
            self._end(self._living(), "was left over")
        return self._exit_code

    # --- Granian's steps, with ours in their place --------------------------------------------------------------------

    def signal_handler_interrupt(self, *args: Any, **kwargs: Any) -> None:
        self._stops.append(time.monotonic())
        self._ring()

    def signal_handler_reload(self, *args: Any, **kwargs: Any) -> None:
        self._reloads.want()  # Granian would respawn every worker, which a changed configuration does not need
        self._ring()

    def _init_shared_socket(self) -> None:
        try:
            super()._init_shared_socket()
        except RuntimeError as error:  # the address was taken since we looked; a backtrace follows the first line
            raise CannotStart(f"cannot listen: {str(error).partition(chr(10))[0]}") from error

    def _drop_shared_socket(self) -> None:
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)  # nobody new connects; a port of TCP is closed by the workers
        super()._drop_shared_socket()

    def _spawn_workers(self, spawn_target: Any, target_loader: Any) -> None:
        for child in self._children:
            child.start(self._reloads.number)

    def _serve_loop(self, spawn_target: Any, target_loader: Any) -> None:
        while not self._stops:
            for child in self._children:
                self._look_after(child)
            if self._is_hopeless():
                self._exit_code = 1
                return
            self._reloads.step()
            if self._prices is not None:
                for worker in self._workers:
                    worker.tell(self._prices)
            self._wait(self._children, min(self._reloads.due(), default=None))
            self._announce_once()

    def _stop_workers(self) -> None:
        drain_s = self._reloads.snapshot.server.drain_s
        self._reloads.refuse_asks()
        _log.info("stopping: open requests may finish; once more stops at once", drain_s=drain_s)
        limit = time.monotonic() + drain_s + _KILL_AFTER_S
        for worker in self._workers:
            if worker.process is not None:
                worker.process.terminate()
        while (living := self._living(self._workers)) and time.monotonic() < limit and not self._is_told_twice():
            self._wait([self._control, *living], limit)
            # The last rows are still to come, so control is kept alive until the workers are done.
            self._look_after(self._control)
        why = "was told twice to stop" if self._is_told_twice() else "did not stop in time"
        self._end(self._living(self._workers), why)

    def shutdown(self, exit_code: int = 0) -> None:
        super().shutdown(exit_code)
        self._stop_control()

    # --- children -----------------------------------------------------------------------------------------------------

    @property
    def _children(self) -> list[Child]:
        return [self._control, *self._workers]

    def _living(self, children: Iterable[Child] | None = None) -> list[Child]:
        found = []
        for child in self._children if children is None else children:
            if child.process is not None and child.process.is_alive():
                found.append(child)
        return found

    def _make_worker(self, index: int, ours: Line, theirs: Line) -> Any:
        setup = self._setup(ours, theirs)
        # Granian knows its worker's twenty arguments; its watching thread we do without.
        process = self._spawn_worker(index, run_worker, lambda: setup).inner
        process.name = f"arbiter-worker-{index + 1}"
        return process

    def _make_control(self, ours: Line, theirs: Line) -> Any:
        context = multiprocessing.get_context("fork")
        setup = self._setup(ours, theirs)
        return context.Process(name="arbiter-control", target=run_control, args=(setup, self._sso))

    def _setup(self, ours: Line, theirs: Line) -> Setup:
        others = [child.line for child in self._children if child.line is not None]
        snapshot, bell = self._reloads.snapshot, (self._bell, self._ringer)
        return Setup(snapshot, self._control_main, self._run_dir, os.getpid(), theirs, (*others, ours), bell)

    def _wait(self, children: Iterable[Child], limit: float | None) -> None:
        """Wait until a child ends or says something, the bell rings, a start is due, or `limit`."""
        ends = [child.due for child in children if child.process is None]
        if limit is not None:
            ends.append(limit)
        sentinels = [child.process.sentinel for child in children if child.process is not None]
        lines = [child.line.fileno() for child in children if child.line is not None and child.line.is_open]
        wait([self._bell, *lines, *sentinels], max(0.0, min(ends) - time.monotonic()) if ends else None)
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)
        for child in children:
            self._hear(child)

    def _hear(self, child: Child) -> None:
        for message in child.hear():
            if isinstance(message, Reload):
                self._reloads.want(message.ask, only_keys=message.only_keys)
                if self._stops:
                    self._reloads.refuse_asks()
            elif isinstance(message, Prices):
                self._prices = message
            elif isinstance(message, Damaged) and time.monotonic() >= self._look_again_at:
                # All workers say so, each second: the one look is enough for them.
                preflight.look_at_state(self._reloads.snapshot)
                self._look_again_at = time.monotonic() + _LOOK_EVERY_S
        if child.has_served and child is not self._control:
            self._has_served = True

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # so full that it rings anyway
            os.write(self._ringer, b"!")

    def _look_after(self, child: Child) -> None:
        """Start whoever is due, and bury whoever has ended."""
        if child.process is not None and not child.process.is_alive():
            pid, is_control = child.pid, child is self._control
            self._hear(child)
            if is_control:
                # Nobody is to take what it left for a control that listens.
                (self._run_dir / "control.sock").unlink(missing_ok=True)
                self._reloads.forget_asks()
            exit_code, wait_s = child.bury()
            what = "a worker ended and is replaced" if exit_code == 0 else "a worker died and is replaced"
            if is_control:
                what = "control died and is restarted; rows wait in the journal"
            _log.warn(what, process=child.name, pid=pid, exit=_told(exit_code), wait_s=wait_s)
            preflight.look_after_death(self._reloads.snapshot, exit_code)  # before its successor meets the same pages
            if exit_code == CANNOT_START and not is_control and not self._has_served:
                child.failed_starts = _GIVE_UP_AFTER  # the very first start, and it said why: no use in trying again
        if child.process is None and time.monotonic() >= child.due:
            child.start(self._reloads.number)

    def _is_hopeless(self) -> bool:
        """Nobody serves, and somebody cannot begin to however often it tries."""
        if any(worker.process is not None and worker.has_served for worker in self._workers):
            return False
        if all(worker.failed_starts < _GIVE_UP_AFTER for worker in self._workers):
            return False
        _log.error("no worker can begin to serve; the lines above say why. Giving up")
        return True

    def _stop_control(self) -> None:
        control = self._control
        if not self._living([control]):
            return
        (self._run_dir / STOPPING).touch()
        control.process.terminate()
        control.process.join(_CONTROL_STOPS_S)
        self._end(self._living([control]), "did not stop in time: what is left is recorded at the next start")

    def _is_told_twice(self) -> bool:
        return len(self._stops) > 1 and self._stops[-1] - self._stops[0] >= _TWICE_S

    def _end(self, children: list[Child], why: str) -> None:
        for child in children:
            _log.warn(f"{child.name} {why} and is killed", pid=child.pid)
            child.process.kill()
            child.process.join()

    # --- what we say --------------------------------------------------------------------------------------------------

    def _announce_once(self) -> None:
        if not self._is_announced and all(worker.has_served for worker in self._workers):
            self._is_announced = True
            snapshot = self._reloads.snapshot
            server = snapshot.server
            url = f"unix:{server.socket}" if server.socket else f"http://{_in_url(server.bind)}:{server.port}"
            _log.info("serving", url=url, workers=server.workers, version=__version__, epoch=snapshot.epoch)
            if self._is_demo:
                _say_hello(snapshot)


def _told(exit_code: int | None) -> str | int | None:
    """An exit code as people know it."""
    if exit_code is not None and exit_code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-exit_code).name
    return exit_code


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _say_hello(snapshot: Snapshot) -> None:
    server = snapshot.server
    # An address that a person can open: every interface is also this one.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.bind, server.bind)
    url = f"unix:{server.socket}" if server.socket else f"http://{_in_url(host)}:{server.port}"
    called = [sys.executable, "-m", "arbiter"] if sys.argv[0].endswith("__main__.py") else [sys.argv[0]]
    requests = shlex.join([*called, "requests", "--db", str(snapshot.storage.path)])
    body = '{"model":"echo","messages":[{"role":"user","content":"hello"}]}'
    print(
        f"\nArbiter is serving at {url} on its embedded echo provider.\n\n"
        f"  try it     curl {url}/v1/chat/completions -H 'content-type: application/json' \\\n"
        f"               -d '{body}'\n"
        f"  watch it   {url}/admin/ui/\n"
        f"  list it    {requests}\n"
        "  stop it    Ctrl-C\n",
        flush=True,
    )
