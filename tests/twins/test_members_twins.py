"""A body opened in one look: both twins, against each other and against the decoder that reads what they pass on."""

from __future__ import annotations

import json
import random

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import nesting as compiled
from arbiter._speedups.py import nesting as reference
from arbiter.wire import native

TWINS = (reference, compiled)
DEPTH, WIDTH = 200, 1024
decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@pytest.fixture(params=TWINS, ids=["py", "c"])
def nesting(request):
    return request.param


def opened(nesting, text: bytes, depth: int = DEPTH, width: int = WIDTH) -> list[tuple[str, bytes]] | None:
    found = nesting.members(text, depth, width)
    return None if found is None else [(name, text[start:stop]) for name, start, stop in found]


def raws_of(found: list[tuple[str, bytes]]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(value) for name, value in found}


@pytest.mark.parametrize(
    ("text", "members"),
    [
        (b"{}", []),
        (b" \n{ \t} \r\n", []),
        (b'{"a":1}', [("a", b"1")]),
        (b' {"a" : -0.5e+3 , "b":[ ] }\n', [("a", b"-0.5e+3"), ("b", b"[ ]")]),
        (b'{"a":1,"b":2,"a":{"a":[3]}}', [("a", b"1"), ("b", b"2"), ("a", b'{"a":[3]}')]),
        (b'{"":"}","\xc3\xa4":"\\"],{"}', [("", b'"}"'), ("\xe4", b'"\\"],{"')]),
        (b'{"a":"\\ud83d\\ude00\\u00e4\\\\","b":[true,false,null,{"c":[]},"x"]}',
         [("a", b'"\\ud83d\\ude00\\u00e4\\\\"'), ("b", b'[true,false,null,{"c":[]},"x"]')]),
    ],
)  # fmt: skip
def test_members_are_told_in_order_with_the_bytes_that_they_came_in(nesting, text, members):
    assert opened(nesting, text) == members
    assert nesting.raws(text, DEPTH, WIDTH) == raws_of(members)
    assert list(nesting.raws(text, DEPTH, WIDTH)) == list(raws_of(members))


@pytest.mark.parametrize(
    "text",
    [
        b"", b" ", b"[]", b'"a"', b"1", b"null", b"\xef\xbb\xbf{}", b"{}{}", b"{} x", b"{", b'{"a"', b'{"a":',
        b'{"a":1',
        b'{"a":1,}', b'{,}', b'{"a" 1}', b"{a:1}", b"{1:1}", b'{"a":[1,]}', b'{"a":[,1]}', b'{"a":[1 2]}', b'{"a":[}]}',
        b'{"a":[1}', b'{"a":{]}', b'{"a":01}', b'{"a":-}', b'{"a":1.}', b'{"a":.1}', b'{"a":1e}', b'{"a":+1}',
        b'{"a":1e+}', b'{"a":NaN}', b'{"a":nul}', b'{"a":True}', b'{"a":\x0b1}', b'{"a":"\n"}', b'{"a":"\x00"}',
        b'{"a":"\x1f and more than sixteen bytes behind it"}', b'{"a":"\\x"}', b'{"a":"\\u12g4"}', b'{"a":"\\u123"}',
        b'{"a":"\\"}', b'{"a":"\xff"}', b'{"a":"\xc3"}', b'{"\xc3":1}', b'{"a":"\xed\xa0\x80"}', b'{"a\n":1}',
        b'{"a":1}\x00',
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_not_opened(nesting, text):
    assert opened(nesting, text) is None
    assert nesting.raws(text, DEPTH, WIDTH) is None


@pytest.mark.parametrize(
    "text",
    [b'{"a":"\\ud83d"}', b'{"a":"\\ude00"}', b'{"a":"\\ud83d\\ud83d\\ude00"}', b'{"a":"\\ud83dx"}', b'{"\\u0061":1}'],
)  # fmt: skip
def test_what_is_seldom_is_left_to_a_slower_look(nesting, text):
    """It is JSON, and `open_body` takes it all the same."""
    assert opened(nesting, text) is None
    assert json.loads(text)
    assert list(native.open_body(text[:-1] + b',"model":"m"}').members)


@pytest.mark.parametrize("before", range(40))
@pytest.mark.parametrize("what", [b'\\"', b"\\\\", b"\\u0041", b"\\ud83d\\ude00", b"\\n\\t", b"\xf0\x9f\x98\x80"])
def test_a_string_is_read_alike_wherever_sixteen_bytes_end(nesting, before, what):
    for behind in (0, 1, 17):
        value = b'"' + b"x" * before + what + b"y" * behind + b'"'
        assert opened(nesting, b'{"a":%b,"b":%b}' % (value, value)) == [("a", value), ("b", value)]
        for bad in (b"\n", b"\\q", b"\\ud83d", b"\xff"):
            assert opened(nesting, b'{"a":%b%b"}' % (value[:-1], bad)) is None


def test_bounds_are_those_that_are_asked_for(nesting):
    deep = b'{"a":%b%b}' % (b"[" * 9, b"]" * 9)
    assert opened(nesting, deep, 10) == [("a", deep[5:-1])]
    assert opened(nesting, deep, 9) is None
    wide = b"{%b}" % b",".join(b'"%d":[0,0]' % n for n in range(12))
    assert len(opened(nesting, wide, DEPTH, 12) or ()) == 12
    assert opened(nesting, wide, DEPTH, 11) is None


def test_bounds_of_its_own_hold_whatever_is_asked_for(nesting):
    deepest, widest = nesting.DEEPEST, nesting.WIDEST
    for depth, is_opened in ((deepest, True), (deepest + 1, False)):
        text = b'{"a":%b%b}' % (b"[" * (depth - 1), b"]" * (depth - 1))
        assert (opened(nesting, text, 1 << 40, 1 << 40) is not None) == is_opened
    for count, is_opened in ((widest, True), (widest + 1, False)):
        text = b"{%b}" % b",".join(b'"%d":0' % n for n in range(count))
        assert (opened(nesting, text, 1 << 40, 1 << 40) is not None) == is_opened


pieces = st.sampled_from([
    b"{", b"}", b"[", b"]", b",", b":", b'"', b'"a"', b'"a":', b'"b":1', b"1", b"-0.1e2", b"0", b"true", b"null", b" ",
    b"\\", b"\\\\", b'\\"', b"\\u", b"\\ud83d", b"\\ude00", b"\\u0041", b"\n", b"\x1f", b"\xc3", b"\xa4", b"\xc3\xa4",
    b"x",
    b"sixteen and more bytes",
])  # fmt: skip
texts = st.lists(pieces, max_size=24).map(b"".join)


@settings(deadline=None, max_examples=600)
@given(texts)
@example(b'"a":"\\')
@example(b'"a":[{"b":"\\ud83d\\ude00"},1')
def test_nothing_passes_that_the_decoder_refuses(inside):
    """Also nothing is read otherwise: the same members, with the same bytes, of those that come again the last one."""
    for text in (b"{%b}" % inside, b'{"a":"%b"}' % inside, b'{"a":[%b]}' % inside):
        found = opened(compiled, text)
        assert found == opened(reference, text)
        if found is not None:
            assert dict(found) == {name: bytes(raw) for name, raw in decode(text).items()}
            assert list(dict(found)) == list(decode(text))


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))


@settings(deadline=None)
@given(st.dictionaries(st.text(), values, max_size=6), st.booleans(), st.sampled_from([None, 2]))
def test_whatever_an_encoder_writes_is_opened(value, is_ascii, indent):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "surrogatepass")
    found = opened(compiled, text)
    assert found == opened(reference, text)
    if b"\\" not in text and reference.not_utf8(text) < 0:
        assert found is not None and dict(found) == {name: bytes(raw) for name, raw in decode(text).items()}


def test_a_damaged_byte_is_judged_as_the_decoder_does():
    """Each byte of a request in turn is replaced by others: whatever is opened, the decoder reads alike."""
    text = json.dumps(
        {"model": "m", "n": -1.5e3, "messages": [{"role": "user", "content": 'a "\\ \n \U0001f600 b' * 3}]}
    )
    body, random_bytes = text.encode(), random.Random(7)
    opens = 0
    for place in range(len(body)):
        for other in (*b'"\\{}[],: 0x', random_bytes.randrange(256)):
            damaged = body[:place] + bytes([other]) + body[place + 1 :]
            found = opened(compiled, damaged)
            assert found == opened(reference, damaged)
            assert compiled.raws(damaged, DEPTH, WIDTH) == (None if found is None else raws_of(found))
            opens += found is not None
            if found is not None:
                assert dict(found) == {name: bytes(raw) for name, raw in decode(damaged).items()}
    assert opens > 100


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (b'["one."]', True),
        (b'["two.x","', True),
        (b'"one.', True),
        (b'["x one.","on"]', False),
        (b'["\\"one."]', False),
        (b'["one","tw', False),
        (b'one."', False),
        (b"", False),
    ],
)
def test_a_word_is_found_where_a_string_begins_with_it(nesting, text, holds):
    for before in range(70):
        for behind in (0, 1, 80):
            whole = b"-" * before + text + b"-" * behind
            assert nesting.begins(whole, b"one.", b"two.") == holds
            assert nesting.begins(memoryview(whole), b"two.", b"one.") == holds


def test_a_word_of_the_second_kind_is_not_looked_for_under_the_first(nesting):
    assert not nesting.begins(b'["two."]' * 20, b"one.", b"one.")
    assert nesting.begins(b'["tw","t"]' * 20 + b'"two."', b"one.", b"two.")


@pytest.mark.parametrize(
    ("text", "count"), [(b"", 0), (b"\\", 0), (b"\\u", 1), (b"u\\u\\u\\", 2), (b"\\\\u", 1), (b"\\U\\ u", 0)]
)
def test_escapes_by_number_are_counted_wherever_sixteen_bytes_end(nesting, text, count):
    for before in range(34):
        whole = b"x" * before + text + b"y" * before
        assert nesting.units(whole) == nesting.units(memoryview(whole)) == count


@pytest.mark.parametrize("size", [0, 1, 4093, 4094, 4095, 4096, 70_000])
def test_long_values_and_short_ones_have_the_bytes_that_came(nesting, size):
    value = b'"%b"' % (b"x" * size)
    found = nesting.raws(b'{"a":%b,"b":1,"c":%b}' % (value, value), DEPTH, WIDTH)
    assert {name: bytes(raw) for name, raw in found.items()} == {"a": value, "b": b"1", "c": value}


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (b'[{"a":[1,2]},"x,]",3]', b'[{"a":[1,2]},"x,]"'),
        (b'[{"a":[1,2]},"x,]"]', b'[{"a":[1,2]},"x,]"'),
        (b'[{"a":[1,2]}]', None),
        (b"[]", None),
        (b"[1,2", None),
        (b'[1,"2', None),
        (b'[1,"2,3]', None),
        (b'{"a":1,"b":2}', None),
        (b'"[1,2]"', None),
        (b" [1,2]", None),
        (b"", None),
    ],
)
def test_an_array_begins_with_its_first_entries(nesting, text, begins):
    for data in (text, memoryview(text), msgspec.Raw(text)):
        assert nesting.beginning(data, 2, 1000) == begins
        assert nesting.beginning(data, 2, len(begins) if begins else 0) is None
        assert nesting.beginning(data, 0, 1000) is None
    if begins is not None:
        assert nesting.beginning(text, 2, len(begins) + 1) == begins


@settings(deadline=None, max_examples=300)
@given(texts, st.integers(0, 4), st.integers(0, 40))
def test_where_an_array_begins_the_twins_agree(inside, turns, most):
    for text in (b"[%b]" % inside, b"[%b" % inside, inside):
        found = compiled.beginning(text, turns, most)
        assert found == reference.beginning(text, turns, most)
        ends = reference.cuts(text[:most], turns) if turns and text[:1] == b"[" else []
        assert found == (text[: ends[-1]] if len(ends) == turns and ends else None)


@given(
    st.dictionaries(st.text("aé𝄞_", max_size=5), st.one_of(st.none(), st.text(max_size=5), st.integers()), min_size=1)
)
def test_the_length_of_an_object_is_that_of_its_writing(value):
    """Whatever stood between its members before."""
    members = decode(json.dumps(value, indent=1, ensure_ascii=False).encode())
    written = msgspec.json.encode(members)
    assert [twin.length(members) for twin in TWINS] == [len(written)] * 2
