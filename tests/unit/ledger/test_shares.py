"""Who used which model, as `/metrics` tells it: by names of the configuration alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arbiter.config.load import parse
from arbiter.ledger import shares
from arbiter.ledger.recorder import Batch
from arbiter.ledger.shares import Shares
from arbiter.metrics import Metrics, render
from tests.fakes.rows import attempt_row, request_row

CONFIG = f"""\
providers:
  north: {{ type: openai, key: SECRET-1, models: [big, {{ id: small, upstream: small-2026 }}] }}
routing: {{ default_provider: north }}
clients: [{{ name: ada, key_hash: "sha256:{"0" * 64}" }}]
"""


class Counted:
    """A stage, and what it has counted."""

    def __init__(self, tmp_path: Path, text: str = CONFIG) -> None:
        self.snapshot = parse(text, "arbiter.yaml", {})
        self.file = tmp_path / "metrics-control.bin"
        self.metrics = Metrics(self.file)
        self.stage = Shares(lambda: self.snapshot, self.metrics)

    def take(self, **fields: Any) -> None:
        request = request_row(1)
        used = {"input_tokens": 7, "cached_tokens": None, "cache_write_tokens": 0, "output_tokens": 3, "cost_pd": None}
        self.stage.stored(Batch([request], [attempt_row(request, **{"provider": "north", **used, **fields})]))

    def told(self) -> list[str]:
        self.metrics.flush()
        return [line for line in render([self.file], "1").splitlines() if line.startswith("arbiter_share_")]


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


def test_a_client_and_a_model_are_told_by_their_names(counted: Counted) -> None:
    """The model's is the declared one, whatever the provider calls it."""
    counted.take(client="ada", model_asked="small-2026", cost_pd=5 * 10**11)
    counted.take(client="ada", model_asked="small-2026", outcome="error", input_tokens=None, output_tokens=None)
    who = 'client="ada",provider="north",model="small"'
    assert counted.told() == [
        f'arbiter_share_attempts_total{{{who},outcome="error"}} 1',
        f'arbiter_share_attempts_total{{{who},outcome="ok"}} 1',
        f'arbiter_share_tokens_total{{{who},type="input"}} 7',
        f'arbiter_share_tokens_total{{{who},type="output"}} 3',
        f"arbiter_share_cost_usd_total{{{who}}} 0.5",
    ]


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        ({"client": None, "model_asked": "big"}, ("", "north", "big")),
        ({"client": "a stranger", "model_asked": "big"}, ("other", "north", "big")),
        ({"client": "ada", "model_asked": "what the caller wrote"}, ("ada", "north", "other")),
        ({"client": "ada", "model_asked": None}, ("ada", "north", "other")),
        ({"client": "ada", "provider": "gone", "model_asked": "big"}, ("ada", "other", "other")),
    ],
)
def test_what_the_configuration_does_not_name_is_other(
    counted: Counted, fields: dict[str, Any], labels: tuple[str, ...]
) -> None:
    """A caller could make a series of each word else."""
    counted.take(**fields)
    names = ",".join(f'{name}="{value}"' for name, value in zip(("client", "provider", "model"), labels, strict=True))
    assert f'arbiter_share_attempts_total{{{names},outcome="ok"}} 1' in counted.told()


def test_there_are_never_more_series_than_the_bound(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MOST_SHARES", 1)
    for model in ("big", "small-2026", "big"):
        counted.take(client="ada", model_asked=model, input_tokens=0, output_tokens=0)
    assert counted.told() == [
        'arbiter_share_attempts_total{client="ada",provider="north",model="big",outcome="ok"} 2',
        'arbiter_share_attempts_total{client="other",provider="other",model="other",outcome="ok"} 1',
    ]


def test_a_reload_brings_its_own_names(counted: Counted) -> None:
    counted.take(client="ada", model_asked="big", input_tokens=0, output_tokens=0)
    counted.snapshot = parse(CONFIG.replace("ada", "bob"), "arbiter.yaml", {})
    counted.take(client="bob", model_asked="big", input_tokens=0, output_tokens=0)
    assert [line.partition(",")[0] for line in counted.told()] == [
        'arbiter_share_attempts_total{client="ada"', 'arbiter_share_attempts_total{client="bob"',
    ]  # fmt: skip
