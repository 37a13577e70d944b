"""What it costs to read the rows of requests that follow each other."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from arbiter.ledger import records
from arbiter.ledger.row import AttemptRow, RequestRow
from bench.recording import rows as made

Twin = Callable[[str], ModuleType]
REQUESTS = 20


def test_both_rows_of_requests(twin: Twin, measure: Callable[..., None]) -> None:
    encoded = []
    for number in range(REQUESTS):
        request = made.request(number)
        attempt = made.attempt(request)
        made.end(request, attempt)
        encoded += records.encode_rows([attempt, request])
    unpack_request, unpack_attempt = (twin("unpacker").Unpacker(kind).unpack for kind in (RequestRow, AttemptRow))

    def run() -> object:
        return [(unpack_attempt(a, 2), unpack_request(r, 2)) for a, r in zip(encoded[::2], encoded[1::2], strict=True)]

    assert run()
    measure(run, units=2 * REQUESTS)
