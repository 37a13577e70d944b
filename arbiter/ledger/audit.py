"""What operators do leaves a row: who, when, what, on what (SPEC 8.4a). Every action is written down by `record`."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from arbiter.ledger.database import Database
from arbiter.ledger.session_rows import AuditRow
from arbiter.ledger.tables import AUDIT

_numbers = itertools.count()

CLI = "cli"
ACTIONS: Final = (
    "end",
    "note",
    "title",
    "clear_title",
    "pause",
    "resume",
    "clear_cooldowns",
    "clear_pins",
    "reload",
    "reprice",
    "reconcile",
    "keys_new",
    "keys_revoke",
    "keys_reload",
)
"""All that is ever written down, as docs/ledger.md lists it."""
MAX_CHARS = 256


def new_id(at_ms: int) -> str:
    """Unique, and after those of earlier milliseconds, and of this process's earlier ones of the same."""
    return f"{at_ms:012x}{next(_numbers) & 0xFFFFFFFF:08x}{secrets.token_hex(6)}"


def record(
    db: Database,
    at_ms: int,
    who: str,
    action: str,
    target: str | None = None,
    details: Mapping[str, object] | None = None,
) -> AuditRow:
    """Write one action down, in the transaction that the caller is in. What `details` say is cut to a line's length."""
    assert action in ACTIONS, action
    shown = {name: _shown(value)[:MAX_CHARS] for name, value in (details or {}).items() if value is not None}
    row = AuditRow(
        id=new_id(at_ms),
        at_ms=at_ms,
        who=who[:MAX_CHARS],
        action=action,
        target=target[: 2 * MAX_CHARS] if target is not None else None,
        details=shown or None,
    )
    db.run_many(AUDIT.inserts([row]))
    return row


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
