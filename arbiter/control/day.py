"""How often the gateway has asked something by itself today: of all gateways on a store, and over restarts.

The rows of the questions are the count. One that was just asked has none yet, so those are remembered until theirs is
stored, by a name that each question goes by.
"""

from __future__ import annotations

import threading

from arbiter import clock
from arbiter.config.rates import DAY_MS
from arbiter.ledger.audit import new_id
from arbiter.ledger.database import Database
from arbiter.ledger.store import Readable


class Day:
    """Questions of one `RequestRow.kind` on the day (UTC) that it is."""

    def __init__(self, kind: str, store: Readable) -> None:
        self._kind = kind
        self._store = store
        self._asked: dict[str, int] = {}  # on which day, by what the question is called; those that may have no row yet
        self._lock = threading.Lock()

    def mark(self, what: str) -> str:
        """A question is about to be asked: the name that it is to be sent with, as `x-trace-id`."""
        now_ms = clock.now_ms()
        mark = f"{what}-{new_id(now_ms)}"
        with self._lock:
            self._asked[mark] = now_ms // DAY_MS
        return mark

    def undo(self, mark: str) -> None:
        """It was not asked."""
        with self._lock:
            self._asked.pop(mark, None)

    def used(self) -> int:
        """How many there were. Errors: StoreDown."""
        day = clock.now_ms() // DAY_MS
        with self._lock:
            self._asked = {mark: asked for mark, asked in self._asked.items() if asked == day}
            asked = list(self._asked)
        count, known = self._store.read(lambda database: _count(database, self._kind, day * DAY_MS, asked))
        with self._lock:
            for mark in known:
                self._asked.pop(mark, None)
            return count + len(self._asked)


def _count(database: Database, kind: str, since_ms: int, asked: list[str]) -> tuple[int, list[str]]:
    """How many have a row, and which of those that were `asked` do."""
    sql = "SELECT COUNT(*) FROM requests WHERE kind <> 'client' AND kind = ? AND received_ms >= ?"
    count = int(database.rows(sql, (kind, since_ms))[0][0])
    if not asked:
        return count, []
    marks = ", ".join("?" * len(asked))
    found = database.rows(f"SELECT client_trace_id FROM requests WHERE client_trace_id IN ({marks})", asked)
    return count, [mark for (mark,) in found]
