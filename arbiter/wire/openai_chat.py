"""OpenAI Chat Completions: the eight names of `format.py`, and where in this format each of them lives."""

from __future__ import annotations

from arbiter.wire import faults
from arbiter.wire.chat_answer import write_answer
from arbiter.wire.chat_build import build_request, disguised
from arbiter.wire.chat_parse import FORMAT, parse_request
from arbiter.wire.chat_reader import ChatReader, parse_answer
from arbiter.wire.chat_writer import ChatWriter, write_error_event
from arbiter.wire.faults import status_of
from arbiter.wire.openai_errors import ERROR_TYPES, UPSTREAM_CODES, write_error

__all__ = [
    "ERROR_TYPES",
    "UPSTREAM_CODES",
    "build_request",
    "disguised",
    "keepalive",
    "name",
    "parse_answer",
    "parse_error",
    "parse_error_event",
    "parse_request",
    "path",
    "reader",
    "status_of",
    "write_answer",
    "write_error",
    "write_error_event",
    "writer",
]

name = FORMAT
path = "/chat/completions"
keepalive = b": keepalive\n\n"
reader = ChatReader
writer = ChatWriter
parse_error = faults.read
parse_error_event = faults.in_stream
