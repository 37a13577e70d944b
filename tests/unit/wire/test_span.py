"""When a JSON text that arrives in slices is whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.wire.span import Span

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(value=st.lists(values) | st.dictionaries(st.text(), values) | st.text(), cuts=st.sets(st.integers(0, 200)))
def test_it_is_whole_at_its_last_character_and_no_sooner(value: object, cuts: set[int]) -> None:
    """However it is cut: inside of escapes, of strings full of brackets, between all of them."""
    text = json.dumps(value)
    span = Span()
    places = sorted(cut for cut in cuts if cut < len(text))
    for start, end in zip([0, *places], [*places, len(text) - 1], strict=True):
        span.feed(text[start:end])
        assert not span.whole
    span.feed(text[-1])
    assert span.whole


@pytest.mark.parametrize("text", ["", " ", "1", "true", "{", '"', '"\\', '{"a":"}"', "[[]"])
def test_what_may_go_on_is_not_whole(text: str) -> None:
    span = Span()
    span.feed(text)
    assert not span.whole


@pytest.mark.parametrize("text", ['{"é":"}"}', "[[]]", '"\\\\"'])
def test_what_comes_behind_is_told_apart(text: str) -> None:
    """And changes nothing."""
    span = Span()
    assert span.feed(text[:-1]) == text[:-1] and not span.whole
    assert span.feed(text[-1] + ' é{"') == text[-1] and span.whole
    assert span.feed("}") == "" and span.whole


@pytest.mark.parametrize("text", ["5", "true", " null", "}"])
def test_what_is_none_of_these_is_never_whole(text: str) -> None:
    span = Span()
    assert span.feed(text) == text and span.feed("{}") == "{}" and not span.whole
    assert span.opener == text.strip()[0]
