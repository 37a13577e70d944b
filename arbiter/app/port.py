"""A worker's port, and how it closes.

Granian stops at once when it is told to, and drops whoever has connected and was not heard yet. So nobody new comes in
first, and who is there already has a moment to be accepted and to say what it wants.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Callable
from typing import Any

from arbiter.app import linux

_ACCEPTED_S = 1.0  # who has connected is accepted by then, or by nobody
_HEARD_S = 0.1  # so long after that it has begun its request
_LOOK_S = 0.005


class Port:
    """`holder` is Granian's, of a socket that listens or will."""

    def __init__(self, holder: Any) -> None:
        # One of our own beside Granian's: it closes that one by itself.
        self._listener = socket.socket(fileno=os.dup(holder.get_fd()))

    def close(self, loop: asyncio.AbstractEventLoop, then: Callable[[], object]) -> None:
        """Take nobody new in, and call `then`, which has Granian close the port, once who came before was heard."""
        if self._listener.family != socket.AF_UNIX:  # there its path is gone by now
            linux.take_no_more(self._listener)
        self._look(loop, then, loop.time() + _ACCEPTED_S)

    def _look(self, loop: asyncio.AbstractEventLoop, then: Callable[[], object], until: float) -> None:
        if self._has_callers() and loop.time() < until:
            loop.call_later(_LOOK_S, self._look, loop, then, until)
        else:
            loop.call_later(_HEARD_S, self._shut, then)

    def _shut(self, then: Callable[[], object]) -> None:
        self._listener.close()
        then()

    def _has_callers(self) -> bool:
        """Whether somebody waits to be accepted."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return bool(poll.poll(0))
