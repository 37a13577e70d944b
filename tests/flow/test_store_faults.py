"""The store stops, stands still, is locked, or has no room, while requests keep coming: nobody notices, no row is lost.

Each fault lasts a few seconds here, and as long as you like by hand: `ARBITER_FAULT_S=20`.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import run
from tests.fakes.gateway import ADMIN, Gateway, until
from tests.fakes.load import Load, check_books, config
from tests.fakes.postgres import PASSWORD, PASSWORD_IN_URL, Postgres
from tests.fakes.stores import Place, PostgresPlace, SqlitePlace
from tests.fakes.witness import Witness

FAULT_S = float(os.environ.get("ARBITER_FAULT_S", "1"))

postgresql = pytest.mark.needs("postgresql")


@pytest.fixture
def witness() -> Iterator[Witness]:
    with Witness() as process:
        yield process


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own, so small that it can be full."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs to mount a small file system: {done.stderr.strip() or 'mount failed'}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """No byte is left on it within."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as out:
        with suppress(OSError):
            while out.write(b"\0" * 65536):
                pass
    room = os.statvfs(disk)
    assert room.f_bavail == 0
    yield
    ballast.unlink()


@contextmanager
def frozen(server: Postgres) -> Iterator[None]:
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


@contextmanager
def stopped(server: Postgres) -> Iterator[None]:
    server.crash()
    try:
        yield
    finally:
        server.start()


def warnings(gateway: Gateway) -> str:
    """What /health/ready has to say; a gateway whose store fails is ready all the same."""
    ready = gateway.get("/health/ready")
    assert ready.status == 200, ready.body
    return " ".join(ready.json["warnings"])


def survive(
    witness: Witness,
    folder: Path,
    url: str,
    fault: Callable[[], Any],
    reason: str,
    *,
    errors: list[str],
    admin_is_down: bool = False,
) -> None:
    """Load before, during and after the fault; then the books are those of the upstream."""

    def is_told() -> bool:
        return re.search(reason, warnings(gateway)) is not None

    async def main() -> None:
        async with Load(gateway.port) as load:
            await load.more(5)
            await asyncio.to_thread(gateway.until_settled, 5)
            with fault():
                await asyncio.sleep(FAULT_S)
                await asyncio.to_thread(until, is_told, f"a warning of {reason!r}", 30)
                before = len(load.outcomes)
                await load.more(20)
                assert await asyncio.to_thread(gateway.metric, "arbiter_journal_depth") > 0
                if admin_is_down:
                    asked = await asyncio.to_thread(gateway.get, "/admin/api/requests", headers=ADMIN, timeout_s=30)
                    assert (asked.status, asked.json["reason"]) == (503, "store_down")
                    said.append(asked.body.decode())
                print(f"{len(load.outcomes)} requests by the end of the fault, {before} when it was told")
            await load.more(5)
        assert all(outcome.is_whole for outcome in load.outcomes)
        print(f"{len(load.outcomes)} requests in all")

    said: list[str] = []
    storage = {"storage": {"url": url}}
    with Gateway(config(witness, **storage), folder, workers=2, expected_errors=errors) as gateway:
        run(main)
        assert set(check_books(gateway, witness)) == {"ok"}
        until(lambda: not warnings(gateway), "no warning")
        assert gateway.metric("arbiter_ledger_dropped_total") == 0
        said.append(gateway.get("/admin/api/state", headers=ADMIN).body.decode())
        shown = [line for line in gateway.lines() if "stored" in line["message"]]
        print(*(f"{line['ts']} {line['message']}" for line in shown), sep="\n")
    for text in (*said, gateway.log):
        assert PASSWORD not in text and PASSWORD_IN_URL not in text


@postgresql
def test_a_server_that_is_gone_is_told_of_while_nobody_asks_anything(
    witness: Witness, tmp_path: Path, postgres: Postgres, server_place: Place
) -> None:
    """Whoever watches `/health/ready` hears of it before the first row has to wait; and that it is back."""
    made = config(witness, storage={"url": server_place.url})
    with Gateway(made, tmp_path, expected_errors=["wait in the journal"]) as gateway:
        until(lambda: not warnings(gateway), "no warning")
        with stopped(postgres):
            until(lambda: "refused" in warnings(gateway), "a warning", 30)
        until(lambda: not warnings(gateway), "no warning", 30)


@pytest.fixture
def server_place(postgres: Postgres) -> Iterator[PostgresPlace]:
    place = PostgresPlace(postgres)
    yield place
    place.close()


@postgresql
def test_a_server_that_stands_still_costs_nobody_anything(
    witness: Witness, tmp_path: Path, postgres: Postgres, server_place: Place
) -> None:
    """Its kernel goes on acknowledging what we send, so nothing fails: it just never answers."""
    reason = r"no answer for \d+ s" if FAULT_S > 15 else "rows wait in the journal"
    errors = ["no answer for", "timeout expired"]
    survive(witness, tmp_path, server_place.url, lambda: frozen(postgres), reason, errors=errors, admin_is_down=True)


@postgresql
def test_a_server_that_is_ended_and_started_again_costs_nobody_anything(
    witness: Witness, tmp_path: Path, postgres: Postgres, server_place: Place
) -> None:
    """At once, in the middle of whatever it did: what it had confirmed is there, nothing else is taken for stored."""
    errors = ["wait in the journal"]
    survive(
        witness, tmp_path, server_place.url, lambda: stopped(postgres), "refused", errors=errors, admin_is_down=True
    )


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=postgresql)])
def test_tables_that_somebody_else_has_cost_nobody_anything(
    witness: Witness, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Another program's transaction, for longer than the recorder waits for its end."""
    place = SqlitePlace(tmp_path / "arbiter.db") if kind == "sqlite" else request.getfixturevalue("server_place")
    survive(witness, tmp_path, place.url, place.held, "lock", errors=["wait in the journal"])


def test_a_full_disk_below_sqlite_costs_nobody_anything(witness: Witness, tmp_path: Path) -> None:
    """The journal is elsewhere; rows wait there until there is room."""
    with small_disk(tmp_path / "disk", 16) as disk:
        place = SqlitePlace(disk / "arbiter.db")
        survive(witness, tmp_path, place.url, lambda: full(disk), "full", errors=["wait in the journal"])


@postgresql
def test_a_full_disk_below_a_server_costs_nobody_anything(witness: Witness, tmp_path: Path, postgres: Postgres) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(postgres.place / "disk", 32))
        stack.callback(postgres.run, "postgres", "DROP TABLESPACE small")
        postgres.give(disk)
        postgres.run("postgres", f"CREATE TABLESPACE small LOCATION '{disk}'")
        place = PostgresPlace(postgres, "TABLESPACE small")
        stack.callback(place.close)
        reason = "No space left|could not write"
        survive(witness, tmp_path, place.url, lambda: full(disk), reason, errors=["wait in the journal"])


def test_a_log_that_is_taken_away_costs_nobody_anything(witness: Witness, tmp_path: Path) -> None:
    """Again and again, under load: it is told of, and without a restart every row is where it is found."""
    database = tmp_path / "arbiter.db"
    log = database.with_name("arbiter.db-wal")

    def was_told(times: int) -> bool:
        return sum("rows are being stored again" in line["message"] for line in gateway.lines()) >= times

    async def main() -> None:
        async with Load(gateway.port) as load:
            for times in range(1, 4):
                await load.more(5)
                await asyncio.to_thread(until, log.exists, "a log")
                log.rename(tmp_path / f"moved-{times}") if times < 3 else log.unlink()
                await asyncio.to_thread(until, lambda times=times: was_told(times), "that rows are stored again", 30)
                listed = await asyncio.to_thread(gateway.get, "/admin/api/requests", headers=ADMIN)
                assert listed.status == 200, listed.body
            await load.more(5)
        assert all(outcome.is_whole for outcome in load.outcomes)

    made = config(witness, storage={"url": f"sqlite:///{database}"})
    with Gateway(made, tmp_path, workers=2, expected_errors=["wait in the journal"]) as gateway:
        run(main)
        assert set(check_books(gateway, witness)) == {"ok"}
        until(lambda: not warnings(gateway), "no warning")
        assert gateway.metric("arbiter_ledger_dropped_total") == 0
    assert SqlitePlace(database).sql("PRAGMA integrity_check") == [("ok",)]
