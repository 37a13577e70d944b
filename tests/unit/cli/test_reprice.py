"""`arbiter reprice`: the console's way to price stored requests anew."""

from __future__ import annotations

import json

import pytest

from tests.fakes.rows import attempt_row, request_row


@pytest.fixture
def db(stored):
    unknown, known = request_row(1), request_row(2, cost_pd=7)
    mini = {"model_asked": "gpt-5.2-mini-2026"}
    rows = [unknown, attempt_row(unknown, cost_source="unpriced", **mini)]
    return stored([*rows, known, attempt_row(known, cost_source="provider", cost_pd=7, **mini)])


def test_what_would_change_is_told_and_then_done(db, config, arbiter, costs):
    """The second run has nothing left to do."""
    words = ("--since", "2026-01-01", "--db", db)
    kept = "1 kept: a cost that is no matter of prices"
    told = f"change, from $0.00 to $0.000448; 1 had no cost; {kept}.\n"
    assert arbiter("reprice", *words, "--dry-run")[:2] == (0, f"Of 2 requests with 2 attempts, 1 would {told}")
    assert costs(db) == [None, 7]
    code, out, _ = arbiter("reprice", *words)
    assert (code, out) == (0, f"Of 2 requests with 2 attempts, 1 {told.replace('change', 'changed')}")
    assert costs(db) == [448_000_000, 7]
    assert arbiter("reprice", *words)[1] == f"Nothing changes in 2 requests with 2 attempts; {kept}.\n"


def test_what_a_provider_cost_that_is_not_configured_is_said_to_be_kept(db, config, arbiter, stored):
    gone = request_row(3, cost_pd=9)
    stored([gone, attempt_row(gone, provider="gone", cost_source="catalog", cost_pd=9)])
    _, out, _ = arbiter("reprice", "--since", "2026-01-01", "--db", db)
    assert out.endswith("1 kept: a cost that is no matter of prices; 1 kept: provider not configured.\n")
    assert "have none any more" not in out


def test_no_key_is_wanted_of_who_asks_nobody(db, config, arbiter, costs):
    config.write_text(config.read_text().replace("SECRET-1", "${UNSET_KEY}") + 'admin: { token: "${UNSET_TOKEN}" }\n')
    assert arbiter("reprice", "--since", "2026-01-01", "--db", db)[0] == 0
    assert costs(db) == [448_000_000, 7]


def test_a_program_gets_the_counts(db, config, arbiter):
    _, out, _ = arbiter("reprice", "--since", "2026-01-01", "--db", db, "--json", "--dry-run", "--unpriced")
    found = json.loads(out)
    assert (found["dry_run"], found["attempts"], found["changed"]) == (True, 1, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "reprice from when on?"),
        (("--since", "soon"), "--since:"),
        (("--since", "7d", "--until", "later"), "--until: 'later' is no duration"),
    ],
)
def test_a_mistake_is_one_line(db, config, arbiter, words, message):
    code, _, err = arbiter("reprice", *words, "--db", db)
    assert code == 2 and err.startswith(f"arbiter: {message}")
