"""`arbiter reconcile`: stored costs set by a bill, or by OpenRouter."""

from __future__ import annotations

import json

import pytest

from tests.fakes.pages import Page, serving
from tests.fakes.rows import attempt_row, request_row


@pytest.fixture
def db(stored):
    rows = []
    for number in (1, 2):
        request = request_row(number)
        rows += [request, attempt_row(request, cost_source="unpriced", response_id=f"gen-{number}")]
    return stored(rows)


def test_a_bill_is_shown_first_and_spread_when_that_is_asked_for(db, tmp_path, arbiter, costs):
    """Once more it is done before."""
    path = tmp_path / "bill.csv"
    path.write_text("date,model,usd\n2026-09-21,gpt-5.2,3\n2026-09-21,gone,1\n")
    words = (path, "--provider", "openai", "--db", db)
    code, out, _ = arbiter("reconcile", *words)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0 and costs(db) == [None, None]
    assert ["2026-09-21", "openai", "gpt-5.2", "$3.00", "2", "$0.00", "2", "to", "be", "spread"] in lines
    assert ["2026-09-21", "openai", "gone", "$1.00", "0", "-", "-", "no", "rows"] in lines
    assert out.endswith(
        "\n$3.00 over 2 rows, which had $0.00; of $1.00 there are no rows. Nothing was changed: --apply does it.\n"
    )
    _, out, _ = arbiter("reconcile", *words, "--apply", "--json")
    assert json.loads(out)["applied"] is True and json.loads(out)["lines"][1]["usd"] == 3.0
    assert costs(db) == [1_500_000_000_000, 1_500_000_000_000]
    assert "done before" in arbiter("reconcile", *words, "--apply")[1]


def test_openrouter_is_asked_when_that_is_asked_for(db, config, arbiter, costs):
    with serving() as site:
        site.pages["/v1/generation"] = Page(200, b'{"data": {"total_cost": 0.25}}')
        config.write_text(
            f"providers: {{ openai: {{ type: openai, endpoint: '{site.url}/v1', key: k, priced_as: openrouter }},\n"
            "  other: { type: anthropic, key: '${NOT_AT_HAND}' } }\n"
        )
        words = ("--openrouter", "--since", "2026-01-01", "--db", db)
        assert arbiter("reconcile", *words)[1] == (
            "2 answers of OpenRouter without a known cost. Nothing was asked: --apply does it.\n"
        )
        assert site.asked == []
        assert arbiter("reconcile", *words, "--apply")[1] == (
            "2 answers of OpenRouter without a known cost; of 2 it was asked for, of 2 found: $0.50.\n"
        )
    assert costs(db) == [250_000_000_000] * 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), 2),
        (("bill.csv", "--openrouter"), 2),
        (("none.csv",), 1),
        (("--openrouter", "--since", "soon"), 2),
        (("--openrouter", "--since", "9" * 5000), 2),
    ],
)
def test_a_mistake_is_one_line(db, config, arbiter, words, expected):
    config.write_text("providers: { o: { type: openai, endpoint: 'https://openrouter.ai/api/v1', key: k } }\n")
    code, _, err = arbiter("reconcile", *words, "--db", db)
    assert code == expected and err.startswith("arbiter: ") and err.count("\n") == 1


def test_without_openrouter_there_is_nobody_to_ask(db, config, arbiter):
    code, _, err = arbiter("reconcile", "--openrouter", "--db", db)
    assert code == 1 and "is OpenRouter" in err
