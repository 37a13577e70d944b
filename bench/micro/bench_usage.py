"""What it costs to read a usage object."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Twin = Callable[[str], ModuleType]
VECTORS = Path(__file__).parents[2] / "tests" / "vectors" / "usage"


@pytest.mark.parametrize("name", ["openai-details", "openrouter", "anthropic-unary", "anthropic-message-delta-plain"])
def test_usage(twin: Twin, measure: Callable[..., None], name: str) -> None:
    vector = json.loads((VECTORS / f"{name}.json").read_bytes())
    raw = json.dumps(vector["usage"], separators=(",", ":")).encode()
    usage = twin("usage")
    read = usage.chat if vector["format"] == "openai-chat" else usage.messages

    def run() -> object:
        return read(raw)

    assert run() is not None
    measure(run, units=1)
