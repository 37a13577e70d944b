"""A stream's relay ends once and says why, whatever happens inside the socket's callback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from arbiter.attempt.lanes import choose
from arbiter.attempt.live import StreamRelay
from arbiter.errors import ArbiterError, Cut, Garbled, InternalError
from arbiter.watch import Watch
from tests.fakes.asks import ask, rung

HELLO = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'


class Upstream:
    """The exchange behind a relay; it counts what is done to it."""

    def __init__(self) -> None:
        self.aborted = 0
        self.fails = False

    def saw_event(self) -> None: ...

    def finish(self) -> None: ...

    def abort(self) -> None:
        self.aborted += 1
        if self.fails:
            raise OSError("no such socket")


class Client:
    def __init__(self) -> None:
        self.got = b""
        self.fails = False

    def send(self, data: bytes) -> None:
        if self.fails:
            raise RuntimeError("a bug at the client's end")
        self.got += data

    def draw_from(self, source: object, stop: object) -> None: ...

    def hold_less(self) -> None:
        self.holds_less = True


class Broken:
    """A native stream with a bug in it."""

    def __init__(self, whole: Any, bug: Exception) -> None:
        self._whole, self._bug = whole, bug

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def feed(self, data: bytes) -> bytes:
        raise self._bug

    def end(self, error: ArbiterError | None) -> bytes:
        raise self._bug


def relay(upstream: Upstream) -> StreamRelay:
    lane = choose(ask("openai-chat", {"model": "m", "messages": [], "stream": True}), rung("openai-chat"))
    return StreamRelay(lane, upstream, Watch(asyncio.get_running_loop()))  # type: ignore[arg-type]


async def ended(stream: StreamRelay, client: Client, strike: Callable[[], None]) -> ArbiterError | None:
    asyncio.get_running_loop().call_soon(strike)
    async with asyncio.timeout(30):
        return await stream.flow(client, client.hold_less)  # type: ignore[arg-type]


def feeds(stream: StreamRelay) -> None:
    stream.on_data(HELLO)
    stream.on_data(HELLO)
    stream.on_end(None)


@pytest.mark.parametrize("strike", [feeds, lambda stream: stream.on_end(Cut("gone"))], ids=["data", "end"])
@pytest.mark.parametrize("aborting_fails", [False, True])
def test_a_bug_in_the_callback_ends_the_stream_and_is_logged_once(
    caplog: pytest.LogCaptureFixture, strike: Callable[[StreamRelay], None], aborting_fails: bool
) -> None:
    """The client would otherwise be kept alive for ever over a stream that nobody reads any more."""

    async def main() -> None:
        upstream, client = Upstream(), Client()
        upstream.fails = aborting_fails
        stream = relay(upstream)
        stream.on_data(HELLO)
        stream.course = Broken(stream.course, KeyError("bug"))  # type: ignore[assignment]
        error = await ended(stream, client, lambda: strike(stream))
        assert isinstance(error, InternalError)
        assert client.got == HELLO
        assert upstream.aborted == 1

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_an_error_of_ours_keeps_its_name() -> None:
    """Where the upstream's bytes are at fault, no bug is logged and the error says so."""

    async def main() -> None:
        stream = relay(Upstream())
        stream.on_data(HELLO)
        stream.course = Broken(stream.course, Garbled("odd bytes"))  # type: ignore[assignment]
        assert isinstance(await ended(stream, Client(), lambda: stream.on_data(HELLO)), Garbled)

    asyncio.run(main())


def test_a_bug_before_the_first_event_fails_the_attempt() -> None:
    async def main() -> None:
        stream = relay(Upstream())
        stream.course = Broken(stream.course, KeyError("bug"))  # type: ignore[assignment]
        asyncio.get_running_loop().call_soon(stream.on_data, HELLO)
        with pytest.raises(InternalError):
            async with asyncio.timeout(30):
                await stream.first()

    asyncio.run(main())


def test_a_client_that_cannot_be_written_to_ends_the_stream() -> None:
    async def main() -> None:
        upstream, client = Upstream(), Client()
        stream = relay(upstream)
        client.fails = True
        assert isinstance(await ended(stream, client, lambda: stream.on_data(HELLO)), InternalError)
        assert upstream.aborted == 1

    asyncio.run(main())
