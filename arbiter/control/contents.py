"""What was captured, as the administration shows it: JSON for programs, and pages of readable text.

What is shown came from anybody: every page escapes it, and none of it is ever markup.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter.config.snapshot import Snapshot
from arbiter.control.api import fault, json, store_down, store_off
from arbiter.ledger.blocks_text import Said
from arbiter.ledger.questions import content
from arbiter.ledger.questions.content import Content, Piece
from arbiter.ledger.store import QueryTooSlow, Readable, StoreDown

NEWEST = 6
"""Messages that a request's own page shows beside its answer; the page of its content shows all."""

NOT_CAPTURED = "nothing of this request's content is kept: it was not captured, or its time is over"


class Shown(NamedTuple):
    """One block as a page shows it; `is_cut` where there is more of it behind its link."""

    direction: str
    position: int
    kind: str
    texts: list[Said]
    is_cut: bool
    is_missing: bool


class Page(NamedTuple):
    """Some of a request's blocks; `left_out` counts the others."""

    blocks: list[Shown]
    left_out: int
    headers: dict[str, dict[str, str]]


class Contents:
    """The endpoints of captured content. `render` makes a page of a template's name and its values."""

    def __init__(
        self, store: Readable | None, snapshot: Callable[[], Snapshot], render: Callable[..., Response]
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._render = render

    def routes(self) -> list[Route]:
        return [
            Route("/admin/api/requests/{id}/content", self.api),
            Route("/admin/ui/requests/{id}/content", self.page),
            Route("/admin/ui/requests/{id}/content/{direction}/{position}", self.block),
        ]

    def api(self, request: Request) -> Response:
        """What is kept of one request."""
        if self._store is None:
            return store_off()
        request_id = request.path_params["id"]
        try:
            found = self._store.read(lambda database: content.content(database, request_id))
            if found.is_empty and self._store.request(request_id) is None:
                return fault(404, "there is no request of this id")
        except StoreDown as error:
            return store_down(error)
        if found.is_empty:
            return fault(404, NOT_CAPTURED, reason="not_captured")
        return json(content.as_json(request_id, found))

    def page(self, request: Request) -> Response:
        """All of a request's blocks, each as far as its preview goes."""
        request_id = request.path_params["id"]
        preview = self._snapshot().storage.capture.preview_chars
        return self._show(
            request_id,
            lambda store: shown(store.read(lambda database: content.content(database, request_id)), preview),
        )

    def block(self, request: Request) -> Response:
        """One block, whole."""
        params = request.path_params
        position = params["position"]
        # More digits than any request has blocks would not fit into a database's number.
        at = int(position) if position.isascii() and position.isdigit() and len(position) < 9 else -1

        def whole(store: Readable) -> Page:
            piece = store.read(lambda database: content.piece(database, params["id"], params["direction"], at))
            return Page([_shown(piece, None)] if piece is not None else [], 0, {})

        return self._show(params["id"], whole)

    def _show(self, request_id: str, find: Callable[[Readable], Page]) -> Response:
        if self._store is None:
            return self._render("off.html", 503)
        try:
            found = find(self._store)
        except QueryTooSlow as error:
            return self._render("slow.html", 503, reason=str(error))
        except StoreDown as error:
            return self._render("down.html", 503, reason=str(error))
        is_empty = not found.blocks and not found.headers
        values = {"content": found, "request_id": request_id, "reason": NOT_CAPTURED if is_empty else None}
        return self._render("content.html", 404 if is_empty else 200, **values)


def shown(found: Content, preview_chars: int, newest: int | None = None) -> Page:
    """The blocks for a page; with `newest` no more than so many messages, and the answer."""
    pieces = found.pieces
    if newest is not None:
        asked = [piece for piece in pieces if piece.use.direction == "in" and piece.use.kind == "message"]
        pieces = asked[-newest:] + [piece for piece in pieces if piece.use.direction == "out"]
    blocks = [_shown(piece, preview_chars) for piece in pieces]
    return Page(blocks, len(found.pieces) - len(pieces), found.headers)


def _shown(piece: Piece, preview_chars: int | None) -> Shown:
    use = piece.use
    texts = piece.said()
    kept, is_cut = texts, False
    if preview_chars is not None:
        kept, is_cut = _preview(texts, preview_chars)
    return Shown(use.direction, use.position, use.kind, kept, is_cut, piece.json is None)


def _preview(texts: list[Said], left: int) -> tuple[list[Said], bool]:
    """As much of the texts as `left` characters hold, and whether that is not all."""
    kept: list[Said] = []
    for one in texts:
        if left <= 0:
            return kept, True
        kept.append(Said(one.label, one.text[:left]))
        if len(one.text) > left:
            return kept, True
        left -= len(one.text) or 1
    return kept, False


def for_detail(store: Readable, snapshot: Snapshot, request_id: str) -> dict[str, Any]:
    """What a request's own page shows of its content. Errors: StoreDown."""
    found = store.read(lambda database: content.content(database, request_id))
    return {"content": shown(found, snapshot.storage.capture.preview_chars, NEWEST), "request_id": request_id}
