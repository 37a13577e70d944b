"""A real web server on loopback that answers what it is told to, and remembers what it was asked.

with serving() as site:
    site.pages["/prices"] = Page(200, b"{}")
    get(site.url + "/prices"); assert site.asked == ["/prices"]
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Page:
    """`body` may be told by the path; `hold` keeps the answer back until it is set."""

    status: int = 200
    body: bytes | Callable[[str], bytes] = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None


class Site:
    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""


@contextmanager
def serving() -> Iterator[Site]:
    """The site, for as long as it is needed."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            site.headers.append({name.lower(): value for name, value in self.headers.items()})
            page = site.pages.get(self.path.partition("?")[0], Page(404, b"no such page"))
            if page.hold is not None:
                page.hold.wait(10)
            body = page.body if isinstance(page.body, bytes) else page.body(self.path)
            self.send_response(page.status)
            for name, value in {"content-length": str(len(body)), **page.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The test's output is not the place for it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
