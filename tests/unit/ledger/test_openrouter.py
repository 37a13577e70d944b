"""OpenRouter asked for what answers cost: a real server on loopback, a real store."""

from __future__ import annotations

import json
import threading

import pytest

from arbiter.config.load import parse
from arbiter.ledger import openrouter
from arbiter.ledger.openrouter import Outcome, look_up, waiting
from arbiter.ledger.store import Position
from tests.fakes.pages import Page, serving
from tests.fakes.rows import attempt_row, request_row


@pytest.fixture
def site():
    with serving() as one:
        yield one


def providers(site):
    return parse(
        f"providers: {{ router: {{ type: openai, endpoint: '{site.url}/api/v1', priced_as: openrouter,"
        " keys: [{ label: a, key: key-a }, { label: b, key: key-b }] },"
        " real: { type: openai, endpoint: 'https://openrouter.ai/api/v1', key: k },"
        " other: { type: openai, key: k } }",
        "f",
        {},
    ).providers


def keep(store, count=1, **fields):
    requests = []
    for number in range(1, count + 1):
        request = request_row(number)
        mine = {"provider": "router", "cost_source": "unpriced", "response_id": f"gen-{number}"} | fields
        store.write([request, attempt_row(request, **mine)], Position("j", number))
        requests.append(request)
    return requests


def ask(store, site):
    known = providers(site)
    return look_up(store.read(lambda db: waiting(db, known, 0)), known, store.change)


def cost(store, request):
    entry = store.request(request.id)
    return entry.request.cost_pd, entry.attempts[0].cost_source


def answer(cost):
    return Page(200, json.dumps({"data": {"id": "x", "total_cost": cost}}).encode())


def test_an_answer_costs_what_openrouter_says(store, site):
    """By its id, with the key it was made with; the row and its request have the figure."""
    (request,) = keep(store, account="b")
    site.pages["/api/v1/generation"] = answer(0.0015)
    assert ask(store, site) == Outcome(rows=1, asked=1, found=1, found_pd=1_500_000_000)
    assert site.asked == ["/api/v1/generation?id=gen-1"] and site.headers[0]["authorization"] == "Bearer key-b"
    assert cost(store, request) == (1_500_000_000, "provider")
    assert store.request(request.id).attempts[0].provider_cost_pd == 1_500_000_000
    assert ask(store, site) == Outcome()


def test_an_explicit_zero_is_a_cost(store, site):
    (request,) = keep(store)
    site.pages["/api/v1/generation"] = answer(0)
    assert ask(store, site).found == 1 and cost(store, request) == (0, "provider")


def test_what_is_not_known_there_stays_as_it_is(store, site):
    (request,) = keep(store)
    assert ask(store, site) == Outcome(rows=1, asked=1, unknown=1)
    for page in (answer(None), answer(-1), answer("1"), answer(True), Page(200, b"<html>"), Page(500)):
        site.pages["/api/v1/generation"] = page
        assert ask(store, site) == Outcome(rows=1, asked=1, failed=1)
    assert cost(store, request) == (None, "unpriced")


def test_nothing_more_is_asked_once_it_says_that_we_ask_too_much(store, site):
    keep(store, 3)
    pages = iter([answer(1).body, b"slow down"])
    site.pages["/api/v1/generation"] = Page(200, lambda path: next(pages))
    site.pages["/api/v1/generation"] = Page(429, b"{}")
    assert ask(store, site) == Outcome(rows=3, asked=1, stopped="rate limited")


def test_at_most_so_many_are_asked_for(store, site, monkeypatch):
    """The next run goes on with the rest."""
    monkeypatch.setattr(openrouter, "MOST_CALLS", 2)
    keep(store, 5)
    site.pages["/api/v1/generation"] = answer(1)
    assert [ask(store, site).stopped for _ in range(3)] == ["too many calls", "too many calls", None]
    assert len(site.asked) == 5


ODD = [b"", b"\xff", b"[]", b'{"data":[1]}', *(b'{"data":{"total_cost":%b}}' % odd for odd in (
    b"NaN", b"-1", b"true", b'"1"', b"1e999999", b"1e9999999999999999999", b"9" * 5000))]  # fmt: skip


@pytest.mark.parametrize("page", [Page(404), Page(500), answer(None), *(Page(200, odd) for odd in ODD)])
def test_those_of_which_nothing_is_known_do_not_keep_the_rest_waiting(store, site, monkeypatch, page):
    """They are asked for again once all others were: OpenRouter may know by then."""
    monkeypatch.setattr(openrouter, "MOST_CALLS", 2)
    keep(store, 5)
    site.pages["/api/v1/generation"] = page
    for _ in range(3):
        ask(store, site)
    assert [path.rpartition("-")[2] for path in site.asked] == ["1", "2", "3", "4", "5", "1"]
    site.pages["/api/v1/generation"] = answer(1)
    assert [ask(store, site).found for _ in range(3)] == [2, 2, 1]


def test_it_takes_no_longer_than_it_may(store, site, monkeypatch):
    monkeypatch.setattr(openrouter, "CALL_S", 0.1)
    monkeypatch.setattr(openrouter, "ALL_S", 0.15)
    keep(store, 5)
    hold = threading.Event()
    site.pages["/api/v1/generation"] = Page(hold=hold)
    outcome = ask(store, site)
    hold.set()
    assert outcome.stopped == "out of time" and outcome.failed == outcome.asked < 5


def test_only_answers_of_openrouter_without_a_cost_are_asked_for(store, site):
    kept = [
        {"provider": "other"},
        {"response_id": None},
        {"cost_source": "catalog", "cost_pd": 1},
        {"cost_source": "subscription"},
    ]
    for number, fields in enumerate(kept, 1):
        request = request_row(number)
        mine = {"provider": "router", "cost_source": "unpriced", "response_id": "gen"} | fields
        store.write([request, attempt_row(request, **mine)], Position("j", number))
    cut = request_row(9)
    mine = {"provider": "real", "cost_source": None, "usage_source": "missing", "response_id": "gen-9"}
    store.write([cut, attempt_row(cut, **mine)], Position("j", 9))
    found = store.read(lambda db: waiting(db, providers(site), 0))
    assert [row.response_id for row in found] == ["gen-9"]
    assert store.read(lambda db: waiting(db, providers(site), cut.received_ms + 10_000)) == []
    assert store.read(lambda db: waiting(db, {}, 0)) == []
