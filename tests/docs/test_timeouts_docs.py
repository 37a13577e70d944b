"""docs/timeouts.md: every phase and retry key, and figures that are those of `arbiter check`."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from arbiter.cli.check import text
from arbiter.config.load import parse
from arbiter.config.reference import Key, keys
from arbiter.config.snapshot import Budgets
from arbiter.ledger.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/timeouts.md").read_text("utf-8")
ENV = {"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-b"}
RECIPES = re.findall(r"```yaml\n(.*?)```\n\n<!-- waits( \S+=\S+)? -->\n```\n(.*?)```\n<!-- end -->", PAGE, re.DOTALL)


def rows(head: str) -> dict[str, list[str]]:
    """The table whose head begins with `head`, by its first column."""
    table = PAGE.partition(f"\n| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {cell[0].strip("`"): cell for cell in cells}


def below(section: str) -> list[Key]:
    return [key for key in keys() if key.path.rpartition(".")[0] == f"providers.<name>.{section}"]


def test_every_phase_is_explained_with_its_default() -> None:
    explained = rows("phase")
    assert list(explained) == [key.name for key in below("timeouts")] == [phase for phase, _ in Budgets().items()]
    for key in below("timeouts"):
        default = "off" if key.default == "`0`" else key.default or "`60s`, `anthropic`, `bedrock`, `vertex` `120s`"
        assert explained[key.name][1] == default


def test_every_retry_key_is_explained_with_its_default() -> None:
    explained = rows("key")
    assert {name: cells[1] for name, cells in explained.items()} == {key.name: key.default for key in below("retry")}


@pytest.mark.parametrize(("config", "variable", "table"), RECIPES)
def test_a_recipe_loads_and_waits_as_long_as_check_prints(config: str, variable: str, table: str) -> None:
    env = ENV | dict([variable.strip().split("=")] if variable else [])
    snapshot = parse(config, "recipe", env)
    assert f"(docs/timeouts.md)\n{table}" in text(snapshot, "recipe") + "\n"
    assert not [warning for warning in snapshot.warnings if "no key" not in warning]


def test_every_recipe_has_its_figures() -> None:
    assert len(RECIPES) == PAGE.count("```yaml") == 5


def test_the_example_of_check_is_what_check_prints() -> None:
    snapshot = parse("providers: { openai: { type: openai, key: k, models: [gpt-5.2] } }", "a", {})
    shown = re.search(r"```\n(asked for .*?)```", PAGE, re.DOTALL)
    assert shown is not None and shown[1] in text(snapshot, "a")


@pytest.mark.parametrize("query", re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL))
def test_a_query_runs_on_the_ledger(query: str, tmp_path: Path) -> None:
    SqliteStore(tmp_path / "a.db").close()
    with sqlite3.connect(tmp_path / "a.db") as db:
        assert db.execute(query).fetchall() == []
