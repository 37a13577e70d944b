"""Which targets are known to be too small before anybody is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from arbiter.attempt.amounts import Amounts
from arbiter.attempt.ask import Ask
from arbiter.attempt.windows import too_small
from arbiter.config.snapshot import Limits
from arbiter.model import Usage
from arbiter.routing.plan import Plan
from arbiter.state.memory import Memory
from arbiter.wire import native
from arbiter.wire.format import WIRES
from arbiter.wire.headers import Incoming
from tests.unit.attempt.test_climb import rung

WINDOW = 10_000
WHY = f"takes {WINDOW} tokens, and the prompt is longer"


def taught(*targets: str, rounds: int = 8, rate: float = 0.25) -> Amounts:
    """What a worker knows after `rounds` answers of each target, to 40 KB of text each, at `rate` tokens per byte."""
    clock = [0.0]
    amounts = Amounts(Memory(), lambda: clock[0])
    for _ in range(rounds):
        clock[0] += 60
        for target in targets:
            amounts.heard(target, amounts.of(members(40_000), "x"), Usage(input=round(40_000 * rate)))
    return amounts


def members(size: int, **more: Any) -> dict[str, Raw]:
    body = {"model": "m", "messages": ["x" * (size - 4)], **more}
    return {name: Raw(json.dumps(value).encode()) for name, value in body.items()}


def found(amounts: Amounts, size: int, *rungs: Any, format: str = "openai-chat", window: str = "", **more: Any) -> Any:
    opened = native.Opened(members(size, **more), "m", False)
    wire = WIRES[format]
    amount = amounts.of(opened.members, "x")
    ask = Ask(wire, wire.path, opened, Incoming([]), Limits(), stream=False, trace_id="t", amount=amount)
    return too_small(Plan(rungs, "", window=window), ask)


def test_only_far_beyond_the_window_is_a_prompt_surely_too_long():
    """10,000 tokens are 40 KB at four bytes to a token; it is sure where eight to a token would not fit either."""
    amounts = taught("small/m")
    small, large = rung("small", window=WINDOW), rung("large", window=20 * WINDOW)
    assert found(amounts, 39_000, small, large) == {}
    assert found(amounts, 79_000, small, large) == {}
    assert found(amounts, 82_000, small, large) == {"small/m": WHY}
    assert found(amounts, 82_000, large, small) == {"small/m": WHY}


def test_where_the_tokenizer_cuts_more_coarsely_more_bytes_fit():
    small, large = rung("small", window=WINDOW), rung("large")
    assert found(taught("small/m", rate=0.125), 150_000, small, large) == {}
    assert found(taught("small/m", rate=0.125), 170_000, small, large) == {"small/m": WHY}


@pytest.mark.parametrize("rounds", [0, 1, 6])
def test_what_was_hardly_heard_of_is_no_reason(rounds: int):
    """256 KB of text: less is not enough to know a target's density by."""
    assert found(taught("small/m", rounds=rounds), 4_000_000, rung("small", window=WINDOW), rung("large")) == {}


def test_the_only_target_is_never_too_small_nor_are_all_of_them():
    amounts = taught("a/m", "b/m")
    assert found(amounts, 900_000, rung("a", window=WINDOW)) == {}
    assert found(amounts, 900_000, rung("a", window=WINDOW), rung("b", window=WINDOW)) == {}
    assert list(found(amounts, 900_000, rung("a", window=WINDOW), rung("b", window=WINDOW), rung("c"))) == [
        "a/m",
        "b/m",
    ]


def test_nobody_is_too_small_for_what_a_provider_makes_fit_or_takes_apart():
    """What is cut to fit, a window that the model's name asks for, and texts that each have a window of their own."""
    amounts = taught("small/m")
    rungs = rung("small", window=WINDOW), rung("large")
    assert found(amounts, 900_000, *rungs)
    for name in ("truncation", "context_management", "transforms"):
        assert found(amounts, 900_000, *rungs, **{name: "auto"}) == {}
    assert found(amounts, 900_000, *rungs, window="[1m]") == {}
    assert found(amounts, 900_000, *rungs, format="embeddings") == {}


def test_pictures_are_no_text_and_count_as_nothing():
    """What they come to is not learned, so it makes nothing sure."""
    amounts = taught("small/m")
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    assert found(amounts, 1_000, rung("small", window=WINDOW), rung("large"), tools=[url]) == {}
