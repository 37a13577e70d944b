"""What it costs to write a row as MessagePack, and to move what an answer said into it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.model import Usage
from bench.recording import rows as made

Twin = Callable[[str], ModuleType]


def test_both_rows_of_a_request(twin: Twin, measure: Callable[..., None]) -> None:
    request = made.request(1)
    attempt = made.attempt(request)
    made.end(request, attempt)
    pack_request, pack_attempt = (twin("rows").Packer(kind).pack for kind in (RequestRow, AttemptRow))

    def run() -> object:
        return pack_attempt(attempt, pack_request(request, b"head"))

    assert run()
    measure(run, units=2)


def test_thirteen_counts_moved(twin: Twin, measure: Callable[..., None]) -> None:
    names = ("input_tokens", "cached_tokens", "cache_write_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens",
             "output_tokens", "reasoning_tokens", "total_tokens", "audio_input_tokens", "audio_output_tokens",
             "web_searches", "provider_cost_pd", "service_tier")  # fmt: skip
    moves = twin("rows").Moves(Usage, AttemptRow, dict(zip(Usage.__struct_fields__, names, strict=True)))
    usage, attempt = Usage(input=12, output=34, total=46), made.attempt(made.request(1))

    def run() -> object:
        return moves(usage, attempt)

    run()
    assert attempt.total_tokens == 46
    measure(run, units=13)
