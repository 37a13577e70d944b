"""The Rust program beside the benchmarks: built from this tree, and run as a mock upstream or as a load."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any

SOURCE = Path(__file__).with_name("loadgen")


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
    command = [str(loadgen()), "mock", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, preexec_fn=on_core(core)) as child:
        assert child.stdout is not None
        try:
            yield int(json.loads(child.stdout.readline())["port"]), child.pid
        finally:
            child.kill()


def load(url: str, model: str, *options: object, core: int | None = None, timeout_s: float = 300) -> dict[str, Any]:
    """One run of the client: its report, whatever it found. `options` are those of `arbiter-loadgen load`."""
    command = [str(loadgen()), "load", "--url", url, "--model", model, "--json", *map(str, options)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=timeout_s, preexec_fn=on_core(core)
    )
    if done.returncode not in (0, 1):  # 1: some answer was wrong, which the report says
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report
