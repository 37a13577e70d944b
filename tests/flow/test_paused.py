"""The kill switch on a whole gateway: what is paused is refused by every worker, says so, and is a row (SPEC 12.4a)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arbiter.config.snapshot import key_digest
from tests.fakes.client import Answer, ask, run
from tests.fakes.gateway import ADMIN, Gateway

KEY = "ak-the-key-of-a-client"
CI = [("authorization", f"Bearer {KEY}")]
CONFIG: dict[str, Any] = {
    "providers": {name: {"type": "echo", "models": ["m"]} for name in ("one", "two")},
    "aliases": {"talk": {"group": ["one/m", "two/m"]}},
    "clients": [{"name": "ci", "key_hash": f"sha256:{key_digest(KEY)}"}],
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(CONFIG, tmp_path, workers=2) as one:
        yield one


def talk(gateway: Gateway, *, model: str = "talk", headers: Any = (), count: int = 6) -> list[Answer]:
    """So many requests, each on a connection of its own: whichever worker takes it."""
    answers: list[Answer] = []

    async def main() -> None:
        for _ in range(count):
            body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
            answers.append(await ask(gateway.port, "/v1/chat/completions", body, headers=headers))

    run(main)
    return answers


def act(gateway: Gateway, path: str, body: bytes = b"", status: int = 200) -> Any:
    answer = gateway.get(path, method="POST", headers=ADMIN, body=body)
    assert answer.status == status, answer.body
    return answer.json


def test_everything_paused_is_refused_by_every_worker_until_it_is_resumed(gateway: Gateway) -> None:
    assert {answer.status for answer in talk(gateway)} == {200}
    act(gateway, "/admin/pause", b'{"reason": "the bill of November"}')
    for answer in talk(gateway):
        assert answer.status == 503
        assert b"paused all traffic: the bill of November" in answer.body
        row = gateway.row(answer.trace_id)
        assert (row["status"], row["error_class"], row["attempts"]) == (503, "refused_by_rule", [])
    (pause,) = gateway.get("/admin/api/state", headers=ADMIN).json["pauses"]
    assert (pause["scope"], pause["reason"]) == ("all", "the bill of November")
    assert act(gateway, "/admin/resume") == {"resumed": [{"scope": "all", "name": ""}]}
    assert {answer.status for answer in talk(gateway)} == {200}


def test_a_paused_client_is_refused_alone_also_after_a_restart(gateway: Gateway) -> None:
    act(gateway, "/admin/pause?client=ci")
    for _ in range(2):
        assert {answer.status for answer in talk(gateway, headers=CI)} == {503}
        assert {answer.status for answer in talk(gateway)} == {200}
        gateway.stop()
        gateway.start()
    assert act(gateway, "/admin/resume?all=true") == {"resumed": [{"scope": "client", "name": "ci"}]}
    assert {answer.status for answer in talk(gateway, headers=CI)} == {200}


def test_a_paused_provider_is_passed_over_where_there_is_another(gateway: Gateway) -> None:
    act(gateway, "/admin/pause", b'{"provider": "one"}')
    for answer in talk(gateway):
        assert (answer.status, gateway.row(answer.trace_id)["provider"]) == (200, "two")
    (only, *_) = talk(gateway, model="one/m", count=1)
    assert only.status == 503 and b"paused the provider one" in only.body


def test_who_may_not_administer_may_not_pause(gateway: Gateway) -> None:
    """Nor may a client's key, nor a page of another site, whose browser brings the cookie along."""
    for headers in ({}, {"authorization": f"Bearer {KEY}"}, {"cookie": "arbiter_admin=0"}):
        assert gateway.get("/admin/pause", method="POST", headers=headers, body=b"").status == 401
    form = {"content-type": "application/x-www-form-urlencoded"}
    token = ADMIN["authorization"].removeprefix("Bearer ")
    signed = gateway.get("/admin/sign-in", method="POST", headers=form, body=f"token={token}".encode())
    cookie = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
    foreign = {**cookie, "origin": "https://evil.example"}
    assert gateway.get("/admin/pause", method="POST", headers=foreign, body=b"").status == 403
    assert {answer.status for answer in talk(gateway, count=2)} == {200}
    own = {**cookie, "origin": f"http://127.0.0.1:{gateway.port}"}
    assert gateway.get("/admin/pause", method="POST", headers=own, body=b"").status == 200
    assert {answer.status for answer in talk(gateway, count=2)} == {503}


def test_an_action_is_one_line_with_the_callers_address(gateway: Gateway) -> None:
    act(gateway, "/admin/pins/clear?provider=one")
    (line,) = [line for line in gateway.lines() if line["message"] == "an operator acted"]
    assert line["peer"].startswith("127.0.0.1:") and (line["action"], line["target"]) == ("clear_pins", "one")
