"""Content in a store as a worker and control would have put it there.

keep(folder, place.open, heard("r1", {"model": "m", "messages": [...]}, answer=b"..."))
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arbiter import clock
from arbiter.config.load import parse
from arbiter.config.snapshot import Capture as Settings
from arbiter.config.snapshot import Snapshot
from arbiter.ledger.capture import Capture, Heard
from arbiter.ledger.capture_keeper import Keeper
from arbiter.ledger.store import Store
from arbiter.wire import native


def heard(
    request_id: str,
    body: dict[str, Any],
    *,
    answer: bytes = b"",
    format: str = "anthropic-messages",
    headers: dict[str, str] | None = None,
) -> Heard:
    """What passed of a request that was answered in one piece."""
    raw = json.dumps({"model": "m", **body}).encode()
    members = native.open_body(raw).members
    return Heard(request_id, clock.now_ms(), format, members, [answer], False, headers or {}, [], len(raw))


def keep(
    folder: Path,
    open_store: Callable[[], Store],
    *found: Heard,
    snapshot: Callable[[], Snapshot] = lambda: parse("providers: { a: { type: echo } }", "t", {}),
    **settings: Any,
) -> None:
    """Have it all stored, by way of LMDB in `folder`."""
    capture = Capture(folder, Settings(**{"content": True, **settings}), frozenset(), 16 << 20)
    for one in found:
        capture.take(one)
    capture.close()
    assert capture.dropped == 0
    keeper = Keeper(folder, snapshot, open_store)
    while keeper.step():
        pass
    keeper.close()
