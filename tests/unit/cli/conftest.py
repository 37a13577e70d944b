"""The file that the commands read in these tests, where the environment says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

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
