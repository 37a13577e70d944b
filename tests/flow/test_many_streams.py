"""Thousands of slow streams on one worker: none lost, none mixed up, and what each of them costs."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.fakes.crowd import Crowd, call_all, warm_up, words_of
from tests.fakes.gateway import fds, rss
from tests.fakes.wires import CHAT, MESSAGES, Wire

EVENTS, EVERY_S = 10, 0.5
STREAM_BYTES = 60_000
"""SPEC 3.5: what an open stream may cost."""


@pytest.fixture
def many_files() -> Iterator[None]:
    """Enough descriptors for the callers' side of all streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(hard, 8192)
    if wanted < 4096:
        pytest.skip(f"only {wanted} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wire", "theirs", "count"),
    [(CHAT, CHAT, 1000), (MESSAGES, MESSAGES, 2000), (MESSAGES, CHAT, 1000), (CHAT, MESSAGES, 1000)],
    ids=["chat-1000", "messages-2000", "messages-on-chat-1000", "chat-on-messages-1000"],
)
def test_slow_streams_on_one_worker_are_neither_lost_nor_mixed_up(
    make_front: Any, many_files: None, wire: Wire, theirs: Wire, count: int
) -> None:
    """Each stream repeats its own marker; all of them are open at once, and memory grows by little for each."""
    front = make_front(provider={"connections": {"max": 4000}}, gateway={"env": {"CROWD": f"{wire} {theirs} {count}"}})
    worker = front.worker
    with Crowd(front.upstream, events=EVENTS, every_s=EVERY_S) as crowd:
        # What the first requests cost (code, pools, arenas) is no stream's share.
        uvloop.run(warm_up(front.port, wire, model=theirs.model))
        before, files = rss(worker), fds(worker)
        seen: dict[str, int] = {}

        def look() -> None:
            seen["rss"], seen["fds"] = rss(worker), fds(worker)
            seen["open"] = int(front.metric("arbiter_open_streams"))

        streams = uvloop.run(call_all(crowd, front.port, wire, count, look, model=theirs.model))
    each = (seen["rss"] - before) / count
    print(
        f"{count} {wire} streams from {theirs}: all open after {streams.all_open_s:.1f} s, "
        f"over after {streams.took_s:.1f} s, "
        f"{each / 1000:.1f} KB each, {(seen['fds'] - files) / count:.2f} descriptors each"
    )
    assert seen["open"] == count
    for number, (status, body, is_whole) in enumerate(streams.answers):
        assert (status, is_whole) == (200, True), number
        assert wire.text(body) == "".join(words_of(number, EVENTS)), number
        assert wire.terminal in body
    assert each <= STREAM_BYTES
    rows = front.until_settled(count)
    assert [row["outcome"] for row in rows].count("ok") >= count
    assert front.in_flight() == 0


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(make_front: Any) -> None:
    """The usual soft limit is 1024; a stream takes two."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

    front = make_front(gateway={"preexec": lower})
    for pid in (front.pid, front.worker):
        (line,) = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in line]
        soft, allowed = line.split()[3:5]
        assert soft == allowed
