"""The report of what prompt caches saved and lost, over every kind of store."""

from __future__ import annotations

import pytest

from arbiter.ledger import query
from arbiter.ledger.questions import cache
from arbiter.ledger.questions.cache import Filters
from arbiter.ledger.store import Position
from tests.fakes.rows import BEGAN_MS, attempt_row, request_row


def lost(number, cause, tokens, pd, **fields):
    """A request of that second, and its attempt, which lost something."""
    where = {name: fields.pop(name) for name in ("session", "client") if name in fields}
    request = request_row(number, **where)
    verdict = {"cache_verdict": cause, "cache_lost_tokens": tokens, "cache_lost_pd": pd, "cached_tokens": 0}
    return [request, attempt_row(request, **(verdict | fields))]


@pytest.fixture
def ask(place):
    rows = []
    for number in range(1, 11):
        request = request_row(number, session="s1")
        rows += [request, attempt_row(request, cached_tokens=9_000, cache_write_tokens=500, input_tokens=500)]
    silent = request_row(11, session="s1")
    rows += [silent, attempt_row(silent, cached_tokens=None, input_tokens=70_000)]
    rows += lost(20, "drift", 110_000, 380_000, session="s1", cache_lost_at=32, cache_lost_in="messages 17-32")
    rows += lost(21, "drift", 20_000, None, session="s2")
    rows += lost(22, "miss", 34_000, 2**62, session="s2", provider="anthropic", model_asked="claude-opus-4-5")
    rows += lost(23, "idle", 200_000, None)
    store = place.open()
    store.write(rows, Position("j", 1))
    yield lambda **filters: store.read(lambda database: cache.report(database, Filters(**filters)))
    store.close()


def test_the_hit_rate_is_what_was_read_of_all_that_was_sent(ask):
    """Calls that do not say what they read are no calls that read nothing."""
    tokens = ask(session="s1").tokens
    assert (tokens.calls, tokens.cached_tokens, tokens.cache_write_tokens, tokens.input_tokens) == (
        11,
        90_000,
        5_000,
        6_200,
    )
    assert tokens.hit_rate == 90_000 / 101_200


def test_causes_without_an_explanation_come_first(ask):
    """Each group by how much it lost; money is what is known of it, and says of how many calls it is not."""
    found = [(one.cause, one.calls, one.lost_tokens, one.lost_pd, one.unpriced) for one in ask().causes]
    assert found == [
        ("drift", 2, 130_000, 380_000, 1),
        ("miss", 1, 34_000, 2**62, 0),
        ("idle", 1, 200_000, None, 1),
    ]
    assert [one.is_explained for one in ask().causes] == [False, False, True]


def test_the_largest_losses_say_where_they_were(ask):
    found = ask(limit=2).largest
    assert [(one.cause, one.lost_tokens) for one in found] == [("idle", 200_000), ("drift", 110_000)]
    assert (found[1].session, found[1].at, found[1].within) == ("s1", 32, "messages 17-32")
    assert [one.lost_tokens for one in ask(cause="drift").largest] == [110_000, 20_000]


def test_filters_narrow_everything(ask):
    one = ask(provider="anthropic", model="claude-opus-4-5")
    assert one.tokens.calls == 1 and [cause.cause for cause in one.causes] == ["miss"] and len(one.largest) == 1
    late = ask(since_ms=BEGAN_MS + 22_000)
    assert {cause.cause for cause in late.causes} == {"miss", "idle"} and late.tokens.calls == 2
    assert ask(since_ms=BEGAN_MS + 60_000) == cache.Report(tokens=cache._NONE, causes=[], groups=None, largest=[])
    assert ask(since_ms=BEGAN_MS + 60_000).tokens.hit_rate is None


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("provider", ["openai", "anthropic"]),
        ("model", ["gpt-5.2", "claude-opus-4-5"]),
        ("session", [None, "s1", "s2"]),
        ("client", ["ci"]),
    ],
)
def test_a_report_may_be_split(ask, by, names):
    """Who lost most comes first; the parts add up to the whole."""
    found = ask(by=by)
    assert [group.name for group in found.groups] == names
    assert sum(group.tokens.calls for group in found.groups) == found.tokens.calls
    assert sum(cause.lost_tokens for group in found.groups for cause in group.causes) == 364_000


def test_parameters_mean_what_they_say():
    now = BEGAN_MS
    assert cache.parse({}, now) == Filters(since_ms=now - 86_400_000)
    assert cache.parse({"session": "s"}, now) == Filters(session="s")
    assert cache.parse({"session": "s", "since": "1h"}, now).since_ms == now - 3_600_000
    for name, value in {"by": "colour", "limit": "0", "since": "soon", "session": "", "errors": "1"}.items():
        with pytest.raises(query.BadParameter) as caught:
            cache.parse({name: value}, now)
        assert caught.value.name == name
