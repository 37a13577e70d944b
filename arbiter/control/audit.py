"""Who did what: every action of an operator is written down here, and listed under /admin/api/audit (SPEC 8.4a)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.control.api import answer, json
from arbiter.ledger import audit
from arbiter.ledger.questions import audit as questions
from arbiter.ledger.store import Changer, Readable, StoreDown
from arbiter.log import Log

_log = Log(__name__)


class Audit:
    """`changer` None: nothing is recorded, and the log alone tells of actions."""

    def __init__(self, store: Readable | None, changer: Changer | None) -> None:
        self._store = store
        self._changer = changer

    def routes(self) -> list[Route]:
        return [Route("/admin/api/audit", self.listing)]

    def listing(self, request: Request) -> Response:
        """What operators did, newest first."""
        return answer(
            request,
            self._store,
            questions.parse,
            questions.listing,
            lambda found, asked: json({"audit": [msgspec.structs.asdict(row) for row in found]}),
        )

    def note(
        self, request: Request, action: str, target: str | None = None, details: Mapping[str, object] | None = None
    ) -> None:
        """Write down what was done. It is done: where the store takes no row, the log has it. Blocks."""
        who = who_asks(request)
        peer = request.headers.get("x-arbiter-peer", "")
        _log.info("an operator acted", who=who, peer=peer, action=action, target=target, details=dict(details or {}))
        if self._changer is None:
            return
        try:
            self._changer.change(lambda db: audit.record(db, clock.now_ms(), who, action, target, details))
        except StoreDown as error:
            _log.warn(f"an operator's action is in the log alone: {error}", action=action, target=target)


def who_asks(request: Request) -> str:
    """Whom the worker let in; without its word it came over our own socket, which is our own user's alone."""
    return unquote(request.headers.get("x-arbiter-user", audit.CLI))
