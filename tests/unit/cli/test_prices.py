"""`arbiter prices`: shown, imported, fetched, checked."""

from __future__ import annotations

import datetime
import json

import pytest

from arbiter.accounting.genai import GenaiPrices
from arbiter.cli import main
from tests.fakes.pages import Page, serving


def arbiter(capsys, *words):
    code = main(["prices", *map(str, words)])
    done = capsys.readouterr()
    return code, done.out, done.err


@pytest.fixture
def priced(config, tmp_path, monkeypatch):
    """A configuration of a vendor, a proxy of one, and a machine next door."""
    monkeypatch.setenv("ARBITER_DATA_DIR", str(tmp_path / "data"))
    config.write_text(
        "providers:\n"
        "  anthropic: { type: anthropic, key: k, models: [{ id: sonnet, upstream: claude-sonnet-4-5 }] }\n"
        "  lan: { type: openai, endpoint: 'http://10.0.0.3/v1', models: [home] }\n"
        "models: [{ model: lan/home, input_usd_per_mtok: 0, output_usd_per_mtok: 0, cached_input_usd_per_mtok: 0 }]\n"
        "prices: { overrides: [{ provider: anthropic, output_per_mtok: 12, request_fee: 0.01 }] }\n"
    )
    return config


def listing(**prices):
    return json.dumps({name: {"litellm_provider": "anthropic", **entry} for name, entry in prices.items()})


def test_every_declared_model_is_shown_with_where_its_price_comes_from(priced, capsys):
    code, out, _ = arbiter(capsys, "show")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["anthropic/sonnet", "3", "0.3", "3.75", "6", "12", "0.01", "0.01"] in lines
    assert ["lan/home", "0", "0", "-", "-", "0", "-", "-"] in lines
    assert "anthropic/sonnet  override #1 on genai-prices 0.2.3 anthropic/claude-sonnet-4-5" in out
    assert "lan/home          models" in out


def test_prices_are_shown_without_a_key(priced, capsys):
    """Whoever looks at prices asks no provider."""
    priced.write_text(priced.read_text().replace("key: k,", 'key: "${UNSET_KEY}",'))
    assert arbiter(capsys, "show", "sonnet")[0] == 0
    assert arbiter(capsys, "check")[0] in (0, 1)
    assert "UNSET_KEY" not in capsys.readouterr().err


def test_one_model_is_shown_by_any_of_its_names(priced, capsys):
    for name in ("sonnet", "anthropic/sonnet", "anthropic/claude-sonnet-4-5-20250929"):
        _, out, _ = arbiter(capsys, "show", name, "--json")
        (shown,) = json.loads(out)
        assert (shown["source"], shown["rate"]["input_usd_per_mtok"]) == ("override", 3.0)
    _, out, _ = arbiter(capsys, "show", "lan/else")
    assert "nobody knows: no price list is asked for this provider" in out
    _, out, _ = arbiter(capsys, "show", "anthropic/sonnet", "--tier", "batch", "--json")
    assert json.loads(out)[0]["rate"]["input_usd_per_mtok"] == 1.5
    code, _, err = arbiter(capsys, "show", "gpt")
    assert code == 1 and "as PROVIDER/MODEL; the providers: anthropic, lan" in err
    code, _, err = arbiter(capsys, "show", "openai/gpt")
    assert code == 1 and '"openai/gpt" is no declared model, and "openai" no provider' in err
    assert "PROVIDER/openai" not in err
    code, _, err = arbiter(capsys, "show", "sonet")
    assert code == 1 and 'did you mean "sonnet"?' in err


def test_where_no_price_is_known_it_says_what_gives_one(priced, capsys):
    _, out, _ = arbiter(capsys, "show", "lan/else")
    assert "A row of `models`" in out and "`priced_as`" in out
    assert "refresh" not in out  # whatever a newer list has, this provider's models are not looked up in it
    _, out, _ = arbiter(capsys, "show", "sonnet")
    assert "arbiter prices refresh" not in out
    priced.write_text("providers: { anthropic: { type: anthropic, key: k, models: [mine] } }\n")
    _, out, _ = arbiter(capsys, "show", "anthropic/nobody-knows")
    assert "A row of `models`" in out and "arbiter prices refresh" in out and "priced_as" not in out


def test_an_imported_list_is_asked_first(priced, tmp_path, capsys):
    """And what is none leaves the one that is there."""
    mine = tmp_path / "mine.json"
    mine.write_text(listing(**{"claude-sonnet-4-5": {"input_cost_per_token": 7e-06, "output_cost_per_token": 0}}))
    code, out, _ = arbiter(capsys, "import", mine)
    assert code == 0 and out.startswith("1 models (litellm, sha256 ") and "data/prices.json" in out
    mine.write_text("<html>")
    code, _, err = arbiter(capsys, "import", mine)
    assert code == 1 and "this is no JSON" in err
    (shown,) = json.loads(arbiter(capsys, "show", "sonnet", "--json")[1])
    assert shown["rate"]["input_usd_per_mtok"] == 7.0 and " on litellm of 20" in shown["price"]
    assert arbiter(capsys, "import", tmp_path / "none")[0] == 1


def test_a_list_is_fetched(priced, capsys):
    with serving() as site:
        site.pages["/p"] = Page(200, listing(**{"claude-x": {"input_cost_per_token": 1e-06}}).encode())
        code, out, _ = arbiter(capsys, "refresh", f"{site.url}/p", "--json")
        assert code == 0 and json.loads(out)["entries"] == 1
        code, _, err = arbiter(capsys, "refresh", f"{site.url}/gone")
        assert code == 1 and err.startswith("arbiter: no newer prices: ") and "answers 404" in err
    assert json.loads(arbiter(capsys, "show", "anthropic/claude-x", "--json")[1])[0]["rate"]["input_usd_per_mtok"] == 1


@pytest.mark.parametrize(
    "url", ["prices", "file:///etc/passwd", "https://[h/x", "https:///x", "https://user:S3CRET@h.example/x"]
)
def test_an_address_that_is_none_is_said_to_be_none(priced, capsys, url):
    """In one line, which does not repeat a password."""
    code, _, err = arbiter(capsys, "refresh", url)
    assert code == 1 and err.startswith("arbiter: no newer prices: ") and err.count("\n") == 1
    assert "S3CRET" not in err


def test_a_stale_list_fails_the_check(priced, tmp_path, capsys, monkeypatch):
    """So that a build or a timer hears of it; a list that is new passes."""
    # Its own newest change may be of today.
    monkeypatch.setattr(GenaiPrices, "newest", lambda _, today: today - datetime.timedelta(days=21))
    priced.write_text(priced.read_text().replace("overrides: [", "max_age: 1d, overrides: ["))
    code, out, err = arbiter(capsys, "check")
    assert code == 1 and out.startswith("genai-prices 0.2.3: of 20") and "out of date" in err
    code, out, _ = arbiter(capsys, "check", "--json")
    assert code == 1 and json.loads(out)["ok"] is False
    mine = tmp_path / "mine.json"
    mine.write_text(listing(m={"input_cost_per_token": 0}))
    arbiter(capsys, "import", mine)
    code, out, _ = arbiter(capsys, "check")
    assert code == 0 and "litellm from" in out and "no price is known" not in out
    priced.write_text(priced.read_text().replace("[home]", "[home, odd]"))
    assert "no price is known of lan/odd" in arbiter(capsys, "check")[1]
    (tmp_path / "data/prices.json").write_text("{")
    assert arbiter(capsys, "check")[0] == 1


def test_a_file_of_the_configuration_is_asked_in_place_of_an_imported_list(priced, tmp_path, capsys):
    mine = tmp_path / "mine.json"
    mine.write_text(listing(m={"input_cost_per_token": 0}))
    priced.write_text(priced.read_text().replace("overrides: [", "source: mine.json, overrides: ["))
    assert "asks" in arbiter(capsys, "import", mine)[1]
    assert arbiter(capsys, "check")[1].startswith("litellm mine.json: of 20")
