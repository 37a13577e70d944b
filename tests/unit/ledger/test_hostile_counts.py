"""What upstreams say of tokens and money, from their words to the reports: odd words cost a count, and never a row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter._speedups import reduce
from arbiter.accounting import facts
from arbiter.config.load import parse
from arbiter.ledger.book import _take
from arbiter.ledger.comparison import Comparison
from arbiter.ledger.pricing import Pricing, rate
from arbiter.ledger.questions import cache, cost, sessions
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import AttemptRow
from arbiter.ledger.schema import columns
from arbiter.ledger.store import Position
from arbiter.ledger.tariffs import Tariffs
from arbiter.log import Blotter
from tests.fakes.rows import attempt_row, request_row
from tests.twins.streams import event

CONFIG = """
providers: { openai: { type: openai, endpoint: "http://127.0.0.1:9/v1", models: [gpt-5.2] } }
models: [{ model: openai/gpt-5.2, input_usd_per_mtok: 100000, cached_input_usd_per_mtok: 1, output_usd_per_mtok: 2,
           cache_write_5m_usd_per_mtok: 3, cache_write_1h_usd_per_mtok: 4, reasoning_usd_per_mtok: 5 }]
"""
NUMBERS = [
    "-1", "-0", "0.5", "12.0", "1e3", "1e400", "-1e400", "1e-400", "NaN", "Infinity", "-Infinity", "true", "null",
    '"7"', '""', "[]", "{}", "[7]", "9" * 15, "1" + "0" * 15, str(2**63 - 1), str(2**63), str(2**64), "9" * 400,
    "9" * 5000, "0." + "3" * 400, "0e999999999999999999999",
]  # fmt: skip
CHAT_MEMBERS = ["prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "cost", "cost_in_usd_ticks",
                "prompt_tokens_details", "completion_tokens_details", "cost_details", "reasoning_tokens"]  # fmt: skip
MESSAGES_MEMBERS = ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
                    "cache_creation", "output_tokens_details", "iterations"]  # fmt: skip
ODD_WHOLES = [
    '{"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20}, "completion_tokens": 1}',
    '{"prompt_tokens": 10, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 50}}',
    '{"prompt_tokens": 1, "prompt_tokens": 2, "completion_tokens": 1, "completion_tokens": -2}',
    '{"prompt_tokens": 10}',
    '{"completion_tokens": 10}',
    '{"total_tokens": 10}',
    '{"input_tokens": 10, "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": -5}}',
    '{"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 1, "cache_creation":'
    ' {"ephemeral_1h_input_tokens": 999999999999999}}',
    '{"input_tokens": 1, "output_tokens": 1, "iterations": [{"type": "compaction", "input_tokens": 999999999999999},'
    ' {"type": "compaction", "input_tokens": 999999999999999}, {"type": 7}, 7]}',
    '{"cost": 9000000, "is_byok": true, "cost_details": {"upstream_inference_cost": 9000000}}',
    "{" * 100 + "}" * 100,
    "[]",
    "7",
]  # fmt: skip


def usages() -> list[str]:
    """Usage objects as text, since much of this no JSON writer would write."""
    found = list(ODD_WHOLES)
    for whole, members in (('"prompt_tokens": 9, "completion_tokens": 3', CHAT_MEMBERS),
                           ('"input_tokens": 9, "output_tokens": 3', MESSAGES_MEMBERS)):  # fmt: skip
        found += [f'{{{whole}, "{member}": {number}}}' for member in members for number in NUMBERS]
    return found


def read(usage: str) -> list[facts.Facts]:
    """What is read of it in whole answers and in streams of both formats; once and twice in a stream."""
    chat = f'{{"id": "a", "object": "chat.completion.chunk", "choices": [], "usage": {usage}}}'
    done = '{"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}'
    start = f'event: message_start\ndata: {{"type": "message_start", "message": {{"id": "m", "usage": {usage}}}}}\n\n'
    delta = f'event: message_delta\ndata: {{"type": "message_delta", "delta": {{}}, "usage": {usage}}}\n\n'
    streams: list[tuple[Any, str]] = [
        (reduce.ChatTap(), f"data: {chat}\n\ndata: {done}\n\ndata: {chat}\n\ndata: [DONE]\n\n"),
        (reduce.MessagesTap(), start + delta + delta + event("message_stop")),
    ]
    found = []
    for tap, stream in streams:
        tap.feed(stream.encode())
        found.append(
            facts.of_stream(tap, first_event_ns=1, last_event_ns=2, finish_inferred=False, protocol_fault=None)
        )
    try:
        found.append(facts.of_chat_answer(f'{{"choices": [], "usage": {usage}}}'.encode()))
        found.append(facts.of_messages_answer(f'{{"content": [], "usage": {usage}}}'.encode()))
    except facts.Garbled:
        pass  # no JSON at all: the upstream is told that it garbled its answer
    return found


@pytest.fixture
def stages():
    snapshot = parse(CONFIG, "test", {})
    tariffs = Tariffs(lambda: snapshot)
    return [Pricing(tariffs), Comparison(lambda: snapshot, lambda row: rate(row, tariffs()))]


def test_every_word_of_usage_is_a_count_or_nothing_and_its_row_is_stored(store, stages):
    """What is stored fits its column, and every report about it can be had."""
    rows = []
    for usage in usages():
        for told in read(usage):
            request = request_row(len(rows), session="s", attempts=1)
            row = attempt_row(request, session="s", conversation="c" * 32, input_tokens=None, cached_tokens=None,
                              output_tokens=None, total_tokens=None)  # fmt: skip
            _take(row, told, Blotter())
            rows += [request, row]
            for column in columns(AttemptRow):
                value = getattr(row, column.name)
                assert not isinstance(value, int) or -(2**63) <= value < 2**63, (usage, column.name)
                assert not column.name.endswith("_tokens") or value is None or value >= 0, (usage, column.name)
    assert len(rows) > 2000
    batch = Batch(rows[::2], rows[1::2])
    for stage in stages:
        stage.take(batch, store)
    store.write(rows, Position("j", 1), batch.also)
    assert store.counts().attempts == len(rows) // 2
    reports(store)


def reports(store) -> dict[str, Any]:
    """Every report that adds rows up, as JSON."""
    money, losses = cost.Filters(by="model"), cache.Filters(by="provider")
    listed = sessions.Filters()
    told = {
        "cost": cost.as_json(store.read(lambda db: cost.report(db, money)), money),
        "cache": cache.as_json(store.read(lambda db: cache.report(db, losses)), losses),
        "sessions": sessions.page_json(store.read(lambda db: sessions.listing(db, listed))),
    }
    return json.loads(json.dumps(told))


def test_sums_beyond_any_column_are_told_all_the_same(store):
    """Answers that cost nine million dollars each are an upstream's joke, and no reason to know nothing of others."""
    huge = {"cost_pd": 2**63 - 1, "equivalent_pd": 2**63 - 1, "cache_lost_pd": 2**63 - 1, "cost_source": "provider",
            "cache_verdict": "miss", "cache_lost_tokens": 10**15 - 1, "cached_tokens": 10**15 - 1}  # fmt: skip
    rows = []
    for number in range(3):
        request = request_row(number, session="s")
        rows += [request, attempt_row(request, session="s", **huge)]
    store.write(rows, Position("j", 1))
    store.change(lambda db: db.run(
        "INSERT INTO sessions (id, session, client, last_ms) VALUES ('ci s', 's', 'ci', 1)"))  # fmt: skip
    told = reports(store)
    whole = 3 * (2**63 - 1)
    assert told["cost"]["total"]["metered_pd"] == pytest.approx(whole, rel=1e-15)
    assert told["cost"]["total"]["equivalent_pd"] == pytest.approx(whole, rel=1e-15)
    assert told["cost"]["total"]["cached_tokens"] == 3 * (10**15 - 1)
    (miss,) = told["cache"]["causes"]
    assert (miss["lost_pd"], miss["lost_tokens"]) == (pytest.approx(whole, rel=1e-15), 3 * (10**15 - 1))
    (session,) = told["sessions"]["sessions"]
    assert session["cost_pd"] == pytest.approx(whole, rel=1e-15) and session["estimated_input_tokens"] is None


def test_a_request_of_which_the_attempts_cost_too_much_costs_nobody_knows_what(store, stages):
    request = request_row(1, attempts=2)
    claims = {"provider_cost_pd": 2**63 - 1, "model_asked": "unknown"}
    batch = Batch([request], [attempt_row(request, number, **claims) for number in (1, 2)])
    stages[0].take(batch, store)
    assert [row.cost_pd for row in batch.attempts] == [2**63 - 1] * 2 and request.cost_pd is None
    store.write([request, *batch.attempts], Position("j", 1), batch.also)
    assert store.counts().attempts == 2
