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


def slot(number: int) -> bytes:
    return (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)).to_bytes(16, "big")


@pytest.fixture(params=["py"])
def side() -> str:
    return "py"


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


def test_standing_unchanged(state: Shared, measure: Callable[..., None]) -> None:
    measure(state.standing, units=1)


def test_pin_hit(state: Shared, measure: Callable[..., None]) -> None:
    known = slot(PINS // 2)
    assert state.pin(known) == PIN
    measure(lambda: state.pin(known), units=1)


def test_pin_miss(state: Shared, measure: Callable[..., None]) -> None:
    measure(lambda: state.pin(b"x" * 16), units=1)


def test_standing_and_pin(state: Shared, measure: Callable[..., None]) -> None:
    """What every request of a known conversation asks."""
    known = slot(PINS // 2)

    def run() -> None:
        state.standing()
        state.pin(known)

    measure(run, units=1)


def test_refresh_pin_not_due(state: Shared, measure: Callable[..., None]) -> None:
    known = slot(7)
    state.set_pin(known, PIN, HOURS_25)
    measure(lambda: state.refresh_pin(known, HOURS_25), units=1)


def test_served_without_breaker(state: Shared, measure: Callable[..., None]) -> None:
    measure(lambda: state.served("anthropic"), units=1)


def test_set_pin(state: Shared, measure: Callable[..., None]) -> None:
    numbers = count()
    measure(lambda: state.set_pin(slot(next(numbers) % PINS), PIN, HOURS_25), units=1)


def test_cool(state: Shared, measure: Callable[..., None]) -> None:
    """Each extends the one before."""
    measure(lambda: state.cool(ACCOUNT, 60, is_told=True, is_quota=False), units=1)


def test_standing_after_a_change(state: Shared, measure: Callable[..., None]) -> None:
    """A cooldown, and all of it (11) decoded anew."""

    def run() -> None:
        state.cool(ACCOUNT, 60, is_told=True, is_quota=False)
        state.standing()

    measure(run, units=1)


def test_admit(state: Shared, measure: Callable[..., None]) -> None:
    measure(lambda: state.admit("agent", 1 << 40, 1 << 40), units=1)


def test_origins_of_32(state: Shared, measure: Callable[..., None]) -> None:
    marks = [slot(number) for number in range(32)]
    state.remember(marks, ORIGIN, HOURS_25)
    measure(lambda: state.origins(marks), units=1)


def test_remember_1(state: Shared, measure: Callable[..., None]) -> None:
    numbers = count()
    measure(lambda: state.remember([slot(next(numbers))], ORIGIN, HOURS_25), units=1)
