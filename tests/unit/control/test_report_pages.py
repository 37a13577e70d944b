"""The pages of cost and of caches: what the commands tell, and a way from each sum to what it is made of."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from arbiter.control import show
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position, QueryTooSlow, Reader, StoreDown
from tests.fakes.rows import attempt_row, request_row
from tests.unit.control.test_admin import OverUnix, Site, site


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Site]:
    """Three calls of today: a dear one that lost its cache, a cheap one that went back, and one without a price."""
    store, now_ms = SqliteStore(tmp_path / "arbiter.db"), time.time_ns() // 1_000_000
    priced = {"cost_source": "catalog", "pricing_available": True}
    miss = {"cache_verdict": "miss", "cache_lost_tokens": 34_000, "cache_lost_pd": 117_300_000_000}
    rewind = {"cache_verdict": "rewind", "cache_lost_tokens": 9_000, "cache_lost_in": "messages 3-8"}
    rows = []
    for number, client, fields in (
        (1, "ada", {"model_asked": "big", "provider": "north", "cost_pd": 3 * 10**12, **priced, **miss}),
        (2, "bob & <i>", {"model_asked": "small", "provider": "south", "cost_pd": 5 * 10**11, **priced, **rewind}),
        (3, "ada", {"model_asked": "odd", "provider": "south", "cost_source": "unpriced"}),
    ):
        request = request_row(number, received_ms=now_ms, client=client, session=f"s/{number}")
        rows += [request, attempt_row(request, started_ms=now_ms, **fields)]
    store.write(rows, Position("j", 1))
    with site(tmp_path, Reader(lambda: SqliteStore(tmp_path / "arbiter.db", readonly=True))) as one:
        yield one
    store.close()


def heads(page: str) -> list[str]:
    """What stands at the beginning of each row."""
    found = re.findall(r'<th scope="row">(.*?)</th>', page, re.DOTALL)
    return [html.unescape(re.sub("<[^>]*>", "", one)).strip() for one in found]


def links(page: str) -> list[str]:
    """Where the rows lead."""
    return [html.unescape(one) for one in re.findall(r'<th scope="row"><a href="([^"]*)"', page)]


def test_every_page_leads_to_what_was_spent_and_what_was_lost(running: Site) -> None:
    for path in ("", "sessions", "limits", "cost", "cache", "requests/r00000001"):
        page = running.page(f"/admin/ui/{path}")
        assert '<a href="/admin/ui/cost"' in page and '<a href="/admin/ui/cache"' in page


def test_the_most_expensive_come_first_and_what_nobody_priced_is_said(running: Site) -> None:
    page = running.page("/admin/ui/cost")
    assert heads(page) == ["big", "small", "odd", "all"]
    assert "<strong>$3.50</strong> for 3 requests" in page
    assert "1 attempt has no price, and is not in the sum." in page and "arbiter prices check" in page
    assert "catalog ($3.50, 100% of it, 2 attempts)" in page


@pytest.mark.parametrize(
    ("by", "found"),
    [
        ("provider", ["north", "south", "all"]),
        ("client", ["ada", "bob & <i>", "all"]),
        ("session", ["s/1", "s/2", "s/3", "all"]),
    ],
)
def test_the_sum_is_split_by_whatever_is_asked(running: Site, by: str, found: list[str]) -> None:
    page = running.page(f"/admin/ui/cost?by={by}")
    assert heads(page) == found and "<i>" not in page


def test_each_part_leads_to_what_it_is_made_of(running: Site) -> None:
    """From a client to its models, from a model of a client to its days."""
    page = running.page("/admin/ui/cost?by=client")
    assert links(page)[0] == "/admin/ui/cost?by=model&client=ada"
    page = running.page(links(page)[0])
    assert heads(page) == ["big", "odd", "all"] and links(page)[0] == "/admin/ui/cost?by=day&client=ada&model=big"
    (day, *_) = heads(running.page(links(page)[0]))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day)
    assert links(running.page("/admin/ui/cost?by=session"))[0] == "/admin/ui/?session=s%2F1"


def test_what_is_left_out_is_counted_and_can_be_had(running: Site) -> None:
    page = running.page("/admin/ui/cost?by=session&limit=1")
    assert heads(page) == ["s/1", "all"] and "2 rows more" in page
    assert 'href="/admin/ui/cost?by=session&amp;limit=500"' in page


def test_why_caches_were_missed_stands_beside_what_it_cost(running: Site) -> None:
    """What nothing explains comes first; each loss leads to its request."""
    page = running.page("/admin/ui/cache")
    assert heads(page)[:2] == ["miss", "rewind"]
    assert "nothing differs: the provider forgot" in page and "somebody went back in the conversation" in page
    assert "$0.1173" in page and "messages 3-8" in page
    assert links(page)[0] == "/admin/ui/cache?cause=miss" and "/admin/ui/requests/r00000001" in links(page)
    narrowed = running.page("/admin/ui/cache?cause=rewind&by=client")
    assert "/admin/ui/requests/r00000001" not in narrowed and "/admin/ui/requests/r00000002" in narrowed
    assert "bob &amp; &lt;i&gt;" in narrowed and "<i>" not in narrowed


def test_a_wrong_filter_is_named_and_there_is_a_way_back(running: Site) -> None:
    for path, wrong in (("cost", "by=colour"), ("cache", "since=soon"), ("cache", "colour=red")):
        page = running.page(f"/admin/ui/{path}?{wrong}", 400)
        assert wrong.partition("=")[0] in page and f'href="/admin/ui/{path}"' in page


def called_itself(page: str) -> set[str]:
    """What a page says that it is: by its title, its heading and the view that is marked."""
    title, heading = re.search(r"<title>(.*?) · Arbiter", page), re.search(r"<h1>(.*?)</h1>", page)
    marked = re.findall(r'aria-current="page">(.*?)<', page)
    assert title is not None and heading is not None and len(marked) == 1
    return {title[1], heading[1], *marked}


@pytest.mark.parametrize(
    ("path", "name"), [("", "Requests"), ("sessions", "Sessions"), ("cost", "Cost"), ("cache", "Cache")]
)
def test_a_page_that_cannot_be_shown_says_which_one_it_is(tmp_path: Path, path: str, name: str) -> None:
    """Without a store, with a wrong filter, with a store that is down, and with one that is too slow."""

    def failing(error: Exception) -> Reader:
        def opened() -> SqliteStore:
            raise error

        return Reader(opened)

    with site(tmp_path, None, None) as one:
        page = one.page(f"/admin/ui/{path}", 503)
        assert called_itself(page) == {name} and "sqlite:///data/arbiter.db" in page
    for error in (StoreDown("no such disk"), QueryTooSlow("more than 5 s")):
        with site(tmp_path, failing(error)) as one:
            assert called_itself(one.page(f"/admin/ui/{path}", 503)) == {name}
    store = SqliteStore(tmp_path / "arbiter.db")
    with site(tmp_path, store) as one:
        assert called_itself(one.page(f"/admin/ui/{path}?since=soon", 400)) == {name}
    store.close()


def test_a_cache_that_lost_nothing_is_said_to_have_lost_nothing(tmp_path: Path) -> None:
    store, now_ms = SqliteStore(tmp_path / "arbiter.db"), time.time_ns() // 1_000_000
    request = request_row(1, received_ms=now_ms)
    store.write(
        [request, attempt_row(request, started_ms=now_ms, cached_tokens=900, input_tokens=100)], Position("j", 1)
    )
    with site(tmp_path, store) as one:
        page = one.page("/admin/ui/cache")
        assert "Nothing was lost.</p>" in page and "Lost:" not in page
    store.close()


def test_a_count_that_is_not_whole_is_explained_below_it(tmp_path: Path) -> None:
    store, now_ms = SqliteStore(tmp_path / "arbiter.db"), time.time_ns() // 1_000_000
    rows = []
    for number, fields in ((1, {"output_tokens": 7}), (2, {"output_tokens": None})):
        request = request_row(number, received_ms=now_ms)
        rows += [request, attempt_row(request, started_ms=now_ms, input_tokens=5, **fields)]
    store.write(rows[:2], Position("j", 1))
    with site(tmp_path, store) as one:
        assert "≥" not in one.page("/admin/ui/cost")
        store.write(rows[2:], Position("j", 2))
        page = one.page("/admin/ui/cost")
        assert "≥7<" in page and show.AT_LEAST in page
    store.close()


def test_an_empty_page_says_what_will_stand_there(tmp_path: Path) -> None:
    """Nothing spent, nothing recorded and a store that is down are three things."""
    store = SqliteStore(tmp_path / "arbiter.db")
    with site(tmp_path, store) as one:
        assert "Nothing was spent" in one.page("/admin/ui/cost") and "Nothing is known" in one.page("/admin/ui/cache")
    with site(tmp_path, None, None) as one:
        assert "Nothing is recorded" in one.page("/admin/ui/cost", 503)

    def down() -> SqliteStore:
        raise StoreDown("no such disk")

    with site(tmp_path, Reader(down)) as one:
        assert "no such disk" in one.page("/admin/ui/cache", 503)


def test_a_browser_at_a_page_that_is_not_there_gets_a_page(running: Site) -> None:
    """And a program, or whoever asks the API, the JSON that all of them have."""
    for path, accept, kind in (
        ("/admin/ui/costs<i>", "text/html,*/*", "text/html; charset=utf-8"),
        ("/admin/ui/costs", "*/*", "application/json"),
        ("/admin/api/costs", "text/html", "application/json"),
    ):
        connection = OverUnix(running.path)
        connection.request("GET", quote(path), headers={"accept": accept})
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        assert (answer.status, answer.headers["content-type"]) == (404, kind), path
        assert ("costs&lt;i&gt;" in body and 'href="/admin/ui/cost"' in body) == (kind != "application/json")
