"""Of a conversation's words: the user's first and latest, however long the rest is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from arbiter.sessions import excerpt


def of(messages: Any, member: str = "messages") -> list[str]:
    return excerpt.of({member: Raw(json.dumps(messages).encode())})


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


RESULT = user([{"type": "tool_result", "tool_use_id": "t", "content": "not the user's words"}])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([user("hello")], ["hello"]),
        (
            [{"role": "system", "content": "be nice"}, user("hello"), said("yes"), user("and now?")],
            ["hello", "and now?"],
        ),
        ([user("first"), said("a"), user("second"), said("b"), RESULT, said("c"), RESULT], ["first", "second"]),
        ([user("same"), said("a"), user("same")], ["same"]),
        ([RESULT, user([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}])], ["a\nb"]),
        ([user("<system-reminder>be quick</system-reminder>really mine")], ["really mine"]),
        ([user("<system-reminder>only this</system-reminder>"), RESULT], []),
        ([said("nobody asked")], []),
        ([], []),
        ({"role": "user"}, []),
        ([1, None, "x", {"role": "user", "content": {"a": 1}}, user("here")], ["here"]),
    ],
)
def test_the_users_first_and_latest_words_and_nobody_elses(messages, words):
    assert of(messages) == words


def test_a_request_without_messages_has_no_words():
    assert excerpt.of({}) == [] and of("a bare string", "input") == ["a bare string"]


def test_long_words_are_cut():
    first, latest = of([user("a" * 9000), said("x"), user("b" * 9000)])
    assert (len(first), len(latest)) == (excerpt.CHARS, excerpt.CHARS)


def test_a_long_silence_of_the_user_ends_the_look_and_a_long_history_is_not_looked_through():
    """SPEC 7.1: it must cost a turn nothing that anybody notices."""
    far = [user("first"), said("a"), user("far back"), *[RESULT] * excerpt.LOOKED_TURNS]
    assert of(far) == ["first"] and of(far[:-1]) == ["first", "far back"]
    assert of([user("first"), said("x" * excerpt.LOOKED_BYTES), user("latest")]) == ["first"]
