"""What it costs to open a request and write it anew: the looks at its bytes on both sides, and the whole of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from arbiter.model import Target
from arbiter.wire import native

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


@pytest.mark.parametrize("kib", [1, 200, 4096])
def test_open_and_splice(benchmark: Any, kib: int) -> None:
    """One level deep, the model renamed, usage asked for: mostly msgspec's work, so there are no sides to compare."""
    data = body(kib << 10)

    def rewrite() -> native.Spliced:
        return native.splice(native.open_body(data), native.CHAT, "upstream", Target(), asks_usage=True)

    assert json.loads(rewrite().body)["model"] == "upstream"
    benchmark(rewrite)
