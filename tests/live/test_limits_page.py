"""The page of limits in a real browser: its buttons act, and it shows what came of them."""

from __future__ import annotations

import socket

import pytest

from arbiter.config.load import parse
from arbiter.control.actions import Actions
from arbiter.control.app import make_app
from arbiter.state.base import Pin
from arbiter.state.memory import Memory
from tests.fakes import browser
from tests.fakes.admin import serving

SNAPSHOT = parse(
    "providers: { openai: { type: openai, key: sk-test-0123456789, models: [gpt-5.2] } }", "arbiter.yaml", {}
)


@pytest.mark.needs("chromium")
def test_a_browser_pauses_resumes_and_clears(tmp_path):
    state = Memory()
    state.cool(("openai", SNAPSHOT.providers["openai"].accounts[0].name), 6000, is_told=True, is_quota=False)
    state.set_pin(b"1" * 16, Pin("m", "openai", "m", ""), 3600)
    actions = Actions(state, lambda: SNAPSHOT)
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = make_app(None, None, lambda: SNAPSHOT, extra=actions.describe, actions=actions.routes())
    with serving(app, listener), browser.page(tmp_path / "profile") as page:
        page.open(f"{base}/admin/ui/limits")

        def press(button: str, then: str) -> None:
            page.js(f"document.getElementById('{button}').focus()")
            page.press("Enter")
            page.until(f"!!document.getElementById('{then}')")

        page.js("window.asked = []; window.confirm = (what) => { window.asked.push(what); return window.agrees; }")
        page.js("window.agrees = false")
        page.js("document.getElementById('pause-all').click()")
        page.until("window.asked.length === 1")
        assert not state.standing().pauses  # the reader thought better of it
        page.js("window.agrees = true")
        press("pause-all", "resume-all")
        assert set(state.standing().pauses) == {("all", "")}
        press("resume-all", "pause-all")
        press("pause-provider-openai", "resume-provider-openai")
        assert set(state.standing().pauses) == {("provider", "openai")}
        page.js("document.getElementById('clear-openai').click(); document.getElementById('clear-pins').click()")
        page.until("!document.getElementById('clear-openai') && !document.getElementById('clear-pins')")
        assert not state.standing().cooldowns and state.counts().pins == 0
        assert page.problems == []
        assert all(url.startswith(base) for url in page.asked if not url.startswith("about:"))
