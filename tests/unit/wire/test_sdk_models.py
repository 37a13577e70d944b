"""The vendors' own SDKs accept every event and every answer that our writers make."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from arbiter.model import collect
from arbiter.wire.format import FORMATS
from tests.unit.wire import neutral

CHUNK: TypeAdapter[Any] = TypeAdapter(ChatCompletionChunk)
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@pytest.mark.parametrize("wire", list(FORMATS))
@given(data=st.data())
@settings(max_examples=50)
def test_the_vendors_types_accept_what_we_write(wire: str, data: st.DataObject) -> None:
    """Strictly validated, not merely constructed, as the SDKs do at run time."""
    events = data.draw(neutral.streams(wire))
    writer = FORMATS[wire].writer("T", "m", 1700000000)
    written = b"".join(writer.write(event) for event in events).decode()
    payloads = [line.removeprefix("data: ") for line in written.split("\n") if line.startswith("data: ")]
    adapter = CHUNK if wire == neutral.CHAT else EVENT
    for payload in payloads:
        if payload != "[DONE]":
            adapter.validate_python(json.loads(payload))
    body = FORMATS[wire].write_answer(collect(events), "T", "m", 1700000000)
    (ChatCompletion if wire == neutral.CHAT else AnthropicMessage).model_validate_json(body)
