"""Going on from an answer of the gateway's own: what a worker asks control, and what it makes of what it hears."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arbiter import earlier
from arbiter.errors import ProtocolUnsupported, Unavailable
from arbiter.state.base import Origin
from arbiter.state.memory import Memory
from arbiter.upstream.transport import Transport
from arbiter.wire import native
from arbiter.wire.bound_responses import kept_mark
from tests.fakes.origin import Origin as Control
from tests.fakes.origin import Peer, Request

TRACE = "0" * 32
IDENT = f"resp_{TRACE}"


def asked(**members: Any) -> native.Opened:
    return native.open_body(json.dumps({"model": "m", "input": "go on", **members}).encode())


def run(work: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await work

    return asyncio.run(main())


async def carried_on(socket: Path, opened: native.Opened, *, owner: str | None = "ann") -> Any:
    state = Memory()
    state.remember([kept_mark("ann", IDENT)], Origin("p", "", "m"), 60)
    transport = Transport()
    try:
        doors: Any = SimpleNamespace(transport=transport)
        return await earlier.carried_on(opened, owner, state, doors, socket)
    finally:
        await transport.close()


class Says:
    """Control, that says one thing after the other."""

    def __init__(self, *bodies: dict[str, Any], status: str = "200 OK") -> None:
        self.bodies = list(bodies)
        self.status = status
        self.asked: list[str] = []

    async def script(self, peer: Peer, request: Request) -> None:
        self.asked.append(request.target)
        body = json.dumps(self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0]).encode()
        head = f"HTTP/1.1 {self.status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        await peer.send(head.encode() + body)


async def heard(tmp_path: Path, control: Says, opened: native.Opened) -> native.Opened:
    async with Control(control.script, uds=str(tmp_path / "c.sock")):
        found: native.Opened = await carried_on(tmp_path / "c.sock", opened)
        return found


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, [{"role": "user", "content": "a"}, {"role": "user", "content": "go on"}]),
        ({"input": [{"x": 1}, {"y": 2}]}, [{"role": "user", "content": "a"}, {"x": 1}, {"y": 2}]),
        ({"input": []}, [{"role": "user", "content": "a"}]),
    ],
    ids=["text", "items", "nothing"],
)
def test_what_was_said_before_comes_first(tmp_path: Path, members: dict[str, Any], expected: Any) -> None:
    control = Says({"items": [{"role": "user", "content": "a"}]})
    found = run(heard(tmp_path, control, asked(previous_response_id=IDENT, **members)))
    assert json.loads(bytes(found.members["input"])) == expected
    assert (
        "previous_response_id" not in found.members and json.loads(bytes(found.told["previous_response_id"])) == IDENT
    )
    assert control.asked == [earlier.PATH + TRACE]


def test_what_is_late_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier, "WAIT_S", 60.0)
    control = Says({"why": "not yet", "is_late": True}, {"why": "not yet", "is_late": True}, {"items": []})
    run(heard(tmp_path, control, asked(previous_response_id=IDENT)))
    assert len(control.asked) == 3


def test_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier, "WAIT_S", 0.05)
    with pytest.raises(ProtocolUnsupported, match="not yet"):
        run(heard(tmp_path, Says({"why": "not yet", "is_late": True}), asked(previous_response_id=IDENT)))


def test_a_store_that_does_not_answer_is_a_503(tmp_path: Path) -> None:
    """Whether it is down, or the process that would ask it: another try may land better."""
    with pytest.raises(Unavailable):
        run(heard(tmp_path, Says({}, status="503 Service Unavailable"), asked(previous_response_id=IDENT)))
    with pytest.raises(Unavailable):
        run(carried_on(tmp_path / "nobody.sock", asked(previous_response_id=IDENT)))


@pytest.mark.parametrize(
    ("opened", "more"),
    [
        (asked(), {}),
        (asked(previous_response_id="resp_of_a_provider"), {}),
        (asked(previous_response_id=IDENT), {"owner": "ben"}),
        (asked(previous_response_id=IDENT), {"owner": None}),
    ],
    ids=["nothing", "a provider's", "another's", "nobody's"],
)
def test_everything_else_is_left_as_it_is(tmp_path: Path, opened: native.Opened, more: dict[str, Any]) -> None:
    """And nobody is asked."""
    assert run(carried_on(tmp_path / "nobody.sock", opened, **more)) is opened
