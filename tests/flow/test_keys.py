"""Client keys against a whole gateway: what `arbiter keys` changes holds from the next request on, in every worker."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import Caller, request
from tests.fakes.gateway import ARBITER, Gateway, connections, until

CONFIG = {
    "auth": {"mode": "require"},
    "providers": {"echo": {"type": "echo", "models": ["m", "other"]}},
}
PATHS = {"/v1/chat/completions": "error", "/v1/messages": "type"}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Three workers that want keys."""
    with Gateway(CONFIG, tmp_path_factory.mktemp("keys"), workers=3) as gateway:
        until(lambda: len(gateway.workers) == 3, "three workers")
        yield gateway


def keys(gateway: Gateway, *arguments: str, code: int = 0) -> tuple[Any, str]:
    """What `arbiter keys … --json` printed, and what it said."""
    done = subprocess.run(
        [*ARBITER, "keys", *arguments, "--json"],
        cwd=gateway.folder,
        env=gateway.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else None, done.stderr


def question(key: str, path: str = "/v1/chat/completions", model: str = "m") -> bytes:
    body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
    return request(path, body, headers=[("x-arbiter-key", key), ("authorization", "Bearer sk-the-users-own-login")])


async def one_per_worker(gateway: Gateway, stack: AsyncExitStack) -> list[Caller]:
    found: dict[int, Caller] = {}
    wanted = set(gateway.workers)
    for _ in range(200):
        caller = await stack.enter_async_context(await Caller.connect(gateway.port))
        await caller.exchange(question("arb-nobody's"))
        port = caller.writer.get_extra_info("sockname")[1]
        (pid,) = [pid for pid in wanted if connections(pid, port)]
        found.setdefault(pid, caller)
        if set(found) == wanted:
            return list(found.values())
    raise AssertionError("no connection came to one of the workers")


async def _trace(gateway: Gateway, key: str) -> str | None:
    async with await Caller.connect(gateway.port) as caller:
        return (await caller.exchange(question(key))).trace_id


def test_a_store_that_takes_nothing_keeps_no_revoked_key_alive(three: Gateway) -> None:
    """The gateway is told before the books are asked to write it down."""
    made, _ = keys(three, "new", "held")

    async def status() -> int:
        async with await Caller.connect(three.port) as caller:
            return (await caller.exchange(question(made["key"]))).status

    assert asyncio.run(status()) == 200
    three.row(asyncio.run(_trace(three, made["key"])))  # there is a store, and it is at rest
    with closing(sqlite3.connect(three.database, isolation_level=None, timeout=10)) as db:
        db.execute("BEGIN IMMEDIATE")
        command = [*ARBITER, "keys", "revoke", made["client"]["id"]]
        with subprocess.Popen(command, cwd=three.folder, env=three.env, stdout=subprocess.DEVNULL) as revoking:
            until(lambda: asyncio.run(status()) == 401, "the key's end")
            db.execute("ROLLBACK")
            assert revoking.wait(30) == 0


def test_a_key_is_good_and_revoked_from_the_next_request_on_in_every_worker(three: Gateway) -> None:
    """SPEC 8.1: the command has returned, so it holds; whichever worker the next request meets."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            callers = await one_per_worker(three, stack)
            for _ in range(3):
                made, said = await asyncio.to_thread(keys, three, "new", "dev", "--group", "g")
                assert "running gateway knows it" in said
                answers = [await caller.exchange(question(made["key"])) for caller in callers]
                assert [answer.status for answer in answers] == [200] * 3
                row = three.row(answers[0].trace_id)
                assert (row["client"], row["client_group"]) == ("dev", "g")
                _, said = await asyncio.to_thread(keys, three, "revoke", made["client"]["id"])
                assert "refuses it" in said
                for path, member in PATHS.items():
                    refused = [await caller.exchange(question(made["key"], path)) for caller in callers]
                    assert [answer.status for answer in refused] == [401] * 3
                    for answer in refused:
                        told = answer.body.decode()
                        assert "was revoked" in told and member in json.loads(told) and made["key"] not in told
            assert made["key"] not in three.log

    asyncio.run(main())


def test_a_broken_configuration_file_does_not_keep_a_revoked_key_alive(three: Gateway) -> None:
    made, _ = keys(three, "new", "leaver")
    file = three.folder / "arbiter.yaml"
    text = file.read_text("utf-8")
    file.write_text("providers: [\n", "utf-8")
    try:
        keys(three, "revoke", "leaver")
    finally:
        file.write_text(text, "utf-8")
    reply = three.get("/v1/models", headers={"x-arbiter-key": made["key"]})
    assert reply.status == 401 and "was revoked" in reply.body.decode()


def test_a_key_sees_and_asks_for_what_it_may_and_nothing_else(three: Gateway) -> None:
    made, _ = keys(three, "new", "narrow", "--allow", "oth*")
    models = three.get("/v1/models", headers={"x-arbiter-key": made["key"]}).json["data"]
    assert [one["id"] for one in models] == ["other"]

    async def statuses() -> list[int]:
        async with await Caller.connect(three.port) as caller:
            return [(await caller.exchange(question(made["key"], model=model))).status for model in ("other", "m")]

    assert asyncio.run(statuses()) == [200, 403]


def test_a_key_expires_by_itself(three: Gateway) -> None:
    """Nothing is reloaded for it: the clock alone ends it."""
    made, _ = keys(three, "new", "brief", "--expires", "8s")
    ask = {"x-arbiter-key": made["key"]}
    assert three.get("/v1/models", headers=ask).status == 200
    reply = until(lambda: (r := three.get("/v1/models", headers=ask)).status == 401 and r, "the key's end")
    assert "has expired" in reply.body.decode() and made["key"] not in reply.body.decode()


def test_where_no_gateway_runs_the_file_alone_is_written_and_the_next_start_reads_it(tmp_path: Path) -> None:
    gateway = Gateway(CONFIG, tmp_path)
    gateway.data.mkdir()
    made, said = keys(gateway, "new", "early")
    assert "No gateway runs on" in said
    with gateway:
        assert gateway.get("/v1/models", headers={"x-arbiter-key": made["key"]}).status == 200


def test_a_key_that_ended_is_refused_also_where_strangers_are_served(tmp_path: Path) -> None:
    """SPEC 8.1: its caller is not to get, as a stranger, what its `allow` never let it have."""
    with Gateway({**CONFIG, "auth": {"mode": "attribute"}}, tmp_path) as gateway:
        made, _ = keys(gateway, "new", "narrow", "--allow", "oth*")

        async def statuses(key: str, model: str) -> list[int]:
            async with await Caller.connect(gateway.port) as caller:
                return [(await caller.exchange(question(key, path, model))).status for path in PATHS]

        assert asyncio.run(statuses(made["key"], "other")) == [200, 200]
        assert asyncio.run(statuses(made["key"], "m")) == [403, 403]
        keys(gateway, "revoke", "narrow")
        for model in ("other", "m"):
            assert asyncio.run(statuses(made["key"], model)) == [401, 401]
        assert gateway.get("/v1/models", headers={"x-arbiter-key": made["key"]}).status == 401
        assert asyncio.run(statuses("arb-nobody's", "m")) == [200, 200]
