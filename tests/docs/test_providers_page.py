"""docs/providers.md is whole and true: every type has its row, and what it shows to be written loads as it is shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from arbiter.config import schema
from arbiter.config.load import parse
from arbiter.config.vendors import WIRES

PAGE = Path("docs/providers.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.split("\n") if line.startswith("| ")][1:]
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
ENV = dict.fromkeys(re.findall(r"\$\{(\w+)\}", PAGE), "sk-x")


def test_every_type_has_a_row() -> None:
    """Echo excepted, which is nobody's."""
    declared = set(get_args(get_args(get_type_hints(schema.Provider, include_extras=True)["type"])[0]))
    assert declared == set(WIRES)
    assert {row[1].strip("`") for row in ROWS} == declared - {"echo"}


@pytest.mark.parametrize("row", [row for row in ROWS if row[2].startswith("`http")], ids=lambda row: row[0])
def test_an_endpoint_of_the_table_can_be_written(row: list[str]) -> None:
    text = f"providers: {{ up: {{ type: {row[1].strip('`')}, endpoint: '{row[2].strip('`')}', key: k, models: [m] }} }}"
    assert [said for said in parse(text, "a.yaml", {}).warnings if "the key crosses the network" not in said] == []


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_loads_as_it_is_shown(number: int) -> None:
    """And what is commented out in it in place of something else."""
    assert parse(EXAMPLES[number], "a.yaml", ENV).warnings == ()
    other = re.sub(r"^    key: .*\n", "", re.sub(r"^    # ", "    ", EXAMPLES[number], flags=re.M), flags=re.M)
    if other.count("access_key_id"):
        (up,) = parse(other, "a.yaml", ENV).providers.values()
        assert (up.accounts[0].access_id, up.accounts[0].session_token) == ("sk-x", "sk-x")
