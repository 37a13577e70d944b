"""Real servers' streams through every client format: `tests/vectors/<format>/<case>/`.

Each case holds the request, the upstream's bytes, what a client of each format gets, the usage, and where it came from.
A provider's new quirk arrives as a new case (`tests.fakes.vectors` says how).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from arbiter.errors import ArbiterError
from arbiter.fold import collect
from arbiter.model import Answer, Refusal, Target, Text, ToolCall
from arbiter.wire.format import FORMATS, UPSTREAMS
from tests.fakes.vectors import CASES, read, usage, written
from tests.unit.wire import neutral

EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")


def test_there_are_cases_for_every_format() -> None:
    assert {case.parent.name for case in CASES} == set(UPSTREAMS)
    assert [case for case in CASES if not (case / "source.txt").read_text().strip()] == []


@EACH
@pytest.mark.parametrize("client", list(FORMATS))
def test_a_client_of_each_format_gets_its_bytes(case: Path, client: str) -> None:
    assert written(case, client).decode() == (case / f"client.{client}.sse").read_text()


@EACH
def test_any_cut_gives_the_same_events(case: Path) -> None:
    whole = [str(event) for event in read(case)]
    for piece in (1, 2, 3, 7, 64):
        assert [str(event) for event in read(case, piece)] == whole


@EACH
def test_usage_is_normalised(case: Path) -> None:
    """SPEC 9.1: input without what was cached, from either vendor's counts."""
    assert usage(case) == json.loads((case / "usage.json").read_text())


NO_OTHERS = {True: ("anthropic-messages", "google-gemini"), False: ("google-gemini",)}
"""Whose clients get other calls: who has no tools that take free text, and who has no slices, so that what was cut off
is no object any more."""


def said(answer: Answer) -> str:
    """Its words; Anthropic's refusals are text."""
    return "".join(part.text for part in answer.parts if isinstance(part, Text | Refusal))


def calls(answer: Answer) -> list[ToolCall]:
    """Its calls. No client of Anthropic's has tools that take free text."""
    return [part for part in answer.parts if isinstance(part, ToolCall)]


@EACH
def test_what_a_client_gets_says_the_same(case: Path) -> None:
    """Each client's bytes, read again, fold into the upstream's answer: its words, its calls, its reason."""
    try:
        want = collect(read(case))
    except ArbiterError as error:
        want, failed = None, str(error)
    for client, wire in FORMATS.items():
        reader = wire.reader()
        events = reader.feed((case / f"client.{client}.sse").read_bytes()) + reader.finish()
        if want is None:
            with pytest.raises(ArbiterError, match=re.escape(failed)):
                collect(events)
            continue
        got = collect(events)
        assert said(got) == said(want) and got.finish in (want.finish, "stop")
        assert calls(got) == calls(want) or client in NO_OTHERS[all(one.is_free for one in calls(want))]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.parent.name in FORMATS], ids=lambda case: f"{case.parent.name}/{case.name}"
)
def test_the_request_is_understood_and_says_the_same_upstream(case: Path) -> None:
    wire = FORMATS[case.parent.name]
    members = msgspec.json.decode((case / "request.json").read_bytes(), type=dict[str, msgspec.Raw])
    request = wire.parse_request(members)
    built = neutral.members(wire.name, wire.build_request(request, Target(prompt_cache="client")), request)
    assert wire.parse_request(built) == request
