"""Which session a request belongs to, and who its parent is, as far as its own words tell (SPEC 8.2, 8.3).

Nothing here is inferred: a wrong boundary between sessions cannot be repaired later. Who stores a session keeps it
under (client, session), so that no client gets into another's.
"""

from __future__ import annotations

import msgspec

from arbiter.config.snapshot import Client, Sessions
from arbiter.sessions import signals
from arbiter.sessions.kinds import recognised
from arbiter.sessions.signals import AGENTS, Agent, Fields, Members, body_value, is_well_formed


class Identity(msgspec.Struct, frozen=True, gc=False):
    """`agent` is the program that talks, `kind` what the request is for (`signals.KINDS`), `source` the signal that
    named the session. None: not told."""

    session: str | None = None
    parent: str | None = None
    agent: str | None = None
    kind: str | None = None
    source: str | None = None


NOBODY = Identity()

_BY_NAME = {agent.name: agent for agent in AGENTS}
_PRODUCT_HEADERS = tuple((header, agent) for agent in AGENTS for header in agent.headers)
_BY_USER_AGENT = tuple((start, agent.name) for agent in AGENTS for start in agent.user_agents)
_USER_AGENTS = tuple(start for start, _ in _BY_USER_AGENT)
_TELLING = frozenset((signals.OWN, *signals.KIND_HEADERS, *(header for header, _ in _PRODUCT_HEADERS)))
"""Without any of these, nothing is told by a caller of whom we know nothing."""

_SUBAGENTS = {"compact": "compaction", "memory_consolidation": "auxiliary"}
_INTERACTIONS = {"conversation-user": "main", "conversation-subagent": "subagent"}


class _Turn(msgspec.Struct):
    request_kind: str = ""
    thread_source: str = ""


_decode_turn = msgspec.json.Decoder(_Turn).decode


def identify(fields: Fields, members: Members, client: Client | None, sessions: Sessions) -> Identity:
    """What the request tells of itself: headers first, then its body.

    Shapes: an explicit id that is malformed, or over 256 characters, is no session, and nothing else is asked instead.
    """
    name = client.agent if client is not None else None
    talks = _agent_of(fields.get("user-agent", ""))
    if name is None and sessions.trust_user_agent:
        name = talks
    agent = _BY_NAME.get(name) if name is not None else None
    if agent is None and not sessions.prompt_cache_key and _TELLING.isdisjoint(fields):
        kind = recognised(name or talks, members)
        return NOBODY if name is None and kind is None else Identity(agent=name, kind=kind)
    found = _from_headers_and_agent(fields, members, agent)
    if found is None:
        key = body_value(members, "prompt_cache_key") if sessions.prompt_cache_key else None
        found = Identity(_checked(key), source="prompt_cache_key")
    # A user agent proves nothing, and draws no boundary here; a body that shows its kind does the proving.
    name = name or found.agent
    kind = _kind(fields) or recognised(name or talks, members) or ("subagent" if found.parent is not None else None)
    return Identity(found.session, found.parent, name, kind, found.source if found.session is not None else None)


def _from_headers_and_agent(fields: Fields, members: Members, agent: Agent | None) -> Identity | None:
    """Our own header, else what the agent sends that we know, else any product's header. None: no signal at all."""
    if own := fields.get(signals.OWN):
        return Identity(_checked(own), source=signals.OWN)
    if agent is not None:
        if (header := _header_of(agent, fields)) is not None:
            return _with_lineage(agent, header, fields[header], fields, is_known=True)
        for path in agent.body:
            if value := body_value(members, path):
                return _with_lineage(agent, path, value, fields, is_known=True)
    for header, sender in _PRODUCT_HEADERS:
        if value := fields.get(header):
            return _with_lineage(sender, header, value, fields, is_known=False)
    return None


def _header_of(agent: Agent, fields: Fields) -> str | None:
    """The header that names the session of an agent that we know."""
    if agent.thread is not None and agent.parent in fields and fields.get(agent.thread):
        return agent.thread
    return next((header for header in (*agent.headers, *agent.generic) if fields.get(header)), None)


def _with_lineage(agent: Agent, source: str, value: str, fields: Fields, *, is_known: bool) -> Identity:
    """The session `value` and its parent. A conversation that names itself as its parent has none."""
    name = agent.name if agent.is_agent else None
    session, parent = _checked(value), None
    if session is not None and agent.name == "claude-code":
        session, parent = _subagent(session, fields)
    elif session is not None and agent.parent is not None and (is_known or not agent.is_parent_generic):
        parent = _checked(fields.get(agent.parent))
    return Identity(session, parent if parent != session else None, name, source=source)


def _subagent(session: str, fields: Fields) -> tuple[str | None, str | None]:
    """(session, parent) in Claude Code's words: a sub-agent is a session of its own, `<session>:<agent>`."""
    agent_id = _checked(fields.get(signals.AGENT_ID))
    if agent_id is None:
        return session, None
    own = _checked(f"{session}:{agent_id}")
    parent_id = _checked(fields.get(signals.PARENT_AGENT_ID))
    if own is None or parent_id is None or parent_id == agent_id:
        return own, session if own is not None else None
    return own, _checked(f"{session}:{parent_id}")


def _checked(value: str | None) -> str | None:
    return value if value is not None and is_well_formed(value) else None


def _agent_of(user_agent: str) -> str | None:
    if not user_agent.startswith(_USER_AGENTS):
        return None
    for start, name in _BY_USER_AGENT:
        if user_agent.startswith(start):
            return name
    return None


def _kind(fields: Fields) -> str | None:
    """What the headers say that the request is for; None where they do not, or in words that we do not know."""
    if signals.REQUEST_CLASS in fields:
        told = fields[signals.REQUEST_CLASS].lower()
        return told if told in signals.KINDS else None
    if fields.get(signals.COMPACTION):
        return "compaction"
    if subagent := fields.get(signals.SUBAGENT):
        return _SUBAGENTS.get(subagent.lower(), "subagent")
    if interaction := fields.get(signals.INTERACTION):
        return _INTERACTIONS.get(interaction.lower())
    if (turn := fields.get(signals.TURN)) is not None:
        try:
            about = _decode_turn(turn.encode("utf-8", "replace"))
        except (msgspec.MsgspecError, RecursionError):
            return None
        return "main" if (about.request_kind, about.thread_source) == ("turn", "user") else None
    return None
