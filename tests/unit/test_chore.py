"""Work in the background goes on, whatever becomes of it once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from arbiter.chore import Chore
from tests.fakes.gateway import until


class Work:
    """Fails as often as it is told to, then does well; `times` is how often it was done."""

    def __init__(self, failures: int = 0) -> None:
        self.times = 0
        self._failures = failures

    def __call__(self) -> None:
        self.times += 1
        if self.times <= self._failures:
            raise RuntimeError(f"bug number {self.times}")


def run(work: Callable[[], object], every_s: float = 0.001, first_s: float = 0.0) -> Chore:
    chore = Chore("beds", work, every_s=every_s, first_s=first_s)
    chore.start()
    return chore


def test_a_failure_is_told_once_and_the_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """No line a second for what is always the same; and one that says it is over."""
    work = Work(failures=5)
    chore = run(work)
    until(lambda: work.times > 10)
    assert chore.stop(10)
    assert [(record.levelname, record.fields["chore"]) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("ERROR", "beds"),
        ("WARNING", "beds"),
    ]
    assert caplog.records[0].exc_info is not None and "bug number 1" in str(caplog.records[0].exc_info[1])


def test_what_fails_waits_for_its_next_time_too() -> None:
    work = Work(failures=1)
    chore = run(work, every_s=3600)
    until(lambda: work.times == 1)
    chore.wake()
    until(lambda: work.times == 2)
    assert chore.stop(10)
    assert work.times == 2


def test_it_begins_after_its_first_pause_or_when_it_is_woken() -> None:
    work = Work()
    chore = run(work, every_s=3600, first_s=3600)
    assert work.times == 0
    chore.wake()
    until(lambda: work.times == 1)
    assert chore.stop(10)


def test_a_wake_during_the_work_is_not_lost() -> None:
    begun, go_on = threading.Event(), threading.Event()
    times = []

    def work() -> None:
        times.append(1)
        begun.set()
        assert go_on.wait(10)

    chore = run(work, every_s=3600)
    assert begun.wait(10)
    chore.wake()
    go_on.set()
    until(lambda: len(times) == 2)
    assert chore.stop(10)


def test_stop_waits_for_what_is_under_way_and_no_longer_than_it_may() -> None:
    go_on = threading.Event()
    chore = run(lambda: go_on.wait(60), every_s=3600)
    assert not chore.stop(0.01)
    go_on.set()
    assert chore.stop(10)


def test_what_was_stopped_in_its_first_pause_never_begins() -> None:
    work = Work()
    chore = run(work, first_s=3600)
    assert chore.stop(10)
    assert work.times == 0
    assert Chore("never started", work, every_s=1).stop()
