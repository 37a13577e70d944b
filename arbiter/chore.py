"""Work that is done again and again in a thread of its own, whatever becomes of it.

Nobody looks after a thread: what it does not catch ends it, and from then on what it was for is not done. So work that
fails is told in the log, once until it goes well again, and tried anew when its time comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from arbiter.log import Log

_log = Log(__name__)


class Chore:
    """Does `work` every `every_s` seconds, first after `first_s`. `name` is its thread's, and the log's for it.

    Call `start` in the process that is to do it; after `stop` it is over for good.
    """

    def __init__(self, name: str, work: Callable[[], object], *, every_s: float, first_s: float = 0.0) -> None:
        self._name = name
        self._work = work
        self._every_s, self._first_s = every_s, first_s
        self._is_over = self._has_failed = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Do it now; where it is being done, once more behind that."""
        self._wake.set()

    def stop(self, within_s: float | None = None) -> bool:
        """Begin it no more, and wait for what is under way, at most so long. Returns whether that has ended."""
        self._is_over = True
        self._wake.set()
        if self._thread is None:
            return True
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._wake.wait(self._first_s)
        while not self._is_over:
            self._wake.clear()
            try:
                self._work()
            except Exception as bug:
                if not self._has_failed:
                    _log.error("work in the background failed, and will be tried again", chore=self._name, error=bug)
                self._has_failed = True
            else:
                if self._has_failed:
                    _log.warn("work in the background goes well again", chore=self._name)
                self._has_failed = False
            self._wake.wait(self._every_s)
