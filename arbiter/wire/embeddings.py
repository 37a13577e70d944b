"""OpenAI's embeddings: relayed as they are. Errors are those of OpenAI's other endpoints."""

from __future__ import annotations

from arbiter.wire import faults
from arbiter.wire.chat_writer import write_error_event
from arbiter.wire.openai_errors import write_error

__all__ = ["keepalive", "name", "parse_error", "path", "write_error", "write_error_event"]

name = "embeddings"
path = "/embeddings"
keepalive = b""  # an answer in one piece has none
parse_error = faults.read
