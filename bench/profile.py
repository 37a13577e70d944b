"""Where a request's time goes in a worker, and print it as Markdown.

    python -m bench.profile                   one minute: threads, stages, system calls, functions
    python -m bench.profile --only stream     of another workload of bench.path
    python -m bench.profile --crossing        of a Messages client on the mock's Chat
    python -m bench.profile --instructions    only the machine's instructions, under callgrind (needs valgrind)
    python -m bench.profile --tree ../other   of another tree of the code, compiled and with a .venv of its own

*Threads*: CPU time and context switches, as the kernel counts them. *Stages*: whom the loop's thread was found in, each
so many microseconds of its CPU time: a function with all that it calls, which has a line of its own where it is a stage
as well; what is compiled, as the reading of an upstream's answer is, counts where it was called from. *System calls*
need strace. *Functions*: what the interpreter executed of each, and how often it was called; these are counts, alike on
every machine however busy it is, so two trees can be told apart by one percent.
*Instructions* are what the processor executes of it all, the kernel's not included, and of which functions in C.

The gateway runs as `python -m bench.profile --inside ...`: the command line, with the instruments in its worker.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bench import tools
from bench.path import peers, process
from bench.path.__main__ import WORKLOADS, Workload, drive, machine, settle, small, versions

STAGES = (
    ("app.rsgi:Exchange.__init__", "the edge: what Granian hands over"),
    ("app.endpoints:generate", "one request of a model, all of it"),
    ("app.body:read_body", "the body's end awaited"),
    ("wire.native:open_body", "the body opened"),
    ("gateway:_understood", "who asks, where it belongs, where it may go"),
    ("sessions.affinity:Affinity.slot", "the conversation's slot"),
    ("attempt.conversation:Conversation.__init__", "the look at the shared state"),
    ("attempt.made_lanes:MadeLanes.of", "the lane: what goes upstream"),
    ("ledger.book:Book.open", "the attempt's row, opened in the journal"),
    ("upstream.transport:Transport.send", "sent upstream, but for waiting"),
    ("attempt.native_lane:NativeLane.whole", "what the answer says of itself"),
    ("app.out:Out.reply", "handed to Granian"),
    ("attempt.live:Live.close", "the attempt's row, completed"),
    ("gateway:_settle", "the request's row and its metrics"),
    ("ledger.prefix:Prefixes._read_begun", "the prompt's identity"),
    ("ledger.journal:Journal.flush", "rows written to the journal"),
)
_SAMPLE_NS = 1_000_000
_SIGEV_THREAD_ID, _CLOCK_THREAD_CPUTIME_ID = 4, 3
ON, OFF = {"stages": signal.SIGUSR1, "functions": signal.SIGUSR2}, signal.SIGWINCH
OUT = "ARBITER_PROFILE"  # in the environment: where the worker leaves what it found


# ------------------------------------------------------------------------------------------------ in the worker


class _Timespec(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


class _Every(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("first", _Timespec))


class _Event(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_int * 11),
    )


def name_of(frame: FrameType) -> str:
    """The function that it runs, `module:name` as `STAGES` has them."""
    module: str = frame.f_globals.get("__name__", "")
    return f"{module.removeprefix('arbiter.')}:{frame.f_code.co_qualname}"


def sampled(found: collections.Counter[str]) -> Callable[[], None]:
    """Count the functions that this thread is in, by its own CPU time; returns how to stop. A function counts once in
    each sample."""
    libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
    event = _Event(None, signal.SIGPROF, _SIGEV_THREAD_ID, threading.get_native_id())

    def tick(_: int, frame: FrameType | None) -> None:
        names = set()
        while frame is not None:
            names.add(name_of(frame))
            frame = frame.f_back
        found.update(names)
        found[""] += 1

    signal.signal(signal.SIGPROF, tick)
    signal.siginterrupt(signal.SIGPROF, False)
    if libc.timer_create(_CLOCK_THREAD_CPUTIME_ID, ctypes.byref(event), ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), "timer_create")
    step = _Timespec(0, _SAMPLE_NS)
    libc.timer_settime(timer, 0, ctypes.byref(_Every(step, step)), None)
    return lambda: libc.timer_delete(timer)


def traced(found: collections.Counter[str]) -> Callable[[], None]:
    """Count what the interpreter executes of each function (`ops NAME`), and its calls (`calls NAME`)."""
    ops: collections.Counter[CodeType] = collections.Counter()
    calls: collections.Counter[CodeType] = collections.Counter()
    names: dict[CodeType, str] = {}

    def inside(frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            ops[frame.f_code] += 1
        return inside

    def called(frame: FrameType, _: str, __: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        calls[frame.f_code] += 1
        if frame.f_code not in names:
            names[frame.f_code] = name_of(frame)
        return inside

    def stop() -> None:
        sys.settrace(None)
        for kind, counts in (("ops", ops), ("calls", calls)):
            for code, count in counts.items():
                found[f"{kind} {names[code]}"] += count

    sys.settrace(called)
    return stop


def inside(arguments: list[str]) -> int:
    """The command line, and in its worker an instrument for each signal of `ON`; `OFF` writes down what it found."""
    from arbiter.app.worker import Worker
    from arbiter.cli import main

    start = Worker.start

    async def begun(self: Worker) -> None:
        await start(self)
        found: collections.Counter[str] = collections.Counter()
        running: list[Callable[[], None]] = []

        def begin(measure: Callable[[collections.Counter[str]], Callable[[], None]]) -> None:
            found.clear()
            running.append(measure(found))

        def end() -> None:
            running.pop()()
            Path(os.environ[OUT]).write_text(json.dumps(found), "utf-8")

        self.loop.add_signal_handler(ON["stages"], begin, sampled)
        self.loop.add_signal_handler(ON["functions"], begin, traced)
        self.loop.add_signal_handler(OFF, end)

    Worker.start = begun  # type: ignore[method-assign]
    sys.argv[0] = "arbiter"
    return main(arguments)


# ------------------------------------------------------------------------------------------------ from outside


@contextlib.contextmanager
def instrument(worker: int, kind: str, out: Path) -> Iterator[dict[str, int]]:
    """What the worker finds while the block runs; complete behind it."""
    found: dict[str, int] = {}
    out.unlink(missing_ok=True)
    os.kill(worker, ON[kind])
    time.sleep(0.2)
    yield found
    os.kill(worker, OFF)
    for _ in range(100):
        time.sleep(0.1)
        with contextlib.suppress(OSError, ValueError):
            found.update(json.loads(out.read_text("utf-8")))
            return
    raise RuntimeError("the worker did not say what it found")


def threads(pid: int) -> dict[str, tuple[float, int, int]]:
    """Of each thread its CPU time in microseconds, and how often it waited and was interrupted."""
    found = {}
    for task in (process.PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(OSError):
            status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
            ran_us = int((task / "schedstat").read_text().split()[0]) / 1000
            found[task.name] = ran_us, int(status["voluntary_ctxt_switches"]), int(status["nonvoluntary_ctxt_switches"])
    return found


def system_calls(worker: int, out: Path, run: Callable[[], Any]) -> collections.Counter[tuple[bool, str]]:
    """How often each was made: (by the loop's thread?, its name). Empty without strace."""
    found: collections.Counter[tuple[bool, str]] = collections.Counter()
    if shutil.which("strace") is None:
        return found
    tracer = subprocess.Popen(["strace", "-f", "-q", "-o", str(out), "-p", str(worker)])
    time.sleep(0.5)
    try:
        run()
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)
    for line in out.read_text("utf-8", "replace").splitlines():
        if (call := re.match(r"(\d+) +(\w+)\(", line)) is not None:
            found[int(call[1]) == worker, call[2]] += 1
    return found


def instructions(workload: Workload, tree: Path, crossing: bool) -> str:
    """What a request takes of each thread, and in which C functions of the loop's: a Markdown table."""
    if shutil.which("valgrind") is None:
        raise RuntimeError("valgrind is not here (Debian: apt-get install valgrind)")
    with tempfile.TemporaryDirectory(prefix="bench-profile-") as tmp:
        folder = Path(tmp)
        under = (
            "valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes",
            "--separate-threads=yes", f"--callgrind-out-file={folder}/counted.%p",
        )  # fmt: skip
        with gateway(workload, tree, folder, (*under, _python(tree), "-m", "arbiter")) as peer:
            worker, run = peer.serving, partial(complete, _way(peer, crossing), workload)
            run()
            for command in (["-i", "on"], None, ["-i", "off"], ["-d"]):
                if command is None:
                    run()
                else:
                    subprocess.run(["callgrind_control", *command, str(worker)], check=True, capture_output=True)
        # One file for each thread that ran meanwhile; the loop's is the first.
        dumps = sorted(folder.glob(f"counted.{worker}.1-*"))
        lines = [f"`{workload.name}`, of one request:", "", "| | instructions |", "|---|---|"]
        for dump in dumps:
            found = re.search(r"^totals: (\d+)", dump.read_text("utf-8", "replace"), re.MULTILINE)
            each = int(found[1]) / workload.requests if found else 0
            if each > 1_000:
                thread = int(dump.name.rpartition("-")[2])
                name = "**the loop's thread**" if thread == 1 else f"another ({thread})"
                lines.append(f"| {name} | {each:,.0f} |")
        listed = subprocess.run(
            ["callgrind_annotate", "--threshold=80", "--auto=no", str(dumps[0])],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        functions: collections.Counter[str] = collections.Counter()  # a recursive one is listed for each depth
        for count, name in re.findall(r"^ *([\d,]+) \([^)]*\) +\S*?:([^\s':]+)", listed.stdout, re.MULTILINE):
            functions[name] += int(count.replace(",", ""))
        lines += [f"| `{name}` | {count / workload.requests:,.0f} |" for name, count in functions.most_common(40)]
        return "\n".join(lines)


def told(workload: Workload, measured: dict[str, Any]) -> str:
    requests = workload.requests
    lines = [
        f"`{workload.name}`, of one request:",
        "",
        "| thread | CPU µs | waits | interrupted |",
        "|---|---|---|---|",
    ]
    for name, (us, waits, interrupted) in measured["threads"].items():
        lines.append(f"| {name} | {us / requests:.1f} | {waits / requests:.2f} | {interrupted / requests:.2f} |")
    stages, loop_us = measured["stages"], measured["loop_us"] / requests
    lines += ["", f"| the loop's thread, {loop_us:.0f} µs ({stages.get('', 0):,} samples) | µs |", "|---|---|"]
    for name, what in STAGES:
        if count := stages.get(name):
            lines.append(f"| {what} (`{name}`) | {loop_us * count / stages['']:.1f} |")
    if calls := measured["calls"]:
        lines += ["", "| system call | the loop's thread | the others |", "|---|---|---|"]
        for name in sorted({name for _, name in calls}, key=lambda name: -calls[True, name] - calls[False, name])[:14]:
            lines.append(f"| {name} | {calls[True, name] / requests:.2f} | {calls[False, name] / requests:.2f} |")
    functions = measured["functions"]
    ops = {name[4:]: count for name, count in functions.items() if name.startswith("ops ")}
    made = {name[6:]: count for name, count in functions.items() if name.startswith("calls ")}
    lines += ["", "| function | executed | calls |", "|---|---|---|"]
    lines.append(f"| **all** | **{sum(ops.values()) / requests:,.0f}** | **{sum(made.values()) / requests:.1f}** |")
    for name in sorted(ops, key=lambda name: -ops[name])[:40]:
        lines.append(f"| `{name}` | {ops[name] / requests:.0f} | {made.get(name, 0) / requests:.2f} |")
    return "\n".join(lines)


def complete(peer: peers.Peer, workload: Workload) -> None:
    """One run of the client, of which every answer has to be right."""
    cores = sorted(os.sched_getaffinity(0))
    report = drive(cores[1] if len(cores) > 1 else None, peer, workload)
    if report["errors"]:
        raise RuntimeError(f"{report['errors']} answers are wrong: {report['complaint']}")


def _way(peer: peers.Peer, crossing: bool) -> peers.Peer:
    return peers.crossings(peer)[0] if crossing else peer


@contextlib.contextmanager
def gateway(workload: Workload, tree: Path, folder: Path, command: Iterable[str]) -> Iterator[peers.Peer]:
    """The tree's gateway, started by this command, before a mock upstream; each has a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    peers.ROOT, peers.ARBITER = tree, list(command)
    answers = {workload.answer, small(workload).answer}
    with (
        peers.mock(folder, theirs) as mock,
        peers.arbiter(folder, ours, mock.port, answers, patience_s=180) as peer,  # under callgrind it takes its time
    ):
        yield peer


def measure(workload: Workload, tree: Path, sampled_times: int, crossing: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-profile-") as tmp, contextlib.ExitStack() as stack:
        folder = Path(tmp)
        out = folder / "found"
        os.environ[OUT] = str(out)
        itself = (_python(tree), str(Path(__file__).resolve()), "--inside")
        peer = stack.enter_context(gateway(workload, tree, folder, itself))
        assert peer.serving is not None
        worker, run = peer.serving, partial(complete, _way(peer, crossing), workload)

        run()
        settle(peer)
        before = threads(worker)
        run()
        after = threads(worker)
        spent: dict[str, tuple[float, int, int]] = {}
        for task, (us, waits, interrupted) in after.items():
            was = before.get(task, (0.0, 0, 0))
            name = "the loop's" if int(task) == worker else f"another ({task})"
            if us - was[0] > workload.requests / 4:  # a quarter of a microsecond per request
                spent[name] = us - was[0], waits - was[1], interrupted - was[2]
        with instrument(worker, "stages", out) as stages:
            for _ in range(sampled_times):
                run()
        calls = system_calls(worker, folder / "strace", run)
        with instrument(worker, "functions", out) as functions:
            run()
    return {
        "threads": spent,
        "loop_us": spent["the loop's"][0],
        "stages": stages,
        "calls": calls,
        "functions": functions,
    }


def _python(tree: Path) -> str:
    own = tree / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def main() -> int:
    if sys.argv[1:2] == ["--inside"]:
        return inside(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=WORKLOADS[0].name, help="the first workload whose name contains this")
    parser.add_argument("--requests", type=tools.at_least_one, help="of a run (3,000; with --instructions 500)")
    parser.add_argument("--smoke", action="store_true", help="only try whether everything works")
    parser.add_argument("--crossing", action="store_true", help="a Messages client on the mock's Chat")
    parser.add_argument("--instructions", action="store_true", help="only count the processor's instructions")
    parser.add_argument("--tree", type=Path, default=peers.ROOT, help="another tree of the code")
    options = parser.parse_args()
    workload = next((w for w in WORKLOADS if options.only in w.name), None)
    if workload is None:
        parser.error(f"no workload's name contains {options.only!r}")
    if not (options.tree / "arbiter" / "__init__.py").exists():
        parser.error(f"{options.tree} is no tree of the code")
    requests = 64 if options.smoke else 500 if options.instructions else 3_000
    workload = replace(workload, requests=options.requests or requests)
    tools.say_smoke(options.smoke)
    busy, tree = os.getloadavg()[0], options.tree.resolve()
    if options.instructions:
        found = instructions(workload, tree, options.crossing)
    else:
        found = told(workload, measure(workload, tree, 1 if options.smoke else 20, options.crossing))
    print(f"On {machine()}, load {busy:.1f}; {versions()}. {found}")
    return 0


if __name__ == "__main__":
    tools.command(main)
