"""Bedrock Converse: the names of `format.py` that an upstream's format has. No client speaks it to us."""

from __future__ import annotations

from arbiter.wire import faults
from arbiter.wire.converse_build import FORMAT, PATH, build_request, disguised
from arbiter.wire.converse_reader import ConverseReader, parse_answer

__all__ = ["build_request", "disguised", "name", "parse_answer", "parse_error", "parse_error_event", "path", "reader"]

name = FORMAT
path = PATH
reader = ConverseReader
parse_error = faults.read
parse_error_event = faults.in_stream
