"""`arbiter cost`: the console's view of what was spent."""

from __future__ import annotations

import json

import pytest

from tests.fakes.rows import attempt_row, request_row

USD = 10**12


@pytest.fixture
def db(stored):
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
    return stored(rows)


def test_sums_say_what_they_are_sums_of(db, arbiter):
    code, out, _ = arbiter("cost", "--db", db, "--since", "2026-01-01")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith(
        "$15.3456 and ~$0.50 by estimated tokens and a subscription's calls ($9.00 at list prices) for 6 requests since"
    )
    assert lines[0].endswith("; 2 attempts have no price.")
    columns = "model requests failed in cached written out cost estimated at list prices unpriced"
    assert lines[2].split() == columns.split()
    cells = [line.split() for line in lines[4:8]]
    assert {row[0]: row[1:] for row in cells} == {
        "claude-sonnet-4-5": ["2", "-", "38k", "1.6k", "≥34k", "128", "$15.3456", "-", "-", "-"],
        "gpt-5.2": ["1", "-", "2k", "800", "-", "64", "-", "~$0.50", "-", "-"],
        "claude-opus-4-5": ["1", "-", "2k", "800", "-", "64", "-", "-", "$9.00", "-"],
        "qwen3-coder": ["2", "-", "4k", "1.6k", "-", "128", "-", "-", "-", "2"],
    }
    assert lines[8].split()[0] == "all"
    assert "`arbiter prices check`" in lines[-1] and "`arbiter reprice`" in lines[-1]
    assert lines[-2] == (
        "Prices: catalog (~$12.8456, 81% of it, 2 attempts); override ($3.00, 19% of it, 1 attempt); "
        "unpriced (2 attempts); subscription (1 attempt)."
    )


def test_a_program_gets_one_object(db, arbiter):
    _, out, _ = arbiter("cost", "--db", db, "--since", "2026-01-01", "--by", "day", "--json")
    found = json.loads(out)
    assert found["by"] == "day" and found["total"]["metered_usd"] == 15.3456
    assert [group["name"] for group in found["groups"]] == ["2026-09-21"]


def test_nothing_is_not_a_table(db, arbiter):
    assert arbiter("cost", "--db", db, "--since", "2026-01-01", "--client", "nobody")[1].startswith("Nothing was asked")


def test_a_mistake_is_one_line(db, arbiter):
    code, _, err = arbiter("cost", "--db", db, "--since", "soon")
    assert code == 2 and err.startswith("arbiter: --since:")


def test_what_is_approximate_is_marked(stored, arbiter):
    """Tokens that we estimated are counted, and no sum that holds one, or a cut answer's, passes for a report."""
    nothing = {"input_tokens": None, "cached_tokens": None, "output_tokens": None}
    whole, cut, guessed, theirs = (request_row(number, client=name) for number, name in enumerate("abcd", 1))
    estimate = {"usage_source": "estimated", "estimated_input_tokens": 500, "estimated_output_tokens": 7}
    db = stored([
        whole, attempt_row(whole, cost_source="catalog", cost_pd=USD),
        cut, attempt_row(cut, usage_source="partial", cost_source="catalog", cost_pd=2 * USD),
        guessed, attempt_row(guessed, cost_source="catalog", cost_pd=3 * USD, **nothing, **estimate),
        theirs, attempt_row(theirs, cost_source="provider", cost_pd=4 * USD, **nothing, **estimate),
    ])  # fmt: skip
    words = ("cost", "--db", db, "--since", "2026-01-01", "--by", "client")
    out = arbiter(*words).out
    lines = out.splitlines()
    assert lines[0].startswith("~$7.00 and ~$3.00 by estimated tokens for 4 requests since ")
    cells = {row[0]: row[3:] for row in (line.split() for line in lines[4:9])}
    assert cells == {
        "a": ["2k", "800", "-", "64", "$1.00", "-"],
        "b": ["~2k", "~800", "-", "~64", "~$2.00", "-"],
        "c": ["~500", "-", "-", "~7", "-", "~$3.00"],
        "d": ["~500", "-", "-", "~7", "$4.00", "-"],
        "all": ["~5k", "≥~1.6k", "-", "~142", "~$7.00", "~$3.00"],
    }
    assert "\n~ estimated, or counted only until the stream was cut\n" in out
    assert lines[-1] == "Prices: catalog (~$6.00, 60% of it, 3 attempts); provider ($4.00, 40% of it, 1 attempt)."
    told = {group["name"]: group for group in json.loads(arbiter(*words, "--json").out)["groups"]}
    assert [told[name]["is_approximate"] for name in "abcd"] == [False, True, True, True]
    assert (told["b"]["partial"], told["d"]["estimated"], told["d"]["metered_usd"]) == (1, 0, 4.0)
    assert (told["c"]["input_tokens"], told["c"]["estimated_input_tokens"]) == (None, 500)


def test_what_was_not_reported_is_no_zero(stored, arbiter):
    """A dash stands where nobody told, `≥` where some did not; a call that failed and metered nothing leaves nothing
    open, and a zero is one that was reported."""
    nothing = {"input_tokens": None, "cached_tokens": None, "output_tokens": None, "usage_source": "missing"}
    refused = {**nothing, "outcome": "error", "error_class": "rate_limited_transient", "status": 429}
    rows = []
    for number, (client, fields) in enumerate(
        [
            ("told", {"cached_tokens": 0, "cache_write_tokens": 0}),
            ("told", refused),
            ("partly", {"cached_tokens": 700, "cache_write_tokens": 30}),
            ("partly", {"cached_tokens": None}),
            ("silent", nothing),
            ("refused", refused),
        ],
        1,
    ):
        request = request_row(number, client=client)
        rows += [request, attempt_row(request, **fields)]
    words = ("cost", "--db", stored(rows), "--since", "2026-01-01", "--by", "client")
    cells = {row[0]: row[3:7] for row in (line.split() for line in arbiter(*words).out.splitlines()[4:9])}
    assert cells == {
        "told": ["1.2k", "0", "0", "64"],
        "partly": ["3.1k", "≥700", "≥30", "128"],
        "silent": ["-", "-", "-", "-"],
        "refused": ["-", "-", "-", "-"],
        "all": ["≥4.3k", "≥700", "≥30", "≥192"],
    }
    told = {group["name"]: group for group in json.loads(arbiter(*words, "--json").out)["groups"]}
    counts = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
    assert [told["refused"][name] for name in counts] == [None] * 4
    assert told["partly"]["unreported"] == {"cached_tokens": 1, "cache_write_tokens": 1}
    assert told["told"]["unreported"] == told["refused"]["unreported"] == {}
    assert told["silent"]["unreported"] == dict.fromkeys(counts, 1)


def test_money_paid_in_advance_is_counted_down(db, arbiter, config):
    """The configuration says what was paid; a store that is named by itself has no configuration."""
    config.write_text(
        f"providers: {{ openai: {{ type: openai, key: k }} }}\nstorage: {{ url: 'sqlite:///{db}' }}\n"
        "prices: { prepaid: [{ provider: openai, balance_usd: 20, since: 2026-01-01 }] }\n"
    )
    _, out, _ = arbiter("cost", "--since", "2026-01-01")
    assert out.splitlines()[-1] == (
        "Prepaid, openai: ~$4.1544 left of $20.00 since 2026-01-01, less 2 attempts without a price."
    )
    assert "Prepaid" not in arbiter("cost", "--db", db)[1]


def test_where_nothing_has_a_price_the_sum_is_unknown(stored, arbiter):
    request = request_row(1)
    db = stored([request, attempt_row(request, cost_source="unpriced")])
    first = arbiter("cost", "--db", db, "--since", "2026-01-01").out.splitlines()[0]
    assert first.startswith("An unknown sum for 1 request since ") and first.endswith("; 1 attempt has no price.")
