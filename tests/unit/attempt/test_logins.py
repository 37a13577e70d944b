"""Whom a plan may still ask for a caller with a login, or without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arbiter.attempt import logins, ways
from arbiter.config.snapshot import Account, Client, Endpoint, OAuth, Provider
from arbiter.errors import Forbidden, ProtocolUnsupported, Unauthorized
from arbiter.routing.plan import ANYONE, Caller, Login, Plan, Rung
from arbiter.state.memory import Memory
from arbiter.wire import embeddings, native

LOGIN = Login(b"0123456789abcdef", (("authorization", "Bearer secret-of-ann"),))
ANN = Caller(None, LOGIN)


def taker(name: str, host: str = "a.test", wire: str = native.MESSAGES) -> Provider:
    kind = "anthropic" if wire == native.MESSAGES else "openai"
    return Provider(name, kind, wire, Endpoint("https", host, 443), auth="passthrough")


OURS = Provider("ours", "openai", native.CHAT, Endpoint("https", "b.test", 443), (Account(None, "sk-1"),))


def plan(*providers: Provider) -> Plan:
    return Plan(tuple(Rung(provider, "m") for provider in providers), "why")


def test_a_plan_without_takers_is_the_very_plan():
    """Who does not use this pays one look for it."""
    asked = plan(OURS)
    assert logins.admitted(asked, ANN, native.MESSAGES, Memory()) is asked


def test_the_login_is_the_account_and_says_nothing():
    found = logins.admitted(plan(taker("a"), OURS), ANN, native.MESSAGES, Memory())
    (account,) = found.rungs[0].provider.accounts
    assert account.sent == LOGIN.sent and account.name == account.label == LOGIN.label and not account.key
    assert "secret" not in repr(found) and "secret" not in repr(LOGIN)
    assert found.rungs[1].provider is OURS


def test_the_first_taker_is_the_only_one():
    """Another at the same place is the same house; one elsewhere never gets to see it."""
    found = logins.admitted(plan(taker("a"), taker("b", "else.test"), taker("c")), ANN, native.MESSAGES, Memory())
    assert [rung.provider.name for rung in found.rungs] == ["a", "c"]
    assert "b is left out: this login is for https://a.test:443" in found.rationale


def test_who_accepted_it_keeps_it():
    state = Memory()
    logins.accepted(LOGIN, taker("a"), state)
    with pytest.raises(Forbidden, match=r"this login is for https://a\.test:443"):
        logins.admitted(plan(taker("b", "else.test")), ANN, native.MESSAGES, state)
    found = logins.admitted(plan(taker("b", "else.test"), OURS), ANN, native.MESSAGES, state)
    assert [rung.provider.name for rung in found.rungs] == ["ours"]
    logins.accepted(LOGIN, taker("b", "else.test"), state)
    assert logins.admitted(plan(taker("a")), ANN, native.MESSAGES, state).rungs


def test_two_first_requests_go_to_one_place():
    """The second before anybody has answered the first: to where that went, or nowhere (SPEC 6.5). A place that says
    that the login is none of its own has no claim to it; who accepted one keeps it whatever it says later."""
    state = Memory()
    assert logins.admitted(plan(taker("a")), ANN, native.MESSAGES, state).claims
    with pytest.raises(Forbidden, match=r"this login is for https://a\.test:443"):
        logins.admitted(plan(taker("b", "else.test")), ANN, native.MESSAGES, state)
    found = logins.admitted(plan(taker("b", "else.test"), taker("a")), ANN, native.MESSAGES, state)
    assert [rung.provider.name for rung in found.rungs] == ["a"] and not found.claims
    logins.disclaimed(LOGIN, state)
    assert logins.admitted(plan(taker("b", "else.test")), ANN, native.MESSAGES, state).rungs
    logins.accepted(LOGIN, taker("b", "else.test"), state)
    logins.disclaimed(LOGIN, state)
    with pytest.raises(Forbidden):
        logins.admitted(plan(taker("a")), ANN, native.MESSAGES, state)


def test_a_claim_that_another_request_relies_on_outlives_who_made_it():
    """The first was not sent after all. The second is on its way to the same place: a third must not show the login to
    another. Whose it is told to be none of, or who accepted it, decides as ever."""
    state = Memory()
    assert logins.admitted(plan(taker("a")), ANN, native.MESSAGES, state).claims
    assert not logins.admitted(plan(taker("a")), ANN, native.MESSAGES, state).claims
    logins.unsent(LOGIN, state)
    with pytest.raises(Forbidden, match=r"this login is for https://a\.test:443"):
        logins.admitted(plan(taker("b", "else.test")), ANN, native.MESSAGES, state)
    logins.disclaimed(LOGIN, state)
    assert logins.admitted(plan(taker("b", "else.test")), ANN, native.MESSAGES, state).claims
    logins.unsent(LOGIN, state)
    assert logins.admitted(plan(taker("a")), ANN, native.MESSAGES, state).claims, "nobody has seen it"
    logins.accepted(LOGIN, taker("a"), state)
    assert logins.admitted(plan(taker("a")), ANN, native.MESSAGES, state).rungs
    logins.disclaimed(LOGIN, state)
    logins.unsent(LOGIN, state)
    with pytest.raises(Forbidden):
        logins.admitted(plan(taker("b", "else.test")), ANN, native.MESSAGES, state)


def test_a_claim_is_freed_as_it_was_seen_and_not_what_came_after_it():
    """Between the look and the deed another worker's request is accepted: that stays."""

    class Overtaken(Memory):
        def forget(self, mark, origin=None):
            logins.accepted(LOGIN, taker("a"), self)
            return super().forget(mark, origin)

    state = Overtaken()
    assert logins.admitted(plan(taker("a")), ANN, native.MESSAGES, state).claims
    logins.disclaimed(LOGIN, state)
    with pytest.raises(Forbidden):
        logins.admitted(plan(taker("b", "else.test")), ANN, native.MESSAGES, state)


def test_without_a_login_the_others_are_asked_and_else_nobody():
    found = logins.admitted(plan(taker("a"), OURS), ANYONE, native.MESSAGES, Memory())
    assert [rung.provider.name for rung in found.rungs] == ["ours"]
    with pytest.raises(Unauthorized, match="none came along"):
        logins.admitted(plan(taker("a")), ANYONE, native.MESSAGES, Memory())


@pytest.mark.parametrize("asked", [native.CHAT, native.RESPONSES, embeddings.name])
def test_what_would_be_translated_is_not_sent(asked):
    with pytest.raises(ProtocolUnsupported):
        logins.admitted(plan(taker("a")), ANN, asked, Memory())


@pytest.mark.parametrize("asked", [native.CHAT, native.RESPONSES])
def test_both_of_openais_formats_are_its_own(asked):
    provider = replace(taker("a", wire=native.CHAT), responses_api="auto")
    assert logins.admitted(plan(provider), ANN, asked, Memory()).rungs
    with pytest.raises(ProtocolUnsupported):
        logins.admitted(plan(provider), ANN, native.MESSAGES, Memory())


def test_a_login_of_ours_is_for_those_whom_the_file_names():
    oauth = OAuth((Endpoint("https", "v.test", 443), "/token"), "client", clients=frozenset(["ann"]))
    provider = Provider("own", "openai", native.CHAT, Endpoint("https", "c.test", 443), auth="oauth", oauth=oauth)
    ann, bob = Caller(Client("ann", "")), Caller(Client("bob", ""))
    assert logins.admitted(plan(provider), ann, native.MESSAGES, Memory()).rungs
    for caller in (bob, ANYONE, ANN):
        with pytest.raises(Forbidden, match=r"oauth\.clients"):
            logins.admitted(plan(provider), caller, native.MESSAGES, Memory())
        found = logins.admitted(plan(provider, OURS), caller, native.MESSAGES, Memory())
        assert [rung.provider.name for rung in found.rungs] == ["ours"]
    with pytest.raises(ProtocolUnsupported, match="embeddings"):
        logins.admitted(plan(provider), ann, embeddings.name, Memory())
    assert ways.spoken(native.RESPONSES, Rung(provider, "m")) == native.RESPONSES
