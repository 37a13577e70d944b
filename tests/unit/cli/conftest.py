"""What the commands read in these tests, where the environment says nothing, and how they are run."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from arbiter.cli import main
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position

CONFIG = """\
providers:
  openai:
    type: openai
    key: SECRET-1
    models: [gpt-5.2, { id: mini, upstream: gpt-5.2-mini-2026 }]
    timeouts: { connect: 250ms }
models:
  - model: openai/mini
    input_usd_per_mtok: 0.250
    cached_input_usd_per_mtok: 0.025
    output_usd_per_mtok: 2
    tiers: [{ above_input_tokens: 200000, input_usd_per_mtok: 0.5, output_usd_per_mtok: 0 }]
aliases: { fast: { pin: openai/mini } }
routing: { default_provider: openai }
auth: { mode: require }
"""

_NAMES = ("HOST", "PORT", "ARBITER_CONFIG", "ARBITER_DATA_DIR", "ARBITER_ADMIN_TOKEN", "ARBITER_PROVIDER_TIMEOUT_MS")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The `arbiter.yaml` of the working directory: one provider, one alias."""
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "arbiter.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(autouse=True)
def a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody says how wide lines may be."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port of ours on which nobody listens, and nobody else can."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        yield deaf.getsockname()[1]


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


Arbiter = Callable[..., Done]


@pytest.fixture
def arbiter(capsys: pytest.CaptureFixture[str]) -> Arbiter:
    """Runs a command in this process: `arbiter("cost", "--db", path)`."""

    def run(*words: object) -> Done:
        code = main([str(word) for word in words])
        done = capsys.readouterr()
        return Done(code, done.out, done.err)

    return run


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[Sequence[RequestRow | AttemptRow]], Path]:
    """Puts rows into a store of its own; where that is."""

    def store(rows: Sequence[RequestRow | AttemptRow]) -> Path:
        path = tmp_path / "arbiter.db"
        made = SqliteStore(path)
        made.write(rows, Position("j", made.position("j") + 1))
        made.close()
        return path

    return store


@pytest.fixture
def costs() -> Callable[[Path], list[int | None]]:
    """What the first two requests of a store cost."""

    def look(path: Path) -> list[int | None]:
        store = SqliteStore(path, readonly=True)
        try:
            found = [store.request(f"r0000000{number}") for number in (1, 2)]
        finally:
            store.close()
        return [entry.request.cost_pd if entry is not None else None for entry in found]

    return look
