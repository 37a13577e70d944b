"""The control process: the recorder in a thread, the administration on a unix socket.

It is started by the supervisor and ends with it: when the parent dies the kernel sends SIGTERM. SIGTERM stops the
server, drains the journal once more and ends; SIGINT is the supervisor's to judge, since a console sends it to all.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import uvicorn

from arbiter import garbage
from arbiter.chore import Chore
from arbiter.clock import now_ms
from arbiter.config.snapshot import Snapshot
from arbiter.control.actions import Actions
from arbiter.control.app import make_app
from arbiter.control.audit import Audit
from arbiter.control.door import Door
from arbiter.control.embedding import Embedding
from arbiter.control.price_refresh import PriceRefresh
from arbiter.control.reload import Configuration
from arbiter.control.repricing import Repricing
from arbiter.control.titling import Titling
from arbiter.ledger import retention
from arbiter.ledger.capture_keeper import Keeper
from arbiter.ledger.comparison import Comparison
from arbiter.ledger.estimates import Estimates
from arbiter.ledger.opening import open_store
from arbiter.ledger.pricing import Pricing, rate
from arbiter.ledger.recorder import Recorder, Stage
from arbiter.ledger.retention import Rule, Sweeper
from arbiter.ledger.row import AttemptRow
from arbiter.ledger.search_tender import ToolNames
from arbiter.ledger.sessions import Sessions, close_idle
from arbiter.ledger.shares import Shares
from arbiter.ledger.store import Changer, Reader, StoreDown
from arbiter.ledger.tariffs import Tariffs
from arbiter.lines import Line
from arbiter.log import setup
from arbiter.metrics import Metrics
from arbiter.state.shared import Shared

PR_SET_PDEATHSIG = 1
# Longer than the workers keep an idle connection to us: whoever closes first should be the one who knows.
KEEP_ALIVE_S = 300
GRACE_S = 3
RECORDER_BUSY_S = 1.0
# A stage asks for a handful of rows; a server that answers nothing must not hold the recorder for ever.
RECORDER_QUERY_S = 8.0
# Readers share one connection: whoever scans for longer keeps the others from it.
QUERY_S = 5.0
LOOK_EVERY_S = 1.0
FIRST_SWEEP_S = 60.0
SWEEP_EVERY_S = 3600.0
CLOSE_EVERY_S = 15.0
STOP_WITHIN_S = 2.0

log = logging.getLogger("arbiter.control")


def run(
    snapshot: Snapshot, socket_path: Path, parent_pid: int, stopping: Path | None = None, line: Line | None = None
) -> None:
    """Be the control process until SIGTERM, or until `parent_pid` is gone. Blocks; call it in a process of its own.

    With `stopping`, SIGTERM counts once that file is there: a service manager sends it to all processes at once, and
    the workers' last rows are still to come. `line` leads to the supervisor, who reads the configuration again.
    """
    _end_with(parent_pid)
    setup(snapshot.telemetry.log_level, snapshot.telemetry.log_format, secrets=snapshot.secrets())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    storage = snapshot.storage
    recorder: Recorder | None = None
    keeper: Keeper | None = None
    reader: Reader | None = None
    changer: Changer | None = None
    sweeper: Sweeper | None = None
    titling: Titling | None = None
    embedding: Embedding | None = None
    # The run's own directory names the run, and holds what `/metrics` adds up.
    run_dir = socket_path.parent
    numbers = Metrics(run_dir / "metrics-control.bin" if snapshot.telemetry.metrics else None)
    current = Configuration(snapshot, line)
    tariffs = Tariffs(current)
    if storage.url != "none":
        changer = Changer(lambda: open_store(storage.url))
    prices = PriceRefresh(current, tariffs, changer, line.send if line is not None else lambda _: True)
    if changer is not None:
        reader = Reader(lambda: open_store(storage.url, readonly=True, query_s=QUERY_S))
        door = Door(snapshot.server, run_dir)
        titling = Titling(current, reader, changer, door)
        embedding = Embedding(current, reader, changer, door)
        recorder = Recorder(
            snapshot.state_dir,
            storage.journal_max,
            lambda: open_store(storage.url, busy_s=RECORDER_BUSY_S, query_s=RECORDER_QUERY_S),
            stages=[*stages(current, tariffs, numbers, prices.missing), titling],
            metrics=numbers,
        )
        recorder.start()
        titling.start()
        embedding.start()
        keeper = Keeper(snapshot.state_dir, current, lambda: open_store(storage.url, busy_s=RECORDER_BUSY_S))
        keeper.start()
        sweeper = Sweeper(lambda: open_store(storage.url), lambda: aging(current()))
        sweeper.start()
    state = Shared(snapshot.state_dir, run_dir.name) if storage.url != "none" else None
    audit = current.audit = Audit(reader, changer)
    actions = Actions(state, current, audit)
    repricing = Repricing(changer, current, audit)
    prices.start()
    chores = [
        Chore("state", actions.look, every_s=LOOK_EVERY_S),
        Chore("state-sweep", actions.sweep, every_s=SWEEP_EVERY_S, first_s=FIRST_SWEEP_S),
        Chore("idle-sessions", lambda: _close_idle(changer, current()), every_s=CLOSE_EVERY_S, first_s=CLOSE_EVERY_S),
    ]
    app = make_app(
        reader,
        recorder.state if recorder is not None else None,
        current,
        extra=lambda: {
            **actions.describe(),
            "prices": prices.describe(),
            "titles": titling.describe() if titling is not None else None,
            "vectors": embedding.describe() if embedding is not None else None,
        },
        actions=[*current.routes(), *actions.routes(), *repricing.routes()],
        changer=changer,
        audit=audit,
        embeds=embedding,
    )
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        ws="none",
    )
    server = _Server(config, lambda: stopping is None or stopping.exists() or os.getppid() != parent_pid)
    # Already now, lest one be lost while we start. uvicorn hands signals on to the handlers it found once it has
    # stopped; this one then changes nothing, and lets the drain below happen.
    signal.signal(signal.SIGTERM, server.handle_exit)
    listener = listen(socket_path)
    garbage.rarely()
    try:
        log.info("control is ready", extra={"socket": str(socket_path)})

        async def serve() -> None:
            current.listen(actions.clear_refused)
            await server.serve(sockets=[listener])

        for chore in chores:
            chore.start()
        asyncio.run(serve())
    finally:
        listener.close()
        socket_path.unlink(missing_ok=True)
        # One that is stuck in the store or in the state is left to it; the process is about to end.
        are_over = [chore.stop(STOP_WITHIN_S) for chore in chores]
        repricing.close()
        if sweeper is not None:
            sweeper.stop()
        prices.stop()
        for asker in (titling, embedding):
            if asker is not None:
                asker.stop()
        if recorder is not None:
            recorder.stop()
        if keeper is not None:
            keeper.stop()
        if reader is not None:
            reader.close()
        if changer is not None:
            changer.close()
        if state is not None and all(are_over):
            state.close()
    log.info("control has ended")


def _close_idle(changer: Changer | None, snapshot: Snapshot) -> None:
    """Close sessions that nobody used for `sessions.idle_timeout`; a store that is down is told of elsewhere."""
    idle_ms = int(snapshot.sessions.idle_timeout_s * 1000)
    if changer is not None and idle_ms:
        with contextlib.suppress(StoreDown):
            changer.change(lambda db: close_idle(db, now_ms() - idle_ms))


def aging(snapshot: Snapshot) -> list[Rule]:
    """What the configuration lets go, and when."""
    rows_s, content_s = snapshot.storage.rows_ttl_s, snapshot.storage.capture.ttl_s
    rules = [] if rows_s is None else retention.of_rows(rows_s)
    return rules + (retention.of_content(content_s) if content_s else [])


def stages(
    current: Callable[[], Snapshot],
    tariffs: Tariffs,
    numbers: Metrics,
    missing: Callable[[Sequence[AttemptRow]], None],
) -> list[Stage]:
    """What is worked out before rows are stored, in the order in which each needs what those before it found.

    `missing` is told of attempts that have no price.
    """
    return [
        Estimates(),
        Pricing(tariffs, numbers, missing),
        Comparison(current, lambda row: rate(row, tariffs()), numbers),
        Sessions(lambda: int(current().sessions.idle_timeout_s * 1000)),
        ToolNames(current),
        Shares(current, numbers),
    ]


class _Server(uvicorn.Server):
    """uvicorn, but that a signal to end is heard only when it is meant for us."""

    def __init__(self, config: uvicorn.Config, is_meant: Callable[[], bool]) -> None:
        super().__init__(config)
        self._is_meant = is_meant

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._is_meant():
            super().handle_exit(sig, frame)


def listen(path: Path) -> socket.socket:
    """A listening unix socket that only our own user can connect to; one left by a dead process is replaced."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)  # chmod after bind would leave a moment for others
    try:
        listener.bind(str(path))
    finally:
        os.umask(old)
    listener.listen(128)
    return listener


def _end_with(parent_pid: int) -> None:
    """Ask the kernel for SIGTERM when our parent dies, and see whether it is too late for that."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        log.warning("the control process cannot be tied to its parent: %s", os.strerror(ctypes.get_errno()))
    if os.getppid() != parent_pid:
        raise SystemExit("the parent of the control process is gone")
