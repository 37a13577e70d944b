"""Which session a request says it belongs to, and what it takes to be believed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from arbiter.config.snapshot import Client, Sessions
from arbiter.sessions import kinds, signals
from arbiter.sessions.identity import NOBODY, Identity, identify
from tests.unit.sessions.captures import Captured, conversations, opened

CAPTURES = [one for requests in conversations().values() for one in requests]


def client(agent: str | None) -> Client:
    return Client("dev", "0" * 64, agent=agent)


def asked(
    fields: dict[str, str] | None = None,
    body: dict[str, Any] | None = None,
    *,
    agent: str | None = None,
    sessions: Sessions = Sessions(),  # noqa: B008
) -> Identity:
    return identify(fields or {}, opened(body or {}), client(agent), sessions)


def told(identity: Identity) -> dict[str, str]:
    return {name: value for name, value in msgspec.structs.asdict(identity).items() if value is not None}


@pytest.mark.parametrize("one", CAPTURES, ids=lambda one: one.name)
def test_every_captured_agent_is_known_by_what_it_sends(one: Captured):
    """SPEC 8.2: its own words where we know who it is; from anyone else only what bears a product's name."""
    assert told(identify(one.fields, one.members, one.client, Sessions())) == one.as_known
    assert told(identify(one.fields, one.members, None, Sessions())) == one.as_anyone


def test_the_captures_hold_every_way_of_telling_that_agents_were_seen_to_use():
    sources = {one.as_known.get("source") for one in CAPTURES}
    assert {"x-claude-code-session-id", "x-session-id", "session-id", None} <= sources
    assert {one.as_known.get("kind") for one in CAPTURES} == {None, "main", "subagent", "title"}


@pytest.mark.parametrize("one", CAPTURES, ids=lambda one: one.name)
def test_every_captured_agent_is_who_its_user_agent_says_where_that_is_believed(one: Captured):
    """SPEC 8.2: with `sessions.trust_user_agent`, and never against what the configuration says of a key."""
    trusting = Sessions(trust_user_agent=True)
    says = one.fields.get("user-agent", "").startswith(("claude-cli/", "codex_", "opencode/", "GeminiCLI"))
    assert told(identify(one.fields, one.members, None, trusting)) == (one.as_known if says else one.as_anyone)
    assert told(identify(one.fields, one.members, one.client, trusting)) == (
        one.as_known if one.client is not None or says else one.as_anyone
    )


@pytest.mark.parametrize("one", CAPTURES, ids=lambda one: one.name)
def test_the_title_requests_of_every_capture_are_known_and_no_others(one: Captured):
    """SPEC 8.2a: from their own agent; a request of anybody else's is what its headers say."""
    assert (one.as_known.get("kind") == "title") == (one.part == "title")


def test_nothing_told_is_nobody():
    assert identify({}, opened({}), None, Sessions()) is NOBODY
    assert told(asked({"user-agent": "claude-cli/2.1"}, agent="aider")) == {"agent": "aider"}


def test_our_own_header_comes_first_and_names_no_parent():
    """SPEC 8.3."""
    fields = {
        "x-arbiter-session-id": "mine",
        "x-claude-code-session-id": "theirs",
        "x-claude-code-agent-id": "a1",
        "x-parent-session-id": "parent",
    }
    for agent in (None, "claude-code", "opencode"):
        found = asked(fields, agent=agent)
        assert (found.session, found.parent, found.source) == ("mine", None, "x-arbiter-session-id")


@pytest.mark.parametrize("value", ["x" * 257, "a b", "tab\tbed", "naïve", "nul\0", "new\nline", "a, b"])
@pytest.mark.parametrize("header", ["x-arbiter-session-id", "x-claude-code-session-id", "session_id"])
def test_a_hostile_id_is_no_session_and_nothing_else_is_asked_instead(header, value):
    """Who meant to name a session and failed must not land in another one."""
    fields = {header: value, "x-litellm-session-id": "other", "thread-id": "third"}
    found = asked(fields, {"prompt_cache_key": "key"}, agent="codex", sessions=Sessions(prompt_cache_key=True))
    if header == "x-claude-code-session-id":  # the known agent's own words come first
        assert found.session == "third"
        found = asked({name: text for name, text in fields.items() if name != "thread-id"})
    assert (found.session, found.source) == (None, None)


def test_an_id_of_256_characters_is_one():
    assert asked({"x-arbiter-session-id": "x" * 256}).session == "x" * 256


def test_an_empty_header_is_none():
    assert asked({"x-arbiter-session-id": "", "x-bf-session-id": "b"}).session == "b"


@pytest.mark.parametrize(
    "header",
    [
        "x-claude-code-session-id",
        "x-opencode-session",
        "x-qwen-code-session-id",
        "x-litellm-session-id",
        "helicone-session-id",
        "x-bf-session-id",
    ],
)
def test_a_products_own_header_is_believed_from_anyone(header):
    found = asked({header: "s1"})
    assert (found.session, found.source) == ("s1", header)


@pytest.mark.parametrize(
    ("agent", "header"),
    [
        ("codex", "session_id"),
        ("codex", "session-id"),
        ("codex", "thread-id"),
        ("opencode", "x-session-id"),
        ("opencode", "x-session-affinity"),
        ("pi", "session_id"),
    ],
)
def test_a_generic_header_counts_from_its_own_agent_alone(agent, header):
    """Proxies stamp such names, and a wrong boundary cannot be repaired."""
    assert asked({header: "s1"}, agent=agent) == Identity("s1", None, agent, None, header)
    assert asked({header: "s1"}).session is None
    assert asked({header: "s1"}, agent="claude-code").session is None


JSON_ID = json.dumps({"device_id": "d", "account_uuid": "", "session_id": "s1"})


@pytest.mark.parametrize(
    ("agent", "body", "source"),
    [
        ("claude-code", {"metadata": {"user_id": "user_0f_account_1a_session_s1"}}, "metadata.user_id"),
        ("claude-code", {"metadata": {"user_id": JSON_ID}}, "metadata.user_id"),
        ("codex", {"client_metadata": {"turn_id": "t", "session_id": "s1"}}, "client_metadata.session_id"),
        ("codex", {"client_metadata": {"thread_id": "s1"}}, "client_metadata.thread_id"),
        ("openrouter", {"session_id": "s1"}, "session_id"),
        ("openrouter", {"conversation_id": "s1"}, "conversation_id"),
        ("langchain", {"metadata": {"session_id": "s1"}}, "metadata.session_id"),
    ],
)
def test_a_body_names_a_session_where_the_agent_is_known(agent, body, source):
    assert asked(body=body, agent=agent) == Identity("s1", None, agent, None, source)
    assert asked(body=body).session is None


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"user_id": "somebody"}},  # anybody's, as the API means it
        {"metadata": {"user_id": "{broken"}},
        {"metadata": {"user_id": '{"session_id": 5}'}},
        {"metadata": {"user_id": 7}},
        {"metadata": "text"},
        {"metadata": None},
        {"metadata": {"user_id": JSON_ID, "more": "x" * 100_000}},
        {"metadata": {"user_id": "user_a_account_b_session_"}},
    ],
)
def test_a_body_that_names_none_is_no_mistake(body):
    assert asked(body=body, agent="claude-code") == Identity(agent="claude-code")


def test_a_user_agent_proves_nothing_unless_the_operator_says_so():
    """oh-my-pi says that it is Claude Code."""
    fields = {"user-agent": "codex_exec/0.171.0 (Debian)", "session-id": "s1"}
    assert identify(fields, opened({}), None, Sessions()) is NOBODY
    found = identify(fields, opened({}), None, Sessions(trust_user_agent=True))
    assert found == Identity("s1", None, "codex", None, "session-id")
    # What the configuration says of a key is worth more than what its user says.
    assert asked(fields, agent="opencode", sessions=Sessions(trust_user_agent=True)).agent == "opencode"


def test_a_cache_key_is_a_session_only_where_the_operator_says_so():
    body = {"prompt_cache_key": "key"}
    assert asked(body=body).session is None
    opted = Sessions(prompt_cache_key=True)
    assert asked(body=body, sessions=opted) == Identity("key", source="prompt_cache_key")
    assert asked({"x-bf-session-id": "b"}, body, sessions=opted).session == "b"
    assert asked(body={"prompt_cache_key": "k" * 257}, sessions=opted) == NOBODY
    assert asked(body={"prompt_cache_key": 5}, sessions=opted) == NOBODY


# Parents -------------------------------------------------------------------------------------------------------------


def test_a_sub_agent_of_claude_code_is_a_session_below_its_parent():
    fields = {"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"}
    found = asked(fields)
    assert (found.session, found.parent, found.kind) == ("s:a", "s", "subagent")
    nested = asked({**fields, "x-claude-code-parent-agent-id": "p"})
    assert (nested.session, nested.parent) == ("s:a", "s:p")
    itself = asked({**fields, "x-claude-code-parent-agent-id": "a"})
    assert (itself.session, itself.parent) == ("s:a", "s")


def test_a_session_and_an_agent_that_are_too_long_together_are_none():
    found = asked({"x-claude-code-session-id": "s" * 200, "x-claude-code-agent-id": "a" * 100})
    assert (found.session, found.parent) == (None, None)


def test_a_hostile_agent_id_is_none():
    found = asked({"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a b"})
    assert (found.session, found.parent) == ("s", None)


def test_a_conversation_that_names_itself_has_no_parent():
    found = asked({"x-session-id": "s", "x-parent-session-id": "s"}, agent="opencode")
    assert (found.session, found.parent, found.kind) == ("s", None, None)


def test_a_generic_parent_counts_from_its_own_agent_alone():
    fields = {"x-opencode-session": "s", "x-parent-session-id": "p"}
    assert asked(fields, agent="opencode").parent == "p"
    assert asked(fields).session == "s"
    assert asked(fields).parent is None


def test_a_thread_of_codex_that_has_a_parent_goes_by_its_own_name():
    """All threads of one session may share its id; the parent is a thread."""
    fields = {"session-id": "root", "thread-id": "t2", "x-codex-parent-thread-id": "root"}
    found = asked(fields, agent="codex")
    assert (found.session, found.parent, found.kind) == ("t2", "root", "subagent")
    del fields["x-codex-parent-thread-id"]
    assert asked(fields, agent="codex").session == "root"


# Kinds ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"x-claude-code-request-class": "main"}, "main"),
        ({"x-claude-code-request-class": "subagent"}, "subagent"),
        ({"x-claude-code-request-class": "workflow"}, "workflow"),
        ({"x-claude-code-request-class": "compaction"}, "compaction"),
        ({"x-claude-code-request-class": "Auxiliary"}, "auxiliary"),
        ({"x-claude-code-request-class": "unheard-of"}, None),
        ({"x-claude-code-compaction": "auto"}, "compaction"),
        ({"x-openai-subagent": "review"}, "subagent"),
        ({"x-openai-subagent": "collab_spawn"}, "subagent"),
        ({"x-openai-subagent": "compact"}, "compaction"),
        ({"x-openai-subagent": "memory_consolidation"}, "auxiliary"),
        ({"x-interaction-type": "conversation-user"}, "main"),
        ({"x-interaction-type": "conversation-subagent"}, "subagent"),
        ({"x-interaction-type": "other"}, None),
        ({"x-codex-turn-metadata": '{"request_kind":"turn","thread_source":"user"}'}, "main"),
        ({"x-codex-turn-metadata": '{"request_kind":"turn","thread_source":"other"}'}, None),
        ({"x-codex-turn-metadata": "no JSON"}, None),
        ({"x-claude-code-request-class": "main", "x-openai-subagent": "review"}, "main"),
        ({}, None),
    ],
)
def test_a_hint_says_what_a_request_is_for(fields, kind):
    """SPEC 8.2a; words that we do not know say nothing."""
    assert asked(fields).kind == kind
    assert kind is None or kind in signals.KINDS


TITLE = {"output_config": {"format": {"type": "json_schema", "schema": {"properties": {"title": {"type": "string"}}}}}}
OPENCODE = {"messages": [{"role": "system", "content": "…"}, {"role": "user", "content": kinds.OPENCODE_TITLE + "\n"}]}


@pytest.mark.parametrize(
    ("agent", "body", "kind"),
    [
        ("claude-code", TITLE, "title"),
        ("claude-code", {**TITLE, "tools": []}, "title"),
        ("claude-code", {**TITLE, "tools": [{"name": "Bash"}]}, None),
        ("claude-code", {"output_config": {"effort": "high"}}, None),
        ("claude-code", {"output_config": {"format": {"schema": {"properties": {"title": {}, "body": {}}}}}}, None),
        ("claude-code", {"output_config": {"format": {"schema": {"properties": [1]}}}}, None),
        ("claude-code", {"output_config": "title"}, None),
        ("opencode", TITLE, None),
        ("opencode", OPENCODE, "title"),
        ("opencode", {**OPENCODE, "tools": [{"name": "bash"}]}, None),
        ("claude-code", OPENCODE, None),
        ("aider", OPENCODE, None),
        ("opencode", {"messages": [{"role": "user", "content": kinds.OPENCODE_TITLE + " please"}]}, None),
        ("opencode", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, None),
        ("opencode", {"messages": "none"}, None),
        ("opencode", {"messages": [7, None, {"role": "user"}]}, None),
        ("claude-code", {"max_tokens": 1, "tools": [{"name": "Bash"}]}, "keepwarm"),
        ("claude-code", {"max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}, "auxiliary"),
        ("claude-code", {"max_tokens": 10}, None),
        ("aider", {"max_tokens": 1}, None),
    ],
)
def test_a_body_shows_its_kind_where_its_agent_leaves_no_doubt(agent, body, kind):
    """SPEC 8.2a: a wrong kind is worse than none."""
    assert asked(body=body, agent=agent).kind == kind
    assert asked(body=body).kind is None
    assert asked({"x-claude-code-request-class": "main"}, body, agent=agent).kind == "main", (
        "a hint is the agent's word"
    )
