"""What it costs to bring the rows of a batch into the form in which a store's statements take them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from arbiter.ledger.row import AttemptRow
from arbiter.ledger.tables import ATTEMPTS
from bench.recording import rows as made

Twin = Callable[[str], ModuleType]
ROWS = 100


def test_attempts_of_a_batch(twin: Twin, measure: Callable[..., None]) -> None:
    columns, rows = twin("columns"), []
    for number in range(ROWS):
        request = made.request(number)
        rows.append(made.attempt(request))
        made.end(request, rows[-1])
    take = columns.Taker(AttemptRow, ATTEMPTS.names).take

    def run() -> object:
        used = [column for column in take(rows) if column is not None]
        return columns.together(used, [columns.varies(column) for column in used], ROWS, 10)

    assert run()
    measure(run, units=ROWS)
