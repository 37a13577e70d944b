"""The requests page in a real browser: it refreshes itself, opens rows, takes the keyboard, and breaks no policy."""

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
from tests.fakes.rows import attempt_row, request_row

CONFIG = "providers: { openai: { type: openai, key: sk-test-0123456789, models: [gpt-5.2] } }"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(15, 19, 24)"
ROWS = "document.querySelectorAll('a.row').length"


@pytest.mark.needs("chromium")
def test_a_browser_sees_requests_arrive_and_opens_them(tmp_path):
    store = SqliteStore(tmp_path / "arbiter.db")

    def arrives(number: int) -> None:
        request = request_row(number)
        store.write([request, attempt_row(request)], Position("j", number))

    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = make_app(store, RecorderState, lambda: parse(CONFIG, "arbiter.yaml", {}))
    with serving(app, listener), browser.page(tmp_path / "profile") as page:
        page.open(f"{base}/admin/ui/")
        assert page.js("document.querySelector('#nothing code').textContent").startswith(
            f"curl {base}/v1/chat/completions"
        )

        # It refreshes itself, without a reload.
        page.js("window.mark = 1")
        arrives(1)
        page.until(f"{ROWS} === 1")
        arrives(2)
        page.until(f"{ROWS} === 2")
        assert page.js("window.mark") == 1

        # A row opens beside the list; the address is a deep link; the next refresh keeps it open and marked.
        page.js("document.querySelector('#row-r00000001').click()")
        page.until("document.querySelector('#detail [data-request=r00000001] svg.line rect.stream') !== null")
        assert page.js("location.pathname") == "/admin/ui/requests/r00000001"
        page.until("document.querySelector('#row-r00000001').getAttribute('aria-current') === 'true'")
        assert "gpt-5.2" in page.js("document.querySelector('#detail .attempt').textContent")
        page.until("document.querySelector('#said').textContent === 'Opened: swift'")
        assert page.js("window.mark") == 1  # new rows take a click at once: it never falls through to a page load
        arrives(3)
        page.until(f"{ROWS} === 3")
        page.until("document.querySelector('#row-r00000001').getAttribute('aria-current') === 'true'")
        assert page.js("document.querySelector('#detail [data-request]').dataset.request") == "r00000001"

        # The keyboard moves along the list and opens; the focus outlives a refresh.
        page.press("k")
        assert page.js("document.activeElement.id") == "row-r00000002"
        arrives(4)
        page.until(f"{ROWS} === 4 && document.activeElement.id === 'row-r00000002'")
        page.press("Enter")
        page.until("document.querySelector('#detail [data-request]').dataset.request === 'r00000002'")

        # Back leads to the request before, and a deep link stands on its own.
        page.js("history.back()")
        page.until("location.pathname.endsWith('r00000001')")
        page.until("document.querySelector('#detail [data-request]')?.dataset.request === 'r00000001'")
        assert page.js("document.getElementById('live').hidden || document.getElementById('theme').hidden") is False
        page.open(f"{base}/admin/ui/requests/r00000003")
        assert page.js("document.querySelector('#detail [data-request]').dataset.request") == "r00000003"

        # Paused is paused: the timer fires, and no request leaves.
        page.js("""document.body.addEventListener('htmx:beforeRequest', (event) => {
            window.held = (window.held || 0) + (event.defaultPrevented ? 1 : 0); })""")
        page.js("document.getElementById('live').click()")
        page.until("window.held > 0")
        assert page.js("document.getElementById('live').textContent") == "Paused"

        # The theme is the system's, also when that changes, until somebody chooses; a choice lasts.
        ground = "getComputedStyle(document.body).backgroundColor"
        button = "document.getElementById('theme').textContent"
        for scheme, colour, offered in (("dark", DARK, "Light"), ("light", LIGHT, "Dark"), ("dark", DARK, "Light")):
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            page.until(f"{ground} === '{colour}' && {button} === '{offered}'")
        page.js("document.getElementById('theme').click()")
        assert page.js(ground) == LIGHT
        page.open(f"{base}/admin/ui/")
        assert page.js("document.documentElement.dataset.theme") == "light"
        assert (page.js(ground), page.js(button)) == (LIGHT, "Dark")

        assert page.problems == []
        assert [url for url in page.asked if not url.startswith(base)] == []
    store.close()
