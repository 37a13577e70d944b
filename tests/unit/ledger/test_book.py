"""What a request's books say it cost."""

from __future__ import annotations

from typing import Any

import pytest

from arbiter.accounting.facts import Facts
from arbiter.config.snapshot import Account, Rate
from arbiter.errors import ClientGone, Unreachable
from arbiter.ledger.book import Attempt, Book
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.metrics import Metrics
from arbiter.model import Usage
from tests.fakes.asks import rung
from tests.fakes.rows import request_row

CHEAP = Rate(input=1, output=2)
DEAR = Rate(input=100, output=200)
METERED = Facts(usage=Usage(input=10, output=5), usage_source="provider")
CUT = Facts(usage=Usage(input=10), usage_source="partial")


class Written:
    """A pen that remembers the cost each request had when an attempt of it was opened, and each closed attempt."""

    def __init__(self) -> None:
        self.opened: list[int | None] = []
        self.closed: list[AttemptRow] = []

    def open(self, request: RequestRow, attempt: AttemptRow) -> None:
        self.opened.append(request.cost_pd)

    def close(self, attempt: AttemptRow) -> None:
        self.closed.append(attempt)

    def settle(self, request: RequestRow) -> None:
        raise AssertionError("not asked for here")


class Desk:
    def __init__(self) -> None:
        self.pen = Written()
        self.request = request_row(provider=None, model=None, attempts=0)
        self.book = Book(self.pen, Metrics(None), self.request, lambda text: text)

    def open(self, rate: Rate | None) -> Attempt:
        rates: dict[str, Any] = {} if rate is None else {"rates": {"served": rate, "other": Rate(input=7, output=7)}}
        return self.book.open(rung("openai-chat", "served", **rates), Account(), "openai-chat", "native", "verbatim")


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_attempt_is_charged_at_the_rate_of_the_model_it_asked_for(desk: Desk) -> None:
    attempt = desk.open(CHEAP)
    attempt.close(METERED, None)
    attempt.close(Facts(usage=Usage(input=999, output=999), usage_source="provider"), None)
    (row,) = desk.pen.closed
    assert (row.cost_pd, row.cost_source, row.pricing_available) == (20, "model_config", True)
    assert desk.request.cost_pd == 20


def test_a_model_without_a_rate_is_unpriced_and_not_free(desk: Desk) -> None:
    """SPEC 9.3: an unknown price is NULL, never 0."""
    desk.open(None).close(METERED, None)
    (row,) = desk.pen.closed
    assert (row.cost_pd, row.cost_source, row.pricing_available) == (None, "unpriced", False)
    assert row.output_tokens == 5 and desk.request.cost_pd is None


def test_a_free_model_costs_nothing_which_is_known(desk: Desk) -> None:
    desk.open(Rate(input=0, output=0)).close(METERED, None)
    assert (desk.pen.closed[0].cost_pd, desk.pen.closed[0].cost_source, desk.request.cost_pd) == (0, "model_config", 0)


def test_a_rate_that_does_not_cover_what_was_used_leaves_the_attempt_unpriced(desk: Desk) -> None:
    desk.open(CHEAP).close(CUT, ClientGone("left"))
    (row,) = desk.pen.closed
    assert (row.cost_pd, row.cost_source, row.pricing_available) == (None, "unpriced", True)


def test_a_request_costs_what_its_attempts_cost_together(desk: Desk) -> None:
    """Those that metered nothing add nothing, and the open record of a later attempt knows what is spent already."""
    desk.open(CHEAP).close(None, Unreachable("refused"))
    desk.open(CHEAP).close(METERED, None)
    desk.open(DEAR).close(METERED, None)
    assert desk.pen.opened == [None, None, 20]
    assert [row.cost_pd for row in desk.pen.closed] == [None, 20, 2000]
    # Where nothing was metered there was nothing to price, so nothing is unpriced.
    assert [row.cost_source for row in desk.pen.closed] == [None, "model_config", "model_config"]
    assert desk.request.cost_pd == 2020


@pytest.mark.parametrize("order", [(CHEAP, None, DEAR), (None, CHEAP, DEAR), (CHEAP, DEAR, None)])
def test_a_sum_with_an_unknown_part_is_unknown(desk: Desk, order: tuple[Rate | None, ...]) -> None:
    """What is known of it would pass for the whole."""
    for rate in order:
        desk.open(rate).close(METERED, None)
    assert desk.request.cost_pd is None
