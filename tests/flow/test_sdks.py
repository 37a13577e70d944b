"""The official SDKs through the gateway: what their users see is what the provider said."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.fakes.client import run
from tests.fakes.gateway import until
from tests.fakes.origin import Origin, answer
from tests.fakes.wires import CHAT, JSON, MESSAGES, Front
from tests.fakes.wires import RESPONSES as MADE

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256))).decode()
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = 'look\n/echo text Let me see.\n/echo tool get_weather {"city":"Oslo ✓"}\n/echo usage in=1200 cached=1000 out=40'


@pytest.fixture
def chat(front: Front) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{front.url}/v1", api_key="nobody's", max_retries=0, timeout=20) as client:
        yield client


@pytest.fixture
def messages(front: Front) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=front.url, api_key="nobody's", max_retries=0, timeout=20) as client:
        yield client


# --- OpenAI -----------------------------------------------------------------------------------------------------------

CHAT_TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]


def test_openai_completes(chat: openai.OpenAI) -> None:
    """A unary answer, its usage, and the gateway's own headers beside it."""
    raw = chat.chat.completions.with_raw_response.create(
        model="echo", messages=[{"role": "user", "content": "hello there"}]
    )
    completion = raw.parse()
    assert completion.choices[0].message.content == "hello there"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None and completion.usage.completion_tokens == 2
    assert len(raw.headers["x-arbiter-trace-id"]) == 32


@pytest.mark.parametrize("usage", [True, False])
def test_openai_streams(chat: openai.OpenAI, usage: bool) -> None:
    """Deltas in order; usage at the end for who asked for it, and for nobody else."""
    options = {"stream_options": {"include_usage": True}} if usage else {}
    chunks = list(
        chat.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": "one two ✓ three"}], stream=True, **options
        )
    )
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == "one two ✓ three"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert bool(chunks[-1].usage) is usage


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_openai_calls_a_tool_and_hears_its_result(chat: openai.OpenAI, stream: bool) -> None:
    """The SDK puts the call together from its fragments; the result goes back and is talked about."""
    question = {"role": "user", "content": CALL}
    if stream:
        with chat.chat.completions.stream(model="echo", messages=[question], tools=CHAT_TOOLS) as events:  # type: ignore[list-item]
            completion = events.get_final_completion()
    else:
        completion = chat.chat.completions.create(model="echo", messages=[question], tools=CHAT_TOOLS)  # type: ignore[list-item, arg-type]
    choice = completion.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me see.")
    (call,) = choice.message.tool_calls or ()
    assert (call.type, call.function.name) == ("function", "get_weather")  # type: ignore[union-attr]
    assert json.loads(call.function.arguments) == {"city": "Oslo ✓"}  # type: ignore[union-attr]
    result = {"role": "tool", "tool_call_id": call.id, "content": "3 degrees"}
    turn = choice.message.model_dump(exclude_none=True, exclude={"parsed"})
    turn["tool_calls"] = [{"id": call.id, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]
    told = chat.chat.completions.create(model="echo", messages=[question, turn, result], tools=CHAT_TOOLS)  # type: ignore[list-item, arg-type]
    assert "3 degrees" in (told.choices[0].message.content or "")


def test_openai_sends_an_image_as_it_is(chat: openai.OpenAI, front: Front) -> None:
    """The data URL arrives upstream unchanged, and the echo provider hears the text beside it."""
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"}}
    turn = {"role": "user", "content": [{"type": "text", "text": "what is this"}, image]}
    heard = chat.chat.completions.create(model="echo", messages=[turn])  # type: ignore[list-item]
    assert heard.choices[0].message.content == "what is this"

    async def main() -> None:
        async with Origin(answer(CHAT.answer("a pixel"), headers=[JSON]), port=front.upstream) as origin:
            create = chat.chat.completions.create
            seen = await asyncio.to_thread(create, model=CHAT.model, messages=[turn])  # type: ignore[call-overload]
            assert seen.choices[0].message.content == "a pixel"
            assert json.loads(origin.requests[0].body)["messages"] == [turn]

    run(main)


def test_openai_raises_its_own_errors(chat: openai.OpenAI, front: Front) -> None:
    """Each failure is the exception that the SDK has for it, with the provider's message."""

    def ask(model: str, text: str) -> None:
        chat.chat.completions.create(model=model, messages=[{"role": "user", "content": text}])

    with pytest.raises(openai.NotFoundError) as unknown:
        ask("gpt-99", "hi")
    assert unknown.value.code == "no_route" and "gpt-99" in unknown.value.message
    with pytest.raises(openai.RateLimitError) as limited:
        ask("echo", "hi\n/echo error 429 retry-after=7 slow down, please")
    assert "slow down" in limited.value.message
    assert limited.value.response.headers["retry-after"] == "7"
    front.forget()
    with pytest.raises(openai.BadRequestError):
        ask("echo", "hi\n/echo error 400 no")
    with pytest.raises(openai.InternalServerError):
        ask("echo", "hi\n/echo error 500 oh")


def test_openai_sees_a_broken_stream_as_an_error(chat: openai.OpenAI) -> None:
    """Told in-band or cut: iterating raises, and never just stops."""
    for directive in ("error-in-stream overloaded busy", "cut"):
        stream = chat.chat.completions.create(
            model="echo",
            messages=[{"role": "user", "content": f"hi\n/echo text some words first\n/echo {directive}"}],
            stream=True,
        )
        with pytest.raises(openai.OpenAIError):
            list(stream)


# --- OpenAI, Responses ------------------------------------------------------------------------------------------------

RESPONSES_TOOLS = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": True}]


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_openai_responds_calls_a_tool_and_hears_its_result(chat: openai.OpenAI, stream: bool) -> None:
    """The SDK's own accumulator takes every event; the items go back as they came, and the result is talked about."""
    asked: list[Any] = [{"role": "user", "content": CALL}]
    if stream:
        with chat.responses.stream(model="echo", input=asked, tools=RESPONSES_TOOLS) as events:
            response: Any = events.get_final_response()
    else:
        response = chat.responses.create(model="echo", input=asked, tools=RESPONSES_TOOLS)  # type: ignore[arg-type]
    assert (response.status, response.output_text) == ("completed", "Let me see.")
    assert (response.usage.input_tokens, response.usage.input_tokens_details.cached_tokens) == (2200, 1000)
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Oslo ✓"})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "cold"}
    more = [*asked, *(item.model_dump(exclude_none=True) for item in response.output), result]
    assert chat.responses.create(model="echo", input=more).output_text == "The tool answered: cold"


def test_openai_asks_for_a_stored_response(chat: openai.OpenAI, front: Front) -> None:
    """Created, gone on from, read, cancelled and deleted: by one client, at one provider."""
    made = answer(MADE.answer(), headers=[JSON])

    async def main() -> None:
        async with Origin(made, port=front.upstream) as origin:

            def use() -> None:
                first = chat.responses.create(model=MADE.model, input="hello")
                chat.responses.create(model=MADE.model, input="and", previous_response_id=first.id)
                assert chat.responses.retrieve(first.id).output_text == "hello"
                chat.responses.input_items.list(first.id)
                chat.responses.cancel(first.id)
                chat.responses.delete(first.id)

            await asyncio.to_thread(use)
            ident = json.loads(MADE.answer())["id"]
            asked = [(one.method, one.target.removeprefix(f"/v1/responses/{ident}")) for one in origin.requests[2:]]
            assert asked == [("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", "")]

    run(main)


def test_openai_is_told_of_a_failure_in_a_stream_of_responses(chat: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError):
        for _ in chat.responses.create(model="echo", input="Hi\n/echo cut", stream=True):
            pass


def test_openai_lists_models(chat: openai.OpenAI) -> None:
    """One shape for all."""
    assert {"echo", CHAT.model, MESSAGES.model} <= {model.id for model in chat.models.list()}


def test_openai_may_leave_a_stream(chat: openai.OpenAI, front: Front) -> None:
    """Closing the stream cancels the request."""
    stream = chat.chat.completions.create(
        model="echo", messages=[{"role": "user", "content": "hi\n/echo text on and on\n/echo hang"}], stream=True
    )
    trace_id = stream.response.headers["x-arbiter-trace-id"]
    next(iter(stream))
    stream.close()
    until(lambda: front.select("SELECT 1 FROM requests WHERE trace_id = ?", trace_id), "the row")
    assert front.row(trace_id)["outcome"] == "cancelled"


def test_openai_async_runs_many_at_once(front: Front) -> None:
    """Fifty streams over the SDK's own pool, none mixed up."""

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=f"{front.url}/openai/v1", api_key="x", max_retries=0) as client:

            async def one(number: int) -> str:
                said = []
                async for chunk in await client.chat.completions.create(
                    model="echo", messages=[{"role": "user", "content": f"number {number}"}], stream=True
                ):
                    said.append(chunk.choices[0].delta.content or "")
                return "".join(said)

            assert await asyncio.gather(*map(one, range(50))) == [f"number {number}" for number in range(50)]

    run(main)


# --- Anthropic --------------------------------------------------------------------------------------------------------

MESSAGES_TOOLS = [{"name": "get_weather", "input_schema": WEATHER}]


def test_anthropic_creates(messages: anthropic.Anthropic) -> None:
    """A unary message, its usage, and the gateway's own headers beside it."""
    raw = messages.messages.with_raw_response.create(
        model="echo", max_tokens=100, messages=[{"role": "user", "content": "hello there"}]
    )
    message = raw.parse()
    assert message.content[0].text == "hello there"  # type: ignore[union-attr]
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 2)
    assert len(raw.headers["x-arbiter-trace-id"]) == 32


def test_anthropic_streams(messages: anthropic.Anthropic) -> None:
    """Thinking with its signature, text in order, usage with its cache."""
    content = "x\n/echo think hm, let me see\n/echo text one two ✓\n/echo usage in=9 cached=7 write=5 out=3"
    with messages.messages.stream(
        model="echo", max_tokens=100, messages=[{"role": "user", "content": content}]
    ) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert "".join(pieces) == "one two ✓" and len(pieces) > 1
    thinking, text = message.content
    assert thinking.type == "thinking" and thinking.thinking == "hm, let me see" and thinking.signature
    assert text.type == "text" and text.text == "one two ✓"
    usage = message.usage
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.output_tokens) == (7, 5, 3)


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_anthropic_calls_a_tool_and_hears_its_result(messages: anthropic.Anthropic, stream: bool) -> None:
    """The SDK puts the input together from its fragments; the result, with an image in it, goes back."""
    asked = {"model": "echo", "max_tokens": 100, "tools": MESSAGES_TOOLS}
    question = {"role": "user", "content": CALL}
    if stream:
        with messages.messages.stream(messages=[question], **asked) as events:  # type: ignore[arg-type]
            message = events.get_final_message()
    else:
        message = messages.messages.create(messages=[question], **asked)  # type: ignore[call-overload]
    assert message.stop_reason == "tool_use"
    text, call = message.content
    assert (text.text, call.name, call.input) == ("Let me see.", "get_weather", {"city": "Oslo ✓"})
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    parts = [{"type": "text", "text": "3 degrees"}, image]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": parts}
    turn = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}
    told = messages.messages.create(
        messages=[question, turn, {"role": "user", "content": [result]}],
        **asked,  # type: ignore[call-overload]
    )
    assert "3 degrees" in told.content[0].text


def test_anthropic_sends_an_image_as_it_is(messages: anthropic.Anthropic, front: Front) -> None:
    """The source arrives upstream unchanged, cache marks and all."""
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
        "cache_control": {"type": "ephemeral"},
    }
    turn = {"role": "user", "content": [image, {"type": "text", "text": "what is this"}]}
    heard = messages.messages.create(model="echo", max_tokens=100, messages=[turn])  # type: ignore[list-item]
    assert heard.content[0].text == "what is this"  # type: ignore[union-attr]

    async def main() -> None:
        async with Origin(answer(MESSAGES.answer("a pixel"), headers=[JSON]), port=front.upstream) as origin:
            create = messages.messages.create
            seen = await asyncio.to_thread(create, model=MESSAGES.model, max_tokens=9, messages=[turn])  # type: ignore[call-overload]
            assert seen.content[0].text == "a pixel"
            assert json.loads(origin.requests[0].body)["messages"] == [turn]

    run(main)


def test_anthropic_counts_tokens(messages: anthropic.Anthropic) -> None:
    """`/messages/count_tokens` is relayed."""
    counted = messages.messages.count_tokens(model="echo", messages=[{"role": "user", "content": "hello there"}])
    assert counted.input_tokens > 0


def test_anthropic_raises_its_own_errors(messages: anthropic.Anthropic, front: Front) -> None:
    """Each failure is the exception that the SDK has for it."""

    def ask(model: str, text: str) -> None:
        messages.messages.create(model=model, max_tokens=9, messages=[{"role": "user", "content": text}])

    with pytest.raises(anthropic.NotFoundError) as unknown:
        ask("claude-99", "hi")
    assert "claude-99" in str(unknown.value)
    with pytest.raises(anthropic.RateLimitError) as limited:
        ask("echo", "hi\n/echo error 429 retry-after=7 slow down, please")
    assert "slow down" in str(limited.value)
    assert limited.value.response.headers["retry-after"] == "7"
    front.forget()
    with pytest.raises(anthropic.InternalServerError) as busy:
        ask("echo", "hi\n/echo error 529 busy")
    assert busy.value.status_code == 529


def test_anthropic_sees_a_broken_stream_as_an_error(messages: anthropic.Anthropic) -> None:
    """Told in-band or cut: iterating raises, and never just stops."""
    for directive in ("error-in-stream overloaded busy", "cut"):
        content = f"hi\n/echo text some words first\n/echo {directive}"
        with pytest.raises(anthropic.AnthropicError):
            with messages.messages.stream(
                model="echo", max_tokens=100, messages=[{"role": "user", "content": content}]
            ) as stream:
                list(stream)


def test_anthropic_lists_models(messages: anthropic.Anthropic) -> None:
    """One shape for all."""
    assert {"echo", CHAT.model, MESSAGES.model} <= {model.id for model in messages.models.list()}


def test_anthropic_async_runs_many_at_once(front: Front) -> None:
    """Fifty streams over the SDK's own pool, none mixed up."""

    async def main() -> None:
        async with anthropic.AsyncAnthropic(base_url=f"{front.url}/anthropic", api_key="x", max_retries=0) as client:

            async def one(number: int) -> str:
                async with client.messages.stream(
                    model="echo", max_tokens=100, messages=[{"role": "user", "content": f"number {number}"}]
                ) as stream:
                    return await stream.get_final_text()

            assert await asyncio.gather(*map(one, range(50))) == [f"number {number}" for number in range(50)]

    run(main)
