"""A bug of ours in the middle of a request: it costs that request, and the log says whose it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.client import Caller, request, run
from tests.fakes.origin import LAST_CHUNK, Origin, chunk
from tests.fakes.wires import CHAT, begun


@pytest.mark.parametrize("before", [0, 2], ids=["before any output", "after some"])
def test_a_bug_inside_a_stream_is_logged_with_the_trace_of_its_request(make_front: Any, before: int) -> None:
    """The client is told no more than a trace id: with it, and nothing else, one must find what happened."""
    faults = ["a stream failed inside the gateway", "a request failed inside the gateway"]
    front = make_front(
        plugins=[{"use": "tests.fakes.buggy:BuggyReader", "required": True}], gateway={"expected_errors": faults}
    )
    events = CHAT.events("hello", "stumble", "never")

    async def main() -> None:
        seen = asyncio.Event()
        steps = [begun(*events[:before]), seen, b"".join(map(chunk, events[before:])) + LAST_CHUNK]
        async with Origin(steps, port=front.upstream), await Caller.connect(front.port) as caller:
            await caller.send(request(CHAT.path, CHAT.ask(stream=True)))
            if before:
                await caller.until_seen(events[before - 1])
            seen.set()
            found = await caller.whole()
        assert found.status == (500 if not before else 200)
        row = front.row(found.trace_id)
        assert (row["outcome"], row["error_class"]) == ("error", "internal")
        lines = [line for line in front.lines() if line.get("trace_id") == found.trace_id and line["level"] == "error"]
        assert [line["message"] for line in lines] == ["a request failed inside the gateway"]

    run(main)
