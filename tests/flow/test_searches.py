"""Searches that a provider runs itself: told by its usage, kept in the row, and paid for."""

from __future__ import annotations

import json

import pytest

from tests.fakes.client import ask, run
from tests.fakes.origin import LAST_CHUNK, Origin, answer, chunk, chunked_head
from tests.fakes.wires import JSON, MESSAGES, Front


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_search_of_the_provider_is_in_its_row(front: Front, is_stream: bool) -> None:
    """Relayed as it came, and counted on the side; a stream tells of it at its end."""
    told = {"server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1}}
    if is_stream:
        events = MESSAGES.events("found it")
        at = next(at for at, event in enumerate(events) if b"message_delta" in event)
        events[at] = events[at].replace(b'"usage": {', b'"usage": {' + json.dumps(told)[1:-1].encode() + b", ")
        assert b"web_search_requests" in events[at]
        head = chunked_head(headers=[("content-type", "text/event-stream")])
        reply = head + b"".join(map(chunk, events)) + LAST_CHUNK
    else:
        whole = json.loads(MESSAGES.answer("found it"))
        whole["usage"] |= told
        reply = answer(json.dumps(whole).encode(), headers=[JSON])

    async def main() -> None:
        async with Origin(reply, port=front.upstream):
            found = await ask(front.port, MESSAGES.path, MESSAGES.ask(stream=is_stream))
        assert b"web_search_requests" in found.body
        (row,) = front.row(found.trace_id)["attempts"]
        assert (row["web_searches"], row["output_tokens"], row["usage_source"]) == (2, 3, "provider")

    run(main)
