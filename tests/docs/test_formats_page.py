"""docs/formats.md says what the code does: every neutral value has a row, and the tables are the code's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from arbiter import model
from arbiter.errors import ErrorClass
from arbiter.wire import (
    anthropic_messages,
    chat_answer,
    messages_answer,
    openai_chat,
    openai_responses,
    responses_answer,
)

PAGE = Path("docs/formats.md").read_text()


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the first table under a heading, by the word in the first cell."""
    section = PAGE.split(f"{heading}\n", 1)[1]
    table = section[section.index("|---") :].split("\n\n", 1)[0].split("\n")[1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {cell[0].strip("`"): [one.strip("`") for one in cell[1:]] for cell in cells}


def test_every_member_of_a_request_has_a_row() -> None:
    """SPEC 2.2: a field missing from the table is a bug."""
    assert list(rows("## Requests")) == [field.name for field in msgspec.structs.fields(model.Request)]


def test_every_part_and_every_event_has_a_row() -> None:
    parts = set(rows("### Messages and parts"))
    declared = {part.__name__ for part in get_args(model.Part)} | {"Tool", "OpaqueTool", "CacheMark"}
    assert {name for name in parts if not name.startswith("role ")} == declared
    assert list(rows("## Answers and streams")) == [event.__name__ for event in get_args(model.Event)]


def test_finish_reasons_are_the_codes() -> None:
    assert rows("### Finish reasons") == {
        finish.value: [
            chat_answer.FINISH_OUT[finish],
            messages_answer.FINISH_OUT[finish],
            responses_answer.REASONS.get(finish, "completed"),
        ]
        for finish in model.Finish
    }


def test_usage_names_every_count() -> None:
    assert list(rows("### Usage")) == [field.name for field in msgspec.structs.fields(model.Usage)]


@pytest.mark.parametrize("code", ErrorClass, ids=str)
def test_errors_are_the_codes(code: ErrorClass) -> None:
    """One spelling per wire format, one table in code and docs (SPEC 4.8)."""
    assert rows("## Errors")[code.value] == [
        openai_chat.ERROR_TYPES[code],
        openai_chat.UPSTREAM_CODES.get(code, code.value),
        anthropic_messages.ERROR_TYPES[code],
    ]


def test_no_error_is_listed_that_does_not_exist() -> None:
    assert list(rows("## Errors")) == [code.value for code in ErrorClass]


def test_the_eight_names_are_on_the_page() -> None:
    names = re.findall(r"(?:parse|build|write)_\w+|reader|writer", PAGE.split("eight names:")[1].split("##")[0])
    assert len(names) == 8
    for module in (openai_chat, anthropic_messages, openai_responses):
        assert [name for name in names if not callable(getattr(module, name))] == []
