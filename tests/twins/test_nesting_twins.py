"""Structure without decoding: both twins, against each other and against a decoder."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import nesting as compiled
from arbiter._speedups.py import nesting as reference

WIDE = 1 << 40


@pytest.fixture(params=[reference, compiled], ids=["py", "c"])
def nesting(request):
    return request.param


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        (b"1", 0),
        (b"[]", 1),
        (b'{"a":[{}]}', 3),
        (b"[[],[],[]]", 2),
        (b'["[[[[\\"[[[["]', 1),
        (b'["\\\\",[]]', 2),  # an escaped backslash does not escape the quote behind it
        (b'{"[[":{"]]":[]}}', 3),
    ],
)
def test_depth_is_counted_outside_of_strings(nesting, text, depth):
    assert nesting.fault(text, depth, WIDE) == nesting.FINE
    assert depth == 0 or nesting.fault(text, depth - 1, WIDE) == nesting.DEEP


@pytest.mark.parametrize(
    ("text", "width"),
    [
        (b'{"a":1,"b":2}', 2),
        (b'{"a,,":[1,2,3,4],"b":{"c":1,"d":2,"e":3}}', 2),
        (b"[1,2,3]", 3),
        (b'["\\",",","]', 2),
    ],
)
def test_width_is_that_of_the_outermost_level(nesting, text, width):
    assert nesting.fault(text, 200, width) == nesting.FINE
    assert nesting.fault(text, 200, width - 1) == nesting.WIDE


def test_commas_are_counted_at_every_level_and_in_no_string(nesting):
    text = b'{"a,":[1,2,{"b":"\\",,","c":[]}],"d":","}'
    assert nesting.commas(text) == nesting.commas(memoryview(text)) == 4


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        (b'{"a_b":1}', True),
        (b'[{"x":[{"a__b_c" \n:1}]}]', True),
        (b'{"ab":"a_b","c":["a_b"]}', False),
        (b'{"_a":1,"a_":2,"A_b":3,"a_B":4,"a_1":5,"a b_c":6,"\\u0061_b":7,"a-b_c":8}', False),
        (b'{"a":"{\\"a_b\\":1}","b":", ","c":"{"}', False),
        (b'{"a_b', False),
        (b'"a_b"', False),
        (b'"a_b":', True),
        (b"", False),
    ],
)
def test_names_with_an_underscore_are_those_of_members(nesting, text, is_so):
    assert nesting.underscored(text) == is_so


def test_of_two_faults_the_first_is_told(nesting):
    assert nesting.fault(b"[1,2,[[[]]]]", 2, 2) == nesting.WIDE
    assert nesting.fault(b"[[[[]]],2,3]", 2, 2) == nesting.DEEP


leaves = st.text(alphabet='[]{}"\\a,:') | st.integers()
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def measured(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(measured, inner), default=0)


@settings(deadline=None)
@given(values)
def test_any_json_has_the_depth_it_decodes_to(value):
    text, depth = json.dumps(value).encode(), measured(value)
    for twin in (reference, compiled):
        assert twin.fault(text, depth, WIDE) == twin.FINE
        assert depth == 0 or twin.fault(text, depth - 1, WIDE) == twin.DEEP


@settings(deadline=None)
@given(st.lists(values, min_size=1), st.sampled_from(["", " ", "\n\t"]))
def test_cuts_part_an_array_into_its_items(items, blank):
    text = (blank + "[" + ",".join(blank + json.dumps(item) + blank for item in items) + "]" + blank).encode()
    for twin in (reference, compiled):
        ends = twin.cuts(text, 1000)
        starts = [len(blank) + 1, *(end + 1 for end in ends)]
        assert [json.loads(text[a:b]) for a, b in zip(starts, ends, strict=False)] == items
        assert twin.cuts(text, 1) == ends[:1]
        assert twin.fault(text, 1000, len(items)) == twin.FINE
        assert len(items) == 1 or twin.fault(text, 1000, len(items) - 1) == twin.WIDE


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b",", b"x"])).map(b"".join), st.integers(0, 6),
       st.integers(1, 6))  # fmt: skip
def test_the_twins_agree_on_what_is_no_json_too(text, depth, width):
    assert reference.fault(text, depth, width) == compiled.fault(text, depth, width)
    assert reference.cuts(text, width) == compiled.cuts(text, width)
    assert reference.commas(text) == compiled.commas(text)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([b'"', b'"a_b"', b"a_b", b"_", b"a", b"\\", b":", b" ", b",", b"{", b"x" * 70])).map(
        b"".join
    )
)
def test_the_twins_agree_on_names_with_an_underscore(text):
    assert reference.underscored(text) == compiled.underscored(text)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([b"x", b"xxxxxxxxxxxxxxx", b'\\"', b"\\\\", b"\\", b'"', b","]), max_size=40).map(b"".join)
)
def test_strings_longer_than_one_look_end_where_they_end(text):
    """Sixteen bytes of a string are looked at in one go; what a backslash escapes may be the first of the next ones."""
    for opened in (b'["' + text, b"[" + text):
        assert reference.cuts(opened, 100) == compiled.cuts(opened, 100)
        assert reference.commas(opened) == compiled.commas(opened)


# --- slices -----------------------------------------------------------------------------------------------------------


def followed(nesting, text, cuts):
    """Where a text ends that arrives in slices, and each slice's state."""
    places, state, told = [0, *sorted(cuts), len(text)], 0, []
    for start, stop in itertools.pairwise(places):
        end, state = nesting.follow(text[start:stop], state)
        told.append((end, state))
        if end >= 0:
            return start + end, told
    return -1, told


@settings(deadline=None)
@given(st.lists(values) | st.dictionaries(st.text(), values) | st.text(), st.sets(st.integers(0, 60)))
def test_a_text_ends_where_its_value_does_however_it_is_cut(value, cuts):
    text = json.dumps(value).encode()
    cuts = {cut for cut in cuts if cut <= len(text)}
    for twin in (reference, compiled):
        assert followed(twin, text + b' {"', cuts)[0] == len(text)
        assert followed(twin, text[:-1], cuts - {len(text)})[0] == -1


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b",", b"x"])).map(b"".join),
    st.sets(st.integers(0, 20)),
)
def test_the_twins_follow_what_is_no_json_alike(text, cuts):
    """State and all, slice by slice."""
    cuts = {cut for cut in cuts if cut <= len(text)}
    assert followed(reference, text, cuts) == followed(compiled, text, cuts)


@pytest.mark.parametrize(
    "text", [b"[" * 300_000, b"[" + b"[]" * 150_000, b'{"a":"' + b"\\n" * 300_000, b"[" + b'"",' * 100_000]
)
def test_following_keeps_nothing_of_the_text(nesting, text):
    """Neither in the state nor on a stack: a slice of millions of brackets or escapes is like any other."""
    end, state = nesting.follow(text, 0)
    assert end == -1 and state < 4 * len(text) + 4


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a":1,"b":[{"c":0},{"d":[5,!', [b"b", 1, b"d", 1]),
        (b'{"a":{"x":1},"b!', []),
        (b'{"a":[],"b"!', []),
        (b'{"a":[],"b":!', [b"b"]),
        (b'[{"a,]":"}{",!', [0]),
        (b'{"\\"\xc3":{"":[[!', [b'\\"\xc3', b"", 0, 0]),
        (b"]]}[,,!", [2]),
        (b"{:!", []),
        (b'"a":!', []),
        (b"", []),
    ],
)
def test_a_place_is_told_by_what_leads_to_it(nesting, text, expected):
    assert nesting.path(text, text.find(b"!") if b"!" in text else 0) == expected
    assert nesting.path(text.replace(b"!", b',"z":"]'), len(text) - 1) == expected


def test_a_place_is_told_as_far_as_anybody_reads(nesting):
    """Deeper levels and longer names are cut."""
    deep = b'{"a":[' * 200 + b"0," + b"]}" * 30 + b","
    assert nesting.path(deep, 1201) == [b"a", 0] * 128
    assert nesting.path(deep, len(deep)) == [b"a", 0] * 128
    assert nesting.path(deep + b"]}" * 100 + b",", len(deep) + 201) == [b"a", 0] * 69 + [b"a", 1]
    assert nesting.path(b'{"%b":0' % (b"a" * 1000), 1004) == [b"a" * 256]


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b'"', b'"a"', b'"b":', b"\\", b",", b":", b"x"]), max_size=40),
       st.integers(0, 60))  # fmt: skip
def test_the_twins_agree_on_places(text, at):
    data = b"".join(text)
    assert reference.path(data, at) == compiled.path(data, at)


# --- UTF-8 ------------------------------------------------------------------------------------------------------------

SEQUENCES = [b"a", "é".encode(), "…".encode(), "🌍".encode(), b"\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80",
             b"\xf4\x90\x80\x80", b"\xf5", b"\xe2\x82", b"\xf0\x9f\x8c", b"\xff", b"a" * 31, b"a" * 64]  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(SEQUENCES), max_size=8).map(b"".join) | st.binary(max_size=80))
@example(b"")
def test_malformed_utf8_is_found_where_python_finds_it(text):
    try:
        text.decode()
        expected = -1
    except UnicodeDecodeError as error:
        expected = error.start
    assert reference.not_utf8(text) == compiled.not_utf8(text) == expected


# --- halves of surrogate pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rb'"\ud83c\udf0d"', rb'"\ud83c\udf0d"'),
        (rb'"\ud83c"', rb'"\ufffd"'),
        (rb'"\udf0d\ud83c"', rb'"\ufffd\ufffd"'),
        (rb'"\ud83c\ud83c\udf0d"', rb'"\ufffd\ud83c\udf0d"'),
        (rb'"\\ud83c"', rb'"\\ud83c"'),
        (rb'"\\\uD83C\n"', rb'"\\\ufffd\n"'),
        (rb'"\ud83c\u0041"', rb'"\ufffd\u0041"'),
        (rb'"\ud83', rb'"\ud83'),
    ],
)
def test_only_halves_of_pairs_are_replaced(nesting, text, expected):
    assert nesting.whole(text) == expected
    if text == expected:
        assert nesting.whole(text) is text
        assert nesting.half(text) == -1
    else:
        at = nesting.half(text)
        assert (text[:at], text[at : at + 3].lower()) == (expected[:at], b"\\ud") and text[at:] != expected[at:]


@pytest.mark.parametrize("at", range(40))
def test_half_a_pair_is_found_wherever_it_stands(nesting, at):
    """Sixteen bytes are looked at in one go, and an escape may lie across two of those looks, or at the very end."""
    for tail in range(20):
        text = b"\\n" * (at // 2) + b"x" * (at % 2) + b"\\udc00" + b"y" * tail
        assert nesting.whole(text) == text.replace(b"\\udc00", b"\\ufffd")
        assert nesting.half(text) == at


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(["\\", "u", "d8", "DC", "3c", "0d", "00", "\\ud83c", "\\uDF0D", "x"])).map("".join))
def test_the_twins_agree_on_halves(text):
    data = text.encode()
    masked = compiled.whole(data)
    assert masked == reference.whole(data)
    assert compiled.half(data) == reference.half(data)
    assert len(masked) == len(data)
    if re.fullmatch(r"(\\u[0-9a-fA-F]{4}|[^\\])*", text):
        json.loads(b'"%b"' % masked).encode()  # which half a pair would not let us do
