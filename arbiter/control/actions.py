"""What an administrator may do to the state that the workers share: forget cooldowns and pins, pause and resume.

Only POST changes anything, and only through a worker: its gate judges the caller, and the socket here is our own
user's alone. What was asked is a JSON object in the body, or the same names in the query.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.config.decode import nearest
from arbiter.config.snapshot import Account, Snapshot
from arbiter.control.api import fault, json
from arbiter.control.audit import Audit
from arbiter.ledger import query
from arbiter.ledger.query import BadParameter
from arbiter.state.base import Administered, Pause, Standing

STATE_OFF = (
    "the workers share no state, since `storage.url` is `none`: "
    "each keeps pins and cooldowns in its own memory, out of reach from here"
)
# A reason is for people, and every worker holds those of all pauses.
REASON_CHARACTERS = 200

Scope = Literal["all", "client", "provider"]
Members = dict[str, Any]


class Actions:
    """The endpoints that change something. `state` None: there is nothing that they could reach.

    A state is for one thread, and requests are answered in many: in the control process all that is done with it is
    done here, one at a time.
    """

    def __init__(
        self, state: Administered | None, snapshot: Callable[[], Snapshot], audit: Audit | None = None
    ) -> None:
        self._state = state
        self._snapshot = snapshot
        self._audit = audit if audit is not None else Audit(None, None)
        self._using = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """See `describe`, of the state and the configuration as they are now."""
        with self._using:
            return describe(self._state, self._snapshot())

    def look(self) -> None:
        """To be called each second: see `State.look`. A state that is crowded is swept before its hour."""
        if self._state is not None:
            with self._using:
                self._state.look()
                if self._state.is_crowded():
                    self._state.sweep()

    def clear_refused(self) -> None:
        """The configuration was read again: use refused keys again."""
        if self._state is not None:
            with self._using:
                self._state.clear_refused()

    def sweep(self) -> None:
        """To be called hourly: see `Administered.sweep`."""
        if self._state is not None:
            with self._using:
                self._state.sweep()

    def routes(self) -> list[Route]:
        return [
            self._route("/admin/cooldowns/clear", self.clear_cooldowns, ("provider",)),
            self._route("/admin/pins/clear", self.clear_pins, ("provider",)),
            self._route("/admin/pause", self.pause, ("client", "provider", "reason")),
            self._route("/admin/resume", self.resume, ("client", "provider", "all")),
        ]

    def clear_cooldowns(self, state: Administered, wanted: Members) -> Members:
        """Forget cooldowns and breakers: use now what was to rest."""
        return {"cleared": state.clear_cooldowns(self._provider(wanted))}

    def clear_pins(self, state: Administered, wanted: Members) -> Members:
        """Forget pins: each conversation is routed anew, and its next turn may meet a cold cache."""
        return {"cleared": state.clear_pins(self._provider(wanted))}

    def pause(self, state: Administered, wanted: Members) -> Members:
        """Stop traffic: all of it, a client's or a provider's. Once more changes the reason, not since when."""
        scope, name = self._scope(wanted, ())
        reason: str = wanted.get("reason", "")
        if len(reason) > REASON_CHARACTERS or not reason.isprintable():
            raise BadParameter("reason", f"at most {REASON_CHARACTERS} printable characters on one line")
        known = state.standing().pauses.get((scope, name))
        pause = Pause(scope, name, known.since_ms if known is not None else clock.now_ms(), reason)
        state.pause(pause)
        return {"paused": _shown(pause)}

    def resume(self, state: Administered, wanted: Members) -> Members:
        """Let traffic flow again: what was paused alike, or with `all` whatever is paused."""
        pauses = state.standing().pauses
        if wanted.get("all", False):
            if {"client", "provider"} & wanted.keys():
                raise BadParameter("all", "lifts every pause: name no client or provider beside it")
            lifted = [paused for paused in sorted(pauses) if state.resume(*paused)]
        else:
            scope, name = self._scope(wanted, pauses)
            lifted = [(scope, name)] if state.resume(scope, name) else []
        return {"resumed": [{"scope": scope, "name": name} for scope, name in lifted]}

    def _route(self, path: str, act: Callable[[Administered, Members], Members], members: tuple[str, ...]) -> Route:
        async def answer(request: Request) -> Response:
            return await run_in_threadpool(self._answer, act, members, request, await request.body())

        return Route(path, answer, methods=["POST"])

    def _answer(
        self,
        act: Callable[[Administered, Members], Members],
        members: tuple[str, ...],
        request: Request,
        body: bytes,
    ) -> Response:
        try:
            wanted = members_of(request, body, members)
            if self._state is None:
                return fault(503, STATE_OFF, reason="state_off")
            with self._using:
                reason = self._state.reason
                done = act(self._state, wanted) if not reason else {}
                reason = reason or self._state.reason
        except BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        except Malformed as error:
            return fault(400, str(error))
        # A state never raises: one that cannot reach the others acts on its own memory, which moves no worker.
        if reason:
            return fault(503, f"the workers cannot be told: {reason}", reason="state_not_shared")
        target = wanted.get("client") or wanted.get("provider")
        self._audit.note(
            request, act.__name__, target, {name: wanted[name] for name in wanted if name == "reason"} | done
        )
        return json(done)

    def _provider(self, wanted: Members) -> str | None:
        name: str | None = wanted.get("provider")
        if name is not None:
            _known("provider", name, self._snapshot().providers)
        return name

    def _scope(self, wanted: Members, paused: Iterable[tuple[str, str]]) -> tuple[Scope, str]:
        """Whom a pause is for. A name that is `paused` counts, though the configuration may have lost it since."""
        if "client" in wanted and "provider" in wanted:
            raise BadParameter("client", "name a client or a provider, not both")
        snapshot = self._snapshot()
        scope: Scope
        if "client" in wanted:
            scope, names = "client", set(snapshot.client_names)
        elif "provider" in wanted:
            scope, names = "provider", set(snapshot.providers)
        else:
            return "all", ""
        name: str = wanted[scope]
        _known(scope, name, names | {one for kind, one in paused if kind == scope})
        return scope, name


def describe(state: Administered | None, snapshot: Snapshot) -> dict[str, Any]:
    """The shared state for GET /admin/api/state: names and numbers, never a key. Seconds are seconds from now.

    Shapes: without a state, what it would tell is None, which is not "none".
    """
    if state is None:
        off = dict.fromkeys(("pins", "artefacts", "cooldowns", "breakers", "refused", "pauses", "measured"))
        return {"sharing": {"healthy": True, "reason": STATE_OFF}, **off, "accounts": _accounts(snapshot, None, 0.0)}
    standing, now, counts = state.standing(), clock.monotonic(), state.counts()
    # What is known of a key that was replaced says nothing of the one in its place.
    current = {(provider.name, one.name) for provider in snapshot.providers.values() for one in provider.accounts}
    # Logins come and go; whoever rests by one is known by nothing else.
    takers = {provider.name for provider in snapshot.providers.values() if provider.takes_logins}
    current |= {account for account in standing.cooldowns if account[0] in takers}
    return {
        "sharing": {"healthy": not state.reason, "reason": state.reason},
        "pins": counts.pins,
        "artefacts": counts.artefacts,
        "cooldowns": [
            {
                "provider": provider,
                "account": Account.label_of(account),
                "seconds_left": round(cooldown.until - now, 3),
                "told": cooldown.is_told,
                "quota": cooldown.is_quota,
            }
            for (provider, account), cooldown in sorted(standing.cooldowns.items())
            if cooldown.until > now and (provider, account) in current
        ],
        "breakers": [
            {
                "provider": provider,
                "failures": breaker.failures,
                "open": breaker.open_until > 0,
                "seconds_left": round(max(0.0, breaker.open_until - now), 3),
            }
            for provider, breaker in sorted(standing.breakers.items())
            if breaker.failures or breaker.open_until > 0
        ],
        "refused": [
            {"provider": provider, "account": Account.label_of(account)}
            for provider, account in sorted(standing.refused & current)
        ],
        "pauses": [_shown(pause) for _, pause in sorted(standing.pauses.items())],
        "measured": [
            {"target": target, "first_event_s": round(first_s, 3), "tokens_per_s": round(pace, 1)}
            for target, (first_s, pace) in sorted(state.measures().items())
        ],
        "accounts": _accounts(snapshot, standing, now),
    }


def _accounts(snapshot: Snapshot, standing: Standing | None, now: float) -> list[dict[str, Any]]:
    """Every provider's accounts, and how each stands: "ready", "resting" or "refused"; None where nobody can say."""
    shown = []
    for provider in snapshot.providers.values():
        for account in provider.accounts:
            stands = None
            if standing is not None:
                name = (provider.name, account.name)
                cooldown = standing.cooldowns.get(name)
                is_resting = cooldown is not None and cooldown.until > now
                stands = "refused" if name in standing.refused else "resting" if is_resting else "ready"
            shown.append({"provider": provider.name, "account": account.label, "standing": stands})
    return shown


class Malformed(Exception):
    """A body that is no JSON object."""


def members_of(request: Request, body: bytes, members: tuple[str, ...]) -> Members:
    """What the body and the query ask for, together.

    Errors: Malformed, and BadParameter for a member that does not exist, is no text, or is given twice.
    """
    wanted: Members = dict(query.once(request.query_params.multi_items()))
    if "all" in wanted:
        if wanted["all"] not in ("true", "false"):
            raise BadParameter("all", "is true or false")
        wanted["all"] = wanted["all"] == "true"
    if body.strip():
        try:
            given = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Malformed(f"the body is no JSON: {error}") from error
        if not isinstance(given, dict):
            raise Malformed("the body is to be a JSON object")
        for name in given.keys() & wanted.keys():
            raise BadParameter(name, "given in the query and in the body")
        wanted |= given
    for name, value in wanted.items():
        if name not in members:
            raise BadParameter(name[:80], f"no such member{nearest(name, members)}")
        if name == "all" and not isinstance(value, bool):
            raise BadParameter(name, "is true or false")
        if name != "all" and not isinstance(value, str):
            raise BadParameter(name, "is to be a text")
    return wanted


def _known(kind: str, name: str, known: Iterable[str]) -> None:
    """Errors: BadParameter naming the nearest."""
    names = list(known)
    if name not in names:
        raise BadParameter(kind, f"there is no {kind} of this name{nearest(name, names)}")


def _shown(pause: Pause) -> dict[str, Any]:
    return {"scope": pause.scope, "name": pause.name, "since_ms": pause.since_ms, "reason": pause.reason}
