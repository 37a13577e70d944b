"""AWS event streams as server-sent events, so that whoever reads a stream reads one kind of it.

An event becomes `event: NAME` and its payload as data; an exception inside the stream, an event of its own name that
says its type among its members. A model's own stream (`invoke-with-response-stream`) has each of its events as base64
in a `chunk`: what comes out is Anthropic's stream as Anthropic sends it, and an exception is an `error` of its kind.

Source: AWS, Amazon Bedrock API reference, ConverseStream and InvokeModelWithResponseStream.
"""

from __future__ import annotations

import re

import msgspec

from arbiter._speedups import eventstream, nesting
from arbiter.errors import Garbled
from arbiter.wire.native import MESSAGES

CONTENT_TYPE = "application/vnd.amazon.eventstream"

ERROR_TYPES = {
    b"throttlingException": "rate_limit_error",
    b"serviceUnavailableException": "overloaded_error",
    b"modelNotReadyException": "overloaded_error",
    b"validationException": "invalid_request_error",
}
"""What Anthropic's clients know an exception in a stream as; the others are an `api_error`."""

_WORD = re.compile(rb"[A-Za-z]{1,64}\Z")
_KIND = re.compile(r"[a-z_]{1,64}\Z")


class _Chunk(msgspec.Struct):
    inner: bytes | None = msgspec.field(name="bytes", default=None)  # base64


class _Typed(msgspec.Struct):
    type: str = ""


class _Said(msgspec.Struct):
    message: str | None = None
    original: str | None = msgspec.field(name="originalMessage", default=None)


_decode_chunk = msgspec.json.Decoder(_Chunk).decode
_decode_typed = msgspec.json.Decoder(_Typed).decode
_decode_said = msgspec.json.Decoder(_Said).decode
_encode = msgspec.json.Encoder().encode


class Unframer:
    """Reads an event stream whose events are of the format `wire`.

    `feed` never raises: a fault stays in `fault`, after what came before it, and nothing is read from then on.
    """

    __slots__ = ("_messages", "_wraps", "fault")

    def __init__(self, wire: str, limit: int) -> None:
        self.fault: Garbled | None = None
        self._messages = eventstream.MessageReader(limit)
        self._wraps = wire == MESSAGES

    def feed(self, data: bytes) -> bytes:
        """Return the events that `data` completed."""
        if self.fault is not None:
            return b""
        out: list[bytes] = []
        for sort, name, payload in self._messages.feed(data):
            try:
                out.append(self._event(sort, name, payload))
            except Garbled as fault:
                self.fault = fault
                return b"".join(out)
        self.fault = self._messages.fault
        return b"".join(out)

    def _event(self, sort: bytes, name: bytes, payload: bytes) -> bytes:
        if sort != b"event":
            return _failure(name, payload, is_anthropic=self._wraps)
        if not self._wraps:
            return b"event: %b\ndata: %b\n\n" % (_word(name), _line(payload))
        try:
            inner = _decode_chunk(payload).inner if name == b"chunk" else None
            if inner is None:
                return b""  # a kind of event that there was none of when this was written
            kind = _decode_typed(nesting.whole(inner)).type
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise Garbled(f"the upstream sent a chunk that holds no event: {error}") from None
        named = b"event: %b\n" % kind.encode() if _KIND.match(kind) else b""
        return b"%bdata: %b\n\n" % (named, _line(inner))


def _failure(name: bytes, payload: bytes, *, is_anthropic: bool) -> bytes:
    """Return the event that tells of an exception. One without a readable message has its name at least."""
    word = name if _WORD.match(name) else b"exception"
    try:
        said = _decode_said(nesting.whole(payload))
        message = said.original or said.message
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        message = payload.decode("utf-8", "replace") if payload[:1] != b"{" else None
    message = message or f"the upstream reported {word.decode()} inside its stream"
    if is_anthropic:
        inner = {"type": ERROR_TYPES.get(word, "api_error"), "message": message}
        return b"event: error\ndata: %b\n\n" % _encode({"type": "error", "error": inner})
    return b"event: error\ndata: %b\n\n" % _encode({"error": {"type": word.decode(), "message": message}})


def _word(name: bytes) -> bytes:
    if not _WORD.match(name):
        raise Garbled("the upstream sent an event without a name")
    return name


def _line(payload: bytes) -> bytes:
    """Return JSON on one line: outside of its strings, which have none, a line's end is a blank like any other."""
    if b"\n" in payload or b"\r" in payload:
        return payload.replace(b"\r", b" ").replace(b"\n", b" ")
    return payload
