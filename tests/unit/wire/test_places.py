"""Where a part that cannot be sent stood, told to whoever sent it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from arbiter.errors import PartUnsupported
from arbiter.wire import anthropic_messages, openai_chat
from arbiter.wire.places import MAX_ENTRIES, place_of

SOUND = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}


def placed(messages: list[dict[str, Any]], seen: list[int] | None = None) -> str | None:
    """Where the part stands that no Messages upstream takes; `seen` gets the size of each request that was read."""
    raw = json.dumps({"model": "m", "messages": messages}).encode()
    members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])

    def parse(alone: Any) -> Any:
        if seen is not None:
            seen.append(len(bytes(alone["messages"])))
        return openai_chat.parse_request(alone)

    with pytest.raises(PartUnsupported) as caught:
        anthropic_messages.build_request(openai_chat.parse_request(members))
    return place_of(caught.value.part, members, parse)


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_the_place_is_that_of_the_clients_own_body() -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "user", "content": [text("a"), SOUND]}]
    assert placed(messages) == "messages[1].content[1]"


def test_looking_for_it_reads_each_entry_and_nothing_beside_it() -> None:
    """What else a message holds may be megabytes; it is not read again for each of a thousand entries."""
    said = [text(str(n)) for n in range(300)]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": "x" * 100_000})}}
    seen: list[int] = []
    assert placed([{"role": "user", "content": [*said, SOUND], "tool_calls": [call], "z": "y" * 100_000}], seen) == (
        "messages[0].content[300]"
    )
    assert len(seen) == 301 and max(seen) < 300


def test_far_down_it_is_not_looked_for() -> None:
    """Others wait meanwhile; the part is named all the same."""
    assert placed([{"role": "user", "content": [*[text("x")] * MAX_ENTRIES, SOUND]}]) is None
