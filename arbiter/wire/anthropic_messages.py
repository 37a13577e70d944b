"""Anthropic Messages: the eight names of `format.py`, and where in this format each of them lives."""

from __future__ import annotations

from arbiter.wire import faults
from arbiter.wire.messages_answer import write_answer
from arbiter.wire.messages_build import build_request, disguised
from arbiter.wire.messages_errors import ERROR_TYPES, status_of, write_error, write_error_event
from arbiter.wire.messages_parse import FORMAT, parse_request
from arbiter.wire.messages_reader import MessagesReader, parse_answer
from arbiter.wire.messages_writer import MessagesWriter

__all__ = [
    "ERROR_TYPES",
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
path = "/messages"
keepalive = b'event: ping\ndata: {"type":"ping"}\n\n'
reader = MessagesReader
writer = MessagesWriter
parse_error = faults.read
parse_error_event = faults.in_stream
