"""Sealed reasoning: what an item holds and is bound to, where it stands in an answer, and where it comes back to."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack, structs

from arbiter.errors import InvalidReasoning
from arbiter.fold import collect
from arbiter.model import (
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Finish,
    Finished,
    Message,
    Part,
    RedactedThinking,
    Request,
    SealedThinking,
    Started,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSealed,
    ThinkingSigned,
    ToolCall,
)
from arbiter.wire import (
    anthropic_messages,
    bedrock_converse,
    gemini_sealed,
    google_gemini,
    native,
    openai_chat,
    openai_responses,
    signatures,
)
from arbiter.wire.format import Format
from arbiter.wire.gemini_sealed import MARK, signature_of
from arbiter.wire.native import CHAT, MESSAGES, RESPONSES
from arbiter.wire.openai_servers import taken
from arbiter.wire.restored import HandedAlong, lost
from arbiter.wire.sealer import Sealer
from arbiter.wire.translated import TranslatedStream
from arbiter.wire.vault import (
    MAX_ITEM_BYTES,
    MAX_SEALED_BYTES,
    PREFIX,
    UNSIGNED,
    Origin,
    Sealed,
    Thought,
    Vault,
    digest,
    home_of,
    vault_of,
)
from tests.fakes.thinkers import Claude, DeepSeek

NEW, OLD = b"n" * 32, b"o" * 32
VAULT = Vault((NEW, OLD))
CLAUDE = Origin(MESSAGES, home_of("https://a"), "k1", "claude")
DEEP = Origin(CHAT, home_of("https://d"), "", "deepseek-chat")
GPT = Origin(RESPONSES, home_of("https://g"), "k1", "gpt-5")
SAID = "Let me look."
SEALED = Sealed(
    CLAUDE, ("call_1",), 10, digest("Letmelook."), (Thought(0, 0, "hm — 思", "sig+/="), Thought(10, 0, data="red"))
)


# --- The vault ---------------------------------------------------------------------------------------------------


def test_an_item_is_ascii_and_holds_what_was_sealed() -> None:
    item = VAULT.seal(SEALED, "ann")
    assert item is not None and item.isascii() and item.startswith(PREFIX)
    assert VAULT.open(item, "ann") == SEALED


def test_the_first_key_seals_and_every_key_opens() -> None:
    """A rotation: what the old key sealed is opened with it, also by who seals with the new one; not without it."""
    before = Vault((OLD,)).seal(SEALED, None)
    after = VAULT.seal(SEALED, None)
    assert before is not None and after is not None
    assert VAULT.open(before, None) == Vault((OLD, NEW)).open(after, None) == SEALED
    with pytest.raises(InvalidReasoning, match="does not have"):
        Vault((OLD,)).open(after, None)


@pytest.mark.parametrize(("owner", "other"), [("ann", "bob"), ("ann", None), (None, "ann"), (None, "")])
def test_an_item_is_its_clients_alone(owner: str | None, other: str | None) -> None:
    item = VAULT.seal(SEALED, owner)
    assert item is not None
    with pytest.raises(InvalidReasoning, match="another client"):
        VAULT.open(item, other)


@pytest.mark.parametrize(("ours", "theirs"), ["-+", "_/"])
def test_an_item_has_one_alphabet(ours: str, theirs: str) -> None:
    """Base64 has two alphabets. An item of the other one would be a second name of the same."""
    items = (VAULT.seal(SEALED, "ann") or "" for _ in range(1000))  # one of 200 characters has it nearly always
    head, _, tail = next(item for item in items if ours in item.removeprefix(f"{PREFIX}1.")).rpartition(ours)
    assert VAULT.open(head + ours + tail, "ann") == SEALED
    with pytest.raises(InvalidReasoning):
        VAULT.open(head + theirs + tail, "ann")


@given(st.data())
def test_no_item_can_be_changed(data: st.DataObject) -> None:
    """Whichever character is another one, nothing comes of it but an error."""
    item = VAULT.seal(SEALED, "ann")
    assert item is not None
    place = data.draw(st.integers(0, len(item) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda one: one != item[place]))
    changed = item[:place] + other + item[place + 1 :]
    with pytest.raises(InvalidReasoning):
        VAULT.open(changed, "ann")


@pytest.mark.parametrize("length", range(3))
def test_an_item_has_one_spelling(length: int) -> None:
    """Base64 has bits to spare at its end: they count, too."""
    item = VAULT.seal(Sealed(DEEP, (), 0, b"", (Thought(0, 0, "x" * length),)), None)
    assert item is not None
    body = item.rstrip("=")
    for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".replace(body[-1], ""):
        with pytest.raises(InvalidReasoning):
            VAULT.open(body[:-1] + other + item[len(body) :], None)
    for more in ("=", "\n", "!"):
        with pytest.raises(InvalidReasoning):
            VAULT.open(item + more, None)


@pytest.mark.parametrize("item", ["", "x", PREFIX, f"{PREFIX}1.", f"{PREFIX}1.AAAA", f"{PREFIX}2.AAAA", f"{PREFIX}1.é"])
def test_what_is_no_item_is_refused(item: str) -> None:
    with pytest.raises(InvalidReasoning):
        VAULT.open(item, None)


def test_an_item_that_is_too_long_is_refused_before_it_is_opened() -> None:
    """Also one that is sound; and none is made that would be."""
    item = PREFIX + "1." + "A" * MAX_ITEM_BYTES
    with pytest.raises(InvalidReasoning, match="4 MiB"):
        VAULT.open(item, None)
    fits = Sealed(DEEP, (), 0, b"", (Thought(0, 0, "x" * (MAX_SEALED_BYTES - 200)),))
    item = VAULT.seal(fits, None) or ""
    assert MAX_ITEM_BYTES * 0.99 < len(item) <= MAX_ITEM_BYTES and VAULT.open(item, None) == fits
    assert VAULT.seal(Sealed(DEEP, (), 0, b"", (Thought(0, 0, "x" * MAX_SEALED_BYTES),)), None) is None


def test_without_a_key_there_is_no_vault() -> None:
    assert vault_of(()) is None and vault_of((NEW,)) is vault_of((NEW,))


# --- Into an answer -----------------------------------------------------------------------------------------------


def passed(origin: Origin, events: list[Event]) -> list[Event]:
    sealer = Sealer(VAULT, origin, "ann")
    return [told for event in events for told in sealer.take(event)]


def opened(events: list[Event]) -> list[Sealed]:
    return [VAULT.open(event.item, "ann") for event in events if type(event) is ThinkingSealed]


def test_an_item_stands_in_front_of_the_call_that_it_is_for() -> None:
    """With what was thought since the last one, each thought where it stood; the last one behind the last words."""
    told = passed(
        CLAUDE,
        [
            ThinkingDelta("one"),
            ThinkingSigned("sig 1"),
            TextDelta("Let me "),
            ThinkingRedacted("red"),
            TextDelta("look."),
            CallStarted(0, "c1", "f"),
            CallDelta(0, "{}"),
            CallStarted(1, "c2", "f"),
            CallDelta(1, "{}"),
            ThinkingDelta("two"),
            ThinkingSigned("sig 2"),
            Finished(Finish.TOOL_CALLS),
        ],
    )
    kinds = [type(event) for event in told]
    assert kinds.index(ThinkingSealed) == kinds.index(CallStarted) - 1 and kinds[-2] is ThinkingSealed
    first, last = opened(told)
    assert first == Sealed(
        CLAUDE, ("c1",), 10, digest("Letmelook."), (Thought(0, 0, "one", "sig 1"), Thought(5, 0, data="red"))
    )
    assert (last.calls, last.thoughts) == (("c1", "c2"), (Thought(10, 2, "two", "sig 2"),))
    assert [event.call_id for event in told if type(event) is ThinkingSealed] == ["c1", None]


@pytest.mark.parametrize(
    ("origin", "thought"),
    [
        (CLAUDE, [ThinkingDelta("unsigned")]),
        (GPT, [ThinkingDelta("a summary")]),
        (DEEP, []),
        (DEEP, [ThinkingDelta("")]),
    ],
)
def test_what_nobody_wants_back_is_not_sealed(origin: Origin, thought: list[Event]) -> None:
    assert not opened(passed(origin, [*thought, TextDelta("Hi."), Finished(Finish.STOP)]))


@pytest.mark.parametrize("count", [1, 20, 5_000])
def test_what_was_said_before_the_first_thought_is_bound_too(count: int) -> None:
    """It is not read until there is a thought, or there is much of it; where that stood is known all the same."""
    said: list[Event] = [TextDelta("word by word, ")] * count
    call: list[Event] = [CallStarted(0, "c0", "f"), CallDelta(0, "{}")]
    thought: list[Event] = [ThinkingDelta("hm"), ThinkingSigned("sig"), TextDelta("So."), CallStarted(1, "c1", "f")]
    (found,) = opened(passed(CLAUDE, [*said, *call, *said, *thought]))
    text = "wordbyword," * 2 * count
    assert (found.thoughts, found.calls) == ((Thought(len(text), 1, "hm", "sig"),), ("c0", "c1"))
    assert (found.said, found.digest) == (len(text) + 3, digest(text + "So."))


@pytest.mark.parametrize("repeats", [1, 40])
@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_moved_text_before_the_first_thought_is_bound_too(size: int, repeats: int) -> None:
    """Whatever mould it was moved in, and however much of it there was."""
    upstream = Claude()
    events = upstream.stream("hm", "Then this. " * 60 * repeats, "call_1", "")
    text = [one for one in events if b'"index": 2' in one]
    first = [one.replace(b'"index": 2', b'"index": 0') for one in text]
    rest = [one.replace(b'"index": 0', b'"index": 5').replace(b'"index": 1', b'"index": 6') for one in events[1:]]
    data = b"".join([events[0], *first, *rest])
    found = TranslatedStream(
        anthropic_messages.reader(), openai_chat.writer("t", "m", 0), {}, Sealer(VAULT, CLAUDE, "ann")
    )
    told = b"".join(found.feed(data[start : start + size]) for start in range(0, len(data), size))
    assert found.fault() is None
    (item,) = {word for word in told.decode().split('"') if word.startswith(PREFIX)}
    whole = "Thenthis." * 60 * repeats
    sealed = VAULT.open(item, "ann")
    assert [one.said for one in sealed.thoughts] == [len(whole)] * 2
    assert (sealed.said, sealed.digest) == (2 * len(whole), digest(whole * 2))


def test_more_than_an_item_can_hold_is_not_sealed_nor_kept() -> None:
    huge = [ThinkingDelta("x" * (1 << 20))] * 4
    assert not opened(passed(DEEP, [*huge, TextDelta("Hi."), Finished(Finish.STOP)]))


STREAMS: dict[str, tuple[type[Any], Origin, Format]] = {
    "claude": (Claude, CLAUDE, anthropic_messages),
    "deepseek": (DeepSeek, DEEP, openai_chat),
}


CLIENTS = [openai_chat, anthropic_messages, openai_responses, google_gemini]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.name)
@pytest.mark.parametrize("name", STREAMS)
def test_any_cut_of_a_stream_seals_the_same(name: str, client: Format) -> None:
    """Also where deltas are moved past the events as raw JSON, and nobody reads them one by one."""
    kind, origin, upstream = STREAMS[name]
    if client is upstream:
        pytest.skip("the native lane")
    data = b"".join(kind().stream('thought "1"\n思考 🧠', "Some text, cut.", "call_1", ""))

    def sealed(size: int) -> list[Sealed]:
        found = TranslatedStream(upstream.reader(), client.writer("t" * 32, "m", 0), {}, Sealer(VAULT, origin, "ann"))
        told = b"".join(found.feed(data[start : start + size]) for start in range(0, len(data), size))
        words = [(gemini_sealed.item_of(word) or (word,))[0] for word in told.decode().split('"')]
        items = [word for word in words if word.startswith(PREFIX) and word != UNSIGNED]
        return [VAULT.open(item, "ann") for item in dict.fromkeys(items)]

    (whole,) = sealed(len(data))
    assert whole.thoughts[0].text == 'thought "1"\n思考 🧠' and whole.said == len("Sometext,cut.")
    assert whole.digest == digest("Sometext,cut.") and whole.calls == ("call_1",)
    for size in (1, 7, 50, 333):
        assert sealed(size) == [whole]


# --- Back into a conversation -------------------------------------------------------------------------------------


def conversation(*parts: Part) -> Request:
    turns = (Message("user", "Hi"), Message("assistant", parts), Message("user", "Go on."))
    return Request(model="m", messages=turns)


def restored(request: Request, target: Origin, owner: str | None = "ann") -> tuple[Part, ...]:
    return HandedAlong(request, VAULT, owner).told_to(target).request.messages[1].parts()


def item_of(sealed: Sealed, owner: str | None = "ann") -> SealedThinking:
    item = VAULT.seal(sealed, owner)
    assert item is not None
    return SealedThinking(item)


CALL = ToolCall("call_1", "f", "{}")
WITH_TEXT = Sealed(
    CLAUDE,
    ("call_1",),
    10,
    digest("Letmelook."),
    (Thought(0, 0, "one", "sig 1"), Thought(5, 0, data="red"), Thought(10, 0, "two", "sig 2")),
)


def test_thoughts_come_back_to_where_they_stood() -> None:
    """Wherever the client put the item, and also where it made one text of two."""
    signed = (
        Thinking("one", "sig 1"),
        Text("Let me"),
        RedactedThinking("red"),
        Text(" look."),
        Thinking("two", "sig 2"),
    )
    for parts in ((item_of(WITH_TEXT), Text("Let me look."), CALL), (Text("Let me look."), CALL, item_of(WITH_TEXT))):
        assert restored(conversation(*parts), CLAUDE) == (*signed, CALL)


@pytest.mark.parametrize("text", [" Let me look.\n", "Let\nme  look.", "Let me look. And then"])
def test_blanks_and_what_came_later_are_not_bound(text: str) -> None:
    assert Thinking("one", "sig 1") in restored(conversation(Text(text), item_of(WITH_TEXT), CALL), CLAUDE)


def test_text_for_everybody_signatures_for_the_same_model_and_encrypted_items_for_the_same_account() -> None:
    raw = b'{"type":"reasoning","encrypted_content":"e"}'
    items = {
        origin: item_of(Sealed(origin, ("call_1",), 0, digest(""), (Thought(0, 0, "one", sign, None, item),)))
        for origin, sign, item in ((CLAUDE, "s", None), (DEEP, None, None), (GPT, None, raw))
    }
    other = Origin(MESSAGES, CLAUDE.home, "k2", "claude")
    fits = {
        (CLAUDE, CLAUDE), (CLAUDE, other), (GPT, GPT), (CLAUDE, DEEP), (DEEP, DEEP), (GPT, DEEP),
        (GPT, Origin(RESPONSES, GPT.home, "k1", "gpt-6")),
    }  # fmt: skip
    targets = [
        CLAUDE, other, DEEP, GPT, Origin(RESPONSES, GPT.home, "k1", "gpt-6"),
        Origin(RESPONSES, GPT.home, "k2", "gpt-5"),
        Origin(MESSAGES, CLAUDE.home, "k1", "claude-2"), Origin(MESSAGES, b"elsewhere", "k1", "claude"),
    ]  # fmt: skip
    for origin, item in items.items():
        for target in targets:
            found = HandedAlong(conversation(item, CALL), VAULT, "ann").told_to(target)
            is_there = any(type(part) is Thinking for part in found.request.messages[1].parts())
            assert (is_there, found.left_out) == ((origin, target) in fits, (origin, target) not in fits)


OPUS = Origin(MESSAGES, home_of("https://a"), "k1", "claude-opus-4-6", "claude-opus-4-6")
AT_AWS = Origin(MESSAGES, home_of("https://b"), "", "eu.anthropic.claude-opus-4-6-v1", "claude-opus-4-6")
CONVERSING = Origin(
    bedrock_converse.name, home_of("https://b"), "", "eu.anthropic.claude-opus-4-6-v1", "claude-opus-4-6"
)
SIGNED, REDACTED = Thought(0, 0, "one", "s"), Thought(0, 0, data="red")


@pytest.mark.parametrize(
    ("origin", "target", "thought", "fits"),
    [
        (OPUS, AT_AWS, SIGNED, True),
        (AT_AWS, OPUS, REDACTED, True),
        (OPUS, CONVERSING, SIGNED, True),
        (CONVERSING, OPUS, SIGNED, True),
        (CONVERSING, OPUS, REDACTED, False),  # only the signature is known to be the same in both formats
        (CONVERSING, CONVERSING, REDACTED, True),
        (OPUS, structs.replace(AT_AWS, claude="claude-opus-4-5"), SIGNED, False),
        (OPUS, structs.replace(AT_AWS, claude=""), SIGNED, False),
        (CLAUDE, structs.replace(CLAUDE, home=b"elsewhere"), SIGNED, False),
        (structs.replace(OPUS, claude=""), OPUS, SIGNED, True),  # sealed before there was such a name
    ],
)
def test_what_a_claude_signed_is_for_each_home_of_it(
    origin: Origin, target: Origin, thought: Thought, fits: bool
) -> None:
    item = item_of(Sealed(origin, ("call_1",), 0, digest(""), (thought,)))
    found = HandedAlong(conversation(item, CALL), VAULT, "ann").told_to(target)
    assert found.left_out == (not fits)
    assert (thought.part() in found.request.messages[1].parts()) is fits


def test_an_item_from_before_claudes_had_a_name_is_still_opened() -> None:
    """It was sealed with one member less, and never expires."""
    old = msgpack.encode([[MESSAGES, CLAUDE.home, "k1", "claude"], ["call_1"], 0, digest(""), [[0, 0, "one", "s"]]])
    assert msgpack.decode(old, type=Sealed).origin == CLAUDE


OPENAIS = b'{"type":"reasoning","encrypted_content":"e"}'
PLAIN, GPT_5 = taken("my-model", "proxy.test"), taken("gpt-5", "api.openai.com")


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (Thinking("hm", "sig"), {MESSAGES, bedrock_converse.name, "chat"}),
        (Thinking("", "sig"), {MESSAGES, bedrock_converse.name}),
        (RedactedThinking("red"), {MESSAGES, bedrock_converse.name}),
        (Thinking("hm", "gemini#c2ln"), {native.GEMINI, "chat"}),
        (Thinking("hm", item=OPENAIS), {RESPONSES, "chat"}),
        (Thinking("", item=OPENAIS), {RESPONSES}),
        (RedactedThinking("{}", "message"), {"chat"}),
        (RedactedThinking("{}", "call"), {"chat"}),
    ],
)
def test_what_a_maker_signed_is_not_left_out_in_silence(part: Part, told: set[str]) -> None:
    """Whoever signed it, no item says so: the client brings it as its maker gave it."""
    request = conversation(part, Text(SAID), CALL)
    targets = {name: (name, None) for name in (MESSAGES, RESPONSES, native.GEMINI, bedrock_converse.name)}
    for name, (format, takes) in {**targets, "chat": (CHAT, PLAIN), "gpt-5": (CHAT, GPT_5)}.items():
        assert lost(request, format, takes) == (name not in told), name


@pytest.mark.parametrize(
    "part", [Thinking("hm"), Thinking("hm", signatures.ELSEWHERE), Thinking("hm", item=b'{"type":"reasoning"}')]
)
def test_a_thought_that_nobody_signed_is_no_loss(part: Part) -> None:
    for format in (MESSAGES, RESPONSES, native.GEMINI):
        assert not lost(conversation(part, CALL), format, None)
    assert not lost(conversation(part, CALL), CHAT, GPT_5)


def test_the_plain_text_beside_an_item_is_left_out_and_other_thoughts_stay() -> None:
    sealed = item_of(Sealed(DEEP, ("call_1",), 0, digest(""), (Thought(0, 0, "sealed"),)))
    kept = Thinking("theirs", "their signature")
    summary = b'{"type":"reasoning","summary":[],"encrypted_content":null}'  # as Codex has it
    plain = Thinking("sealed", spelling="reasoning_content"), Thinking("a summary", item=summary)
    assert restored(conversation(*plain, kept, sealed, CALL), DEEP) == (kept, Thinking("sealed"), CALL)
    request = conversation(*plain, CALL)
    assert HandedAlong(request, VAULT, "ann").told_to(DEEP).request == request


def test_a_thought_that_the_client_sends_signed_as_well_is_one_thought() -> None:
    parts = (Thinking("one", "sig 1"), Text(SAID), RedactedThinking("red"), item_of(WITH_TEXT), CALL)
    found = restored(conversation(*parts), CLAUDE)
    assert found.count(Thinking("one", "sig 1")) == found.count(RedactedThinking("red")) == 1


def test_an_item_twice_is_an_item_once() -> None:
    item = item_of(WITH_TEXT)
    assert restored(conversation(item, item, Text(SAID), CALL), CLAUDE).count(Thinking("one", "sig 1")) == 1


def test_several_answers_in_a_row_each_have_their_own_text() -> None:
    """Nobody spoke between: an assistant that was asked to go on."""
    second = Sealed(CLAUDE, ("call_1",), 4, digest("More"), (Thought(0, 0, "two", "sig 2"),))
    first = Sealed(CLAUDE, (), 10, digest("Letmelook."), (Thought(0, 0, "one", "sig 1"),))
    parts = (Text(SAID), item_of(first), Text("More"), item_of(second), CALL)
    expected = (Thinking("one", "sig 1"), Text(SAID), Thinking("two", "sig 2"), Text("More"), CALL)
    assert restored(conversation(*parts), CLAUDE) == expected


CHANGED = [
    (conversation(item_of(WITH_TEXT), Text("Let me see."), CALL), "text"),
    (conversation(item_of(WITH_TEXT), Text("Let me"), CALL), "text"),
    (conversation(item_of(WITH_TEXT), CALL), "text"),
    (conversation(item_of(WITH_TEXT), Text(SAID)), "call"),
    (conversation(item_of(WITH_TEXT), Text(SAID), ToolCall("call_2", "f", "{}")), "call"),
    (conversation(item_of(WITH_TEXT, "bob"), Text(SAID), CALL), "another client"),
    (conversation(SealedThinking(PREFIX + "1.AAAA"), Text(SAID), CALL), "damaged"),
]


@pytest.mark.parametrize(("request_", "why"), CHANGED)
def test_what_does_not_stand_where_it_stood_is_refused(request_: Request, why: str) -> None:
    with pytest.raises(InvalidReasoning, match=why) as refused:
        HandedAlong(request_, VAULT, "ann")
    assert refused.value.param == "messages[1]" and type(refused.value.part) is SealedThinking


def test_without_a_key_nothing_is_passed_over() -> None:
    with pytest.raises(InvalidReasoning, match="no key"):
        HandedAlong(conversation(item_of(WITH_TEXT), Text(SAID), CALL), None, "ann")


# --- As Gemini's clients have it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("call_id", [None, "call_1", "toolu_01AbC-_", "ж" * 300])
@pytest.mark.parametrize("length", range(4))
def test_a_signature_is_bytes_to_googles_sdks(call_id: str | None, length: int) -> None:
    """It comes back the same from either alphabet, with padding or without, and tells whose call it is for."""
    item = VAULT.seal(structs.replace(SEALED, calls=("c" * length,)), "ann")
    assert item is not None
    signature = signature_of(item, call_id)
    raw = base64.b64decode(signature, validate=True)
    assert signature.startswith(MARK.decode()) and raw.startswith(PREFIX.encode())
    for spelled in (signature, base64.urlsafe_b64encode(raw).decode(), signature.rstrip("=")):
        assert gemini_sealed.item_of(spelled) == (item, call_id)


def test_an_id_that_is_too_long_to_be_told_is_none() -> None:
    assert gemini_sealed.item_of(signature_of(PREFIX + "1.AAAA", "x" * (1 << 16))) == (PREFIX + "1.AAAA", None)


@pytest.mark.parametrize("signature", ["", "c2ln", "skip_thought_signature_validator", UNSIGNED])
def test_googles_own_signatures_are_none_of_ours(signature: str) -> None:
    assert gemini_sealed.item_of(signature) is None


@given(st.text("ABCab+/=-_ é", max_size=40))
def test_what_only_begins_like_one_is_refused(rest: str) -> None:
    """Damaged, it is an item all the same, which no vault opens: nothing is passed over in silence."""
    found = gemini_sealed.item_of(MARK.decode() + rest)
    assert found is not None
    with pytest.raises(InvalidReasoning):
        VAULT.open(found[0], "ann")


def test_a_call_without_an_id_has_the_one_that_it_was_told_with() -> None:
    """And one with an id keeps it, whatever its signature says: the item is then refused."""
    item = item_of(SEALED).item
    for id, expected in ({}, "call_7"), ({"id": "call_8"}, "call_8"):
        call = {"functionCall": {"name": "f", **id}, "thoughtSignature": signature_of(item, "call_7")}
        body = {"model": "m", "contents": [{"role": "model", "parts": [call]}]}
        request = google_gemini.parse_request(native.open_body(json.dumps(body).encode()).members)
        assert request.messages[0].content == (SealedThinking(item, "call_7"), ToolCall(expected, "f", "{}"))


def test_what_the_model_said_in_a_row_is_one_message() -> None:
    """Google's SDKs keep each chunk of a stream as a content of its own."""
    user, thought = {"role": "user", "parts": [{"text": "Hi"}]}, {"text": "h", "thought": True}
    said = [[thought], [{"text": "m", "thought": True}], [{"text": "Let me "}], [{"text": "look."}], []]
    called = [[{"functionCall": {"id": "c1", "name": "f"}}], [{"text": ""}]]
    turns = [{"role": "model", "parts": parts} for parts in (*said, *called)]
    body = {"model": "m", "contents": [user, *turns, user, turns[0], user]}
    messages = google_gemini.parse_request(native.open_body(json.dumps(body).encode()).members).messages
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert messages[1].content == (Thinking("hm"), Text(SAID), ToolCall("c1", "f", "{}"))
    assert messages[3].content == (Thinking("h"),)


def test_a_gemini_client_gets_an_item_with_the_call_or_behind_the_last_words() -> None:
    item = item_of(SEALED).item
    events: list[Event] = [Started(), ThinkingDelta("hm"), TextDelta("Hi."), ThinkingSealed(item, "call_1")]
    events += [CallStarted(0, "call_1", "f"), CallDelta(0, "{}"), ThinkingSealed(item), Finished(Finish.STOP), Ended()]
    call = {"functionCall": {"id": "call_1", "name": "f", "args": {}}, "thoughtSignature": signature_of(item, "call_1")}
    last = {"text": "", "thoughtSignature": signature_of(item, None)}
    parts = [{"text": "hm", "thought": True}, {"text": "Hi."}, call, last]
    whole = json.loads(google_gemini.write_answer(collect(events), "t", "m", 0))
    assert whole["candidates"][0]["content"]["parts"] == parts
    chunks = b"".join(map(google_gemini.writer("t", "m", 0).write, events)).split(b"\n\n")[:-1]
    told = [json.loads(one[6:])["candidates"][0]["content"]["parts"] for one in chunks]
    assert [part for one in told for part in one] == parts


# --- As the formats have it ---------------------------------------------------------------------------------------


def asked() -> Iterator[tuple[Format, dict[str, Any]]]:
    """One conversation with an item, as a client of each format sends it back."""
    item = item_of(Sealed(DEEP, ("call_1",), 10, digest("Letmelook."), (Thought(0, 0, "hm"),))).item
    function = {"name": "f", "arguments": "{}"}
    yield (
        openai_chat,
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": SAID,
                    "reasoning_details": [
                        {"type": "reasoning.encrypted", "data": item, "id": "call_1"},
                        {"data": "theirs"},
                    ],
                    "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
                }
            ]
        },
    )
    blocks = [
        {"type": "text", "text": SAID},
        {"type": "redacted_thinking", "data": item},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {}},
    ]
    yield anthropic_messages, {"messages": [{"role": "assistant", "content": blocks}], "max_tokens": 9}
    said = {"type": "message", "role": "assistant", "content": SAID}
    called = {"functionCall": {"name": "f"}, "thoughtSignature": signature_of(item, "call_1")}  # as the AI SDK has it
    yield google_gemini, {"contents": [{"role": "model", "parts": [{"text": SAID}, called]}]}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": item}
    yield openai_responses, {"input": [said, reasoning, {"type": "function_call", "call_id": "call_1", **function}]}


@pytest.mark.parametrize(("format", "body"), list(asked()), ids=lambda one: getattr(one, "name", None))
def test_every_format_brings_an_item_back(format: Format, body: dict[str, Any]) -> None:

    members = native.open_body(json.dumps({"model": "m", **body}).encode()).members
    request = format.parse_request(members)
    ((message,),) = (request.messages,)
    assert [type(part) for part in message.parts()].count(SealedThinking) == 1
    told = HandedAlong(request, VAULT, "ann").told_to(DEEP).request.messages[0].parts()
    others = tuple(part for part in told if type(part) is not RedactedThinking)
    assert others == (Thinking("hm"), Text(SAID), ToolCall("call_1", "f", "{}"))
    is_chat = format is openai_chat
    assert [part.data for part in told if type(part) is RedactedThinking] == is_chat * [
        '{"reasoning_details":[{"data": "theirs"}]}'  # what another server wants back stays
    ]
