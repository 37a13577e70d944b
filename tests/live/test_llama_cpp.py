"""A real upstream that nobody here wrote, llama.cpp's server, through a whole gateway.

Its model says the alphabet, so that answers, counts and calls are known; how it says them is its own affair: chunks
with `content: null`, `timings`, ids of its own, numbers as error codes, events of Responses without indexes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arbiter.fold import collect
from arbiter.model import Answer, ToolCall
from arbiter.wire.format import FORMATS
from tests.fakes.client import Caller, ask, request, run
from tests.fakes.gateway import Gateway, until
from tests.fakes.llama import Llama
from tests.fakes.tiny_model import ALPHABET
from tests.fakes.wires import CHAT, MESSAGES, RESPONSES, WIRES, Wire

pytestmark = pytest.mark.needs("llama.cpp")

APIS = ("chat", "messages", "responses")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo"]}}, "required": ["city"]}
each_client = pytest.mark.parametrize("ours", WIRES, ids=str)


class Real(Gateway):
    """A gateway in front of two such servers; `chat`, `messages` and `responses` are one model through each API."""

    def __init__(self, folder: Path, talker: Llama, embedder: Llama) -> None:
        at = {"type": "openai", "retry": {"attempts": 1}, "responses_api": "transcode"}
        models = [{"id": api, "upstream": "alphabet", "api": api} for api in APIS]
        providers = {
            "talker": {**at, "endpoint": f"http://127.0.0.1:{talker.port}/v1", "models": models},
            "embedder": {**at, "endpoint": f"http://127.0.0.1:{embedder.port}/v1", "models": ["vectors"]},
        }
        super().__init__({"providers": providers}, folder)
        self.talker = talker


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    folder = tmp_path_factory.mktemp("llama")
    with (
        Llama(folder / "talker", "--ctx-size", "8192", "--parallel", "2", "--jinja", "--slots") as talker,
        Llama(folder / "embedder", "--ctx-size", "2048", "--embeddings", "--pooling", "mean") as embedder,
        Real(folder / "gateway", talker, embedder) as gateway,
    ):
        yield gateway


async def attempt_of(real: Real, trace_id: str | None) -> dict[str, Any]:
    (attempt,) = await asyncio.to_thread(until, lambda: real.row(trace_id)["attempts"], "its row")
    return dict(attempt)


@each_client
@pytest.mark.parametrize("api", APIS)
def test_a_stream_says_the_alphabet_and_what_it_cost(real: Real, ours: Wire, api: str) -> None:
    """Each client through each of the server's own APIs: its words, its end, its counts."""

    async def main() -> None:
        usage = {"stream_options": {"include_usage": True}} if ours is CHAT else {}
        found = await ask(real.port, ours.path, ours.ask("hi", stream=True, model=api, temperature=0, **usage))
        assert found.status == 200 and ours.text(found.body) == ALPHABET and ours.terminal in found.body
        row = await attempt_of(real, found.trace_id)
        assert (row["output_tokens"], row["usage_source"]) == (27, "provider")
        assert row["input_tokens"] + (row["cached_tokens"] or 0) == 20

    run(main)


@each_client
@pytest.mark.parametrize("api", APIS)
def test_a_whole_answer_says_the_alphabet(real: Real, ours: Wire, api: str) -> None:
    async def main() -> None:
        found = await ask(real.port, ours.path, ours.ask("hi", model=api, temperature=0))
        assert found.status == 200 and ALPHABET.encode() in found.body
        assert (await attempt_of(real, found.trace_id))["output_tokens"] == 27

    run(main)


def answer_of(ours: Wire, body: bytes, *, stream: bool) -> Answer:
    """What a client of that format understands of an answer."""
    wire = FORMATS[{CHAT: "openai-chat", MESSAGES: "anthropic-messages"}.get(ours, "openai-responses")]
    if not stream:
        return wire.parse_answer(body)
    reader = wire.reader()
    return collect(reader.feed(body) + reader.finish())


def tool_of(ours: Wire) -> dict[str, Any]:
    """A tool with one possible argument, and the demand that it be called, as a client of that format says it."""
    if ours is MESSAGES:
        return {"tools": [{"name": "weather", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}}
    function = {"name": "weather", "parameters": SCHEMA}
    tool = {"type": "function", "function": function} if ours is CHAT else {"type": "function", **function}
    return {"tools": [tool], "tool_choice": "required"}


@each_client
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_call_that_its_grammar_forces_reaches_every_client(real: Real, ours: Wire, api: str, stream: bool) -> None:
    """The words before it, its name and its arguments, written slice by slice under a grammar."""

    async def main() -> None:
        limit = {"max_output_tokens" if ours is RESPONSES else "max_tokens": 400}
        body = ours.ask("hi", stream=stream, model=api, temperature=0, **limit, **tool_of(ours))
        found = await ask(real.port, ours.path, body)
        answer = answer_of(ours, found.body, stream=stream)
        (call,) = (part for part in answer.parts if isinstance(part, ToolCall))
        assert (answer.text(), call.name, json.loads(call.arguments)) == (ALPHABET, "weather", {"city": "Oslo"})
        row = await attempt_of(real, found.trace_id)
        assert (row["outcome"], row["finish_reason"]) == ("ok", "tool_use" if api == "messages" else "tool_calls")

    run(main)


def test_vectors_come_back_as_they_were_made(real: Real) -> None:
    async def main() -> None:
        found = await ask(real.port, "/v1/embeddings", {"model": "vectors", "input": ["a", "b"]})
        assert found.status == 200
        first, second = (one["embedding"] for one in found.json["data"])
        assert len(first) == len(second) == 320 and first != second
        assert (await attempt_of(real, found.trace_id))["input_tokens"] == found.json["usage"]["prompt_tokens"]

    run(main)


def test_tokens_are_counted_by_the_server_itself(real: Real) -> None:
    """As many as its answer then says that it read."""

    async def main() -> None:
        body = MESSAGES.ask("hi there", model="messages")
        counted = await ask(real.port, "/v1/messages/count_tokens", body)
        assert counted.header("x-arbiter-estimate") is None
        found = await ask(real.port, "/v1/messages", {**body, "temperature": 0})
        usage = found.json["usage"]
        assert counted.json["input_tokens"] == usage["input_tokens"] + (usage["cache_read_input_tokens"] or 0)

    run(main)


@each_client
def test_a_prompt_that_is_too_long_is_told_as_that(real: Real, ours: Wire) -> None:
    """Its 400 has a number as its code, and a type that only its own clients know; a chat's reaches them as it came."""

    async def main() -> None:
        found = await ask(real.port, ours.path, ours.ask("x" * 9000, model="chat"))
        assert found.status == 400 and b"exceeds the available context size" in found.body
        assert real.row(found.trace_id)["error_class"] == "context_length"

    run(main)


def test_a_client_that_leaves_stops_it(real: Real) -> None:
    """SPEC 3.4: the server's slot is free again, long before its answer would have ended."""

    async def main() -> None:
        endless = CHAT.ask("hi", stream=True, model="chat", temperature=0, ignore_eos=True, max_tokens=8000)
        async with await Caller.connect(real.port) as caller:
            await caller.send(request(CHAT.path, endless))
            await caller.head()
            while b"z" not in await caller.piece():
                pass
            assert real.talker.busy == 1
        await asyncio.to_thread(until, lambda: real.talker.busy == 0, "the server's silence")
        await asyncio.to_thread(
            until, lambda: [row for row in real.requests() if row["outcome"] == "cancelled"], "the row of who left"
        )

    run(main)
