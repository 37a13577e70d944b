"""`arbiter connect` in an empty home directory, against what tells of models as a gateway does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arbiter.cli import main
from tests.fakes.homes import MODELS
from tests.fakes.pages import Page, Site, serving

_VARIABLES = [
    *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "QWEN_HOME", "PI_CODING_AGENT_DIR"),
    *("CONTINUE_GLOBAL_DIR", "LLM_USER_PATH", "ARBITER_KEY"),
]


@pytest.fixture
def home(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory, where the environment says nothing of settings."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def site() -> Iterator[Site]:
    """A gateway, as far as it tells of its models."""
    with serving() as site:
        site.pages["/v1/models"] = Page(200, json.dumps({"object": "list", "data": MODELS}).encode())
        yield site


Result = tuple[int, str, str]


@pytest.fixture
def connect(home: Path, site: Site, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `arbiter connect AGENT` against the site, without a URL where it is to be remembered."""

    def run(agent: str, *arguments: str, url: str | None = site.url) -> Result:
        code = main(["connect", agent, *(["--url", url] if url else []), *arguments])
        return (code, *capsys.readouterr())

    return run
