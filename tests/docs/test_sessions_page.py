"""docs/sessions.md has the code's table of signals, and docs/routing.md every way to select."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from arbiter.config.snapshot import Select
from arbiter.sessions import affinity, signals

ROOT = Path(__file__).parents[2]
SESSIONS = (ROOT / "docs/sessions.md").read_text("utf-8")
ROUTING = (ROOT / "docs/routing.md").read_text("utf-8")


def cells(section: str) -> list[list[tuple[str, ...]]]:
    """The words in code of each cell, row by row, of the table between `<!-- section -->` and `<!-- end -->`."""
    table = SESSIONS.partition(f"<!-- {section} -->\n")[2].partition("<!-- end -->")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [[tuple(re.findall(r"`([^`]+)`", cell)) for cell in row] for row in rows]


def test_the_table_of_signals_is_the_code() -> None:
    assert cells("signals") == [
        [
            (agent.name,),
            agent.headers,
            agent.generic,
            agent.body,
            (agent.parent,) if agent.parent is not None else (),
            agent.user_agents,
        ]
        for agent in signals.AGENTS
    ]


def test_the_table_of_kinds_is_the_code() -> None:
    rows = cells("kinds")
    assert [row[0][0] for row in rows if row[0]] == list(signals.KIND_HEADERS)
    assert rows[0][1] == signals.KINDS
    assert {word for row in rows[1:] for word in row[2]} <= set(signals.KINDS)


def test_what_affinity_leaves_out_is_documented() -> None:
    for word in (*(f"<{name}>" for name in affinity.REMINDERS), affinity.ATTRIBUTION, *affinity.BODY_KEYS):
        assert f"`{word}" in SESSIONS, word
    assert f"at least {affinity.MIN_CHARS} characters" in SESSIONS


def test_every_select_is_documented() -> None:
    assert re.findall(r"^\| `(\w+)`", ROUTING.partition("| `select` |")[2], re.MULTILINE) == list(get_args(Select))
