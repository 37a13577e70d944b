"""What is bound to an account: found by its mark wherever it passes, and taken out where that is allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from arbiter._speedups import sse
from arbiter.wire.bound import SignatureReader, Stripped, marks, marks_of_answer, nudged, without_thinking

VECTORS = Path(__file__).parents[2] / "vectors" / "anthropic-messages"

Message = dict[str, Any]


def mark(signature: str) -> bytes:
    return xxhash.xxh3_128_digest(signature.encode())


def members(*messages: Any, raw: bytes | None = None) -> dict[str, Raw]:
    return {"model": Raw(b'"m"'), "messages": Raw(raw if raw is not None else json.dumps(messages).encode())}


def messages_of(members: Mapping[str, Raw]) -> Any:
    return json.loads(bytes(members["messages"]))


def user(content: Any = "go on") -> Message:
    return {"role": "user", "content": content}


def results(*ids: str) -> Message:
    return user([{"type": "tool_result", "tool_use_id": id, "content": "done"} for id in ids])


def assistant(*blocks: Any) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def thinking(signature: Any, text: str = "hm") -> Message:
    return {"type": "thinking", "thinking": text, "signature": signature}


def redacted(data: Any) -> Message:
    return {"type": "redacted_thinking", "data": data}


TEXT: Message = {"type": "text", "text": 'I was "thinking" of a "signature"'}
CALL: Message = {"type": "tool_use", "id": "t1", "name": "sign", "input": {"type": "thinking", "signature": "not one"}}


# --- marks ------------------------------------------------------------------------------------------------------------


def test_every_signed_block_has_a_mark_in_order() -> None:
    """Thinking by its signature, what was redacted by its data; what tools were called with is neither."""
    asked = members(
        user(), assistant(thinking("A"), redacted("B"), TEXT, CALL), results("t1"), assistant(redacted("C"), TEXT)
    )
    assert marks(asked) == [mark("A"), mark("B"), mark("C")]
    assert all(len(one) == 16 for one in marks(asked))


def test_a_mark_is_of_the_text_however_it_is_spelled() -> None:
    """Some encoders write `+` and `/` of base64 as escapes, and members in any order."""
    spelled = rb'[ { "content" : [ {"signature" : "a\u002bb\/c==" , "thinking":"", "type":"thi\u006eking"} , 3 ] } ]'
    assert marks(members(raw=spelled)) == [mark("a+b/c==")]


@pytest.mark.parametrize(
    "messages",
    [
        [], [user(), assistant(TEXT, CALL)], [assistant(thinking(""), redacted(""), thinking(None), redacted(3))],
        [assistant({"type": "thinking", "thinking": "no signature"})], [user("thinking")],
        "thinking", [["thinking", "thinking"]], [{"content": {"type": "thinking", "signature": "A"}}],
        [assistant([thinking("A")])], [assistant({"type": "text", "text": "x", "of": thinking("A")})],
    ],
)  # fmt: skip
def test_what_is_not_signed_has_no_mark(messages: Any) -> None:
    """Text, empty signatures, and shapes that are none of the format's."""
    asked = members(raw=json.dumps(messages).encode())
    assert marks(asked) == []
    assert without_thinking(asked, {mark("A"), mark("")}) == Stripped(asked, ())


def test_a_request_without_messages_has_none() -> None:
    """The upstream will say what is wrong with it."""
    assert marks({}) == []
    assert without_thinking({}, {mark("A")}) == Stripped({}, ())
    assert nudged({}, "go on") == {}


def test_half_a_character_elsewhere_costs_no_mark() -> None:
    """Agents cut text in the middle of an emoji; the decoder that we use refuses that."""
    half = rb'[{"role":"user","content":"\ud83d"},{"role":"assistant","content":[{"type":"thinking",'
    half += (
        rb'"thinking":"\ud83d","signature":"A"},{"type":"text","text":"\ud83d"}]},{"role":"user","content":"\ud83d"}]'
    )
    asked = members(raw=half)
    assert marks(asked) == [mark("A")]
    stripped = without_thinking(asked, {mark("A")})
    assert stripped is not None
    left = half.replace(rb'{"type":"thinking","thinking":"\ud83d","signature":"A"},', b"")
    assert bytes(stripped.members["messages"]) == left


# --- marks of answers -------------------------------------------------------------------------------------------------


def test_a_unary_answer_bears_the_marks_that_come_back_in_the_next_request() -> None:
    """They are remembered from the answer, and looked up from the request."""
    content = [thinking("Er+/="), redacted("B"), TEXT, CALL]
    body = json.dumps({"id": "msg_1", "type": "message", "content": content, "usage": {"input_tokens": 3}}).encode()
    assert marks_of_answer(body) == marks(members(user(), assistant(*content))) == [mark("Er+/="), mark("B")]
    for other in (b"", b"thinking", b'{"content":"thinking"}', b'["thinking"]', b'{"content":[{"type":"thinking"}]}'):
        assert marks_of_answer(other) == []


def event(kind: str, **said: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **said})}\n\n".encode()


def slice_of(signature: Any, index: int = 0) -> bytes:
    return event("content_block_delta", index=index, delta={"type": "signature_delta", "signature": signature})


def test_a_streamed_signature_has_the_mark_of_the_whole() -> None:
    """It comes in one delta from the vendor. In several it has the marks of what either kind of client keeps of it."""
    reader = SignatureReader()
    assert reader.feed(event("content_block_start", index=0, content_block=thinking(""))) == []
    assert reader.feed(slice_of("A")) == [mark("A")]
    assert reader.feed(event("content_block_stop", index=0)) == []
    assert reader.feed(event("content_block_start", index=1, content_block=redacted("B"))) == [mark("B")]
    assert reader.feed(event("content_block_start", index=2, content_block=thinking("C"))) == [mark("C")]
    found = reader.feed(slice_of("D", 3)) + reader.feed(slice_of("E", 3) + slice_of("F", 3))
    assert {mark("DEF"), mark("F")} <= set(found)
    assert reader.feed(slice_of("G", 4)) == [mark("G")], "another block is another signature"


def test_text_that_speaks_of_signatures_is_none() -> None:
    """Nor is what is no event of the format at all."""
    reader = SignatureReader()
    for said in (
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": '"signature": "thinking"'}),
        event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"signature":"A"}'}),
        b'data: {"delta":"signature","x":"signature"}\n\n',
        b'data: {"signature"\n\n',
        b'data: \xff"signature"\n\n',
        b'data: {"delta":{"signature":' + b"[" * 5000 + b"\n\n",
        b'data: {"delta":{"signature":3},"index":[]}\n\n',
        b'"signature"',
    ):
        assert reader.feed(said) == []


@pytest.mark.parametrize("case", ["thinking-text-tool", "omitted-and-redacted-thinking", "thinking-without-signature"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_real_stream_has_the_marks_of_its_blocks(case: str, end: bytes) -> None:
    """Real servers' streams, event by event and at once."""
    stream = (VECTORS / case / "upstream.sse").read_bytes().replace(b"\r\n", b"\n").replace(b"\n", end)
    reader, signed = sse.SSEReader(), []
    reader.open(stream)
    while (one := reader.next()) is not None:
        said = json.loads(one[1]) if one[1].startswith(b"{") else {}
        block = said.get("content_block") or said.get("delta") or {}
        signed += [word for word in (block.get("signature"), block.get("data")) if word]
    expected = [mark(word) for word in signed]
    assert SignatureReader().feed(stream) == expected
    one_by_one = SignatureReader()
    assert [m for part in stream.split(end * 2) for m in one_by_one.feed(part + end * 2)] == expected
    assert bool(expected) == (case != "thinking-without-signature")


# --- without thinking -------------------------------------------------------------------------------------------------


def stripped(*messages: Any, foreign: str) -> Any:
    found = without_thinking(members(*messages), set(map(mark, foreign)))
    if found is None:
        return None
    assert found.changed in ((), ("$.messages",))
    assert (found.changed == ()) == (messages_of(found.members) == list(messages))
    return messages_of(found.members)


def test_foreign_thinking_of_closed_turns_goes_and_all_else_stays() -> None:
    """The model's own words, its calls and their results are the conversation."""
    closed = [user("one"), assistant(thinking("A"), redacted("B"), TEXT, CALL), results("t1"), assistant(TEXT)]
    left = [user("one"), assistant(TEXT, CALL), results("t1"), assistant(TEXT), user("two")]
    assert stripped(*closed, user("two"), foreign="A") == left
    assert stripped(*closed, user("two"), foreign="B") == left, (
        "what is left of a message's thinking would not be first"
    )
    assert stripped(*closed, user("two"), foreign="X") == [*closed, user("two")]
    own = [assistant(thinking("C"), CALL), results("t1")]
    assert stripped(*closed, user("two"), *own, foreign="AB") == [*left, *own], "an open loop's own thinking stays"


@pytest.mark.parametrize(
    "open_turn",
    [
        [assistant(thinking("A"), CALL), results("t1")],
        [assistant(thinking("A"), CALL), user([*results("t1")["content"], TEXT])],
        [assistant(thinking("A"), CALL), results("t1"), assistant(CALL), results("t1")],
        [assistant(thinking("A"), {"type": "server_tool_use"}), user([{"type": "web_search_tool_result"}])],
        [assistant(thinking("A"), TEXT)],
        [assistant(thinking("A"), CALL), {"role": "system", "content": "x"}, results("t1")],
        [assistant(thinking("A"))],
    ],
)
def test_foreign_thinking_of_an_open_tool_loop_may_not_go(open_turn: list[Message]) -> None:
    """Anthropic wants it before the calls whose results it gets; a reminder beside a result closes nothing."""
    assert stripped(user(), *open_turn, foreign="A") is None
    assert stripped(user(), *open_turn, foreign="B") == [user(), *open_turn]
    assert stripped(user(), *open_turn, user(), foreign="A") is not None, "the user has spoken"


def test_a_message_of_nothing_but_thinking_goes_as_a_whole() -> None:
    """An empty one is refused; two messages of a user in a row are not, and nothing is made up to stand between."""
    assert stripped(user("one"), assistant(thinking("A")), user("two"), foreign="A") == [user("one"), user("two")]
    assert stripped(assistant(redacted("A")), user("two"), foreign="A") == [user("two")]


def test_bytes_around_what_goes_stay_as_they_came() -> None:
    """Blanks, the order of members, escapes, numbers that no double holds, members of one name."""
    closed = (
        b'[ {"content":[ {"type":"text","text":"\\u0041"} ,{"type":"thinking","signature":"A"}, 1e999 ],"role" :"a"} ,'
    )
    end = b'\n{"n":12345678901234567890.0, "role":"user","content":"x","n":2} ]'
    found = without_thinking(members(raw=closed + end), {mark("A")})
    assert found is not None
    assert bytes(found.members["messages"]) == closed.replace(b',{"type":"thinking","signature":"A"}', b"") + end
    assert found.members["model"] == Raw(b'"m"')


def test_too_much_to_look_through_bears_no_mark() -> None:
    """Nobody else may wait for it; it goes where the conversation was, or nowhere."""
    many = b"[" + b"0," * 250_000 + json.dumps(assistant(thinking("A"))).encode() + b"]"
    assert marks(members(raw=many)) == []
    assert without_thinking(members(raw=many), {mark("A")}) is None


BLOCKS = (
    st.sampled_from("ABCD").map(thinking)
    | st.sampled_from("ABCD").map(redacted)
    | st.sampled_from([TEXT, CALL, {"type": "tool_result", "tool_use_id": "t1", "content": [TEXT]}])
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant", "system"]),
        st.lists(BLOCKS, max_size=4) | st.sampled_from(["", "thinking", None, 3]),
    ),
    max_size=8,
)
JSON = st.recursive(
    st.none() | st.integers() | st.text() | st.sampled_from(["thinking", "redacted_thinking", "user", "\ud83d"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "signature", "data"]) | st.text(), inner)
    ),
    max_leaves=20,
)


@given(MESSAGES, st.sets(st.sampled_from("ABCD")), st.sampled_from([None, 1]))
def test_what_is_left_has_no_foreign_mark_and_lost_nothing_else(
    messages: list[Message], foreign: set[str], indent: int | None
) -> None:
    """Whatever the conversation looks like, for any set of foreign blocks."""
    asked = members(raw=json.dumps(messages, indent=indent).encode())
    signed = [block.get("signature", block.get("data")) for block in _thoughts(messages)]
    assert marks(asked) == [mark(one) for one in signed]
    found = without_thinking(asked, set(map(mark, foreign)))
    if found is None:
        assert foreign & set(signed)
        return
    assert not set(marks(found.members)) & set(map(mark, foreign))
    left = messages_of(found.members)
    assert _spoken(left) == _spoken(messages)
    assert without_thinking(found.members, set(map(mark, foreign))) == Stripped(found.members, ())
    if not foreign & set(signed):
        assert found == Stripped(asked, ())


def _blocks(messages: list[Message]) -> list[Message]:
    return [block for one in messages if isinstance(one["content"], list) for block in one["content"]]


def _thoughts(messages: list[Message]) -> list[Message]:
    return [block for block in _blocks(messages) if block["type"] in ("thinking", "redacted_thinking")]


def _spoken(messages: list[Message]) -> list[Message]:
    return [block for block in _blocks(messages) if block["type"] not in ("thinking", "redacted_thinking")]


@given(JSON, st.binary(max_size=4))
def test_nothing_that_is_asked_raises(value: Any, tail: bytes) -> None:
    """Any JSON, and what is none."""
    for raw in (json.dumps(value).encode(), json.dumps([value]).encode() + tail, b"[" + tail + b'thinking"', tail):
        asked = members(raw=raw)
        marks(asked)
        without_thinking(asked, {mark("A")})
        nudged(asked, "go on")
        marks_of_answer(raw)
        SignatureReader().feed(b"data: " + raw + b"\n\n")


@pytest.mark.parametrize("nest", [b"[", b'{"content":[', b'{"type":"thinking","signature":"A","content":['])
def test_deep_nesting_does_not_raise(nest: bytes) -> None:
    """The body's depth is bounded elsewhere; here nobody recurses."""
    raw = b"[" + nest * 20_000
    assert marks(members(raw=raw)) == []
    assert without_thinking(members(raw=raw), {mark("A")}) is not None
    assert marks_of_answer(nest * 20_000 + b'thinking"') == []
    assert SignatureReader().feed(b"data: " + nest * 20_000 + b'"signature"\n\n') == []


# --- the nudge --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [b"[]", b" [ ] ", b'[{"role":"user","content":"\\ud83d"}]', b'[ {"a":1e999 } \n]\n'])
def test_a_nudge_is_one_more_message_of_the_users(raw: bytes) -> None:
    """All bytes before it are as they came, so that the provider's cache still knows them."""
    asked = members(raw=raw)
    found = bytes(nudged(asked, 'say "it"')["messages"])
    before = raw.rstrip()[:-1]
    added = b'{"role":"user","content":"say \\"it\\""}'
    comma = b"," if before.strip() != b"[" else b""
    assert found == before + comma + added + raw[len(raw.rstrip()) - 1 :]
    assert json.loads(found)[-1] == {"role": "user", "content": 'say "it"'}
    assert bytes(asked["messages"]) == raw


@pytest.mark.parametrize("raw", [b'"text"', b"{}", b"null", b"["])
def test_what_is_no_array_gets_no_nudge(raw: bytes) -> None:
    """The upstream has refused it already."""
    asked = members(raw=raw)
    assert nudged(asked, "go on") == asked
