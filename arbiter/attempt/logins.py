"""Callers' own logins: whom a plan may still ask, and on which account (SPEC 6.5).

A login is sent to one provider: the first of the plan's that takes logins and speaks as its caller does, and never to
one at another origin than that which first accepted it. Until one has, it goes to no other origin than that which it
was first sent to: two first requests at the same time must not show it to two. It goes with the request as that came;
where that cannot be, it does not go. Everybody else of the plan is asked with keys of the gateway's own, and sees
nothing of it.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from arbiter.attempt import ways
from arbiter.config.snapshot import Account, Provider
from arbiter.errors import ArbiterError, Forbidden, ProtocolUnsupported, Unauthorized
from arbiter.routing.plan import Caller, Login, Plan, Rung
from arbiter.state.base import Origin, State
from arbiter.wire.format import EMBEDDINGS

HOME_S = 30 * 86400.0
"""For how long it is remembered whose login one is; each time that it is accepted anew."""

CLAIM_S = 600.0
"""For how long it is one origin's that was sent it and has not answered yet: as long as an answer may take."""
_CLAIM, _SHARED = "claim", "claim of several"
"""What stands for the account until then: one request relies on it, or others besides, which may have been sent when
the first one was not."""
_CLAIMS = (_CLAIM, _SHARED)

_KNOWN = 256
_known: dict[tuple[int, bytes], tuple[Rung, Rung]] = {}  # agents ask the same with the same login, again and again


def admitted(plan: Plan, caller: Caller, asked: str, state: State) -> Plan:
    """`plan` for this caller, who asks in the format `asked`: whoever takes logins is asked on the caller's, or not.

    Errors: Unauthorized where it brought none, ProtocolUnsupported where none may go along, Forbidden where its login
    is somebody else's, or ours is not for it; each only where nobody else is left.
    """
    for rung in plan.rungs:
        if rung.provider.auth != "key":
            break
    else:
        return plan
    rungs: list[Rung] = []
    fault: ArbiterError | None = None
    passed: dict[str, None] = {}
    known, claims = _known_of(caller.login, state), False
    home = known.model if known is not None else None
    for rung in plan.rungs:
        if not rung.provider.takes_logins:
            found = _fault_of_ours(rung.provider, caller, asked)
            if found is None:
                rungs.append(rung)
                continue
        else:
            found = _fault(rung, caller.login, asked, home)
            if found is None and caller.login is not None and home is None:
                known = state.claim(caller.login.mark, _of(rung.provider, _CLAIM), CLAIM_S)
                claims, home = known is None, known.model if known is not None else None
                found = _fault(rung, caller.login, asked, home)
            if found is None and caller.login is not None and known is not None and known.account in _CLAIMS:
                state.remember([caller.login.mark], _of(rung.provider, _SHARED), CLAIM_S)
        if found is None and caller.login is not None:
            home = origin(rung.provider)
            rungs.append(_with_login(rung, caller.login))
            continue
        fault = fault or found
        passed[f"{rung.provider.name} is left out: {found}"] = None
    if not rungs:
        assert fault is not None, "a plan has a rung"
        raise fault
    rationale = "; ".join((plan.rationale, *passed))
    return msgspec.structs.replace(plan, rungs=tuple(rungs), rationale=rationale, claims=claims)


def accounts(provider: Provider, login: Login | None) -> tuple[Account, ...]:
    """The accounts on which `provider` may be asked for a caller with this login."""
    if not provider.takes_logins:
        return provider.accounts
    return (Account(login.label, sent=login.sent),) if login is not None else ()


def accepted(login: Login, provider: Provider, state: State) -> None:
    """`provider` took it: from now on it is that origin's."""
    (known,) = state.origins([login.mark])
    if known is None or known.account in _CLAIMS:
        state.remember([login.mark], _of(provider, login.label), HOME_S)


def unsent(login: Login, state: State) -> None:
    """Whoever was to be sent it first was not. It stays theirs where another request meant for them relies on that."""
    _free(login, state, (_CLAIM,))


def disclaimed(login: Login, state: State) -> None:
    """Whoever was sent it says that it is none of theirs, and had not accepted it."""
    _free(login, state, _CLAIMS)


def _free(login: Login, state: State, claims: tuple[str, ...]) -> None:
    (known,) = state.origins([login.mark])
    if known is not None and known.account in claims:
        state.forget(login.mark, known)  # that very claim: another worker's request may have been accepted meanwhile


def _of(provider: Provider, account: str) -> Origin:
    return Origin(provider.name, account, origin(provider))


def origin(provider: Provider) -> str:
    """Where a provider is: a login goes to no other such place."""
    end = provider.endpoint
    return f"unix:{end.uds}" if end.uds is not None else f"{end.scheme}://{end.host}:{end.port}"


def _known_of(login: Login | None, state: State) -> Origin | None:
    """Whose a login is, or is claimed to be."""
    if login is None:
        return None
    (known,) = state.origins([login.mark])
    return known


def _fault_of_ours(provider: Provider, caller: Caller, asked: str) -> ArbiterError | None:
    """Why `provider` may not be asked with what the gateway has of its own; None where it may."""
    if provider.oauth is None:
        return None
    if asked in EMBEDDINGS:
        return ProtocolUnsupported(f"logins buy no embeddings, and {provider.name!r} is asked on one")
    if provider.oauth.clients and caller.name not in provider.oauth.clients:
        who = f"the client {caller.name!r}" if caller.name is not None else "a caller without a key of this gateway"
        return Forbidden(f"the login of {provider.name!r} is not for {who} (`oauth.clients`)")
    return None


def _fault(rung: Rung, login: Login | None, asked: str, home: str | None) -> ArbiterError | None:
    """Why `rung` may not be asked on this login; None where it may."""
    name = rung.provider.name
    if asked in EMBEDDINGS:
        return ProtocolUnsupported(
            f"logins buy no embeddings: {name!r} is sent its callers' own, and takes none for them"
        )
    if ways.spoken(asked, rung) != asked:
        return ProtocolUnsupported(
            f"a login goes with its request as that came, and {name!r} is asked in {ways.spoken(asked, rung)}, not "
            f"in {asked}"
        )
    if login is None:
        return Unauthorized(
            f"the provider {name!r} is sent its callers' own logins, and none came along: send it in `Authorization: "
            "Bearer` or `x-api-key`, and a key of this gateway in `X-Arbiter-Key`"
        )
    if home is not None and home != origin(rung.provider):
        return Forbidden(f"this login is for {home}, and {name!r} is somebody else")
    return None


def _with_login(rung: Rung, login: Login) -> Rung:
    key = (id(rung), login.mark)
    known = _known.get(key)
    if known is None or known[0] is not rung:
        provider = replace(rung.provider, accounts=accounts(rung.provider, login))
        if len(_known) >= _KNOWN:
            _known.clear()
        known = _known[key] = (rung, Rung(provider, rung.model, rung.max_output, rung.api, rung.known_as))
    return known[1]
