"""What we ask of the kernel and the C library, and of no portable module."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
from collections.abc import Iterator

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_SO_ATTACH_FILTER = 26
# For the kernel's packet filter: load the byte with TCP's flags; is SYN among them? If so keep nothing, else all.
_NO_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFF_FFFF))
_HELD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def allow_open_files() -> None:
    """Raise the limit of open files to the highest that we may ask for; children inherit it.

    A stream takes two descriptors, and the usual soft limit of 1024 is meant for programs that use `select`.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def die_with_parent(parent_pid: int, with_signal: int = signal.SIGKILL) -> None:
    """Get `with_signal` when the parent dies, however it dies: a worker left behind would go on answering.

    The kernel means the thread that forked us, not its process: the supervisor forks from its main thread only.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(with_signal), 0, 0, 0)
    if os.getppid() != parent_pid:
        # It died before we asked.
        os._exit(1)


def take_no_more(listener: socket.socket) -> None:
    """Have nobody new connect to a TCP socket that listens, whoever else has it open; who has connected is there to be
    accepted. The others are not refused before it is closed: they hear nothing, and try again after a second.

    Where the kernel does not do that, they go on to connect.
    """
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in _NO_SYN))
    with contextlib.suppress(OSError):
        listener.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(_NO_SYN), ctypes.addressof(code))
        )


def name_process(name: str) -> None:
    """Be told apart in `ps -e` and `top`; the kernel keeps 15 bytes of the name."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Around a fork: a signal that comes before the child has its own handlers waits, instead of running ours there."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def release_signals() -> None:
    """In the child, once its handlers are there: let through what waited."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


def tune_allocator() -> None:
    """Keep large bodies on the heap: fresh pages from mmap for each of them cost more than everything else we do.

    Not every C library has `mallopt`; without it all works, more slowly.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        # glibc refuses a threshold above half of its largest heap, which is 32 MiB on 64-bit machines.
        if not libc.mallopt(_M_MMAP_THRESHOLD, 64 << 20):
            libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 256 << 20)
        libc.mallopt(_M_ARENA_MAX, 2)


def give_back() -> None:
    """Have the C library hand the pages that it has free to the kernel; in any thread. Not every one can."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> int:
    """Memory that this process has in use; 0 where the kernel does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
