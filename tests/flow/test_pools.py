"""Several keys of one provider: which of them is used, which rests, and which is left alone."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.fakes.client import Answer, ask, run
from tests.fakes.gateway import ADMIN, Gateway, free_port, until
from tests.fakes.origin import SILENCE, Origin, Peer, Request

PATH = "/v1/chat/completions"
LABELS = ("one", "two", "three")
OK = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []}


class Keys:
    """An upstream that answers each key as a test says; `used` counts the requests by key."""

    def __init__(self) -> None:
        self.port = free_port()
        self.dark = free_port()  # where nobody listens, at first
        self.says: dict[str, tuple[int, str]] = {}
        self.used: Counter[str] = Counter()

    async def script(self, peer: Peer, request: Request) -> None:
        key = (request.header("authorization") or "").removeprefix("Bearer sk-key-")
        self.used[key] += 1
        status, header = self.says.get(key, (200, ""))
        data = json.dumps(OK if status == 200 else {"error": {"message": f"no, {key}", "type": "x"}}).encode()
        head = f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n{header}\r\n"
        await peer.send(head.encode() + data)


@pytest.fixture(scope="module")
def keys() -> Keys:
    return Keys()


@pytest.fixture(scope="module")
def gateway(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    pool = [{"label": label, "key": f"sk-key-{label}"} for label in LABELS]
    at = {"type": "openai", "endpoint": f"http://127.0.0.1:{keys.port}/v1", "models": ["m"]}
    config = {
        "providers": {
            "pool": {**at, "keys": pool, "retry": {"base": "10ms"}},
            "dark": {**at, "endpoint": f"http://127.0.0.1:{keys.dark}/v1", "key": "sk-key-dark", "models": ["dark"]},
            "spare": {**at, "key": "sk-key-spare", "models": ["spare"]},
        },
        "aliases": {"safe": {"group": ["pool/m", "spare/spare"]}, "dusk": {"group": ["dark/dark", "spare/spare"]}},
    }
    with Gateway(config, tmp_path_factory.mktemp("pools")) as made:
        yield made


@pytest.fixture
def served(gateway: Gateway, keys: Keys) -> Iterator[Callable[[Callable[[], Awaitable[None]]], None]]:
    """Runs a test's coroutine beside the upstream; what the gateway learnt is forgotten afterwards."""

    def go(main: Callable[[], Awaitable[None]]) -> None:
        async def beside() -> None:
            async with Origin(keys.script, port=keys.port):
                await main()

        keys.says.clear()
        keys.used.clear()
        run(beside)

    yield go
    gateway.get("/admin/cooldowns/clear", method="POST", headers=ADMIN)
    gateway.get("/admin/reload", method="POST", headers=ADMIN)


def say(gateway: Gateway, session: str, model: str = "m") -> Awaitable[Answer]:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    return ask(gateway.port, PATH, body, headers=[("x-session-id", session)])


def state(gateway: Gateway) -> Any:
    return gateway.get("/admin/api/state", headers=ADMIN).json


def test_conversations_spread_over_the_keys_and_stay_there(gateway, keys, served):
    """SPEC 5.7: the account is part of the pin."""

    async def main() -> None:
        for _ in range(3):
            for number in range(30):
                answer = await say(gateway, f"spread-{number}")
                assert answer.status == 200
        assert set(keys.used) == set(LABELS) and min(keys.used.values()) >= 9
        rows = until(lambda: len(found := gateway.select(SQL)) == 90 and found, "the rows")
        by_slot: dict[str, set[str]] = {}
        for row in rows:
            by_slot.setdefault(row["affinity_key"], set()).add(row["account"])
        assert len(by_slot) == 30 and all(len(accounts) == 1 for accounts in by_slot.values())

    SQL = "SELECT r.affinity_key, a.account FROM requests r JOIN attempts a ON a.request_id = r.id"
    served(main)


def test_a_limited_key_rests_alone_and_its_conversations_move(gateway, keys, served):
    """SPEC 4.4: the others serve on; nobody asks the limited one again before its time."""

    async def main() -> None:
        keys.says["one"] = (429, "retry-after: 300\r\n")
        answers = [await say(gateway, f"limited-{number}") for number in range(20)]
        assert {answer.status for answer in answers} == {200} and keys.used["one"] == 1
        (rest,) = state(gateway)["cooldowns"]
        assert (rest["provider"], rest["account"], rest["told"]) == ("pool", "one", True)
        assert sum(answer.header("x-arbiter-attempts") == "2" for answer in answers) == 1

    served(main)


def test_a_refused_key_is_left_alone_once_another_was_let_in(gateway, keys, served):
    """SPEC 4.5: until the reload; the client notices nothing, the log and the state say so."""

    async def main() -> None:
        keys.says["two"] = (401, "")
        answers = [await say(gateway, f"refused-{number}") for number in range(20)]
        assert {answer.status for answer in answers} == {200} and keys.used["two"] == 1
        (refused,) = state(gateway)["refused"]
        assert (refused["provider"], refused["account"]) == ("pool", "two")
        until(lambda: gateway.metric("arbiter_keys_refused") == 1, "the metric")
        assert any("a key was refused" in line["message"] and line["account"] == "two" for line in gateway.lines())

    served(main)


@pytest.mark.parametrize("status", [401, 403])
def test_a_request_that_no_key_may_make_costs_no_key(gateway, keys, served, status):
    """Else one caller with a forbidden model, or the provider's bad hour, would take the pool from everybody."""

    async def main() -> None:
        keys.says = dict.fromkeys(LABELS, (status, ""))
        answer = await say(gateway, "forbidden", "safe")
        assert answer.status == 502 and answer.header("x-should-retry") == "false"
        assert answer.header("x-arbiter-attempts") == "3" and keys.used["spare"] == 0
        assert b"no, " in answer.body and b"sk-key" not in answer.body
        assert state(gateway)["refused"] == []
        keys.says.clear()
        assert (await say(gateway, "forbidden", "safe")).status == 200
        row = gateway.row(answer.trace_id)
        assert row["error_class"] == "config"
        assert [attempt["why"] for attempt in row["attempts"]] == ["first", "key", "key"]

    served(main)


def test_a_pool_that_is_all_limited_tells_the_shortest_wait_or_falls_back(gateway, keys, served):
    """SPEC 4.4, 4.8."""

    async def main() -> None:
        for label, seconds in zip(LABELS, (4000, 2000, 3000), strict=True):
            keys.says[label] = (429, f"retry-after: {seconds}\r\n")
        answer = await say(gateway, "shortest")
        assert answer.status == 429 and answer.header("x-arbiter-attempts") == "3"
        assert 1900 <= int(answer.header("retry-after") or 0) <= 2000
        again = await say(gateway, "shortest")
        assert again.status == 429 and again.header("x-arbiter-attempts") == "0" and sum(keys.used.values()) == 3
        assert 1900 <= int(again.header("retry-after") or 0) <= 2000
        safe = await say(gateway, "shortest", "safe")
        assert safe.status == 200 and safe.header("x-arbiter-provider") == "spare"

    served(main)


def test_another_keys_failure_proves_nothing_against_the_refused_one(gateway, keys, served):
    """Only an answer does: a proxy's 502 may stand before whoever looks at keys."""

    async def main() -> None:
        keys.says = {"one": (401, ""), "two": (502, ""), "three": (401, "")}
        for number in range(4):
            assert (await say(gateway, f"unproven-{number}")).status == 502
        assert state(gateway)["refused"] == []

    served(main)


def test_a_pool_with_a_limited_key_is_limited_in_whatever_order_its_keys_were_asked(gateway, keys, served):
    """One key wrong and one resting: the fallback serves, for every conversation alike."""

    async def main() -> None:
        keys.says = {"one": (401, ""), "two": (429, "retry-after: 300\r\n"), "three": (401, "")}
        for number in range(6):
            answer = await say(gateway, f"mixed-{number}", "safe")
            assert answer.status == 200 and answer.header("x-arbiter-provider") == "spare"

    served(main)


def test_a_new_key_under_the_same_label_is_another_account(gateway, keys, served):
    """A cooldown belongs to the key that was limited: who rotates it need not wait for the old one's time."""

    async def main() -> None:
        keys.says = dict.fromkeys(LABELS, (429, "retry-after: 300\r\n"))
        assert (await say(gateway, "rotated")).status == 429
        config = json.loads(json.dumps(gateway.config))
        for entry in gateway.config["providers"]["pool"]["keys"]:
            entry["key"] += "-new"
        rewrite(gateway, gateway.config)
        answer = await say(gateway, "rotated")
        assert answer.status == 200 and state(gateway)["cooldowns"] == []
        gateway.config = config
        rewrite(gateway, config)

    served(main)


def rewrite(gateway: Gateway, config: dict[str, Any]) -> None:
    """Another configuration, in every process."""
    (gateway.folder / "arbiter.yaml").write_text(json.dumps(config))
    assert gateway.get("/admin/reload", method="POST", headers=ADMIN).status == 200


def test_our_key_never_comes_back_to_a_client(gateway, keys, served):
    """SPEC 14.3: an upstream's debugging may repeat it anywhere: headers, an error's words, a 200 that is an error."""

    async def main() -> None:
        echo = "x-request-id: sk-key-one\r\nx-ratelimit-note: sk-key-two, sk-key-three\r\n"
        keys.says = dict.fromkeys(LABELS, (200, echo))
        fine = await say(gateway, "echoed")
        assert fine.status == 200 and "sk-key" not in str(fine.headers) and "***" in str(fine.headers)
        keys.says = dict.fromkeys(LABELS, (400, echo))
        refused = await say(gateway, "echoed")
        assert refused.status == 400 and "sk-key" not in str(refused.headers)

    served(main)


def test_an_error_whose_words_never_come_is_what_its_status_says(keys, gateway):
    """A 429 rests, and the next key is asked, though the body stalls for ever."""

    async def main() -> None:
        async def stall(peer: Peer, request: Request) -> None:
            key = (request.header("authorization") or "").removeprefix("Bearer sk-key-")
            keys.used[key] += 1
            if len(keys.used) == 1:
                await peer.send(b"HTTP/1.1 429 x\r\nretry-after: 300\r\ncontent-length: 99\r\n\r\n{")
                await peer.gone()
            else:
                keys.says.clear()
                await Keys.script(keys, peer, request)

        keys.used.clear()
        async with Origin(stall, port=keys.port):
            answer = await say(gateway, "stalled")
            assert answer.status == 200 and answer.header("x-arbiter-attempts") == "2"
            (rest,) = state(gateway)["cooldowns"]
            assert rest["told"] and rest["seconds_left"] > 200

    run(main)
    gateway.get("/admin/cooldowns/clear", method="POST", headers=ADMIN)


def test_a_client_that_leaves_a_provider_on_trial_does_not_keep_others_from_it(gateway, keys, served):
    """SPEC 4.9: one request tries whether it is back; where its client leaves, the next one tries."""

    async def main() -> None:
        asked = 0
        while not state(gateway)["breakers"] or not state(gateway)["breakers"][0]["open"]:
            assert (await say(gateway, f"dark-{asked}", "dusk")).status == 200 and asked < 20
            asked += 1
        async with Origin([SILENCE], port=keys.dark) as back:
            trials = []
            while not back.requests:
                trials.append(asyncio.create_task(say(gateway, f"trial-{asked + len(trials)}", "dusk")))
                await asyncio.wait(trials[-1:], timeout=0.2)
            for trial in trials:
                trial.cancel()
            await back.until(lambda: back.hangups == 1, "the gateway's hanging up")
            back.answer_with(keys.script)
            answer = await say(gateway, "next", "dusk")
            assert answer.status == 200 and len(back.requests) == 2
        assert not state(gateway)["breakers"]

    served(main)


def test_a_request_that_is_refused_before_it_is_sent_is_no_trial(gateway, keys, served):
    """SPEC 4.9: the provider has not seen it, so the next one tries."""

    async def main() -> None:
        asked = 0
        while not state(gateway)["breakers"] or not state(gateway)["breakers"][0]["open"]:
            assert (await say(gateway, f"gloom-{asked}", "dusk")).status == 200 and asked < 20
            asked += 1
        async with Origin(keys.script, port=keys.dark) as back:
            while state(gateway)["breakers"][0]["seconds_left"] > 0:
                await asyncio.sleep(0.02)
            body = {"model": "dusk", "max_tokens": 9, "messages": [{"role": "user", "content": 5}]}
            assert (await ask(gateway.port, "/v1/messages", body)).status == 400
            assert (await say(gateway, "next", "dusk")).status == 200 and len(back.requests) == 1

    served(main)
