"""What binds a Responses conversation to an account: found in requests and answers, and taken out where it may go."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from arbiter.errors import BadRequest
from arbiter.wire.bound_responses import (
    Keeper,
    conversation_of,
    id_mark,
    known_mark,
    marks,
    newest,
    nudged,
    referred,
    refers,
    without_reasoning,
)
from arbiter.wire.native import open_body

ME = "ann"
USER = {"role": "user", "content": "go on"}
CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "1", "output": "ok"}


def members(items: Any, **more: Any) -> dict[str, Raw]:
    return dict(open_body(json.dumps({"model": "m", "input": items, **more}).encode()).members)


def sealed(content: str, ident: str = "rs_1") -> dict[str, Any]:
    return {"type": "reasoning", "id": ident, "summary": [], "encrypted_content": content}


def event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


ITEMS = [
    {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA1"},
    {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
    {"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAA2"},
]
ANSWER = {"id": "resp_1", "status": "completed", "output": ITEMS}
STREAM = b"".join(
    [
        event("response.created", response={"id": "resp_1", "output": []}),
        *(event("response.output_item.added", item={**item, "encrypted_content": "gAAAA"}) for item in ITEMS),
        *(event("response.output_item.done", output_index=n, item=item) for n, item in enumerate(ITEMS)),
        event("response.completed", response=ANSWER),
    ]
)
EVERYTHING = Keeper(ME, items=True, stored=True)


@pytest.mark.parametrize(("items", "stored"), [(True, True), (True, False), (False, True)])
def test_a_stream_has_the_marks_of_its_answer(items: bool, stored: bool) -> None:
    """What is said when an item is only added may not be all of it."""
    keeper = Keeper(ME, items, stored)
    found = keeper.reader().feed(STREAM)
    assert sorted(found) == sorted(keeper.of_answer(json.dumps(ANSWER).encode()))
    # Of what is stored, each id is known to be somebody's, and to be this client's.
    assert len(found) == (2 if items else 0) + (2 * 4 if stored else 0)


def test_what_comes_back_has_the_mark_it_was_remembered_by() -> None:
    remembered = set(EVERYTHING.of_answer(json.dumps(ANSWER).encode()))
    asked = [ITEMS[0], ITEMS[2], {"type": "item_reference", "id": "msg_1"}]
    asked.append({"type": "reasoning", "id": "rs_1", "summary": []})
    found = marks(members(asked, previous_response_id="resp_1"), ME)
    assert len(found) == 5 and set(found) <= remembered
    # An id is no secret: for somebody else it is another one. What is encrypted is the same for all.
    others = marks(members(asked, previous_response_id="resp_1"), "ben")
    assert len(set(others) & remembered) == 2


def test_an_answer_is_known_from_its_first_event_on() -> None:
    """Who would cancel it, or ask for it after its stream broke, has its id by then."""
    reader = EVERYTHING.reader()
    first = reader.feed(event("response.created", response={"id": "resp_1", "output": []}))
    assert first == [known_mark("resp_1"), id_mark(ME, "resp_1")]
    assert reader.feed(event("response.completed", response={"id": "resp_1"})) == []


@pytest.mark.parametrize(("items", "stored"), [(True, True), (True, False), (False, True)])
def test_an_item_is_known_from_when_it_is_added_and_once(items: bool, stored: bool) -> None:
    """Its id by then, what it holds when it is done; each is told of once, however the events come in pieces."""
    reader = Keeper(ME, items, stored).reader()
    idents = [known_mark("rs_1"), id_mark(ME, "rs_1")] if stored else []
    added = event("response.output_item.added", item={**ITEMS[0], "encrypted_content": "gA"})
    assert reader.feed(added) == idents and reader.feed(added) == []
    done = reader.feed(event("response.output_item.done", item=ITEMS[0]))
    assert done == (Keeper(ME, True, False).of_answer(json.dumps({"output": ITEMS[:1]}).encode()) if items else [])
    # One that nobody announced is known when it is done.
    both = event("response.output_item.done", item=ITEMS[1]) + event("response.output_item.added", item={"id": 7})
    assert reader.feed(both) == ([known_mark("msg_1"), id_mark(ME, "msg_1")] if stored else [])
    assert reader.feed(event("response.output_text.delta", item_id="msg_2", delta='"response.output_item.')) == []


@pytest.mark.parametrize("written", ["conv_1", {"id": "conv_1"}])
def test_a_conversation_is_bound_as_an_answer_is(written: Any) -> None:
    asked = members([USER], conversation=written)
    assert conversation_of(asked) == "conv_1" and refers(asked)
    assert marks(asked, ME) == [id_mark(ME, "conv_1")] == [newest(asked, ME)]
    assert without_reasoning(asked, ME, {id_mark(ME, "conv_1")}) is None
    keeper = Keeper(ME, False, True, conversation_of(asked))
    assert id_mark(ME, "conv_1") in keeper.of_answer(b'{"id":"resp_1"}')


@pytest.mark.parametrize("written", [None, "", {}, {"id": ""}, {"id": 7}, [1], 7])
def test_no_conversation_is_none(written: Any) -> None:
    assert conversation_of(members([USER], conversation=written)) is None


def test_what_is_only_referred_to_is_found() -> None:
    """Not what is there whole: whoever shows what was encrypted has it."""
    items = [
        USER,
        sealed("gAAAA1", "rs_0"),
        {"type": "item_reference", "id": "msg_1"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {"type": "message", "id": "msg_2", "role": "assistant", "content": "hi"},
    ]
    found = referred(members(items, previous_response_id="resp_1", conversation="conv_1"))
    assert [(one.ident, one.param) for one in found] == [
        ("resp_1", "previous_response_id"),
        ("conv_1", "conversation"),
        ("msg_1", "input"),
        ("rs_1", "input"),
    ]
    assert referred(members([USER, sealed("gAAAA1", "rs_0")])) == []
    assert [one.ident for one in referred(members([{"type": "reasoning", "id": "rs_2"}]))] == ["rs_2"]


@pytest.mark.parametrize(
    "items", ["hello", 7, None, [], [USER, CALL, RESULT], [{"type": "reasoning", "summary": []}], [[1], "x", {"id": 1}]]
)
def test_what_is_bound_to_nobody_bears_no_mark(items: Any) -> None:
    assert marks(members(items), ME) == []
    assert newest(members(items), ME) is None
    assert not refers(members(items))


def test_the_newest_is_found_without_a_look_at_the_rest() -> None:
    asked = members([sealed("gAAAA1"), USER, sealed("gAAAA2"), {"role": "user", "content": '"encrypted_content":"no"'}])
    assert newest(asked, ME) == marks(asked, ME)[-1]
    assert newest(members([sealed("gAAAA1")], previous_response_id="resp_1"), ME) == id_mark(ME, "resp_1")
    assert refers(members(USER, previous_response_id="resp_1"))
    assert refers(members([{"type": "item_reference", "id": "x"}]))


def test_of_closed_turns_only_what_is_foreign_goes() -> None:
    """Every other byte is as it came."""
    text = b'{"model":"m","input":[ {"role":"user","content":"a"} ,%b , %b,{"role":"user","content":"\\u00e9"} ]}'
    ours, theirs = json.dumps(sealed("ours")).encode(), json.dumps(sealed("theirs")).encode()
    asked = open_body(text % (ours, theirs)).members
    foreign = {marks(asked, ME)[1]}
    kept = without_reasoning(asked, ME, foreign)
    assert kept is not None and kept.changed == ("$.input",)
    expected = b'[ {"role":"user","content":"a"} ,%b ,{"role":"user","content":"\\u00e9"} ]' % ours
    assert bytes(kept.members["input"]) == expected
    untouched = without_reasoning(asked, ME, set())
    assert untouched is not None and untouched.changed == () and untouched.members is asked


@pytest.mark.parametrize(
    ("items", "more"),
    [
        ([USER, sealed("theirs"), CALL, RESULT], {}),
        ([{"type": "compaction", "encrypted_content": "theirs"}, USER], {}),
        ([{"type": "item_reference", "id": "msg_1"}, USER], {}),
        ([USER], {"previous_response_id": "resp_1"}),
    ],
)
def test_what_may_not_go_stays_or_nothing_does(items: Any, more: dict[str, Any]) -> None:
    asked = members(items, **more)
    assert without_reasoning(asked, ME, set(marks(asked, ME))) is None


HIDDEN = [
    b'{"type":"item_reference","id":"theirs"}',
    b'{"id":"theirs"}',
    b'{"type":null,"id":"theirs"}',
    rb'{"type":"item\u005freference","id":"theirs"}',
    rb'{"\u0074ype":"item_reference","i\u0064":"theirs"}',
    b'{ "id" : "theirs" , "type" : "item_reference" }',
    rb'{"type":"reasonin\u0067","summary":[],"id":"theirs"}',
    b'{"type":"reasoning","id":"theirs","summary":[],"encrypted_content":null}',
    b'{"type":"compaction","encrypted_content":"mine"},{"type":"reasoning","id":"theirs","summary":[]}',
    rb'{"role":"user","content":"\ud800"},{"id":"theirs"}',
    b'7,{"id":"theirs"}',
    b"{}," * 100_001 + b'{"id":"theirs"}',
]


@pytest.mark.parametrize("items", HIDDEN)
def test_a_reference_is_seen_however_it_is_spelled(items: bytes) -> None:
    """OpenAI reads it as any JSON, and its type need not be said: another's id must not pass because it hides."""
    (found,) = referred({"input": Raw(b"[%b]" % items)})
    assert (found.what, found.ident, found.param) == ("Item", "theirs", "input")


def test_no_more_items_are_sent_than_are_looked_through() -> None:
    with pytest.raises(BadRequest, match="more items"):
        referred({"input": Raw(b"[%b{}]" % (b"{}," * 200_000))})


@pytest.mark.parametrize("item", [USER, CALL, {"role": "user", "id": "msg_1", "content": "x"}, sealed("mine")])
def test_what_is_whole_refers_to_nothing(item: Any) -> None:
    assert referred(members([item])) == [] and not refers(members([item]))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("hi", [{"role": "user", "content": "hi"}, {"role": "user", "content": "Now."}]),
        ([], [{"role": "user", "content": "Now."}]),
        ([USER, CALL, RESULT], [USER, CALL, RESULT, {"role": "user", "content": "Now."}]),
    ],
)
def test_a_nudge_is_one_more_message_at_the_end(items: Any, expected: Any) -> None:
    """SPEC 4.7."""
    assert json.loads(bytes(nudged(members(items), "Now.")["input"])) == expected


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b'{"output":7}', b'{"output":[7]}', b"\xff", b"[" * 100_000])
def test_what_is_no_answer_bears_no_mark(body: bytes) -> None:
    assert EVERYTHING.of_answer(body) == []
    assert EVERYTHING.reader().feed(b"data: " + body + b' "response.completed"\n\n') == []
