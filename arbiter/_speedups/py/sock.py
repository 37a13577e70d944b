"""The client's own socket, found from outside the HTTP server that owns it.

The server hands out no socket, so a stream that must know how many bytes its client still owes looks for the file
descriptor by its peer. A descriptor found is borrowed: it may be closed and handed to another connection at any time,
so whoever keeps one asks `peer_matches` before each use. Nothing here raises for a descriptor that is gone.

Linux only: SIOCOUTQ and /proc.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import sys
import termios

SIOCOUTQ = termios.TIOCOUTQ  # the same number on Linux
_ACKED_AT = 120  # offset of tcpi_bytes_acked in struct tcp_info


def find(peer: str, local_port: int) -> int:
    """The descriptor of this process's accepted connection from `peer` ("ip:port") on `local_port`, -1 if none."""
    wanted = _parse(peer)
    if wanted is None:
        return -1
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        sock = _borrow(fd)
        if sock is None:
            continue
        try:
            if _address(sock.getpeername()) == wanted and sock.getsockname()[1] == local_port:
                return fd
        except OSError:
            continue
        finally:
            sock.detach()
    return -1


def queued(fd: int) -> int:
    """Bytes written to the socket that its peer has not acknowledged yet; -1 if there is no such socket."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(fd, SIOCOUTQ, count)
    except (OSError, ValueError):
        return -1
    return count[0]


def acked(fd: int) -> int:
    """Bytes the peer has acknowledged on this connection so far; -1 if there is no such socket.

    Source: `tcpi_bytes_acked` of the kernel's tcp_info (Linux 4.1), which is never rearranged, only longer.
    """
    sock = _borrow(fd)
    if sock is None:
        return -1
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED_AT + 8)
    except OSError:
        return -1
    finally:
        sock.detach()
    return int.from_bytes(info[_ACKED_AT : _ACKED_AT + 8], sys.byteorder) if len(info) == _ACKED_AT + 8 else -1


def shutdown(fd: int) -> None:
    """End the connection both ways, in order: what is queued still leaves. The descriptor stays its owner's."""
    sock = _borrow(fd)
    if sock is None:
        return
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        sock.detach()


def peer_matches(fd: int, peer: str) -> bool:
    """Whether `fd` is (still) a connection from `peer`."""
    wanted = _parse(peer)
    sock = _borrow(fd)
    if sock is None:
        return False
    try:
        return wanted is not None and _address(sock.getpeername()) == wanted
    except OSError:
        return False
    finally:
        sock.detach()


def _borrow(fd: int) -> socket.socket | None:
    """A socket object over an Internet socket's descriptor; detach it, or it would close what is not ours."""
    if fd < 0:
        return None
    try:
        sock = socket.socket(fileno=fd)
    except OSError:
        return None
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        sock.detach()
        return None
    return sock


def _address(name: tuple[str, int] | tuple[str, int, int, int]) -> tuple[bytes, int] | None:
    return _packed(name[0], name[1])


def _parse(peer: str) -> tuple[bytes, int] | None:
    """`peer` as (16 bytes, port): "1.2.3.4:5", "[::1]:5" or "::1:5"; None if it is no address."""
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5:
        return None
    return _packed(host.removeprefix("[").removesuffix("]"), int(port))


def _packed(host: str, port: int) -> tuple[bytes, int] | None:
    host = host.partition("%")[0]  # a link-local zone is not part of what we compare
    try:
        if ":" in host:
            return socket.inet_pton(socket.AF_INET6, host), port
        # A dual-stack listener sees IPv4 peers as ::ffff:a.b.c.d; both spellings are one address.
        return b"\0" * 10 + b"\xff\xff" + socket.inet_pton(socket.AF_INET, host), port
    except (OSError, ValueError):
        return None
