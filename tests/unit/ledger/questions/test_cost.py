"""The report of what was spent, over every kind of store."""

from __future__ import annotations

import pytest

from arbiter.config.rates import DAY_MS, Prepaid
from arbiter.ledger import query
from arbiter.ledger.questions import cost
from arbiter.ledger.questions.cost import Filters
from arbiter.ledger.store import Position
from tests.fakes.rows import BEGAN_MS, attempt_row, request_row

USD = 10**12


def spent(number, source, pd, **fields):
    """A request of that second with an attempt of this cost."""
    mine = ("session", "client", "agent", "received_ms", "outcome")
    request = request_row(number, **{name: fields.pop(name) for name in mine if name in fields})
    return [request, attempt_row(request, cost_source=source, cost_pd=pd, **fields)]


@pytest.fixture
def ask(place):
    later = BEGAN_MS + DAY_MS
    retried = request_row(1, client="ann", attempts=2)
    rows = [
        retried,
        attempt_row(retried, 1, cost_source="catalog", cost_pd=USD, outcome="error"),
        attempt_row(retried, 2, cost_source="catalog", cost_pd=2 * USD),
        *spent(2, "override", 4 * USD, client="ben", received_ms=later, account="k1"),
        *spent(3, "unpriced", None, client="ben", model_asked="odd", outcome="error"),
        *spent(4, "model_config", 0, client="ann", provider="lan", model_asked="home"),
        *spent(5, "catalog", 8 * USD, usage_source="estimated", input_tokens=None, output_tokens=None),
        *spent(6, "subscription", None, provider="sub", equivalent_pd=16 * USD),
        *spent(7, None, None, usage_source="missing", input_tokens=None, output_tokens=None, outcome="error"),
    ]
    store = place.open()
    store.write(rows, Position("j", 1))
    yield lambda prepaid=(), **filters: store.read(lambda db: cost.report(db, Filters(**filters), prepaid))
    store.close()


def test_money_of_different_kinds_is_never_one_sum(ask):
    """What the provider counted, what we estimated, and what a subscription would have cost stand apart."""
    total = ask().total
    assert (total.metered_pd, total.estimated_pd, total.equivalent_pd) == (7 * USD, 8 * USD, 16 * USD)
    assert (total.requests, total.failed, total.attempts) == (7, 2, 8)
    assert (total.estimated, total.unpriced, total.free) == (1, 1, 1)
    assert {name: (one.attempts, one.cost_pd) for name, one in total.sources.items()} == {
        "catalog": (3, 11 * USD),
        "override": (1, 4 * USD),
        "model_config": (1, 0),
        "unpriced": (1, 0),
        "subscription": (1, 0),
    }
    assert (total.input_tokens, total.cached_tokens, total.output_tokens) == (6 * 1200, 8 * 800, 6 * 64)


def test_a_part_is_split_by_what_was_asked_for(ask):
    by_model = ask(by="model").groups
    assert [(one.name, one.requests) for one in by_model] == [("gpt-5.2", 5), ("home", 1), ("odd", 1)]
    by_client = {one.name: one.metered_pd for one in ask(by="client").groups}
    assert by_client == {"ci": 0, "ann": 3 * USD, "ben": 4 * USD}
    assert {one.name for one in ask(by="provider").groups} == {"openai", "lan", "sub"}
    assert [one.name for one in ask(by="agent").groups] == [None]
    first, second = (1_790_000_000_000 + number * DAY_MS for number in (1, 0))
    days = [(one.name, one.metered_pd) for one in ask(by="day").groups]
    assert days == [("2026-09-22", 4 * USD), ("2026-09-21", 3 * USD)] and first > second


def test_the_first_of_many_and_how_many_more(ask):
    found = ask(by="model", limit=1)
    assert [one.name for one in found.groups] == ["gpt-5.2"] and found.more == 2
    assert found.total.attempts == 8


def test_filters_hold_for_all_of_it(ask):
    assert ask(client="ann").total.metered_pd == 3 * USD
    assert ask(provider="lan").total.attempts == 1 and ask(model="odd").total.unpriced == 1
    assert ask(since_ms=BEGAN_MS + DAY_MS).total.metered_pd == 4 * USD
    nothing = ask(session="none")
    assert nothing.total.attempts == 0 and nothing.groups == []


def test_what_is_left_of_money_paid_in_advance(ask):
    """From its day on; what nobody knows the cost of is told, for it may be less."""
    prepaid = [
        Prepaid("openai", None, 20 * USD, BEGAN_MS),
        Prepaid("openai", "k1", 3 * USD, BEGAN_MS),
        Prepaid("openai", None, USD, BEGAN_MS + 2 * DAY_MS),
    ]
    whole, account, later = ask(prepaid=prepaid).prepaid
    assert (whole.left_pd, whole.unpriced) == (20 * USD - 15 * USD, 1)
    assert (account.left_pd, account.unpriced) == (-USD, 0)
    assert (later.left_pd, later.spent_pd) == (USD, 0)


def test_values_for_programs_have_dollars_beside_the_integers(ask):
    filters = Filters(by="client", since_ms=5)
    found = cost.as_json(ask(prepaid=[Prepaid("lan", None, USD, 0)]), filters)
    assert (found["since_ms"], found["by"], found["more"]) == (5, "client", 0)
    assert found["total"]["metered_usd"] == 7.0 and "name" not in found["total"]
    assert found["groups"][0]["sources"]["override"]["cost_usd"] == 4.0
    assert found["prepaid"][0]["left_usd"] == 1.0


def test_a_question_is_read_from_parameters():
    assert cost.parse({}, 7 * DAY_MS) == Filters(since_ms=0)
    assert cost.parse({"by": "day", "since": "1d", "agent": "codex", "limit": "3"}, DAY_MS) == Filters(
        since_ms=0, by="day", agent="codex", limit=3
    )
    for params in ({"by": "colour"}, {"colour": "red"}, {"limit": "0"}, {"since": "soon"}, {"client": ""}):
        with pytest.raises(query.BadParameter) as caught:
            cost.parse(params, 0)
        assert caught.value.name == next(iter(params))


def test_a_row_that_comes_between_two_questions_breaks_no_report(place):
    """A report asks several questions; a group that is new in the second is left for the next report."""
    store, writer = place.open(), place.open()
    store.write(spent(1, "catalog", USD, session="old"), Position("j", 1))

    class Busy:
        """A database into which somebody writes behind the first question."""

        def __init__(self, database):
            self.database = database
            self.has_asked = False

        def rows(self, *asked):
            found = self.database.rows(*asked)
            if not self.has_asked:
                self.has_asked = True
                writer.write(spent(2, "catalog", USD, session="new"), Position("j", 2))
            return found

        def __getattr__(self, name):
            return getattr(self.database, name)

    report = store.read(lambda db: cost.report(Busy(db), Filters(by="session")))
    assert "old" in {one.name for one in report.groups}
    store.close()
    writer.close()
