"""What an administrator may do to the shared state, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette

from arbiter import clock
from arbiter.app import admin, routes
from arbiter.app.auth import COOKIE, Gate
from arbiter.config.load import parse
from arbiter.config.snapshot import Account, key_digest
from arbiter.control.actions import STATE_OFF, Actions, describe
from arbiter.control.main import listen
from arbiter.errors import Forbidden, Unauthorized
from arbiter.state.base import Breaker, Pin, Standing
from arbiter.state.memory import Memory
from arbiter.wire.headers import Incoming
from tests.fakes.admin import serving
from tests.unit.control.test_admin import OverUnix

ONE_KEY = parse(
    f"""
clients:
  - {{ name: ci, key_hash: "sha256:{key_digest("arb-test-key-0001")}" }}
providers:
  openai: {{ type: openai, key: sk-test-0123456789, models: [gpt-5.2] }}
  local: {{ type: openai, endpoint: "http://127.0.0.1:9911/v1", models: [tiny] }}
admin: {{ token: admin-token-0001 }}
""",
    "arbiter.yaml",
    {},
)
POOL = (Account("main", "sk-test-0123456789"), Account("spare", "sk-test-9876543210"))
SNAPSHOT = replace(
    ONE_KEY, providers=ONE_KEY.providers | {"openai": replace(ONE_KEY.providers["openai"], accounts=POOL)}
)
PATHS = ("/admin/cooldowns/clear", "/admin/pins/clear", "/admin/pause", "/admin/resume")


@dataclass
class Site:
    """The actions on a socket, and the state that they act on."""

    socket: Path
    state: Any

    def post(self, target: str, body: Any = b"", status: int = 200, method: str = "POST") -> Any:
        connection = OverUnix(self.socket)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, target, data, {"x-arbiter-peer": "127.0.0.1:5"})
            answer = connection.getresponse()
            self.headers = {name.lower(): value for name, value in answer.getheaders()}
            text = answer.read()
        finally:
            connection.close()
        assert answer.status == status, text
        return json.loads(text) if method == "POST" else text

    def paused(self) -> set[tuple[str, str]]:
        return set(self.state.standing().pauses)


@contextlib.contextmanager
def site(tmp_path: Path, state: Any) -> Iterator[Site]:
    app = Starlette(routes=Actions(state, lambda: SNAPSHOT).routes())
    with serving(app, listen(tmp_path / "control.sock")):
        yield Site(tmp_path / "control.sock", state)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path, Memory()) as one:
        yield one


def test_cooldowns_of_one_provider_are_cleared_and_the_others_rest_on(here):
    for account in (("openai", "main"), ("openai", "spare"), ("local", "")):
        here.state.cool(account, 60, is_told=True, is_quota=False)
    assert here.post("/admin/cooldowns/clear", {"provider": "openai"}) == {"cleared": 2}
    assert set(here.state.standing().cooldowns) == {("local", "")}
    assert here.headers["cache-control"] == "no-store"
    assert here.post("/admin/cooldowns/clear") == {"cleared": 1}
    assert here.post("/admin/cooldowns/clear") == {"cleared": 0}


def test_pins_are_cleared_by_provider_or_all(here):
    for slot, provider in ((b"1" * 16, "openai"), (b"2" * 16, "local"), (b"3" * 16, "local")):
        here.state.set_pin(slot, Pin("m", provider, "m", ""), 3600)
    assert here.post("/admin/pins/clear?provider=openai") == {"cleared": 1}
    assert here.state.pin(b"1" * 16) is None and here.state.pin(b"2" * 16) is not None
    assert here.post("/admin/pins/clear", b" {} ") == {"cleared": 2}
    assert here.state.counts().pins == 0


def test_a_pause_stops_all_or_a_client_or_a_provider_and_each_is_lifted_by_itself(here):
    """SPEC 12.4a."""
    answer = here.post("/admin/pause", {"reason": "the bill"})["paused"]
    assert (answer["scope"], answer["name"], answer["reason"]) == ("all", "", "the bill")
    assert abs(answer["since_ms"] - clock.now_ms()) < 60_000
    assert here.post("/admin/pause", {"client": "ci"})["paused"]["scope"] == "client"
    assert here.post("/admin/pause?provider=local")["paused"]["name"] == "local"
    assert here.paused() == {("all", ""), ("client", "ci"), ("provider", "local")}
    assert here.post("/admin/resume", {"client": "ci"}) == {"resumed": [{"scope": "client", "name": "ci"}]}
    assert here.post("/admin/resume") == {"resumed": [{"scope": "all", "name": ""}]}
    assert here.paused() == {("provider", "local")}
    assert here.post("/admin/resume") == {"resumed": []}


def test_a_pause_said_again_keeps_since_when_and_takes_the_new_reason(here):
    since = here.post("/admin/pause", {"provider": "local"})["paused"]["since_ms"]
    again = here.post("/admin/pause", {"provider": "local", "reason": "it burns"})["paused"]
    assert (again["since_ms"], again["reason"]) == (since, "it burns")


def test_all_lifts_every_pause_also_one_whose_provider_the_file_lost(here, tmp_path):
    """A pause outlives a reload: it must not become one that nobody can lift."""
    for body in ({}, {"client": "ci"}, {"provider": "openai"}, {"provider": "local"}):
        here.post("/admin/pause", body)
    lost = parse("providers: { other: { type: echo, models: [m] } }", "arbiter.yaml", {})
    (tmp_path / "later").mkdir()
    app = Starlette(routes=Actions(here.state, lambda: lost).routes())
    with serving(app, listen(tmp_path / "later/control.sock")):
        later = Site(tmp_path / "later/control.sock", here.state)
        assert later.post("/admin/resume", {"provider": "local"})["resumed"] == [{"scope": "provider", "name": "local"}]
        assert later.post("/admin/pause", {"provider": "local"}, 400)["parameter"] == "provider"
        lifted = later.post("/admin/resume?all=true")["resumed"]
    assert [(one["scope"], one["name"]) for one in lifted] == [("all", ""), ("client", "ci"), ("provider", "openai")]
    assert here.paused() == set()


@pytest.mark.parametrize(
    ("target", "body", "parameter", "says"),
    [
        ("/admin/cooldowns/clear", {"provider": "opnai"}, "provider", 'did you mean "openai"?'),
        ("/admin/pins/clear?provider=", b"", "provider", "valid here: local, openai"),
        ("/admin/pause", {"client": "cy"}, "client", "valid here: ci"),
        ("/admin/pause", {"client": "openai"}, "client", "there is no client of this name"),
        ("/admin/resume", {"provider": "locl"}, "provider", 'did you mean "local"?'),
        ("/admin/pause", {"client": "ci", "provider": "local"}, "client", "not both"),
        ("/admin/pause", {"reasn": "x"}, "reasn", 'did you mean "reason"?'),
        ("/admin/pause", {"all": True}, "all", "no such member"),
        ("/admin/cooldowns/clear", {"client": "ci"}, "client", "no such member"),
        ("/admin/pause", {"client": 7}, "client", "text"),
        ("/admin/pause", {"client": None}, "client", "text"),
        ("/admin/pause", {"reason": "x" * 201}, "reason", "200"),
        ("/admin/pause", {"reason": "two\nlines"}, "reason", "one line"),
        ("/admin/resume", {"all": "yes"}, "all", "true or false"),
        ("/admin/resume?all=1", b"", "all", "true or false"),
        ("/admin/resume", {"all": True, "client": "ci"}, "all", "name no client"),
        ("/admin/pause?client=ci", {"client": "ci"}, "client", "in the query and in the body"),
        ("/admin/pause?client=ci&client=ci", b"", "client", "more than once"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_and_changes_nothing(here, target, body, parameter, says):
    """SPEC 12.2: a slip in a name must not pause everything, nor clear everything."""
    here.state.cool(("local", ""), 60, is_told=True, is_quota=False)
    here.state.set_pin(b"1" * 16, Pin("m", "local", "m", ""), 3600)
    answer = here.post(target, body, 400)
    assert answer["code"] == 400 and answer["parameter"] == parameter
    assert says in answer["detail"]
    assert here.paused() == set()
    assert here.state.standing().cooldowns and here.state.counts().pins == 1


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'"local"', b"provider=local", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(here, body):
    """Above all it is not taken for an empty one, which would mean everything."""
    for path in PATHS:
        assert "JSON" in here.post(path, body, 400)["detail"]
    assert here.paused() == set()


def test_only_post_changes_anything(here):
    """A link, a prefetch or a crawler must not."""
    for path in PATHS:
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            here.post(path, b"", 405, method)
            assert here.headers["allow"] == "POST"


def test_without_a_shared_state_the_answer_says_where_it_lives(tmp_path):
    """Never a success that moves nothing: a pause would be believed."""
    with site(tmp_path, None) as off:
        for path in PATHS:
            answer = off.post(path, b"", 503)
            assert (answer["reason"], answer["detail"]) == ("state_off", STATE_OFF)
        assert off.post("/admin/pause", {"clint": "ci"}, 400)["parameter"] == "clint"


def test_a_state_that_reaches_no_worker_is_no_success(tmp_path):
    class Alone(Memory):
        reason = "the disk is full"

    with site(tmp_path, Alone()) as alone:
        for path in PATHS:
            answer = alone.post(path, b"", 503)
            assert answer["reason"] == "state_not_shared" and "the disk is full" in answer["detail"]


def test_each_action_is_one_line_that_says_who_and_what(here, caplog):
    caplog.set_level(logging.INFO, "arbiter.control.audit")
    here.post("/admin/pause", {"provider": "local", "reason": "it burns"})
    here.post("/admin/resume", {"provider": "locl"}, 400)
    here.post("/admin/pins/clear")
    lines = [record.fields for record in caplog.records if record.name == "arbiter.control.audit"]
    assert [(line["action"], line["target"]) for line in lines] == [("pause", "local"), ("clear_pins", None)]
    assert {line["peer"] for line in lines} == {"127.0.0.1:5"}
    assert lines[0]["details"]["reason"] == "it burns"
    assert lines[1]["details"] == {"cleared": 0}


def test_the_state_shows_how_every_account_stands_and_no_key():
    state = Memory()
    state.cool(("openai", POOL[0].name), 60, is_told=True, is_quota=True)
    state.cool(("local", ""), -1, is_told=False, is_quota=False)
    state.refuse(("openai", POOL[1].name))
    state.set_pin(b"1" * 16, Pin("m", "openai", "m", "main"), 3600)
    for _ in range(50):
        state.failed("local")
    shown = Actions(state, lambda: SNAPSHOT).describe()
    assert shown["sharing"] == {"healthy": True, "reason": ""}
    assert (shown["pins"], shown["artefacts"]) == (1, 0)
    (cooldown,) = shown["cooldowns"]
    assert 0 < cooldown.pop("seconds_left") <= 60
    assert cooldown == {"provider": "openai", "account": "main", "told": True, "quota": True}
    (breaker,) = shown["breakers"]
    assert (breaker["provider"], breaker["open"]) == ("local", True)
    assert breaker["failures"] > 0 and breaker["seconds_left"] > 0
    assert shown["refused"] == [{"provider": "openai", "account": "spare"}]
    assert shown["accounts"] == [
        {"provider": "openai", "account": "main", "standing": "resting"},
        {"provider": "openai", "account": "spare", "standing": "refused"},
        {"provider": "local", "account": None, "standing": "ready"},
    ]
    assert "sk-test" not in json.dumps(shown)


def test_a_breaker_whose_time_is_up_is_still_told_from_a_closed_one():
    state = Memory()
    state.adopt(Standing(breakers={"local": Breaker(5, open_until=clock.monotonic() - 1)}))
    assert describe(state, SNAPSHOT)["breakers"] == [
        {"provider": "local", "failures": 5, "open": True, "seconds_left": 0.0}
    ]
    state.served("local")
    assert describe(state, SNAPSHOT)["breakers"] == []


def test_a_state_is_used_by_one_request_at_a_time(tmp_path):
    """Implementations are written for one thread."""
    together: list[int] = []
    inside = threading.Semaphore(1)

    class Watched(Memory):
        def clear_pins(self, provider=None):
            together.append(not inside.acquire(blocking=False))
            here.wait(0.05)  # long enough for the others to come in, if they could
            inside.release()
            return 0

    here = threading.Event()
    with site(tmp_path, Watched()) as one, ThreadPoolExecutor(4) as threads:
        assert [answer["cleared"] for answer in threads.map(one.post, ["/admin/pins/clear"] * 4)] == [0] * 4
    assert together == [False] * 4


def test_looking_after_a_state_that_is_off_is_nothing():
    looked = []

    class Looked(Memory):
        def look(self):
            looked.append(True)

    Actions(None, lambda: SNAPSHOT).look()
    Actions(Looked(), lambda: SNAPSHOT).look()
    assert looked == [True]


def test_a_state_that_nobody_shares_is_told_from_an_empty_one():
    shown = describe(None, SNAPSHOT)
    assert shown["sharing"]["reason"] == STATE_OFF
    assert shown["pins"] is None and shown["cooldowns"] is None and shown["pauses"] is None
    assert shown["accounts"][2] == {"provider": "local", "account": None, "standing": None}
    empty = describe(Memory(), SNAPSHOT)
    assert empty.keys() == shown.keys()
    assert empty["pins"] == 0 and empty["cooldowns"] == []


@pytest.mark.parametrize("path", PATHS)
def test_nobody_reaches_an_action_but_through_the_gate(path):
    """SPEC 12.1: without the token, or with a page of another site behind the cookie, nothing is relayed."""
    assert path not in routes.table()
    gate = Gate(SNAPSHOT)
    foreign = {"cookie": f"{COOKIE}={gate.cookie}", "host": "gw.example", "origin": "https://evil.example"}
    for fields, error in (({"host": "localhost"}, Unauthorized), (foreign, Forbidden)):
        exchange: Any = SimpleNamespace(
            worker=SimpleNamespace(gate=gate),  # without services: whatever went on from here would fail otherwise
            incoming=Incoming(list(fields.items())),
            out=SimpleNamespace(peer="127.0.0.1:5"),
            path=path,
            method="POST",
        )
        with pytest.raises(error):
            asyncio.run(admin.answer(exchange))
