"""No fallback gets thinking that it would refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.attempt.ask import Ask
from arbiter.attempt.claudes import claude_of
from arbiter.attempt.continuity import Continuity, guard, maker
from arbiter.attempt.conversation import Conversation
from arbiter.config.snapshot import Account, Endpoint, Provider
from arbiter.routing.plan import Plan, Rung
from arbiter.state.base import Origin, Pin
from arbiter.state.memory import Memory
from arbiter.wire import bedrock_converse, bound, bound_responses, native
from tests.fakes.asks import ask

MESSAGES, CHAT, RESPONSES = "anthropic-messages", "openai-chat", "openai-responses"
SLOT = b"0123456789abcdef"


def rung(name: str, wire: str = MESSAGES, *, host: str = "", model: str = "m") -> Rung:
    return Rung(Provider(name, "anthropic", wire, Endpoint("https", host or f"{name}.test", 443)), model)


A, B, CHATTY = rung("a"), rung("b"), rung("chatty", CHAT)


def thought(signature: str, *after: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "thinking", "thinking": "hmm", "signature": signature}, {"type": "text", "text": "so"}, *after]
    return {"role": "assistant", "content": content}


USER = {"role": "user", "content": "go on"}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}
CLOSED = [USER, thought("made by a"), USER]
OPEN = [USER, thought("made by a", CALL), RESULT]


def request(messages: list[dict[str, Any]]) -> Ask:
    return ask(MESSAGES, {"model": "alias", "max_tokens": 9, "messages": messages})


def the_guard(
    asked: Ask, state: Memory, *, pin: Pin | None = None, rungs: tuple[Rung, ...] = (A, B), explicit: bool = False
) -> Continuity | None:
    if pin is not None:
        state.set_pin(SLOT, pin, 60)
    conversation = Conversation(state, SLOT, "alias", keeps=True)
    return guard(asked, Plan(rungs, "", is_explicit=explicit), conversation, state)


def remembering(asked: Ask, maker: Rung) -> Memory:
    state = Memory()
    state.remember(bound.marks(asked.opened.members), Origin(maker.provider.name, "", maker.model), 60)
    return state


def test_only_who_made_the_thinking_fits():
    """SPEC 4.7a: fallback candidates that would reject it are filtered out."""
    asked = request(CLOSED)
    watching = the_guard(asked, remembering(asked, A))
    assert (
        watching is not None and watching.fits(A, *A.provider.accounts) and not watching.fits(B, *B.provider.accounts)
    )


def test_another_model_of_the_same_provider_does_not_fit():
    asked = request(CLOSED)
    other = rung("a", model="other")
    watching = the_guard(asked, remembering(asked, A), rungs=(A, other))
    assert watching is not None and not watching.fits(other, *other.provider.accounts)


def test_the_same_place_under_another_name_fits():
    """Two providers with one base URL and one model are one maker: signatures know nothing of our names."""
    asked = request(CLOSED)
    twin = rung("twin", host="a.test")
    watching = the_guard(asked, remembering(asked, A), rungs=(A, twin))
    assert watching is not None and watching.fits(twin, *twin.provider.accounts)


def at(kind: str, model: str, *, host: str = "cloud.test", wire: str = MESSAGES, known_as: str | None = None) -> Rung:
    provider = Provider(f"{kind}-{host}-{model}", kind, wire, Endpoint("https", host, 443))
    return Rung(provider, model, known_as=known_as)


ARN = "arn:aws:bedrock:eu-central-1:123456789012"
CONVERSE, GEMINI = bedrock_converse.name, native.GEMINI
OWN = at("anthropic", "claude-opus-4-6", host="api.anthropic.com")
SONNET = at("anthropic", "claude-sonnet-4-5-20250929", host="api.anthropic.com")
SAME = [
    (OWN, at("bedrock", "eu.anthropic.claude-opus-4-6-v1")),
    (OWN, at("bedrock", f"{ARN}:inference-profile/global.anthropic.claude-opus-4-6-v1:0")),
    (OWN, at("bedrock", f"{ARN}:application-inference-profile/abc", known_as="claude-opus-4-6")),
    (OWN, at("vertex", "claude-opus-4-6@default")),
    (OWN, at("azure", "our-deployment", known_as="anthropic/claude-opus-4.6")),
    (OWN, at("anthropic", "claude-opus-4-6", host="eu.api.anthropic.com")),
    (SONNET, at("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0")),
    (SONNET, at("vertex", "claude-sonnet-4-5@20250929")),
    (SONNET, at("anthropic", "claude-sonnet-4-5", host="api.anthropic.com")),
    (
        at("anthropic", "claude-sonnet-4-0", host="api.anthropic.com"),
        at("bedrock", "anthropic.claude-sonnet-4-20250514-v1:0"),
    ),
]
OTHER = [
    (OWN, at("anthropic", "claude-opus-4-6")),  # a proxy
    (OWN, at("anthropic", "claude-opus-4-6", host="notanthropic.com")),
    (OWN, at("openrouter", "anthropic/claude-opus-4.6")),
    (OWN, at("bedrock", "eu.anthropic.claude-opus-4-5-20251101-v1:0")),
    (OWN, at("bedrock", "anthropic.claude-sonnet-4-6")),
    (OWN, at("bedrock", f"{ARN}:application-inference-profile/abc", known_as="ours")),
    (OWN, at("azure", "claude-opus-4-6-of-ours")),
    (at("bedrock", "zai.glm-4.6"), at("bedrock", "zai.glm-4.6", host="other.test")),
    (at("azure", "claude-main"), at("azure", "claude-main", host="other.test")),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=lambda rung: rung.name)
def test_a_claude_takes_its_thinking_wherever_it_is_at_home(one: Rung, other: Rung) -> None:
    """Whoever of the two made it, and whether it is remembered or was made by who the conversation is pinned to."""
    assert one.name != other.name
    for signer, taker in ((one, other), (other, one)):
        asked = request(OPEN)
        pin = Pin("alias", signer.provider.name, signer.model, "")
        for watching in (
            the_guard(asked, remembering(asked, signer), rungs=(signer, taker)),
            the_guard(asked, Memory(), pin=pin, rungs=(signer, taker)),
        ):
            assert fits(watching, taker) == [True]


@pytest.mark.parametrize(("one", "other"), OTHER, ids=lambda rung: rung.name)
def test_a_name_alone_is_no_home(one: Rung, other: Rung) -> None:
    for signer, taker in ((one, other), (other, one)):
        asked = request(OPEN)
        assert fits(the_guard(asked, remembering(asked, signer), rungs=(signer, taker)), taker) == [False]


@pytest.mark.parametrize("wire", [CHAT, GEMINI])
def test_what_is_asked_in_a_format_without_its_signatures_is_no_home(wire: str) -> None:
    assert claude_of(at("vertex", "claude-opus-4-6", wire=wire)) is None
    assert claude_of(at("bedrock", "anthropic.claude-opus-4-6-v1", wire=CONVERSE)) == "claude-opus-4-6"


def test_what_nobody_remembers_was_made_by_who_the_conversation_is_pinned_to():
    watching = the_guard(request(CLOSED), Memory(), pin=Pin("alias", "a", "m", ""))
    assert (
        watching is not None and watching.fits(A, *A.provider.accounts) and not watching.fits(B, *B.provider.accounts)
    )


def test_what_nobody_knows_of_binds_nobody():
    watching = the_guard(request(CLOSED), Memory())
    assert watching is not None and watching.fits(A, *A.provider.accounts) and watching.fits(B, *B.provider.accounts)


def test_signatures_do_not_cross_formats_so_a_translated_target_fits():
    asked = request(OPEN)
    watching = the_guard(asked, remembering(asked, A), rungs=(A, CHATTY))
    assert watching is not None and watching.fits(CHATTY, *CHATTY.provider.accounts)


def test_closed_turns_lose_the_thinking_that_the_target_would_refuse():
    """And nothing else: the bytes of every other message are what the client sent."""
    asked = request(CLOSED)
    watching = the_guard(asked, remembering(asked, A))
    assert watching is not None
    adapted = watching.adapted(B)
    assert adapted is not None and adapted.edits and bound.marks(adapted.opened.members) == []
    assert b'"text":"so"' in bytes(adapted.opened.members["messages"]).replace(b": ", b":")
    assert adapted.opened.members["max_tokens"] == asked.opened.members["max_tokens"]


def test_an_open_tool_loop_keeps_its_thinking_so_nobody_else_gets_it():
    asked = request(OPEN)
    watching = the_guard(asked, remembering(asked, A))
    assert watching is not None and watching.adapted(B) is None


def test_a_mixed_history_fits_nobody_and_is_made_to_fit_whoever_serves_it():
    """SPEC 4.7a: a failover never leaves a session stuck. After it, both makers' thinking is in the history."""
    asked = request([USER, thought("made by a"), USER, thought("made by b"), USER])
    first, second = bound.marks(asked.opened.members)
    state = Memory()
    state.remember([first], Origin("a", "", "m"), 60)
    state.remember([second], Origin("b", "", "m"), 60)
    watching = the_guard(asked, state, pin=Pin("alias", "b", "m", "", moved=True))
    assert (
        watching is not None
        and not watching.fits(A, *A.provider.accounts)
        and not watching.fits(B, *B.provider.accounts)
    )
    adapted = watching.adapted(B)
    assert adapted is not None and bound.marks(adapted.opened.members) == [second]


@pytest.mark.parametrize("why", ["explicit", "one", "chat", "count"])
def test_there_is_nothing_to_guard(why):
    """A model that the caller named, a plan without choice, a format without signatures, a count of tokens."""
    asked = request(CLOSED)
    if why == "chat":
        asked = ask(CHAT, {"model": "alias", "messages": [USER]})
    elif why == "count":
        asked = ask(MESSAGES, {"model": "alias", "messages": CLOSED}, path="/messages/count_tokens")
    rungs = (A,) if why == "one" else (A, B)
    assert the_guard(asked, Memory(), rungs=rungs, explicit=why == "explicit") is None


# --- Responses --------------------------------------------------------------------------------------------------------


def pool(name: str, *labels: str, wire: str = CHAT) -> Rung:
    accounts = tuple(Account(label, "sk") for label in labels) or (Account(key="sk"),)
    return Rung(Provider(name, "openai", wire, Endpoint("https", f"{name}.test", 443, "/v1"), accounts), "m")


def asked_for(items: Any, **members: Any) -> Ask:
    return ask(RESPONSES, {"model": "alias", "input": items, **members})


def sealed(content: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": content}


C, D, POOL = pool("c"), pool("d"), pool("pool", "work", "home")
CALLED = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
RETURNED = {"type": "function_call_output", "call_id": "1", "output": "ok"}
CLOSED_ITEMS = [USER, sealed("by c"), {"role": "assistant", "content": "so"}, USER]
OPEN_ITEMS = [USER, sealed("by c"), CALLED, RETURNED]


def made_by(rung: Rung, asked: Ask, account: str = "") -> Memory:
    state = Memory()
    marks = bound_responses.marks(asked.opened.members, asked.owner)
    assert marks
    state.remember(marks, Origin(rung.provider.name, account, rung.model), 60)
    return state


def fits(watching: Continuity | None, rung: Rung) -> list[bool]:
    assert watching is not None
    return [watching.fits(rung, account) for account in rung.provider.accounts]


@pytest.mark.parametrize("items", [CLOSED_ITEMS, OPEN_ITEMS, [{"type": "item_reference", "id": "msg_1"}]])
def test_what_was_encrypted_or_stored_goes_back_to_who_did_it(items: Any) -> None:
    asked = asked_for(items)
    watching = the_guard(asked, made_by(C, asked), rungs=(D, C))
    assert (fits(watching, C), fits(watching, D)) == ([True], [False])
    assert (origin := maker(asked_for(items, previous_response_id="resp_1"), Memory())) is None, origin


def test_it_is_the_account_that_counts_and_not_the_model() -> None:
    """SPEC 5.7: encrypted reasoning is scoped to the account."""
    asked = asked_for(CLOSED_ITEMS)
    state = made_by(POOL, asked, "home")
    watching = the_guard(asked, state, rungs=(POOL,))
    assert fits(watching, POOL) == [False, True]
    other = Rung(POOL.provider, "another-model")
    assert fits(the_guard(asked, state, rungs=(other,)), other) == [False, True]
    assert maker(asked, state) == Origin("pool", "home", "m")


def test_an_answer_that_is_gone_on_from_names_who_is_asked() -> None:
    """Whatever else is known; and only for the client that was given its id."""
    asked = asked_for("go on", previous_response_id="resp_1")
    state = made_by(C, asked)
    assert maker(asked, state) == Origin("c", "", "m")
    watching = the_guard(asked, state, rungs=(D, C))
    assert (fits(watching, C), fits(watching, D)) == ([True], [False])
    assert watching is not None and watching.adapted(D) is None
    mine = ask(RESPONSES, {"model": "alias", "input": "go on", "previous_response_id": "resp_1"}, owner="mine")
    assert maker(mine, state) is None


def test_closed_turns_lose_the_reasoning_that_the_target_would_refuse() -> None:
    asked = asked_for(CLOSED_ITEMS)
    watching = the_guard(asked, made_by(C, asked), rungs=(D, C))
    assert watching is not None
    adapted = watching.adapted(D)
    assert adapted is not None and adapted.edits == ("$.input",)
    items = json.loads(bytes(adapted.opened.members["input"]))
    assert items == [item for item in CLOSED_ITEMS if item.get("type") != "reasoning"]


@pytest.mark.parametrize("items", [OPEN_ITEMS, [{"type": "compaction", "encrypted_content": "by c"}, USER]])
def test_an_open_loop_and_a_compaction_go_nowhere_else(items: Any) -> None:
    asked = asked_for(items)
    watching = the_guard(asked, made_by(C, asked), rungs=(D, C))
    assert watching is not None and watching.adapted(D) is None


def test_another_format_gets_whatever_does_not_only_refer() -> None:
    """A translated request has no encrypted content; but what stands elsewhere cannot be told to anybody."""
    chatty = Rung(C.provider, "m", api="chat")
    asked = asked_for(OPEN_ITEMS)
    assert fits(the_guard(asked, made_by(D, asked), rungs=(chatty, D)), chatty) == [True]
    for referring in (asked_for("go on", previous_response_id="r"), asked_for([{"type": "item_reference", "id": "x"}])):
        assert fits(the_guard(referring, made_by(D, referring), rungs=(chatty, D)), chatty) == [False]


def test_one_target_with_one_key_has_nothing_to_guard() -> None:
    assert the_guard(asked_for(OPEN_ITEMS), Memory(), rungs=(C,)) is None
