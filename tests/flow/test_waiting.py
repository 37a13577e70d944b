"""Silence: the late commit, keepalives, and every phase's budget, told to the client and written in the row."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.fakes.client import Answer, Caller, Ending, ask, request, run
from tests.fakes.gateway import Row
from tests.fakes.loops import TICK_S
from tests.fakes.origin import CLOSE, LAST_CHUNK, SILENCE, Origin, Peer, Request, Steps, answer, chunk
from tests.fakes.wires import CHAT, JSON, RESPONSES, WIRES, Front, Wire, begun, sse, sse_head

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)

COMMIT_S = 0.2
KEEPALIVE_S = 0.3
SILENCE_S = KEEPALIVE_S * 2 / 3 - TICK_S
"""The least that comes between what was sent and a keepalive: one looks every third of the time."""


@pytest.fixture(scope="module")
def patient(make_front: Any) -> Front:
    """Commits after 0.2 s, and keeps alive every 0.3 s."""
    return make_front(server={"commit_after": f"{COMMIT_S}s", "keepalive": f"{KEEPALIVE_S}s"})


async def streamed(front: Front, wire: Wire, script: Steps) -> Answer:
    async with Origin(script, port=front.upstream):
        return await ask(front.port, wire.path, wire.ask(stream=True))


async def committed(front: Front, wire: Wire, before: list[Any], after: list[Any]) -> Answer:
    """A stream whose upstream does `after` once its client has a head."""
    has_head = asyncio.Event()
    async with Origin([*before, has_head, *after], port=front.upstream), await Caller.connect(front.port) as caller:
        await caller.send(request(wire.path, wire.ask(stream=True)))
        await caller.head()
        has_head.set()
        return await caller.whole()


# --- the late commit --------------------------------------------------------------------------------------------------


@each_wire
@pytest.mark.parametrize("silent", ["head", "event"])
def test_a_slow_upstream_is_waited_for_behind_keepalives(patient: Front, wire: Wire, silent: str) -> None:
    """The 200 goes out after `commit_after`, keepalives follow, and then the stream as it comes (SPEC 2.11, 2.12)."""

    async def main() -> None:
        events = wire.events("at ", "last", usage=False)
        body = b"".join(map(chunk, events)) + LAST_CHUNK
        go_on = asyncio.Event()
        script: Steps = [go_on, sse_head() + body] if silent == "head" else [sse_head(), go_on, body]
        async with Origin(script, port=patient.upstream), await Caller.connect(patient.port) as caller:
            loop = asyncio.get_running_loop()
            began = loop.time()
            await caller.send(request(wire.path, wire.ask(stream=True)))
            head = await caller.head()
            assert loop.time() - began >= COMMIT_S - TICK_S
            await caller.until_seen(wire.keepalive * 2)  # one that came with the head, and one after a silence
            go_on.set()
            found = await caller.whole()
        assert (head.status, found.ending) == (200, Ending.CLEAN)
        quiet, _, said = found.body.partition(events[0])
        assert quiet == wire.keepalive * (len(quiet) // len(wire.keepalive))
        assert events[0] + said == b"".join(events)
        assert found.header("content-type") == "text/event-stream"
        assert found.header("x-accel-buffering") == "no"
        # What served it was not known yet: only the row knows.
        for name in ("x-arbiter-provider", "x-arbiter-model", "x-arbiter-attempts"):
            assert found.header(name) is None, name
        row = patient.row(found.trace_id)
        assert (row["outcome"], row["provider"], row["attempts"][0]["usage_source"]) == ("ok", wire.name, "estimated")
        assert row["first_byte_us"] >= (COMMIT_S - TICK_S + SILENCE_S) * 1e6  # keepalives are not output

    run(main)


@each_wire
@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ([], answer(b'{"error":{"message":"too busy","type":"x"}}', status="503 X", headers=[JSON]), "overloaded"),
        ([], CLOSE, "transport"),
        ([sse_head()], CLOSE, "transport"),
        ([], answer(b'{"error":{"message":"whose key"}}', status="401 X", headers=[JSON]), "config"),
        ([], answer(b"<html>oops</html>", headers=[("content-type", "text/html")]), "upstream_protocol"),
    ],
    ids=["503", "closed", "closed after the head", "401", "a page"],
)
def test_a_failure_after_the_late_commit_is_told_in_band(
    patient: Front, wire: Wire, before: list[Any], after: Any, kind: str
) -> None:
    """The status is gone by then: an error event in the client's format, no terminal event, no clean end."""

    async def main() -> None:
        found = await committed(patient, wire, before, [after])
        assert (found.status, found.ending) == (200, Ending.CUT)
        message = wire.told(found)
        assert message and "<" not in message
        assert wire.terminal not in found.body
        row = patient.row(found.trace_id)
        assert (row["outcome"], row["error_class"], row["status"]) == ("error", kind, 200)

    run(main)


@each_wire
def test_an_error_event_after_the_late_commit_is_told_once(patient: Front, wire: Wire) -> None:
    """An upstream that reports its error first thing, but late."""

    async def main() -> None:
        error = chunk(wire.error_event("gave up")) + LAST_CHUNK
        found = await committed(patient, wire, [sse_head()], [error])
        assert wire.told(found) == "gave up"
        # Responses tell it as an `error`, and as the response that failed.
        assert found.body.count(b"gave up") == (2 if wire is RESPONSES else 1)
        assert found.ending is Ending.CUT

    run(main)


@each_wire
def test_an_answer_that_is_no_stream_cannot_follow_a_late_commit(patient: Front, wire: Wire) -> None:
    """The client was promised a stream; an empty one would look like an answer that says nothing."""

    async def main() -> None:
        found = await committed(patient, wire, [], [answer(wire.answer(), headers=[JSON])])
        assert found.status == 200
        assert wire.told(found)
        assert found.ending is Ending.CUT
        assert patient.row(found.trace_id)["outcome"] == "error"

    run(main)


@each_wire
def test_a_stream_that_falls_silent_is_kept_alive(patient: Front, wire: Wire) -> None:
    """Keepalives go between whole events, and stop when the stream goes on."""

    async def main() -> None:
        events = wire.events("one", "two", usage=False)
        said = len(wire.opening("one"))
        half = len(events[said]) // 2
        go_on = asyncio.Event()
        script = [
            begun(*events[:said]) + chunk(events[said][:half]),
            go_on,
            chunk(events[said][half:]) + b"".join(map(chunk, events[said + 1 :])) + LAST_CHUNK,
        ]
        async with Origin(script, port=patient.upstream), await Caller.connect(patient.port) as caller:
            await caller.send(request(wire.path, wire.ask(stream=True)))
            await caller.until_seen(events[said - 1] + wire.keepalive * 2)
            go_on.set()
            found = await caller.whole()
        assert wire.without_keepalives(found.body) == b"".join(events)
        assert found.body.endswith(b"".join(events[said:]))
        assert found.ending is Ending.CLEAN
        (attempt,) = patient.row(found.trace_id)["attempts"]
        assert attempt["events"] >= 3

    run(main)


@each_wire
def test_a_quick_stream_gets_no_keepalive(patient: Front, wire: Wire) -> None:
    """An event every 50 ms leaves no silence to fill; where a busy machine makes one, none comes too soon after it."""

    async def main() -> None:
        events = wire.events(*["word "] * 16, usage=False)
        sent_s: list[float] = []
        now = asyncio.get_running_loop().time

        async def script(peer: Peer, _: Request) -> None:
            await peer.send(sse_head())
            for event in events:
                sent_s.append(now())
                await peer.send(chunk(event))
                await asyncio.sleep(0.05)
            await peer.send(LAST_CHUNK)

        async with Origin(script, port=patient.upstream), await Caller.connect(patient.port) as caller:
            await caller.send(request(wire.path, wire.ask(stream=True)))
            await caller.head()
            seen = b""
            while piece := await caller.piece():
                seen += piece
                count = wire.without_keepalives(seen).count(b"\n\n")
                if count and piece.endswith(wire.keepalive):
                    assert now() - sent_s[count - 1] >= SILENCE_S, f"after {count} events"
        assert wire.without_keepalives(seen) == b"".join(events)

    run(main)


@each_wire
def test_zero_switches_commit_and_keepalives_off(make_front: Any, wire: Wire) -> None:
    """Then nothing is sent before the first event, and a late failure still has its status."""
    front = make_front(server={"commit_after": 0, "keepalive": 0})

    async def main() -> None:
        async with Origin([0.5, answer(b"{}", status="503 X", headers=[JSON])], port=front.upstream):
            found = await ask(front.port, wire.path, wire.ask(stream=True))
            assert found.status == 503
        events = wire.events("hi", usage=False)
        found = await streamed(front, wire, [begun(events[0]), 0.5, b"".join(map(chunk, events[1:])) + LAST_CHUNK])
        assert found.body == b"".join(events)

    run(main)


@each_wire
def test_an_unary_request_is_never_committed_early(patient: Front, wire: Wire) -> None:
    """Its status is all it has; it waits, and gets the true one."""

    async def main() -> None:
        async with Origin(
            [0.5, answer(b'{"error":{"message":"no"}}', status="500 X", headers=[JSON])], port=patient.upstream
        ):
            found = await ask(patient.port, wire.path, wire.ask())
        assert (found.status, found.body) == (500, b'{"error":{"message":"no"}}')

    run(main)


# --- budgets by phase -------------------------------------------------------------------------------------------------


def has_waited(attempt: Row, budget_s: float) -> None:
    """For its budget, and not for another: a busy machine may come late."""
    assert budget_s * 1000 - 5 <= attempt["timeout_wait_ms"] <= budget_s * 1000 + 10_000  # a loop's timers are whole ms


def timed_out(front: Front, wire: Wire, found: Answer, phase: str, budget_s: float) -> None:
    """`found` is a 504 that names the phase and the time, and so does the row."""
    assert found.status == 504, found.body
    message = wire.complaint(found)
    (row,) = [front.row(found.trace_id)]
    assert (row["status"], row["outcome"], row["error_class"]) == (504, "error", f"timeout_{phase}")
    (attempt,) = row["attempts"]
    assert (attempt["timeout_phase"], attempt["error_class"]) == (phase, f"timeout_{phase}")
    has_waited(attempt, budget_s)
    assert f"{attempt['timeout_wait_ms'] / 1000:.1f} s" in message
    assert row["message"] == message


@each_wire
def test_a_stream_without_a_head_times_out_in_headers(make_front: Any, wire: Wire) -> None:
    """And the upstream's connection is closed, so that it stops generating."""
    front = make_front(provider={"timeouts": {"headers": "400ms"}})

    async def main() -> None:
        async with Origin([SILENCE], port=front.upstream) as origin:
            timed_out(front, wire, await ask(front.port, wire.path, wire.ask(stream=True)), "headers", 0.4)
            await origin.until(lambda: origin.hangups == 1, "the close")

    run(main)


@each_wire
def test_a_stream_without_an_event_times_out_in_first_event(make_front: Any, wire: Wire) -> None:
    """Keepalives of the upstream are no event."""
    front = make_front(provider={"timeouts": {"first_event": "500ms", "idle": "400ms"}})

    async def main() -> None:
        script: list[Any] = [sse_head()]
        for _ in range(20):
            script += [chunk(wire.keepalive), 0.1]
        async with Origin([*script, SILENCE], port=front.upstream) as origin:
            timed_out(front, wire, await ask(front.port, wire.path, wire.ask(stream=True)), "first_event", 0.5)
            await origin.until(lambda: origin.hangups == 1, "the close")

    run(main)


@each_wire
def test_a_stream_that_stops_times_out_in_idle_and_is_told_in_band(make_front: Any, wire: Wire) -> None:
    """Output was sent, so there is no status to give: an error event that names the phase, and no clean end."""
    front = make_front(provider={"timeouts": {"idle": "400ms"}})

    async def main() -> None:
        events = wire.opening("some")
        async with Origin([begun(*events), SILENCE], port=front.upstream) as origin:
            found = await ask(front.port, wire.path, wire.ask(stream=True))
            await origin.until(lambda: origin.hangups == 1, "the close")
        assert (found.status, found.ending) == (200, Ending.CUT)
        message = wire.told(found)
        assert message and "stopped streaming" in message
        row = front.row(found.trace_id)
        assert (row["status"], row["error_class"]) == (200, "timeout_idle")
        (attempt,) = row["attempts"]
        assert attempt["timeout_phase"] == "idle"
        has_waited(attempt, 0.4)
        assert f"{attempt['timeout_wait_ms'] / 1000:.1f} s" in message

    run(main)


@each_wire
def test_a_stream_that_never_ends_times_out_in_total(make_front: Any, wire: Wire) -> None:
    """However lively it is."""
    front = make_front(provider={"timeouts": {"total": "1s"}})

    async def main() -> None:
        script: list[Any] = [begun(*wire.opening("a"))]
        for _ in range(60):
            script += [0.05, chunk(wire.opening("a")[-1])]
        async with Origin(script, port=front.upstream):
            found = await ask(front.port, wire.path, wire.ask(stream=True))
        # On a machine so busy that it has not begun by then there is still a status to give.
        assert (found.status, found.ending) in ((200, Ending.CUT), (504, Ending.CLEAN))
        assert front.row(found.trace_id)["attempts"][0]["timeout_phase"] == "total"

    run(main)


@each_wire
@pytest.mark.parametrize("said", [b"", answer(b'{"a', length=50, headers=[JSON])], ids=["nothing", "half"])
def test_an_unary_answer_that_is_late_times_out_in_unary(make_front: Any, wire: Wire, said: bytes) -> None:
    """One budget for all of it: a long answer is silent until it is whole."""
    front = make_front(provider={"timeouts": {"unary": "400ms"}})

    async def main() -> None:
        async with Origin([said, SILENCE], port=front.upstream) as origin:
            timed_out(front, wire, await ask(front.port, wire.path, wire.ask()), "unary", 0.4)
            await origin.until(lambda: origin.hangups == 1, "the close")

    run(main)


@each_wire
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_a_connection_that_is_not_taken_times_out_in_connect(make_front: Any, wire: Wire, stream: bool) -> None:
    """A full backlog drops SYNs, as a firewall does."""
    front = make_front(provider={"timeouts": {"connect": "400ms"}})
    fillers: list[socket.socket] = []
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", front.upstream))
        deaf.listen(0)
        try:
            for _ in range(4):
                filler = socket.socket()
                fillers.append(filler)
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", front.upstream))

            async def main() -> None:
                timed_out(front, wire, await ask(front.port, wire.path, wire.ask(stream=stream)), "connect", 0.4)

            run(main)
        finally:
            for filler in fillers:
                filler.close()


@each_wire
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_waiting_for_a_slot_is_a_phase_of_its_own(make_front: Any, wire: Wire, stream: bool) -> None:
    """With `connections.max: 1` a second request waits, and gets a 504 that says `queue`."""
    front = make_front(provider={"timeouts": {"queue": "500ms"}, "connections": {"max": 1}})

    async def main() -> None:
        data = request(wire.path, wire.ask(stream=stream))
        async with Origin([SILENCE], port=front.upstream) as origin:
            async with await Caller.connect(front.port) as first, await Caller.connect(front.port) as second:
                await first.send(data)
                await origin.until(lambda: len(origin.requests) == 1, "the first request")
                timed_out(front, wire, await second.exchange(data), "queue", 0.5)
            assert len(origin.requests) == len(origin.peers) == 1

    run(main)


@each_wire
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_a_slot_that_comes_free_is_given_to_who_waits(make_front: Any, wire: Wire, stream: bool) -> None:
    """And the row says for how long it waited. A stream, whose early head tells that it does."""
    limits = {"timeouts": {"queue": "30s"}, "connections": {"max": 1}}
    front = make_front(provider=limits, server={"commit_after": "100ms"})

    async def main() -> None:
        streamed = sse(*wire.events("hi"))
        whole = streamed if stream else answer(wire.answer(), headers=[JSON])
        now, go_on = asyncio.get_running_loop().time, asyncio.Event()
        async with Origin(scripts=[[go_on, whole], streamed], port=front.upstream) as origin:
            async with await Caller.connect(front.port) as first, await Caller.connect(front.port) as second:
                await first.send(request(wire.path, wire.ask(stream=stream)))
                await origin.until(lambda: len(origin.requests) == 1, "the first request")
                asked_s = now()
                await second.send(request(wire.path, wire.ask(stream=True)))
                await second.head()
                go_on.set()
                assert (await first.whole()).status == 200
                found = await second.whole()
                took_s = now() - asked_s
            assert wire.text(wire.without_keepalives(found.body)) == "hi"
            assert len(origin.peers) == 1
        assert 0 < front.row(found.trace_id)["attempts"][0]["queue_us"] < took_s * 1e6

    run(main)


def test_provider_timeout_caps_every_budget(make_front: Any) -> None:
    """`ARBITER_PROVIDER_TIMEOUT_MS` also caps what is off."""
    front = make_front(gateway={"env": {"ARBITER_PROVIDER_TIMEOUT_MS": "400"}})

    async def main() -> None:
        async with Origin([SILENCE], port=front.upstream):
            timed_out(front, CHAT, await ask(front.port, CHAT.path, CHAT.ask()), "unary", 0.4)
        async with Origin([begun(*CHAT.opening("a")), SILENCE], port=front.upstream):
            found = await ask(front.port, CHAT.path, CHAT.ask(stream=True))
        assert front.row(found.trace_id)["error_class"].startswith("timeout_")

    run(main)
