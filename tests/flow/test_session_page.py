"""The page of a session in a real browser, through the gate of a worker: what its forms do, and who may send them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import browser, pages
from tests.fakes.client import ask
from tests.fakes.gateway import ADMIN, ADMIN_TOKEN, Gateway

ECHO = {"providers": {"echo": {"type": "echo", "models": ["m"]}}}
BODY = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello there"}]}
PATH = "/admin/ui/sessions/%20s/1"


@pytest.fixture(scope="module", params=["a token", "loopback"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """With either gate, and a session `s/1`."""
    gate = {} if request.param == "a token" else {"admin": {}}
    with Gateway({**ECHO, **gate}, tmp_path_factory.mktemp("page")) as gateway:
        answer = asyncio.run(ask(gateway.port, "/v1/messages", BODY, headers=[("x-arbiter-session-id", "s/1")]))
        gateway.row(answer.trace_id)
        yield gateway


def stored(gateway: Gateway) -> dict[str, Any]:
    found = gateway.get("/admin/api/sessions/%20s%2F1", headers=ADMIN if gateway.config["admin"] else {})
    assert found.status == 200
    return dict(found.json)


def enter(page: browser.Page, gateway: Gateway) -> None:
    page.open(gateway.url + PATH)
    if gateway.config["admin"]:
        page.js(f"document.querySelector('#token').value = {ADMIN_TOKEN!r}")
        page.js("document.querySelector('form').requestSubmit()")
        page.until(f"location.pathname === {PATH!r} && document.querySelector('.acts') !== null")
    page.problems.clear()  # the 401 that brought the form is one


@pytest.mark.needs("chromium")
def test_an_operator_notes_names_and_ends_with_a_click(gateway: Gateway, tmp_path: Path) -> None:
    """SPEC 8.4, 8.4a: as from the command line, and on record."""
    with browser.page(tmp_path / "profile") as page:
        enter(page, gateway)
        page.js("document.querySelector('.acts summary').click()")
        page.js("document.querySelector('#note').value = '<b>seen</b>\\nand noted'")
        page.js("document.querySelector('#note').form.requestSubmit()")
        page.until("document.querySelector('.message .said')?.textContent === '<b>seen</b>\\nand noted'")
        page.js("document.querySelector('#title').value = 'A name of mine'")
        page.js("document.querySelector('#title').form.requestSubmit()")
        page.until("document.querySelector('h1').textContent === 'A name of mine'")
        page.js("document.querySelector('button[value=clear_title]').click()")
        page.until("document.querySelector('h1').textContent === 's/1'")
        assert page.js("document.querySelector('button[value=clear_title]')") is None, "there is nothing to clear"
        page.js("document.querySelector('button[value=end]').click()")
        page.until("document.querySelector('dl').textContent.includes('ended by an operator')")
        assert page.js("location.pathname") == "/admin/ui/sessions/%20s%2F1" and page.problems == []
    row = stored(gateway)
    assert (row["title"], row["title_by"], row["state"]) == (None, "operator", "ended")
    assert [note["text"] for note in row["notes"]] == ["<b>seen</b>\nand noted"]
    headers = ADMIN if gateway.config["admin"] else {}
    audit = gateway.get("/admin/api/audit", headers=headers).json["audit"]
    assert [one["action"] for one in audit] == ["end", "clear_title", "title", "note"]


@pytest.mark.needs("chromium")
def test_a_page_of_somebody_else_ends_nothing(gateway: Gateway, tmp_path: Path) -> None:
    """It may send the very form, from the same host even; the browser says where it is from."""
    before = stored(gateway)
    form = (
        f'<form method="post" action="{gateway.url}{PATH}"><input name="act" value="note"><input name="text" value="x">'
    )
    with pages.serving() as site, browser.page(tmp_path / "profile") as page:
        headers = {"content-type": "text/html", "referrer-policy": "no-referrer"}
        site.pages["/"] = pages.Page(200, form.encode(), headers)
        enter(page, gateway)
        page.open(site.url + "/")
        page.js("document.querySelector('form').requestSubmit()")
        page.until(f"location.href.startsWith({gateway.url!r})")
        assert "another site" in page.js("document.body.textContent") or "loopback" in page.js(
            "document.body.textContent"
        )
    assert stored(gateway)["notes"] == before["notes"]
