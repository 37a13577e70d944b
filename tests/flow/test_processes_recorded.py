"""What is written down, where, for whose eyes; and what becomes of it when the books cannot be kept."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from arbiter.config.snapshot import key_digest
from tests.fakes.client import Answer, Caller, ask, exchange, request, run
from tests.fakes.gateway import ADMIN, ADMIN_TOKEN, Gateway, run_dir, until
from tests.fakes.load import PATH, Load, call, check_books, config, new_name
from tests.fakes.witness import Witness

CLIENT_KEY = "ak-the-key-of-a-client"
UPSTREAM_KEY = "sk-upstream-secret"  # what `config` gives its provider


@pytest.fixture
def witness() -> Iterator[Witness]:
    with Witness() as process:
        yield process


async def ask_many(gateway: Gateway, count: int) -> list[Answer]:
    """So many whole answers, one after the other, over one connection."""
    async with await Caller.connect(gateway.port) as caller:
        return [await caller.exchange(call(new_name(), stream=False)) for _ in range(count)]


def silence(gateway: Gateway) -> int:
    """Stop the control process, so that rows stay in the journal. Returns its pid, for SIGCONT."""
    control: int = until(lambda: gateway.control, "the control process")
    until(lambda: gateway.metric("arbiter_journal_depth") == 0, "an empty journal")
    os.kill(control, signal.SIGSTOP)
    return control


def test_whatever_the_gateway_makes_is_for_its_own_user(witness: Witness, tmp_path: Path) -> None:
    """Rows, journal, state, sockets and numbers: files 0600, directories 0700 (SPEC 14.3)."""
    with Gateway(config(witness), tmp_path) as gateway:
        run(lambda: ask_many(gateway, 3))
        gateway.until_settled(3)
        found = []
        for root in (gateway.data, run_dir(gateway)):
            found += [root, *root.rglob("*")]
        names = {path.name for path in found}
        assert names >= {"arbiter.db", "arbiter.db-wal", "data.mdb", "lock.mdb", "control.sock", "metrics-1.bin"}
        for path in found:
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_secrets_stay_where_they_were_told(witness: Witness, tmp_path: Path) -> None:
    """Keys and token are in no log line, row, metric, answer or command line, whatever goes wrong on the way."""
    auth = {
        "auth": {"mode": "require"},
        "clients": [{"name": "ci", "key_hash": f"sha256:{key_digest(CLIENT_KEY)}"}],
    }
    said: list[bytes] = []

    async def main() -> None:
        for headers in (
            [("authorization", f"Bearer {CLIENT_KEY}")],
            [("x-api-key", CLIENT_KEY), ("anthropic-version", "2023-06-01")],
            [("authorization", f"Bearer {CLIENT_KEY}-wrong")],
            [("authorization", f"Bearer {UPSTREAM_KEY}")],
        ):
            for body in ({"model": "m", "messages": [], "user": new_name()}, {"model": "unknown", "messages": []}):
                for play in ({}, {"status": 401}, {"status": 500}):
                    answer = await ask(gateway.port, PATH, {**body, "play": play}, headers=headers)
                    said.append(answer.body + repr(answer.headers).encode())

    with Gateway(config(witness, **auth), tmp_path) as gateway:
        run(main)
        requests = gateway.until_settled(24)
        for path in ("/admin/api/state", "/admin/api/requests", f"/admin/api/requests/{requests[0]['id']}"):
            said.append(gateway.get(path, headers=ADMIN).body)
        said.append(gateway.get("/metrics", headers=ADMIN).body)
        said.append(gateway.get("/admin/ui/", headers=ADMIN).body)
        said.append(gateway.get("/admin/api/state", headers={"authorization": f"Bearer {ADMIN_TOKEN}x"}).body)
        for pid in [gateway.pid, *gateway.children]:
            said.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    for path in gateway.data.rglob("*"):
        if path.is_file():
            said.append(path.read_bytes())
    said.append(gateway.log.encode())
    whole = b"\n".join(said)
    assert b"ci" in whole and b"the gateway needs" not in whole
    assert len(whole) > 10_000  # something was looked at
    for secret in (CLIENT_KEY, UPSTREAM_KEY, ADMIN_TOKEN):
        assert secret.encode() not in whole, secret
    name = next(iter(witness.seen()))
    assert witness.headers_seen(name)["authorization"] == f"Bearer {UPSTREAM_KEY}"


def storage(folder: Path, **more: str) -> dict[str, str]:
    return {"url": f"sqlite:///{folder / 'data' / 'arbiter.db'}", "journal_max": "1MiB", **more}


async def fill(gateway: Gateway) -> int:
    """Ask for models that do not exist, with long names for large rows, until the journal is at its bound.

    Returns how many requests that took.
    """
    body = {"model": "no-such-model-" + "x" * 240, "messages": []}
    wide = [("user-agent", "x" * 256)]
    count = 0
    async with asyncio.timeout(60), await Caller.connect(gateway.port) as caller:
        while gateway.get("/health/ready").status == 200:
            for _ in range(20):
                assert (await caller.exchange(request(PATH, body, headers=wide))).status in (404, 503)
                count += 1
    return count


def test_a_full_journal_costs_rows_and_nothing_else(witness: Witness, tmp_path: Path) -> None:
    """At its bound requests are served unrecorded, counted, and the gateway is not ready (SPEC 7.6)."""
    made = []

    async def main() -> None:
        made.append(await fill(gateway))
        answers = await ask_many(gateway, 20)
        assert [answer.status for answer in answers] == [200] * 20

    with Gateway(config(witness, storage=storage(tmp_path)), tmp_path, expected_errors=["at its bound"]) as gateway:
        control = silence(gateway)
        try:
            run(main)
            # The fill's own rows, one each, and two for each request that reached the upstream.
            until(lambda: gateway.metric("arbiter_ledger_dropped_total") >= 40, "dropped rows")
            dropped = int(gateway.metric("arbiter_ledger_dropped_total"))
            ready = gateway.get("/health/ready")
            assert ready.status == 503 and "at its bound" in ready.json["reasons"][0]
        finally:
            os.kill(control, signal.SIGCONT)
        until(lambda: gateway.get("/health/ready").status == 200, "ready again")
        kept = made[0] - (dropped - 40)
        assert len(gateway.until_settled(kept)) == kept
        assert gateway.attempts() == []  # a request and its attempt are recorded together, or not at all
        run(lambda: ask_many(gateway, 1))
        assert len(gateway.until_settled(kept + 1)) == kept + 1


def test_who_would_rather_refuse_than_serve_unrecorded_can(witness: Witness, tmp_path: Path) -> None:
    """`on_full: refuse` answers 503 with retry-after before anything is sent, and serves again when there is room."""

    async def main() -> None:
        assert (await ask_many(gateway, 1))[0].status == 200
        await fill(gateway)
        answers = await ask_many(gateway, 5)
        assert [answer.status for answer in answers] == [503] * 5
        assert answers[0].header("retry-after") and "full" in answers[0].body.decode()
        assert len(witness.seen()) == 1

    errors = ["at its bound", "the ledger is full"]
    configuration = config(witness, storage=storage(tmp_path, on_full="refuse"))
    with Gateway(configuration, tmp_path, expected_errors=errors) as gateway:
        control = silence(gateway)
        try:
            run(main)
        finally:
            os.kill(control, signal.SIGCONT)
        until(lambda: gateway.get("/health/ready").status == 200, "ready again")
        run(lambda: ask_many(gateway, 1))
        assert set(check_books(gateway, witness)) == {"ok"}


def test_a_locked_store_loses_nothing(witness: Witness, tmp_path: Path) -> None:
    """Somebody else holds the file for seconds, under load: no request notices, every row arrives."""

    def is_told() -> bool:
        ready = gateway.get("/health/ready")
        return ready.status == 200 and "locked" in " ".join(ready.json["warnings"])

    async def main() -> None:
        async with Load(gateway.port) as load:
            await load.more(5)
            await asyncio.to_thread(gateway.until_settled, 5)
            with closing(sqlite3.connect(gateway.database, timeout=10, isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                stored = other.execute("SELECT COUNT(*) FROM requests").fetchone()[0]
                await asyncio.to_thread(until, is_told, "a warning of the lock")
                await load.more(20)
                assert other.execute("SELECT COUNT(*) FROM requests").fetchone()[0] == stored
                other.execute("ROLLBACK")
            await load.more(5)
        assert all(outcome.is_whole for outcome in load.outcomes)

    errors = ["database is locked"]
    with Gateway(config(witness), tmp_path, workers=2, expected_errors=errors) as gateway:
        run(main)
        assert set(check_books(gateway, witness)) == {"ok"}
        until(lambda: not gateway.get("/health/ready").json["warnings"], "no warning")


def test_without_a_store_nothing_is_kept_and_all_else_is_as_ever(witness: Witness, tmp_path: Path) -> None:
    """`storage.url: none`: no journal, no rows; the administration says so with 503; metrics and headers stay."""

    async def main() -> None:
        answer = await exchange(gateway.port, call(new_name(), stream=False))
        assert answer.status == 200 and answer.header("x-arbiter-request-id")
        assert answer.header("x-arbiter-provider") == "witness"

    with Gateway(config(witness, storage={"url": "none"}), tmp_path) as gateway:
        run(main)
        until(lambda: gateway.control, "the control process")
        ready = gateway.get("/health/ready")
        assert (ready.status, ready.json["reasons"], ready.json["warnings"]) == (200, [], [])
        refused = gateway.get("/admin/api/requests", headers=ADMIN)
        assert refused.status == 503 and refused.json["reason"] == "storage_off"
        assert gateway.get("/admin/api/state", headers=ADMIN).json["storage"]["on"] is False
        until(lambda: gateway.metric("arbiter_requests_total") == 1, "the count")
        assert not gateway.data.exists()
        os.kill(gateway.worker, signal.SIGKILL)
        until(lambda: gateway.get("/health/ready").status == 200 if gateway.workers else False, "another worker")
        run(main)
