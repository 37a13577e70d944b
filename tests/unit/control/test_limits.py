"""The page of limits: who rests, who is paused, what is pinned."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request

from arbiter.config.load import parse
from arbiter.config.snapshot import Account, Snapshot, key_digest
from arbiter.control.actions import Actions
from arbiter.control.limits import Limits
from arbiter.control.pages import Pages
from arbiter.state.base import Pause, Pin
from arbiter.state.memory import Memory

ONE_KEY = parse(
    f"""
clients:
  - {{ name: ci, key_hash: "sha256:{key_digest("arb-test-key-0001")}" }}
providers:
  openai: {{ type: openai, key: sk-test-0123456789, models: [gpt-5.2] }}
  local: {{ type: openai, endpoint: "http://127.0.0.1:9911/v1", models: [tiny] }}
""",
    "arbiter.yaml",
    {},
)
POOL = (Account("main", "sk-test-0123456789"), Account("spare", "sk-test-9876543210"))
SNAPSHOT = replace(
    ONE_KEY, providers=ONE_KEY.providers | {"openai": replace(ONE_KEY.providers["openai"], accounts=POOL)}
)


def current() -> Snapshot:
    return SNAPSHOT


def ask(state: Any, query: str = "") -> tuple[int, str]:
    limits = Limits(Actions(state, current).describe, current, Pages(None, None, current).render)
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": query.encode(), "headers": []}
    answer = limits.page(Request(scope))
    return answer.status_code, bytes(answer.body).decode()


def text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_a_quiet_gateway_offers_to_pause_and_nothing_to_lift():
    status, page = ask(Memory())
    assert status == 200
    assert "Requests are served" in page and "0 pinned conversations" in text(page)
    assert set(re.findall(r'hx-post="([^"]+)"', page)) == {
        "/admin/pause",
        "/admin/pause?provider=openai",
        "/admin/pause?provider=local",
        "/admin/pause?client=ci",
    }


def test_each_row_says_how_it_stands_and_offers_what_helps():
    state = Memory()
    state.cool(("openai", POOL[0].name), 600, is_told=True, is_quota=False)
    state.refuse(("openai", POOL[1].name))
    for _ in range(50):
        state.failed("local")
    state.set_pin(b"1" * 16, Pin("m", "openai", "m", "main"), 3600)
    state.pause(Pause("client", "ci", 1_796_004_000_000, "<b>the bill</b>"))
    state.pause(Pause("provider", "gone", 1_796_004_000_000))
    _, page = ask(state)
    said = text(page)
    assert re.search(r"main rests until \S+ , as it was told", said)
    assert "spare refused until the configuration is reloaded" in said
    assert "1 pinned conversation " in said
    assert "breaker open tried again at" in said
    assert "&lt;b&gt;the bill&lt;/b&gt;" in page and "<b>" not in page
    assert {"openai", "local"} == set(re.findall(r'"/admin/cooldowns/clear\?provider=(\w+)"', page))
    for path in ("/admin/resume?client=ci", "/admin/resume?provider=gone", "/admin/pins/clear"):
        assert f'hx-post="{path}"' in page
    assert "sk-test" not in page


def test_use_now_is_offered_only_where_there_is_something_to_end():
    """A few failures in a row keep nobody out, and a refused key is not let in by it."""
    state = Memory()
    state.failed("local")
    state.cool(("openai", POOL[1].name), 600, is_told=True, is_quota=False)
    state.refuse(("openai", POOL[1].name))
    _, page = ask(state)
    assert "1 failed in a row" in text(page) and "Use now" not in page
    for _ in range(10):
        state.failed("local")
    assert re.findall(r'"/admin/cooldowns/clear\?provider=(\w+)"', ask(state)[1]) == ["local"]


def test_when_everything_is_paused_nobody_is_said_to_be_served():
    state = Memory()
    state.pause(Pause("all", "", 1_796_004_000_000, "maintenance"))
    _, page = ask(state)
    assert "Everything is paused" in page and "maintenance" in page
    assert ">served<" not in page
    assert 'hx-post="/admin/resume"' in page


def test_the_page_is_replaced_only_when_it_would_show_something_new():
    """Else a click may fall between two buttons, once a second."""
    state = Memory()
    state.cool(("openai", POOL[0].name), 6000, is_told=True, is_quota=False)
    status, part = ask(state, "fragment=1")
    assert status == 200 and "<html" not in part
    (seen,) = re.findall(r"seen=(\w+)", part)
    assert ask(state, f"fragment=1&seen={seen}") == (204, "")
    state.pause(Pause("client", "ci", 1_796_004_000_000))
    assert ask(state, f"fragment=1&seen={seen}")[0] == 200


@pytest.mark.parametrize("query", ["", "fragment=1"])
def test_without_a_shared_state_the_page_says_so_and_offers_nothing(query):
    _, page = ask(None, query)
    assert "share no state" in page and "hx-post" not in page


def test_a_state_that_reaches_no_worker_is_said_to_be_one():
    class Alone(Memory):
        reason = "the disk is full"

    assert "the disk is full" in ask(Alone())[1]
