"""What an operator may do to a session: end it, say something of it, call it something, and take that away again.

The JSON endpoints and the pages ask for the same acts here; each that changes something is written down (SPEC 8.4a).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from arbiter import clock
from arbiter.control.audit import Audit, who_asks
from arbiter.ledger import names, sessions
from arbiter.ledger.database import Database
from arbiter.ledger.query import BadParameter
from arbiter.ledger.session_rows import NoteRow
from arbiter.ledger.store import Changer
from arbiter.sessions.naming import TITLE_CHARS, tidy

NOTE_CHARS = 4096

T = TypeVar("T")


class NoSession(Exception):
    """There is no session of this id."""


class Acts:
    """Errors, of all of them: NoSession, StoreDown; BadParameter for a text that cannot be kept. They block."""

    def __init__(self, changer: Changer, audit: Audit) -> None:
        self._changer = changer
        self._audit = audit

    def end(self, request: Request, key: str) -> bool:
        """End it; whether there was one to end. A call that comes later opens it again."""
        now_ms = clock.now_ms()
        return self._change(request, "end", key, lambda db: sessions.end(db, key, now_ms))

    def note(self, request: Request, key: str, text: str) -> NoteRow:
        """Say something of it."""
        text = text.replace("\r\n", "\n").strip()  # as forms send it
        now_ms, who = clock.now_ms(), who_asks(request)
        if not text or len(text) > NOTE_CHARS:
            raise BadParameter("text", f"between 1 and {NOTE_CHARS} characters")
        return self._change(request, "note", key, lambda db: sessions.add_note(db, key, now_ms, who, text))

    def title(self, request: Request, key: str, text: str) -> tuple[str, bool]:
        """Call it something: the title as it is kept, and whether it is another."""
        title, now_ms = tidy(text), clock.now_ms()
        if not title or len(title) > TITLE_CHARS:
            raise BadParameter("text", f"between 1 and {TITLE_CHARS} characters that can be seen")
        return title, self._change(request, "title", key, lambda db: names.by_operator(db, key, title, now_ms))

    def clear_title(self, request: Request, key: str) -> bool:
        """Take title and summary away for good; whether there was anything to do."""
        now_ms = clock.now_ms()
        return self._change(request, "clear_title", key, lambda db: names.clear(db, key, now_ms))

    def _change(self, request: Request, action: str, key: str, work: Callable[[Database], T]) -> T:
        def change(db: Database) -> T:
            if not sessions.find(db, [key]):
                raise NoSession
            return work(db)

        done = self._changer.change(change)
        if done is not False:
            self._audit.note(request, action, key)
        return done
