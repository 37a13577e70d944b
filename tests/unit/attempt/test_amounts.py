"""Estimates of a prompt's tokens, corrected by what is reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest
from msgspec import Raw

from arbiter.attempt.amounts import Amount, Amounts
from arbiter.ledger.tokenizer import Tokenizer
from arbiter.model import Usage
from arbiter.state.memory import Memory
from tests.unit.sessions.captures import conversations

T, OTHER, C = "up/model", "up/other", "claude-cli"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def prompt(amounts: Amounts, size: int = 40_000, client: str = C, **more: Any) -> Amount:
    """So many bytes of text."""
    body = {"messages": ["x" * (size - 4)], **more}
    return amounts.of({name: Raw(json.dumps(value).encode()) for name, value in body.items()}, client)


def test_reports_correct_the_estimate_for_their_target_and_client(clock: Clock):
    amounts = Amounts(Memory(), clock)
    assert prompt(amounts).tokens(T) == 10_000
    amounts.heard(T, prompt(amounts), Usage(input=2_000, cache_read=11_000, cache_write=1_000, output=5))
    assert prompt(amounts).tokens(T) == prompt(amounts, client="another").tokens(T) == 14_000
    assert prompt(amounts).tokens(OTHER) == 10_000
    clock.now += 20
    amounts.heard(T, prompt(amounts, client="another"), Usage(input=6_000))
    assert prompt(amounts).tokens(T) == 14_000
    assert prompt(amounts, client="another").tokens(T) == 6_000


def test_it_converges_on_what_is_reported_whatever_it_was_before(clock: Clock):
    """Also after a model changed its tokenizer."""
    amounts = Amounts(Memory(), clock)
    for rate in (0.22, 0.31):
        for _ in range(300):
            clock.now += 20
            amounts.heard(T, prompt(amounts), Usage(input=round(40_000 * rate)))
        assert prompt(amounts, 10_000).tokens(T) == pytest.approx(10_000 * rate, rel=0.03)


@pytest.mark.parametrize(
    ("size", "usage", "more"),
    [
        (40_000, None, {}),
        (40_000, Usage(output=3), {}),
        (100, Usage(input=90), {}),
        (40_000, Usage(input=3), {}),
        (40_000, Usage(input=400_000), {}),
        (40_000, Usage(input=20_000), {"previous_response_id": "resp_1"}),
        (3 << 20, Usage(input=2 << 20), {}),
    ],
)
def test_what_says_nothing_of_this_text_teaches_nothing(clock: Clock, size: int, usage: Usage | None, more: Any):
    """No count, too little text, a count of something else; and a prompt that it would take long to look through."""
    amounts = Amounts(Memory(), clock)
    amounts.heard(T, prompt(amounts, size, **more), usage)
    assert prompt(amounts).tokens(T) == 10_000


def test_an_image_is_counted_apart(clock: Clock):
    """What was reported for it does not make the text around it denser."""
    amounts = Amounts(Memory(), clock)
    image = {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}
    for _ in range(20):
        clock.now += 20
        amounts.heard(T, prompt(amounts, input=[image]), Usage(input=10_000 + 1_500))
    assert prompt(amounts).tokens(T) == pytest.approx(10_000, rel=0.01)


def test_one_conversation_is_looked_through_now_and_then(clock: Clock):
    amounts = Amounts(Memory(), clock)
    amounts.heard(T, prompt(amounts), Usage(input=12_000))
    looked_at = prompt(amounts)
    amounts.heard(T, looked_at, Usage(input=40_000))
    assert looked_at._size is None and prompt(amounts).tokens(T) == 12_000
    clock.now += 1
    amounts.heard(T, prompt(amounts), Usage(input=20_000))
    assert prompt(amounts).tokens(T) == 16_000


@pytest.mark.parametrize(("size", "tokens"), [(40_000, 3), (100, 90)])
def test_so_is_one_that_teaches_nothing(clock: Clock, size: int, tokens: int):
    """A server that counts only what it did not know of a prompt does so with each of them."""
    amounts = Amounts(Memory(), clock)
    amounts.heard(T, prompt(amounts, size), Usage(input=tokens))
    looked_at = prompt(amounts, size)
    amounts.heard(T, looked_at, Usage(input=tokens))
    assert looked_at._size is None
    clock.now += 1
    amounts.heard(T, prompt(amounts), Usage(input=20_000))
    assert prompt(amounts).tokens(T) == 20_000


def test_names_beyond_the_bound_are_not_looked_into(clock: Clock):
    amounts = Amounts(Memory(), clock)
    for number in range(256):
        amounts.heard(T, prompt(amounts, 1000, client=f"made-up-{number}"), Usage(input=300))
    looked_at = prompt(amounts, client="another")
    amounts.heard(T, looked_at, Usage(input=12_000))
    assert looked_at._size is None


def test_workers_learn_from_each_other(clock: Clock):
    state = Memory()
    one, two = Amounts(state, clock), Amounts(state, clock)
    one.heard(T, prompt(one), Usage(input=12_000))
    one.exchange()
    two.exchange()
    assert prompt(two).tokens(T) == 12_000
    two.heard(T, prompt(two), Usage(input=20_000))
    two.exchange()
    one.exchange()
    assert prompt(one).tokens(T) == prompt(two).tokens(T) == 16_000


def test_names_that_clients_make_up_are_bounded(clock: Clock):
    amounts = Amounts(Memory(), clock)
    for number in range(1000):
        amounts.heard(T, prompt(amounts, 1000, client=f"made-up-{number}"), Usage(input=300))
    amounts.exchange()
    assert len(amounts._learned) <= 257


def texts(value: Any) -> Iterator[str]:
    """What of a prompt is read as text."""
    if isinstance(value, str):
        yield value
    for one in value if isinstance(value, list) else ():
        yield from texts(one)
    for name, one in value.items() if isinstance(value, dict) else ():
        if name not in ("type", "id", "signature", "encrypted_content", "cache_control"):
            yield from texts(one)


def test_of_what_agents_send_it_is_soon_a_few_per_cent_off(clock: Clock):
    """Captured requests, counted by a tokenizer that makes a fifth more tokens than the ordinary."""
    rate, amounts, off = Tokenizer().rate, Amounts(Memory(), clock), []
    for capture, requests in conversations().items():
        for request in requests:
            clock.now += 20
            amount = amounts.of(request.members, capture)
            read = [
                request.body.get(name)
                for name in ("system", "instructions", "messages", "input", "systemInstruction", "contents")
            ]
            raw = "\n".join(texts(read)).encode()
            counted = round(rate(raw, len(raw) or 1)[0] * len(raw) * 1.2)
            if amount.size.text > 2000:
                off.append(abs(amount.tokens(T) - counted) / counted)
            amounts.heard(T, amount, Usage(input=counted))
    assert len(off) > 20
    assert median(off) < 0.05


def test_a_prompt_that_is_let_go_of_teaches_what_it_would_have_taught(clock: Clock):
    """Answers of agents take long, and to hold each request until its answer is over would take much memory."""
    amounts = Amounts(Memory(), clock)
    first, second = prompt(amounts), prompt(amounts)
    amounts.let_go(T, first)
    amounts.let_go(T, second)  # of the same target and client, and at the same moment: one is enough
    assert not first.members and not second.members
    clock.now += 60
    amounts.heard(T, second, Usage(input=99_000))
    assert prompt(amounts).tokens(T) == 10_000
    amounts.heard(T, first, Usage(input=14_000))
    assert prompt(amounts).tokens(T) == 14_000


def test_a_prompt_that_goes_on_elsewhere_teaches_nothing_when_it_was_let_go_of(clock: Clock):
    """More is counted than was sent."""
    amounts = Amounts(Memory(), clock)
    amount = prompt(amounts, previous_response_id="resp_1")
    amounts.let_go(T, amount)
    amounts.heard(T, amount, Usage(input=99_000))
    assert prompt(amounts).tokens(T) == 10_000
