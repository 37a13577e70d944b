"""Slots: what makes two requests turns of one conversation, and what must not part them."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.config.snapshot import SessionAffinity, Sessions
from arbiter.sessions import affinity
from arbiter.sessions.affinity import Affinity
from arbiter.sessions.identity import identify
from arbiter.wire import attribution
from tests.unit.sessions.captures import Captured, conversations, opened

CHAT, MESSAGES, RESPONSES = "openai-chat", "anthropic-messages", "openai-responses"
CAPTURES = conversations()

ASKED = "Please repair the build of this project."
SYSTEM = "You are a careful programmer."


def slot(
    body: dict[str, Any] | bytes,
    wire: str = CHAT,
    fields: dict[str, str] | None = None,
    *,
    session: str | None = None,
    client: str | None = "ci",
    settings: SessionAffinity = SessionAffinity(),  # noqa: B008
) -> bytes | None:
    found = Affinity(settings).slot(wire, opened(body), fields or {}, session, client)
    return found.key if found is not None else None


def chat(*turns: Any, system: Any = SYSTEM) -> dict[str, Any]:
    """A chat request: the system prompt, and then user and assistant by turns."""
    leading = [] if system is None else [{"role": "system", "content": system}]
    roles = itertools.cycle(("user", "assistant"))
    return {"messages": leading + [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


# Captured conversations ----------------------------------------------------------------------------------------------


def of_capture(one: Captured, *, told: bool, knows: Affinity | None = None) -> bytes | None:
    """The slot of a captured request: by what it tells, or by its opener alone."""
    fields = one.fields if told else {}
    session = identify(fields, one.members, one.client, Sessions()).session if told else None
    body = one.body if told else {name: value for name, value in one.body.items() if name != "prompt_cache_key"}
    found = (knows or Affinity(SessionAffinity())).slot(one.format, opened(body), fields, session, "dev")
    return found.key if found is not None else None


@pytest.mark.parametrize("told", [True, False], ids=["by what it tells", "by its opener"])
@pytest.mark.parametrize("name", CAPTURES)
def test_the_turns_of_a_captured_conversation_share_a_slot_that_no_other_has(name, told):
    """SPEC 5.7: its title request and its sub-agents have slots of their own, so that they move nobody's pin."""
    slots: dict[str, set[bytes | None]] = {}
    for one in CAPTURES[name]:
        slots.setdefault(one.part, set()).add(of_capture(one, told=told))
    for found in slots.values():
        assert len(found) == 1
        assert None not in found
    assert len(set.union(*slots.values())) == len(slots)


def test_captured_conversations_of_different_agents_never_meet():
    knows = Affinity(SessionAffinity())
    slots = {(name, one.part): of_capture(one, told=False, knows=knows) for name in CAPTURES for one in CAPTURES[name]}
    # The two libraries and the two lanes of one of them were given the very same words to say; and one agent asks for
    # its titles in the same words whatever format it speaks.
    twins = [pair for pair in itertools.combinations(slots, 2) if slots[pair[0]] == slots[pair[1]]]
    assert all(one[1] == other[1] and agent(one[0]) == agent(other[0]) for one, other in twins)
    assert len(set(slots.values())) > 20


def agent(capture: str) -> str | None:
    client = CAPTURES[capture][0].client
    return client.agent if client is not None else None


def responses(*items: Any, **members: Any) -> dict[str, Any]:
    return {"input": list(items), **members}


def test_a_response_s_conversation_is_told_by_its_items():
    """Instructions beside the items, or a developer's item in front of them, are the prompt; what is no message is
    nobody's."""
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": ASKED}]}
    first = slot(responses(said, instructions=SYSTEM), RESPONSES)
    assert first is not None
    answered = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
    called = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    assert slot(responses(said, answered, called, result, instructions=SYSTEM), RESPONSES) == first
    assert slot({"input": ASKED, "instructions": SYSTEM}, RESPONSES) == first
    developer = {"role": "developer", "content": SYSTEM}
    assert slot(responses(developer, {"role": "user", "content": ASKED}), RESPONSES) == first
    surroundings = {"role": "user", "content": "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"}
    assert slot(responses(developer, surroundings, said), RESPONSES) == first
    assert slot(responses(said, instructions="You are a careful reviewer."), RESPONSES) != first
    assert slot({"input": ASKED.upper(), "instructions": SYSTEM}, RESPONSES) != first


@pytest.mark.parametrize("given", ["short", [], 7, None, [{"type": "item_reference", "id": "x"}], "x" * 3])
def test_an_input_that_tells_nothing_apart_pins_nobody(given):
    assert slot({"input": given}, RESPONSES) is None


def moved_marks(body: dict[str, Any]) -> dict[str, Any]:
    """`body` with its cache marks taken away, and others put where there were none."""
    body = copy.deepcopy(body)
    for holder in (body.get("system"), *(message["content"] for message in body["messages"])):
        for block in holder if isinstance(holder, list) else ():
            if block.pop("cache_control", None) is None:
                block["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    return body


@pytest.mark.parametrize("name", [name for name in CAPTURES if CAPTURES[name][0].format == MESSAGES])
def test_moved_cache_marks_change_nothing(name):
    """Agents mark the newest message, and take the mark from the one before (CLIENTS.md)."""
    one = CAPTURES[name][-1]
    body = moved_marks(one.body)
    assert slot(body, MESSAGES) == slot(one.body, MESSAGES) != None  # noqa: E711


# What is no part of a conversation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        chat([text(ASKED)]),
        chat([text(ASKED, cache_control={"type": "ephemeral"})], system=[text(SYSTEM)]),
        chat(f"  {ASKED}\n"),
        chat(f"<system-reminder>It is Monday.</system-reminder>\n{ASKED}"),
        chat([text("<system-reminder>\nIt is Monday.\n</system-reminder>\n"), text(ASKED)]),
        chat(f"<environment_context><cwd>/x</cwd></environment_context>{ASKED}<system-reminder>b</system-reminder>"),
        chat(ASKED, "Sure.", "And now the tests."),
        chat([{"type": "image_url", "image_url": {"url": "data:"}}, text(ASKED)]),
        {"messages": [{"role": "developer", "content": SYSTEM, "name": "x"}, {"role": "user", "content": ASKED}]},
        {**chat(ASKED), "tools": [{"type": "function"}], "temperature": 0.5, "user": "me"},
        {"messages": [*chat(ASKED)["messages"], {"role": "system", "content": "Later words of the system."}]},
    ],
)
def test_what_changes_between_turns_is_no_part_of_the_key(other):
    assert slot(other) == slot(chat(ASKED))


def test_the_spelling_of_json_is_no_part_of_the_key():
    words = "Größe “42” 😀 / done"
    plain = json.dumps({"model": "m", **chat(words)}, ensure_ascii=False).encode()
    escaped = json.dumps({"model": "m", **chat(words)}, indent=3).replace("/", "\\/").encode()
    assert plain != escaped
    assert slot(plain) == slot(escaped)


def test_the_attribution_line_is_no_part_of_the_key():
    """Its version differs between requests, and a sub-agent's says so (SPEC 2.2a)."""
    line = f"{attribution.MARKER} cc_version=2.1.197.434; cc_entrypoint=cli;"
    other = f"{attribution.MARKER} cc_version=2.1.197.68e; cc_entrypoint=cli; cc_is_subagent=true;"
    turns = {"messages": [{"role": "user", "content": ASKED}]}
    without = slot({"system": SYSTEM, **turns}, MESSAGES)
    for system in ([text(line), text(SYSTEM)], [text(other), text(SYSTEM)], f"{line}\n{SYSTEM}", [text(SYSTEM)]):
        assert slot({"system": system, **turns}, MESSAGES) == without


def test_the_attribution_line_is_known_by_the_same_words_everywhere():
    assert affinity.ATTRIBUTION == attribution.MARKER


def test_the_first_turn_with_text_is_the_opener():
    """A tool's result or a picture alone says nothing that tells conversations apart."""
    picture = [{"type": "image_url", "image_url": {"url": "data:"}}]
    assert slot(chat(picture, "Nice.", ASKED)) == slot(chat(ASKED))
    only_reminders = "<system-reminder>It is Monday.</system-reminder>"
    assert slot(chat(only_reminders, "Hm?", ASKED)) == slot(chat(ASKED))


# What does tell conversations apart ----------------------------------------------------------------------------------


def test_other_words_are_another_conversation():
    slots = {
        slot(chat(ASKED)),
        slot(chat(ASKED + "!")),
        slot(chat(ASKED, system=SYSTEM + "!")),
        slot(chat(ASKED, system=None)),
        slot(chat(SYSTEM, system=ASKED)),
        slot(chat(ASKED), client="cd"),
        slot(chat(ASKED), client=None),
        slot(chat(ASKED), client=""),
        slot(chat(ASKED), session="s"),
        slot(chat(ASKED), fields={"x-session-id": "s"}),
        slot(chat(ASKED), fields={"session-id": "s"}),
        slot({**chat(ASKED), "prompt_cache_key": "s"}),
    }
    assert len(slots) == 12
    assert None not in slots


def test_unclosed_reminders_are_words_like_any_others():
    assert slot(chat(f"<system-reminder>{ASKED}")) != slot(chat(ASKED))


@pytest.mark.parametrize(("words", "pinned"), [("123456789012345", False), ("1234567890123456", True)])
def test_an_opener_of_few_characters_is_nobodys_own(words, pinned):
    """SPEC 5.7: at least 16 together, counted without the white space around."""
    assert (slot(chat(words, system=None)) is not None) is pinned
    assert (slot(chat(words[8:] + "   ", system=words[:8])) is not None) is pinned


def test_a_conversation_without_words_of_the_user_has_no_opener():
    assert slot(chat(system=SYSTEM * 10)) is None
    assert slot({}) is None
    assert slot(chat("hi", system=None), session="s") is not None


# Keys ----------------------------------------------------------------------------------------------------------------


def test_keys_are_looked_for_in_the_documented_order():
    """SPEC 5.7; docs/sessions.md has the table."""
    fields = {"x-conversation": "a", "thread-id": "d"}
    body = {**chat(ASKED), "prompt_cache_key": "c", "session_id": "e"}
    settings = SessionAffinity(header="x-conversation")

    def source(fields: dict[str, str], session: str | None, body: dict[str, Any]) -> str:
        found = Affinity(settings).slot(CHAT, opened(body), fields, session, None)
        assert found is not None
        return found.source

    assert source(fields, "b", body) == "header x-conversation"
    del fields["x-conversation"]
    assert source(fields, "b", body) == "session"
    assert source(fields, None, body) == "body prompt_cache_key"
    del body["prompt_cache_key"]
    assert source(fields, None, body) == "body session_id"
    del body["session_id"]
    assert source(fields, None, body) == "header thread-id"
    del fields["thread-id"]
    assert source(fields, None, body) == "opener"


@pytest.mark.parametrize("value", ["", "x" * 257, "a b", "é", "\x7f"])
def test_a_malformed_key_is_passed_over(value):
    """A guess may be wrong: it costs a cache, where a wrong identity would cost the books."""
    plain = slot(chat(ASKED))
    assert slot(chat(ASKED), fields={"x-session-id": value}) == plain
    assert slot(chat(ASKED), fields={"thread-id": value}) == plain
    assert slot({**chat(ASKED), "prompt_cache_key": value}) == plain
    assert slot({**chat(ASKED), "session_id": 5, "prompt_cache_key": ["x"]}) == plain


def test_one_key_has_a_slot_for_each_system_prompt():
    fields = {"x-session-id": "s"}
    main, title = slot(chat(ASKED), fields=fields), slot(chat(ASKED, system="You name chats."), fields=fields)
    assert main != title
    assert slot(chat("Anything at all", "else"), fields=fields) == main


def test_the_kinds_that_pin_nothing_are_the_operators_choice():
    knows = Affinity(SessionAffinity(no_pin=frozenset({"title"})))
    assert [knows.pins(kind) for kind in ("title", "main", None)] == [False, True, True]


def test_a_slot_is_the_same_in_every_version_of_this_derivation():
    """Pins live in a store: whoever changes this loses all of them, raises VERSION and writes a note."""
    found = slot(chat(ASKED))
    assert affinity.VERSION == b"1"
    assert found is not None
    assert found.hex() == "0693ef9b17a225206df6063d4b28d773"


# Bounds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, "openai-responses"])
@pytest.mark.parametrize(
    "messages",
    [
        None,
        {},
        "text",
        5,
        [],
        [[]],
        [None, 5, "x", {}],
        [{"role": 5, "content": "text of some length"}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": [None, 5, {"type": "text", "text": 5}, {"type": 7}]}],
        [{"role": "user", "content": {"text": "x"}}],
    ],
)
def test_malformed_messages_have_no_text_and_raise_nothing(wire, messages):
    """Somebody else refuses them, in words."""
    assert slot({"messages": messages, "system": messages}, wire) is None
    assert slot({"messages": messages, "system": messages}, wire, {"x-session-id": "s"}) is not None


def test_half_a_character_is_no_reason_to_forget_a_conversation():
    """Agents cut text in the middle of an emoji; the relay lets it pass, and so must this."""
    body = rb'{"model":"m","messages":[{"role":"user","content":"a sentence that ends in half \ud83d"}]}'
    found = slot(body)
    assert found is not None
    assert found == slot(body.replace(b"]}", b',{"role":"assistant","content":"Yes?"}]}'))


@pytest.mark.parametrize("size", [10, 16_000, 16_384, 70_000, 300_000, 1_500_000])
def test_a_long_first_turn_is_found_wherever_it_ends(size):
    long = "x" * size
    one = slot(chat(ASKED + long))
    assert one == slot(chat(ASKED + long, "Sure.", "Go on."))
    assert one != slot(chat(ASKED + long + "y"))
    assert slot(chat(ASKED, system=SYSTEM + long)) == slot(chat(ASKED, "Sure.", "Go on.", system=SYSTEM + long))


def test_an_opener_far_behind_the_beginning_is_none():
    """Nobody's history begins with a hundred turns that say nothing; nobody may make us look through thousands."""
    empty = [{"role": "assistant", "content": "?"}]
    assert slot({"messages": empty * 100 + chat(ASKED, system=None)["messages"]}) == slot(chat(ASKED, system=None))
    assert slot({"messages": empty * 1000 + chat(ASKED, system=None)["messages"]}) is None


def test_a_history_behind_the_opener_is_never_looked_at(monkeypatch: pytest.MonkeyPatch):
    """A history of 2 MB costs what a short one does."""
    looked_at: list[int] = []
    cuts = affinity.nesting.cuts
    short, long = (opened(body) for body in (chat(ASKED, "Sure."), chat(ASKED, *["x" * 1000] * 2000)))
    monkeypatch.setattr(affinity.nesting, "cuts", lambda data, limit: looked_at.append(len(data)) or cuts(data, limit))
    slots = [Affinity(SessionAffinity()).slot(CHAT, body, {}, None, "ci") for body in (short, long)]
    assert slots[0] is not None and slots[0] == slots[1]
    assert max(looked_at) <= 16 << 10


def test_what_is_remembered_is_bounded():
    knows = Affinity(SessionAffinity())
    first = knows.slot(CHAT, opened(chat(ASKED)), {}, None, None)
    for n in range(10_000):
        knows.slot(CHAT, opened(chat(f"{ASKED} {n}")), {}, None, None)
    assert len(knows._read) + len(knows._read_before) <= 2 * 4096
    assert knows.slot(CHAT, opened(chat(ASKED)), {}, None, None) == first


def test_a_text_full_of_openings_is_read_once():
    """Each of them would be searched to the end of the text, were they searched one by one."""
    hostile = "<system-reminder>" * 200_000
    assert slot(chat(hostile)) is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["user", "system", "text", ASKED]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON, JSON, st.sampled_from([CHAT, MESSAGES]))
def test_any_json_has_a_slot_or_none(messages, system, wire):
    body = {"messages": messages, "system": system}
    assert slot(body, wire) == slot(json.dumps({**body, "model": "m"}, indent=1).encode(), wire)


def test_what_is_remembered_of_a_beginning_never_decides_for_another_conversation():
    """A conversation whose first turns are those of a known one, and which only then says something of its own."""
    affinity = Affinity(SessionAffinity())
    begins = [{"role": "system", "content": "S" * 20}, {"role": "assistant", "content": "Hello."}]
    own = [{"role": "user", "content": f"This is conversation number {number}."} for number in range(3)]

    def slot_of(messages: list[dict[str, Any]], used: Affinity) -> bytes | None:
        members = opened({"messages": messages})
        found = used.slot("openai-chat", members, {}, None, None)
        return found.key if found is not None else None

    assert slot_of(begins, affinity) is None
    slots = [slot_of([*begins, one], affinity) for one in own]
    assert None not in slots and len(set(slots)) == 3
    assert slots == [slot_of([*begins, one], Affinity(SessionAffinity())) for one in own]
    assert slots == [slot_of([*begins, one, {"role": "assistant", "content": "so"}], affinity) for one in own]


def test_a_system_message_that_does_not_lead_counts_as_one_of_the_turns_that_were_read():
    """The third message decides here; what is remembered of the first two must not."""
    affinity = Affinity(SessionAffinity())
    begins = [{"role": "assistant", "content": "Hello."}, {"role": "system", "content": "Be careful, please."}]
    slots = []
    for number in range(3):
        said = {"role": "user", "content": f"This is conversation number {number}."}
        found = affinity.slot("openai-chat", opened({"messages": [*begins, said]}), {}, None, None)
        slots.append(found.key if found is not None else None)
    assert None not in slots and len(set(slots)) == 3


def test_a_title_request_is_about_the_text_that_its_conversation_begins_with():
    """SPEC 8.3: by opencode's own requests, in all formats."""
    seen = 0
    for name, requests in conversations().items():
        if not name.startswith("opencode-"):
            continue
        titles = [one for one in requests if one.part == "title"]
        mains = [one for one in requests if one.part == "main"]
        for one in titles:
            affinity = Affinity(SessionAffinity())
            slot = affinity.slot(mains[0].format, mains[0].members, {}, "s", None)
            assert (
                slot is not None
                and slot.opener == affinity.named(one.members.get("messages", one.members.get("input"))) != b""
            )
            again = affinity.slot(mains[1].format, mains[1].members, {}, "s", None)
            assert again is not None and again.key == slot.key
            seen += 1
    assert seen == 3


def test_a_short_text_names_no_conversation():
    """Half the world begins with "hello"."""
    body = {"messages": [{"role": "user", "content": "title:"}, {"role": "user", "content": "hello"}]}
    assert Affinity(SessionAffinity()).named(opened(body)["messages"]) == b""
    for none in (
        {"messages": []},
        {"messages": "x"},
        {"messages": [{"role": "user", "content": "only words of its own"}]},
    ):
        assert Affinity(SessionAffinity()).named(opened(none)["messages"]) == b""
    slot = Affinity(SessionAffinity()).slot("openai-chat", opened({"messages": body["messages"][1:]}), {}, "s", None)
    assert slot is not None and slot.opener == b""
