"""The store's tables, derived from the row Structs, and how a database of any age becomes today's.

A field is written once, in `row.py`: appending one there adds its column everywhere, here at the next start. Anything
else that changes is a numbered step, in `MIGRATIONS` (a renamed column) or in `FILLS` (a value filled in); what a new
table begins with stands in `seeds`. The SQL is the part that
SQLite and PostgreSQL share; a dialect only names the types.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from arbiter.ledger.blocks import BlockRow, HeadersRow, UseRow
from arbiter.ledger.row import UNSTORED, AttemptRow, RequestRow
from arbiter.ledger.seeds import SEEDS
from arbiter.ledger.session_rows import AuditRow, NoteRow, SessionRow
from arbiter.ledger.toolsets import ToolSetRow

Kind = Literal["text", "integer", "boolean", "json", "blob"]

SQLITE: Final[Mapping[str, str]] = {
    "text": "TEXT",
    "integer": "INTEGER",
    "boolean": "INTEGER",
    "json": "TEXT",
    "blob": "BLOB",
}

# Text is compared byte by byte there too: a language's own order would let pages and ranges of ids depend on it.
POSTGRESQL: Final[Mapping[str, str]] = {
    "text": 'TEXT COLLATE "C"',
    "integer": "BIGINT",
    "boolean": "BIGINT",
    "json": 'TEXT COLLATE "C"',
    "blob": "BYTEA",
}

TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "requests": RequestRow,
    "attempts": AttemptRow,
    "sessions": SessionRow,
    "notes": NoteRow,
    "audit": AuditRow,
    "blocks": BlockRow,
    "request_blocks": UseRow,
    "request_headers": HeadersRow,
    "tool_sets": ToolSetRow,
}

INDEXES: Final[Mapping[str, str]] = {
    # Newest first is the order of every listing; the id makes it total, so that a page can go on where the last ended.
    "requests_newest": "requests (received_ms, id)",
    "requests_trace": "requests (trace_id)",
    "requests_client_trace": "requests (client_trace_id) WHERE client_trace_id IS NOT NULL",
    "requests_opener": "requests (opener, received_ms) WHERE opener IS NOT NULL",
    "requests_session": "requests (session, received_ms) WHERE session IS NOT NULL",
    # The gateway's own are few among the rest.
    "requests_own": "requests (received_ms) WHERE kind <> 'client'",
    "requests_about": "requests (about, received_ms) WHERE about IS NOT NULL",
    "sessions_newest": "sessions (last_ms)",
    "sessions_open": "sessions (last_ms) WHERE ended_ms IS NULL",
    "sessions_client": "sessions (client, last_ms)",
    "sessions_parent": "sessions (parent) WHERE parent IS NOT NULL",
    "sessions_name": "sessions (session)",
    "notes_session": "notes (session_id, at_ms)",
    "audit_newest": "audit (at_ms)",
    "attempts_request": "attempts (request_id, number)",
    "attempts_newest": "attempts (started_ms, id)",
    # The calls before a call.
    "attempts_conversation": "attempts (conversation, finished_ms) WHERE conversation IS NOT NULL",
    # What a provider said of its limits: found without a look at the rows, as most of them have something.
    "attempts_limits": "attempts (started_ms, provider, account, model_asked) WHERE rate_limits IS NOT NULL",
    "attempts_refused": "attempts (started_ms) WHERE status = 429",
    "attempts_told_to_wait": "attempts (started_ms) WHERE retry_after_ms IS NOT NULL",
    "attempts_lost": "attempts (started_ms) WHERE cache_verdict IS NOT NULL",
    "request_blocks_request": "request_blocks (request_id)",
    "request_blocks_block": "request_blocks (block)",
    "request_blocks_oldest": "request_blocks (at_ms)",
    "request_headers_request": "request_headers (request_id)",
    "request_headers_oldest": "request_headers (at_ms)",
    "blocks_oldest": "blocks (last_used_ms)",
}

FORMER_INDEXES: Final = frozenset({"attempts_session"})
"""Those of earlier releases that no question needs any more. Each one costs every row."""

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = ((), (), ())
"""Steps from version n to n+1, beginning with version 0: an empty database. Its tables are made from the Structs."""

FILLS: Final[tuple[tuple[str, ...], ...]] = (
    (),
    (
        # What a subscription served had no cost; that it costs nothing is known (SPEC 6.5).
        "UPDATE attempts SET cost_pd = 0 WHERE cost_source = 'subscription' AND cost_pd IS NULL",
        "UPDATE requests SET cost_pd = 0 WHERE cost_pd IS NULL AND id IN (SELECT request_id FROM attempts"
        " WHERE cost_source IS NOT NULL GROUP BY request_id HAVING COUNT(*) = COUNT(cost_pd)"
        " AND COUNT(CASE WHEN cost_source = 'subscription' THEN 1 END) = COUNT(*))",
    ),
    # Which attempts have which set would take a look at each of them; that it was no later is found at once.
    ("UPDATE tool_sets SET used_ms = COALESCE((SELECT MAX(started_ms) FROM attempts), seen_ms) WHERE used_ms IS NULL",),
)
"""What belongs to the same steps, and fills in values: for when the tables have all their columns."""

VERSION: Final = len(MIGRATIONS)


class NewerSchema(Exception):
    """The database was migrated by a newer Arbiter than this one."""


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a row as a column. `required`: there is no row without it."""

    name: str
    kind: Kind
    required: bool
    default: Any  # what an absent value reads as

    @property
    def sql(self) -> str:
        return f"{self.name} {{{self.kind}}}"


def columns(row: type[msgspec.Struct]) -> tuple[Column, ...]:
    """The columns of a row type, in the order of its fields: all but those that are never stored."""
    hints = typing.get_type_hints(row, include_extras=True)
    found = []
    for field in msgspec.structs.fields(row):
        hint = hints[field.name]
        if typing.get_origin(hint) is typing.Annotated:
            if UNSTORED in hint.__metadata__:
                continue
            hint = typing.get_args(hint)[0]
        required = field.default is msgspec.NODEFAULT
        found.append(Column(field.name, _kind(hint), required, None if required else field.default))
    return tuple(found)


def plan(
    version: int, present: Mapping[str, Collection[str]], indexes: Collection[str], dialect: Mapping[str, str]
) -> list[str]:
    """The statements that bring a database to `VERSION`, to be run in one transaction; none where it is there.

    `version` is what the database says it is (0: nothing there), `present` its tables with their columns, `indexes` the
    names of its indexes. Errors: NewerSchema when it is ahead of us.
    """
    _refuse_newer(version)
    statements: list[str] = []
    if version:
        for step in MIGRATIONS[version:]:
            statements += step
    for table, row in TABLES.items():
        known = present.get(table)
        if known is None:
            body = ", ".join(
                column.sql.format(**dialect)
                + (" PRIMARY KEY" if column.name == "id" else " NOT NULL" if column.required else "")
                for column in columns(row)
            )
            statements.append(f"CREATE TABLE {table} ({body})")
        else:
            statements += [
                f"ALTER TABLE {table} ADD COLUMN {column.sql.format(**dialect)}"
                for column in columns(row)
                if column.name not in known
            ]
    if version:
        for step in FILLS[version:]:
            statements += step
    if "journal_positions" not in present:
        statements.append(
            "CREATE TABLE journal_positions (journal {text} PRIMARY KEY, position {integer} NOT NULL)".format(**dialect)
        )
    if "schema_version" not in present:
        statements.append("CREATE TABLE schema_version (version {integer} NOT NULL)".format(**dialect))
    if version:
        for table in TABLES.keys() - present.keys():
            statements += SEEDS.get(table, ())
    statements += [f"DROP INDEX {name}" for name in sorted(FORMER_INDEXES.intersection(indexes))]
    statements += [f"CREATE INDEX {name} ON {of}" for name, of in INDEXES.items() if name not in indexes]
    if version != VERSION:
        statements += ["DELETE FROM schema_version", f"INSERT INTO schema_version (version) VALUES ({VERSION})"]
    return statements


def lacking(version: int, present: Mapping[str, Collection[str]]) -> list[str]:
    """What a database lacks of what we read: tables, and columns as `table.column`. Errors: NewerSchema."""
    _refuse_newer(version)
    found: list[str] = []
    for table, row in TABLES.items():
        if table not in present:
            found.append(table)
        else:
            found += [f"{table}.{column.name}" for column in columns(row) if column.name not in present[table]]
    return found


def _refuse_newer(version: int) -> None:
    if version > VERSION:
        raise NewerSchema(f"it has schema version {version}, of a newer Arbiter than this one, which knows {VERSION}")


def _kind(hint: Any) -> Kind:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    if hint is bool:
        return "boolean"
    if hint is int:
        return "integer"
    if hint is str:
        return "text"
    if hint is bytes:
        return "blob"
    if typing.get_origin(hint) in (list, dict):
        return "json"
    raise TypeError(f"no column type for {hint!r}")
