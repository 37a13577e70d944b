"""The list that is kept: replaced whole, or not at all; and how it gets here."""

from __future__ import annotations

import datetime
import json
import threading
import time

import pytest

from arbiter import clock
from arbiter.accounting.price_formats import BadPrices
from arbiter.config import spoken
from arbiter.config.rates import Pricing
from arbiter.ledger import fetch, price_fetch, price_files
from arbiter.ledger.fetch import Unfetched
from tests.fakes.pages import Page, serving


def raw(price: float = 1e-06) -> bytes:
    return json.dumps({"m": {"litellm_provider": "openai", "input_cost_per_token": price}}).encode()


def find(pricing: Pricing) -> list[int | None]:
    """What each list asks for the model, in their order."""
    found = [prices.find("openai", "m", "", 0) for prices in price_files.load(pricing)]
    return [listed.rates[0].input if listed is not None else None for listed in found]


def test_what_is_kept_is_asked_before_the_releases_own(tmp_path):
    pricing = Pricing(stored=tmp_path / "deep/prices.json")
    assert price_files.stored(pricing.stored) is None and len(price_files.load(pricing)) == 1
    kept = price_files.keep(pricing.stored, raw(), "a file")
    assert (kept.format, kept.origin, kept.entries) == ("litellm", "a file", 1)
    assert find(pricing) == [1_000_000, None]
    first = price_files.load(pricing)[0]
    assert first.name.startswith("litellm of 20") and first.name.endswith(kept.sha256[:8])


@pytest.mark.parametrize("years", [0, 3])
def test_the_releases_list_does_not_become_newer_by_prices_that_it_scheduled(tmp_path, monkeypatch, years):
    """It dates changes of days to come. When one of them has come, nobody has looked at the list since."""
    later_ms = clock.now_ms() + years * 366 * 86_400_000
    monkeypatch.setattr(clock, "now_ms", lambda: later_ms)
    _, of_ms = price_files.age(Pricing(stored=tmp_path / "prices.json"))
    of = datetime.datetime.fromtimestamp(of_ms / 1000, datetime.UTC).date()
    assert datetime.date(2026, 1, 1) < of <= spoken.AS_OF


def test_what_is_no_list_changes_nothing(tmp_path):
    """The last good one stays, and nothing is left lying about."""
    pricing = Pricing(stored=tmp_path / "prices.json")
    price_files.keep(pricing.stored, raw(), "good")
    with pytest.raises(BadPrices):
        price_files.keep(pricing.stored, b"<html>not found</html>", "bad")
    assert find(pricing) == [1_000_000, None]
    assert [path.name for path in tmp_path.iterdir()] == ["prices.json"]


@pytest.mark.parametrize("damage", [b'{"format": "litellm"', b"\xff", b"9" * 18, b"-1"], ids=repr)
def test_a_damaged_file_costs_its_prices_only(tmp_path, damage):
    pricing = Pricing(stored=tmp_path / "prices.json")
    if damage.lstrip(b"-").isdigit():  # a moment that no calendar has
        kept = price_files.keep(pricing.stored, raw(), "good")
        damage = pricing.stored.read_bytes().replace(b"%d" % kept.fetched_ms, damage)
    pricing.stored.write_bytes(damage)
    assert find(pricing) == [None]
    with pytest.raises(BadPrices, match="damaged"):
        price_files.age(pricing)


def test_a_file_of_the_configuration_takes_the_place_of_all_lists(tmp_path):
    pricing = Pricing(stored=tmp_path / "prices.json", source=tmp_path / "mine.json")
    price_files.keep(pricing.stored, raw(), "x")
    (tmp_path / "mine.json").write_bytes(raw(2e-06))
    assert find(pricing) == [2_000_000]
    assert price_files.age(pricing)[0] == "litellm mine.json"
    (tmp_path / "mine.json").unlink()
    assert price_files.load(pricing) == []
    with pytest.raises(BadPrices, match="cannot be read"):
        price_files.age(pricing)


def test_the_age_of_the_releases_list_is_that_of_its_newest_price(tmp_path):
    name, of_ms = price_files.age(Pricing(stored=tmp_path / "none.json"))
    assert name.startswith("genai-prices ") and 1_767_225_600_000 < of_ms < clock.now_ms()


def test_a_list_is_fetched_and_kept(tmp_path):
    path = tmp_path / "prices.json"
    with serving() as site:
        site.pages["/p"] = Page(200, raw())
        kept = price_fetch.refresh(path, f"{site.url}/p?token=secret")
        assert kept.origin == f"{site.url}/p" and "secret" not in path.read_text()
        site.pages["/p"] = Page(200, b"<html>")
        with pytest.raises(BadPrices):
            price_fetch.refresh(path, f"{site.url}/p")
        with pytest.raises(Unfetched, match="answers 404"):
            price_fetch.refresh(path, f"{site.url}/gone")
        # Nobody is followed elsewhere.
        site.pages["/moved"] = Page(302, b"", {"location": f"{site.url}/p"})
        with pytest.raises(Unfetched, match="answers 302"):
            price_fetch.refresh(path, f"{site.url}/moved")
        assert site.asked.count("/p") == 1
    with pytest.raises(Unfetched):
        price_fetch.refresh(path, f"{site.url}/p")
    found = price_files.stored(path)
    assert found is not None and found.sha256 == kept.sha256


def test_a_bug_in_a_fetch_is_told_and_not_taken_for_a_slow_server(monkeypatch, caplog):
    def broken(*handlers: object) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(fetch.urllib.request, "build_opener", broken)
    with pytest.raises(Unfetched, match="a bug"):
        fetch.get("http://127.0.0.1:9/", timeout_s=60, limit_bytes=1)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_fetch_is_bounded_in_time_and_size():
    """Also where the server says nothing at all."""
    hold = threading.Event()
    with serving() as site:
        site.pages["/large"] = Page(200, b"x" * 5000)
        with pytest.raises(Unfetched, match="over 4000 bytes"):
            fetch.get(f"{site.url}/large", timeout_s=10, limit_bytes=4000)
        assert fetch.get(f"{site.url}/large", timeout_s=10, limit_bytes=5000).body == b"x" * 5000
        site.pages["/slow"] = Page(hold=hold)
        began = time.monotonic()
        with pytest.raises(Unfetched, match=r"within 0\.2 s|timed out"):
            fetch.get(f"{site.url}/slow", timeout_s=0.2, limit_bytes=10)
        assert time.monotonic() - began < 8
        hold.set()
