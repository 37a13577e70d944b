"""Rows that are old enough to go (SPEC 7.9), and their going: hourly, in two steps, with the recorder hardly noticing.

First the oldest rows are marked: their ids are read, which holds up nobody. Then they are deleted, `AT_ONCE` in a
transaction, and after each the store is left to others for as long as that took. A sweep that is cut short has deleted
whole transactions, and the next one goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from arbiter import clock
from arbiter.chore import Chore
from arbiter.ledger import search_tender
from arbiter.ledger.database import Database
from arbiter.ledger.store import Store, StoreDown
from arbiter.ledger.toolsets import USED_EVERY_S

MARKED = 10_000
AT_ONCE = 200
FIRST_SWEEP_S = 60.0
SWEEP_EVERY_S = 3600.0
SHORTEST_PAUSE_S = 0.02
STOP_WITHIN_S = 2.0
USED_LATE_S = 2 * USED_EVERY_S  # a set of tools was in use that long after it was said to be; clocks differ, too

log = logging.getLogger("arbiter.ledger")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of `table` go once `moment`, a column with Unix milliseconds, is further back than `ttl_s`.

    Shapes: the table has an `id`; `parts` are the tables whose rows go with theirs, each with the column that names it;
    `request` is the column with the request of which attempts go, if any do. `only`: rows of which this is true.
    """

    table: str
    moment: str
    ttl_s: float
    parts: Mapping[str, str] = {}
    request: str | None = None
    only: str | None = None

    @property
    def is_old(self) -> str:
        """The condition, with a mark for the moment."""
        return f"{self.moment} < ?" if self.only is None else f"{self.only} AND {self.moment} < ?"


_UNSEEN_AND_ALONE = (
    "last_ms IS NULL AND NOT EXISTS (SELECT 1 FROM sessions child"
    " WHERE child.parent = sessions.session AND COALESCE(child.client, '') = COALESCE(sessions.client, ''))"
)
"""A session that nobody saw, and that those who named it as their parent have left behind."""


def of_rows(ttl_s: float) -> list[Rule]:
    """What `storage.rows_ttl` stands for. An attempt goes with its request, or on its own if that was gone before; so
    does what was captured of one, and that of a request which has no row."""
    parts = dict.fromkeys(("attempts", "request_blocks", "request_headers"), "request_id")
    notes = {"notes": "session_id"}
    return [
        Rule(table="requests", moment="received_ms", ttl_s=ttl_s, parts=parts, request="id"),
        Rule(table="attempts", moment="started_ms", ttl_s=ttl_s, request="request_id"),
        Rule(table="tool_sets", moment="used_ms", ttl_s=ttl_s + USED_LATE_S),
        *of_content(ttl_s),
        Rule(table="sessions", moment="last_ms", ttl_s=ttl_s, parts=notes),
        Rule(table="sessions", moment="COALESCE(last_ms, 0)", ttl_s=ttl_s, parts=notes, only=_UNSEEN_AND_ALONE),
    ]


def of_content(ttl_s: float) -> list[Rule]:
    """What `storage.capture.ttl` stands for. The blocks that these rows refer to are `capture_keeper`'s to sweep."""
    return [Rule(table=table, moment="at_ms", ttl_s=ttl_s) for table in ("request_blocks", "request_headers")]


class Sweeper:
    """Sweeps every hour in a thread of its own; `rules` says what holds by then."""

    def __init__(self, open_store: Callable[[], Store], rules: Callable[[], Sequence[Rule]]) -> None:
        self._open_store = open_store
        self._rules = rules
        self._stopping = threading.Event()
        self._chore = Chore("sweeper", self._try, every_s=SWEEP_EVERY_S, first_s=FIRST_SWEEP_S)

    def start(self) -> None:
        self._chore.start()

    def stop(self) -> None:
        """End after the transaction that is under way."""
        self._stopping.set()
        self._chore.stop(STOP_WITHIN_S)

    def sweep(self) -> dict[str, int]:
        """Delete what is too old. Returns how many rows of each rule's table. Errors: StoreDown."""
        rules = self._rules()
        if not rules:
            return {}
        swept = dict.fromkeys([rule.table for rule in rules], 0)
        store = self._open_store()
        try:
            for rule in rules:
                swept[rule.table] += self._sweep(store, rule)
        finally:
            store.close()
        return swept

    def _try(self) -> None:
        try:
            swept = self.sweep()
        except StoreDown as error:
            log.warning("old rows could not be deleted, and will be tried again in an hour: %s", error)
            return
        if any(swept.values()):
            log.info("old rows were deleted", extra=swept)

    def _sweep(self, store: Store, rule: Rule) -> int:
        before_ms = clock.now_ms() - int(rule.ttl_s * 1000)
        count = 0
        while not self._stopping.is_set():
            marked = store.read(lambda database: _mark(database, rule, before_ms))
            for start in range(0, len(marked), AT_ONCE):
                ids = marked[start : start + AT_ONCE]
                began = clock.monotonic()
                count += store.change(partial(_delete, rule=rule, ids=ids, before_ms=before_ms))
                if self._stopping.wait(max(SHORTEST_PAUSE_S, clock.monotonic() - began)):
                    return count
            if len(marked) < MARKED:
                break
        return count


def _mark(database: Database, rule: Rule, before_ms: int) -> list[str]:
    """Ids of the oldest rows that may go, at most MARKED."""
    sql = f"SELECT id FROM {rule.table} WHERE {rule.is_old} ORDER BY {rule.moment} LIMIT {MARKED}"
    return [found for (found,) in database.rows(sql, (before_ms,))]


def _delete(database: Database, rule: Rule, ids: Sequence[str], before_ms: int) -> int:
    """Delete these rows with their parts; what was used again since it was marked stays."""
    these = f"id IN ({', '.join('?' * len(ids))}) AND {rule.is_old}"
    requests: list[str] = []
    if rule.request is not None:
        asked = f"SELECT DISTINCT {rule.request} FROM {rule.table} WHERE {these}"
        requests = [request for (request,) in database.rows(asked, (*ids, before_ms))]
    for table, column in rule.parts.items():
        of_these = f"{column} IN (SELECT id FROM {rule.table} WHERE {these})"
        database.run(f"DELETE FROM {table} WHERE {of_these}", (*ids, before_ms))
    count = database.run(f"DELETE FROM {rule.table} WHERE {these}", (*ids, before_ms))
    search_tender.parted(database, requests)
    return count
