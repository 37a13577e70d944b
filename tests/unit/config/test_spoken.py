"""The dated snapshot of who speaks what: it warns, it has an age, and nothing is routed by it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from arbiter import clock
from arbiter.app import supervisor
from arbiter.cli import serve
from arbiter.config import spoken
from arbiter.config.load import Source, parse
from arbiter.config.snapshot import APIS
from arbiter.routing.plan import Rung

OLD = datetime.combine(spoken.AS_OF, datetime.min.time(), UTC) + timedelta(days=spoken.MAX_AGE_DAYS)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def test_it_is_overdue_after_ninety_days_and_not_before() -> None:
    """SPEC 6.6a."""
    assert spoken.overdue(0) is None and spoken.overdue(ms(OLD + timedelta(hours=23))) is None
    said = spoken.overdue(ms(OLD + timedelta(days=1)))
    assert said is not None and "91 days old" in said and str(spoken.AS_OF) in said


def test_every_api_in_it_is_one_that_a_model_may_name() -> None:
    assert {api for apis in spoken.SPOKEN.values() for api in apis} <= APIS.keys()


def test_an_api_that_its_vendor_had_not_is_doubted_and_asked_all_the_same() -> None:
    models = "[{ id: a, api: messages }, { id: b, api: chat }, c]"
    snapshot = parse(f"providers: {{ up: {{ type: openai, key: k, models: {models} }} }}", "a.yaml", {})
    (warning,) = snapshot.warnings
    assert "a is asked through `api: messages`, which api.openai.com did not have on" in warning
    up = snapshot.providers["up"]
    assert [Rung(up, model.upstream, api=model.api).wire for model in up.models] == [
        "anthropic-messages",
        "openai-chat",
        "openai-chat",
    ]
    elsewhere = f"providers: {{ up: {{ type: openai, key: k, endpoint: 'https://own.test/v1', models: {models} }} }}"
    assert parse(elsewhere, "a.yaml", {}).warnings == ()


@pytest.mark.parametrize("days", [0, 1])
def test_a_process_that_starts_with_an_old_one_says_so_once(
    days: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A warning, and no more: it serves as ever."""
    config = tmp_path / "arbiter.yaml"
    config.write_text("providers: { echo: { type: echo, models: [echo] } }\nstorage: { url: none }\n")
    monkeypatch.setattr(clock, "now_ms", lambda: ms(OLD + timedelta(days=days)))
    served = []
    monkeypatch.setattr(supervisor, "serve", lambda snapshot, *_, **__: served.append(snapshot) or 0)
    assert serve.start(Source(config, {"ARBITER_DATA_DIR": str(tmp_path)})) == 0 and len(served) == 1
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    told = [line for line in lines if "days old" in json.dumps(line)]
    assert len(told) == days and all(line["level"] == "warn" for line in told)
