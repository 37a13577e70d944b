"""What a server of OpenAI Chat wants back with its turns: found, joined, carried, and given to nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from arbiter.fold import collect, unfold
from arbiter.model import (
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Finish,
    Finished,
    Message,
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
    ToolCall,
)
from arbiter.wire import anthropic_messages, chat_proofs, google_gemini, native, openai_chat, openai_responses
from arbiter.wire.chat_proofs import Gathered
from arbiter.wire.format import Format
from arbiter.wire.json import ABSENT, encode
from arbiter.wire.native import CHAT, MESSAGES
from arbiter.wire.restored import HandedAlong
from arbiter.wire.sealer import Sealer
from arbiter.wire.translated import TranslatedStream
from arbiter.wire.vault import MAX_SEALED_BYTES, Origin, Sealed, Vault, home_of
from tests.fakes.thinkers import Compat, Router

VAULT = Vault((b"k" * 32,))
ROUTER = Origin(CHAT, home_of("https://r"), "k1", "anthropic/claude-opus-4.6")
SIGNED = '{"google":{"thought_signature":"c2ln"}}'
CALL = CallStarted(0, "call_1", "f")


def detail(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": f"reasoning.{kind}", "format": "f", "index": 0, **members}


def slices(*details: dict[str, Any]) -> list[str]:
    """Each in a slice of its own."""
    found = [chat_proofs.of_message(Raw(encode([one])), ABSENT) for one in details]
    return [one for one in found if one is not None]


def joined(*details: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(encode(Gathered(slices(*details)).members()))["reasoning_details"]
    return found


@pytest.mark.parametrize("raw", ["null", "[]", "[ \n]", '"text"', "{}"])
def test_details_that_say_nothing_are_none(raw: str) -> None:
    assert chat_proofs.of_message(Raw(raw.encode()), ABSENT) is None


@pytest.mark.parametrize("raw", ["null", "{}", '{"google":{"thought":true}}', "[]"])
def test_what_google_adds_is_kept_where_it_is_a_signature(raw: str) -> None:
    assert chat_proofs.of_message(ABSENT, Raw(raw.encode())) is chat_proofs.of_call(Raw(raw.encode())) is None
    found = json.loads(chat_proofs.of_call(Raw(b'{"vertex":\n{"thought_signature":"s"}}')) or "")
    assert found == {"extra_content": {"vertex": {"thought_signature": "s"}}}


def test_slices_of_a_text_are_one_and_its_signature_comes_last() -> None:
    """As OpenRouter streams a Claude. What else a slice has stands, null does not, and the order of members stays."""
    one, two = detail("text", text='a"\\', signature=None), detail("text", text="é🧠")
    assert joined(one, two, detail("text", signature="sig")) == [detail("text", text='a"\\é🧠', signature="sig")]
    assert list(joined(one, detail("text", signature="sig"))[0]) == ["type", "format", "index", "text", "signature"]


TEXTS = st.lists(st.text('a"\\:é0,{}text', max_size=6), min_size=1, max_size=6)


@given(TEXTS, st.sampled_from(["text", "summary"]), st.sampled_from([None, "a", "0"]))
def test_a_slice_that_is_like_the_last_is_read_as_any_other(texts: list[str], kind: str, id: str | None) -> None:
    """Whatever is said in it: quotes, what ends an escape, the very words that stand around it."""
    pieces = [detail(kind, **{kind: text}, id=id) for text in texts]
    end = detail(kind, signature="sig", id=id)
    whole = detail(kind, **{kind: "".join(texts)}, id=id)
    assert joined(*pieces) == [whole]
    again = detail(kind, **{kind: texts[0]}, id=id)
    assert joined(*pieces, end, again, again) == [
        whole | {"signature": "sig"},
        detail(kind, **{kind: texts[0] * 2}, id=id),
    ]


@pytest.mark.parametrize(
    "details",
    [
        (detail("summary", summary="a"), detail("encrypted", data="e", id="rs_1")),
        (detail("text", text="a", signature="s"), detail("text", text="b")),  # a signature ends it
        (detail("text", text="a"), detail("text", text="b", index=1)),
        (detail("text", text="a", id="1"), detail("text", text="b", id="2")),
        (detail("encrypted", data="a"), detail("encrypted", data="b")),
        (detail("server_tool_call", arguments="a"), detail("text", text="b")),
    ],
)
def test_others_are_details_of_their_own(details: tuple[dict[str, Any], ...]) -> None:
    assert joined(*details) == [*details]


def test_an_array_is_as_it_is() -> None:
    """What came whole was joined by its server."""
    whole = [detail("text", text="a"), detail("text", text="b")]
    assert json.loads(Gathered([encode({"reasoning_details": whole}).decode()]).whole())["reasoning_details"] == whole


@pytest.mark.parametrize("slice", ["", "[]", '{"reasoning_details":[1]}', '{"reasoning_details":{}}', '"x'])
def test_what_is_no_slice_says_nothing(slice: str) -> None:
    assert Gathered([slice]).members() == {}


# --- In answers ---------------------------------------------------------------------------------------------------


def test_members_of_a_message_do_not_end_the_thought_that_they_came_with() -> None:
    """An answer has them behind it, and unfolds into the same."""
    thought, proof = ThinkingDelta("a", "reasoning"), ThinkingRedacted("{}", "message")
    events: list[Event] = [Started(), proof, thought, proof, ThinkingDelta("b", "reasoning"), TextDelta("c")]
    events += [ThinkingRedacted("{1}", "call"), CALL, CallDelta(0, "{}"), Finished(Finish.TOOL_CALLS), Ended()]
    answer = collect(events)
    kept = RedactedThinking("{}", "message")
    assert answer.parts == (
        kept,
        Thinking("ab", None, "reasoning"),
        kept,
        Text("c"),
        RedactedThinking("{1}", "call"),
        ToolCall("call_1", "f", "{}"),
    )
    assert collect(unfold(answer)) == answer


@pytest.mark.parametrize("client", [anthropic_messages, openai_responses, google_gemini], ids=lambda one: one.name)
@pytest.mark.parametrize("stream", [True, False])
def test_another_formats_client_is_told_none_of_it(client: Format, stream: bool) -> None:
    """It is no block of Anthropic's, and ends none of the client's."""
    thought = [ThinkingDelta("a"), ThinkingRedacted('{"s3cret":1}', "message"), ThinkingDelta("b")]
    call = [ThinkingRedacted('{"s3cret":1}', "call"), CALL, CallDelta(0, "{}")]
    end = [Finished(Finish.TOOL_CALLS), Ended()]
    plain = [one for one in (*thought, *call) if type(one) is not ThinkingRedacted]

    def told(events: list[Event]) -> bytes:
        if not stream:
            return client.write_answer(collect(events), "t" * 32, "m", 0)
        return b"".join(map(client.writer("t" * 32, "m", 0).write, events))

    if stream or client is not anthropic_messages:
        assert told([Started(), *thought, *call, *end]) == told([Started(), *plain, *end])
    assert b"s3cret" not in told([Started(), *thought, *call, *end])


def test_a_chat_client_gets_them_beside_what_they_came_with() -> None:
    """Some clients show the text of either member, so both are in one chunk; a signature has one of its own."""
    writer = openai_chat.writer("t" * 32, "m", 0)
    text, sign = slices(detail("text", text="Hm"), detail("text", signature="s"))
    signed = ThinkingRedacted(f'{{"extra_content":{SIGNED}}}', "call")
    events: list[Event] = [ThinkingRedacted(text, "message"), ThinkingDelta("Hm", "reasoning"), TextDelta("Hi")]
    events += [ThinkingRedacted(sign, "message"), TextDelta(" there"), signed, CALL, CallDelta(0, "{}")]
    events += [ThinkingRedacted(sign, "message"), Finished(Finish.TOOL_CALLS), Ended()]
    chunks = b"".join(map(writer.write, events)).decode().split("\n\n")
    deltas = [json.loads(one[6:])["choices"][0]["delta"] for one in chunks if one.startswith("data: {")]
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning": "Hm", "reasoning_details": [detail("text", text="Hm")]},
        {"content": "Hi"},
        {"reasoning_details": [detail("text", signature="s")]},
        {"content": " there"},
        {"tool_calls": [{**call, "extra_content": json.loads(SIGNED)}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {"reasoning_details": [detail("text", signature="s")]},
        {},
    ]


# --- In requests --------------------------------------------------------------------------------------------------

TURN = {
    "role": "assistant",
    "content": "Hi",
    "reasoning_details": [detail("text", text="Hm", signature="s"), {"type": "unheard of", "x": [1e2]}],
    "extra_content": json.loads(SIGNED),
    "tool_calls": [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "f", "arguments": "{}"},
            **({"extra_content": {"google": {"thought_signature": f"s{number}"}}} if number != 2 else {}),
        }
        for number in (1, 2, 3)
    ],
}


def parsed(turn: dict[str, Any]) -> Request:
    return openai_chat.parse_request(native.open_body(json.dumps({"model": "m", "messages": [turn]}).encode()).members)


@pytest.mark.parametrize("more", [{}, {"reasoning": "Hm"}])
def test_a_chat_request_that_is_built_anew_has_them_where_they_were(more: dict[str, str]) -> None:
    """The text of a thought that they hold goes without its own member, as OpenRouter wants it once."""
    assert json.loads(openai_chat.build_request(parsed(TURN | more)))["messages"][0] == TURN


@pytest.mark.parametrize("build", [anthropic_messages, openai_responses, google_gemini], ids=lambda one: one.name)
def test_they_are_nothing_to_another_format(build: Format) -> None:
    body = build.build_request(parsed(TURN))
    assert b"thought_signature" not in body and b"reasoning.text" not in body and b"redacted" not in body


# --- Sealed -------------------------------------------------------------------------------------------------------


def sealed(events: list[Event], origin: Origin = ROUTER) -> list[Sealed]:
    sealer = Sealer(VAULT, origin, "ann")
    told = [one for event in events for one in sealer.take(event)]
    assert not any(type(one) is ThinkingRedacted for one in told)
    return [VAULT.open(one.item, "ann") for one in told if type(one) is ThinkingSealed]


def test_each_item_has_what_came_since_the_last_and_a_calls_own() -> None:
    one, two = slices(detail("text", text="a"), detail("text", signature="s"))
    events: list[Event] = [ThinkingRedacted(one, "message"), ThinkingDelta("a", "reasoning")]
    events += [ThinkingRedacted(two, "message"), TextDelta("Hi."), ThinkingRedacted("{1}", "call"), CALL]
    events += [ThinkingRedacted("{2}", "call"), CallStarted(1, "call_2", "f"), Finished(Finish.TOOL_CALLS)]
    first, second = sealed(events)
    joint = '{"reasoning_details":[{"type":"reasoning.text","format":"f","index":0,"text":"a","signature":"s"}]}'
    assert [one.part() for one in first.thoughts] == [
        RedactedThinking(joint, "message"),
        Thinking("a", None, "reasoning"),
        RedactedThinking("{1}", "call"),
    ]
    assert [(one.said, one.calls) for one in first.thoughts] == [(0, 0), (0, 0), (3, 0)]
    assert [one.part() for one in second.thoughts] == [RedactedThinking("{2}", "call")]
    assert second.calls == ("call_1", "call_2")


def test_what_slices_repeat_of_a_detail_does_not_count_as_its_size() -> None:
    """A long thought comes in ten thousands of slices, of which each says again whose it is."""
    piece = ThinkingRedacted(slices(detail("text", text="word ", padding="p" * 80))[0], "message")
    (found,) = sealed([*[piece] * 40_000, CALL])
    assert found.thoughts[0].data is not None and len(found.thoughts[0].data) > 200_000
    large = ThinkingRedacted(slices(detail("text", text="x" * (1 << 20)))[0], "message")
    assert sealed([*[large] * (MAX_SEALED_BYTES // (1 << 20) + 1), CALL]) == []


@pytest.mark.parametrize(
    ("target", "kept", "left_out"),
    [
        (ROUTER, True, False),
        (Origin(CHAT, ROUTER.home, "k2", ROUTER.model), True, False),
        (Origin(CHAT, ROUTER.home, "k1", "google/gemini-3-pro"), False, False),  # its text is for every chat
        (Origin(CHAT, home_of("https://elsewhere"), "k1", ROUTER.model), False, False),
        (Origin(MESSAGES, ROUTER.home, "k1", ROUTER.model), False, True),
    ],
)
def test_only_who_made_it_gets_it_back(target: Origin, kept: bool, left_out: bool) -> None:
    (proof,) = slices(detail("text", text="a", signature="s"))
    (made,) = sealed([ThinkingRedacted(proof, "message"), ThinkingDelta("a"), ThinkingRedacted("{}", "call"), CALL])
    item = VAULT.seal(made, "ann")
    assert item is not None
    turn = Message("assistant", (SealedThinking(item), ToolCall("call_1", "f", "{}")))
    request = Request(model="m", messages=(Message("user", "Hi"), turn))
    told = HandedAlong(request, VAULT, "ann").told_to(target)
    parts = told.request.messages[1].parts()
    assert [part.place for part in parts if type(part) is RedactedThinking] == (["message", "call"] if kept else [])
    assert any(type(part) is Thinking for part in parts) is not left_out and told.left_out == left_out
    silent = HandedAlong(request, VAULT, "ann").told_to(target, takes_text=False)
    assert silent.left_out == (not kept)


@pytest.mark.parametrize("client", [anthropic_messages, openai_responses, google_gemini], ids=lambda one: one.name)
@pytest.mark.parametrize("kind", [Router, Compat])
def test_any_cut_of_a_stream_seals_the_same(kind: type[Router | Compat], client: Format) -> None:
    """Also where deltas are moved past the events, and those with members of their server's among them are not."""
    for made in range(3):
        upstream = kind()
        upstream.minted = dict.fromkeys("abc"[:made])  # a `Router` thinks otherwise each time
        data = b"".join(upstream.stream('thought "1"\n思考 🧠', "Some text, cut.", "call_1", ""))

        def passed(size: int, data: bytes = data) -> list[Sealed]:
            items: list[Sealed] = []

            class Watched(Sealer):
                def take(self, event: Event) -> tuple[Event, ...]:
                    told = super().take(event)
                    items.extend(VAULT.open(one.item, "ann") for one in told if type(one) is ThinkingSealed)
                    return told

            sealer = Watched(VAULT, ROUTER, "ann")
            found = TranslatedStream(openai_chat.reader(), client.writer("t" * 32, "m", 0), {}, sealer)
            for start in range(0, len(data), size):
                found.feed(data[start : start + size])
            assert found.fault() is None
            return items

        (whole,) = passed(len(data))
        proofs = [json.loads(one.data) for one in whole.thoughts if one.data is not None]
        minted = upstream.minted["call_1"]
        assert proofs == [{"reasoning_details": minted} if kind is Router else {"extra_content": minted}]
        for size in (1, 7, 50, 333):
            assert passed(size) == [whole]
