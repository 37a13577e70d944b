"""Whole answers and streams from tests/vectors/usage: the row, and what a client of either format is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arbiter._speedups import reduce
from arbiter.accounting import facts
from arbiter.fold import collect, unfold
from arbiter.model import Event, Started, Usage
from arbiter.wire.format import FORMATS
from arbiter.wire.translated import Heard

VECTORS = sorted((Path(__file__).parents[2] / "vectors" / "usage").glob("*.json"))
TOLD = [(path, vector) for path in VECTORS if "usage" not in (vector := json.loads(path.read_bytes()))]
STREAMS = [pytest.param(vector, id=path.stem) for path, vector in TOLD if "events" in vector]
ANSWERS = [pytest.param(vector, id=path.stem) for path, vector in TOLD if "answer" in vector]


TAPS = {
    "openai-chat": reduce.ChatTap,
    "anthropic-messages": reduce.MessagesTap,
    "openai-responses": reduce.ResponsesTap,
    "google-gemini": reduce.GeminiTap,
}
READ = {
    "openai-chat": facts.of_chat_answer,
    "anthropic-messages": facts.of_messages_answer,
    "openai-responses": facts.of_responses_answer,
    "google-gemini": facts.of_gemini_answer,
}


def wired(vector: dict[str, Any]) -> bytes:
    """The stream as it stands on the wire."""
    is_chat = vector["format"] == "openai-chat"
    blocks = [
        (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n"
        for event in vector["events"]
    ]
    return "".join([*blocks, "data: [DONE]\n\n" if is_chat else ""]).encode()


def stated(usage: Usage | None) -> dict[str, Any]:
    return {k: v for k, v in msgspec.structs.asdict(usage or Usage()).items() if v is not None}


def heard(events: list[Event], *, is_cut: bool) -> Usage | None:
    """What a translated stream says, as the row takes it."""
    found = Heard()
    for event in events:
        found.take(event)
    return found.counted(is_cut=is_cut)


def test_there_are_vectors() -> None:
    """An empty directory would pass every test below."""
    assert len(STREAMS) >= 10 and len(ANSWERS) >= 2


@pytest.mark.parametrize("vector", STREAMS)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_a_stream_states_the_same_to_the_tap_and_to_the_reader(vector: dict[str, Any], piece: int) -> None:
    """Passed on or translated, cut anywhere: one answer has one usage, and its row says where it came from."""
    data = wired(vector)
    pieces = [data[i : i + piece] for i in range(0, len(data), piece)]
    tap = TAPS[vector["format"]]()
    for one in pieces:
        tap.feed(one)
    tap.end()
    found = facts.of_stream(tap, first_event_ns=0, last_event_ns=0, finish_inferred=False, protocol_fault=None)
    assert stated(found.usage) == (vector["counts"] or {})
    is_whole = "input" in stated(found.usage) and found.finish is not None
    assert found.usage_source == ("provider" if is_whole else "partial" if vector["counts"] else "missing")

    reader = FORMATS[vector["format"]].reader()
    events = [event for one in pieces for event in reader.feed(one)] + reader.finish()
    assert stated(heard(events, is_cut=reader.finish_word is None)) == (vector["counts"] or {})


@pytest.mark.parametrize("vector", ANSWERS)
def test_an_answer_states_the_same_to_the_ledger_and_to_the_translation(vector: dict[str, Any]) -> None:
    body = json.dumps(vector["answer"]).encode()
    found = READ[vector["format"]](body)
    assert stated(found.usage) == vector["counts"] and found.usage_source == "provider"
    assert stated(FORMATS[vector["format"]].parse_answer(body).usage) == vector["counts"]


BODY = b'{"id":"1","model":"m","choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}'
FULL = Usage(input=3, cache_read=20, cache_write=15, cache_write_5m=10, cache_write_1h=5, output=12, reasoning=4,
             total=50, audio_input=2, audio_output=1, web_searches=3, cost_pd=7, service_tier="priority")  # fmt: skip


@pytest.mark.parametrize(
    ("client", "lost"),
    [
        ("openai-chat", {"cache_write_5m", "cache_write_1h", "web_searches", "cost_pd", "service_tier"}),
        ("anthropic-messages", {"total", "audio_input", "audio_output", "web_searches", "cost_pd", "service_tier"}),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_is_told_all_that_its_format_can_say(client: str, lost: set[str], is_stream: bool) -> None:
    """Translated, an answer keeps its counts; what is lost has no name in the client's format, or another meaning."""
    form = FORMATS[client]
    answer = msgspec.structs.replace(FORMATS["openai-chat"].parse_answer(BODY), usage=FULL)
    if is_stream:
        events = [
            Started("1", "m", Usage(service_tier="priority")),
            *(e for e in unfold(answer) if not isinstance(e, Started)),
        ]
        writer, reader = form.writer("T", "m", 1), form.reader()
        again = [event for one in events for event in reader.feed(writer.write(one))] + reader.finish()
        usage = heard(again, is_cut=False)
        assert collect(again).text() == "Hi"
    else:
        usage = form.parse_answer(form.write_answer(answer, "T", "m", 1)).usage or Usage()
    assert stated(usage) == {k: v for k, v in stated(FULL).items() if k not in lost}


def test_a_tier_alone_is_no_usage() -> None:
    """A stream that names its tier and counts nothing has an unknown usage, and a client is told no zeros."""
    body = BODY.replace(b'"model"', b'"service_tier":"flex","model"')
    found = facts.of_chat_answer(body)
    assert found.usage_source == "missing" and found.usage == Usage(service_tier="flex") and not found.is_speechless
    answer = FORMATS["openai-chat"].parse_answer(body)
    assert "usage" not in json.loads(FORMATS["openai-chat"].write_answer(answer, "T", "m", 1))
