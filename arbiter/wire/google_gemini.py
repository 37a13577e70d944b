"""Google Gemini: the eight names of `format.py`, and where in this format each of them lives."""

from __future__ import annotations

from arbiter.wire import faults
from arbiter.wire.faults import status_of
from arbiter.wire.gemini_answer import write_answer
from arbiter.wire.gemini_build import build_request
from arbiter.wire.gemini_errors import ERROR_TYPES, write_error, write_error_event
from arbiter.wire.gemini_names import PATH, disguised
from arbiter.wire.gemini_parse import parse_request
from arbiter.wire.gemini_parts import FORMAT
from arbiter.wire.gemini_reader import GeminiReader, parse_answer
from arbiter.wire.gemini_writer import GeminiWriter

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
path = PATH
keepalive = b""
"""None: Google's SDKs fail on a comment between events, and take an empty event for an answer."""
reader = GeminiReader
writer = GeminiWriter
parse_error = faults.read
parse_error_event = faults.in_stream
