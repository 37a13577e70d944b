"""What a stream holds while it goes on: not the request that it answers (SPEC 3.5)."""

from __future__ import annotations

from typing import Any

import pytest
import uvloop

from arbiter.ledger.sample import MAX_BYTES
from tests.fakes.crowd import Crowd, call_all, warm_up
from tests.fakes.gateway import until
from tests.fakes.weighed import FOLDER, weigh
from tests.fakes.wires import CHAT, MESSAGES, RESPONSES, Wire

COUNT, EVENTS, EVERY_S = 20, 5, 0.5
TEXT = "Why does it not? " * 20_000
"""Some 340 KB, and so five times what a row may want a sample of."""
OWN_BYTES = 30_000
"""What Python has given out for one of them, but for the sample; generously."""


@pytest.mark.parametrize(
    ("wire", "theirs"),
    [(CHAT, CHAT), (MESSAGES, CHAT), (RESPONSES, CHAT)],
    ids=["chat", "messages-on-chat", "responses-on-chat"],
)
def test_an_open_stream_holds_a_sample_of_its_request_and_no_more(
    make_front: Any, tmp_path_factory: pytest.TempPathFactory, wire: Wire, theirs: Wire
) -> None:
    """Agents ask with hundreds of KB, over and over, and their answers take minutes. Once one has begun, nothing of
    it is tried again; a sample is enough for who will estimate what it cost."""
    folder = tmp_path_factory.mktemp("weighed")
    front = make_front(
        plugins=[{"use": "tests.fakes.weighed:Weighed", "required": True}], gateway={"env": {FOLDER: str(folder)}}
    )
    before = 0

    def holds_little() -> bool:
        return (weigh(front.worker, folder) - before) / COUNT < MAX_BYTES + OWN_BYTES

    def look() -> None:
        until(holds_little, "streams that hold little")
        assert front.metric("arbiter_open_streams") == COUNT

    name = "input" if wire is RESPONSES else "messages"
    long = {name: [{"role": "user", "content": TEXT}]}
    with Crowd(front.upstream, events=EVENTS, every_s=EVERY_S) as crowd:
        uvloop.run(warm_up(front.port, wire, model=theirs.model))
        before = weigh(front.worker, folder)
        streams = uvloop.run(call_all(crowd, front.port, wire, COUNT, look, model=theirs.model, **long))
    assert {status for status, _, _ in streams.answers} == {200}
