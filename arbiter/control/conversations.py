"""What a worker asks of the store on behalf of a request: the conversation that it goes on from (SPEC 6.3).

Workers forward `/admin/…` alone, so nobody outside of this gateway reaches it.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter.ledger.questions.conversation import PATH, Kept, conversation
from arbiter.ledger.store import Readable, StoreDown


class Conversations:
    """The endpoint. `store` None: nothing is recorded."""

    def __init__(self, store: Readable | None) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [Route(PATH + "{trace_id}", self.conversation)]

    def conversation(self, request: Request) -> Response:
        """A `Kept` as JSON; 503 where the store does not answer."""
        trace_id = request.path_params["trace_id"]
        try:
            found = Kept(why="nothing is recorded")
            if self._store is not None:
                found = self._store.read(lambda database: conversation(database, trace_id))
        except StoreDown:
            return Response(status_code=503)
        return Response(msgspec.json.encode(found), media_type="application/json")
