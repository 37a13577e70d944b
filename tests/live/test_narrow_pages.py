"""Every page on a telephone: nothing stands beside the screen, and every view and button can be reached."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from arbiter.config.load import parse
from arbiter.control.app import make_app
from arbiter.ledger.recorder import Batch, RecorderState
from arbiter.ledger.sessions import Sessions
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position
from tests.fakes import browser
from tests.fakes.admin import serving
from tests.fakes.rows import attempt_row, request_row

CONFIG = """\
providers:
  a-provider-with-a-long-name: { type: openai, key: sk-test-0123456789, models: [claude-sonnet-4-5-20250929] }
clients:
  - { name: somebodys-laptop, key_hash: "sha256:0000000000000000000000000000000000000000000000000000000000000000" }
"""
NARROW = 360
SESSION = "0199c2a4-77aa-7e10-9c3e-5b2f7f4d1e01"
PAGES = (
    "", "requests/r00000002", "requests/nosuch", "sessions", f"sessions/somebodys-laptop%20{SESSION}", "limits",
    "cost", "cost?by=day", "cost?by=session", "cost?by=colour", "cache", "cache?by=session",
)  # fmt: skip
BESIDE = """[...document.querySelectorAll('body *')]
  .filter((one) => !one.closest('.hidden, .skip, .scroll table, thead'))
  .filter((one) => one.getBoundingClientRect().width && one.getBoundingClientRect().right > innerWidth + 0.5)
  .map((one) => one.outerHTML.slice(0, 120))"""


@pytest.mark.needs("chromium")
def test_nothing_stands_beside_a_narrow_screen(tmp_path: Path) -> None:
    store, now_ms = SqliteStore(tmp_path / "arbiter.db"), time.time_ns() // 1_000_000
    rows, attempts = [], []
    called = {"provider": "a-provider-with-a-long-name", "model_asked": "claude-sonnet-4-5-20250929"}
    for number in range(1, 6):
        of = {"client": "somebodys-laptop", "session": SESSION, "request_kind": "subagent", **called}
        request = request_row(number, received_ms=now_ms + number, **of)
        lost = {"cache_verdict": "below_minimum", "cache_lost_tokens": 34_000, "cache_lost_in": "messages 17-32"}
        cost = {"cost_source": "catalog", "cost_pd": 1_234_567_000_000, "cache_lost_pd": 117_300_000_000}
        rows.append(request)
        attempts.append(attempt_row(request, started_ms=now_ms, input_tokens=1_234_567, **called, **lost, **cost))
    batch = Batch(rows, attempts, [])
    Sessions(lambda: 3_600_000).take(batch, store)
    store.write([*batch.requests, *batch.attempts], Position("j", 1), batch.also)
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}/admin/ui/"
    app = make_app(store, RecorderState, lambda: parse(CONFIG, "arbiter.yaml", {}))
    with serving(app, listener), browser.page(tmp_path / "profile") as page:
        page.call("Emulation.setDeviceMetricsOverride", width=NARROW, height=780, deviceScaleFactor=1, mobile=True)
        for path in PAGES:
            page.open(base + path)
            assert page.js("document.documentElement.scrollWidth") == NARROW, path
            assert page.js(BESIDE) == [], path
            # Each view is there to be touched, and a table that is wider than the screen moves by itself.
            assert page.js("document.querySelectorAll('.top nav a').length") == 5
            wide = "[...document.querySelectorAll('table')].every((one) => one.scrollWidth <= innerWidth"
            assert page.js(f"{wide} || one.closest('.scroll') !== null)"), path
    store.close()


WIDTHS = (360, 480, 768, 1024, 1100, 1261, 1280, 1366, 1440, 1600, 1920)
UNDER = """(() => {
  const list = document.querySelector('#list'), panel = document.querySelector('#detail').getBoundingClientRect()
  const right = Math.max(...[list, ...list.querySelectorAll('table, td, th, td *, th *')]
    .filter((one) => !one.closest('.hidden')).map((one) => one.getBoundingClientRect().right))
  const beside = panel.left > list.getBoundingClientRect().left + 1
  const end = beside ? panel.left : innerWidth
  return right > end + 0.5 ? `${right} is beyond ${end}` : ''
})()"""


@pytest.mark.needs("chromium")
def test_the_list_ends_where_the_opened_request_begins(tmp_path: Path) -> None:
    """At every width, with names and sums as long as they ordinarily are."""
    store, now_ms = SqliteStore(tmp_path / "arbiter.db"), time.time_ns() // 1_000_000
    rows: list[Any] = []
    for number, of in enumerate(
        (
            {"client": "ci-build-runner-eu", "outcome": "error", "status": 200, "error_class": "upstream_error"},
            {"client": "ci-build-runner-eu", "status": 200},
            {"client": None, "status": 400, "outcome": "error", "error_class": "bad_request"},
        ),
        1,
    ):
        asked = {"provider": "anthropic", "model_asked": "claude-sonnet-4-5-20250929"}
        cost = {"cost_pd": 101_500_000, "cost_source": "catalog"}
        counts = {"input_tokens": 2_000_000, "output_tokens": 100_000, "cached_tokens": 1_000_000}
        request = request_row(
            number, received_ms=now_ms + number, total_us=23_000_000, cost_pd=101_500_000, **asked, **of
        )
        rows += [request, attempt_row(request, started_ms=now_ms, usage_source="estimated", **cost, **counts)]
    store.write(rows, Position("j", 1))
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}/admin/ui/"
    app = make_app(store, RecorderState, lambda: parse(CONFIG, "arbiter.yaml", {}))
    with serving(app, listener), browser.page(tmp_path / "profile") as page:
        for path in ("", "requests/r00000002"):
            for width in WIDTHS:
                page.call(
                    "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
                )
                page.open(base + path)
                assert page.js(UNDER) == "", (path, width)
                assert page.js("document.documentElement.scrollWidth <= innerWidth"), (path, width)
    store.close()
