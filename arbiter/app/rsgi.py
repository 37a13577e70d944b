"""The edge: Granian's RSGI calls come in here, find their endpoint, and never leave without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from arbiter.app import admin, endpoints, routes
from arbiter.app.body import read_body
from arbiter.app.out import Out
from arbiter.errors import ArbiterError, ErrorClass, NotFound, WrongMethod
from arbiter.ids import new_id
from arbiter.log import Log
from arbiter.own import Own
from arbiter.routing.plan import Caller
from arbiter.wire.format import FORMATS
from arbiter.wire.headers import Incoming, Pairs

if TYPE_CHECKING:
    from arbiter.app.worker import Worker

_log = Log(__name__)
_ROUTES = routes.table()
_NOT_FOUND = b'{"code":404,"detail":"Not Found"}'
_WRONG_METHOD = b'{"code":405,"detail":"Method Not Allowed"}'


class Exchange:
    """One HTTP exchange on its way through an endpoint."""

    __slots__ = ("incoming", "method", "out", "own", "path", "proto", "trace_id", "worker")

    def __init__(self, worker: Worker, ticket: Any) -> None:
        scope, proto = ticket.scope, ticket.proto
        self.worker = worker
        self.proto = proto
        self.method: str = scope.method
        self.path: str = scope.path
        self.incoming = Incoming(scope.headers.items(), scope.query_string)
        addresses = None if worker.on_unix_socket else scope
        services = worker.services
        snapshot = services.snapshot
        watch, keepalive_s = services.doors.watch, snapshot.server.keepalive_s
        self.out = Out(proto, services, addresses, watch, keepalive_s, snapshot.limits, ticket)
        self.trace_id = ""
        self.own: Own | None = None  # it is the gateway's own

    def identify(self) -> Caller:
        """Who asks for a model. Errors: HeadersTooLarge, and those of `Keys.identify`."""
        worker, incoming = self.worker, self.incoming
        incoming.check_size(worker.services.snapshot.limits.headers)
        return worker.keys.identify(incoming) if self.own is None else endpoints.GATEWAY

    def read_body(self) -> Awaitable[bytes]:
        """Its body, whole. Errors: those of `body.read_body`."""
        services = self.worker.services
        return read_body(self.proto, self.incoming, services.snapshot.limits, services.doors.watch)

    def reply(self, status: int, headers: Pairs, body: bytes) -> None:
        """Answer whole; every answer carries a trace id (SPEC 1.4)."""
        if self.method == "HEAD":
            body = b""
        self.out.reply(status, [*headers, ("x-arbiter-trace-id", self.trace_id or new_id())], body)

    def not_found(self) -> None:
        self.reply(404, [("content-type", "application/json")], _NOT_FOUND)


class App:
    """What Granian calls: once per worker to begin and to end, and once per request."""

    def __init__(self, make_worker: Any) -> None:
        self._make_worker = make_worker
        self._worker: Worker | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_until_complete(self._begin(loop))

    async def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        worker = self._make_worker(loop)
        await worker.start()
        self._worker = worker

    def end(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._worker is not None:
            loop.run_until_complete(self._worker.stop())

    def drain(self) -> bool:
        """SIGTERM came. Whether this is the first we hear of it."""
        return self._worker is not None and self._worker.drain()

    async def answer(self, ticket: Any) -> None:
        """Answer one request. Granian's `ticket` has its `scope` and its `proto`, and wants to hear how it ended."""
        worker = self._worker
        assert worker is not None, "granian calls init first"
        exchange = Exchange(worker, ticket)
        del ticket  # a frame that waits for a stream's end must not hold what `Out.hold_less` lets go of
        try:
            path = exchange.path
            methods = _ROUTES.get(path)
            if methods is None:
                methods = routes.nested(path)
            if methods is None:
                if path.startswith("/admin/") or path == "/admin":
                    exchange.incoming.check_size(worker.services.snapshot.limits.headers)
                    await admin.answer(exchange)
                else:
                    _no_path(exchange)
                return
            route = methods.get(exchange.method)
            if route is None:
                _nothing_there(exchange, methods)
                return
            if route.format is None:  # a model call is refused for it further in, where it has a row
                exchange.incoming.check_size(worker.services.snapshot.limits.headers)
            await route.answer(exchange, route)
        except ArbiterError as error:
            _refuse(exchange, error)
        except Exception as bug:
            # The exit guard: whatever went wrong, the client is not left hanging and the worker lives.
            _log.error("an endpoint failed", trace_id=exchange.trace_id, error=bug)
            exchange.reply(
                500, [("content-type", "application/json")], b'{"code":500,"detail":"Internal Server Error"}'
            )
        except BaseException as end:
            exchange.out.broke_off(end)
        finally:
            exchange.out.close()


def _nothing_there(exchange: Exchange, methods: dict[str, routes.Route]) -> None:
    """Nothing answers this path, or nothing by this method. What names one of many is a vendor's own path, and its
    clients read that vendor's errors."""
    path, allow = exchange.path, ", ".join(sorted(methods))
    speaks = endpoints.GEMINI if routes.is_googles(methods) else endpoints.spoken(exchange)
    if path in _ROUTES and speaks != endpoints.GEMINI:
        named = next((route.format.name for route in methods.values() if route.format is not None), None)
        asked = named if named in FORMATS else endpoints.CHAT if named is not None else endpoints.told(exchange)
        if asked is None:
            exchange.reply(405, [("content-type", "application/json"), ("allow", allow)], _WRONG_METHOD)
        else:
            _refuse(exchange, WrongMethod(f"this path is asked with {allow}", allow), asked, _WRONG_METHOD)
        return
    asks_verb = speaks == endpoints.GEMINI and exchange.method == "POST" and ":" in path and path not in _ROUTES
    if not methods or (asks_verb and "POST" not in methods):
        error: ArbiterError = NotFound(
            "models are not asked for this" if asks_verb else "there is nothing at this path"
        )
    else:
        error = WrongMethod(f"this path is asked with {allow}", allow)
    _refuse(exchange, error, speaks)


def _no_path(exchange: Exchange) -> None:
    """Nothing is there. Whoever can be told for a vendor's client is told in that vendor's shape besides."""
    speaks, instead = endpoints.told(exchange), routes.instead(exchange.path)
    if speaks is None and instead is None:
        exchange.not_found()
        return
    legacy = f"legacy completions are not offered here; ask POST {instead}"
    _refuse(exchange, NotFound(legacy if instead else "there is nothing at this path"), speaks, _NOT_FOUND)


def _refuse(exchange: Exchange, error: ArbiterError, speaks: str | None = None, besides: bytes = b"") -> None:
    """An error outside of a model call, in the shape that the client's words tell, with the members of `besides`."""
    wire = FORMATS[speaks or endpoints.spoken(exchange)]
    trace_id = exchange.trace_id = exchange.trace_id or new_id()
    status, headers, body = wire.write_error(error, trace_id)
    if besides:
        body = body.rstrip()[:-1] + b"," + besides[1:]  # two JSON objects, of which neither is empty
    if error.code is ErrorClass.UNAUTHORIZED:
        headers.append(("www-authenticate", "Bearer"))
    exchange.reply(status, [*headers, ("x-arbiter-error-source", "gateway")], body)
