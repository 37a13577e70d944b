"""Captured content in a real browser: readable, escaped, and nothing loaded that it names."""

from __future__ import annotations

import socket

import pytest

from arbiter.config.load import parse
from arbiter.control.app import make_app
from arbiter.ledger.recorder import RecorderState
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position
from tests.fakes import browser
from tests.fakes.admin import serving
from tests.fakes.contents import heard, keep
from tests.fakes.rows import attempt_row, request_row
from tests.fakes.wires import MESSAGES

CONFIG = """
providers: { openai: { type: openai, key: sk-test-0123456789, models: [gpt-5.2] } }
storage: { capture: { content: true, headers: true, preview_chars: 400 } }
"""
EVIL = '<img src="http://127.0.0.1:9/x.png" onerror="window.hit = 1"><script>window.hit = 1</script>'


@pytest.mark.needs("chromium")
def test_a_browser_reads_a_conversation_and_runs_nothing_of_it(tmp_path):
    store = SqliteStore(tmp_path / "arbiter.db")
    request = request_row(1, model_asked="swift")
    store.write([request, attempt_row(request)], Position("j", 1))
    call = {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"command": "make check"}}
    messages = [
        {"role": "user", "content": "Why does the build fail?"},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "line\n" * 300}]},
        {"role": "user", "content": EVIL},
        *({"role": "user", "content": f"More, number {number}."} for number in range(5)),
    ]
    body = {"system": "You are a careful engineer.", "messages": messages}
    answer = MESSAGES.answer("A header is missing.")
    one = heard(request.id, body, answer=answer, headers={"user-agent": "agent/1", "authorization": "Bearer x"})
    keep(tmp_path / "state", lambda: SqliteStore(tmp_path / "arbiter.db"), one, headers=True)

    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}/admin/ui/"
    config = parse(CONFIG, "arbiter.yaml", {})
    with serving(make_app(store, RecorderState, lambda: config), listener), browser.page(tmp_path / "profile") as page:
        page.open(f"{base}requests/{request.id}")
        assert "A header is missing." in page.js("document.querySelector('#detail .content').innerText")
        assert page.js("document.querySelectorAll('#detail .block').length") == 7  # the newest six, and the answer

        page.js("document.querySelector('#detail .content a').click()")
        page.until("document.title.startsWith('Content')")
        page.until("document.querySelectorAll('div.content .block').length === 13")
        texts = page.js("[...document.querySelectorAll('div.content h4')].map(e => e.textContent).join('|')")
        assert texts.startswith("system|user|assistant|call run|result|user|")
        assert texts.endswith("|assistant|Headers of the request")
        # A page scrolls down, never sideways, on a narrow screen neither.
        for width in (1440, 400):
            size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
            page.call("Emulation.setDeviceMetricsOverride", **size)
            assert page.js("document.documentElement.scrollWidth <= innerWidth"), width

        page.js("[...document.querySelectorAll('a')].find(a => a.textContent === 'The whole message').click()")
        page.until("location.pathname.endsWith('/content/in/3')")
        page.until("document.querySelector('.block pre') !== null")
        assert page.js("document.querySelector('.block pre').textContent.length") == 1500

        assert page.js("window.hit") is None
        assert page.problems == []
        assert [url for url in page.asked if not url.startswith(base)] == []
    store.close()
