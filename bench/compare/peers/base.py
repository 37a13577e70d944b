"""What a peer is, and how its processes are started, found answering, and stopped.

A peer says how to install it, which version is there, and starts itself in front of a mock upstream. Some can be told
per request what the mock shall answer (by model or path); those that have one upstream are started once per answer.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from bench import tools
from bench.path import peers as path_peers

CHAT, MESSAGES = path_peers.CHAT, path_peers.MESSAGES
INSTALLER = "bash bench/compare/peers.sh"
KEY = "bench-upstream-key"
STARTS_IN_S, STOPS_IN_S = 60.0, 2.0  # whoever drains for longer has nothing to save

Speaks = Literal["chat", "messages"]


def home() -> Path:
    """Where peers.sh installs: ARBITER_PEERS, or .cache/peers of this project."""
    return Path(os.environ.get("ARBITER_PEERS") or path_peers.ROOT / ".cache" / "peers")


@dataclass(frozen=True)
class Upstream:
    """The mock, and the same mock behind TLS where that is measured."""

    port: int
    tls_port: int | None = None
    ca: Path | None = None


@dataclass(frozen=True)
class Place:
    """Where a peer runs: its folder, its core (None: any), what is behind it and what that will be asked to answer."""

    folder: Path
    core: int | None
    upstream: Upstream
    answers: Sequence[str]

    def url(self, answer: str) -> str:
        """The mock that answers so, as a provider's base; most clients put `/v1/...` or only `/chat/...` behind it."""
        return f"http://127.0.0.1:{self.upstream.port}/{answer}"


@dataclass(frozen=True)
class Target:
    """One request's way in."""

    port: int
    path: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Way:
    """A peer that runs.

    `root` of an answer is the process whose tree does the work; `worker` the one that serves, where the others only
    keep books or watch (None: the whole tree serves).
    """

    target: Callable[[str, Speaks, bool], Target]  # answer, the client's format, whether the upstream is behind TLS
    root: Callable[[str], int]
    worker: int | None = None


@dataclass(frozen=True)
class Peer:
    """`crosses`: translates a Messages client for an OpenAI upstream. `keeps`: what it does beside handing bytes on."""

    name: str
    install: str
    version: Callable[[], str | None]  # None: not installed
    start: Callable[[Place], AbstractContextManager[Way]]
    crosses: bool = False
    tls: bool = False
    keeps: str = ""


def in_venv(folder: str, program: str) -> Path | None:
    """A program of the virtual environment that peers.sh made, or None."""
    found = home() / folder / "bin" / program
    return found if found.exists() else None


def venv_version(folder: str, package: str) -> str | None:
    """The installed version of a package there, without importing or running it."""
    for info in (home() / folder).glob(f"lib/python3*/site-packages/{package}-*.dist-info"):
        return info.name.removesuffix(".dist-info").rpartition("-")[2]
    return None


def said(*command: str) -> str | None:
    """What a program on the PATH (or in /usr/sbin) says of its version; None: it is not there."""
    program = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        return None
    done = subprocess.run([program, *command[1:]], check=False, capture_output=True, text=True, timeout=10)
    return (done.stdout + done.stderr).strip()


@functools.cache
def environment() -> dict[str, str]:
    """Ours, without what would send a peer's requests elsewhere, or its reports home."""
    ours = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith(("PYTHON", "ARBITER"))}
    return ours | {"DO_NOT_TRACK": "1", "NO_COLOR": "1"}


class Started(NamedTuple):
    pid: int
    port: int


@contextlib.contextmanager
def program(
    place: Place,
    name: str,
    command: Sequence[str | Path],
    *,
    port: int | re.Pattern[str],
    ready: str = "/health",
    env: Mapping[str, str] | None = None,
) -> Iterator[Started]:
    """Start one process, wait until it answers GET `ready`, and end it afterwards.

    `port` is a pattern where the process chooses it itself: the first group in what it prints.
    """
    folder = place.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "out.log"
    with (
        log.open("wb") as out,
        path_peers.running(
            subprocess.Popen(
                [str(part) for part in command], cwd=folder, env=environment() | dict(env or {}),
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=tools.on_core(place.core),
            ),
            patience_s=STOPS_IN_S,
        ) as child,
    ):  # fmt: skip
        give_up = time.monotonic() + STARTS_IN_S
        while time.monotonic() < give_up and child.poll() is None:
            at = port if isinstance(port, int) else said_port(log, port)
            if at and answers(at, ready):
                yield Started(child.pid, at)
                return
            time.sleep(0.1)
        raise RuntimeError(f"it never answered; its last words:\n{log.read_text('utf-8', 'replace')[-1500:].strip()}")


def said_port(log: Path, pattern: re.Pattern[str]) -> int | None:
    found = pattern.search(log.read_text("utf-8", "replace"))
    return int(found.group(1)) if found else None


def answers(port: int, path: str) -> bool:
    """Whether GET `path` is answered; some have no such path, and a 5xx is not ready yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def one_per_answer(
    place: Place, start: Callable[[str, int], AbstractContextManager[Started]], model: Callable[[str], str]
) -> Iterator[Way]:
    """For a peer with a single upstream: one of its processes for each answer, as `start(answer, port)` makes it."""
    with contextlib.ExitStack() as stack:
        at = {answer: stack.enter_context(start(answer, path_peers.free_port())) for answer in place.answers}
        yield Way(
            target=lambda answer, speaks, tls: Target(at[answer].port, path_of(speaks), model(answer)),
            root=lambda answer: at[answer].pid,
        )


def path_of(speaks: Speaks) -> str:
    return CHAT if speaks == "chat" else MESSAGES
