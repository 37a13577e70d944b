"""Titles and summaries of sessions by an alias (SPEC 8.4): in the background, bounded, and in nobody's way.

Theory of operation. With `sessions.titles` a worker sends a few of the user's words along with the row of a turn. As a
stage of the recorder this module sees them, and they go no further: after the 1st, the 10th, the 20th, … turn, once it
is stored, the session waits here, one time and no more than QUEUE of them, for its turn to be asked about. A thread
asks a worker (`door`), so that the question is routed, tried, priced and recorded like anybody's, as a request of the
kind `summary`; how many of those the store has of today is how often was asked. What fails is told, and tried again
after the tenth turn from there. Nothing is remembered that a restart would have to know.

An agent's own title takes the same way, from the answer to its request: that is in the row, and needs no question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from arbiter import clock
from arbiter.chore import Chore
from arbiter.config.snapshot import Snapshot
from arbiter.control.day import Day
from arbiter.control.door import Answered, NoAnswer
from arbiter.ledger import names
from arbiter.ledger.database import Database
from arbiter.ledger.recorder import Batch
from arbiter.ledger.redaction import Redactor
from arbiter.ledger.row import RequestRow
from arbiter.ledger.sessions import key_of
from arbiter.ledger.store import Changer, Readable, StoreDown
from arbiter.ledger.titles import TITLE, text_of
from arbiter.log import Log
from arbiter.own import Own
from arbiter.sessions import naming

KIND = "summary"
"""`RequestRow.kind` of what is asked here."""
EVERY_TURNS = 10
QUEUE = 64
WAITING = 256  # agents' titles whose conversation is still to come
ANSWER_S = 60.0
IDLE_S = 3600.0
STOP_S = 2.0
PATH, FORMAT = "/v1/messages", "anthropic-messages"

_log = Log(__name__)


class Asks(Protocol):
    """`control.door.Door`, as far as it is needed."""

    def post(self, path: str, body: bytes, what: Own, *, timeout_s: float, headers: dict[str, str]) -> Answered: ...


class _Due(NamedTuple):
    key: str  # `SessionRow.id`
    words: list[str]


class Titling:
    """A stage of the recorder (`recorder.Stage`), and the thread that asks. Call `start` once, `stop` at the end."""

    def __init__(self, snapshot: Callable[[], Snapshot], store: Readable, changer: Changer, door: Asks) -> None:
        self._snapshot = snapshot
        self._store = store
        self._changer = changer
        self._door = door
        self._due: dict[str, list[str]] = {}  # what waits to be asked about, the oldest first
        self._waiting: dict[str, str] = {}  # titles by the request that they answer
        self._lock = threading.Lock()
        self._day = Day(KIND, store)
        self._redact: tuple[Snapshot, Redactor] | None = None
        self._error: str | None = None
        self._dropped = 0
        self._chore = Chore("titles", self.look, every_s=IDLE_S)

    def start(self) -> None:
        self._chore.start()

    def stop(self) -> None:
        with self._lock:
            self._due.clear()
        self._chore.stop(STOP_S)

    def describe(self) -> dict[str, Any]:
        """What the state tells of titles. `error` is why the last question brought none."""
        titles = self._snapshot().sessions.titles
        on = {"alias": None, "per_day": None} if titles is None else {"alias": titles.alias, "per_day": titles.per_day}
        return {**on, "waiting": len(self._due), "dropped": self._dropped, "error": self._error}

    # ------------------------------------------------------------------ as a stage

    def take(self, batch: Batch, store: Readable) -> None:
        snapshot = self._snapshot()
        if snapshot.sessions.titles is None:
            return
        told: list[tuple[RequestRow, str]] = []
        for row in batch.requests:
            if row.titled is None or (name := naming.read(self._redactor(snapshot)(row.titled))) is None:
                continue
            if row.session is None:
                self._waiting[row.id] = name.title
            else:
                told.append((row, name.title))
        while len(self._waiting) > WAITING:
            del self._waiting[next(iter(self._waiting))]
        if told or self._waiting:
            batch.also.append(partial(_name, batch=batch, told=told, waiting=self._waiting))

    def stored(self, batch: Batch) -> None:
        found = [row for row in batch.requests if row.words and is_due(row.turn_index)]
        if not found or self._snapshot().sessions.titles is None:
            return
        with self._lock:
            for row in found:
                assert row.session is not None and row.words is not None
                key = key_of(row.client, row.session)
                if key not in self._due and len(self._due) >= QUEUE:
                    self._dropped += 1
                else:
                    self._due[key] = row.words
        self._chore.wake()

    def forget(self) -> None:
        """A title that waits is right also if its batch comes again."""

    # ------------------------------------------------------------------ in the thread

    def look(self) -> None:
        """Ask about all that wait. `start` has a thread do it; tests call it."""
        while (due := self._next()) is not None:
            told = self._error
            try:
                self._error = self._name(due)
            except StoreDown as error:
                self._error = f"the store cannot be used: {error}"
            except Exception as bug:  # of one session: the others that wait are no part of it
                self._error = f"the work failed: {type(bug).__name__}: {bug}"
            if self._error is not None and self._error != told:
                _log.warn(f"a session got no title: {self._error}")

    def _next(self) -> _Due | None:
        with self._lock:
            key = next(iter(self._due), None)
            return _Due(key, self._due.pop(key)) if key is not None else None

    def _name(self, due: _Due) -> str | None:
        """Have one session named; why it has none, where somebody should know. Errors: StoreDown."""
        snapshot = self._snapshot()
        titles = snapshot.sessions.titles
        if titles is None or not self._store.read(partial(names.wants, key=due.key)):
            return None
        if self._day.used() >= titles.per_day:
            return f"today's {titles.per_day} questions were asked (sessions.titles.per_day)"
        redact = self._redactor(snapshot)
        question = {
            "model": titles.alias,
            "max_tokens": naming.MAX_TOKENS,
            "system": naming.PROMPT,
            "messages": [{"role": "user", "content": naming.question([redact(words) for words in due.words])}],
        }
        mark = self._day.mark("title")
        try:
            answered = self._door.post(
                PATH,
                msgspec.json.encode(question),
                Own(KIND, TITLE, due.key),
                timeout_s=ANSWER_S,
                headers={"x-trace-id": mark, "anthropic-version": "2023-06-01"},
            )
        except NoAnswer as error:
            if not error.was_sent:
                self._day.undo(mark)
            return str(error)
        if answered.status != 200:
            return f"the alias {titles.alias!r} was answered with status {answered.status}; its row says why"
        said = text_of(FORMAT, [answered.body], is_stream=False, limit=len(answered.body))
        name = naming.read(redact(said)) if said is not None else None
        if name is None:
            return f"the answer of the alias {titles.alias!r} holds no title"
        self._changer.change(partial(names.by_alias, key=due.key, name=name, at_ms=clock.now_ms()))
        return None

    def _redactor(self, snapshot: Snapshot) -> Redactor:
        if self._redact is None or self._redact[0] is not snapshot:
            self._redact = snapshot, Redactor(snapshot.secrets(), snapshot.storage.capture.redact)
        return self._redact[1]


def is_due(turn: int | None) -> bool:
    """Whether a session is asked about after this turn of it."""
    return turn is not None and (turn == 1 or turn % EVERY_TURNS == 0)


def _name(db: Database, *, batch: Batch, told: Sequence[tuple[RequestRow, str]], waiting: Mapping[str, str]) -> None:
    """Agents' titles of what had a session, and of what has found one in this transaction."""
    found = [*told, *((row, waiting[row.id]) for row in batch.adopted if row.id in waiting)]
    titles = [
        (key_of(row.client, row.session), title, row.finished_ms or row.received_ms)
        for row, title in found
        if row.session is not None
    ]
    if titles:
        db.run_many(names.by_agents(titles))
