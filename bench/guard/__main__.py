"""Count the instructions of the micro-benchmarks, and fail where one takes many more than its baseline.

    python -m bench.guard              compare with bench/guard/baseline.json (about two minutes; needs valgrind)
    python -m bench.guard --record     write the baseline anew, after a change that is meant to cost

Instructions, not time: callgrind's count is the same whatever else the machine does. The interpreter, the compiler and
the libraries differ between machines, so the bound is generous. Where Python's minor version is another, or only one of
the two processors has AVX2 (the compiled scanners choose by it), the counts are only printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import tools

ROOT = Path(__file__).resolve().parents[2]
BASELINE = Path(__file__).with_name("baseline.json")
BOUND = 1.5


def circumstances() -> dict[str, Any]:
    """What the counts depend on, as it is here."""
    # In the kernel's words, which are those that the scanners' `wide.h` asks for.
    flags = Path("/proc/cpuinfo").read_text("utf-8").split()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"python": python, "avx2": "avx2" in flags and "bmi1" in flags}


def other(here: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """In what `here` is not as it was where the baseline is of."""
    return [f"{name} is {now}, in the baseline {known[name]}" for name, now in here.items() if known[name] != now]


def count(folder: Path, valgrind: str) -> dict[str, int]:
    """Instructions of one run of each case, by its name; RuntimeError with what was printed where a case fails."""
    from bench.guard import counted  # pytest's, which the gateway does without

    names, out = folder / "names.json", folder / "out"
    env = os.environ | {counted.NAMES: str(names), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [
            valgrind, "--tool=callgrind", "--vgdb=no", f"--callgrind-out-file={out}",
            "--dump-before=getppid", "--combine-dumps=no",
            sys.executable, "-m", "pytest", "-q", "bench/micro", "-p", "no:benchmark", "-p", "no:cacheprovider",
            "-p", "bench.guard.counted",
        ],
        cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{done.stdout[-3000:]}\n{done.stderr[-2000:]}\npytest: exit code {done.returncode}")
    # Dumps are numbered from 1 and each ends at a mark: before the first case, in it, before the second, ...
    cases = json.loads(names.read_text("utf-8"))
    return {case: total(folder / f"out.{2 * n + 2}") // counted.RUNS for n, case in enumerate(cases)}


def total(dump: Path) -> int:
    found = re.search(r"^(?:totals|summary): (\d+)", dump.read_text("utf-8", "replace"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{dump} has no total")
    return int(found.group(1))


def judged(now: dict[str, int], before: dict[str, int]) -> tuple[list[str], list[str]]:
    """The table's lines, and what is wrong: a case over the bound or without a baseline, a baseline without a case."""
    lines = [f"{'instructions each':58} {'baseline':>12} {'now':>12} {'ratio':>7}"]
    wrong = []
    for name in sorted(now.keys() | before.keys()):
        a, b = before.get(name), now.get(name)
        ratio = b / a if a and b is not None else None
        cells = ["–" if number is None else f"{number:,}" for number in (a, b)]
        lines.append(f"{name:58} {cells[0]:>12} {cells[1]:>12} {f'{ratio:.2f}' if ratio else '–':>7}")
        if a is None or b is None:
            what = "no baseline" if a is None else "not counted any more"
            wrong.append(f"{name}: {what}; --record when that is meant")
        elif ratio is not None and ratio > BOUND:
            wrong.append(f"{name}: {ratio:.2f} times its baseline (bound {BOUND})")
    return lines, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__.partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="write the baseline instead of comparing with it")
    options = parser.parse_args()
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        parser.error("valgrind is not here (Debian: apt-get install valgrind)")
    with tempfile.TemporaryDirectory(prefix="bench-guard-") as folder:
        now = count(Path(folder), valgrind)
    if options.record:
        known = {**circumstances(), "instructions": now}
        BASELINE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
        print(f"{len(now)} cases recorded")
        return 0
    known = json.loads(BASELINE.read_text("utf-8"))
    lines, wrong = judged(now, known["instructions"])
    print("\n".join(lines))
    if differences := other(circumstances(), known):
        print(f"nothing is asserted: {'; '.join(differences)}")
        return 0
    for one in wrong:
        print(f"WRONG {one}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    tools.command(main)
