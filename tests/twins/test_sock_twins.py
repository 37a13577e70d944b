"""Finding the client's socket from outside the server that owns it, on both sides of the twins."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from arbiter._speedups.c import sock as c_sock
from arbiter._speedups.py import sock as py_sock


@pytest.fixture(params=[py_sock, c_sock], ids=["py", "c"])
def sock(request: pytest.FixtureRequest) -> ModuleType:
    side: ModuleType = request.param
    return side


@contextmanager
def accepted(family: int = socket.AF_INET, host: str = "127.0.0.1", *, dual: bool = False) -> Iterator[tuple]:
    """(accepted socket, client socket, the client's address as text, the listener's port)."""
    with socket.socket(family) as listener:
        if dual:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::" if dual else host, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection((host, port)) as client:
            server, _ = listener.accept()
            with server:
                name = client.getsockname()
                text = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
                yield server, client, text, port


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


FAMILIES = [pytest.param(socket.AF_INET, "127.0.0.1", False, id="ipv4")]
if has_ipv6():
    FAMILIES += [
        pytest.param(socket.AF_INET6, "::1", False, id="ipv6"),
        pytest.param(socket.AF_INET6, "127.0.0.1", True, id="ipv4-on-dual-stack"),
    ]


@pytest.mark.parametrize(("family", "host", "dual"), FAMILIES)
def test_an_accepted_connection_is_found_by_its_peer(sock: ModuleType, family: int, host: str, dual: bool) -> None:
    """The descriptor is the accepted end's, not the client's own end, though both live in this process."""
    with accepted(family, host, dual=dual) as (server, _, peer, port):
        assert sock.find(peer, port) == server.fileno()
        assert sock.peer_matches(server.fileno(), peer)


def test_a_peer_that_is_not_here_is_not_found(sock: ModuleType) -> None:
    """Another port, another listener, another address: no near miss is taken for it."""
    with accepted() as (server, client, peer, port):
        host, _, own = peer.rpartition(":")
        assert sock.find(peer, port + 1) == -1
        assert sock.find(f"{host}:{int(own) ^ 1}", port) == -1
        assert sock.find(f"127.0.0.2:{own}", port) == -1
        assert not sock.peer_matches(client.fileno(), peer)
        assert not sock.peer_matches(server.fileno(), f"127.0.0.2:{own}")


@pytest.mark.parametrize(
    "peer", ["", ":", "1.2.3.4", "1.2.3.4:", ":80", "1.2.3.4:x", "1.2.3.4:-1", "::g:1", "é:1", "a\0b:1", "unix:"]
)
def test_a_text_that_is_no_address_finds_nothing(sock: ModuleType, peer: str) -> None:
    """A peer comes from the server as text; whatever it is, looking for it is harmless."""
    assert sock.find(peer, 80) == -1
    assert not sock.peer_matches(0, peer)


def test_ipv6_peers_are_known_with_and_without_brackets(sock: ModuleType) -> None:
    """Servers spell them both ways."""
    if not has_ipv6():
        pytest.skip("no IPv6 here")
    with accepted(socket.AF_INET6, "::1") as (server, _, peer, port):
        assert sock.find(peer.replace("[", "").replace("]", ""), port) == server.fileno()


def test_queued_counts_what_the_peer_has_not_taken(sock: ModuleType) -> None:
    """A client that does not read leaves bytes queued; one that reads takes them away."""
    with accepted() as (server, client, _, _):
        assert sock.queued(server.fileno()) == 0
        server.setblocking(False)
        sent = 0
        try:
            while True:
                sent += server.send(b"x" * 65536)
        except BlockingIOError:
            pass
        assert 0 < sock.queued(server.fileno()) <= sent
        while sent:
            sent -= len(client.recv(1 << 20))
        for _ in range(1000):
            if sock.queued(server.fileno()) == 0:
                break
            os.sched_yield()
        assert sock.queued(server.fileno()) == 0


def test_shutdown_lets_what_is_queued_leave(sock: ModuleType) -> None:
    """The client reads the last bytes and then an orderly end, never a reset; the descriptor stays its owner's."""
    with accepted() as (server, client, _, _):
        server.send(b"last words")
        sock.shutdown(server.fileno())
        assert client.recv(100) == b"last words"
        assert client.recv(100) == b""
        assert server.fileno() >= 0
        assert os.fstat(server.fileno())


def test_a_descriptor_that_is_gone_does_no_harm(sock: ModuleType, tmp_path: object) -> None:
    """Closed, never opened, or a file: every call answers, none raises."""
    with accepted() as (server, _, peer, _):
        fd = server.fileno()
        server.close()
        assert sock.queued(fd) == -1
        assert not sock.peer_matches(fd, peer)
        sock.shutdown(fd)
    for fd in (-1, 1 << 20):
        assert sock.queued(fd) == -1
        assert not sock.peer_matches(fd, "1.2.3.4:5")
        sock.shutdown(fd)
    with open(os.devnull) as file:
        assert not sock.peer_matches(file.fileno(), "1.2.3.4:5")
        sock.shutdown(file.fileno())


def test_a_connection_beyond_a_gap_of_descriptors_is_found(sock: ModuleType) -> None:
    """Thousands of connections may have closed before it."""
    with accepted() as (server, _, peer, port):
        high = 900
        os.dup2(server.fileno(), high)
        server.close()
        try:
            assert sock.find(peer, port) == high
        finally:
            os.close(high)


def test_finding_leaves_no_descriptor_behind(sock: ModuleType) -> None:
    """It is called thousands of times in a worker's life."""
    with accepted() as (_, _, peer, port):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(200):
            sock.find(peer, port)
            sock.find("9.9.9.9:9", port)
        assert len(os.listdir("/proc/self/fd")) == before
