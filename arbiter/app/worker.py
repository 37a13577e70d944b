"""One worker process: what it owns, how it starts, how it drains."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from arbiter import gateway, plugins
from arbiter.app import linux
from arbiter.app.auth import Gate, Keys
from arbiter.attempt.echo import Echo
from arbiter.attempt.ladder import Doors
from arbiter.config.snapshot import Snapshot
from arbiter.errors import ArbiterError, Unavailable
from arbiter.ledger.journal import Journal, NullJournal
from arbiter.log import Blotter, Log
from arbiter.metrics import Metrics
from arbiter.routing.router import Router
from arbiter.state.base import State
from arbiter.upstream.transport import Transport
from arbiter.watch import Watch
from arbiter.wire.headers import Incoming

_log = Log(__name__)

_MEASURE_EVERY_S = 1.0
_GC_THRESHOLD = (10_000, 20, 50)
_LAST_WORDS_S = 2.0  # SPEC 11.3: this long before the drain ends, what still streams is ended by us


class Worker:
    """Everything of one worker process. Built after the fork, on the loop that uses it."""

    def __init__(self, snapshot: Snapshot, run_dir: Path, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.number = number
        self.on_unix_socket = snapshot.server.socket is not None
        self.control_socket = run_dir / "control.sock"
        self.started_s = int(time.time())
        self.started_iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.started_s))
        self._run_dir = run_dir
        self._timer: asyncio.TimerHandle | None = None
        self._plugins = plugins.Plugins(snapshot.plugins)
        self._recorded_drops = 0
        self._has_met_control = False
        metrics = Metrics(run_dir / f"metrics-{number}.bin" if snapshot.telemetry.metrics else None)
        recorded = snapshot.storage.url != "none"
        journal = (
            Journal(snapshot.state_dir, f"worker-{number}", snapshot.storage.journal_max, loop)
            if recorded
            else NullJournal()
        )
        self.services = gateway.Services(
            snapshot,
            Router(snapshot),
            Doors(Transport(), Echo(), Watch(loop), Blotter(snapshot.secrets())),
            journal,
            metrics,
            cast("State", None),
        )
        self.keys = Keys(snapshot)
        self.gate = Gate(snapshot)

    async def start(self) -> None:
        """Begin. Errors: a required plugin that fails, which keeps this process from serving."""
        gateway.seed_ids()
        linux.tune_allocator()
        await self._plugins.startup(self.services.snapshot)
        self.measure()
        # What is here now stays: the collector need not look through it again, nor after every few requests. Requests
        # leave hardly any cycles behind.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLD)

    async def stop(self) -> None:
        """Let go of everything, the journal's last rows first."""
        services = self.services
        if self._timer is not None:
            self._timer.cancel()
        await services.journal.aclose()
        services.doors.watch.close()
        await services.doors.echo.close()
        await services.doors.transport.close()
        await self._plugins.shutdown()
        services.metrics.flush()

    def drain(self) -> bool:
        """No new work; what is open may go on until shortly before `server.drain` is over. False: it drains already."""
        services = self.services
        if services.draining:
            return False
        services.draining = True
        grace_s = max(0.0, services.snapshot.server.drain_s - _LAST_WORDS_S)
        _log.info("draining", in_flight=services.in_flight, seconds=services.snapshot.server.drain_s)
        self.loop.call_later(grace_s, self._end_calls)
        return True

    def _end_calls(self) -> None:
        """What streams gets its error event; what still waits for an answer gets an error for one (SPEC 11.3)."""
        services = self.services
        for stream in list(services.streams):
            stream.stop(Unavailable("the gateway is shutting down"))
        services.is_over = True
        for task in list(services.waiting.values()):
            if task is not None:
                task.cancel()

    def not_ready(self) -> list[str]:
        """Why this worker should get no traffic; empty while all is well."""
        services = self.services
        reasons = []
        if services.draining:
            reasons.append("draining")
        if not services.journal.healthy:
            reasons.append(f"journal: {services.journal.reason}")
        # Once, so that a deployment that never gets a control process is not taken for one that works.
        self._has_met_control = self._has_met_control or self._control_runs
        if not self._has_met_control:
            reasons.append("control: not running yet")
        return reasons

    def warnings(self) -> list[str]:
        """What is wrong and costs no request: rows wait, and the administration does not answer."""
        services = self.services
        said = []
        if not self._control_runs:
            said.append("control: not running")
        if services.journal.store_reason:
            said.append(f"store: {services.journal.store_reason}")
        return said

    @property
    def _control_runs(self) -> bool:
        """The supervisor removes the socket of a control process that died."""
        return self.control_socket.exists()

    def measure(self) -> None:
        """Write this worker's numbers where whoever answers `/metrics` finds them; every second, and when asked."""
        services = self.services
        metrics, journal = services.metrics, services.journal
        journal.look()
        metrics.gauge("arbiter_open_streams", len(services.streams))
        metrics.gauge("arbiter_requests_in_flight", services.in_flight)
        if self.number == 1:  # the journal is shared: one worker speaks for it
            metrics.gauge("arbiter_journal_depth", journal.depth)
        if journal.dropped > self._recorded_drops:
            metrics.count("arbiter_ledger_dropped_total", (), journal.dropped - self._recorded_drops)
            self._recorded_drops = journal.dropped
        metrics.gauge(
            "arbiter_upstream_connections", sum(origin["open"] for origin in services.doors.transport.stats())
        )
        metrics.flush()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(_MEASURE_EVERY_S, self.measure)

    def metrics_files(self) -> Iterator[Path]:
        return self._run_dir.glob("metrics-*.bin")

    def check_insider(self, incoming: Incoming, peer: str) -> None:
        """Let through who has a client key, or who may use the administration.

        Errors: Unauthorized, Forbidden.
        """
        try:
            self.keys.identify(incoming)
        except ArbiterError:
            self.gate.check(incoming, peer, "GET")
