"""Titles as models and people write them: short, on one line, and made of what can be seen."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.sessions import naming
from arbiter.sessions.naming import SUMMARY_CHARS, TITLE_CHARS, Name, read, tidy


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (
            "Fix the flaky login test\nA test fails at random.",
            Name("Fix the flaky login test", "A test fails at random."),
        ),
        ("Only a title", Name("Only a title")),
        ("\n\n  Late  \n\n\nA\nB  \n", Name("Late", "A B")),
        ('**Title:** "Moving to PostgreSQL"\n**Summary:** It moves.', Name("Moving to PostgreSQL", "It moves.")),
        ("# A heading\n> quoted", Name("A heading", "quoted")),
        ("1. Titles", Name("1. Titles")),
        ("Here is a title:\nReal one\nAnd more", Name("Real one", "And more")),
        ("Warum: ein Test", Name("Warum: ein Test")),
        ("```json\nIn a fence\n```", Name("In a fence")),
        ("<think>First,\nI wonder</think>\nThought out", Name("Thought out")),
        ("<think>never over", None),
        ('{"title": "From JSON", "summary": "In two\\nlines"}', Name("From JSON", "In two lines")),
        ('{"isNewTopic": false, "title": null}', None),
        ('["a list"]', Name('["a list"]')),
        ("\u300c\u65e5\u672c\u8a9e\u306e\u984c\u300d", Name("\u300c\u65e5\u672c\u8a9e\u306e\u984c\u300d")),
        ("a\x00b\x1b[31mc\u202ed\u200be", Name("ab[31mcde")),
        ("tabs\tand\u2028separators\x85here", Name("tabs and", "separators here")),
        ("<script>alert(1)</script>", Name("<script>alert(1)</script>")),
        ("", None),
        (" \n\t\n...\n***\n\u200b", None),
    ],
)
def test_an_answer_is_read_whatever_it_looks_like(answer, name):
    assert read(answer) == name


def test_what_is_too_long_is_cut_between_words_where_there_are_any():
    name = read("word " * 100 + "\n" + "x" * 5000)
    assert name is not None and name.title.endswith("word\u2026") and len(name.title) <= TITLE_CHARS
    assert name.summary is not None and len(name.summary) == SUMMARY_CHARS
    assert read("a" * TITLE_CHARS) == Name("a" * TITLE_CHARS)
    assert read("{" * 50_000) is None


@given(st.text() | st.text(alphabet='\n\r\t `#*:{}[]"\u202e\ud800aB', max_size=200))
def test_no_answer_gives_anything_but_a_short_line(answer):
    """Nor does one of JSON; and what was read once reads as itself."""
    for text in (answer, json.dumps({"title": answer, "summary": answer})):
        name = read(text)
        if name is not None:
            for line, limit in ((name.title, TITLE_CHARS), (name.summary or "-", SUMMARY_CHARS)):
                assert 0 < len(line) <= limit and line.isprintable() and line == line.strip()
                line.encode()


@given(st.text())
def test_a_persons_title_is_taken_as_it_is_but_for_what_nobody_sees(text):
    title = tidy(text)
    assert title == tidy(title) and (not title or title.isprintable())


def test_a_person_may_write_what_a_model_would_be_corrected_for():
    assert tidy("  **Title:**  #1 ") == "**Title:** #1" and tidy("\u200b\n") == ""


def test_the_question_holds_the_words_it_is_about():
    assert naming.question(["a"]) == "It began with:\n\na"
    assert naming.question(["a", "b"]).endswith("The latest was:\n\nb")
