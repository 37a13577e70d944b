"""The administration over its real socket: a real server, a real store, plain HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arbiter.config.load import parse
from arbiter.config.snapshot import Snapshot
from arbiter.control.app import make_app
from arbiter.control.main import listen
from arbiter.control.show import APPROXIMATE, usd
from arbiter.ledger.recorder import RecorderState
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position, QueryTooSlow, Reader
from tests.fakes.admin import serving
from tests.fakes.rows import attempt_row, request_row

ROOT = Path(__file__).resolve().parents[3]
CONFIG = """
providers:
  openai: { type: openai, key: sk-test-0123456789, endpoint: "http://127.0.0.1:9911/v1", models: [gpt-5.2] }
"""


class OverUnix(http.client.HTTPConnection):
    """An HTTP client on a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("control", timeout=30)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Site:
    """A running administration, and how to ask it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, target: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
        connection = OverUnix(self.path)
        try:
            connection.request(method, target)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()

    def json(self, target: str, status: int = 200) -> Any:
        found, headers, body = self.get(target)
        assert (found, headers["content-type"]) == (status, "application/json"), body
        return json.loads(body)

    def page(self, target: str = "/admin/ui/", status: int = 200) -> str:
        found, headers, body = self.get(target)
        assert (found, headers["content-type"]) == (status, "text/html; charset=utf-8"), body
        return body


@contextlib.contextmanager
def site(tmp_path: Path, store: Any, state: Any = RecorderState, **options: Any) -> Iterator[Site]:
    with serving(make_app(store, state, snapshot, **options), listen(tmp_path / "control.sock")):
        yield Site(tmp_path / "control.sock")
    if store is not None:
        store.close()


def snapshot(text: str = CONFIG) -> Snapshot:
    return parse(text, "arbiter.yaml", {})


def filled(tmp_path: Path) -> Reader:
    """A store with one request that went well, one that failed twice, and one that was cut off."""
    path = tmp_path / "arbiter.db"
    store = SqliteStore(path)
    priced = {"cost_pd": 3_532_000_000}
    ok = request_row(1, client_trace_id="mine", **priced)
    failed = request_row(
        2, outcome="error", status=502, error_class="transport", message="refused <b>&", provider=None, attempts=2,
        model_asked="<script>alert(1)</script>", client=None,
    )  # fmt: skip
    cut = request_row(
        3, outcome="interrupted", status=None, total_us=None, first_byte_us=None, finished_ms=None,
        session="s-1", affinity_key="0f" * 16,
    )  # fmt: skip
    gone = {"outcome": "error", "status": None, "usage_source": "missing", "headers_us": None, "first_event_us": None}
    gone |= {"last_event_us": None, "input_tokens": None, "cached_tokens": None, "output_tokens": None, "events": None}
    store.write(
        [
            ok,
            attempt_row(ok, **priced, cost_source="model_config", pricing_available=True),
            failed,
            attempt_row(failed, 1, **gone),
            attempt_row(failed, 2, **gone, provider="spare", message="no route to host"),
            cut,
            attempt_row(cut, **gone | {"outcome": "interrupted", "queue_us": None, "connect_us": None}, total_us=None),
        ],
        Position("j", 7),
    )
    store.close()
    return Reader(lambda: SqliteStore(path, readonly=True))


@pytest.fixture
def running(tmp_path):
    with site(tmp_path, filled(tmp_path)) as one:
        yield one


def ids(answer: Any) -> list[str]:
    return [request["id"] for request in answer["requests"]]


def test_requests_come_newest_first_with_their_tokens_added_up(running):
    answer = running.json("/admin/api/requests")
    assert ids(answer) == ["r00000003", "r00000002", "r00000001"]
    assert answer["next"] is None
    newest, failed, ok = answer["requests"]
    assert (ok["input_tokens"], ok["cached_tokens"], ok["output_tokens"]) == (1200, 800, 64)
    assert failed["input_tokens"] is None and newest["total_us"] is None
    assert "attempt_rows" not in ok


def test_a_cost_comes_in_dollars_beside_the_exact_number(running):
    """Unknown is null, for the request and for its attempts."""
    ok = running.json("/admin/api/requests/r00000001")
    assert (ok["cost_pd"], ok["cost_usd"]) == (3_532_000_000, 0.003532)
    (attempt,) = ok["attempt_rows"]
    assert (attempt["cost_pd"], attempt["cost_usd"], attempt["cost_source"]) == (
        3_532_000_000,
        0.003532,
        "model_config",
    )
    failed = running.json("/admin/api/requests/r00000002")
    assert failed["cost_usd"] is None and failed["attempt_rows"][0]["cost_usd"] is None


@pytest.mark.parametrize(
    ("pd", "shown"),
    [
        (None, "–"),
        (0, "$0.00"),
        (1, "$0.000000000001"),
        (120_000, "$0.00000012"),
        (3_532_000_000, "$0.003532"),
        (99_999_999_999, "$0.10"),
        (500_000_000_000, "$0.50"),
        (5_104_500_000_000, "$5.1045"),
        (1_234_567_891_234_567, "$1,234.5679"),
    ],
)
def test_money_has_the_digits_that_tell_it_from_nothing(pd, shown):
    """Four of them and never less than cents: a call for a hundredth of a cent is not free."""
    assert usd(pd) == shown


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("trace=mine", ["r00000001"]),
        ("trace=00000000", ["r00000003", "r00000002", "r00000001"]),
        (f"trace={2:032x}", ["r00000002"]),
        ("provider=spare", ["r00000002"]),
        ("client=ci", ["r00000003", "r00000001"]),
        ("status=502", ["r00000002"]),
        ("errors=true", ["r00000003", "r00000002"]),
        ("since=1790000002000", ["r00000003", "r00000002"]),
        ("session=s-1", ["r00000003"]),
        ("session=s", []),
        (f"affinity_key={'0f' * 16}", ["r00000003"]),
        ("limit=1", ["r00000003"]),
    ],
)
def test_each_filter_narrows_the_list(running, asked, found):
    assert ids(running.json(f"/admin/api/requests?{asked}")) == found


def test_a_cursor_leads_through_all_pages(running):
    seen, cursor = [], ""
    while cursor is not None:
        answer = running.json(f"/admin/api/requests?limit=1{cursor and '&cursor=' + cursor}")
        seen += ids(answer)
        cursor = answer["next"]
    assert seen == ["r00000003", "r00000002", "r00000001"]


@pytest.mark.parametrize(
    "asked", ["limit=0", "limit=501", "status=x", "errors=maybe", "since=x", "cursor=x", "colour=1"]
)
def test_a_malformed_parameter_is_a_400_that_names_it(running, asked):
    answer = running.json(f"/admin/api/requests?{asked}", 400)
    assert answer["code"] == 400
    assert answer["parameter"] == asked.partition("=")[0] and answer["parameter"] in answer["detail"]


def test_a_parameter_given_twice_is_not_guessed_at(running):
    assert running.json("/admin/api/requests?limit=1&limit=2", 400)["parameter"] == "limit"


def test_one_request_brings_its_attempts(running):
    answer = running.json("/admin/api/requests/r00000002")
    assert answer["outcome"] == "error"
    assert [attempt["provider"] for attempt in answer["attempt_rows"]] == ["openai", "spare"]
    assert running.json("/admin/api/requests/nobody", 404) == {"code": 404, "detail": "there is no request of this id"}


def test_the_state_tells_versions_books_and_whatever_others_add(tmp_path):
    state = RecorderState(depth=3, open=1, recorded=9, workers=[{"pid": 7, "key": "k", "alive": True}])
    with site(tmp_path, filled(tmp_path), lambda: state, extra=lambda: {"streams": 12}) as one:
        answer = one.json("/admin/api/state")
    assert answer["epoch"] == snapshot().epoch
    assert answer["control"]["pid"] == os.getpid() and answer["control"]["uptime_s"] >= 0
    assert answer["store"] == {"healthy": True, "reason": "", "requests_about": 3, "attempts_about": 4}
    assert answer["journal"]["depth"] == 3 and answer["recorder"]["recorded"] == 9
    assert answer["workers"] == [{"pid": 7, "key": "k", "alive": True}]
    assert answer["streams"] == 12
    assert "sk-test" not in json.dumps(answer)


def test_nothing_recorded_is_not_the_same_as_nothing_happened(tmp_path):
    """Store off: 503 with a reason a program can tell from an empty list and from a store that is down."""
    with site(tmp_path, None, None) as one:
        for target in ("/admin/api/requests", "/admin/api/requests/x"):
            assert one.json(target, 503)["reason"] == "storage_off"
        assert one.json("/admin/api/state")["storage"]["on"] is False
        assert "storage:" in one.page(status=503)
        assert one.get("/admin/ui/requests")[0] == 503
    place = tmp_path / "nowhere.db"
    with site(tmp_path, Reader(lambda: SqliteStore(place, readonly=True))) as one:
        assert one.json("/admin/api/requests", 503)["reason"] == "store_down"
        assert one.json("/admin/api/state")["store"]["healthy"] is False
        assert "cannot be read" in one.page(status=503)
        SqliteStore(place).close()  # it came back: no restart needed
        assert one.json("/admin/api/requests") == {"requests": [], "next": None}
        assert "No request yet" in one.page()


class Slow:
    """A store whose every question takes too long."""

    def _ask(self, *_: Any) -> Any:
        raise QueryTooSlow("this takes more than 5 s: narrow the filters")

    requests = request = counts = _ask

    def close(self) -> None:
        pass


def test_a_question_that_takes_too_long_is_told_from_a_store_that_is_down(tmp_path):
    with site(tmp_path, Slow()) as one:
        for target in ("/admin/api/requests?provider=openai", "/admin/api/requests/x"):
            answer = one.json(target, 503)
            assert answer["reason"] == "query_too_slow" and "narrow the filters" in answer["detail"]
        store = one.json("/admin/api/state")["store"]
        assert (store["healthy"], store["requests_about"]) == (True, None)
        page = one.page("/admin/ui/?provider=openai", 503)
        assert "narrow the filters" in page and "cannot be read" not in page
        assert one.get("/admin/ui/requests")[0] == 503


def test_unknown_paths_and_methods_answer_in_one_shape(running):
    assert running.json("/admin/api/nothing", 404) == {"code": 404, "detail": "Not Found"}
    assert running.json("/admin/api/state/", 404) == {"code": 404, "detail": "Not Found"}  # never redirected
    status, headers, body = running.get("/admin/api/requests", "DELETE")
    assert (status, json.loads(body)) == (405, {"code": 405, "detail": "Method Not Allowed"})
    assert "GET" in headers["allow"]


def test_a_fault_of_ours_is_a_500_without_its_traceback(tmp_path, caplog):
    def broken():
        raise RuntimeError("secret detail")

    with site(tmp_path, filled(tmp_path), broken) as one:
        assert one.json("/admin/api/state", 500) == {"code": 500, "detail": "Internal Server Error"}
        assert one.json("/admin/api/requests")["next"] is None
    assert "secret detail" in caplog.text


def test_the_page_shows_each_request_and_opens_to_its_attempts(running):
    page = running.page()
    assert re.findall(r'id="row-(\w+)"', page) == ["r00000003", "r00000002", "r00000001"]
    opened = running.page("/admin/ui/requests/r00000002")
    assert 'data-request="r00000002"' in opened and 'id="row-r00000001"' in opened
    assert "Attempt 1" in opened and "Attempt 2" in opened and "no route to host" in opened
    alone = running.page("/admin/ui/requests/r00000001?fragment=1")
    assert "<html" not in alone and "waited for the response" in alone and "<rect" in alone
    assert "without timings" in running.page("/admin/ui/requests/r00000003?fragment=1")
    assert "No such request" in running.page("/admin/ui/requests/nobody", 404)


def test_a_page_asked_for_by_a_trace_id_is_the_requests_page(running):
    """People have the id of a header or of a log line; a part of one that several begin with leads to their list."""
    for asked, place in (
        (f"{2:032x}", "/admin/ui/requests/r00000002"),
        (f"{2:032x}?fragment=1", "/admin/ui/requests/r00000002?fragment=1"),
        ("r00000001-1", "/admin/ui/requests/r00000001"),
        ("0" * 12, "/admin/ui/?trace=" + "0" * 12),
    ):
        status, headers, _ = running.get(f"/admin/ui/requests/{asked}")
        assert (status, headers.get("location")) == (302, place)


def test_the_list_says_what_went_wrong_beside_the_status(running):
    page = running.page()
    assert ">502 transport<" in page and ">200 ok<" in page and ">interrupted<" in page
    assert ">502 transport<" in running.page("/admin/ui/requests/r00000002?fragment=1")


def test_the_page_says_in_words_what_an_odd_request_was(tmp_path):
    """No model, an upstream without an address or a connection, a moment too short to tell, counts cut off."""
    path = tmp_path / "arbiter.db"
    store = SqliteStore(path)
    refused = request_row(1, model_asked=None, model=None, provider=None, attempts=0, outcome="error", status=400)
    echo = {"connect_us": None, "headers_us": 20, "first_event_us": None, "last_event_us": None, "total_us": 40}
    short = request_row(2, total_us=60, first_byte_us=30, fidelity="verbatim")
    cut = request_row(3, outcome="cancelled", error_class="client_disconnected", status=499, message="the client left")
    store.write(
        [
            refused,
            short,
            attempt_row(short, provider="echo", endpoint="openai-chat:echo:", upstream_request_id="theirs", **echo),
            cut,
            attempt_row(cut, usage_source="partial", outcome="cancelled", cached_tokens=None),
        ],
        Position("j", 1),
    )
    store.close()
    with site(tmp_path, Reader(lambda: SqliteStore(path, readonly=True))) as one:
        listed = one.page()
        assert listed.count(">~</span>") == 2 and APPROXIMATE in listed
        assert ">499 cancelled<" in listed and ">400 error<" in listed
        assert APPROXIMATE not in one.page("/admin/ui/?status=200")
        nameless = one.page("/admin/ui/requests/r00000001")
        assert "<h2>Request without a model</h2>" in nameless and "<title>Request without a model" in nameless
        echoed = one.page("/admin/ui/requests/r00000002?fragment=1")
        assert ">openai-chat:echo<" in echoed and "Connection" not in echoed
        assert "0.0 ms" not in echoed and "+" not in echoed and echoed.count("&lt; 0.1 ms") >= 2
        assert "<dt>Request sent</dt><dd>verbatim" in echoed and "<dt>Provider's id</dt>" in echoed
        left = one.page("/admin/ui/requests/r00000003?fragment=1")
        assert "<strong>client_disconnected</strong> the client left" in left
        assert ">partial<" in left and "counted until the stream was cut" in left and "<dd>new" in left


def test_the_page_tells_the_conversation_and_why_each_attempt_was_made(tmp_path):
    """What stands in the row stands on the page, where there is something; a plain request has no empty lines."""
    path = tmp_path / "arbiter.db"
    store = SqliteStore(path)
    plain = request_row(1)
    moved = request_row(
        2, session="s 1/2", parent_session="s-0", agent="codex", request_kind="subagent", affinity="moved",
        affinity_key="0f" * 16, warning="thinking <removed>", attempts=2,
    )  # fmt: skip
    limited = {"outcome": "error", "status": 429, "error_class": "rate_limited_transient", "retry_after_ms": 20_000}
    store.write(
        [
            plain,
            attempt_row(plain),
            moved,
            attempt_row(moved, 1, account="team-a", **limited),
            attempt_row(moved, 2, account="team-b", why="key", wait_us=250_000, empty_completion=True),
        ],
        Position("j", 1),
    )
    store.close()
    with site(tmp_path, Reader(lambda: SqliteStore(path, readonly=True))) as one:
        quiet = one.page("/admin/ui/requests/r00000001?fragment=1")
        for name in ("Warning", "Session", "Parent", "Kind", "Pin", "Affinity key", "Why"):
            assert name not in quiet
        told = one.page("/admin/ui/requests/r00000002?fragment=1")
        assert "<strong>Warning</strong> thinking &lt;removed&gt;" in told and ">codex<" in told
        assert "<dt>Kind</dt><dd>subagent<" in told and "<dt>Pin</dt><dd>moved: " in told
        assert 'href="/admin/ui/?session=s%201/2"' in told and 'href="/admin/ui/?session=s-0"' in told
        assert f'href="/admin/ui/?affinity_key={"0f" * 16}"' in told
        assert "openai:team-a <" in told and ">429 rate_limited_transient, asked to wait 20.0 s<" in told
        assert "openai:team-b <" in told and ">200 ok, an empty answer<" in told
        assert "<dt>Why</dt><dd>key: another key of the pool, after waiting 250 ms<" in told
        filtered = one.page("/admin/ui/?session=s-9")
        assert '<input name="session" value="s-9"' in filtered and "Nothing matches" in filtered
        assert 'name="session"' not in one.page() and 'name="affinity_key"' not in one.page()


def test_the_list_has_a_column_for_each_kind_of_tokens(tmp_path):
    """Written beside read: a call that fills the cache costs more than its input says. Unreported is no zero."""
    path = tmp_path / "arbiter.db"
    store = SqliteStore(path)
    for number, written in ((1, 4567), (2, 0), (3, None)):
        request = request_row(number)
        told = {"input_tokens": 7000, "cached_tokens": 1890, "cache_write_tokens": written, "output_tokens": 64}
        store.write([request, attempt_row(request, **told)], Position("j", number))
    store.close()
    with site(tmp_path, Reader(lambda: SqliteStore(path, readonly=True))) as one:
        heads, *rows = one.page().partition("<table")[2].partition("</table")[0].split("<tr>")[1:]
    titles = [re.sub("<[^>]*>", "", head) for head in re.findall("<th.*</th>", heads)]
    of = [dict(zip(titles, re.findall(r"(?s)<t[hd][ >].*?</t[hd]>", row), strict=True)) for row in rows]
    counts = ("In", "Cached", "Written", "Out")
    shown = [[re.sub("<[^>]*>", "", row[name]) for name in counts] for row in of]
    assert shown == [["8,890", "1,890", "–", "64"], ["8,890", "1,890", "0", "64"], ["13,457", "1,890", "4,567", "64"]]


def test_the_page_tells_what_it_cost_and_what_nobody_priced(tmp_path, running):
    """A price that nobody knows is a word, not a zero; where nothing was used there is nothing to price."""
    page = running.page()
    assert page.count(">$0.003532<") == 1 and "unpriced" not in page
    assert "<dt>Cost</dt><dd>$0.003532</dd>" in running.page("/admin/ui/requests/r00000001?fragment=1")
    assert "<dt>Cost" not in running.page("/admin/ui/requests/r00000002?fragment=1")
    path = tmp_path / "more.db"
    store = SqliteStore(path)
    cut, unknown, lacking, uncounted = request_row(1, cost_pd=0), request_row(2), request_row(3), request_row(4)
    store.write(
        [
            *(cut, attempt_row(cut, usage_source="partial", cost_pd=0)),
            *(unknown, attempt_row(unknown)),
            *(lacking, attempt_row(lacking, pricing_available=True)),
            *(uncounted, attempt_row(uncounted, pricing_available=True, output_tokens=None)),
        ],
        Position("j", 1),
    )
    store.close()
    (tmp_path / "other").mkdir()
    with site(tmp_path / "other", Reader(lambda: SqliteStore(path, readonly=True))) as one:
        listed = one.page()
        assert listed.count(">unpriced<") == 3 and "~</span>$0.00<" in listed
        assert "no price of this model is known" in one.page("/admin/ui/requests/r00000002?fragment=1")
        priceless = one.page("/admin/ui/requests/r00000003?fragment=1")
        assert "no price is known of one of input, cached input, output" in priceless
        assert "did not report its output tokens" in one.page("/admin/ui/requests/r00000004?fragment=1")


def test_what_clients_sent_is_text_on_the_page_never_markup(running):
    for target in ("/admin/ui/", "/admin/ui/requests/r00000002", "/admin/ui/?trace=%22%3E%3Cscript%3E"):
        page = running.page(target)
        assert "<script>" not in page and "<b>" not in page
    assert "&lt;script&gt;alert(1)" in running.page()


def test_the_list_answers_204_while_nothing_is_new(running, tmp_path):
    """What the page shows already is not sent again: no flicker, no lost place, no work."""
    again = re.search(r'hx-get="([^"]+)"', running.page())[1].replace("&amp;", "&")
    assert running.get(again)[0] == 204
    store = SqliteStore(tmp_path / "arbiter.db")
    store.write([request_row(9)], Position("j", 8))
    store.close()
    status, _, body = running.get(again)
    assert status == 200 and 'id="row-r00000009"' in body and "<html" not in body
    assert running.get(again.replace("seen=", "trace=mine&seen="))[0] == 200


def test_the_page_filters_as_the_api_does(running):
    page = running.page("/admin/ui/?errors=true&trace=&provider=")
    assert re.findall(r'id="row-(\w+)"', page) == ["r00000003", "r00000002"]
    assert "Nothing matches" in running.page("/admin/ui/?trace=nobody")
    assert "8 characters" in running.page("/admin/ui/?trace=0000000")
    assert "8 characters" not in running.page("/admin/ui/?trace=nobody-at-all")
    for asked, name in (("status=x", "status"), ("limit=foo", "limit"), ("colour=1", "colour")):
        assert f"{name}: " in running.page(f"/admin/ui/?{asked}", 400)
        assert f"{name}: " in running.page(f"/admin/ui/requests/r00000001?{asked}", 400)
    assert "trace: given more than once" in running.page("/admin/ui/?trace=a&trace=b", 400)
    assert running.get("/admin/ui/requests?status=x")[0] == 400


def test_an_empty_page_suggests_a_group_in_the_format_of_its_first_target(tmp_path):
    """However deep in groups of groups that stands."""
    text = """
providers:
  claude: { type: anthropic, key: sk-test-0123456789, models: [c] }
aliases:
  outer: { group: [inner, claude/c] }
  inner: { group: [claude/c] }
"""
    store = SqliteStore(tmp_path / "arbiter.db")
    app = make_app(store, RecorderState, lambda: snapshot(text))
    with serving(app, listen(tmp_path / "control.sock")):
        page = Site(tmp_path / "control.sock").page()
    store.close()
    assert "outer" in page and "/v1/messages" in page


def test_an_empty_page_says_what_to_do(tmp_path):
    path = tmp_path / "arbiter.db"
    SqliteStore(path).close()
    with site(tmp_path, Reader(lambda: SqliteStore(path, readonly=True))) as one:
        page = one.page()
    assert "No request yet" in page
    assert "curl" in page and "/v1/chat/completions" in page and "gpt-5.2" in page


def test_rows_that_wait_are_said_on_the_page(tmp_path):
    state = RecorderState(healthy=False, depth=41, reason="the store takes no rows: database is locked")
    with site(tmp_path, filled(tmp_path), lambda: state) as one:
        assert "41 rows wait in the journal" in one.page()


def test_the_page_needs_nothing_from_elsewhere_and_nothing_inline(running):
    """Works offline, and the policy that forbids foreign and inline scripts costs it nothing."""
    status, headers, page = running.get("/admin/ui/requests/r00000002")
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    assets = re.findall(r'(?:src|href)="(/admin/ui/static/[^"]+)"', page)
    assert len(set(assets)) >= 4
    for asset in set(assets):
        assert running.get(asset)[0] == 200
    for outside in re.findall(r'(?:src|href|action)="([^"]+)"', page):
        assert outside.startswith(("/admin/ui/", "#")), outside
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)


def test_static_files_stay_in_their_folder(running):
    for path in ("../main.py", "%2e%2e/main.py", "..%2fmain.py", "nothing.css"):
        assert running.get(f"/admin/ui/static/{path}")[0] == 404


def test_every_way_in_leads_to_the_page(running):
    for path in ("/admin", "/admin/", "/admin/ui"):
        status, headers, _ = running.get(path)
        assert (status, headers["location"]) == (307, "/admin/ui/")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_colours_have_the_contrast_that_wcag_aa_asks_for(theme):
    """4.5:1 for every text colour on every ground it stands on, 3:1 for what carries meaning without words."""
    css = (ROOT / "arbiter/control/static/ui.css").read_text()
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", css)
    colours = {name: dark if theme == "dark" else light for name, light, dark in pairs}

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, two: str) -> float:
        a, b = sorted((light(colours[one]), light(colours[two])), reverse=True)
        return (a + 0.05) / (b + 0.05)

    for text in ("text", "faint", "link", "ok", "error", "cancelled", "interrupted"):
        for ground in ("page", "raised", "chosen"):
            assert contrast(text, ground) >= 4.5, (text, ground)
    assert contrast("act-text", "act") >= 4.5
    for shape in ("queue", "connect", "headers", "first_event", "stream", "rest", "error", "faint"):
        assert contrast(shape, "page") >= 3, shape


# ------------------------------------------------------------------------------------------------ the process


CONTROL = """
import os, sys
from pathlib import Path
from arbiter.config.load import load
from arbiter.control.main import run
run(load(Path(sys.argv[1]), {}), Path(sys.argv[2]), os.getppid())
"""


@contextlib.contextmanager
def process(tmp_path: Path, storage: str) -> Iterator[tuple[subprocess.Popen[bytes], Site]]:
    config = tmp_path / "arbiter.yaml"
    config.write_text(f"{CONFIG}\nstate: lmdb://{tmp_path}/state\nstorage: {{ url: {storage} }}\n")
    command = [sys.executable, "-c", CONTROL, str(config), str(tmp_path / "run" / "control.sock")]
    child = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)
    one = Site(tmp_path / "run" / "control.sock")
    try:
        until(lambda: answers(one), child)
        yield child, one
    finally:
        child.kill()
        child.communicate()


def answers(one: Site) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return one.get("/admin/api/state")[0] == 200
    return False


def until(holds: Any, child: subprocess.Popen[bytes] | None = None, within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not holds():
        if child is not None and child.poll() is not None:
            pytest.fail(f"control ended: {child.stderr.read().decode()}")
        if time.monotonic() > end:
            pytest.fail("this did not happen in time")
        time.sleep(0.02)


WRITER = """
import asyncio, sys
from pathlib import Path
from arbiter.ledger.journal import Journal
from tests.fakes.rows import attempt_row, request_row

async def main():
    pen = Journal(Path(sys.argv[1]), "w", 1 << 30, asyncio.get_running_loop())
    for number in range(int(sys.argv[2]), int(sys.argv[3])):
        request = request_row(number)
        pen.open(request, attempt_row(request))
        pen.close(attempt_row(request))
        pen.settle(request)
    await pen.aclose()
    print(pen.store_reason, pen.dropped)

asyncio.run(main())
"""


def write(tmp_path: Path, first: int, last: int) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "state"), str(first), str(last)]
    subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, stdout=subprocess.DEVNULL
    )


def test_control_records_what_workers_journal_and_drains_before_it_ends(tmp_path):
    with process(tmp_path, f"sqlite:///{tmp_path}/arbiter.db") as (child, one):
        assert stat.S_IMODE(one.path.stat().st_mode) == 0o600
        write(tmp_path, 0, 30)
        until(lambda: len(one.json("/admin/api/requests?limit=500")["requests"]) == 30)
        write(tmp_path, 30, 800)
        child.send_signal(signal.SIGINT)  # a console's ^C reaches us too; the supervisor decides what it means
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
        assert not one.path.exists()
    store = SqliteStore(tmp_path / "arbiter.db", readonly=True)
    assert store.counts().requests == 800
    store.close()


def test_a_killed_control_is_replaced_and_misses_nothing(tmp_path):
    for life in range(3):
        with process(tmp_path, f"sqlite:///{tmp_path}/arbiter.db") as (child, _):
            write(tmp_path, life * 200, life * 200 + 200)
            child.kill()
    with process(tmp_path, f"sqlite:///{tmp_path}/arbiter.db") as (_, one):
        until(lambda: one.json("/admin/api/state")["journal"]["depth"] == 0)
        assert one.json("/admin/api/state")["store"] == {
            "healthy": True,
            "reason": "",
            "requests_about": 600,
            "attempts_about": 600,
        }


def test_control_without_storage_still_answers(tmp_path):
    with process(tmp_path, "none") as (child, one):
        assert one.json("/admin/api/requests", 503)["reason"] == "storage_off"
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
    assert not (tmp_path / "state").exists()


def test_control_ends_when_its_parent_is_gone(tmp_path):
    """A killed supervisor leaves nobody behind."""
    config = tmp_path / "arbiter.yaml"
    config.write_text(
        f"{CONFIG}\nstate: lmdb://{tmp_path}/state\nstorage: {{ url: sqlite:///{tmp_path}/arbiter.db }}\n"
    )
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); p.wait()",
            *(sys.executable, "-c", CONTROL, str(config), str(tmp_path / "control.sock")),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    control = int(parent.stdout.readline())
    until(lambda: answers(Site(tmp_path / "control.sock")))
    parent.kill()
    parent.communicate()
    until(lambda: not runs(control))


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return state[state.rindex(b")") + 2 :].split()[0] not in (b"Z", b"X")


def test_the_losses_of_prompt_caches_are_a_report(tmp_path):
    """The same as the command's; a parameter that is none is named, and no store is no empty report."""
    store = SqliteStore(tmp_path / "a.db")
    request = request_row(1, received_ms=int(time.time() * 1000))
    loss = {"cache_verdict": "miss", "cache_lost_tokens": 34_000, "cache_lost_pd": 117_300_000_000}
    store.write([request, attempt_row(request, **loss)], Position("j", 1))
    with site(tmp_path, store) as one:
        status, _, body = one.get("/admin/api/cache?by=provider")
        found = json.loads(body)
        assert status == 200 and found["causes"][0]["lost_usd"] == 0.1173
        assert found["groups"][0]["name"] == "openai" and found["largest"][0]["trace_id"] == request.trace_id
        status, _, body = one.get("/admin/api/cache?colour=red")
        assert status == 400 and json.loads(body)["parameter"] == "colour"
        _, _, page = one.get(f"/admin/ui/requests/{request.id}")
        assert "34k miss, $0.1173: nothing differs: the provider forgot" in page
    store.close()


def test_what_providers_said_of_their_limits_is_told(tmp_path):
    """The same answer as `arbiter limits --json`, and every member of it documented."""
    now_ms = time.time_ns() // 1_000_000
    store = SqliteStore(tmp_path / "a.db")
    request = request_row(1)
    kept = {"x-ratelimit-limit-requests": "10", "x-ratelimit-remaining-requests": "4"}
    store.write([attempt_row(request, started_ms=now_ms, rate_limits=kept), request], Position("j", 1))
    with site(tmp_path, Reader(lambda: store)) as admin:
        told = admin.json("/admin/api/quota?since=1h&provider=openai")
        assert [(one["kind"], one["headroom"]) for one in told["headroom"]] == [("requests", 0.4)]
        assert admin.json("/admin/api/quota?since=1h&provider=other")["headroom"] == []
        assert admin.json("/admin/api/quota?since=soon", 400)["parameter"] == "since"
        assert admin.json("/admin/api/quota?sinse=1h", 400)["parameter"] == "sinse"
    with site(tmp_path, None, None) as admin:
        assert admin.json("/admin/api/quota", 503)["reason"] == "storage_off"


def test_what_was_spent_is_a_report(tmp_path):
    """The same as the command's; a parameter that is none is named."""
    store = SqliteStore(tmp_path / "a.db")
    request = request_row(1, received_ms=int(time.time() * 1000))
    store.write([request, attempt_row(request, cost_source="catalog", cost_pd=117_300_000_000)], Position("j", 1))
    with site(tmp_path, store) as one:
        status, _, body = one.get("/admin/api/cost?by=provider")
        found = json.loads(body)
        assert status == 200 and found["total"]["metered_usd"] == 0.1173
        assert found["groups"][0]["name"] == "openai" and found["prepaid"] == []
        status, _, body = one.get("/admin/api/cost?by=colour")
        assert status == 400 and json.loads(body)["parameter"] == "by"
    store.close()
