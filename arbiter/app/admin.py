"""`/admin/…` on the public port: judged here, answered by the control process over its unix socket (SPEC 12.1).

A heavy query therefore runs in another process and cannot touch a stream.
"""

from __future__ import annotations

import asyncio
import dataclasses
import html
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote

from arbiter.app.auth import COOKIE
from arbiter.app.body import read_body
from arbiter.config.snapshot import Budgets, Endpoint
from arbiter.errors import Unauthorized, Unavailable, Unreachable
from arbiter.log import Log
from arbiter.upstream.exchange import Outgoing
from arbiter.wire.headers import visible

if TYPE_CHECKING:
    from arbiter.app.rsgi import Exchange

_log = Log(__name__)

_BUDGETS = Budgets(queue_s=5, connect_s=2, unary_s=30)
_ANSWER_BYTES = 64 << 20
# Neither credential crosses: control trusts its socket, and knows nothing of tokens.
_TO_CONTROL = ("accept", "content-type", "if-none-match", "if-modified-since", "user-agent")
_FROM_CONTROL = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"))
_IN_PATHS = "/:@!$&'()*+,;=-._~"
_SIGN_IN = "/admin/sign-in"
_HOME = "/admin/ui/"
_FORM_BYTES = 4096
_WANTED_CHARS = 1000  # the form triples what it escapes, and the token is to have room beside it
_WRONG_TOKEN_S = 0.5  # guessing is to be slow, and a person's slip is not

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Sign in · Arbiter</title><style>
:root{{color-scheme:light dark}}
body{{font:16px/1.5 system-ui,sans-serif;display:grid;place-items:center;min-height:90vh;margin:0}}
form{{display:grid;gap:.75rem;width:min(22rem,90vw)}}h1{{font-size:1.25rem;margin:0}}
input,button{{font:inherit;padding:.5rem .75rem;border-radius:6px;border:1px solid GrayText}}
p{{margin:0}}.wrong{{color:light-dark(#b00020,#ff8a80)}}</style></head>
<body><main><form method="post" action="{action}"><h1>Arbiter administration</h1>
<input type="hidden" name="wanted" value="{wanted}">
{complaint}<label for="token">Admin token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button>
<p>It is <code>admin.token</code> of the configuration, or the one that was printed when the gateway started.</p>
</form></main></body></html>
"""


async def answer(exchange: Exchange) -> None:
    """Judge, then relay.

    Errors: Unauthorized and Forbidden for who may not; Unavailable while control restarts.
    """
    worker, incoming, out = exchange.worker, exchange.incoming, exchange.out
    if exchange.path == _SIGN_IN:
        await _sign_in(exchange)
        return
    try:
        who = worker.gate.check(incoming, out.peer, exchange.method)
    except Unauthorized:
        if worker.gate.wants_token and exchange.method == "GET" and "text/html" in (incoming.get("accept") or ""):
            _page(exchange, 401, "", _asked(exchange))
            return
        raise
    if not exchange.path.isascii():
        exchange.not_found()  # no route of ours, and nothing that a request line could carry on
        return
    snapshot = worker.services.snapshot
    body = await read_body(exchange.proto, incoming, snapshot.limits, worker.services.doors.watch)
    headers = [
        (name, value) for name, value in incoming.fields.items() if name in _TO_CONTROL or name.startswith("hx-")
    ]
    headers += [("x-arbiter-peer", out.peer), ("x-arbiter-user", quote(who, safe=" :@.,_-"))]
    if worker.services.around.state.reason:
        # Control may still write where the workers no longer can: whoever asks how it stands shall hear of it.
        headers.append(("x-arbiter-sharing", visible(worker.services.around.state.reason)))
    endpoint = Endpoint("http", "localhost", 80, uds=str(worker.control_socket))
    try:
        answered = await worker.services.doors.transport.send(
            endpoint,
            Outgoing(exchange.method, _asked(exchange), headers, body),
            _BUDGETS,
            stream=False,
            max_connections=16,
            idle_connections=4,
            idle_for_s=30,
        )
        payload = await answered.read(_ANSWER_BYTES)
    except Unreachable as error:
        raise Unavailable("the administration is starting; try again in a moment") from error
    exchange.reply(answered.status, [pair for pair in answered.headers if pair[0] not in _FROM_CONTROL], payload)


async def _sign_in(exchange: Exchange) -> None:
    """A browser's form with the token; answered with the cookie that stands for it."""
    worker = exchange.worker
    if not worker.gate.wants_token:
        exchange.not_found()
        return
    if exchange.method != "POST":
        _page(exchange, 200, "", _HOME)
        return
    limits = dataclasses.replace(worker.services.snapshot.limits, body=_FORM_BYTES)
    body = await read_body(exchange.proto, exchange.incoming, limits, worker.services.doors.watch)
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=8)
    except ValueError:
        fields = {}
    token, wanted = fields.get("token", [""])[0], fields.get("wanted", [""])[0]
    if not worker.gate.accepts(token.strip()):
        _log.warn("a sign-in with a wrong admin token", peer=exchange.out.peer)
        await asyncio.sleep(_WRONG_TOKEN_S)
        _page(exchange, 401, "That is not the token.", wanted)
        return
    cookie = f"{COOKIE}={worker.gate.cookie}; Path=/admin; HttpOnly; SameSite=Strict"
    if exchange.incoming.get("x-forwarded-proto") == "https":
        cookie += "; Secure"
    exchange.reply(303, [("location", _page_of_ours(wanted)), ("set-cookie", cookie)], b"")


def _asked(exchange: Exchange) -> str:
    """The path, which came decoded, and the query."""
    path = quote(exchange.path, safe=_IN_PATHS)
    return f"{path}?{exchange.incoming.query}" if exchange.incoming.query else path


def _page_of_ours(wanted: str) -> str:
    """`wanted` where it is a page of the administration, else the first one: a form may say anything."""
    path = unquote(wanted.partition("?")[0])
    is_plain = wanted.isascii() and wanted.isprintable() and "\\" not in path and len(wanted) <= _WANTED_CHARS
    return wanted if is_plain and wanted.startswith(_HOME) and ".." not in path.split("/") else _HOME


def _page(exchange: Exchange, status: int, complaint: str, wanted: str) -> None:
    text = f'<p class="wrong" role="alert">{html.escape(complaint)}</p>' if complaint else ""
    headers = [
        ("content-type", "text/html; charset=utf-8"),
        (
            "content-security-policy",
            "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'",
        ),
        ("cache-control", "no-store"),
    ]
    exchange.reply(
        status,
        headers,
        _PAGE.format(action=_SIGN_IN, complaint=text, wanted=html.escape(_page_of_ours(wanted))).encode(),
    )
