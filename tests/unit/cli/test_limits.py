"""`arbiter limits`: what providers said, on the console."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from arbiter.cli import main
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position
from tests.fakes.rows import attempt_row, request_row


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "arbiter.db"
    now_ms = time.time_ns() // 1_000_000
    name = "anthropic-ratelimit-unified-5h"
    reset = str(now_ms // 1000 + 3600)
    rows = [
        attempt_row(request_row(number), started_ms=now_ms - minutes * 60_000, finished_ms=now_ms, account=account,
                    rate_limits=kept, **more)
        for number, (minutes, account, kept, more) in enumerate(
            [
                (70, "max", {f"{name}-utilization": "0.2", f"{name}-reset": reset}, {}),
                (10, "max", {f"{name}-utilization": "0.5", f"{name}-reset": reset}, {}),
                (5, None, {"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "250"}, {}),
                (3, None, {"retry-after": "30"}, {"status": 429, "error_class": "rate_limited_transient",
                                                  "outcome": "error", "retry_after_ms": 30_000}),
            ]
        )
    ]  # fmt: skip
    store = SqliteStore(path)
    store.write(rows, Position("j", 1))
    store.close()
    return path


def test_the_console_tells_what_was_said_and_marks_what_was_not(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A projection is labelled as one (SPEC 9.8a)."""
    assert main(["limits", "--db", str(db)]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for begins in ("openai - gpt-5.2 tokens 1,000 250 25%", "openai max 5h 50% 50%", "openai - gpt-5.2 transient 1"):
        assert any(line.startswith(begins) for line in lines), out
    assert "* a projection" in out and "at reset *" in out


def test_the_same_as_json_and_of_one_provider(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits", "--db", str(db), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (window,) = told["windows"]
    assert window["projection"]["is_projection"] is True and window["burn_per_hour"] == pytest.approx(0.3, rel=0.01)
    assert [one["remaining"] for one in told["headroom"]] == [250]
    assert main(["limits", "--db", str(db), "--provider", "nobody"]) == 0
    assert capsys.readouterr().out.startswith("No provider said anything of a limit since ")
    assert main(["limits", "--db", str(db), "--since", "soon"]) == 2
    assert "--since" in capsys.readouterr().err
