"""Climbing a plan: put the request to a rung, and come back with an answer in hand.

One rung, one try, for now: retries and fallbacks hang in here. Whatever happens, each attempt that was opened is
closed, and no connection outlives its attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from arbiter.attempt import lanes
from arbiter.attempt.ask import Ask
from arbiter.attempt.books import Attempt, Books
from arbiter.attempt.echo import Echo
from arbiter.attempt.live import Live, StreamRelay
from arbiter.config.snapshot import Provider
from arbiter.errors import ArbiterError, ClientGone, ErrorClass, Garbled, KeyRefused, UpstreamStatus
from arbiter.log import Blotter
from arbiter.routing.plan import Plan
from arbiter.upstream.exchange import Answering, Outgoing
from arbiter.upstream.transport import Transport
from arbiter.watch import Watch
from arbiter.wire.format import Format
from arbiter.wire.headers import to_upstream

ERROR_BODY_BYTES = 1 << 20  # of an error answer; more than any vendor's, and no page of a CDN is worth more


@dataclass(frozen=True, slots=True)
class Doors:
    """The ways out: the network, and the embedded echo provider.

    `blot` takes our own secrets out of what comes back: an upstream's debug page may repeat the key that we sent.
    """

    transport: Transport
    echo: Echo
    watch: Watch
    blot: Blotter

    def send(self, provider: Provider, out: Outgoing, format: Format, *, stream: bool) -> Awaitable[Answering]:
        if provider.type == "echo":
            return self.echo.send(out, format.name, provider.budgets, stream=stream)
        return self.transport.send(
            provider.endpoint,
            out,
            provider.budgets,
            stream=stream,
            max_connections=provider.max_connections,
            idle_connections=provider.idle_connections,
            idle_for_s=provider.idle_for_s,
        )


async def climb(plan: Plan, ask: Ask, book: Books, doors: Doors) -> Live:
    """An upstream that answered the request, its first event already in hand.

    Errors: the last attempt's. A stream has shown the client nothing until this returns.
    """
    rung = plan.rungs[0]
    provider = rung.provider
    lane = lanes.choose(ask, rung)
    format = lane.format
    account = provider.accounts[0]
    headers = to_upstream(provider, account, format.name, ask.incoming, stream=ask.stream)
    out = Outgoing("POST", lane.target(), headers, lane.body)
    attempt = book.open(rung, account, format.name, lane.name, lane.fidelity)
    exchange: Answering | None = None
    live: Live | None = None
    try:
        exchange = await doors.send(provider, out, format, stream=ask.stream)
        attempt.answered(exchange)
        if exchange.status >= 300:
            body = doors.blot.raw(await exchange.read(ERROR_BODY_BYTES))
            error = format.parse_error(exchange.status, exchange.headers, body)
            error.format = format.name
            raise _refusal(provider, error)
        live = Live(rung, attempt, exchange)
        if ask.stream and _is_event_stream(exchange):
            live.stream = StreamRelay(lane, exchange, doors.watch)
            live.kind = lane.kind
            exchange.stream(live.stream)
            await live.stream.first()
        else:
            body = await exchange.read(ask.limits.answer)
            attempt.whole()
            whole = await lane.whole(body, (exchange.header("content-type") or "").lower())
            live.body, live.facts, live.kind = whole.body, whole.facts, whole.kind
            if whole.error is not None:
                raise whole.error
        return live
    except ArbiterError as error:
        _give_up(live, attempt, exchange, error)
        raise
    except asyncio.CancelledError:
        _give_up(live, attempt, exchange, ClientGone("the client hung up before the answer began"))
        raise


def _give_up(live: Live | None, attempt: Attempt, exchange: Answering | None, error: ArbiterError) -> None:
    if exchange is not None:
        exchange.abort()
    if live is not None:
        live.close(error)
    else:
        attempt.close(None, error)


def _is_event_stream(exchange: Answering) -> bool:
    kind = exchange.header("content-type")
    # llama.cpp and vLLM label their streams; a server that labels nothing is taken at its word, not at its label.
    return kind is None or kind.lower().startswith(("text/event-stream", "application/octet-stream", "text/plain"))


def _refusal(provider: Provider, error: UpstreamStatus) -> ArbiterError:
    """Their refusal of *our* key is our configuration's fault; the caller must not be asked to log in (SPEC 4.8)."""
    if error.code in (ErrorClass.UNAUTHORIZED, ErrorClass.FORBIDDEN) and error.status in (401, 403):
        # A 403 need not mean the key: it may be good, and its account not allowed to do this.
        what = "the gateway's key (401)" if error.status == 401 else "the gateway (403)"
        return KeyRefused(f"the provider {provider.name!r} refused {what}: {error}")
    if error.status < 400:
        # A redirect would take the request, and the key, to a place that nobody configured.
        return Garbled(f"the upstream answered {error.status}, and redirects are not followed")
    return error
