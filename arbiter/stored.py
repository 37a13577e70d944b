"""Answers that a provider keeps: what a client asks of one by its id goes to the account that made it (SPEC 6.1)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from urllib.parse import parse_qs

from arbiter.attempt import logins
from arbiter.attempt.ask import Ask
from arbiter.call import Call
from arbiter.errors import NotFound
from arbiter.routing.plan import Caller, Plan, Rung
from arbiter.wire import native
from arbiter.wire.bound_responses import id_mark, owed_mark

ENDPOINTS = frozenset(("response", "input_items", "cancel"))


def understood(call: Call, caller: Caller) -> tuple[Plan, Ask]:
    """Who made the answer, as a plan of one target with one key, and what it is asked.

    Errors: NotFound where nobody remembers it, where it was given to somebody else, and where its maker has left the
    configuration: nobody else could know it.
    """
    state, ident = call.services.around.state, call.path.split("/")[2]
    (origin,) = state.origins([id_mark(caller.owner, ident)])
    provider = call.snapshot.providers.get(origin.provider) if origin is not None else None
    accounts = logins.accounts(provider, caller.login) if provider is not None else ()
    # Whoever has it now, on whatever login since: by its owner it is known already.
    is_any = provider is not None and provider.takes_logins
    account = next(
        (one for one in accounts if origin is not None and (is_any or (one.label or "") == origin.account)), None
    )
    if origin is None or provider is None or account is None:
        raise NotFound(f"Response with id {ident!r} not found.")
    # No other key of the provider's knows it.
    rung = Rung(replace(provider, accounts=(account,)), origin.model, api="responses")
    opened = native.Opened({}, origin.model, _streams(call))
    plan = Plan((rung,), f"{ident} was made by {rung.name}", is_explicit=True)
    limits = call.snapshot.limits
    return plan, Ask(
        call.format,
        call.path,
        opened,
        call.incoming,
        limits,
        stream=opened.stream,
        trace_id=call.row.trace_id,
        owner=caller.owner,
        method=call.method,
        claim=partial(state.forget, owed_mark(caller.owner, ident)),
        is_of_stored=True,
    )


def _streams(call: Call) -> bool:
    """Whether the answer is asked for as the stream that it was."""
    return call.method == "GET" and parse_qs(call.incoming.query).get("stream", [""])[-1] == "true"
