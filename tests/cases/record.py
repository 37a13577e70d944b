"""Print the rows recorded for the model in $CASE_MODEL, oldest first, in the cases' neutral field names.

    CASE_MODEL=case-use-007 python tests/cases/record.py DATABASE

Rows reach the database a moment after the answer has ended, so this waits for the first one, for a bounded time.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 5.0
SOURCES = {"provider": "upstream", "partial": "upstream", "estimated": "estimated", "missing": "missing"}
ENDS = {"ok": "complete", "cancelled": "client_disconnect"}


def rows(database: Path, model: str) -> list[dict[str, Any]]:
    """Every request for `model`, with what its last attempt used."""
    store = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        store.row_factory = sqlite3.Row
        found = store.execute("SELECT * FROM requests WHERE model_asked = ? ORDER BY received_ms, id", (model,))
        requests = [dict(row) for row in found]
        for request in requests:
            last = store.execute(
                "SELECT * FROM attempts WHERE request_id = ? ORDER BY number DESC LIMIT 1", (request["id"],)
            ).fetchone()
            request["last_attempt"] = dict(last) if last else {}
        return requests
    finally:
        store.close()


def neutral(request: dict[str, Any]) -> dict[str, Any]:
    """One recorded request as the cases speak of it; what is unknown stays null."""
    attempt = request["last_attempt"]
    parts = [attempt.get(name) for name in ("input_tokens", "cached_tokens", "cache_write_tokens")]
    known = [part for part in parts if part is not None]
    cost = request["cost_pd"]
    return {
        "model": request["model_asked"],
        "ok": request["outcome"] == "ok",
        "stream": bool(request["stream"]),
        "status": request["status"],
        "input_tokens": sum(known) if parts[0] is not None else None,
        "cached_tokens": attempt.get("cached_tokens"),
        "cache_write_tokens": attempt.get("cache_write_tokens"),
        "cache_write_1h_tokens": attempt.get("cache_write_1h_tokens"),
        "output_tokens": attempt.get("output_tokens"),
        "reasoning_tokens": attempt.get("reasoning_tokens"),
        "cost_usd": None if cost is None else cost / 1e12,
        "usage_source": SOURCES.get(attempt.get("usage_source", "missing"), "missing"),
        "end": ENDS.get(request["outcome"], "upstream_error"),
        "upstream": (attempt.get("provider") or "")[::-1].replace("-", ".", 1)[::-1],
    }


def main() -> None:
    database, model = Path(sys.argv[1]), os.environ["CASE_MODEL"]
    give_up = time.monotonic() + PATIENCE_S
    found: list[dict[str, Any]] = []
    while not found and time.monotonic() < give_up:
        try:
            found = rows(database, model)
        except sqlite3.OperationalError:  # not there yet
            found = []
        if not found:
            time.sleep(0.05)
    json.dump([neutral(row) for row in found], sys.stdout)


if __name__ == "__main__":
    main()
