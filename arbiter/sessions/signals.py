"""How agents name their conversations on the wire: the one table behind identity and affinity (docs/sessions.md).

Names of headers are in lower case. A name that starts with a product's is that product's own and is believed from
anyone; the others are stamped by proxies and by other programs too, and count only from the agent they are listed for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

OWN = "x-arbiter-session-id"

Fields = Mapping[str, str]
"""A request's headers by their name in lower case."""
Members = Mapping[str, Raw]
"""The top level of a request's body, undecoded."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One program, or library, and what it sends.

    `headers` and `generic` name its session, in the order in which they are read; so do `body`, members of the body as
    `member` or `member.inner`. `thread` outranks them for a conversation that has a parent. `user_agents`: how its own
    begins. `is_agent`: the session's header tells which agent is talking, and not what stands in between.
    """

    name: str
    headers: tuple[str, ...] = ()
    generic: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    parent: str | None = None
    is_parent_generic: bool = False
    thread: str | None = None
    user_agents: tuple[str, ...] = ()
    is_agent: bool = True


AGENTS = (
    Agent(
        "claude-code",
        headers=("x-claude-code-session-id",),
        body=("metadata.user_id",),
        user_agents=("claude-cli/", "claude-code/"),
    ),
    Agent(
        "codex",
        generic=("session_id", "session-id", "thread-id"),
        body=("client_metadata.session_id", "client_metadata.thread_id"),
        parent="x-codex-parent-thread-id",
        thread="thread-id",
        user_agents=("codex_",),
    ),
    Agent(
        "opencode",
        headers=("x-opencode-session",),
        generic=("x-session-id", "x-session-affinity"),
        parent="x-parent-session-id",
        is_parent_generic=True,
        user_agents=("opencode/",),
    ),
    Agent("qwen-code", headers=("x-qwen-code-session-id",), user_agents=("QwenCode/",)),
    Agent("gemini-cli", user_agents=("GeminiCLI",)),
    Agent("pi", generic=("session_id",)),
    Agent("litellm", headers=("x-litellm-session-id",), is_agent=False),
    Agent("helicone", headers=("helicone-session-id",), is_agent=False),
    Agent("bifrost", headers=("x-bf-session-id",), is_agent=False),
    Agent("openrouter", body=("session_id", "conversation_id"), is_agent=False),
    Agent("langchain", body=("metadata.session_id",), is_agent=False),
)

# Claude Code's own lineage: a sub-agent has its parent's session id, and an id of its own beside it.
AGENT_ID = "x-claude-code-agent-id"
PARENT_AGENT_ID = "x-claude-code-parent-agent-id"

REQUEST_CLASS = "x-claude-code-request-class"
COMPACTION = "x-claude-code-compaction"
CONTEXT_COMPACTED = "x-claude-code-context-compacted"
SUBAGENT = "x-openai-subagent"
TURN = "x-codex-turn-metadata"
INTERACTION = "x-interaction-type"
KIND_HEADERS = (REQUEST_CLASS, COMPACTION, SUBAGENT, INTERACTION, TURN)

KINDS = ("main", "subagent", "workflow", "compaction", "auxiliary", "title", "keepwarm")
"""What a request may be for (SPEC 8.2a)."""

MAX_CHARS = 256
_MAX_RAW = 6 * MAX_CHARS + 2
"""Bytes of a JSON string of so many characters, all of them escaped."""
_MAX_OBJECT = 64 << 10

_decode_str = msgspec.json.Decoder(str).decode


class _Inner(msgspec.Struct):
    """The members that are read inside of `metadata`, `client_metadata` and a `user_id` that is JSON."""

    session_id: Any = None
    thread_id: Any = None
    user_id: Any = None


_decode_inner = msgspec.json.Decoder(_Inner).decode


def is_well_formed(value: str) -> bool:
    """Whether `value` may name a session: 1 to 256 visible ASCII characters."""
    return 0 < len(value) <= MAX_CHARS and value.isascii() and value.isprintable() and " " not in value


def body_value(members: Members, path: str) -> str | None:
    """The string at `path` of a body (`member` or `member.inner`); None where there is none, or one far too long."""
    name, dot, inner = path.partition(".")
    raw = members.get(name)
    if raw is None:
        return None
    try:
        if not dot:
            return _decode_str(raw) if len(memoryview(raw)) <= _MAX_RAW else None
        if len(memoryview(raw)) > _MAX_OBJECT:
            return None
        value = getattr(_decode_inner(raw), inner)
        if path == "metadata.user_id" and isinstance(value, str):
            return _session_of_user(value)
        return value if isinstance(value, str) else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def _session_of_user(user_id: str) -> str | None:
    """Claude Code's session in its `user_id`: JSON, or `user_…_account_…_session_…` from older versions."""
    if user_id.startswith("{"):
        value = _decode_inner(user_id.encode("utf-8", "replace")).session_id
        return value if isinstance(value, str) else None
    user, found, session = user_id.rpartition("_session_")
    return session if found and user.startswith("user_") else None
