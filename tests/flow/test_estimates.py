"""Tokens that an upstream did not count, from the request to the row; through workers, journal and control."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.ledger.tokenizer import Tokenizer
from tests.fakes.client import ask, run
from tests.fakes.gateway import until
from tests.fakes.origin import CLOSE, LAST_CHUNK, Origin, answer, chunk, chunked_head
from tests.fakes.wires import CHAT, JSON, MESSAGES, RESPONSES, WIRES, Front, Wire

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)
PROMPT = "Tell me about the harbour of Hamburg, its ships, its cranes and the river that made it. " * 40
REPLY = "The harbour lies on the Elbe, a hundred kilometres from the sea, and is the largest of the country. " * 20

TOKENIZER = Tokenizer()  # loaded once


def tokens(text: str) -> int:
    rate, _ = TOKENIZER.rate(text.encode(), 1 << 20)
    return round(rate * len(text.encode()))


@each_wire
@pytest.mark.parametrize("is_stream", [True, False])
def test_an_answer_without_a_usage_is_estimated(front: Front, wire: Wire, is_stream: bool) -> None:
    """Within a fifth of what a tokenizer counts of the text alone: a prompt is JSON, and is counted as such."""
    if is_stream:
        head = chunked_head(headers=[("content-type", "text/event-stream")])
        reply = head + b"".join(chunk(event) for event in wire.events(REPLY, usage=False)) + LAST_CHUNK
    else:
        told = json.loads(wire.answer(REPLY))
        del told["usage"]
        reply = answer(json.dumps(told).encode(), headers=[JSON])

    async def main() -> None:
        async with Origin(reply, port=front.upstream):
            found = await ask(front.port, wire.path, wire.ask(PROMPT, stream=is_stream))
        assert found.status == 200
        (row,) = front.row(found.trace_id)["attempts"]
        assert row["usage_source"] == "estimated"
        assert (row["input_tokens"], row["output_tokens"]) == (None, None)
        assert row["estimated_input_tokens"] == pytest.approx(tokens(PROMPT), rel=0.2)
        assert row["estimated_output_tokens"] == pytest.approx(tokens(REPLY), rel=0.2)

    run(main)


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, RESPONSES], ids=str)
@pytest.mark.parametrize("told", ["nothing", "its end"])
def test_a_messages_stream_that_is_cut_is_charged_for_what_it_wrote(make_front: Any, wire: Wire, told: str) -> None:
    """Its start announces an output of 1 token, which is no count of the thousand that follow: what nobody counted is
    estimated, as a cut stream's of any other format. What `message_delta` counted is what it was."""
    model = {"model": "messages/messages-model", "input_usd_per_mtok": 1, "output_usd_per_mtok": 1000}
    front = make_front(models=[model])
    events = MESSAGES.events(REPLY)[: -1 if told == "its end" else -3]

    async def main() -> None:
        steps = chunked_head(headers=[("content-type", "text/event-stream")]) + b"".join(map(chunk, events))
        async with Origin([steps, CLOSE], port=front.upstream):
            found = await ask(front.port, wire.path, {**wire.ask(PROMPT, stream=True), "model": MESSAGES.model})
        (row,) = front.row(found.trace_id)["attempts"]
        counts = row["input_tokens"], row["output_tokens"], row["estimated_input_tokens"]
        if told == "its end":
            assert (*counts, row["usage_source"], row["cost_pd"]) == (7, 3, None, "provider", 3007 * 10**6)
        else:
            assert (*counts, row["usage_source"]) == (7, None, None, "partial")
            assert row["estimated_output_tokens"] == pytest.approx(tokens(REPLY), rel=0.2)
            assert row["cost_pd"] == (7 + 1000 * row["estimated_output_tokens"]) * 10**6

    run(main)


@each_wire
def test_what_is_counted_is_not_estimated(front: Front, wire: Wire) -> None:
    async def main() -> None:
        async with Origin(answer(wire.answer(), headers=[JSON]), port=front.upstream):
            found = await ask(front.port, wire.path, wire.ask(PROMPT))
        (row,) = front.row(found.trace_id)["attempts"]
        assert (row["usage_source"], row["estimated_input_tokens"], row["estimated_output_tokens"]) == (
            "provider", None, None,
        )  # fmt: skip

    run(main)


@pytest.mark.parametrize(
    ("wire", "tool"),
    [
        (CHAT, {"type": "function", "function": {"name": "read_file", "description": PROMPT, "parameters": {}}}),
        (MESSAGES, {"name": "read_file", "description": PROMPT, "input_schema": {"type": "object"}}),
    ],
    ids=str,
)
def test_the_tools_of_a_request_have_their_price_in_tokens(front: Front, wire: Wire, tool: dict[str, object]) -> None:
    """Told with each request that offers them, also by the worker that did not send their schemas."""

    async def main() -> None:
        async with Origin(answer(wire.answer(), headers=[JSON]), port=front.upstream):
            asked = [await ask(front.port, wire.path, wire.ask(f"turn {n}", tools=[tool])) for n in range(6)]
        rows = [front.row(found.trace_id)["attempts"][-1] for found in asked]
        assert {row["tools_offered"] for row in rows} == {1}
        (hash,) = {row["tools_hash"] for row in rows}
        (kept,) = until(lambda: front.select("SELECT * FROM tool_sets WHERE id = ?", hash), "the tools of all turns")
        assert list(json.loads(kept["names"])) == ["read_file"]
        assert kept["tokens"] == pytest.approx(tokens(PROMPT), rel=0.2)
        assert rows[-1]["tools_tokens"] == kept["tokens"]

    run(main)
