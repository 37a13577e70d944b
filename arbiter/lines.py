"""How the supervisor and a child of it talk: a pair of sockets, made before the fork, that keep messages whole.

A message says little; a value that is too large for one (a snapshot) comes along as a descriptor of anonymous memory,
written once however many children read it. Nothing here waits: who has nothing to read is told so, and a message that
the other end has no room for is not sent.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator
from typing import Any, Literal, Self

import msgspec

_MESSAGE_BYTES = 64 << 10


class Serving(msgspec.Struct, tag="serving", frozen=True):
    """From a child: it serves, with the snapshot that it was forked with."""


class Apply(msgspec.Struct, tag="apply", frozen=True):
    """To a child: from now on, the snapshot that comes along. Snapshots are numbered from the gateway's start."""

    number: int


class Applied(msgspec.Struct, tag="applied", frozen=True):
    """From a child: it runs that snapshot."""

    number: int


class Reload(msgspec.Struct, tag="reload", frozen=True):
    """From control: somebody wants the configuration read again, or no more than the keys. The answer names `ask`."""

    ask: int
    only_keys: bool = False


class Reloaded(msgspec.Struct, tag="reloaded", frozen=True):
    """To control: a reload is over, whoever wanted it; `told` is the answer for `asks`.

    `status` is an HTTP status: 200 where the configuration was accepted.
    """

    asks: list[int]
    status: int
    told: dict[str, Any]


class Counted(msgspec.Struct, tag="counted", frozen=True):
    """To one worker: a reload ended like this; count it."""

    result: str


class Damaged(msgspec.Struct, tag="damaged", frozen=True):
    """From a worker: LMDB says that the pages of the shared state are none."""


class Prices(msgspec.Struct, tag="prices", frozen=True):
    """From control, and from the supervisor on to every worker: which price list is kept, and how the last fetch of
    one went.

    Anybody may read it at `/health`, so no address stands in it. `fetched_ms` and `entries` are of the list that is
    kept, `tried_ms` and `outcome` of the last try since control began; None where there is none.
    """

    fetched_ms: int | None = None
    entries: int | None = None
    tried_ms: int | None = None
    outcome: Literal["ok", "failed"] | None = None


Message = Serving | Apply | Applied | Reload | Reloaded | Counted | Damaged | Prices

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class Line:
    """One end. `is_open` turns false once the other end is gone."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self.is_open = True

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: Message, descriptor: int | None = None) -> bool:
        """Whether it was sent: not to an end that is gone, or that has left too much unread."""
        descriptors = [] if descriptor is None else [descriptor]
        try:
            socket.send_fds(self._end, [_encode(message)], descriptors)
        except OSError:
            return False
        return True

    def receive(self) -> Iterator[tuple[Message, int | None]]:
        """What has come, in order: each message, and the descriptor with it, which is the caller's to close."""
        while self.is_open:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._end, _MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                self.is_open = False
                return
            yield _decode(data), descriptors[0] if descriptors else None

    def close(self) -> None:
        self.is_open = False
        self._end.close()


def put_down(value: object) -> int:
    """A descriptor of anonymous memory that holds `value`; the caller closes it. It never touches a disk."""
    descriptor = os.memfd_create("arbiter")
    with open(descriptor, "wb", closefd=False) as file:
        pickle.dump(value, file, pickle.HIGHEST_PROTOCOL)
    return descriptor


def take_up(descriptor: int) -> Any:
    """What `put_down` put there; closes the descriptor."""
    try:
        # All who have it share one file position, so it is not moved.
        return pickle.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    finally:
        os.close(descriptor)
