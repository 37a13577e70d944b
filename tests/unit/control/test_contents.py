"""Captured content as the administration shows it."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from arbiter.config.load import parse
from arbiter.control.app import make_app
from arbiter.ledger.recorder import RecorderState
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position
from tests.fakes.admin import serving
from tests.fakes.contents import heard, keep
from tests.fakes.rows import request_row
from tests.fakes.wires import MESSAGES

CONFIG = """
providers: { a: { type: echo } }
storage: { capture: { content: true, preview_chars: 100 } }
"""
EVIL = "<script>alert('x')</script> & \"quotes\""


class Site:
    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, status: int = 200) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        assert answer.status == status, body
        return body


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = SqliteStore(tmp_path / "arbiter.db")
    store.write([request_row(number) for number in (1, 2, 3)], Position("j", 1))
    messages = [{"role": "user", "content": f"message {number}"} for number in range(9)]
    long = {"role": "user", "content": "beginning " + "x" * 500 + " end"}
    body = {"system": "be brief", "messages": [*messages, long, {"role": "user", "content": EVIL}]}
    headers = {"user-agent": EVIL, "authorization": "Bearer abc"}
    one = heard("r00000001", body, answer=MESSAGES.answer("an answer"), headers=headers)
    only_headers = heard("r00000003", {}, headers={"a": "b"})
    only_headers.members = None
    keep(tmp_path / "state", lambda: SqliteStore(tmp_path / "arbiter.db"), one, only_headers, headers=True)
    listener = socket.create_server(("127.0.0.1", 0))
    config = parse(CONFIG, "arbiter.yaml", {})
    with serving(make_app(store, RecorderState, lambda: config), listener):
        yield Site(listener.getsockname()[1])
    store.close()


def test_programs_get_the_blocks_as_json(site: Site) -> None:
    found = json.loads(site.get("/admin/api/requests/r00000001/content"))
    assert [(one["direction"], one["kind"]) for one in found["content"]] == [
        ("in", "system"),
        *[("in", "message")] * 11,
        ("in", "parameters"),
        ("out", "answer"),
    ]
    assert [one["position"] for one in found["content"]] == [*range(13), 0]
    assert found["content"][11]["value"] == {"role": "user", "content": EVIL}
    assert found["headers"]["in"] == {"user-agent": EVIL, "authorization": "***"}


def test_nothing_kept_is_told_from_nothing_there(site: Site) -> None:
    assert json.loads(site.get("/admin/api/requests/r00000002/content", 404))["reason"] == "not_captured"
    assert "reason" not in json.loads(site.get("/admin/api/requests/nobody/content", 404))
    assert "not captured" in site.get("/admin/ui/requests/r00000002/content", 404)
    assert "not captured" in site.get("/admin/ui/requests/r00000001/content/in/99", 404)
    for odd in ("x", "-1", "9" * 40, "%00"):
        site.get(f"/admin/ui/requests/r00000001/content/in/{odd}", 404)


def test_a_requests_page_shows_its_newest_messages_and_the_answer(site: Site) -> None:
    page = site.get("/admin/ui/requests/r00000001")
    assert "an answer" in page and "message 8" in page and "message 3" not in page
    assert "All of it, 7 more" in page and "/admin/ui/requests/r00000001/content" in page
    assert "Content" not in site.get("/admin/ui/requests/r00000002?fragment=1")


def test_a_long_message_is_cut_and_its_link_leads_to_all_of_it(site: Site) -> None:
    page = site.get("/admin/ui/requests/r00000001/content")
    assert "be brief" in page and "message 0" in page and "beginning" in page and "end</pre>" not in page
    link = "/admin/ui/requests/r00000001/content/in/10"
    assert f'href="{link}"' in page and page.count("The whole message") == 1
    assert "x end</pre>" in site.get(link)


def test_what_was_said_is_text_and_never_markup(site: Site) -> None:
    for path in ("", "?fragment=1", "/content", "/content/in/11"):
        page = site.get(f"/admin/ui/requests/r00000001{path}")
        assert "<script>alert" not in page and "&lt;script&gt;alert(" in page


def test_headers_are_shown_where_they_were_kept(site: Site) -> None:
    page = site.get("/admin/ui/requests/r00000003/content")
    assert "Headers of the request" in page
    assert "with headers" in site.get("/admin/ui/requests/r00000003")


def test_without_a_store_the_answers_say_so() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    config = parse(CONFIG, "arbiter.yaml", {})
    with serving(make_app(None, None, lambda: config), listener):
        site = Site(listener.getsockname()[1])
        assert json.loads(site.get("/admin/api/requests/r1/content", 503))["reason"] == "storage_off"
        site.get("/admin/ui/requests/r1/content", 503)
