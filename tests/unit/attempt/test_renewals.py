"""How a worker has tokens renewed: once for all who ask, without holding up who has a good one, and in measure."""

from __future__ import annotations

import asyncio

import pytest

from arbiter.attempt import renewals
from arbiter.attempt.renewals import DOUBT_AT_MOST_S, Renewals
from arbiter.config.snapshot import Account
from arbiter.errors import KeyRefused
from tests.fakes.client import run

OLD, SPARE = Account(sent=(("authorization", "Bearer old"),)), Account(sent=(("authorization", "Bearer spare"),))


def token(number: int) -> Account:
    return Account(sent=(("authorization", f"Bearer {number}"),))


def test_who_has_a_good_token_does_not_wait_for_one_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token endpoint that hangs holds up nobody; what comes of it in the end is used."""
    monkeypatch.setattr(renewals, "SPARE_S", 0.01)

    async def main() -> None:
        comes = asyncio.Event()
        asked = 0

        async def renew() -> Account:
            nonlocal asked
            asked += 1
            await comes.wait()
            return token(1)

        found = Renewals()
        assert [await found.soon("p", renew, SPARE) for _ in range(3)] == [SPARE] * 3
        comes.set()
        task, is_new = found.joined("p", renew)
        assert (await task, is_new, asked) == (token(1), False, 1)
        assert await found.soon("p", renew, SPARE) == token(1) and asked == 2
        assert found.under_way == []

    run(main)


def is_quiet(found: Renewals) -> bool:
    try:
        found.check("p")
    except KeyRefused:
        return True
    return False


def test_a_new_token_that_is_refused_too_is_not_renewed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is not at fault: each try is twice as long after the last, until one is taken."""
    now = 100.0
    monkeypatch.setattr(renewals, "monotonic", lambda: now)
    found = Renewals()
    waits = []
    for number in range(8):
        found.check("p")
        found.replaced("p", token(number))
        found.replaced("p", token(number))  # of another who met the same refusal
        began = now
        while is_quiet(found):
            now += 0.5
        waits.append(now - began)
        found.check("another")
    assert waits == [1, 2, 4, 8, 16, 32, DOUBT_AT_MOST_S, DOUBT_AT_MOST_S]
    found.replaced("p", token(9))
    found.served("p")
    found.check("p")
    found.replaced("p", token(10))
    with pytest.raises(KeyRefused, match="401"):
        found.check("p")
