"""docs/ledger.md and docs/admin.md say what there is: every column, route, parameter and member, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.routing import Mount, Route

from arbiter.config.load import demo_snapshot
from arbiter.control import embedding, main
from arbiter.control.actions import Actions
from arbiter.control.api import Api
from arbiter.control.app import make_app
from arbiter.control.audit import Audit
from arbiter.control.embedding import Embedding
from arbiter.control.price_refresh import PriceRefresh
from arbiter.control.reload import Configuration
from arbiter.control.repricing import Repricing
from arbiter.control.titling import Titling
from arbiter.ledger import audit, journal, query, recorder, schema
from arbiter.ledger.meaning import MAX_PIECES, PIECE_CHARS
from arbiter.ledger.questions import cache, limits, meaning, search
from arbiter.ledger.recorder import RecorderState
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.tariffs import Tariffs

DOCS = Path(__file__).resolve().parents[2] / "docs"
LEDGER = (DOCS / "ledger.md").read_text()
ADMIN = (DOCS / "admin.md").read_text()


def section(text: str, head: str) -> str:
    """What stands under a heading, up to the next one."""
    found = re.search(rf"^## {re.escape(head)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section {head}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of the tables in a text, without heads."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("table", schema.TABLES)
def test_every_column_is_documented_with_its_type(table):
    documented = [(name.strip("`"), kind) for name, kind, _ in rows(section(LEDGER, f"`{table}`"))]
    assert documented == [(column.name, column.kind) for column in schema.columns(schema.TABLES[table])]


def test_every_action_of_an_operator_is_listed():
    listed = next(cells[2] for cells in rows(section(LEDGER, "`audit`")) if cells[0] == "`action`")
    assert [action.strip("` ") for action in listed.split(",")] == list(audit.ACTIONS)


def test_every_table_of_the_store_is_named(tmp_path):
    store = SqliteStore(tmp_path / "a.db")
    for table in store.read(lambda db: db.tables()):
        assert f"`{table}`" in LEDGER, table
    store.close()


def test_the_figures_are_those_of_the_code():
    assert journal.BATCH_S == 0.050 and "50 ms" in LEDGER
    assert journal.BATCH_ROWS == 100 and "are 100" in LEDGER
    assert recorder.BATCH_ROWS == 500 and "at most 500" in LEDGER
    assert recorder.PAUSE_S <= 0.25 and "250 ms" in LEDGER
    assert journal.QUEUE_ROWS == 10_000 and "10,000 rows" in LEDGER
    assert query.MAX_LIMIT == 500 and "1 to 500" in ADMIN
    assert query.MIN_PREFIX == 8 and "first 8 or more characters" in ADMIN
    assert main.QUERY_S == 5 and "more than 5 s" in ADMIN
    assert query.DEFAULT_LIMIT == 50 and "50 if not given" in ADMIN


def test_every_route_is_documented():
    current = Configuration(demo_snapshot(), None)
    actions = [
        *current.routes(),
        *Actions(None, current).routes(),
        *Repricing(None, current, Audit(None, None)).routes(),
    ]
    app = make_app(None, None, current, actions=actions)
    paths = [route.path.replace(":path}", "}") for route in app.routes if isinstance(route, Route | Mount)]
    assert len(paths) >= 13
    for path in paths:
        assert re.search(rf"`(GET |POST )?{re.escape(path)}/?`", ADMIN), path
    for path in re.findall(r"`(?:GET|POST) (/admin/[^`]+)`", ADMIN):
        assert path in paths, path


def test_every_parameter_is_documented():
    documented = [name.strip("`") for name, _ in rows(section(ADMIN, "`GET /admin/api/requests`"))]
    assert sorted(documented) == sorted(query.PARAMETERS)
    for field in query.TOTALS:
        assert f"`{field}`" in ADMIN


def test_every_parameter_of_the_search_is_documented():
    documented = [name.strip("`") for name, _ in rows(section(ADMIN, "`GET /admin/api/search`"))]
    assert sorted(documented) == sorted({*search.PARAMETERS, *meaning.PARAMETERS})


def test_what_is_said_of_vectors_is_so():
    """The figures that whoever pays for them goes by."""
    told = (DOCS / "capture.md").read_text()
    assert f"up to {PIECE_CHARS:,} characters" in told and "the first eight" in told and MAX_PIECES == 8
    assert f"up to {embedding.MAX_PIECES} at once" in told and f"newest {meaning.COMPARED:,} texts" in told
    assert f"after {embedding.WAIT_S:g} s" in told and embedding.LONGEST_WAIT_S == 15 * 60


def test_every_parameter_of_the_report_on_caches_is_documented():
    documented = [name.strip("`") for name, _ in rows(section(ADMIN, "`GET /admin/api/cache`"))]
    assert sorted(documented) == sorted(cache.PARAMETERS)
    assert cache.DEFAULT_SINCE == "24h" and (cache.MAX_LIMIT, cache.DEFAULT_LIMIT) == (500, 10)


def test_every_member_of_the_state_is_documented():
    prices = PriceRefresh(demo_snapshot, Tariffs(demo_snapshot), None)
    titles = Titling(demo_snapshot, None, None, None)
    vectors = Embedding(demo_snapshot, None, None, None)
    told = {"prices": prices.describe(), "titles": titles.describe(), "vectors": vectors.describe()}
    extra = {**Actions(None, demo_snapshot).describe(), **told}
    state = Api(None, RecorderState, demo_snapshot, lambda: extra).describe()
    documented = dict(rows(section(ADMIN, "`GET /admin/api/state`")))
    assert [name.strip("`") for name in documented] == list(state)
    for member, value in state.items():
        for name in value if isinstance(value, dict) else ():
            assert f"`{name}`" in documented[f"`{member}`"], f"{member}.{name}"


def test_every_member_of_the_answer_on_limits_is_documented():
    documented = dict(rows(section(ADMIN, "`GET /admin/api/quota`")))
    assert [name.strip("`") for name in documented] == list(limits.Answer.__struct_fields__)
    parts = {"headroom": limits.Headroom, "refusals": limits.Refusals, "waits": limits.Wait, "windows": limits.Window}
    for member, part in parts.items():
        for name in part.__struct_fields__:
            assert f"`{name}`" in documented[f"`{member}`"], f"{member}.{name}"
    for name in limits.Projection.__struct_fields__:
        assert f"`{name}`" in documented["`windows`"] or f"`{name}: true`" in documented["`windows`"], name
