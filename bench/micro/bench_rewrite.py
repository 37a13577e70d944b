"""What it costs to open a request and write it anew: the looks at its bytes on both sides, and the whole of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from arbiter.accounting.sizes import size_of
from arbiter.attempt import lanes
from arbiter.attempt.ask import Ask
from arbiter.attempt.lane import Lane
from arbiter.config.snapshot import Limits
from arbiter.model import Target
from arbiter.wire import native
from arbiter.wire.format import WIRES
from arbiter.wire.headers import Incoming
from tests.fakes.asks import TRACE, rung

Twin = Callable[[str], ModuleType]

TURN = 'def f(x):\n    return {"a": [x, \'y\'], "b": "…"}  # some code, as agents quote it\n'


def body(size: int) -> bytes:
    """A chat request of about `size` bytes, made of turns of 2 KB."""
    turns = [{"role": "user" if n % 2 else "assistant", "content": TURN * 25} for n in range(max(1, size // 2048))]
    tool = {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}
    return json.dumps({"model": "asked", "stream": True, "messages": turns, "tools": [tool] * 8}).encode()


@pytest.mark.parametrize("kib", [1, 200, 4096])
def test_depth(twin: Twin, measure: Callable[..., None], kib: int) -> None:
    data = body(kib << 10)
    nesting = twin("nesting")
    measure(lambda: nesting.fault(data, 200, 1024), units=1)


@pytest.mark.parametrize("ascii", [True, False])
def test_utf8_of_200_kib(twin: Twin, measure: Callable[..., None], ascii: bool) -> None:
    data = body(200 << 10) if ascii else ("多语言的文本，" * 10_000).encode()
    nesting = twin("nesting")
    measure(lambda: nesting.not_utf8(data), units=1)


def test_members_of_200_kib(twin: Twin, measure: Callable[..., None]) -> None:
    """All checks in one look, and where the members are."""
    data, nesting = body(200 << 10), twin("nesting")
    measure(lambda: nesting.members(data, 200, 1024), units=1)


def test_raws_of_1_kib(twin: Twin, measure: Callable[..., None]) -> None:
    """The same, and each member taken."""
    data, nesting = body(1 << 10), twin("nesting")
    measure(lambda: nesting.raws(data, 200, 1024), units=1)


def test_beginning_of_200_kib(twin: Twin, measure: Callable[..., None]) -> None:
    """Which conversation it is: no more of it is looked at than its first turns."""
    messages, nesting = native.open_body(body(200 << 10)).members["messages"], twin("nesting")
    measure(lambda: nesting.beginning(messages, 2, 16 << 10), units=1)


def test_words_in_200_kib(twin: Twin, measure: Callable[..., None]) -> None:
    data, nesting = body(200 << 10), twin("nesting")
    measure(lambda: nesting.begins(data, b"arbiter-reasoning.", b"gemini#"), units=1)


def test_names_in_200_kib(twin: Twin, measure: Callable[..., None]) -> None:
    """Whether any is spelled with an underscore, as Google's may be."""
    data, nesting = body(200 << 10), twin("nesting")
    measure(lambda: nesting.underscored(data), units=1)


def test_size_of_200_kib(benchmark: Any) -> None:
    members = native.open_body(body(200 << 10)).members
    benchmark(lambda: size_of(members))


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic-messages"])
def test_native_lane_of_200_kib(benchmark: Any, wire: str) -> None:
    """From the body to what is sent: every pass over the bytes of a request that nobody need read."""
    format, target, incoming, limits, data = WIRES[wire], rung(wire), Incoming((), ""), Limits(), body(200 << 10)

    def ready() -> Lane:
        opened = native.open_body(data)
        ask = Ask(format, format.path, opened, incoming, limits, stream=opened.stream, trace_id=TRACE)
        return lanes.choose(ask, target)

    assert ready().name == "native"
    benchmark(ready)


@pytest.mark.parametrize("kib", [1, 200, 4096])
def test_open_and_splice(benchmark: Any, kib: int) -> None:
    """One level deep, the model renamed, usage asked for: mostly msgspec's work, so there are no sides to compare."""
    data = body(kib << 10)

    def rewrite() -> native.Spliced:
        return native.splice(native.open_body(data), native.CHAT, "upstream", Target(), asks_usage=True)

    assert json.loads(bytes(rewrite().body))["model"] == "upstream"
    benchmark(rewrite)
