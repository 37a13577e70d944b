"""Sessions of a whole gateway: from a request's headers to what the administration shows, through every process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from arbiter.sessions.kinds import OPENCODE_TITLE
from tests.fakes.client import Caller, request
from tests.fakes.gateway import ADMIN, Gateway, until

BODY = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
ROOT = "0199c2a4-77aa-7d10"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = {"providers": {"echo": {"type": "echo", "models": ["m"]}}}
    with Gateway(config, tmp_path_factory.mktemp("sessions"), workers=2) as gateway:
        yield gateway


def ask(gateway: Gateway, body: dict[str, Any] = BODY, **headers: str) -> dict[str, Any]:
    """The row of one request with these headers."""

    async def main() -> str | None:
        async with await Caller.connect(gateway.port) as caller:
            pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
            answer = await caller.exchange(request("/v1/messages", body, headers=pairs))
            assert answer.status == 200
            return answer.trace_id

    return gateway.row(asyncio.run(main()))


def test_a_conversation_with_a_sub_agent_becomes_two_sessions(gateway: Gateway) -> None:
    """SPEC 8.3, through whichever worker each turn went."""
    main = [ask(gateway, x_claude_code_session_id=ROOT) for _ in range(3)]
    sub = ask(gateway, x_claude_code_session_id=ROOT, x_claude_code_agent_id="a1")
    assert [row["turn_index"] for row in main] == [1, 2, 3]
    assert (sub["turn_index"], sub["request_kind"]) == (1, "subagent")
    for row in (*main, sub):
        assert [(one["session"], one["request_kind"]) for one in row["attempts"]] == [
            (row["session"], row["request_kind"])
        ]
    found = gateway.get(f"/admin/api/sessions/%20{ROOT}", headers=ADMIN)
    assert found.status == 200, found.body
    assert (found.json["turns"], found.json["agent"]) == (3, "claude-code")
    assert [one["session"] for one in found.json["children"]] == [f"{ROOT}:a1"]


def test_an_operators_act_is_on_record_under_the_name_the_gate_knows(gateway: Gateway) -> None:
    """SPEC 8.4a. Who asks cannot choose what stands there."""
    ask(gateway, x_arbiter_session_id="to/be?ended#now")
    headers = {**ADMIN, "x-arbiter-user": "user:somebody-else"}
    path = "/admin/api/sessions/%20to%2Fbe%3Fended%23now"
    assert gateway.get(f"{path}/end", method="POST", headers=headers).json == {"ended": True}
    note = gateway.get(f"{path}/notes", method="POST", headers=headers, body=b'{"text": "done"}')
    assert note.json["note"]["who"] == "token"
    rows = gateway.get("/admin/api/audit?limit=2", headers=ADMIN).json["audit"]
    assert [(row["action"], row["target"], row["who"]) for row in rows] == [
        ("note", " to/be?ended#now", "token"),
        ("end", " to/be?ended#now", "token"),
    ]
    gateway.get("/admin/reload", method="POST", headers=headers)
    (row,) = gateway.get("/admin/api/audit?action=reload", headers=ADMIN).json["audit"]
    assert row["who"] == "token" and row["details"]["status"] == "200"


def test_labels_stay_with_us(gateway: Gateway) -> None:
    row = ask(gateway, x_arbiter_label="issue=12, team=blue, nonsense")
    assert json.loads(row["labels"]) == {"issue": "12", "team": "blue"}
    found = gateway.get("/admin/api/requests?label=issue=12", headers=ADMIN).json["requests"]
    assert [one["id"] for one in found] == [row["id"]]


def test_turns_go_on_where_they_were_when_control_dies(gateway: Gateway) -> None:
    """Nothing of a session is in control's memory."""
    for turn in range(1, 4):
        assert ask(gateway, x_arbiter_session_id="survivor")["turn_index"] == turn
        old = gateway.control
        assert old is not None
        os.kill(old, signal.SIGKILL)
        until(lambda old=old: gateway.control not in (None, old), "another control process")
    assert gateway.select("SELECT requests, turns FROM sessions WHERE session = 'survivor'") == [
        {"requests": 3, "turns": 3}
    ]


def test_a_title_nests_under_the_conversation_that_it_names(gateway: Gateway) -> None:
    """SPEC 8.3: opencode's request for a title comes first, and with a header that nobody believes from a stranger."""
    said = {"type": "text", "text": "please write a haiku about gateways"}
    asks = {"type": "text", "text": OPENCODE_TITLE + "\n"}
    agent = {"user_agent": "opencode/1.18.33", "x_session_id": "ses_1"}
    title = ask(gateway, {**BODY, "messages": [{"role": "user", "content": [asks, said]}]}, **agent)
    assert (title["request_kind"], title["session"]) == ("title", None)
    main = {**BODY, "messages": [{"role": "user", "content": [said]}], "tools": [{"name": "bash", "input_schema": {}}]}
    ask(gateway, main, x_opencode_session="ses_1", **agent)

    def nested() -> Any:
        return gateway.select("SELECT 1 FROM sessions WHERE session = 'ses_1' AND titles = 1 AND turns = 1")

    until(nested, "the title's place")
    assert gateway.row(title["trace_id"])["session"] == "ses_1"
