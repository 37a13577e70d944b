"""Damaged environments are moved aside before the start, and the shared state also while the gateway serves."""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from arbiter.app import preflight
from arbiter.config.load import parse
from arbiter.config.snapshot import Snapshot
from arbiter.state.base import Pin
from arbiter.state.shared import Shared

PIN = Pin("fast", "anthropic", "claude-sonnet-4-5", "work")


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    snapshot = parse("providers: { a: { type: echo } }", str(tmp_path / "arbiter.yaml"), {})
    return dataclasses.replace(snapshot, state_dir=tmp_path / "state")


def keep_some(snapshot: Snapshot, name: str) -> Path:
    """An environment with something in it; its file."""
    path = snapshot.state_dir / name
    path.mkdir(parents=True)
    env = lmdb.open(str(path), map_size=16 << 20, max_dbs=16, sync=False, lib_version=0)
    for database in (b"pins", b"done"):
        opened = env.open_db(database)
        for start in range(0, 2000, 100):
            with env.begin(write=True) as txn:
                for number in range(start, start + 100):
                    txn.put(b"%d" % (number * 7919 % 2000), bytes(100), db=opened)
    env.close()
    return path / "data.mdb"


def garbage(file: Path) -> None:
    file.write_bytes(os.urandom(65536))


def nothing_but_zeros(file: Path) -> None:
    file.write_bytes(bytes(65536))


def truncated(file: Path) -> None:
    os.truncate(file, 3 * 4096)


def of_another_format(file: Path) -> None:
    """LMDB's magic number, and the version of its format that this one is not."""
    with file.open("r+b") as out:
        for page in (0, 1):
            out.seek(page * 4096 + 16)
            out.write((0xBEEFC0DE).to_bytes(4, "little") + (2).to_bytes(4, "little"))


def overwritten(file: Path) -> None:
    """Everything behind the two head pages is noise: only reading it tells, or kills the reader."""
    size = file.stat().st_size
    with file.open("r+b") as out:
        out.seek(2 * 4096)
        out.write(os.urandom(size - 2 * 4096))


ENVIRONMENTS = {"journal": "the journal", "state": "the shared state", "capture": "captured content"}
DAMAGES = [garbage, nothing_but_zeros, truncated, of_another_format, overwritten]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_is_damaged_is_moved_aside_and_what_is_whole_stays(
    snapshot: Snapshot, caplog: pytest.LogCaptureFixture, name: str, damage: Callable[[Path], None]
) -> None:
    files = {each: keep_some(snapshot, each) for each in ENVIRONMENTS}
    damage(files[name])
    before = {each: file.read_bytes() for each, file in files.items()}
    preflight.set_damage_aside(snapshot)
    (aside,) = snapshot.state_dir.glob("*.damaged-*")
    assert aside.name.startswith(f"{name}.damaged-")
    assert (aside / "data.mdb").read_bytes() == before.pop(name)
    assert before == {each: files[each].read_bytes() for each in before}
    assert not files[name].exists()
    (record,) = caplog.records
    assert f"{ENVIRONMENTS[name]} is damaged and was moved aside" in record.message


def test_what_is_whole_missing_or_something_else_is_left_alone(
    snapshot: Snapshot, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever opens it says what is wrong with it; a new one would be no better."""
    preflight.set_damage_aside(snapshot)
    keep_some(snapshot, "journal")
    (snapshot.state_dir / "state").write_text("a letter")
    preflight.set_damage_aside(snapshot)
    assert {path.name for path in snapshot.state_dir.iterdir()} == {"journal", "state"}
    assert not caplog.records


def test_what_cannot_be_moved_aside_is_told_and_stops_nobody(
    snapshot: Snapshot, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    garbage(keep_some(snapshot, "state"))

    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "rename", refuse)
    preflight.set_damage_aside(snapshot)
    assert ["cannot be moved aside" in record.message for record in caplog.records] == [True]


def test_without_a_ledger_nothing_is_looked_at(snapshot: Snapshot) -> None:
    garbage(keep_some(snapshot, "state"))
    nothing = dataclasses.replace(snapshot, storage=dataclasses.replace(snapshot.storage, url="none"))
    preflight.set_damage_aside(nothing)
    assert not preflight.look_after_death(nothing, -signal.SIGBUS)
    assert [path.name for path in snapshot.state_dir.iterdir()] == ["state"]


@pytest.mark.parametrize("exit_code", [-signal.SIGBUS, -signal.SIGSEGV, -signal.SIGABRT])
def test_after_a_death_by_damage_the_state_alone_is_moved_aside(snapshot: Snapshot, exit_code: int) -> None:
    for name in ("journal", "state"):
        truncated(keep_some(snapshot, name))
    assert preflight.look_after_death(snapshot, exit_code)
    assert sorted(path.name.partition("-")[0] for path in snapshot.state_dir.iterdir()) == ["journal", "state.damaged"]
    assert not preflight.look_after_death(snapshot, exit_code)


@pytest.mark.parametrize("exit_code", [None, 0, 1, -signal.SIGKILL, -signal.SIGTERM])
def test_another_death_is_no_reason_to_look(snapshot: Snapshot, exit_code: int | None) -> None:
    truncated(keep_some(snapshot, "state"))
    assert not preflight.look_after_death(snapshot, exit_code)
    assert (snapshot.state_dir / "state").exists()


@pytest.fixture
def worker(snapshot: Snapshot) -> Iterator[Callable[..., Any]]:
    """Another process with the state open: ask it anything that a `Shared` answers. We must not open it ourselves."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def answer() -> None:
        state = Shared(snapshot.state_dir, "this-run")
        while True:
            name, args, named = theirs.recv()
            asked = getattr(state, name)
            theirs.send(asked(*args, **named) if callable(asked) else asked)

    def ask(name: str, *args: object, **named: object) -> Any:
        ours.send((name, args, named))
        assert ours.poll(20)
        return ours.recv()

    process = context.Process(target=answer)
    process.start()
    yield ask
    process.kill()
    process.join()


def test_a_whole_state_that_is_in_use_stays_after_a_death(snapshot: Snapshot, worker: Callable[..., Any]) -> None:
    """Something else killed the child; the others go on with what they have."""
    worker("set_pin", bytes(16), PIN, 60)
    assert not preflight.look_after_death(snapshot, -signal.SIGSEGV)
    worker("look")
    assert (worker("reason"), worker("pin", bytes(16))) == ("", PIN)
    worker("set_pin", b"x" * 16, PIN, 60)
    assert worker("pin", b"x" * 16) == PIN


def test_who_has_a_damaged_state_open_goes_on_with_its_successor(
    snapshot: Snapshot, worker: Callable[..., Any]
) -> None:
    """From mischief in the file to serving as before, without a restart."""
    worker("cool", ("anthropic", ""), 600, is_told=True, is_quota=False)
    until = worker("standing").cooldowns["anthropic", ""].until
    overwritten(snapshot.state_dir / "state" / "data.mdb")
    assert preflight.look_after_death(snapshot, -signal.SIGBUS)
    worker("look")
    other = Shared(snapshot.state_dir, "this-run")
    assert (worker("reason"), other.reason) == ("", "")
    assert worker("standing") == other.standing()
    assert other.standing().cooldowns["anthropic", ""].until == pytest.approx(until, abs=1)
    other.close()


def test_looking_at_what_is_whole_takes_no_time_to_speak_of(
    snapshot: Snapshot, caplog: pytest.LogCaptureFixture
) -> None:
    """The supervisor does nothing else meanwhile."""
    caplog.set_level(logging.WARNING)
    keep_some(snapshot, "state")
    started = time.monotonic()
    assert not preflight.look_after_death(snapshot, -signal.SIGBUS)
    assert time.monotonic() - started < 5
    assert not caplog.records
