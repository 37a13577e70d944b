"""What is read alike in every format's answers: why the model stopped, beside what it did, and what it used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arbiter.model import STOP, TOOL_CALLS, Finish, Usage


def mended(finish: Finish, has_calls: bool) -> Finish:
    """Return why a model stopped. A server that called and says that it is done meant the calls, and the reverse."""
    if has_calls and finish is STOP:
        return TOOL_CALLS
    if not has_calls and finish is TOOL_CALLS:
        return STOP
    return finish


def usage_reader(counted: Callable[[bytes], tuple[Any, ...] | None]) -> Callable[[bytes | None], Usage | None]:
    """Return what reads a usage object as neutral counts, None where it is none; `counted` normalises a format's."""

    def read(raw: bytes | None) -> Usage | None:
        found = counted(raw) if raw is not None else None
        return Usage(*found) if found is not None else None

    return read
