"""Reading a request's body: bounded, in time, and out of whatever encoding it came in (SPEC 1.6, 14.1)."""

from __future__ import annotations

import asyncio
from typing import Any

from arbiter.config.snapshot import Limits
from arbiter.errors import ArbiterError, BadRequest, ClientGone, SlowSender, TooLarge
from arbiter.upstream.encodings import decoder_for, unpacked
from arbiter.watch import Watch
from arbiter.wire.headers import Incoming


async def read_body(proto: Any, incoming: Incoming, limits: Limits, watch: Watch) -> bytes:
    """The whole decoded body.

    Errors: TooLarge, SlowSender, BadRequest for an encoding that is unknown or broken, ClientGone if the sender left.
    """
    fields = incoming.fields
    declared = fields.get("content-length")
    if declared is not None:
        if not declared.isdecimal():
            raise BadRequest("Content-Length is not a number")
        if int(declared) > limits.body:
            raise _too_large(limits)
    task = asyncio.current_task()
    assert task is not None, "a request is a task"
    late = watch.after(limits.slow_sender_s, task.cancel)
    try:
        # With a length within the limit Granian may collect it; without one it would collect for ever.
        body = await proto() if declared is not None else await _counted(proto, limits)
    except asyncio.CancelledError:
        if not late.rang:
            raise
        task.uncancel()
        raise SlowSender(f"the request body did not arrive within {limits.slow_sender_s:g} s") from None
    except ArbiterError:
        raise
    except RuntimeError:  # granian's RSGIProtocolClosed: the connection ended before the body did
        raise ClientGone("the client hung up while it sent its request") from None
    finally:
        late.off()
    encoding = fields.get("content-encoding")
    return await _decoded(body, encoding, limits) if encoding else body


async def _counted(proto: Any, limits: Limits) -> bytes:
    """A body without a length, whole.

    Granian's iterator ends alike after a body that is whole and after one that broke off, but for the number of its
    empty pieces: one is the end, and a fault, or trailers, add another. No chunk is empty.
    """
    pieces: list[bytes] = []
    size = ends = 0
    async for piece in proto:
        size += len(piece)
        if size > limits.body:
            raise _too_large(limits)
        if piece:
            pieces.append(piece)
        else:
            ends += 1
    if ends > 1:
        # Also where it is whole JSON so far: the client meant to send more, and nobody knows what.
        raise ClientGone("the chunked request body broke off (or has trailers, which are not taken)")
    return b"".join(pieces)


async def _decoded(body: bytes, encoding: str, limits: Limits) -> bytes:
    """`body` without its encoding."""
    try:
        decoder = decoder_for(encoding)
    except ArbiterError as error:
        raise BadRequest(
            f"the request's Content-Encoding {encoding[:64]!r} is not one of gzip, deflate, br, zstd, or two of them"
        ) from error
    if decoder is None:
        return body
    try:
        return await unpacked(decoder, body, limits.body, _too_large(limits))
    except TooLarge:
        raise
    except ArbiterError:
        raise BadRequest(f"the request body cannot be unpacked as {encoding[:64]}") from None


def _too_large(limits: Limits) -> TooLarge:
    return TooLarge(f"the request body is over the limit of {limits.body} bytes (`limits.body`)")
