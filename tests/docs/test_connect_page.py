"""docs/connect.md has every agent that can be connected, with the formats and files that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from arbiter.cli.connecting.agents import AGENTS
from arbiter.cli.connecting.aim import Aim, Home

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/connect.md").read_text("utf-8")
ROWS = {
    cells[1].strip().strip("`"): cells for cells in (line.split("|") for line in PAGE.splitlines()) if len(cells) > 5
}


def test_every_agent_has_a_row_and_no_other() -> None:
    assert [name for name in ROWS if name in AGENTS] == list(AGENTS)
    assert set(ROWS) - set(AGENTS) == {"agent", "---"}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agents_formats_and_files_are_told(name: str) -> None:
    _, _, where, speaks, _, _ = ROWS[name]
    agent = AGENTS[name]
    assert tuple(re.findall(r"`(\w+)`", speaks)) == (agent.formats if agent.formats != ("gemini",) else ())
    aim = Aim("http://127.0.0.1:8080", "key", "model", agent.formats[0])
    for settings in agent.steps(aim, Home({}, Path("/home/me"))).files:
        folder = str(settings.path.parent).replace("/home/me", "~")
        assert settings.path.name in where and folder in where


def test_the_readme_names_every_agent() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [name for name in AGENTS if f"`{name}`" not in readme and f"`arbiter connect {name}`" not in readme] == []
