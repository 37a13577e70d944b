"""Reloads as the supervisor sees them: children are lines here, and the clock is ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arbiter.app import reload
from arbiter.app.child import Child
from arbiter.app.reload import WAIT_S, FileWatch, Reloads, merged
from arbiter.config.load import Source, parse
from arbiter.config.snapshot import Snapshot
from arbiter.lines import Applied, Apply, Counted, Line, Message, Reloaded, Serving, take_up

CONFIG = "providers: { up: { type: echo, models: [%s] } }\n"
FIRST, SECOND = CONFIG % "first", CONFIG % "second"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    ours = Clock()
    monkeypatch.setattr(reload, "monotonic", ours)
    return ours


class Process:
    """A child's process that was never forked: its end of the line stays here."""

    pid = 1

    def start(self) -> None:
        pass

    def join(self) -> None:
        pass

    exitcode = -9

    def close(self) -> None:
        pass


class Gateway:
    """A supervisor's children, and the reloads that it hands to them."""

    def __init__(self, file: Path, workers: int = 2, watch: FileWatch | None = None) -> None:
        self.file = file
        self.ends: dict[str, Line] = {}
        self.inbox: dict[str, list[tuple[Message, Any]]] = {}
        self.control = self._child("control")
        self.workers = [self._child(f"worker-{n + 1}") for n in range(workers)]
        source = Source(file, {})
        self.reloads = Reloads(source, source.load(), self.control, self.workers, lambda snapshot: snapshot, watch)
        for child in self.children:
            self.begin(child)

    def _child(self, name: str) -> Child:
        def make(ours: Line, theirs: Line) -> Any:
            # `start` closes the end that a fork would have copied.
            if name in self.ends:
                self.ends[name].close()
            self.ends[name], self.inbox[name] = Line(theirs._end.dup()), []
            return Process()

        return Child(name, make)

    @property
    def children(self) -> list[Child]:
        return [self.control, *self.workers]

    def begin(self, child: Child) -> None:
        child.start(self.reloads.number)
        self.ends[child.name].send(Serving())
        list(child.hear())

    def take(self, child: Child, kind: type[Message]) -> list[tuple[Any, Any]]:
        """What of this kind the child finds on its line, with the values that came along; the rest stays there."""
        for message, given in self.ends[child.name].receive():
            self.inbox[child.name].append((message, take_up(given) if given is not None else None))
        inbox = self.inbox[child.name]
        self.inbox[child.name] = [pair for pair in inbox if not isinstance(pair[0], kind)]
        return [pair for pair in inbox if isinstance(pair[0], kind)]

    def apply(self, child: Child) -> Snapshot:
        """The child takes what it was handed, and says so."""
        ((message, snapshot),) = self.take(child, Apply)
        self.ends[child.name].send(Applied(message.number))
        list(child.hear())
        assert isinstance(snapshot, Snapshot)
        return snapshot

    def answers(self) -> list[Reloaded]:
        return [message for message, _ in self.take(self.control, Reloaded)]

    def counted(self) -> list[list[str]]:
        """What each worker is to count."""
        return [[message.result for message, _ in self.take(worker, Counted)] for worker in self.workers]

    def close(self) -> None:
        for child in self.children:
            self.ends[child.name].close()
            if child.line is not None:
                child.bury()


@pytest.fixture
def gateway(tmp_path: Path, clock: Clock) -> Iterator[Gateway]:
    file = tmp_path / "arbiter.yaml"
    file.write_text(FIRST)
    one = Gateway(file)
    yield one
    one.close()


def test_it_is_over_when_every_child_runs_it(gateway: Gateway) -> None:
    before = gateway.reloads.snapshot.epoch
    gateway.file.write_text(SECOND)
    gateway.reloads.want(5)
    gateway.reloads.step()
    for child in gateway.children:
        assert gateway.answers() == []
        assert "second" in gateway.apply(child).models
        gateway.reloads.step()
    (answer,) = gateway.answers()
    assert (answer.asks, answer.status) == ([5], 200)
    assert answer.told == {
        "epoch": gateway.reloads.snapshot.epoch,
        "previous_epoch": before,
        "changed": True,
        "workers": 2,
        "pending": [],
        "warnings": [],
        "needs_restart": [],
    }
    assert gateway.counted() == [["ok"], []], "one worker counts"


def test_whoever_asks_meanwhile_is_answered_by_the_next(gateway: Gateway) -> None:
    """The file may have changed since it was read: what the second is told is what it says then."""
    gateway.reloads.want(1)
    gateway.reloads.step()
    gateway.file.write_text(SECOND)
    gateway.reloads.want(2)
    gateway.reloads.want(3)
    gateway.reloads.step()
    assert (gateway.reloads.number, gateway.answers()) == (2, [])
    for asks, changed in (([1], False), ([2, 3], True)):
        for child in gateway.children:
            gateway.apply(child)
        gateway.reloads.step()  # and the next one begins
        (answer,) = gateway.answers()
        assert (answer.asks, answer.told["changed"]) == (asks, changed)
    assert gateway.reloads.number == 3 and gateway.counted() == [["unchanged", "ok"], []]


def test_a_rejected_file_changes_nothing(gateway: Gateway) -> None:
    before = gateway.reloads.snapshot
    gateway.file.write_text(FIRST + "routing: { default_provider: dawn }\n")
    gateway.reloads.want(9)
    gateway.reloads.step()
    (answer,) = gateway.answers()
    assert (answer.asks, answer.status, answer.told["line"]) == ([9], 422, 2)
    assert answer.told["path"] == "routing.default_provider"
    assert gateway.reloads.snapshot is before and gateway.reloads.number == 1
    assert gateway.counted() == [["rejected"], []]
    assert list(gateway.reloads.due()) == []


def test_a_fault_of_ours_while_reading_does_not_end_the_supervisor(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(source: Source) -> Snapshot:
        raise KeyError("a bug")

    monkeypatch.setattr(Source, "load", fails)
    gateway.reloads.want(1)
    gateway.reloads.step()
    (answer,) = gateway.answers()
    assert answer.status == 500 and "a bug" not in answer.told["detail"]


def test_a_child_that_is_late_is_named_and_not_waited_for(gateway: Gateway, clock: Clock) -> None:
    gateway.file.write_text(SECOND)
    gateway.reloads.want(1)
    gateway.reloads.step()
    gateway.apply(gateway.control)
    gateway.apply(gateway.workers[1])
    assert list(gateway.reloads.due()) == [clock.now + WAIT_S]
    clock.now += WAIT_S
    gateway.reloads.step()
    (answer,) = gateway.answers()
    assert (answer.status, answer.told["workers"], answer.told["pending"]) == (200, 1, ["worker-1"])
    assert "second" in gateway.apply(gateway.workers[0]).models, "it waits there for when it wakes"


def test_a_child_that_dies_counts_when_its_successor_serves(gateway: Gateway) -> None:
    """The successor was forked with the new snapshot, and need not be handed it."""
    gateway.file.write_text(SECOND)
    gateway.reloads.want(1)
    gateway.reloads.step()
    first, second = gateway.workers
    for child in (gateway.control, second):
        gateway.apply(child)
    first.bury()
    gateway.reloads.step()
    assert gateway.answers() == []
    gateway.begin(first)
    gateway.reloads.step()
    (answer,) = gateway.answers()
    assert (answer.told["workers"], answer.told["pending"]) == (2, [])
    assert gateway.take(first, Apply) == []


def test_a_child_that_was_forked_before_is_not_taken_for_one_that_runs_it(gateway: Gateway) -> None:
    """It says that it serves, but means the old one; the new one waits on its line."""
    first = gateway.workers[0]
    first.bury()
    first.start(gateway.reloads.number)
    gateway.file.write_text(SECOND)
    gateway.reloads.want(1)
    gateway.reloads.step()
    for child in (gateway.control, gateway.workers[1]):
        gateway.apply(child)
    gateway.ends[first.name].send(Serving())
    list(first.hear())
    gateway.reloads.step()
    assert gateway.answers() == []
    gateway.apply(first)
    gateway.reloads.step()
    assert len(gateway.answers()) == 1


def test_a_child_whose_line_is_full_gets_the_latest_once_it_reads(gateway: Gateway, clock: Clock) -> None:
    stuck = gateway.workers[0]
    while stuck.line is not None and stuck.line.send(Counted("ok")):
        pass
    for text in (SECOND, FIRST, SECOND):
        gateway.file.write_text(text)
        gateway.reloads.want()
        gateway.reloads.step()
        clock.now += WAIT_S
        gateway.reloads.step()
    assert gateway.take(stuck, Apply) == []
    gateway.reloads.step()
    assert "second" in gateway.apply(stuck).models
    assert stuck.runs == gateway.reloads.number == 4


def test_a_control_that_died_is_not_answered_for_what_another_asked(gateway: Gateway) -> None:
    gateway.reloads.want(1)
    gateway.reloads.step()
    gateway.reloads.want(2)
    gateway.control.bury()
    gateway.reloads.forget_asks()
    gateway.begin(gateway.control)
    for _ in range(2):
        for child in gateway.children:
            if child.runs < gateway.reloads.number:
                gateway.apply(child)
        gateway.reloads.step()
    assert all(answer.asks == [] for answer in gateway.answers())


def test_a_gateway_that_stops_refuses_what_was_asked(gateway: Gateway) -> None:
    gateway.reloads.want(1)
    gateway.reloads.step()
    gateway.reloads.want(2)
    gateway.reloads.refuse_asks()
    (answer,) = gateway.answers()
    assert (sorted(answer.asks), answer.status) == ([1, 2], 503)


def test_many_warnings_fit_into_one_answer(gateway: Gateway) -> None:
    """A line keeps messages whole up to 64 KiB."""
    lines = [f"  p{n}: {{ type: openai, models: [m{n}] }}" for n in range(400)]
    gateway.file.write_text("\n".join(["providers:", *lines, ""]))
    gateway.reloads.want(1)
    gateway.reloads.step()
    for child in gateway.children:
        gateway.apply(child)
    gateway.reloads.step()
    (answer,) = gateway.answers()
    assert len(answer.told["warnings"]) == 51 and "350 more" in answer.told["warnings"][-1]


# --- what applies -----------------------------------------------------------------------------------------------------

BASE = """
server: { port: 8080, workers: 1 }
storage: { url: "sqlite:////tmp/rows.db" }
state: lmdb:///tmp/state
providers: { up: { type: echo, models: [m] } }
"""


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("server.port", "port: 8080", "port: 8081"),
        ("server.bind", "port: 8080", "port: 8080, bind: 127.0.0.2"),
        ("server.socket", "port: 8080", "port: 8080, socket: /tmp/s.sock"),
        ("server.workers", "workers: 1", "workers: 3"),
        ("state", "/tmp/state", "/tmp/elsewhere"),
        ("storage.url", "rows.db", "others.db"),
        ("storage.url", 'url: "sqlite:////tmp/rows.db"', "url: none"),
        ("storage.journal_max", "storage: {", "storage: { journal_max: 100MiB,"),
        ("storage.capture.max", "storage: {", "storage: { capture: { max: 100MiB },"),
        ("telemetry.metrics", "state:", "telemetry: { metrics: false }\nstate:"),
        ("plugins", "state:", 'plugins: [{ use: "house:Rules" }]\nstate:'),
    ],
)
def test_what_needs_a_restart_stays_and_is_named(key: str, old: str, new: str) -> None:
    """And whatever else changed in the same file applies."""
    assert old in BASE
    running = parse(BASE, "arbiter.yaml", {})
    wanted = parse(BASE.replace(old, new).replace("[m]", "[m, n]"), "arbiter.yaml", {})
    snapshot, needs_restart = merged(running, wanted)
    assert needs_restart == [key]
    assert "n" in snapshot.models and snapshot.epoch == wanted.epoch
    same = dataclasses.replace(
        snapshot, providers=running.providers, models=running.models, epoch=running.epoch, warnings=running.warnings
    )
    assert same == running


def test_what_can_change_does() -> None:
    running = parse(BASE, "arbiter.yaml", {})
    text = BASE.replace("port: 8080", "port: 8080, drain: 7s, keepalive: 3s").replace("rows.db", "rows.db")
    text = text.replace("storage: {", "storage: { on_full: refuse, capture: { content: true, ttl: 1h },") + (
        "telemetry: { log: { level: warn } }\nadmin: { token: a-token-of-the-tests }\nauth: { mode: require }\n"
    )
    wanted = parse(text, "arbiter.yaml", {})
    assert merged(running, wanted) == (wanted, [])


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(tmp_path: Path, clock: Clock) -> tuple[Path, FileWatch]:
    file = tmp_path / "arbiter.yaml"
    file.write_text(FIRST)
    return file, FileWatch(Source(file, {}))


def looks(watch: FileWatch, clock: Clock, count: int = 1) -> list[bool]:
    found = []
    for _ in range(count):
        clock.now += 1.0
        found.append(watch.look())
    return found


def test_a_changed_file_is_read_once_it_has_kept_still(watched: tuple[Path, FileWatch], clock: Clock) -> None:
    file, watch = watched
    assert looks(watch, clock, 3) == [False, False, False]
    file.write_text(SECOND[:20])
    assert looks(watch, clock) == [False], "it may be half of it"
    file.write_text(SECOND)
    assert looks(watch, clock, 2) == [False, True]
    watch.reads()
    assert looks(watch, clock, 2) == [False, False]


def test_a_file_that_changes_while_it_is_read_is_read_again(watched: tuple[Path, FileWatch], clock: Clock) -> None:
    file, watch = watched
    file.write_text(SECOND[:20])
    assert looks(watch, clock, 2) == [False, True]
    watch.reads()
    file.write_text(SECOND)
    assert looks(watch, clock, 2) == [False, True]


def test_a_file_that_is_gone_is_not_read(watched: tuple[Path, FileWatch], clock: Clock) -> None:
    """Editors move it away and write another one."""
    file, watch = watched
    file.unlink()
    assert looks(watch, clock, 3) == [False, False, False]
    file.write_text(SECOND)
    assert looks(watch, clock, 2) == [False, True]


def test_that_the_file_has_gone_is_said_once_and_that_it_is_back(
    watched: tuple[Path, FileWatch], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """But not where it was away for a moment: so do editors that replace it."""
    file, watch = watched

    def said() -> list[str]:
        told = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return told

    caplog.set_level("INFO")
    file.unlink()
    looks(watch, clock)
    file.write_text(FIRST)
    looks(watch, clock, 3)
    assert said() == []
    watch.reads()
    file.unlink()
    looks(watch, clock, 5)
    assert said() == ["the configuration file is gone; the old one goes on"]
    file.write_text(SECOND)
    assert looks(watch, clock, 2) == [False, True]
    assert said() == ["the configuration file is back"]
    watch.reads()
    file.unlink()
    looks(watch, clock, 3)
    assert said() == ["the configuration file is gone; the old one goes on"]


def test_it_is_looked_at_once_a_second(watched: tuple[Path, FileWatch], clock: Clock) -> None:
    file, watch = watched
    file.write_text(SECOND)
    assert not watch.look() and watch.due == clock.now + 1
    assert looks(watch, clock, 2) == [False, True]
