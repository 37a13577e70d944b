"""What rows say that attempts and requests cost, through the real recorder's stage and a real store."""

from __future__ import annotations

from typing import Any

import pytest

from arbiter.config.load import parse
from arbiter.ledger.pricing import Pricing
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import Position
from arbiter.ledger.tariffs import Tariffs
from tests.fakes.rows import attempt_row, request_row

CONFIG = """
providers:
  up: { type: openai, endpoint: "http://127.0.0.1:9/v1", models: [cheap, dear, none] }
  sub: { type: openai, endpoint: "http://127.0.0.1:9/v1", models: [cheap], billing: subscription }
models:
  - { model: up/cheap, input_usd_per_mtok: 1, cached_input_usd_per_mtok: 0, output_usd_per_mtok: 2 }
  - { model: up/dear, input_usd_per_mtok: 100, output_usd_per_mtok: 200 }
  - { model: sub/cheap, input_usd_per_mtok: 1, output_usd_per_mtok: 2 }
"""
USD = 10**6  # one dollar for a million tokens, for one token


@pytest.fixture
def stage() -> Pricing:
    snapshot = parse(CONFIG, "test", {})
    return Pricing(Tariffs(lambda: snapshot))


def attempt(request: RequestRow, number: int, model: str, **fields: Any) -> AttemptRow:
    counts = {"provider": "up", "model_asked": model, "input_tokens": 10, "cached_tokens": None, "output_tokens": 5}
    return attempt_row(request, number, **(counts | fields))


def record(stage: Pricing, store: SqlStore, sequence: int, *rows: RequestRow | AttemptRow) -> None:
    """What the recorder does with one batch."""
    batch = Batch(
        [row for row in rows if isinstance(row, RequestRow)], [row for row in rows if isinstance(row, AttemptRow)]
    )
    stage.take(batch, store)
    store.write([*batch.requests, *batch.attempts], Position("j", sequence), batch.also)
    stage.stored(batch)


def cost(store: SqlStore, request: RequestRow) -> int | None:
    entry = store.request(request.id)
    assert entry is not None
    return entry.request.cost_pd


def test_a_request_costs_what_its_attempts_cost_together(stage: Pricing, store: SqlStore) -> None:
    """Those that metered nothing add nothing; there was nothing to price, so nothing is unpriced."""
    request = request_row(attempts=3)
    failed = attempt(request, 1, "cheap", usage_source="missing", input_tokens=None, output_tokens=None)
    cheap, dear = attempt(request, 2, "cheap"), attempt(request, 3, "dear")
    record(stage, store, 1, failed, cheap, dear, request)
    assert [(row.cost_pd, row.cost_source, row.price) for row in (failed, cheap, dear)] == [
        (None, None, None),
        (20 * USD, "model_config", "models"),
        (2000 * USD, "model_config", "models"),
    ]
    assert failed.pricing_available is cheap.pricing_available is True
    assert cost(store, request) == 2020 * USD


@pytest.mark.parametrize("order", [("cheap", "none", "dear"), ("none", "cheap", "dear"), ("cheap", "dear", "none")])
def test_a_sum_with_an_unknown_part_is_unknown(stage: Pricing, store: SqlStore, order: tuple[str, ...]) -> None:
    """What is known of it would pass for the whole."""
    request = request_row(attempts=3)
    rows = [attempt(request, number, model) for number, model in enumerate(order, 1)]
    record(stage, store, 1, *rows, request)
    unpriced = rows[order.index("none")]
    assert (unpriced.cost_pd, unpriced.cost_source, unpriced.pricing_available) == (None, "unpriced", False)
    assert cost(store, request) is None


def test_attempts_that_come_after_their_request_count(stage: Pricing, store: SqlStore) -> None:
    """One that was taken for interrupted, and tells later what it used: of it alone, or of what is known beside it."""
    request, other = request_row(1, attempts=2), request_row(2)
    guess = attempt(request, 1, "cheap", outcome="interrupted", usage_source="missing", input_tokens=None)
    record(stage, store, 1, guess, attempt(request, 2, "dear"), request, other)
    assert (cost(store, request), cost(store, other)) == (2000 * USD, None)
    record(stage, store, 2, attempt(request, 1, "cheap"), attempt(other, 1, "cheap"))
    assert (cost(store, request), cost(store, other)) == (2020 * USD, 20 * USD)


def test_attempts_stored_before_their_request_count(stage: Pricing, store: SqlStore) -> None:
    """A long request's first attempts may be hours older than it: they are looked up where they are."""
    request = request_row(attempts=3)
    record(stage, store, 1, attempt(request, 1, "cheap"))
    record(stage, store, 2, attempt(request, 2, "dear"))
    record(stage, store, 3, attempt(request, 3, "cheap"), request)
    assert cost(store, request) == 2040 * USD
    unknown = request_row(2, attempts=2)
    record(stage, store, 4, attempt(unknown, 1, "none"))
    record(stage, store, 5, attempt(unknown, 2, "cheap"), unknown)
    assert cost(store, unknown) is None


def test_a_batch_that_comes_again_changes_nothing(stage: Pricing, store: SqlStore) -> None:
    """The journal hands out its rows once more where it does not know that they were stored."""
    request = request_row(attempts=2)
    record(stage, store, 1, attempt(request, 1, "cheap"))
    for sequence in (2, 2):
        rows = attempt(request, 1, "cheap"), attempt(request, 2, "cheap"), request_row(attempts=2)
        stage.forget()
        record(stage, store, sequence, *rows)
        assert cost(store, request) == 40 * USD


def test_a_count_that_is_missing_leaves_an_attempt_unpriced(stage: Pricing, store: SqlStore) -> None:
    request = request_row()
    cut = attempt(request, 1, "cheap", usage_source="partial", output_tokens=None)
    record(stage, store, 1, cut, request)
    assert (cut.cost_pd, cut.cost_source, cut.pricing_available) == (None, "unpriced", True)


def test_an_estimate_is_priced_and_stays_marked_as_one(stage: Pricing, store: SqlStore) -> None:
    request = request_row()
    none = dict.fromkeys(("input_tokens", "output_tokens"))
    guess = {"usage_source": "estimated", "estimated_input_tokens": 3, "estimated_output_tokens": 4}
    row = attempt(request, 1, "cheap", **none, **guess)
    record(stage, store, 1, row, request)
    assert (row.cost_pd, row.usage_source, row.input_tokens) == (11 * USD, "estimated", None)


@pytest.mark.parametrize(
    ("reported", "estimated", "dollars"),
    [
        ({"output_tokens": None, "total_tokens": 10}, {"estimated_output_tokens": 40}, 10 + 2 * 40),
        ({"input_tokens": None}, {"estimated_input_tokens": 8}, 8 + 2 * 5),
        ({"output_tokens": 1}, {"estimated_output_tokens": 40}, 10 + 2 * 1),
        ({"output_tokens": 0}, {"estimated_output_tokens": 40}, 10),
    ],
    ids=["the prompt alone", "the answer alone", "both", "nothing yet"],
)
def test_an_estimate_stands_in_for_the_side_that_a_cut_stream_did_not_meter(
    stage: Pricing, store: SqlStore, reported: dict[str, Any], estimated: dict[str, Any], dollars: int
) -> None:
    """Having metered more, a stream does not cost less known: what was reported is paid as it was, and only that."""
    request = request_row()
    cut = attempt(request, 1, "cheap", usage_source="partial", **reported, **estimated)
    record(stage, store, 1, cut, request)
    assert (cut.cost_pd, cut.cost_source, cut.usage_source) == (dollars * USD, "model_config", "partial")
    assert {name: getattr(cut, name) for name in reported} == reported
    assert cost(store, request) == dollars * USD


def test_what_a_subscription_served_adds_nothing_and_is_not_unknown(stage: Pricing, store: SqlStore) -> None:
    request, mixed = request_row(), request_row(2, attempts=2)
    row = attempt(request, 1, "cheap", provider="sub")
    record(stage, store, 1, row, request)
    assert (row.cost_pd, row.cost_source, row.equivalent_pd) == (0, "subscription", 20 * USD)
    assert cost(store, request) == 0
    record(stage, store, 2, attempt(mixed, 1, "cheap", provider="sub"), attempt(mixed, 2, "cheap"), mixed)
    assert cost(store, mixed) == 20 * USD


def test_the_providers_figure_counts_also_where_no_tokens_were_reported(stage: Pricing, store: SqlStore) -> None:
    request = request_row()
    none = dict.fromkeys(("input_tokens", "output_tokens"))
    row = attempt(request, 1, "none", usage_source="missing", provider_cost_pd=0, **none)
    record(stage, store, 1, row, request)
    assert (row.cost_pd, row.cost_source) == (0, "provider")
    assert cost(store, request) == 0


def test_another_configuration_prices_what_comes_after_it(store: SqlStore) -> None:
    snapshots = [parse(CONFIG, "test", {})]
    stage = Pricing(Tariffs(lambda: snapshots[-1]))
    first, second = request_row(1), request_row(2)
    record(stage, store, 1, attempt(first, 1, "cheap"), first)
    snapshots.append(parse(CONFIG.replace("output_usd_per_mtok: 2 }", "output_usd_per_mtok: 3 }"), "test", {}))
    record(stage, store, 2, attempt(second, 1, "cheap"), second)
    assert (cost(store, first), cost(store, second)) == (20 * USD, 25 * USD)


def test_a_search_is_paid_for_beside_the_tokens(store: SqlStore) -> None:
    snapshot = parse(
        CONFIG.replace("output_usd_per_mtok: 200", "output_usd_per_mtok: 200, web_search_usd: 0.01"), "t", {}
    )
    one, other = request_row(1, attempts=1), request_row(2, attempts=1)
    rows = [attempt(one, 1, "dear", web_searches=3), attempt(other, 1, "cheap", web_searches=3)]
    record(Pricing(Tariffs(lambda: snapshot)), store, 1, one, rows[0], other, rows[1])
    assert cost(store, one) == (10 * 100 + 5 * 200) * USD + 3 * 10**10
    assert cost(store, other) == (10 * 1 + 5 * 2) * USD, "nobody knows what it costs there"
