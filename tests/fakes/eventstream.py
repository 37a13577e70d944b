"""AWS event-stream messages, made and taken apart here from the description of the format.

    data = event("contentBlockDelta", b'{"delta":{"text":"a"},"contentBlockIndex":0}')
    data += exception("throttlingException", b'{"message":"slow down"}')

Source: AWS, "Event stream encoding".
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

Header = tuple[bytes, int, bytes]
"""Name, type, and the value's bytes."""


def header(name: bytes, kind: int, value: bytes) -> bytes:
    measured = struct.pack(">H", len(value)) if kind in (6, 7) else b""
    return bytes([len(name)]) + name + bytes([kind]) + measured + value


def message(headers: bytes, payload: bytes) -> bytes:
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    head = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return head + struct.pack(">I", zlib.crc32(head))


def texts(**values: str) -> bytes:
    """Text headers, each named as AWS names its own: `event_type` is `:event-type`."""
    return b"".join(header(f":{name.replace('_', '-')}".encode(), 7, value.encode()) for name, value in values.items())


def event(name: str, payload: bytes) -> bytes:
    """One event of a stream, with the headers that Bedrock sends."""
    return message(texts(event_type=name, content_type="application/json", message_type="event"), payload)


def exception(name: str, payload: bytes) -> bytes:
    return message(texts(exception_type=name, content_type="application/json", message_type="exception"), payload)


def error(code: str, words: str) -> bytes:
    return message(texts(error_code=code, error_message=words, message_type="error"), b"")


def chunk(payload: bytes) -> bytes:
    """One event of a model's own stream, as `invoke-with-response-stream` has it."""
    return event("chunk", json.dumps({"bytes": base64.b64encode(payload).decode(), "p": "abcdefgh"}).encode())


def stream(lines: str) -> bytes:
    """A stream from lines of JSON, each `{"NAME": payload}`: events, and exceptions by the end of their name."""
    out = []
    for line in filter(str.strip, lines.splitlines()):
        ((name, payload),) = json.loads(line).items()
        make: Any = exception if name.endswith("Exception") else event
        out.append(make(name, json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()))
    return b"".join(out)
