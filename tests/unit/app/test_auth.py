"""Who may do what: client keys, and the gate of the administration."""

from __future__ import annotations

import dataclasses

import pytest

from arbiter.app import auth
from arbiter.app.auth import COOKIE, Gate, Keys, is_loopback
from arbiter.clock import now_ms
from arbiter.config.load import parse
from arbiter.config.snapshot import Client, Snapshot, key_digest
from arbiter.errors import Forbidden, Unauthorized
from arbiter.wire.headers import Incoming

KEY = "arb-test-key-0001"


def snapshot(mode: str = "require", token: str = "", forward: str = "") -> Snapshot:
    text = f"""
auth: {{ mode: {mode} }}
clients:
  - {{ name: ci, key_hash: "sha256:{key_digest(KEY)}", allow: ["gpt-*"] }}
providers:
  up: {{ type: echo, models: [gpt-1] }}
admin: {{ token: "{token}"{f", forward_auth_header: {forward}" if forward else ""} }}
"""
    return parse(text, "test.yaml", {})


def incoming(**fields: str) -> Incoming:
    return Incoming([(name.replace("_", "-"), value) for name, value in fields.items()])


@pytest.mark.parametrize(
    "fields",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer {KEY}"},
        {"x_api_key": KEY},
        {"x_arbiter_key": KEY},
    ],
)
def test_a_known_key_names_its_client_wherever_it_stands(fields):
    assert Keys(snapshot()).identify(incoming(**fields)).name == "ci"


def test_our_own_header_counts_beside_a_login_that_is_not_ours():
    """A passed-through login keeps `Authorization`; our key then comes beside it."""
    caller = Keys(snapshot()).identify(incoming(authorization="Bearer sk-somebody-elses", x_arbiter_key=KEY))
    assert caller.name == "ci"


def test_an_unknown_key_is_refused_or_unattributed_as_the_mode_says():
    stranger = incoming(authorization="Bearer nope")
    with pytest.raises(Unauthorized) as refused:
        Keys(snapshot("require")).identify(stranger)
    assert "nope" not in str(refused.value) and "none that it knows was sent: it goes into" in str(refused.value)
    with pytest.raises(Unauthorized, match="none was sent: it goes into `Authorization: Bearer KEY`, `x-api-key"):
        Keys(snapshot("require")).identify(incoming())
    assert Keys(snapshot("attribute")).identify(stranger).name is None
    assert Keys(snapshot("none")).identify(incoming(x_api_key=KEY)).name is None


LOCAL = {"host": "localhost:8080"}


@pytest.mark.parametrize(
    ("fields", "peer", "local"),
    [
        (LOCAL, "127.0.0.1:5", True),
        (LOCAL, "[::1]:5", True),
        (LOCAL, "[::ffff:127.0.0.1]:5", True),
        ({"host": "127.0.0.1"}, "127.0.0.1:5", True),
        ({"host": "[::1]:8080"}, "127.0.0.1:5", True),
        (LOCAL, "10.0.0.7:5", False),
        ({"host": "gateway.example"}, "127.0.0.1:5", False),  # DNS rebinding
        ({"host": "localhost.evil.example"}, "127.0.0.1:5", False),
        ({}, "127.0.0.1:5", False),
        ({**LOCAL, "x_forwarded_for": "1.2.3.4"}, "127.0.0.1:5", False),
        ({**LOCAL, "forwarded": "for=1.2.3.4"}, "127.0.0.1:5", False),
        ({**LOCAL, "origin": "https://evil.example"}, "127.0.0.1:5", False),
        ({**LOCAL, "origin": "null"}, "127.0.0.1:5", False),
        ({**LOCAL, "origin": "http://localhost:8080"}, "127.0.0.1:5", True),
        ({**LOCAL, "origin": "http://["}, "127.0.0.1:5", False),
        ({**LOCAL, "origin": "http://localhost:80@evil.example"}, "127.0.0.1:5", False),
        ({"host": "localhost:80@evil.example"}, "127.0.0.1:5", False),
        ({"host": "["}, "127.0.0.1:5", False),
        (LOCAL, "", True),  # a unix socket
        ({**LOCAL, "x_forwarded_for": "1.2.3.4"}, "", False),  # with the usual proxy in front of it
        ({"host": "gateway.example"}, "", False),
        ({**LOCAL, "sec_fetch_site": "cross-site"}, "", False),
        ({**LOCAL, "sec_fetch_site": "cross-site"}, "127.0.0.1:5", False),
        ({**LOCAL, "sec_fetch_site": "same-origin"}, "127.0.0.1:5", True),
    ],
)
def test_loopback_means_from_here_and_by_no_detour(fields, peer, local):
    """SPEC 12.1: a proxy on this machine, or a foreign page in its browser, is not its operator."""
    assert is_loopback(incoming(**fields), peer) is local


def test_without_a_gate_only_loopback_gets_in():
    gate = Gate(snapshot())
    gate.check(incoming(**LOCAL), "127.0.0.1:5", "GET")
    with pytest.raises(Forbidden, match=r"admin\.token"):
        gate.check(incoming(**LOCAL), "10.0.0.7:5", "GET")


def test_a_token_opens_as_bearer_and_as_cookie_and_closes_loopback():
    gate = Gate(snapshot(token="secret-token"))
    gate.check(incoming(authorization="Bearer secret-token"), "10.0.0.7:5", "POST")
    gate.check(incoming(cookie=f"a=b; {COOKIE}={gate.cookie}"), "10.0.0.7:5", "GET")
    wrong = {"authorization": "Bearer secret-tokem"}, {"cookie": f"{COOKIE}=secret-token"}, {"cookie": f"{COOKIE}="}
    for fields in (LOCAL, *wrong):
        with pytest.raises(Unauthorized):
            gate.check(incoming(**fields), "127.0.0.1:5", "GET")
    assert "secret-token" not in gate.cookie


def test_a_page_of_another_site_cannot_use_the_cookie_to_change_anything():
    gate = Gate(snapshot(token="secret-token"))
    cookie = {"cookie": f"{COOKIE}={gate.cookie}", "host": "gw.example"}
    gate.check(incoming(**cookie, origin="https://gw.example", sec_fetch_site="same-origin"), "10.0.0.7:5", "POST")
    origin = {"origin": "https://evil.example"}
    for foreign in (origin, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}):
        with pytest.raises(Forbidden):
            gate.check(incoming(**cookie, **foreign), "10.0.0.7:5", "POST")


def test_a_forwarded_user_counts_from_a_trusted_proxy_only():
    gate = Gate(snapshot(forward="X-Forwarded-User"))
    gate.check(incoming(x_forwarded_user="ann", host="gw.example"), "127.0.0.1:5", "GET")
    with pytest.raises(Unauthorized):
        gate.check(incoming(x_forwarded_user="ann", host="gw.example"), "10.0.0.7:5", "GET")
    with pytest.raises(Unauthorized):
        gate.check(incoming(**LOCAL), "127.0.0.1:5", "GET")


# Keys that end -------------------------------------------------------------------------------------------------------

OLD, GONE = "arb-an-old-key-0001", "arb-a-revoked-key-01"


def ended(mode: str) -> Keys:
    expired = Client("old", key_digest(OLD), expires_ms=now_ms())
    revoked = Client("gone", key_digest(GONE), revoked_ms=1, expires_ms=1)
    return Keys(dataclasses.replace(snapshot(mode), keys=(expired, revoked)))


@pytest.mark.parametrize("mode", ["attribute", "require"])
@pytest.mark.parametrize(("key", "said"), [(OLD, "has expired"), (GONE, "was revoked")])
def test_a_key_that_ended_is_refused_wherever_keys_count(mode, key, said):
    """SPEC 8.1: it says why and repeats nothing of the key. As a stranger its caller might be allowed more than it."""
    for fields in ({"x_api_key": key}, {"x_arbiter_key": key, "authorization": "Bearer sk-a-login-of-its-own"}):
        with pytest.raises(Unauthorized, match=said) as refused:
            ended(mode).identify(incoming(**fields))
        assert key not in str(refused.value)


def test_where_keys_are_ignored_one_that_ended_is_too():
    assert ended("none").identify(incoming(x_api_key=GONE)).name is None


@pytest.mark.parametrize("mode", ["attribute", "require"])
def test_another_key_beside_one_that_ended_is_still_good(mode):
    caller = ended(mode).identify(incoming(x_arbiter_key=OLD, authorization=f"Bearer {KEY}"))
    assert caller.name == "ci"


def test_a_key_is_good_up_to_its_last_millisecond(monkeypatch):
    keys = Keys(dataclasses.replace(snapshot(), keys=(Client("brief", key_digest(OLD), expires_ms=1000),)))
    monkeypatch.setattr(auth, "now_ms", lambda: 999)
    assert keys.identify(incoming(x_arbiter_key=OLD)).name == "brief"
    monkeypatch.setattr(auth, "now_ms", lambda: 1000)
    with pytest.raises(Unauthorized):
        keys.identify(incoming(x_arbiter_key=OLD))


@pytest.mark.parametrize("mode", ["none", "attribute", "require"])
def test_a_login_is_what_is_left_when_our_own_are_taken_out(mode: str) -> None:
    """Whatever opens this gateway is in no login, wherever it stands, also beside another in one header."""
    taker = snapshot(mode, token="admin-token-1")
    claude = parse("providers: { c: { type: anthropic, auth: passthrough } }", "t", {}).providers["c"]
    keys = Keys(dataclasses.replace(taker, providers={"c": claude}, fingerprint_key=b"k" * 32))
    theirs, other = "Bearer sk-ant-oat01-x", "sk-ant-api03-y"
    ours = {"x_arbiter_key": KEY} if mode == "require" else {}
    for fields, sent in (
        ({"authorization": theirs}, {"authorization": theirs}),
        ({"authorization": theirs, "x_api_key": other}, {"authorization": theirs, "x-api-key": other}),
        ({"authorization": theirs, "x_api_key": KEY}, {"authorization": theirs}),
        ({"authorization": f"Bearer {KEY}", "x_api_key": other}, {"x-api-key": other}),
    ):
        login = keys.identify(incoming(**ours, **fields)).login
        assert login is not None and dict(login.sent) == sent
        assert login == keys.identify(incoming(**ours, **fields)).login and login.label.startswith("login-")
    for fields in (
        {},
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"{theirs}, Bearer {KEY}"},
        {"authorization": f"Bearer  {KEY} "},
        {"authorization": "Bearer arb-of-another-time"},
        {"authorization": "Bearer admin-token-1"},
        {"authorization": "Basic YTpi"},
        {"authorization": "Bearer "},
        {"x_api_key": f" {KEY}"},
        {"x_api_key": ""},
    ):
        assert keys.identify(incoming(**ours, **fields)).login is None, fields
    plain = Keys(taker)
    assert plain.identify(incoming(**ours, authorization=theirs)).login is None


def test_logins_are_told_apart_by_a_key_that_only_the_gateway_has() -> None:
    claude = parse("providers: { c: { type: anthropic, auth: passthrough } }", "t", {})
    one, other = (Keys(dataclasses.replace(claude, fingerprint_key=bytes([n]) * 32)) for n in (1, 2))
    asked = [incoming(authorization="Bearer a"), incoming(authorization="Bearer b"), incoming(x_api_key="a")]
    marks = [keys.identify(who).login.mark for keys in (one, other) for who in asked]  # type: ignore[union-attr]
    assert len(set(marks)) == len(marks) and all(len(mark) == 16 for mark in marks)
