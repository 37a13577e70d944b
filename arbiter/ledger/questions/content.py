"""What was asked and answered in one request, as far as it was captured."""

from __future__ import annotations

from typing import Any

import msgspec
import zstandard

from arbiter.ledger.blocks import LEFT_OUT, BlockRow, HeadersRow, UseRow
from arbiter.ledger.blocks_text import Said, said
from arbiter.ledger.database import Database
from arbiter.ledger.tables import BLOCKS, HEADERS, USES

_MARKS = 500  # values of one question


class Piece(msgspec.Struct, frozen=True):
    """One block where it stands. `json` is its text, None where it is no longer kept."""

    use: UseRow
    json: bytes | None

    def said(self) -> list[Said]:
        """What it says, and how much of it is missing; nothing where it is no longer kept."""
        if self.json is None:
            return []
        texts = said(self.use.kind, msgspec.json.decode(self.json))
        left_out = (self.use.marks or {}).get(LEFT_OUT)
        return texts if left_out is None else [*texts, Said("left out", f"[{left_out} bytes more were not kept]")]


class Content(msgspec.Struct, frozen=True):
    """What is kept of one request: its pieces in the order of reading, the answer last; headers by direction."""

    pieces: list[Piece]
    headers: dict[str, dict[str, str]]

    @property
    def is_empty(self) -> bool:
        return not self.pieces and not self.headers


def content(database: Database, request_id: str) -> Content:
    """All that is kept of the request; empty where it was not captured, is not stored yet, or was swept."""
    sql = f"{USES.select} WHERE request_id = ? ORDER BY direction, position"
    uses = [USES.load(UseRow, values) for values in database.rows(sql, (request_id,))]
    texts = texts_of(database, list(dict.fromkeys(use.block for use in uses)))
    found = database.rows(f"{HEADERS.select} WHERE request_id = ?", (request_id,))
    headers = [HEADERS.load(HeadersRow, values) for values in found]
    return Content([Piece(use, texts.get(use.block)) for use in uses], {row.direction: row.headers for row in headers})


def piece(database: Database, request_id: str, direction: str, position: int) -> Piece | None:
    """One block of a request."""
    sql = f"{USES.select} WHERE request_id = ? AND direction = ? AND position = ?"
    found = database.rows(sql, (request_id, direction, position))
    if not found:
        return None
    use = USES.load(UseRow, found[0])
    return Piece(use, texts_of(database, [use.block]).get(use.block))


def texts_of(database: Database, ids: list[str]) -> dict[str, bytes]:
    """The texts of blocks, by their ids; without those that are no longer kept."""
    plain = zstandard.ZstdDecompressor().decompress
    found: dict[str, bytes] = {}
    for start in range(0, len(ids), _MARKS):
        some = ids[start : start + _MARKS]
        sql = f"{BLOCKS.select} WHERE id IN ({', '.join('?' * len(some))})"
        for values in database.rows(sql, some):
            row = BLOCKS.load(BlockRow, values)
            found[row.id] = plain(row.text)
    return found


def as_json(request_id: str, found: Content) -> dict[str, Any]:
    """Content as the admin API and `arbiter requests --content --json` show it."""
    return {
        "request": request_id,
        "content": [
            {
                "direction": piece.use.direction,
                "position": piece.use.position,
                "kind": piece.use.kind,
                "block": piece.use.block,
                "marks": piece.use.marks,
                "value": None if piece.json is None else msgspec.Raw(piece.json),
            }
            for piece in found.pieces
        ],
        "headers": found.headers,
    }
