"""What every benchmark here needs: to be a command that stops what it started, and the Rust program, built from this
tree and run as a mock upstream or as a load."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

SOURCE = Path(__file__).with_name("loadgen")
SMOKE = "SMOKE: run to see that everything works; no figure here means anything."
_LOOK_S = 0.3
_running: list[subprocess.Popen[bytes]] = []
_measured: list[int] = []
"""Without which nothing that is measured means anything: what was started, and the processes that this started."""


def command(main: Callable[[], int]) -> NoReturn:
    """Run a benchmark: whatever ends it, what it started is stopped, and what is wrong is told in a line."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
            signal.signal(number, _stop)
    try:
        code = main()
    except RuntimeError as error:
        print(error, file=sys.stderr)
        code = 1
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("arbiter", "bench", "tests"):
            raise
        print(f"{error.name} is not here (.venv/bin/pip install -r requirements-dev.lock)", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.exit(code)


def _stop(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def say_smoke(is_smoke: bool) -> None:
    """The first line of what is printed: a table that looks like figures is copied for some."""
    if is_smoke:
        print(SMOKE, flush=True)


def at_least_one(text: str) -> int:
    """For argparse: how often something is done."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


@contextlib.contextmanager
def needed(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """While the block runs, nobody asks on once `child` has ended."""
    _running.append(child)
    try:
        yield
    finally:
        _running.remove(child)


@contextlib.contextmanager
def all_needed(pids: Sequence[int]) -> Iterator[None]:
    """The same for processes that something else started, and would replace: another one's CPU time is not theirs."""
    _measured.extend(pids)
    try:
        yield
    finally:
        for pid in pids:
            _measured.remove(pid)


def see_all_run() -> None:
    """Errors: RuntimeError where something that was started has ended."""
    for child in _running:
        if child.poll() is not None:
            words = child.args if isinstance(child.args, list) else [child.args]
            raise RuntimeError(f"ended in the middle, with exit code {child.returncode}: {' '.join(map(str, words))}")
    for pid in _measured:
        if not Path(f"/proc/{pid}").exists():
            raise RuntimeError(f"process {pid}, which was measured, ended in the middle")


def on_core(core: int | None) -> Callable[[], None] | None:
    """For subprocess's `preexec_fn`: stay on one core, and so will every child."""
    return None if core is None else lambda: os.sched_setaffinity(0, {core})


@cache
def loadgen() -> Path:
    """`arbiter-loadgen` as this tree's sources have it; cargo compiles what changed."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise RuntimeError("cargo is not here (Debian: apt-get install cargo)")
    command = [cargo, "build", "--release", "--locked", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=SOURCE, stdout=subprocess.PIPE, text=True, timeout=600)
    if built.returncode:
        raise RuntimeError("bench/loadgen did not compile")
    # Where cargo puts its results is a matter of its settings; it says where it was.
    said = (json.loads(line) for line in built.stdout.splitlines())
    return Path(next(one["executable"] for one in said if one.get("executable")))


@contextlib.contextmanager
def mock(*options: str, core: int | None = None, log: IO[bytes] | None = None) -> Iterator[tuple[int, int]]:
    """The mock upstream: its port and its process id. What it complains of goes into `log`."""
    words = [str(loadgen()), "mock", "--port", "0", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, preexec_fn=on_core(core)) as child:
        assert child.stdout is not None
        try:
            with needed(child):
                yield int(json.loads(child.stdout.readline())["port"]), child.pid
        finally:
            child.kill()


def load(url: str, model: str, *options: object, core: int | None = None, timeout_s: float = 300) -> dict[str, Any]:
    """One run of the client: its report, whatever it found. `options` are those of `arbiter-loadgen load`.

    Errors: RuntimeError where it cannot run, is not over in time, or where what it asks has ended meanwhile.
    """
    words = [str(loadgen()), "load", "--url", url, "--model", model, "--json", *map(str, options)]
    give_up = time.monotonic() + timeout_s
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=on_core(core)
    ) as child:
        try:
            while True:
                try:
                    said, complaint = child.communicate(timeout=_LOOK_S)
                    break
                except subprocess.TimeoutExpired:
                    see_all_run()
                    if time.monotonic() > give_up:
                        raise RuntimeError(f"not over after {timeout_s:.0f} s: {' '.join(words)}") from None
        finally:
            child.kill()
    if child.returncode not in (0, 1):  # 1: some answer was wrong, which the report says
        raise RuntimeError(f"{' '.join(words)}: {complaint or f'exit code {child.returncode}'}")
    see_all_run()
    report: dict[str, Any] = json.loads(said)
    return report
