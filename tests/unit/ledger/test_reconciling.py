"""A provider's bill over the rows that it is for, in every kind of store."""

from __future__ import annotations

import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.ledger.reconciling import BadBill, Line, parse, parts, spread
from arbiter.ledger.store import Position
from tests.fakes.rows import attempt_row, request_row

USD = 10**12
DAY = datetime.date(2026, 9, 21)  # of `tests.fakes.rows`


def bill(model: str, usd: int, day: datetime.date = DAY) -> Line:
    return Line(day=day, model=model, pd=usd, provider="openai")


def keep(store, *rows, sequence=1):
    store.write(list(rows), Position("j", sequence))


def row(request, number=1, tokens=100, **fields):
    counts = {"input_tokens": tokens, "cached_tokens": 0, "output_tokens": 0, "cost_source": "unpriced"}
    return attempt_row(request, number, **(counts | fields))


def costs(store, request):
    entry = store.request(request.id)
    return entry.request.cost_pd, [(one.cost_pd, one.cost_source) for one in entry.attempts]


def apply(store, *lines):
    return spread(lines, store.change, label="bill x.csv", dry_run=False)


@given(total=st.integers(0, 10**18), weights=st.lists(st.integers(0, 10**9), min_size=1, max_size=50))
def test_parts_add_up_to_the_whole(total: int, weights: list[int]) -> None:
    """To the picodollar; who used nothing pays nothing, unless nobody used anything."""
    shares = parts(total, weights)
    assert sum(shares) == total and min(shares) >= 0
    if any(weights):
        assert all(share == 0 for share, weight in zip(shares, weights, strict=True) if not weight)
        assert all(
            abs(share * sum(weights) - total * weight) < sum(weights)
            for share, weight in zip(shares, weights, strict=True)
        )


def test_a_days_dollars_are_spread_by_tokens(store):
    """Over failed attempts that metered something, too; the requests' sums follow."""
    one, two = request_row(1, attempts=2), request_row(2)
    keep(
        store,
        one,
        row(one, 1, 100, outcome="error"),
        row(one, 2, 200, cost_source="catalog", cost_pd=5),
        two,
        row(two, 1, 700),
    )
    (share,) = apply(store, bill("gpt-5.2", 10 * USD))
    assert (share.rows, share.before_pd, share.unpriced, share.is_done) == (3, 5, 2, False)
    assert costs(store, one) == (3 * USD, [(USD, "reconciled"), (2 * USD, "reconciled")])
    assert costs(store, two) == (7 * USD, [(7 * USD, "reconciled")])
    assert store.request(two.id).attempts[0].price == "bill x.csv 2026-09-21"


def test_a_line_that_is_done_is_passed_over(store):
    """Whoever was stopped half-way starts again; a corrected bill is spread anew."""
    request = request_row(1)
    keep(store, request, row(request))
    apply(store, bill("gpt-5.2", USD))
    assert apply(store, bill("gpt-5.2", USD))[0].is_done
    assert not apply(store, bill("gpt-5.2", 2 * USD))[0].is_done
    assert costs(store, request)[0] == 2 * USD


def test_a_dry_run_changes_nothing(store):
    request = request_row(1)
    keep(store, request, row(request))
    (share,) = spread([bill("gpt-5.2", USD)], store.read, label="x", dry_run=True)
    assert share.rows == 1 and costs(store, request) == (None, [(None, "unpriced")])


def test_only_the_rows_that_a_line_is_for(store):
    """That day in UTC, that provider, that model; nothing of a subscription, nothing that metered nothing."""
    midnight = 1_789_948_800_000
    mine = request_row(1, received_ms=midnight + 86_399_999)
    others = [
        (request_row(2, received_ms=midnight - 1), {}),
        (request_row(3, received_ms=midnight + 86_400_000), {}),
        (request_row(4), {"provider": "other"}),
        (request_row(5), {"model_asked": "gpt-5"}),
        (request_row(6), {"cost_source": "subscription"}),
        (request_row(7), {"usage_source": "missing", "cost_source": None}),
    ]
    keep(store, mine, row(mine), *(one for request, fields in others for one in (request, row(request, **fields))))
    assert apply(store, bill("gpt-5.2", USD))[0].rows == 1
    assert costs(store, mine)[0] == USD and [costs(store, request)[0] for request, _ in others] == [None] * 6


def test_a_model_is_known_by_its_very_name_else_without_its_date(store):
    dated, plain = request_row(1), request_row(2)
    keep(store, dated, row(dated, model_asked="alias", model_served="claude-x-20250929"))
    assert apply(store, bill("claude-x", USD))[0].rows == 1
    keep(store, plain, row(plain, model_asked="claude-x"), sequence=2)
    assert apply(store, bill("claude-x", USD))[0].rows == 1
    assert costs(store, plain)[0] == USD
    assert apply(store, bill("gpt-nobody", USD))[0].rows == 0


def test_a_row_is_given_the_money_of_one_line(store):
    """A line of another version of the model has no rows then, and says so, whichever comes first in the bill."""
    request = request_row(1)
    keep(store, request, row(request, model_asked="gpt-4o-2024-08-06"))
    lines = [bill("gpt-4o-2024-08-06", 8 * USD), bill("gpt-4o-2024-11-20", USD), bill("gpt-4o", USD)]
    for order in (lines, lines[::-1]):
        assert {share.line.model: share.rows for share in apply(store, *order)} == {
            "gpt-4o-2024-08-06": 1,
            "gpt-4o-2024-11-20": 0,
            "gpt-4o": 0,
        }
        assert costs(store, request)[0] == 8 * USD
    assert [share.is_done for share in apply(store, *lines)] == [True, False, False]
    # On its own, or beside a line of another day, the other version takes the row: nobody else has it.
    assert apply(store, lines[1], bill("gpt-4o-2024-08-06", USD, DAY - datetime.timedelta(1)))[0].rows == 1


def test_what_was_served_says_more_than_what_was_asked_for(store):
    """Of two lines with an exact name of a row, and of two that share a bare name, one has it."""
    both, bare = request_row(1), request_row(2)
    keep(store, both, row(both, model_asked="gpt-4o", model_served="gpt-4o-2024-08-06"))
    keep(store, bare, row(bare, model_asked="claude-x"), sequence=2)
    lines = [bill("gpt-4o", USD), bill("gpt-4o-2024-08-06", 8 * USD)]
    assert [share.rows for share in apply(store, *lines)] == [0, 1]
    assert costs(store, both)[0] == 8 * USD
    lines = [bill("claude-x-20250929", 2 * USD), bill("claude-x-20251001", USD)]
    assert [share.rows for share in apply(store, *lines)] == [1, 0]
    assert costs(store, bare)[0] == 2 * USD


def test_a_bill_is_csv_or_json(tmp_path):
    """Under the names that bills have; lines of one model and day add up, to the last digit."""
    text = 'Date,Model,Cost,Other\r\n2026-09-21,m,0.1,x\n2026-09-21T05:00:00Z,m,$0.2,\n2026-09-20,"a,b","1,000.5",\n'
    wanted = [bill("a,b", 1_000_500_000_000_000, datetime.date(2026, 9, 20)), bill("m", 300_000_000_000)]
    assert parse(text.encode("utf-8-sig"), "openai") == wanted
    rows = [{"day": "2026-09-21", "model_id": "m", "amount": 0.1 + 0.2, "provider": "openai"}]
    assert parse(json.dumps(rows).encode(), None)[0].pd == 300_000_000_000
    assert parse(json.dumps({"data": rows}).encode(), "other")[0].provider == "openai"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no line"),
        (b"date,model,usd\n", "no line"),
        (b"\xff", "UTF-8"),
        (b"{", "no JSON"),
        (b"{}", "a list of objects"),
        (b"[1]", r"\[0\]: expected an object"),
        (b"date,model\n2026-01-01,m\n", "line 2: expected date, model and usd"),
        (b"date,model,usd\nyesterday,m,1\n", "line 2: 'yesterday' is no date"),
        (b"date,model,usd\n2026-01-01,m,much\n", "'much' is no sum"),
        (b"date,model,usd\n2026-01-01,m,NaN\n", "is no sum"),
        (b"date,model,usd\n2026-01-01,m,-1\n", "is no cost"),
        (b'date,model,usd\n2026-01-01,m,"1,50"\n', "'1,50' has a comma where no thousands end"),
        (b'date,model,usd\n2026-01-01,m,"1.234,50"\n', "write cents behind a point"),
        (b"date,model,usd\n2026-01-01,m,1,234.50\n", "line 2: more cells than the head has"),
        (b"date,model,usd\n2026-01-01,m,9000000\n2026-01-01,m,9000000\n", "line 3: .* more than a column holds"),
        (b"date,model,usd\n2026-01-01,m,1e30\n", "is no"),
        (b"date,model,usd\n2026-01-01,m,1e999999999\n", "line 2: '1e999999999' is no sum"),
        (b'[{"date": "2026-01-01", "model": "m", "usd": 1e999999999}]', "is no sum"),
        (b'[{"date": "2026-01-01", "model": "m", "usd": 1e99999999999999999999}]', "no JSON"),
    ],
)
def test_what_is_no_bill_is_refused_with_its_line(raw: bytes, message: str) -> None:
    with pytest.raises(BadBill, match=message):
        parse(raw, "openai")


def test_a_bill_is_somebodys() -> None:
    with pytest.raises(BadBill, match="nobody says whose"):
        parse(b"date,model,usd\n2026-01-01,m,1\n", None)
