"""One worker process: what it owns, how it starts, how it drains."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arbiter import garbage, ids, log, own, plugins
from arbiter.app import linux
from arbiter.app.auth import Gate, Keys
from arbiter.app.slack import Slack
from arbiter.attempt.amounts import Amounts
from arbiter.attempt.echo import Echo
from arbiter.attempt.ladder import Around, Doors
from arbiter.attempt.measured import Measured
from arbiter.attempt.own_logins import OwnLogins
from arbiter.attempt.service_accounts import ServiceAccounts
from arbiter.call import Services
from arbiter.clock import monotonic, now_ms
from arbiter.config.snapshot import Snapshot
from arbiter.errors import ArbiterError, Unavailable
from arbiter.ledger.capture import Capture
from arbiter.ledger.journal import Journal, NullJournal
from arbiter.ledger.prefix import Prefixes
from arbiter.lines import Applied, Apply, Counted, Damaged, Line, Prices, take_up
from arbiter.log import Blotter, Log
from arbiter.metrics import Metrics
from arbiter.routing.router import Router
from arbiter.sessions.affinity import Affinity
from arbiter.state import login_file
from arbiter.state.memory import Memory
from arbiter.state.shared import Shared
from arbiter.upstream.transport import Transport
from arbiter.watch import Watch
from arbiter.wire.headers import Incoming

_log = Log(__name__)

_MEASURE_EVERY_S = 1.0
# Threads that compute (prompts hashed, long requests read, content captured) keep the interpreter's lock for long.
# At Python's own interval of 5 ms the loop waited so long in one of ten turns (p90 3.6 ms, and 0.9 ms at this one).
_SWITCH_S = 0.0005
_LAST_WORDS_S = 2.0  # SPEC 11.3: this long before the drain ends, what still streams is ended by us


class Worker:
    """Everything of one worker process. Built after the fork, on the loop that uses it."""

    def __init__(
        self, snapshot: Snapshot, run_dir: Path, number: int, loop: asyncio.AbstractEventLoop, line: Line
    ) -> None:
        self.loop = loop
        self.number = number
        self.on_unix_socket = snapshot.server.socket is not None
        self.control_socket = run_dir / "control.sock"
        self.own_key = own.key_of(run_dir)
        self.started_s = int(time.time())
        self.started_iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.started_s))
        self._prices: Prices | None = None  # as control told of them, through the supervisor
        self._run_dir = run_dir
        self._line = line
        self._timer: asyncio.TimerHandle | None = None
        self._plugins = plugins.Plugins(snapshot.plugins)
        self._recorded_drops = 0
        self._captures: list[Capture] = []  # those that are finishing, after a reload
        self._capture_drops = 0
        self._has_met_control = False
        self._slack: Slack | None = None  # once it has started
        self._drained_at = 0.0  # when the drain is over, once it has begun
        metrics = Metrics(run_dir / f"metrics-{number}.bin" if snapshot.telemetry.metrics else None)
        recorded = snapshot.storage.url != "none"
        journal = (
            Journal(snapshot.state_dir, f"worker-{number}", snapshot.storage.journal_max, loop)
            if recorded
            else NullJournal()
        )
        # The run's own directory names the run. Without rows there is no directory for a state either.
        self._state = state = Shared(snapshot.state_dir, run_dir.name) if recorded else Memory()
        transport, blot = Transport(), Blotter(snapshot.secrets())
        self._logins = OwnLogins(snapshot.data_dir, snapshot.fingerprint_key, transport, blot)
        self._service_accounts = ServiceAccounts(transport, blot)
        self.services = Services(
            snapshot,
            Router(snapshot),
            Affinity(snapshot.affinity),
            Doors(transport, Echo(), Watch(loop), blot, self._logins, self._service_accounts),
            journal,
            metrics,
            Around(state, Measured(state, f"worker-{number}"), Amounts(state)),
            Prefixes(loop) if recorded else None,
            _capture(snapshot, snapshot.secrets()),
            control=self.control_socket if recorded else None,
        )
        self.keys = Keys(snapshot)
        self.gate = Gate(snapshot)

    async def start(self) -> None:
        """Begin. Errors: a required plugin that fails, which keeps this process from serving."""
        ids.seed()
        linux.tune_allocator()
        sys.setswitchinterval(_SWITCH_S)
        await self._plugins.startup(self.services.snapshot)
        self.measure()
        garbage.rarely()
        self._slack = Slack(self.loop)
        self.loop.add_reader(self._line.fileno(), self._hear)

    async def stop(self) -> None:
        """Let go of everything, the journal's last rows first: also those that wait for their prompts to be hashed."""
        services = self.services
        self.loop.remove_reader(self._line.fileno())
        if self._timer is not None:
            self._timer.cancel()
        if services.prefixes is not None:
            await services.prefixes.aclose()
        await services.journal.aclose(self._drained_at)
        if services.capture is not None:
            await asyncio.to_thread(services.capture.close)
        services.doors.watch.close()
        services.doors.aside.close()
        await self._logins.aclose()
        await self._service_accounts.aclose()
        await services.doors.echo.close()
        await services.doors.transport.close()
        await self._plugins.shutdown()
        services.around.state.close()
        services.metrics.flush()

    # --- reloads ------------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        """The supervisor says something."""
        for message, descriptor in self._line.receive():
            if isinstance(message, Apply) and descriptor is not None:
                self.apply(take_up(descriptor))
                self._line.send(Applied(message.number))
            elif isinstance(message, Prices):
                self._prices = message
            elif isinstance(message, Counted):
                self.services.metrics.count("arbiter_config_reloads_total", (message.result,))
        if not self._line.is_open:
            self.loop.remove_reader(self._line.fileno())

    def apply(self, snapshot: Snapshot) -> None:
        """Serve by another snapshot from the next request on; those under way go on with what they began with.

        Everything new is made before anything is replaced, and nothing waits in between: no request sees half of it.
        """
        services, old = self.services, self.services.snapshot
        # What was sent under the old keys still comes back for a while.
        secrets = old.secrets() | snapshot.secrets()
        router, keys, gate = Router(snapshot), Keys(snapshot), Gate(snapshot)
        doors = dataclasses.replace(services.doors, blot=Blotter(secrets))
        self._logins.adopt(snapshot.fingerprint_key, doors.blot)
        self._service_accounts.adopt(doors.blot)
        if (snapshot.storage.capture, snapshot.secrets()) != (old.storage.capture, old.secrets()):
            if services.capture is not None:
                services.capture.finish()
                self._captures.append(services.capture)
            services.capture = _capture(snapshot, secrets)
        services.snapshot, services.router, services.doors = snapshot, router, doors
        self._state.clear_refused()  # also those that only this process knows, where the state is not shared
        services.affinity = Affinity(snapshot.affinity)
        self.keys, self.gate = keys, gate
        log.setup(snapshot.telemetry.log_level, snapshot.telemetry.log_format, secrets=secrets)
        doors.transport.renew([provider.endpoint for provider in snapshot.providers.values()])

    # --- its end ------------------------------------------------------------------------------------------------------

    def drain(self) -> bool:
        """No new work; what is open may go on until shortly before `server.drain` is over. False: it drains already."""
        services = self.services
        if services.draining:
            return False
        services.draining = True
        self._drained_at = monotonic() + services.snapshot.server.drain_s
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

    # --- how it is ----------------------------------------------------------------------------------------------------

    def not_ready(self) -> list[str]:
        """Why this worker should get no traffic; empty while all is well."""
        services = self.services
        reasons = []
        if services.draining:
            reasons.append("draining")
        if not services.journal.healthy:
            reasons.append(f"journal: {services.journal.reason}")
        if services.around.state.reason:
            reasons.append(f"state: {services.around.state.reason}")
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
        snapshot = services.snapshot
        said += login_file.faults(snapshot.logins, snapshot.data_dir, snapshot.fingerprint_key)
        for pause in services.around.state.standing().pauses.values():
            what = "all traffic" if pause.scope == "all" else f"the {pause.scope} {pause.name}"
            said.append(f"paused: {what}")
        return said

    def prices(self) -> dict[str, Any] | None:
        """The price list that is kept, and how the last fetch of one went; None before control has told. No look at
        the disk."""
        prices = self._prices
        if prices is None:
            return None
        age_s = None if prices.fetched_ms is None else max(0, now_ms() - prices.fetched_ms) // 1000
        return {
            "fetched_ms": prices.fetched_ms,
            "age_s": age_s,
            "entries": prices.entries,
            "tried_ms": prices.tried_ms,
            "outcome": prices.outcome,
        }

    @property
    def _control_runs(self) -> bool:
        """The supervisor removes the socket of a control process that died."""
        return self.control_socket.exists()

    def measure(self) -> None:
        """Write this worker's numbers where whoever answers `/metrics` finds them; every second, and when asked."""
        try:
            self._measure()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(_MEASURE_EVERY_S, self._each_second)

    def _each_second(self) -> None:
        if self._slack is not None:
            self._slack.look(self.services.in_flight)
        self.measure()

    def _measure(self) -> None:
        services = self.services
        metrics, journal = services.metrics, services.journal
        journal.look()
        state = self._state
        state.look()
        if isinstance(state, Shared) and state.is_damaged:
            self._line.send(Damaged())
        groups = services.snapshot.aliases.values()
        services.around.measured.exchange(wants_speeds=any(alias.select == "fastest_measured" for alias in groups))
        services.around.amounts.exchange()
        metrics.gauge("arbiter_open_streams", len(services.streams))
        metrics.gauge("arbiter_requests_in_flight", services.in_flight)
        if self.number == 1:  # what is shared: one worker speaks for it
            metrics.gauge("arbiter_journal_depth", journal.depth)
            standing, now = services.around.state.standing(), monotonic()
            metrics.gauge("arbiter_cooldown_active", sum(rest.until > now for rest in standing.cooldowns.values()))
            metrics.gauge("arbiter_breakers_open", sum(one.open_until > now for one in standing.breakers.values()))
            metrics.gauge("arbiter_keys_refused", len(standing.refused))
            metrics.gauge("arbiter_pauses_active", len(standing.pauses))
        if journal.dropped > self._recorded_drops:
            metrics.count("arbiter_ledger_dropped_total", (), journal.dropped - self._recorded_drops)
            self._recorded_drops = journal.dropped
        self._count_uncaptured()
        control = f"unix://{self.control_socket}"  # the administration is no upstream
        open_connections = [
            one["open"] for one in services.doors.transport.stats() if not one["origin"].endswith(control)
        ]
        metrics.gauge("arbiter_upstream_connections", sum(open_connections))
        metrics.flush()

    def _count_uncaptured(self) -> None:
        services = self.services
        here = [services.capture] if services.capture is not None else []
        dropped = sum(capture.dropped for capture in (*self._captures, *here))
        if dropped > self._capture_drops:
            services.metrics.count("arbiter_capture_dropped_total", (), dropped - self._capture_drops)
            self._capture_drops = dropped

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


def _capture(snapshot: Snapshot, secrets: frozenset[str]) -> Capture | None:
    storage = snapshot.storage
    is_on = storage.url != "none" and storage.capture.is_on
    if not is_on:
        return None
    return Capture(snapshot.state_dir, storage.capture, secrets, snapshot.limits.event)
