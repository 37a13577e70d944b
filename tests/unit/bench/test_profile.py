"""What the profile of a request is made of."""

from __future__ import annotations

import collections
import importlib
import operator
import time

import pytest

from bench import profile


@pytest.mark.parametrize("name", [name for name, _ in profile.STAGES])
def test_a_stage_is_a_function_that_there_is(name: str) -> None:
    """One that was renamed would only be missing from the table."""
    module, _, function = name.partition(":")
    code = operator.attrgetter(function)(importlib.import_module(f"arbiter.{module}")).__code__
    assert code.co_qualname == function


def work(seconds: float) -> int:
    until, turns = time.thread_time() + seconds, 0
    while time.thread_time() < until:
        turns += 1
    return turns


def test_who_works_is_found_and_who_waits_is_not() -> None:
    found: collections.Counter[str] = collections.Counter()
    stop = profile.sampled(found)
    work(0.1)
    before = found[""]
    time.sleep(0.1)
    waited = found[""] - before
    stop()
    assert found[f"{__name__}:work"] >= before - 1 > 0
    assert waited <= 1


def test_calls_and_what_they_execute_are_counted() -> None:
    found: collections.Counter[str] = collections.Counter()
    stop = profile.traced(found)
    for _ in range(3):
        work(0)
    stop()
    assert found[f"calls {__name__}:work"] == 3
    assert found[f"ops {__name__}:work"] >= 3 * 10
