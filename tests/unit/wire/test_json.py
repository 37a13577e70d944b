"""Faults of a caller's body: named by place, by the type that belongs there and the type that was found, never by value
(A92)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.errors import BadRequest
from arbiter.wire import anthropic_messages as messages
from arbiter.wire import openai_chat as chat
from arbiter.wire import openai_responses as responses
from arbiter.wire.format import Format
from arbiter.wire.json import around, check_text, decode, encode, encode_sliced

SECRET = "Sesame-1234"


def blamed(wire: Format, **members: bytes) -> BadRequest:
    body = {"model": b'"m"', ("input" if wire is responses else "messages"): b"[]", **members}
    with pytest.raises(BadRequest) as caught:
        wire.parse_request({name: msgspec.Raw(raw) for name, raw in body.items()})
    return caught.value


@pytest.mark.parametrize("wire", [chat, messages, responses], ids=["chat", "messages", "responses"])
@pytest.mark.parametrize(
    ("member", "raw", "place", "said"),
    [
        (
            "messages",
            b'[{"role":"user","content":[{"type":"text","text":5}]}]',
            "messages[0].content[0].text",
            "got `int`",
        ),
        ("messages", b'[{"role":"Sesame-1234","content":"x"}]', "messages[0].role", "expected"),
        ("messages", b'[{"role":"user","content":{"Sesame-1234":1}}]', "messages[0].content", "got `object`"),
        ("messages", b'["Sesame-1234"]', "messages[0]", "Expected `object`, got `str`"),
        ("stream", b'"Sesame-1234"', "stream", "Expected `bool | null`, got `str`"),
        (
            "messages",
            b'[{"role":"user","content":"Sesame-1234 \\ud83d"}]',
            "messages[0].content",
            "half of a surrogate",
        ),
        ("tools", b'[{"x":1},{"a":{"b":["\\udc00"]}}]', "tools[1].a.b[0]", "half of a surrogate"),
        (
            "messages",
            b'[{"role":"user","content":[{"type":"text","text":"\xff"}]}]',
            "messages[0].content[0].text",
            "UTF-8",
        ),
        ("metadata", b'{"a":"b\\q"}', "metadata.a", "not valid JSON (invalid escape"),
    ],
)
def test_a_fault_is_named_by_its_place(wire: Format, member: str, raw: bytes, place: str, said: str) -> None:
    if wire is responses:
        member, place = member.replace("messages", "input"), place.replace("messages", "input")
    error = blamed(wire, **{member: raw})
    assert error.param == place
    assert str(error).startswith(f"{place}: ") and said in str(error)
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (
            b'[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":5}}]}]',
            "messages[0].tool_calls[0].function.name",
        ),
        (
            b'[{"role":"user","content":[{"type":"image_url","image_url":{"url":1}}]}]',
            "messages[0].content[0].image_url.url",
        ),
        (
            b'[{"role":"user","content":[{"type":"file","file":{"file_data":[]}}]}]',
            "messages[0].content[0].file.file_data",
        ),
        (b'[{"role":"assistant","function_call":{"name":5}}]', "messages[0].function_call.name"),
    ],
)
def test_the_inside_of_chat_parts_is_named_too(raw: bytes, place: str) -> None:
    assert blamed(chat, messages=raw).param == place


def test_the_inside_of_blocks_is_named_too() -> None:
    raw = b'[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":7}]}]}]'
    assert blamed(messages, messages=raw).param == "messages[0].content[0].content[0].type"


def test_response_formats_are_named() -> None:
    for shape in (b'{"type":"xml"}', b'{"type":"json_schema"}'):
        assert blamed(chat, response_format=shape).param == "response_format.type"
    schema = b'{"type":"json_schema","json_schema":{"name":"x","schema":"Sesame-1234"}}'
    error = blamed(chat, response_format=schema)
    assert error.param == "response_format.json_schema.schema" and SECRET not in str(error)


def test_a_fault_of_the_whole_names_the_body() -> None:
    with pytest.raises(BadRequest, match=r"^the request body: not valid JSON") as caught:
        decode(msgspec.json.Decoder(), b"nope")
    assert caught.value.param is None
    with pytest.raises(BadRequest, match=r"^a\[0\]: nested too deeply"):
        decode(msgspec.json.Decoder(), b"[" * 10_000 + b"]" * 10_000, "a[0].")


def test_pairs_of_surrogates_and_their_look_alikes_are_text() -> None:
    """An emoji as two escapes is whole; an escaped backslash begins no escape."""
    for fine in (rb'["\ud83c\udf88"]', rb'["\\ud83c"]', rb'["\ufffd"]'):
        check_text(fine)


def test_the_place_is_told_of_a_body_of_any_size() -> None:
    """Behind millions of characters, escapes or values: nothing is done for each of them."""
    for long in (b"a" * 20_000_000, b"\\n" * 1_000_000, b'","' * 500_000):
        with pytest.raises(BadRequest, match="half of a surrogate pair") as caught:
            check_text(b'{"a":["%b\\ud83d"]}' % long)
        assert caught.value.param == f"a[{long.count(b',')}]"


keys = st.text(st.sampled_from('ab"\\{}[],: '), min_size=1, max_size=3)
values = st.recursive(
    st.integers() | keys,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(before=st.lists(values, max_size=2), inside=st.lists(keys, max_size=3), after=values)
def test_the_place_is_right_in_any_body(before: list[object], inside: list[str], after: object) -> None:
    """Whatever stands around it, braces and quotes inside of strings too."""
    raw = b'"\\ud800"'
    path = ""
    for key in reversed(inside):
        raw = b"{%b:%b,%b:%b,%b:0}" % (encode("0" + key), encode(after), encode(key), raw, encode("1" + key))
        path = f".{encode(key)[1:-1].decode()}{path}"
    body = b"[%b]" % b",".join([*map(encode, before), raw, encode(after)])
    with pytest.raises(BadRequest) as caught:
        check_text(body)
    assert caught.value.param == f"[{len(before)}]{path}"


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200])
def test_what_is_encoded_in_slices_is_the_same(count: int) -> None:
    body = {"a": "\0", "b": [{"n": n, "text": "\0x"} for n in range(count)], "c": {"b": [1]}}
    assert encode_sliced(body, "b") == encode(body)
    before, after = around(body, "b")
    assert before + encode(body["b"]) + after == encode(body)
