"""kill -9 of any process at any moment, under all sorts of load: afterwards the books equal what the upstream saw.

`ARBITER_KILLS=200 pytest tests/flow/test_processes_at_random.py -s` takes longer and tells what it counted.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.gateway import Gateway, until
from tests.fakes.notary import Notary
from tests.fakes.siege import Siege, reckon
from tests.fakes.wires import config

KILLS = int(os.environ.get("ARBITER_KILLS", "20"))
SEED = int(os.environ.get("ARBITER_SEED", "7"))
RETRY = {"retry": {"attempts": 3}}


@pytest.mark.slow
def test_whoever_is_killed_and_when_the_books_equal_what_the_upstream_saw(tmp_path: Path) -> None:
    """One row for each try that the upstream saw and for none that it did not; each in a request that counts it."""
    with Notary() as notary:
        gateway = Gateway(config(notary.port, provider=RETRY), tmp_path, workers=3)
        with gateway, Siege(gateway, seed=SEED) as siege:
            siege.kill_at_random(KILLS)
            until(lambda: sum(row["outcome"] == "ok" for row in gateway.requests()) > 10 * KILLS, "some to reckon with")
            asked = siege.end()
            books = reckon(gateway, notary, asked)
            print(f"\n{dict(siege.killed)} killed; {len(asked)} asked: {dict(Counter(one.kind for one in asked))}")
            print(books)
    whole = sum(one.is_whole for one in asked)
    assert whole > 10 * KILLS and books.requests["interrupted"] > 0 and books.requests["error"] > 0
    assert set(books.requests) <= {"ok", "error", "cancelled", "interrupted"}
    # Answered in the very moment of its worker's death, and of no attempt: only a refusal can be.
    assert {one.kind for one in books.unheard_answers} <= {"refused"}
    assert sum(books.attempts.values()) == sum(books.sights.values()) + books.unsent
