"""One GET, bounded in time and size, and never led elsewhere: what is sent with it may be a key."""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping

import msgspec

from arbiter import __version__, clock
from arbiter.log import Log

_log = Log(__name__)


class Unfetched(Exception):
    """There is no answer, or none that can be used; the text says why."""


class Fetched(msgspec.Struct, frozen=True):
    status: int
    body: bytes


def get(url: str, *, timeout_s: float, limit_bytes: int, headers: Mapping[str, str] | None = None) -> Fetched:
    """What stands at `url`, whatever its status. Proxies are those of the environment. Errors: Unfetched.

    A server that sends a byte now and then would keep a socket's own time-out waiting for ever, so the exchange runs in
    a thread that is left alone once the time is over.
    """
    found: list[Fetched | Unfetched] = []
    asked = {"user-agent": f"arbiter/{__version__}", "accept": "application/json", **(headers or {})}
    request = urllib.request.Request(url, headers=asked)
    until = clock.monotonic() + timeout_s
    thread = threading.Thread(
        target=lambda: found.append(_exchange(request, until, timeout_s, limit_bytes)), name="fetch", daemon=True
    )
    thread.start()
    thread.join(timeout_s)
    if not found:
        raise Unfetched(f"no answer within {timeout_s:g} s")
    if isinstance(found[0], Unfetched):
        raise found[0]
    return found[0]


class _Nowhere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _exchange(request: urllib.request.Request, until: float, timeout_s: float, limit_bytes: int) -> Fetched | Unfetched:
    try:
        try:
            answer = urllib.request.build_opener(_Nowhere).open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            body = b""
            while part := answer.read(1 << 16):
                body += part
                if len(body) > limit_bytes:
                    return Unfetched(f"the answer is over {limit_bytes} bytes")
                if clock.monotonic() >= until:
                    return Unfetched(f"no whole answer within {timeout_s:g} s")
            return Fetched(answer.status or 0, body)
    except Exception as error:  # the thread's own exit guard, else its end would be taken for a server that is slow
        if not isinstance(error, (OSError, http.client.HTTPException, ValueError)):
            _log.error("a fetch failed inside the gateway", error=error)
        return Unfetched(str(getattr(error, "reason", None) or error) or type(error).__name__)
