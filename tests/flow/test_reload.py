"""Reloads of a whole gateway: one configuration gives way to another in every process, and no request notices."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from arbiter.config.snapshot import key_digest
from tests.fakes.client import Answer, Caller, Ending, ask, request, run
from tests.fakes.gateway import ADMIN, Gateway, Reply, connections, free_port, is_dead, until
from tests.fakes.load import Load, call, new_name
from tests.fakes.load import config as witnessed
from tests.fakes.origin import LAST_CHUNK, Origin, Peer, chunk
from tests.fakes.origin import Request as Asked
from tests.fakes.wires import CHAT, begun
from tests.fakes.witness import Witness

PATH = "/v1/chat/completions"
KEY, NEW_KEY = "ak-the-first-key-of-a-client", "ak-the-second-key-of-a-client"
NEW_TOKEN = "another-admin-token"


def echo(*models: str) -> dict[str, Any]:
    return {"providers": {"echo": {"type": "echo", "models": list(models)}}}


def question(model: str = "m", text: str = "hello", *, stream: bool = False) -> bytes:
    return request(PATH, {"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]})


def text_of(gateway: Gateway, **sections: Any) -> str:
    """The gateway's configuration with other sections."""
    return yaml.safe_dump({**copy.deepcopy(gateway.config), **sections}, sort_keys=False)


def write(gateway: Gateway, **sections: Any) -> None:
    (gateway.folder / "arbiter.yaml").write_text(text_of(gateway, **sections), "utf-8")


def post_reload(gateway: Gateway, token: str = "") -> Reply:
    headers = {"authorization": f"Bearer {token}"} if token else ADMIN
    return gateway.get("/admin/reload", method="POST", headers=headers, timeout_s=30)


def reloaded(gateway: Gateway, token: str = "", **sections: Any) -> dict[str, Any]:
    """Write and reload; what the answer says."""
    write(gateway, **sections)
    reply = post_reload(gateway, token)
    assert reply.status == 200, reply.body
    said: dict[str, Any] = reply.json
    return said


def is_served(gateway: Gateway, model: str) -> bool:
    body = b'{"model":"%s","messages":[{"role":"user","content":"hi"}]}' % model.encode()
    return gateway.get(PATH, method="POST", headers={"content-type": "application/json"}, body=body).status == 200


def said(gateway: Gateway, words: str) -> list[dict[str, Any]]:
    return [line for line in gateway.lines() if words in line["message"]]


async def one_per_worker(gateway: Gateway, stack: AsyncExitStack) -> dict[int, Caller]:
    """An open connection to each worker; the kernel spreads them by their ports."""
    found: dict[int, Caller] = {}
    wanted = set(gateway.workers)
    for _ in range(200):
        caller = await stack.enter_async_context(await Caller.connect(gateway.port))
        await caller.exchange(question())
        port = caller.writer.get_extra_info("sockname")[1]
        (pid,) = [pid for pid in wanted if connections(pid, port)]
        found.setdefault(pid, caller)
        if set(found) == wanted:
            return found
    raise AssertionError("no connection came to one of the workers")


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Four workers on the echo provider."""
    with Gateway(echo("m"), tmp_path_factory.mktemp("four"), workers=4) as gateway:
        until(lambda: len(gateway.workers) == 4, "four workers")
        yield gateway


@pytest.fixture
def witness() -> Iterator[Witness]:
    with Witness() as process:
        yield process


# --- all of it, everywhere, at once -----------------------------------------------------------------------------------


def test_the_answer_comes_when_every_worker_runs_the_new_configuration(four: Gateway) -> None:
    """Whichever worker a request meets from then on, it is served by the new one, and its row says so."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            callers = await one_per_worker(four, stack)
            before = four.get("/admin/api/state", headers=ADMIN).json["epoch"]
            told = await asyncio.to_thread(reloaded, four, **echo("m", "newcomer"))
            answers = [await caller.exchange(question("newcomer")) for caller in callers.values()]
        assert (told["workers"], told["pending"], told["changed"]) == (4, [], True)
        assert told["previous_epoch"] == before != told["epoch"]
        assert four.get("/admin/api/state", headers=ADMIN).json["epoch"] == told["epoch"]
        assert told["epoch"] in four.get("/admin/ui/", headers=ADMIN).body.decode()
        for answer in answers:
            assert answer.status == 200
            assert four.row(answer.trace_id)["config_epoch"] == told["epoch"]

    run(main)


def test_a_hangup_applies_a_changed_file(four: Gateway) -> None:
    assert not is_served(four, "hung-up")
    write(four, **echo("m", "hung-up"))
    os.kill(four.pid, signal.SIGHUP)
    until(lambda: all(is_served(four, "hung-up") for _ in range(12)), "the new model")


def test_only_post_reloads_and_only_for_who_may(four: Gateway) -> None:
    assert four.get("/admin/reload", headers=ADMIN).status == 405
    assert four.get("/admin/reload", method="POST").status == 401


def test_an_unchanged_file_is_read_again_and_said_to_be_unchanged(four: Gateway) -> None:
    """Its secrets' files may have changed; the environment of the start is no secret's file."""
    secret = four.folder / "key"
    secret.write_text("sk-the-first-of-two-keys")
    providers = {**echo("m")["providers"], "other": {"type": "openai", "key_file": str(secret), "models": ["o"]}}
    first = reloaded(four, providers=providers)
    again = post_reload(four).json
    assert (again["changed"], again["epoch"], again["workers"]) == (False, first["epoch"], 4)
    secret.write_text("sk-the-second-of-two-keys")
    rotated = post_reload(four).json
    assert (rotated["changed"], rotated["epoch"]) == (True, first["epoch"])
    assert "of-two-keys" not in four.log


def test_a_rejected_file_is_told_and_the_old_configuration_serves_on(four: Gateway) -> None:
    """Whoever asked learns the place; the log has it in one line; and a repaired file applies."""
    epoch = reloaded(four, **echo("m", "kept"))["epoch"]
    counts = [four.get("/metrics", headers=ADMIN).body.decode().count('reloads_total{result="rejected"}')]
    text = text_of(four, **echo("m"), routing={"default_provider": "ecco"})
    (four.folder / "arbiter.yaml").write_text(text)
    reply = post_reload(four)
    assert reply.status == 422
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "ecco" in row)
    told = reply.json
    assert (told["code"], told["line"], told["path"]) == (422, line, "routing.default_provider")
    assert told["file"].endswith("arbiter.yaml") and "echo" in told["detail"]
    assert told["epoch"] == epoch and epoch in told["advice"] and "arbiter check" in told["advice"]
    (logged,) = said(four, "was rejected")
    assert f"arbiter.yaml:{line}: routing.default_provider: " in logged["message"]
    assert is_served(four, "kept")
    assert four.get("/admin/api/state", headers=ADMIN).json["epoch"] == epoch
    until(lambda: 'reloads_total{result="rejected"} 1' in four.get("/metrics", headers=ADMIN).body.decode(), "a count")
    assert counts == [0]
    assert reloaded(four, **echo("m", "repaired"))["changed"] and is_served(four, "repaired")


def test_a_file_that_is_no_yaml_is_its_authors_mistake_and_not_the_gateways(four: Gateway) -> None:
    """A slip of the indentation is told with its line; nothing of what serves changes."""
    epoch = reloaded(four, **echo("m"))["epoch"]
    text = text_of(four, **echo("m"))
    (four.folder / "arbiter.yaml").write_text(text + "routing:\n  default_provider: echo\n   retry: {}\n")
    reply = post_reload(four)
    assert (reply.status, reply.json["code"], reply.json["line"]) == (422, 422, len(text.splitlines()) + 3)
    assert reply.json["epoch"] == epoch and is_served(four, "m")
    assert reloaded(four, **echo("m"))["changed"] is False


def test_what_cannot_change_without_a_restart_is_named_and_stays(four: Gateway) -> None:
    """The rest of the file applies all the same."""
    server = {**four.config["server"], "port": four.port + 1, "drain": "4s"}
    told = reloaded(four, server=server, telemetry={"log": {"level": "debug"}, "metrics": False}, **echo("m", "rest"))
    assert told["needs_restart"] == ["server.port", "telemetry.metrics"]
    assert is_served(four, "rest") and four.get("/metrics", headers=ADMIN).status == 200
    assert "server.port" in said(four, "before a restart")[-1]["message"]


def test_two_at_once_are_answered_one_after_the_other(four: Gateway) -> None:
    """Each answer is about a file that was read after it was asked for."""
    write(four, **echo("m", "twice"))
    with ThreadPoolExecutor(6) as threads:
        replies = list(threads.map(lambda _: post_reload(four), range(6)))
    assert {reply.status for reply in replies} == {200}
    assert len({reply.json["epoch"] for reply in replies}) == 1 and is_served(four, "twice")


# --- in the middle of something ---------------------------------------------------------------------------------------


def test_streams_go_on_through_reloads_with_what_they_began_with(four: Gateway) -> None:
    """200 streams over four workers, three reloads: every word arrives, and rows tell what their request began with."""
    events = CHAT.events(*(f"{number} " for number in range(30)), usage=False)
    port = free_port()
    up = {"type": "openai", "endpoint": f"http://127.0.0.1:{port}/v1", "key": "sk-secret", "models": ["zero"]}
    epoch = reloaded(four, providers={"up": up, **echo("m")["providers"]})["epoch"]
    goes_on = asyncio.Event()

    async def script(peer: Peer, asked: Asked) -> None:
        await peer.send(begun(*events[:2]))
        await goes_on.wait()
        await peer.send(b"".join(map(chunk, events[2:])) + LAST_CHUNK)

    async def main() -> None:
        callers: list[Caller] = []
        async with Origin(script, port=port), AsyncExitStack() as stack:
            for _ in range(10):
                some = [await stack.enter_async_context(await Caller.connect(four.port)) for _ in range(20)]
                await asyncio.gather(*(caller.send(question("zero", stream=True)) for caller in some))
                callers += some
            await asyncio.gather(*(caller.head() for caller in callers))
            streams = [asyncio.create_task(caller.whole()) for caller in callers]
            newer: list[tuple[str, Answer]] = []
            for model in ("one", "two", "three"):
                # The model that the streams are of is gone, too.
                told = await asyncio.to_thread(reloaded, four, **echo("m", model))
                assert (told["workers"], told["pending"]) == (4, [])
                assert not any(stream.done() for stream in streams)
                newer += [(told["epoch"], await ask_model(four.port, model)) for _ in range(4)]
            goes_on.set()
            answers = await asyncio.gather(*streams)
        for answer in answers:
            assert (answer.status, answer.ending) == (200, Ending.CLEAN)
            assert answer.body == b"".join(events)
        assert {four.row(answer.trace_id)["config_epoch"] for answer in answers} == {epoch}
        for epoch_then, answer in newer:
            assert four.row(answer.trace_id)["config_epoch"] == epoch_then

    run(main)


async def ask_model(port: int, model: str) -> Answer:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    answer = await ask(port, PATH, body)
    assert answer.status == 200, answer.body
    return answer


def test_a_worker_killed_in_the_middle_counts_when_its_successor_serves(tmp_path: Path) -> None:
    """The reload waits for the one that is stuck; it dies; who comes after it begins with the new configuration."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            callers = await one_per_worker(gateway, stack)
            (victim, _), (_, caller) = callers.items()
            os.kill(victim, signal.SIGSTOP)
            write(gateway, **echo("m", "newcomer"))
            asked = request("/admin/reload", method="POST", headers=list(ADMIN.items()))
            answer = asyncio.create_task(caller.exchange(asked))
            while not said(gateway, "an administrator wants a reload"):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)  # the truth under test: it is not answered while one of them is stuck
            assert not answer.done()
            os.kill(victim, signal.SIGKILL)
            told = (await answer).json
            assert (told["workers"], told["pending"]) == (2, [])
            assert is_dead(victim)
        async with AsyncExitStack() as stack:
            for caller in (await one_per_worker(gateway, stack)).values():
                answer_of = await caller.exchange(question("newcomer"))
                assert gateway.row(answer_of.trace_id)["config_epoch"] == told["epoch"]

    with Gateway(echo("m"), tmp_path, workers=2) as gateway:
        until(lambda: len(gateway.workers) == 2, "two workers")
        run(main)


def test_a_stuck_worker_is_named_and_applies_it_when_it_wakes(tmp_path: Path) -> None:
    """Nothing is taken back; the others serve by it meanwhile."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            callers = await one_per_worker(gateway, stack)
            (victim, stuck), (_, caller) = callers.items()
            os.kill(victim, signal.SIGSTOP)
            write(gateway, **echo("m", "newcomer"))
            asked = request("/admin/reload", method="POST", headers=list(ADMIN.items()))
            told = (await caller.exchange(asked)).json
            assert told["workers"] == 1 and len(told["pending"]) == 1 and told["pending"][0].startswith("worker-")
            assert (await caller.exchange(question("newcomer"))).status == 200
            os.kill(victim, signal.SIGCONT)
            # It reads what waits for it before it reads a request that came later.
            while (await stuck.exchange(question("newcomer"))).status != 200:
                await asyncio.sleep(0.01)

    with Gateway(echo("m"), tmp_path, workers=2) as gateway:
        until(lambda: len(gateway.workers) == 2, "two workers")
        run(main)


def test_control_killed_in_the_middle_costs_the_answer_and_nothing_else(tmp_path: Path) -> None:
    with Gateway(echo("m"), tmp_path) as gateway:
        control = gateway.control
        assert control is not None
        os.kill(control, signal.SIGSTOP)
        write(gateway, **echo("m", "newcomer"))
        os.kill(gateway.pid, signal.SIGHUP)
        until(lambda: is_served(gateway, "newcomer"), "the new model")
        os.kill(control, signal.SIGKILL)
        until(lambda: said(gateway, "the configuration was reloaded"), "the end of the reload")
        assert said(gateway, "the configuration was reloaded")[0]["pending"] == []
        epoch = said(gateway, "the configuration was reloaded")[0]["epoch"]
        until(lambda: gateway.control not in (None, control), "control")
        assert gateway.get("/admin/api/state", headers=ADMIN).json["epoch"] == epoch
        assert post_reload(gateway).json["changed"] is False


def test_a_removed_provider_finishes_its_stream_and_its_connections_close(witness: Witness, tmp_path: Path) -> None:
    port = int(witness.url.split(":")[2].split("/")[0])

    async def main() -> None:
        async with AsyncExitStack() as stack:
            running = await stack.enter_async_context(await Caller.connect(gateway.port))
            idle = await stack.enter_async_context(await Caller.connect(gateway.port))
            await running.send(call(new_name(), events=40, held=True))
            await running.until_seen(b'"0 "')
            assert (await idle.exchange(call(new_name(), stream=False))).status == 200
            assert connections(gateway.worker, port) == 2
            told = await asyncio.to_thread(reloaded, gateway, **echo("m"))
            assert told["workers"] == 1
            while connections(gateway.worker, port) > 1:
                await asyncio.sleep(0.01)
            witness.release()
            answer = await running.whole()
            assert answer.ending is Ending.CLEAN and b'"39 "' in answer.body and b"[DONE]" in answer.body
            while connections(gateway.worker, port):
                await asyncio.sleep(0.01)

    with Gateway(witnessed(witness), tmp_path) as gateway:
        run(main)


def test_reloads_under_load_cost_no_request(witness: Witness, tmp_path: Path) -> None:
    async def main() -> None:
        async with Load(gateway.port) as load:
            for number in range(10):
                await load.more(5)
                told = await asyncio.to_thread(reloaded, gateway, limits={"json_depth": 100 + number})
                assert (told["changed"], told["workers"], told["pending"]) == (True, 2, [])
            await load.more(5)
        assert all(outcome.is_whole for outcome in load.outcomes)

    with Gateway(witnessed(witness), tmp_path, workers=2) as gateway:
        run(main)


# --- what it leaves as it is ------------------------------------------------------------------------------------------


def reply(status: int, body: dict[str, Any], *headers: str) -> bytes:
    data = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} x", "content-type: application/json", f"content-length: {len(data)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + data


SAYS = {
    "good": reply(200, {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}),
    "bad": reply(401, {"error": {"message": "who are you?"}}),
    "busy": reply(429, {"error": {"message": "slow down"}}, "retry-after: 300"),
}


def test_refused_keys_are_tried_again_while_cooldowns_and_pauses_stay(tmp_path: Path) -> None:
    """Who reloads has perhaps mended a key; nobody has asked the provider to be less busy (SPEC 5.8)."""
    port = free_port()
    keys = [{"label": label, "key": f"sk-{label}-0123456789"} for label in SAYS]
    up = {"type": "openai", "endpoint": f"http://127.0.0.1:{port}/v1", "keys": keys, "models": ["m"]}
    config = {"providers": {"up": up, **echo("e")["providers"]}}
    used: list[str] = []

    async def script(peer: Peer, asked: Asked) -> None:
        label = (asked.header("authorization") or "").split("-")[1]
        used.append(label)
        await peer.send(SAYS[label])

    def state() -> dict[str, Any]:
        found: dict[str, Any] = gateway.get("/admin/api/state", headers=ADMIN).json
        return found

    async def until_seen(what: set[str]) -> None:
        """Conversations begin at different keys."""
        number = 0
        while not what <= set(used):
            number += 1
            async with await Caller.connect(gateway.port) as caller:
                answer = await caller.exchange(question("m", f"conversation number {number}, which is another one"))
            assert answer.status == 200

    async def main() -> None:
        async with Origin(script, port=port):
            await until_seen({"good", "bad", "busy"})
            paused = await asyncio.to_thread(gateway.get, "/admin/pause?provider=echo", method="POST", headers=ADMIN)
            assert paused.status == 200
            before = await asyncio.to_thread(state)
            assert [one["account"] for one in before["refused"]] == ["bad"]
            assert [one["account"] for one in before["cooldowns"]] == ["busy"]
            used.clear()
            assert (await asyncio.to_thread(reloaded, gateway))["pending"] == []
            after = await asyncio.to_thread(state)
            assert after["refused"] == [] and after["pins"] == before["pins"] > 0
            assert [one["account"] for one in after["cooldowns"]] == ["busy"]
            assert [one["name"] for one in after["pauses"]] == ["echo"]
            await until_seen({"good", "bad"})
            assert "busy" not in used

    with Gateway(config, tmp_path, workers=2) as gateway:
        run(main)


# --- who may ----------------------------------------------------------------------------------------------------------


def test_client_keys_and_the_admin_token_count_at_once(tmp_path: Path) -> None:
    def clients(key: str) -> list[dict[str, str]]:
        return [{"name": "ci", "key_hash": f"sha256:{key_digest(key)}"}]

    def models(key: str) -> int:
        return gateway.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status

    config = {**echo("m"), "auth": {"mode": "require"}, "clients": clients(KEY)}
    with Gateway(config, tmp_path) as gateway:
        assert (models(KEY), models(NEW_KEY)) == (200, 401)
        reloaded(gateway, clients=clients(NEW_KEY), admin={"token": NEW_TOKEN})
        assert (models(KEY), models(NEW_KEY)) == (401, 200)
        assert gateway.get("/admin/api/state", headers=ADMIN).status == 401
        assert post_reload(gateway, NEW_TOKEN).json["changed"] is False
        assert NEW_TOKEN not in gateway.log


def test_a_token_made_for_this_run_outlives_reloads(tmp_path: Path) -> None:
    """It was printed once; a configured one takes its place for as long as it is there."""
    with Gateway({**echo("m"), "admin": {}, "server": {"bind": "0.0.0.0"}}, tmp_path) as gateway:
        (token,) = re.findall(r"needs this token.*: (\S+)$", gateway.log, re.MULTILINE)
        assert reloaded(gateway, token, **echo("m", "n"))["changed"]
        reloaded(gateway, token, admin={"token": NEW_TOKEN})
        assert post_reload(gateway, token).status == 401
        reloaded(gateway, NEW_TOKEN)
        assert post_reload(gateway, token).status == 200
        assert gateway.log.count(token) == 1


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_watched_file_applies_however_it_is_changed(tmp_path: Path) -> None:
    """Moved over the old one; half-written and then completed; behind a link that is swapped, as a ConfigMap is."""
    gateway = Gateway(echo("m"), tmp_path)
    gateway.arguments = ["--reload"]
    file = tmp_path / "arbiter.yaml"
    with gateway:
        put(gateway, tmp_path / "first", "moved")
        behind = tmp_path / "behind"
        behind.symlink_to(Path("..data") / "arbiter.yaml")
        behind.replace(file)
        until(lambda: is_served(gateway, "moved"), "the link moved over the file")

        put(gateway, tmp_path / "second", "swapped")
        until(lambda: is_served(gateway, "swapped"), "the file that the link leads to now")

        whole = text_of(gateway, **echo("m", "whole"))
        file.write_text(whole[: whole.index("port:") + 3])
        until(lambda: said(gateway, "was rejected"), "a rejection of the half")
        assert is_served(gateway, "swapped")
        file.write_text(whole)
        until(lambda: is_served(gateway, "whole"), "the whole file")


def put(gateway: Gateway, folder: Path, model: str) -> None:
    """A version of the file in a folder of its own, and `..data` swapped to that."""
    folder.mkdir()
    (folder / "arbiter.yaml").write_text(text_of(gateway, **echo("m", model)))
    link = folder.with_name("new-link")
    link.symlink_to(folder)
    link.replace(folder.with_name("..data"))
