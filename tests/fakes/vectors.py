"""Real servers' streams, `tests/vectors/<format>/<case>/`, and what is expected of them.

A new case is a folder with `request.json`, `upstream.sse` and `source.txt` (where it came from). Where the upstream's
stream is binary (Bedrock's) `upstream.jsonl` has its events in its place, one a line (`tests.fakes.eventstream`), and
the request is a chat client's. The rest is written by

    python -m tests.fakes.vectors tests/vectors/<format>/<case>

and read by a person before it is committed: it says what the code does, and only that person what it should.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from arbiter.model import Event, Started, Usage, UsageReported
from arbiter.wire.dialects.unframing import Unframer
from arbiter.wire.format import FORMATS, UPSTREAMS
from tests.fakes import eventstream

VECTORS = Path(__file__).parents[1] / "vectors"
CASES = sorted(path.parent for wire in UPSTREAMS for path in (VECTORS / wire).glob("*/upstream.*"))


def read_by(case: Path) -> bytes:
    """What the format's reader is fed of a case: its stream, out of its frames where it has such."""
    if not (case / "upstream.jsonl").exists():
        return (case / "upstream.sse").read_bytes()
    frames = Unframer(case.parent.name, 1 << 20)
    data = frames.feed(eventstream.stream((case / "upstream.jsonl").read_text()))
    assert frames.fault is None
    return data


def read(case: Path, piece: int = 0) -> list[Event]:
    """The events of a case, its bytes fed in pieces of that size; 0 is all at once."""
    wire = case.parent.name
    reader, frames = UPSTREAMS[wire].reader(), None
    if (case / "upstream.jsonl").exists():
        data, frames = eventstream.stream((case / "upstream.jsonl").read_text()), Unframer(wire, 1 << 20)
    else:
        data = (case / "upstream.sse").read_bytes()
    pieces = [data[i : i + piece] for i in range(0, len(data), piece)] if piece else [data]
    pieces = [frames.feed(one) for one in pieces] if frames is not None else pieces
    assert frames is None or frames.fault is None
    return [event for one in pieces for event in reader.feed(one)] + reader.finish()


def written(case: Path, client: str) -> bytes:
    """What a client of that format gets."""
    writer = FORMATS[client].writer("T", "m", 1700000000)
    return b"".join(writer.write(event) for event in read(case))


def usage(case: Path) -> dict[str, Any]:
    """The counts that the case's last word says, unknown ones left out."""
    counts = Usage()
    for event in read(case):
        if isinstance(event, UsageReported) or (isinstance(event, Started) and event.usage is not None):
            counts = counts.merged(event.usage or Usage())
    return {name: value for name, value in msgspec.structs.asdict(counts).items() if value is not None}


def expect(case: Path) -> None:
    """Write what is expected of a case."""
    for client in FORMATS:
        (case / f"client.{client}.sse").write_bytes(written(case, client))
    (case / "usage.json").write_text(json.dumps(usage(case), indent=2) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        expect(Path(name).resolve())
