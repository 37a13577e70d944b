"""Clients get what the vendors say that they send: every answer and every event, against their OpenAPI documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.errors import ArbiterError, Unavailable
from arbiter.fold import collect
from arbiter.model import (
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finish,
    Finished,
    RefusalDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.wire.format import FORMATS, UPSTREAMS
from tests.fakes.vectors import CASES, read_by
from tests.fakes.vendor_schemas import fault
from tests.unit.wire.neutral import CHAT, GEMINI, MESSAGES, RESPONSES, streams

CLIENTS = pytest.mark.parametrize("client", list(FORMATS))

TOLERATED = re.compile(
    r"'model_context_window_exceeded' is not one of"
    r"|tool_calls\[\d+\]\.type: 'custom' is not one of"
    r"|\.error\.code: '(context_length_exceeded|insufficient_quota)' is not one of"
    r"|functionCall: Additional properties are not allowed \('id' was unexpected\)"
)
"""What the documents have against their own vendor: all newer models say the first, and there it is a beta only; a chat
streams the second, Codex is written for the third, and Google's SDKs send and read the fourth."""

ANSWERS = {
    CHAT: ("openai", "CreateChatCompletionResponse"),
    MESSAGES: ("anthropic", "Message"),
    RESPONSES: ("openai", "Response"),
    GEMINI: ("gemini", "GenerateContentResponse"),
}
LOGPROBS = b'{"content":[{"token":"a","logprob":-0.1,"bytes":[97],"top_logprobs":[]}],"refusal":null}'
CALL = [CallStarted(0, "c0", "f"), CallDelta(0, '{"a":'), CallDelta(0, "1}")]
SAID: dict[str, list[Event]] = {
    "text": [TextDelta("a"), TextDelta("b"), Finished(Finish.STOP)],
    "nothing": [Finished(Finish.STOP)],
    "text and usage in detail": [
        TextDelta("a"),
        Finished(Finish.LENGTH),
        UsageReported(Usage(1, 2, 3, 1, 2, 5, 4, 11)),
    ],
    "usage without detail": [TextDelta("a"), Finished(Finish.STOP), UsageReported(Usage(input=1, output=2))],
    "log probabilities": [TextDelta("a", LOGPROBS), TextDelta("b", LOGPROBS), Finished(Finish.STOP)],
    "a call": [*CALL, Finished(Finish.TOOL_CALLS)],
    "a call with free text": [CallStarted(0, "c0", "f", True), CallDelta(0, "***"), Finished(Finish.TOOL_CALLS)],
    "a call without arguments": [CallStarted(0, "c0", "f"), Finished(Finish.TOOL_CALLS)],
    "text, then calls one after the other": [
        TextDelta("a"),
        *CALL,
        CallStarted(1, "c1", "g"),
        CallDelta(1, "{}"),
        Finished(Finish.TOOL_CALLS),
    ],
    "calls at once": [
        CallStarted(0, "c0", "f"),
        CallStarted(1, "c1", "g"),
        CallDelta(0, '{"a":'),
        CallDelta(1, "{}"),
        CallDelta(0, "1}"),
        Finished(Finish.TOOL_CALLS),
    ],
    "signed thinking, then text": [
        ThinkingDelta("a"),
        ThinkingSigned("s"),
        TextDelta("b"),
        Finished(Finish.STOP),
    ],
    "thinking of an unsigned kind, then a call": [
        ThinkingDelta("a", "reasoning_content"),
        *CALL,
        Finished(Finish.TOOL_CALLS),
    ],
    "redacted thinking": [ThinkingRedacted("AAAA"), TextDelta("b"), Finished(Finish.STOP)],
    "a refusal": [RefusalDelta("no"), Finished(Finish.STOP)],
    "a stop sequence": [TextDelta("a"), Finished(Finish.STOP_SEQUENCE, "END")],
    **{f"finish {finish}": [TextDelta("a"), Finished(finish)] for finish in Finish if finish is not Finish.TOOL_CALLS},
}


def whole(said: list[Event]) -> list[Event]:
    return [Started("x", "m", Usage(input=1)), *said, Ended()]


def faults_of_stream(client: str, events: list[Event]) -> list[str]:
    """Return what the vendor's document has against each event that a client gets, with the event."""
    writer = FORMATS[client].writer("T", "m", 1700000000)
    written = b"".join(writer.write(event) for event in events).decode()
    bodies = [json.loads(line[6:]) for line in written.split("\n") if line.startswith("data: {")]
    assert bodies
    # Google's document names what is inside of its errors, not what is around it.
    inner = [body["error"] if client == GEMINI and "error" in body else body for body in bodies]
    return [
        f"{found} in {body}"
        for one, body in zip(inner, bodies, strict=True)
        if (found := judged(*judge(client, body), {key: v for key, v in one.items() if key != "status" or one is body}))
    ]


def judged(vendor: str, root: str, body: Any) -> str | None:
    found = fault(vendor, root, body)
    return None if found is None or TOLERATED.search(found) else found


def judge(client: str, body: dict[str, Any]) -> tuple[str, str]:
    if client == GEMINI:
        return "gemini", "Status" if "error" in body else "GenerateContentResponse"
    if client == RESPONSES:
        return "openai", "ResponseStreamEvent"
    if client == CHAT:
        return "openai", "ErrorResponse" if "error" in body else "CreateChatCompletionStreamResponse"
    return "anthropic", "ErrorResponse" if body["type"] == "error" else "MessageStreamEvent"


def fault_of_answer(client: str, events: list[Event]) -> str | None:
    body = FORMATS[client].write_answer(collect(events), "T", "m", 1700000000)
    return judged(*ANSWERS[client], json.loads(body))


@CLIENTS
@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_events_are_the_vendors(said: list[Event], client: str) -> None:
    assert faults_of_stream(client, whole(said)) == []


@CLIENTS
@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_answers_are_the_vendors(said: list[Event], client: str) -> None:
    assert fault_of_answer(client, whole(said)) is None


@CLIENTS
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_so_are_those_of_real_servers_translated(case: Path, client: str) -> None:
    reader = UPSTREAMS[case.parent.name].reader()
    events = reader.feed(read_by(case)) + reader.finish()
    assert faults_of_stream(client, events) == []
    try:
        collect(events)
    except ArbiterError:
        return  # a stream that failed has no answer
    assert fault_of_answer(client, events) is None


@CLIENTS
def test_a_failure_is_the_vendors_error(client: str) -> None:
    assert faults_of_stream(client, [Started("x", "m"), TextDelta("a"), Failed(Unavailable("busy"))]) == []


@settings(max_examples=50, deadline=None)
@given(events=st.sampled_from([CHAT, MESSAGES]).flatmap(streams))
@CLIENTS
def test_whatever_an_upstream_says_is_written_as_the_vendor_would(client: str, events: list[Event]) -> None:
    assert faults_of_stream(client, events) == []
    assert fault_of_answer(client, events) is None
