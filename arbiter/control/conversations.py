"""What a worker asks of the store on behalf of a request: the conversation that it goes on from, or the answers that it
refers to (SPEC 6.3).

Workers forward `/admin/…` alone, so nobody outside of this gateway reaches it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter.ledger.database import Database
from arbiter.ledger.questions.conversation import ANSWERS_PATH, PATH, Kept, answers, conversation
from arbiter.ledger.store import Readable, StoreDown


class Conversations:
    """The endpoints. `store` None: nothing is recorded."""

    def __init__(self, store: Readable | None) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [
            Route(PATH + "{trace_id}", self.conversation),
            Route(ANSWERS_PATH + "{trace_ids}", self.answers),
        ]

    def conversation(self, request: Request) -> Response:
        """A `Kept` as JSON; 503 where the store does not answer."""
        trace_id = request.path_params["trace_id"]
        return self._answer(lambda database: conversation(database, trace_id))

    def answers(self, request: Request) -> Response:
        """A `Kept` as JSON; 503 where the store does not answer."""
        trace_ids = request.path_params["trace_ids"].split(",")
        return self._answer(lambda database: answers(database, trace_ids))

    def _answer(self, question: Callable[[Database], Kept]) -> Response:
        try:
            found = Kept(why="nothing is recorded") if self._store is None else self._store.read(question)
        except StoreDown:
            return Response(status_code=503)
        return Response(msgspec.json.encode(found), media_type="application/json")
