"""What is written down of a conversation, beside the rows that it is made of (SPEC 8)."""

from __future__ import annotations

from typing import Final

import msgspec

APART: Final = ("count_tokens", "embeddings")
"""The endpoints whose calls generate nothing."""

KINDS: Final = {
    "main": "mains",
    "subagent": "subagents",
    "workflow": "workflows",
    "compaction": "compactions",
    "auxiliary": "auxiliaries",
    "title": "titles",
    "keepwarm": "keepwarms",
}
"""Each request kind and the column that counts it."""

NO_TURNS: Final = frozenset(("compaction", "auxiliary", "title", "keepwarm"))
"""Kinds of requests that are no step of a conversation."""


class SessionRow(msgspec.Struct, kw_only=True):
    """One session of one client, as far as its rows tell."""

    id: str  # "client session": the same name from two clients is two sessions; nothing before the space: unattributed
    session: str
    client: str | None = None
    agent: str | None = None
    parent: str | None = None  # the session that started it, of the same client; once known, it stays
    is_told: bool = True  # its callers named it; else it is what one client asked without naming a session
    title: str | None = None
    first_ms: int | None = None  # None: only another session's word that it exists
    last_ms: int | None = None  # its last sign of life
    ended_ms: int | None = None
    ended_by: str | None = None  # idle | operator
    requests: int = 0
    turns: int = 0
    failed: int = 0  # requests that did not end well
    mains: int = 0  # this and the following: requests of each kind, as far as kinds are known
    subagents: int = 0
    workflows: int = 0
    compactions: int = 0
    auxiliaries: int = 0
    titles: int = 0
    keepwarms: int = 0
    title_by: str | None = None  # alias | agent | operator; with no title: an operator wants it to have none
    summary: str | None = None  # what it is about, in a sentence
    titled_ms: int | None = None  # when title or summary last changed


class NoteRow(msgspec.Struct, kw_only=True):
    """What an operator has to say of a session."""

    id: str
    session_id: str  # `SessionRow.id`
    at_ms: int
    who: str
    text: str


class AuditRow(msgspec.Struct, kw_only=True):
    """One thing that an operator did (SPEC 8.4a). No secret stands in it."""

    id: str
    at_ms: int
    who: str  # token | loopback | cli | user:NAME, as the proxy named it
    action: str  # end | note | pause | resume | clear_cooldowns | clear_pins | reload | keys_reload | keys_new | …
    target: str | None = None  # on what: a session's id, a client, a provider, a key's id
    details: dict[str, str] | None = None
