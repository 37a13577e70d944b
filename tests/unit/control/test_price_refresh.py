"""Prices that are fetched while the gateway runs, from a real server on loopback."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from arbiter.config.load import parse
from arbiter.control import price_refresh
from arbiter.control.price_refresh import PriceRefresh
from arbiter.ledger import price_files
from arbiter.ledger.pricing import Pricing
from arbiter.ledger.recorder import Batch
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Changer, Position
from arbiter.ledger.tariffs import Tariffs
from arbiter.lines import Prices
from tests.fakes.gateway import until
from tests.fakes.pages import Page, Site, serving
from tests.fakes.rows import attempt_row, request_row


def listing(*models: str) -> bytes:
    entry = {"litellm_provider": "house", "input_cost_per_token": 1e-06, "cache_read_input_token_cost": 0}
    return json.dumps({model: {**entry, "output_cost_per_token": 0} for model in models}).encode()


class Gateway:
    """The control process's parts that have to do with prices, over a real store."""

    def __init__(self, folder: Path, site: Site, refresh: str, query: str = "") -> None:
        text = (
            "providers: { openai: { type: openai, endpoint: 'http://127.0.0.1:9/v1', priced_as: house },"
            " lan: { type: openai, endpoint: 'http://127.0.0.1:9/v1' } }\n"
            f"prices: {{ refresh: {refresh}, refresh_url: '{site.url}/prices{query}' }}\n"
        )
        snapshot = parse(text, "f", {"ARBITER_DATA_DIR": str(folder)})
        self.pricing = snapshot.pricing
        self.store = SqliteStore(folder / "a.db")
        self.changer = Changer(lambda: SqliteStore(folder / "a.db"))
        self.tariffs = Tariffs(lambda: snapshot)
        self.told: list[Prices] = []
        self.hears = True
        self.made = lambda: PriceRefresh(lambda: snapshot, self.tariffs, self.changer, self.hear)
        self.refresh = self.made()
        self.stage = Pricing(self.tariffs, missing=self.refresh.missing)
        self.rows = 0

    def hear(self, prices: Prices) -> bool:
        if self.hears:
            self.told.append(prices)
        return self.hears

    def record(self, model: str, provider: str = "openai") -> str:
        """A request of a model, stored as the recorder does."""
        self.rows += 1
        request = request_row(self.rows)
        attempt = attempt_row(request, model_asked=model, provider=provider)
        batch = Batch([request], [attempt])
        self.stage.take(batch, self.store)
        self.store.write([request, attempt], Position("j", self.rows))
        self.stage.stored(batch)
        return request.id

    def cost(self, request_id: str) -> int | None:
        entry = self.store.request(request_id)
        assert entry is not None
        return entry.request.cost_pd


@pytest.fixture
def site() -> Any:
    with serving() as one:
        one.pages["/prices"] = Page(200, listing("gpt-5.2"))
        yield one


@pytest.fixture
def gateway(tmp_path: Path, site: Site) -> Any:
    one = Gateway(tmp_path, site, "6h")
    yield one
    one.store.close()
    one.changer.close()


def test_nothing_is_fetched_where_nobody_asked_for_it(tmp_path: Path, site: Site) -> None:
    gateway = Gateway(tmp_path, site, "off")
    gateway.record("gpt-5.2")
    gateway.refresh.look()
    assert site.asked == []
    gateway.store.close()


def test_the_query_of_the_address_is_sent_and_not_logged(
    tmp_path: Path, site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch that fails says where it was, without the token it was asked with; so does one that does not."""
    monkeypatch.setattr(price_refresh, "BACK_OFF_S", 0.0)
    gateway = Gateway(tmp_path, site, "6h", query="?token=S3CRET-word")
    with caplog.at_level(logging.INFO):
        site.pages["/prices"] = Page(500, b"")
        gateway.refresh.look()
        site.pages["/prices"] = Page(200, listing("gpt-5.2"))
        gateway.refresh.look()
    gateway.store.close()
    gateway.changer.close()
    assert site.asked == ["/prices?token=S3CRET-word"] * 2
    told = [str(vars(record)) for record in caplog.records]
    assert len(told) == 2 and all(f"{site.url}/prices" in one and "S3CRET" not in one for one in told)


def test_a_model_without_a_price_has_one_looked_up_and_its_rows_priced(gateway: Gateway, site: Site) -> None:
    """One fetch, however many rows wait; from then on the model has its price at once."""
    waiting = [gateway.record("gpt-5.2") for _ in range(3)]
    assert [gateway.cost(one) for one in waiting] == [None] * 3
    gateway.refresh.look()
    assert [gateway.cost(one) for one in waiting] == [1_200_000_000] * 3
    assert gateway.cost(gateway.record("gpt-5.2")) == 1_200_000_000
    gateway.refresh.look()
    assert site.asked == ["/prices"]
    shown = gateway.refresh.describe()
    assert (shown["entries"], shown["error"], shown["origin"]) == (1, None, f"{site.url}/prices")


def test_a_model_that_a_new_list_does_not_know_is_left_alone(
    gateway: Gateway, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a day; and so is one at an address of one's own, which no list can know."""
    monkeypatch.setattr(price_refresh, "BACK_OFF_S", 0.0)
    gateway.record("odd")
    gateway.refresh.look()
    gateway.record("odd")
    gateway.record("gpt-5.2", provider="lan")
    gateway.refresh.look()
    assert site.asked == ["/prices"]
    gateway.record("strange")
    gateway.refresh.look()
    assert len(site.asked) == 2


def test_a_list_is_fetched_again_when_it_is_old(gateway: Gateway, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not before: a gateway that restarts does not fetch what is new enough."""
    monkeypatch.setattr(price_refresh, "BACK_OFF_S", 0.0)
    gateway.refresh.look()
    gateway.refresh.look()
    assert len(site.asked) == 1
    kept = json.loads(gateway.pricing.stored.read_bytes())
    kept["fetched_ms"] -= 6 * 3_600_000
    gateway.pricing.stored.write_text(json.dumps(kept))
    site.pages["/prices"] = Page(200, listing("gpt-5.2", "new"))
    gateway.refresh.look()
    assert len(site.asked) == 2 and gateway.cost(gateway.record("new")) is not None


def test_the_last_good_list_stays_while_fetching_fails(gateway: Gateway, site: Site) -> None:
    """It is tried again after a while, not in a storm; the state says what went wrong."""
    price_files.keep(gateway.pricing.stored, listing("gpt-5.2"), "by hand")
    site.pages["/prices"] = Page(503, b"later")
    gateway.record("odd")
    gateway.refresh.look()
    gateway.refresh.look()
    assert len(site.asked) == 1
    assert "answers 503" in gateway.refresh.describe()["error"]
    assert gateway.cost(gateway.record("gpt-5.2")) == 1_200_000_000


def test_a_list_that_was_imported_is_taken_up(tmp_path: Path, site: Site) -> None:
    gateway = Gateway(tmp_path, site, "off")
    assert gateway.cost(gateway.record("gpt-5.2")) is None
    price_files.keep(gateway.pricing.stored, listing("gpt-5.2"), "by hand")
    gateway.refresh.look()
    assert gateway.cost(gateway.record("gpt-5.2")) == 1_200_000_000
    gateway.store.close()


def test_a_bug_costs_one_look_and_not_the_thread(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else prices would age for ever, and nobody would hear of it."""
    monkeypatch.setattr(price_refresh, "LOOK_EVERY_S", 0.01)
    looks = iter(range(1000))
    stamp = price_files.stamp

    def broken(path: Path) -> Any:
        if next(looks) < 3:
            raise RuntimeError("a bug")
        return stamp(path)

    gateway.refresh = gateway.made()
    monkeypatch.setattr(price_files, "stamp", broken)
    gateway.refresh.start()
    until(lambda: gateway.told and gateway.told[-1].fetched_ms is not None, "a fetch")
    gateway.refresh.stop()
    failed = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(failed) == 1 and failed[0].fields["chore"] == "prices"  # type: ignore[attr-defined]


def test_the_supervisor_is_told_of_prices_when_there_is_news(
    gateway: Gateway, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept and how the last fetch went, once each; and again where nobody took it."""
    monkeypatch.setattr(price_refresh, "BACK_OFF_S", 0.0)
    gateway.refresh.look()
    gateway.refresh.look()
    (first,) = gateway.told
    assert (first.entries, first.outcome, first.tried_ms is not None) == (1, "ok", True)
    site.pages["/prices"] = Page(503, b"later")
    gateway.record("odd")
    gateway.hears = False
    gateway.refresh.look()
    gateway.hears = True
    gateway.refresh.look()
    failed = gateway.told[-1]
    assert (failed.entries, failed.fetched_ms, failed.outcome) == (1, first.fetched_ms, "failed")
    gateway.pricing.stored.write_text("{")
    monkeypatch.setattr(price_refresh, "BACK_OFF_S", 900.0)
    gateway.refresh.look()
    assert (gateway.told[-1].entries, gateway.told[-1].fetched_ms, len(gateway.told)) == (None, None, 3)


def test_that_there_are_no_prices_but_those_of_the_release_is_told_too(tmp_path: Path, site: Site) -> None:
    """And a list that is imported later, where nothing is ever fetched."""
    gateway = Gateway(tmp_path, site, "off")
    gateway.refresh.look()
    assert gateway.told == [Prices()]
    price_files.keep(gateway.pricing.stored, listing("a", "b"), "by hand")
    gateway.refresh.look()
    assert (gateway.told[-1].entries, gateway.told[-1].tried_ms, gateway.told[-1].outcome) == (2, None, None)
    gateway.store.close()
    gateway.changer.close()
