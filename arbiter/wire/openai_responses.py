"""OpenAI Responses: the eight names of `format.py`, and where in this format each of them lives."""

from __future__ import annotations

from arbiter.wire import faults
from arbiter.wire.faults import status_of
from arbiter.wire.openai_errors import ERROR_TYPES, UPSTREAM_CODES, write_error
from arbiter.wire.responses_answer import write_answer
from arbiter.wire.responses_build import build_request, disguised
from arbiter.wire.responses_errors import write_error_event
from arbiter.wire.responses_parse import FORMAT, parse_request
from arbiter.wire.responses_reader import ResponsesReader, parse_answer
from arbiter.wire.responses_writer import ResponsesWriter

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
path = "/responses"
keepalive = b": keepalive\n\n"
reader = ResponsesReader
writer = ResponsesWriter
parse_error = faults.read
parse_error_event = faults.in_stream
