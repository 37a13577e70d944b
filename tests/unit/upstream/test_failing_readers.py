"""A reader that raises has a bug; it gets its end, the connection closes, and no slot is lost."""

from __future__ import annotations

import asyncio
import gzip
import logging

import pytest

from arbiter.errors import InternalError
from arbiter.upstream.transport import Transport
from tests.fakes.loops import Run
from tests.fakes.origin import LAST_CHUNK, SILENCE, Origin, Peer, Request, answer, chunk, chunked_head
from tests.fakes.proxy import HttpProxy
from tests.fakes.reader import Collected, answered, ask, counts, endpoint_of


class Failing(Collected):
    """Raises at the piece that has `word` in it, and at every one after that."""

    def __init__(self, word: bytes) -> None:
        super().__init__()
        self._word = word

    def on_data(self, data: bytes) -> None:
        super().on_data(data)
        if self._word in self.data:
            raise ValueError("a bug")


# What comes while the reader reads; `bad` is where it fails.
ENDINGS = {
    "in the middle": [chunk(b"bad"), SILENCE],
    "with the last bytes": [chunk(b"bad") + LAST_CHUNK],
    "with a fault": [chunk(b"bad") + b"nonsense\r\n"],
    "before the end": [chunk(b"bad"), chunk(b"more") + LAST_CHUNK],
}


@pytest.mark.parametrize("proxied", [False, True], ids=["direct", "proxy"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_reader_that_raises_gets_an_error_for_its_end(
    run: Run, ending: str, proxied: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever in the answer it raised: whoever waits for the end would else wait for ever."""

    async def main() -> None:
        gate = asyncio.Event()

        async def script(peer: Peer, request: Request) -> None:
            await peer.send(chunked_head() + chunk(b"good"))
            await gate.wait()
            for piece in ENDINGS[ending]:
                if piece is SILENCE:
                    await peer.gone()
                else:
                    await peer.send(piece)

        async with Origin(script) as origin, HttpProxy() as proxy:
            transport = Transport()
            endpoint = endpoint_of(origin, proxy=proxy.url if proxied else None)
            exchange = await ask(transport, endpoint, max_connections=1)
            sink = Failing(b"bad")
            exchange.stream(sink)
            await origin.until(lambda: sink.data == b"good")
            gate.set()
            assert isinstance(await sink.end(), InternalError)
            assert sink.data.startswith(b"goodbad")
            # The one slot is free again.
            origin.answer_with(answer(b"next"))
            assert await answered(transport, endpoint, max_connections=1) == b"next"
            await origin.until(lambda: counts(transport)[0] == 1)
            await transport.close()

    run(main)
    said = [record.name for record in caplog.records if record.levelno >= logging.ERROR]
    assert said == ["arbiter.upstream.exchange"]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_reader_that_raises_on_what_waited_for_it_gets_its_end_too(run: Run, packed: bool) -> None:
    """The message was over before it was looked at, and its end is an error all the same."""

    async def main() -> None:
        body = gzip.compress(b"bad") if packed else b"bad"
        headers = [("content-encoding", "gzip")] if packed else []
        async with Origin(answer(body, headers=headers)) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            await origin.until(lambda: counts(transport)[:2] == (1, 1))
            sink = Failing(b"bad")
            exchange.stream(sink)
            assert [type(error) for error in sink.ends] == [InternalError]
            await transport.close()

    run(main)
