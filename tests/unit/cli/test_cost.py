"""`arbiter cost`: the console's view of what was spent."""

from __future__ import annotations

import json

import pytest

from arbiter.cli import main
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position
from tests.fakes.rows import attempt_row, request_row

USD = 10**12


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "arbiter.db"
    store = SqliteStore(path)
    rows = []
    for number, (model, fields) in enumerate(
        [
            ("claude-sonnet-4-5", {"cost_source": "catalog", "cost_pd": 12_345_600_000_000}),
            ("claude-sonnet-4-5", {"cost_source": "override", "cost_pd": 3 * USD, "cache_write_tokens": 34_000}),
            ("gpt-5.2", {"cost_source": "catalog", "cost_pd": USD // 2, "usage_source": "estimated"}),
            ("qwen3-coder", {"cost_source": "unpriced"}),
            ("qwen3-coder", {"cost_source": "unpriced"}),
            ("claude-opus-4-5", {"cost_source": "subscription", "equivalent_pd": 9 * USD}),
        ],
        1,
    ):
        request = request_row(number)
        rows += [request, attempt_row(request, model_asked=model, **fields)]
    store.write(rows, Position("j", 1))
    store.close()
    return path


def arbiter(capsys, *words):
    code = main(["cost", *map(str, words)])
    done = capsys.readouterr()
    return code, done.out, done.err


def test_sums_say_what_they_are_sums_of(db, capsys):
    code, out, _ = arbiter(capsys, "--db", db, "--since", "2026-01-01")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith(
        "$15.3456 and ~$0.50 by estimated tokens and an unknown sum for 2 attempts without a price and "
        "a subscription's calls ($9.00 at list prices) for 6 requests since"
    )
    columns = "model requests failed in cached written out cost estimated at list prices unpriced"
    assert lines[2].split() == columns.split()
    cells = [line.split() for line in lines[4:8]]
    assert {row[0]: row[1:] for row in cells} == {
        "claude-sonnet-4-5": ["2", "-", "2.4k", "1.6k", "34k", "128", "$15.3456", "-", "-", "-"],
        "gpt-5.2": ["1", "-", "1.2k", "800", "0", "64", "-", "~$0.50", "-", "-"],
        "claude-opus-4-5": ["1", "-", "1.2k", "800", "0", "64", "-", "-", "$9.00", "-"],
        "qwen3-coder": ["2", "-", "2.4k", "1.6k", "0", "128", "-", "-", "-", "2"],
    }
    assert lines[8].split()[0] == "all"
    assert lines[-1] == (
        "Prices: catalog ($12.8456, 81% of it, 2 attempts); override ($3.00, 19% of it, 1 attempt); "
        "unpriced (2 attempts); subscription (1 attempt)."
    )
    assert max(map(len, lines[2:9])) <= 118


def test_a_program_gets_one_object(db, capsys):
    _, out, _ = arbiter(capsys, "--db", db, "--since", "2026-01-01", "--by", "day", "--json")
    found = json.loads(out)
    assert found["by"] == "day" and found["total"]["metered_usd"] == 15.3456
    assert [group["name"] for group in found["groups"]] == ["2026-09-21"]


def test_nothing_is_not_a_table(db, capsys):
    assert arbiter(capsys, "--db", db, "--since", "2026-01-01", "--client", "nobody")[1].startswith("Nothing was asked")


def test_a_mistake_is_one_line(db, capsys):
    code, _, err = arbiter(capsys, "--db", db, "--since", "soon")
    assert code == 2 and err.startswith("arbiter: --since:")


def test_money_paid_in_advance_is_counted_down(db, capsys, config):
    """The configuration says what was paid; a store that is named by itself has no configuration."""
    config.write_text(
        f"providers: {{ openai: {{ type: openai, key: k }} }}\nstorage: {{ url: 'sqlite:///{db}' }}\n"
        "prices: { prepaid: [{ provider: openai, balance_usd: 20, since: 2026-01-01 }] }\n"
    )
    _, out, _ = arbiter(capsys, "--since", "2026-01-01")
    assert out.splitlines()[-1] == (
        "Prepaid, openai: $4.1544 left of $20.00 since 2026-01-01, less 2 attempts without a price."
    )
    assert "Prepaid" not in arbiter(capsys, "--db", db)[1]
