"""Reading a request's body: bounded, in time, and out of whatever encoding it came in (SPEC 1.6, 14.1)."""

from __future__ import annotations

import asyncio
from typing import Any

from arbiter.config.snapshot import Limits
from arbiter.errors import ArbiterError, BadRequest, ClientGone, SlowSender, TooLarge
from arbiter.upstream.encodings import decoder_for
from arbiter.watch import Watch
from arbiter.wire.headers import Incoming


async def read_body(proto: Any, incoming: Incoming, limits: Limits, watch: Watch) -> bytes:
    """The whole decoded body.

    Errors: TooLarge, SlowSender, BadRequest for an encoding that is unknown or broken, ClientGone if the sender left.
    """
    declared = incoming.get("content-length")
    if declared is not None:
        if not declared.isdecimal():
            raise BadRequest("Content-Length is not a number")
        if int(declared) > limits.body:
            raise _too_large(limits)
    task = asyncio.current_task()
    late = False

    def too_slow() -> None:
        nonlocal late
        late = True
        if task is not None:
            task.cancel()

    alarm = watch.after(limits.slow_sender_s, too_slow)
    try:
        # With a length within the limit Granian may collect it; without one it would collect for ever.
        body = await proto() if declared is not None else await _counted(proto, limits)
    except asyncio.CancelledError:
        if not late:
            raise
        if task is not None:
            task.uncancel()
        raise SlowSender(f"the request body did not arrive within {limits.slow_sender_s:g} s") from None
    except ArbiterError:
        raise
    except RuntimeError:  # granian's RSGIProtocolClosed: the connection ended before the body did
        raise ClientGone("the client hung up while it sent its request") from None
    finally:
        alarm.off()
    encoding = incoming.get("content-encoding")
    return _decoded(body, encoding, limits) if encoding else body


async def _counted(proto: Any, limits: Limits) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in proto:
        size += len(piece)
        if size > limits.body:
            raise _too_large(limits)
        pieces.append(piece)
    return b"".join(pieces)


def _decoded(body: bytes, encoding: str, limits: Limits) -> bytes:
    try:
        decoder = decoder_for(encoding)
    except ArbiterError as error:
        raise BadRequest(
            f"the request's Content-Encoding {encoding[:64]!r} is not one of gzip, deflate, br, zstd"
        ) from error
    if decoder is None:
        return body
    pieces: list[bytes] = []
    size = 0
    try:
        decoder.feed(body)
        while piece := decoder.take():
            size += len(piece)
            if size > limits.body:
                raise _too_large(limits)
            pieces.append(piece)
        decoder.finish()
    except TooLarge:
        raise
    except ArbiterError:
        raise BadRequest(f"the request body is not valid {encoding[:64]}") from None
    return b"".join(pieces)


def _too_large(limits: Limits) -> TooLarge:
    return TooLarge(f"the request body is over the limit of {limits.body} bytes (`limits.body`)")
