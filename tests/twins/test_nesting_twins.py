"""Depth without decoding: both twins, against each other and against a decoder."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import nesting as compiled
from arbiter._speedups.py import nesting as reference


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
    assert not nesting.is_deeper(text, depth)
    assert depth == 0 or nesting.is_deeper(text, depth - 1)


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
        assert not twin.is_deeper(text, depth)
        assert depth == 0 or twin.is_deeper(text, depth - 1)


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b"x"])).map(b"".join), st.integers(0, 6))
def test_the_twins_agree_on_what_is_no_json_too(text, limit):
    assert reference.is_deeper(text, limit) == compiled.is_deeper(text, limit)
