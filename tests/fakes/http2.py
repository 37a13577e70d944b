"""A scripted upstream that speaks HTTP/2 on a real socket: frames as a test says, and a memory of what came.

    async with Http2Origin(reply(b"hello")) as origin:          # h2c; with `tls=` a context, ALPN is the test's to set
        ...
        assert origin.requests[0].target == "/v1/models"

Scripts, `scripts=`, `until`, `requests`, `peers` and `hangups` are those of `origin.Origin`, with these differences: a
script that is a callable gets an `Http2Peer` and the request, whose `stream` is its number; `bytes` are written below
HTTP/2, as they are. Scripts of several streams run side by side. `eager` runs the script at the request's head and
never widens the window for its body.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

from .certificates import Authority
from .origin import Handler, Origin, Peer, Request, Steps

NO_ERROR = h2.errors.ErrorCodes.NO_ERROR


@dataclass(frozen=True)
class Http2Request(Request):
    stream: int = 0


@dataclass
class Http2Peer(Peer):
    """One connection, seen from the origin."""

    state: h2.connection.H2Connection = field(init=False, repr=False)
    resets: list[int] = field(default_factory=list)  # streams the client reset
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        config = h2.config.H2Configuration(
            client_side=False,
            header_encoding="latin-1",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.state = h2.connection.H2Connection(config)

    async def flush(self) -> None:
        await self.send(self.state.data_to_send())

    async def head(
        self, request: Http2Request, status: str = "200", *headers: tuple[str, str], end: bool = False
    ) -> None:
        """The head of an answer; `end` if that is all."""
        self.state.send_headers(request.stream, [(":status", status), *headers], end_stream=end)
        await self.flush()

    async def data(self, request: Http2Request, data: bytes, *, end: bool = False) -> None:
        """Bytes of a body, as far as the client's window allows at once; the rest as it widens."""
        while data:
            room = min(self.state.local_flow_control_window(request.stream), self.state.max_outbound_frame_size)
            if room <= 0:
                self._moved.clear()
                await self._moved.wait()
                continue
            self.state.send_data(request.stream, data[:room])
            data = data[room:]
            await self.flush()
        if end:
            self.state.end_stream(request.stream)
            await self.flush()

    async def reset_stream(self, request: Http2Request, code: h2.errors.ErrorCodes) -> None:
        self.state.reset_stream(request.stream, code)
        await self.flush()

    async def go_away(self, last: int, code: h2.errors.ErrorCodes = NO_ERROR) -> None:
        """A GOAWAY below h2, which would write nothing more after its own."""
        await self.send(b"\0\0\x08\x07\0\0\0\0\0" + last.to_bytes(4, "big") + int(code).to_bytes(4, "big"))

    async def gone(self) -> None:
        await self.ended.wait()

    def moved(self) -> None:
        self._moved.set()


class Http2Origin(Origin):
    """See the module's docstring."""

    def __init__(self, script: Steps | None = None, *, eager: bool = False, **options: Any) -> None:
        super().__init__(script, **options)
        self._eager = eager

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Http2Peer(len(self.peers), reader, writer)
        self.peers.append(peer)
        scripts: set[asyncio.Task[None]] = set()
        try:
            peer.state.initiate_connection()
            await peer.flush()
            heads: dict[int, list[tuple[str, str]]] = {}
            bodies: dict[int, bytearray] = {}
            while data := await reader.read(65536):
                for event in peer.state.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        heads[event.stream_id] = list(event.headers)
                        bodies[event.stream_id] = bytearray()
                    elif isinstance(event, h2.events.DataReceived):
                        bodies[event.stream_id] += event.data
                        if not self._eager:
                            peer.state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, h2.events.StreamReset):
                        peer.resets.append(event.stream_id)
                    begun = h2.events.RequestReceived if self._eager else h2.events.StreamEnded
                    if isinstance(event, begun):
                        scripts.add(asyncio.ensure_future(self._answer(peer, event.stream_id, heads, bodies)))
                peer.moved()
                await peer.flush()
            peer.hung_up = not peer.closed
        except (ConnectionError, ssl.SSLError):
            peer.hung_up = not peer.closed
        except h2.exceptions.ProtocolError:
            pass  # a client that speaks something else is hung up on
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self.faults.append(error)
        finally:
            self._tasks.discard(task)
            peer.ended.set()
            for one in scripts:
                one.cancel()
            await asyncio.gather(*scripts, return_exceptions=True)
            writer.close()
            with suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(
        self, peer: Http2Peer, stream: int, heads: dict[int, list[tuple[str, str]]], bodies: dict[int, bytearray]
    ) -> None:
        fields = [(name, value) for name, value in heads[stream] if not name.startswith(":")]
        pseudo = dict(pair for pair in heads[stream] if pair[0].startswith(":"))
        headers = [("host", pseudo[":authority"]), *fields]
        request = Http2Request(
            pseudo[":method"], pseudo[":path"], headers, bytes(bodies[stream]), peer.number, stream=stream
        )
        index = min(len(self.requests), len(self._scripts) - 1)
        self.requests.append(request)
        try:
            await self._play(peer, request, self._scripts[index])
        except ConnectionError:
            pass
        except Exception as error:
            self.faults.append(error)


def reply(*pieces: bytes, status: str = "200", headers: Sequence[tuple[str, str]] = ()) -> Handler:
    """A whole answer, one DATA frame per piece."""

    async def script(peer: Peer, request: Request) -> None:
        assert isinstance(peer, Http2Peer) and isinstance(request, Http2Request)
        await peer.head(request, status, *headers)
        for piece in pieces:
            await peer.data(request, piece)
        await peer.data(request, b"", end=True)

    return script


def h2_context(ca: Authority, *names: str, **options: Any) -> ssl.SSLContext:
    """A server's context that agrees on HTTP/2."""
    context = ca.server(*names, **options)
    context.set_alpn_protocols(["h2"])
    return context
