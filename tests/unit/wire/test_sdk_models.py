"""The vendors' own SDKs accept every event and every answer that our writers make, and put them together as we do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, AnthropicError
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from google.genai import Client
from google.genai.errors import APIError, UnknownApiResponseError
from google.genai.types import GenerateContentResponse, HttpOptions
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import OpenAI, OpenAIError
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from arbiter.errors import ArbiterError
from arbiter.fold import collect
from arbiter.model import Answer, Event, Finish, Refusal, Text, Thinking, ToolCall
from arbiter.wire.format import FORMATS
from tests.fakes.vectors import CASES, read
from tests.unit.wire import neutral, upstreams

EVENTS: dict[str, TypeAdapter[Any]] = {
    neutral.CHAT: TypeAdapter(ChatCompletionChunk),
    neutral.MESSAGES: TypeAdapter(RawMessageStreamEvent),
    neutral.RESPONSES: TypeAdapter(ResponseStreamEvent),
    neutral.GEMINI: TypeAdapter(GenerateContentResponse),
}
ANSWERS: dict[str, Any] = {
    neutral.CHAT: ChatCompletion,
    neutral.MESSAGES: AnthropicMessage,
    neutral.RESPONSES: Response,
    neutral.GEMINI: GenerateContentResponse,
}
ASKED: Any = [{"role": "user", "content": "Hi"}]


def written(client: str, events: list[Event]) -> bytes:
    writer = FORMATS[client].writer("T", "m", 1700000000)
    return b"".join(writer.write(event) for event in events)


def check_types(client: str, stream: bytes) -> None:
    """Each event validates strictly, not merely constructed, as the SDKs do at run time."""
    payloads = [line.removeprefix("data: ") for line in stream.decode().split("\n") if line.startswith("data: ")]
    adapter = EVENTS[client]
    for payload in payloads:
        if '"type":"custom"' in payload and client == neutral.CHAT:
            continue  # its types know whole calls of this kind, and no slices
        if payload != "[DONE]" and '"error"' not in payload[:30]:
            adapter.validate_python(json.loads(payload))


@contextmanager
def served(body: bytes, kind: str) -> Iterator[httpx2.Client]:
    """An HTTP client to which every request is answered with `body`."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": kind}, content=body)

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as client:
        yield client


class Heard:
    """What an agent has in hand once its SDK put a stream together."""

    def __init__(self, text: str, calls: list[tuple[str, str, Any]], finish: str | None) -> None:
        self.text = text
        self.calls = calls
        self.finish = finish


def openai_hears(stream: bytes) -> Heard:
    with served(stream, "text/event-stream") as http:
        client = OpenAI(base_url="http://gateway.example/v1", api_key="k", max_retries=0, http_client=http)
        with client.chat.completions.stream(model="m", messages=ASKED) as events:
            for _ in events:
                pass
            choice = events.get_final_completion().choices[0]
    calls = [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    return Heard((choice.message.content or "") + (choice.message.refusal or ""), calls, choice.finish_reason)


def anthropic_hears(stream: bytes) -> Heard:
    with served(stream, "text/event-stream") as http:
        client = Anthropic(base_url="http://gateway.example", api_key="k", max_retries=0, http_client=http)
        with client.messages.stream(model="m", max_tokens=9, messages=ASKED) as events:
            for _ in events:
                pass
            message = events.get_final_message()
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
    return Heard(text, calls, message.stop_reason)


def responses_hears(stream: bytes) -> Heard:
    with served(stream, "text/event-stream") as http:
        client = OpenAI(base_url="http://gateway.example/v1", api_key="k", max_retries=0, http_client=http)
        with client.responses.stream(model="m", input="Hi") as events:
            for event in events:
                if event.type == "error":
                    raise OpenAIError(event.message)
            response = events.get_final_response()
    said = [part for item in response.output if item.type == "message" for part in item.content]
    text = "".join(part.text if part.type == "output_text" else part.refusal for part in said)
    calls = [
        (item.call_id, item.name, item.arguments if item.type == "function_call" else item.input)
        for item in response.output
        if item.type in ("function_call", "custom_tool_call")
    ]
    return Heard(text, calls, response.status)


def gemini_hears(stream: bytes) -> Heard:
    with served(stream, "text/event-stream") as http:
        options = HttpOptions(base_url="http://gateway.example", httpx_client=http)
        client = Client(api_key="k", vertexai=False, http_options=options)
        chunks = list(client.models.generate_content_stream(model="m", contents="Hi"))
    parts = [part for chunk in chunks if chunk.candidates for part in chunk.candidates[0].content.parts or ()]
    text = "".join(part.text for part in parts if part.text and not part.thought)
    calls = [(part.function_call.id, part.function_call.name, part.function_call.args) for part in parts
             if part.function_call is not None]  # fmt: skip
    return Heard(text, calls, chunks[-1].candidates[0].finish_reason if chunks and chunks[-1].candidates else None)


HEARS: dict[str, Callable[[bytes], Heard]] = {
    neutral.CHAT: openai_hears,
    neutral.MESSAGES: anthropic_hears,
    neutral.RESPONSES: responses_hears,
    neutral.GEMINI: gemini_hears,
}
TO_EACH = pytest.mark.parametrize("client", list(FORMATS))


def is_heard(client: str, answer: Answer) -> bool:
    """Free text goes to clients whose tools take it: to none of Anthropic's, and the chat SDK knows no such stream."""
    return client == neutral.RESPONSES or not any(isinstance(part, ToolCall) and part.is_free for part in answer.parts)


def check_heard(client: str, heard: Heard, answer: Answer) -> None:
    """The SDK's message is our answer."""
    said = [part for part in answer.parts if isinstance(part, Text | Refusal)]
    if client == neutral.CHAT:  # where a refusal stands beside the text
        said.sort(key=lambda part: isinstance(part, Refusal))
    assert heard.text == "".join(part.text for part in said)
    for call, part in zip(heard.calls, [part for part in answer.parts if isinstance(part, ToolCall)], strict=True):
        assert call[:2] == (part.id, part.name)
        if client not in (neutral.MESSAGES, neutral.GEMINI):
            assert call[2] == part.arguments
        elif answer.finish is not Finish.LENGTH:
            assert call[2] == json.loads(part.arguments)
    body = FORMATS[client].write_answer(answer, "T", "m", 1700000000)
    told = json.loads(body)
    finishes = {neutral.MESSAGES: "stop_reason", neutral.RESPONSES: "status"}
    if client == neutral.GEMINI:
        assert heard.finish == told["candidates"][0]["finishReason"]
        return
    assert heard.finish == (told["choices"][0]["finish_reason"] if client == neutral.CHAT else told[finishes[client]])


@TO_EACH
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_an_sdk_puts_every_vector_together_as_we_do(case: Path, client: str) -> None:
    """And raises its own error where the stream failed, instead of taking what came for an answer."""
    events = read(case)
    stream = written(client, events)
    check_types(client, stream)
    try:
        answer = collect(events)
    except ArbiterError:
        with pytest.raises((OpenAIError, AnthropicError, APIError, UnknownApiResponseError)):
            HEARS[client](stream)
        return
    # OpenAI's helpers refuse to hand out what was cut off or filtered; the events were fine all the same.
    if client != neutral.MESSAGES and answer.finish in (Finish.LENGTH, Finish.CONTENT_FILTER, Finish.CONTEXT_WINDOW):
        return
    if is_heard(client, answer):
        check_heard(client, HEARS[client](stream), answer)


@TO_EACH
@pytest.mark.parametrize("wire", list(FORMATS))
@given(data=st.data())
@settings(max_examples=25)
def test_an_sdk_puts_any_upstreams_stream_together_as_we_do(client: str, wire: str, data: st.DataObject) -> None:
    stream = data.draw(upstreams.STREAMS[wire])
    reader = FORMATS[wire].reader()
    events = reader.feed(stream.data) + reader.finish()
    out = written(client, events)
    check_types(client, out)
    if stream.answer.finish in (Finish.STOP, Finish.TOOL_CALLS) and is_heard(client, stream.answer):
        check_heard(client, HEARS[client](out), stream.answer)


@TO_EACH
@pytest.mark.parametrize("wire", list(FORMATS))
@given(data=st.data())
@settings(max_examples=50)
def test_the_vendors_types_accept_what_we_write(client: str, wire: str, data: st.DataObject) -> None:
    """Streams and unary answers; one that says nothing, too."""
    events = data.draw(neutral.streams(wire))
    check_types(client, written(client, events))
    for answer in (collect(events), Answer(), Answer(parts=(Thinking("Hm"),))):
        ANSWERS[client].model_validate_json(FORMATS[client].write_answer(answer, "T", "m", 1700000000))
