"""What a request pays for the state that all workers share: LMDB as `Shared` uses it, without contention.

There is nothing compiled here, so the column of the C side stays empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from arbiter.state.base import Origin, Pin
from arbiter.state.shared import Shared

PIN = Pin("fast", "anthropic", "claude-sonnet-4-5", "work")
ORIGIN = Origin("anthropic", "work", "claude-sonnet-4-5")
ACCOUNT = ("anthropic", "work")
HOURS_25 = 25 * 3600.0
PINS = 50_000
MANY = 200


def slot(number: int) -> bytes:
    return (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)).to_bytes(16, "big")


@pytest.fixture(params=["py"])
def side() -> str:
    return "py"


@pytest.fixture
def measure_each(measure: Callable[..., None]) -> Callable[[Callable[[], object]], None]:
    """One question takes hardly longer than to read the clock: many are asked in a row."""

    def start(ask: Callable[[], object]) -> None:
        def run() -> None:
            for _ in range(MANY):
                ask()

        measure(run, units=MANY)

    return start


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A day's worth of conversations, and a few accounts that rest."""
    state = Shared(Path(tmp_path_factory.mktemp("state")), "this-run")
    for number in range(PINS):
        state.set_pin(slot(number), PIN, HOURS_25)
    for number in range(10):
        state.cool(("openai", str(number)), 3600, is_told=True, is_quota=False)
    assert state.reason == ""
    yield state
    assert state.reason == ""
    state.close()


def test_standing_unchanged(state: Shared, measure_each: Callable[..., None]) -> None:
    measure_each(state.standing)


def test_pin_hit(state: Shared, measure_each: Callable[..., None]) -> None:
    known = slot(PINS // 2)
    assert state.pin(known) == PIN
    measure_each(lambda: state.pin(known))


def test_pin_miss(state: Shared, measure_each: Callable[..., None]) -> None:
    measure_each(lambda: state.pin(b"x" * 16))


def test_standing_and_pin(state: Shared, measure_each: Callable[..., None]) -> None:
    """What every request of a known conversation asks."""
    known = slot(PINS // 2)

    def run() -> None:
        state.standing()
        state.pin(known)

    measure_each(run)


def test_refresh_pin_not_due(state: Shared, measure_each: Callable[..., None]) -> None:
    known = slot(7)
    state.set_pin(known, PIN, HOURS_25)
    measure_each(lambda: state.refresh_pin(known, HOURS_25))


def test_served_without_breaker(state: Shared, measure_each: Callable[..., None]) -> None:
    measure_each(lambda: state.served("anthropic"))


def test_set_pin(state: Shared, measure_each: Callable[..., None]) -> None:
    numbers = count()
    measure_each(lambda: state.set_pin(slot(next(numbers) % PINS), PIN, HOURS_25))


def test_cool(state: Shared, measure_each: Callable[..., None]) -> None:
    """Each extends the one before."""
    measure_each(lambda: state.cool(ACCOUNT, 60, is_told=True, is_quota=False))


def test_standing_after_a_change(state: Shared, measure_each: Callable[..., None]) -> None:
    """A cooldown, and all of it (11) decoded anew."""

    def run() -> None:
        state.cool(ACCOUNT, 60, is_told=True, is_quota=False)
        state.standing()

    measure_each(run)


def test_admit(state: Shared, measure_each: Callable[..., None]) -> None:
    measure_each(lambda: state.admit("agent", 1 << 40, 1 << 40))


def test_origins_of_32(state: Shared, measure_each: Callable[..., None]) -> None:
    marks = [slot(number) for number in range(32)]
    state.remember(marks, ORIGIN, HOURS_25)
    measure_each(lambda: state.origins(marks))


def test_remember_1(state: Shared, measure_each: Callable[..., None]) -> None:
    numbers = count()
    measure_each(lambda: state.remember([slot(next(numbers))], ORIGIN, HOURS_25))
