"""One reload, as the supervisor sees it: what of a new configuration applies, and what whoever asked is told.

Theory of operation. The supervisor reads the file once, and numbers what it accepts. Its own snapshot is replaced
first, so a child that starts from then on starts with it; all others are handed the snapshot over their lines and
say when they run it. A reload is over when every child runs its number or a later one, or when its time is up: it is
never taken back, and a child that was stuck applies it when it wakes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from arbiter import log
from arbiter.app.child import Child
from arbiter.clock import monotonic
from arbiter.config.load import ConfigError, Source, with_keys
from arbiter.config.snapshot import Snapshot
from arbiter.lines import Counted, Reloaded, put_down
from arbiter.log import Log

_log = Log(__name__)

WAIT_S = 10.0
"""How long the children may take before whoever asked is told who is late."""

_LOOK_S = 1.0
_TOLD_WARNINGS = 50
_TOLD_CHARS = 300


def merged(running: Snapshot, wanted: Snapshot) -> tuple[Snapshot, list[str]]:
    """`wanted`, but for what cannot change while the gateway runs, and the keys of what stays as it was.

    The epoch is that of the file, as `arbiter check` names it.
    """
    server = dataclasses.replace(
        wanted.server,
        bind=running.server.bind,
        port=running.server.port,
        socket=running.server.socket,
        workers=running.server.workers,
    )
    storage = dataclasses.replace(
        wanted.storage,
        url=running.storage.url,
        shown=running.storage.shown,
        path=running.storage.path,
        secrets=running.storage.secrets,
        journal_max=running.storage.journal_max,
        capture=dataclasses.replace(wanted.storage.capture, max=running.storage.capture.max),
    )
    telemetry = dataclasses.replace(wanted.telemetry, metrics=running.telemetry.metrics)
    snapshot = dataclasses.replace(
        wanted,
        server=server,
        storage=storage,
        telemetry=telemetry,
        state_dir=running.state_dir,
        plugins=running.plugins,
    )
    return snapshot, list(_kept(running, wanted))


def _kept(running: Snapshot, wanted: Snapshot) -> Iterator[str]:
    for name in ("bind", "port", "socket", "workers"):
        if getattr(running.server, name) != getattr(wanted.server, name):
            yield f"server.{name}"
    if running.state_dir != wanted.state_dir:
        yield "state"
    for name in ("url", "journal_max"):
        if getattr(running.storage, name) != getattr(wanted.storage, name):
            yield f"storage.{name}"
    if running.storage.capture.max != wanted.storage.capture.max:
        yield "storage.capture.max"
    if running.telemetry.metrics != wanted.telemetry.metrics:
        yield "telemetry.metrics"
    if running.plugins != wanted.plugins:
        yield "plugins"


class FileWatch:
    """Notices that the file has changed and has kept still since: a file is not read in the middle of being written.

    Made before the file is first read, it misses no change. That the file has gone is said once in the log, and so is
    that it is back.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._read = self._seen = source.stamp()
        self._is_gone = False
        self.due = monotonic() + _LOOK_S

    def look(self) -> bool:
        """Whether there is something new to read. While there is no file there is not: editors replace it."""
        if monotonic() < self.due:
            return False
        self.due = monotonic() + _LOOK_S
        stamp, seen = self._source.stamp(), self._seen
        self._seen = stamp
        if stamp is None and seen is None and not self._is_gone:  # once is an editor's moment between two files
            self._is_gone = True
            _log.warn("the configuration file is gone; the old one goes on")
        elif stamp is not None and self._is_gone:
            self._is_gone = False
            _log.info("the configuration file is back")
        return stamp is not None and stamp == seen and stamp != self._read

    def reads(self) -> None:
        """It is read now, whatever for."""
        self._read = self._source.stamp()


@dataclasses.dataclass(slots=True)
class _Round:
    """An accepted reload on its way to every child. `asks` are control's questions that it answers; with `only_keys` it
    is of the keys alone."""

    previous_epoch: str
    changed: bool
    needs_restart: list[str]
    asks: list[int]
    began: float
    only_keys: bool = False


class Reloads:
    """What the gateway runs, and every change of it. One at a time: whoever asks meanwhile is answered by the next.

    `finish` makes of an accepted snapshot what is run.
    """

    def __init__(
        self,
        source: Source,
        snapshot: Snapshot,
        control: Child,
        workers: Sequence[Child],
        finish: Callable[[Snapshot], Snapshot],
        watch: FileWatch | None,
    ) -> None:
        self.snapshot = snapshot
        self.number = 1
        self._source = source
        self._control = control
        self._workers = workers
        self._finish = finish
        self._watch = watch
        self._is_wanted = False
        self._asks: list[int] = []
        self._key_asks: list[int] = []
        self._round: _Round | None = None

    def want(self, ask: int | None = None, *, only_keys: bool = False) -> None:
        """Somebody wants the file read again, or the keys; `ask` is control's number for the question."""
        if only_keys and ask is not None:
            self._key_asks.append(ask)
            return
        self._is_wanted = True
        if ask is not None:
            self._asks.append(ask)

    def step(self) -> None:
        """Go on as far as it goes without waiting."""
        if self._watch is not None and self._watch.look():
            self._is_wanted = True
        while True:
            if self._round is None and self._key_asks:
                self._begin_keys()
            if self._round is None and self._is_wanted:
                self._begin()
            self._hand_out()
            if self._round is None or not self._is_over(self._round):
                return
            self._end(self._round)

    def due(self) -> Iterator[float]:
        """When `step` has something to do though nothing happened."""
        if self._watch is not None:
            yield self._watch.due
        if self._round is not None:
            yield self._round.began + WAIT_S

    def forget_asks(self) -> None:
        """Control is gone, and with it those who asked."""
        self._asks.clear()
        self._key_asks.clear()
        if self._round is not None:
            self._round.asks.clear()

    def refuse_asks(self) -> None:
        """The gateway stops: nothing is read again."""
        asks = self._asks + self._key_asks + (self._round.asks if self._round is not None else [])
        self.forget_asks()
        self._tell(asks, 503, {"code": 503, "detail": "the gateway is shutting down"})

    # --- one reload ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Read, judge, and replace our own snapshot: who is forked from here on starts with it."""
        asks, self._asks, self._is_wanted = self._asks, [], False
        began = monotonic()
        if self._watch is not None:
            self._watch.reads()
        try:
            wanted = self._source.load()
        except ConfigError as error:
            _log.warn(f"the configuration was rejected, and the old one goes on: {error}")
            self._reject(asks, 422, self._rejection(error))
            return
        except Exception as bug:  # ours, and no reason to end a gateway that serves
            _log.error("the configuration could not be read, and the old one goes on", error=bug)
            told = "a fault of the gateway's own; its log says more"
            self._reject(asks, 500, {"code": 500, "detail": told, "epoch": self.snapshot.epoch})
            return
        old = self.snapshot
        snapshot, needs_restart = merged(old, wanted)
        snapshot = self._finish(snapshot)
        secrets = old.secrets() | snapshot.secrets()
        log.setup(snapshot.telemetry.log_level, snapshot.telemetry.log_format, secrets=secrets)
        changed = snapshot != old
        if changed:
            for warning in snapshot.warnings:
                Log("arbiter.config").warn(warning)
        if needs_restart:
            _log.warn("not applied before a restart: " + ", ".join(needs_restart))
        self.snapshot = snapshot
        self.number += 1
        self._round = _Round(old.epoch, changed, needs_restart, asks, began)

    def _begin_keys(self) -> None:
        """Read the keys, and nothing else: a file that somebody is editing must not keep a revoked key alive."""
        asks, self._key_asks = self._key_asks, []
        began, old = monotonic(), self.snapshot
        try:
            self.snapshot = with_keys(old)
        except ConfigError as error:
            _log.warn(f"the keys were rejected, and the old ones go on: {error}")
            self._tell(asks, 422, self._rejection(error, only_keys=True))
            return
        self.number += 1
        new = self.snapshot
        changed = (new.keys, new.reasoning_keys) != (old.keys, old.reasoning_keys)
        self._round = _Round(old.epoch, changed, [], asks, began, only_keys=True)

    def _hand_out(self) -> None:
        lacking = [child for child in self._children if child.wants(self.number)]
        if not lacking:
            return
        descriptor = put_down(self.snapshot)
        try:
            for child in lacking:
                child.hand(self.number, descriptor)
        finally:
            os.close(descriptor)

    def _is_over(self, reload: _Round) -> bool:
        return not self._pending(self._children) or monotonic() >= reload.began + WAIT_S

    def _end(self, reload: _Round) -> None:
        self._round = None
        snapshot, pending = self.snapshot, self._pending(self._children)
        workers = len(self._workers) - len(self._pending(self._workers))
        said: dict[str, Any] = {
            "epoch": snapshot.epoch,
            "previous_epoch": reload.previous_epoch,
            "changed": reload.changed,
            "workers": workers,
            "pending": pending,
        }
        what = "the keys were read again" if reload.only_keys else "the configuration was reloaded"
        _log.info(what, **said, seconds=round(monotonic() - reload.began, 3))
        if pending:
            _log.warn("late with the new configuration, which they apply when they wake: " + ", ".join(pending))
        if not reload.only_keys:
            self._count("ok" if reload.changed else "unchanged")
        said |= {"warnings": _shortened(snapshot.warnings), "needs_restart": reload.needs_restart}
        self._tell(reload.asks, 200, said)

    def _reject(self, asks: list[int], status: int, said: dict[str, Any]) -> None:
        self._count("rejected")
        self._tell(asks, status, said)

    def _rejection(self, error: ConfigError, *, only_keys: bool = False) -> dict[str, Any]:
        """What whoever asked can do about it: the mistake is in what they wrote, and not in the gateway (422)."""
        epoch = self.snapshot.epoch
        goes_on = (
            "the old keys go on" if only_keys else f"configuration {epoch} goes on, and `arbiter check` tries a file"
        )
        return {
            "code": 422,
            "detail": error.message[:_TOLD_CHARS],
            "file": error.file or None,
            "line": error.line,
            "path": error.path or None,
            "epoch": epoch,
            "advice": f"mend the file and ask again; {goes_on}",
        }

    @property
    def _children(self) -> list[Child]:
        return [self._control, *self._workers]

    def _pending(self, children: Iterable[Child]) -> list[str]:
        return [child.name for child in children if child.runs < self.number]

    def _tell(self, asks: list[int], status: int, said: dict[str, Any]) -> None:
        """Control learns of every reload; whoever asked is answered."""
        if self._control.line is not None:
            self._control.line.send(Reloaded(asks, status, said))

    def _count(self, result: str) -> None:
        """The numbers are the workers', and one of them counts."""
        for worker in self._workers:
            if worker.has_served and worker.line is not None and worker.line.send(Counted(result)):
                return


def _shortened(warnings: Sequence[str]) -> list[str]:
    told = [warning[:_TOLD_CHARS] for warning in warnings[:_TOLD_WARNINGS]]
    if len(warnings) > len(told):
        told.append(f"and {len(warnings) - len(told)} more; `arbiter check` shows them all")
    return told
