"""Stored rows priced anew, in every kind of store."""

from __future__ import annotations

from typing import Any

import pytest

from arbiter.config.load import parse
from arbiter.ledger import repricing
from arbiter.ledger.pricing import settle
from arbiter.ledger.repricing import Outcome, Window, reprice
from arbiter.ledger.store import Position
from arbiter.ledger.tariffs import tariff
from tests.fakes.rows import BEGAN_MS, attempt_row, request_row

USD = 10**6  # one dollar for a million tokens, for one token
ALL = Window(since_ms=0, until_ms=BEGAN_MS * 2)
PRICES = "input_usd_per_mtok: 1, cached_input_usd_per_mtok: 0, output_usd_per_mtok: 2"


def prices(extra: str = "") -> Any:
    provider = "providers: { openai: { type: openai, endpoint: 'http://127.0.0.1:9/v1' } }"
    snapshot = parse(f"{provider}\nmodels: [{{ model: openai/gpt-5.2, {PRICES} }}]\n{extra}", "f", {})
    return tariff(snapshot.pricing, snapshot.providers)


def keep(store, *rows, sequence=1):
    store.write(list(rows), Position("j", sequence))


def row(request, number=1, **fields):
    return attempt_row(request, number, **({"input_tokens": 10, "cached_tokens": 0, "output_tokens": 5} | fields))


def stored(store, request):
    entry = store.request(request.id)
    return entry.request.cost_pd, [(one.cost_pd, one.cost_source) for one in entry.attempts]


def test_tokens_that_had_no_price_have_one_now(store):
    """The request's sum follows, and what the row says of its price."""
    request = request_row(1, attempts=2)
    keep(store, request, row(request, 1, cost_source="unpriced"), row(request, 2, cost_source="unpriced"))
    told: list[int] = []
    outcome = reprice(ALL, prices(), store.change, progress=lambda done: told.append(done.requests))
    assert outcome == Outcome(requests=1, attempts=2, changed=2, priced=2, after_pd=40 * USD) and told == [1]
    assert stored(store, request) == (40 * USD, [(20 * USD, "model_config")] * 2)
    entry = store.request(request.id)
    assert entry.attempts[0].price == "models" and entry.attempts[0].pricing_available
    # Once more there is nothing to do.
    assert reprice(ALL, prices(), store.change) == Outcome(requests=1, attempts=2)


def test_a_dry_run_tells_and_changes_nothing(store):
    request = request_row(1)
    keep(store, request, row(request, cost_source="unpriced"))
    assert reprice(ALL, prices(), store.read, dry_run=True).changed == 1
    assert stored(store, request) == (None, [(None, "unpriced")])


@pytest.mark.parametrize("source", ["provider", "reconciled", "imported", "subscription"])
def test_what_did_not_come_from_prices_is_kept(store, source):
    """And it counts in the sum of a request of which something else changed."""
    request = request_row(1, attempts=2)
    cost = None if source == "subscription" else 7
    keep(store, request, row(request, 1, cost_source=source, cost_pd=cost), row(request, 2, cost_source="unpriced"))
    outcome = reprice(ALL, prices(), store.change)
    assert (outcome.kept, outcome.changed) == (1, 1)
    assert stored(store, request) == (20 * USD + (cost or 0), [(cost, source), (20 * USD, "model_config")])


def test_a_price_that_is_gone_leaves_no_cost(store):
    request = request_row(1, cost_pd=5)
    keep(store, request, row(request, model_asked="gone", cost_source="catalog", cost_pd=5))
    outcome = reprice(ALL, prices(), store.change)
    assert (outcome.lost_price, outcome.before_pd, outcome.after_pd) == (1, 5, 0)
    assert stored(store, request) == (None, [(None, "unpriced")])


def test_what_a_provider_cost_that_was_taken_out_is_kept(store):
    """Nobody knows its prices any more, nor whether it was a subscription; an override for all is not about it."""
    request, other = request_row(1, cost_pd=5), request_row(2)
    gone = {"provider": "gone", "cache_lost_tokens": 4, "cache_lost_pd": 3, "cache_verdict": "miss"}
    keep(store, request, row(request, cost_source="catalog", cost_pd=5, price="list x", **gone), other, row(other))
    before = store.request(request.id)
    for extra in ("", "prices: { overrides: [{ input_per_mtok: 9, output_per_mtok: 9 }] }"):
        outcome = reprice(ALL, prices(extra), store.change)
        assert (outcome.unconfigured, outcome.kept, outcome.changed, outcome.lost_price) == (1, 0, 1, 0)
        assert store.request(request.id) == before


def test_what_a_lost_cache_cost_follows(store):
    request = request_row(1)
    lost = {"cache_lost_tokens": 4, "cache_lost_pd": None, "cache_verdict": "miss"}
    keep(store, request, row(request, cost_source="unpriced", **lost))
    reprice(ALL, prices(), store.change)
    assert store.request(request.id).attempts[0].cache_lost_pd == 4 * USD


def test_only_what_was_asked_for_changes(store, monkeypatch):
    """A window is open at its end; pages end anywhere, also between requests of one millisecond."""
    monkeypatch.setattr(repricing, "PAGE", 2)
    requests = [request_row(number, received_ms=BEGAN_MS + number // 2) for number in range(7)]
    for request in requests:
        keep(store, request, row(request, cost_source="unpriced"), sequence=int(request.id[1:]) + 1)
    window = Window(since_ms=BEGAN_MS + 1, until_ms=BEGAN_MS + 3)
    assert reprice(window, prices(), store.change).changed == 4
    assert [stored(store, request)[0] is not None for request in requests] == [
        *(False, False),
        *(True, True, True, True),
        False,
    ]
    assert reprice(Window(since_ms=0, until_ms=BEGAN_MS * 2, provider="other"), prices(), store.change).attempts == 0
    assert reprice(Window(since_ms=0, until_ms=BEGAN_MS * 2, model="gpt-5.2"), prices(), store.change).changed == 3


def test_only_unpriced_ones_where_that_is_asked_for(store):
    request = request_row(1, attempts=2)
    keep(store, request, row(request, 1, cost_source="catalog", cost_pd=1), row(request, 2, cost_source="unpriced"))
    window = Window(since_ms=0, until_ms=BEGAN_MS * 2, unpriced=True)
    assert reprice(window, prices(), store.change).changed == 1
    assert stored(store, request)[0] == 20 * USD + 1


def test_prices_are_those_that_held_when_an_attempt_ended(store):
    early, late = request_row(1), request_row(2)
    moment = "2026-09-21T13:46:42Z"  # between the two
    keep(store, early, row(early, finished_ms=1_789_998_401_000), late, row(late, finished_ms=1_789_998_403_000))
    reprice(ALL, prices(f"prices: {{ overrides: [{{ from: {moment}, discount_percent: 100 }}] }}"), store.change)
    assert (stored(store, early)[0], stored(store, late)[0]) == (20 * USD, 0)


def test_sums_of_many_requests_are_made_anew(store):
    rows = []
    for number in range(repricing.PAGE + 3):
        request = request_row(number, cost_pd=99)
        rows += [request, row(request, cost_source="catalog", cost_pd=number)]
    keep(store, *rows)
    ids = [one.id for one in rows if hasattr(one, "attempts")]
    store.change(lambda db: settle(db, ids))
    assert stored(store, rows[0])[0] == 0 and stored(store, rows[-2])[0] == repricing.PAGE + 2
