"""(Asked, Snapshot) -> Plan. Pure: nothing here waits, reads or writes.

Precedence (SPEC 5.1, as far as it is built): an override of the client's, a model that a provider declares or
`provider/model`, then the pin of the conversation, then an alias, then `routing.default_provider`. docs/routing.md
tells it to people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec

from arbiter.config.snapshot import Client, Snapshot
from arbiter.errors import Forbidden, NoRoute
from arbiter.routing import undeclared
from arbiter.routing.groups import Order, Target, Way, Ways, rung_of
from arbiter.routing.plan import Asked, Caller, Pinned, Plan, Rung

_PINNED_PLANS = 256  # of one name: there are as many as targets and accounts
MOST_MET = 256  # names that nobody declared, which callers choose as they like


@dataclass(frozen=True, slots=True)
class _Route:
    """What one name means. `settled` is its plan where no request can change it."""

    way: Way | Target
    behind: Sequence[Way | Target] = ()
    alias: str | None = None
    warning: str | None = None
    is_auto: bool = False
    settled: Plan | None = field(init=False)
    pinned: dict[Pinned, Plan] = field(default_factory=dict)  # `settled` for each pin that came along

    def __post_init__(self) -> None:
        ways = (self.way, *self.behind)
        is_settled = all(way.settled is not None for way in ways)
        object.__setattr__(self, "settled", self._plan(Asked("")) if is_settled else None)

    def plan(self, asked: Asked) -> Plan:
        return self.settled or self._plan(asked)

    def _plan(self, asked: Asked) -> Plan:
        order = self.way.order(asked)
        rungs = {rung.name: rung for rung in order.rungs}
        why = order.why
        if len(rungs) > 1:
            why += f"; then {', '.join(list(rungs)[1:])}"
        chosen = len(rungs)
        for way in self.behind:
            for rung in way.order(asked).rungs:
                rungs.setdefault(rung.name, rung)
        if len(rungs) > chosen:
            why += f"; fallback {', '.join(list(rungs)[chosen:])}"
        # Whoever named a model gets that one, unless the operator said that there is another behind it.
        is_explicit = self.alias is None and len(rungs) == 1
        return Plan(tuple(rungs.values()), why, self.alias, self.warning, is_explicit, is_auto=self.is_auto)


class Router:
    """The routing table of one snapshot, worked out once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._default = snapshot.providers.get(snapshot.routing.default_provider or "")
        self._routes: dict[str, _Route] = {}
        self._met: dict[str, _Route] = {}  # of names that nobody declared: who asks for one asks for it again
        ways = Ways(snapshot)
        fallback = tuple(ways.of_member(member) for member in snapshot.routing.fallback)
        self._behind_models = fallback if snapshot.routing.explicit_fallback else ()
        for name, alias in snapshot.aliases.items():  # each also under the name it is advertised as
            self._routes[name] = _Route(ways.of_alias(alias), fallback, alias.name)
        # Later entries win, so the least of the precedence goes in first: an alias, then a bare model name, then
        # provider/model.
        owners: dict[str, list[str]] = {}
        for provider in snapshot.providers.values():
            for model in provider.models:
                owners.setdefault(model.id, []).append(provider.name)
        for name, (provider, model) in snapshot.models.items():
            rung = rung_of(snapshot, provider.name, model.id)
            why = f"model {name} -> {rung.name}"
            self._routes[name] = self._explicit(rung, why, _collision(name, owners[name], name in snapshot.aliases))
        for provider in snapshot.providers.values():
            for model in provider.models:
                name = f"{provider.name}/{model.id}"
                self._routes[name] = self._explicit(
                    rung_of(snapshot, provider.name, model.id), f"model {name} -> {name}"
                )

    def settled(self, model: str, client: Client | None, pinned: Pinned | None) -> Plan | None:
        """What `plan` finds for a name that means the same to everybody, whatever else is known; None where it has to
        be asked. Nearly all requests need no more."""
        route = self._routes.get(model) or self._met.get(model)
        if route is None or (client is not None and (client.allow or client.overrides)):
            return None
        return route.settled if pinned is None else route.pinned.get(pinned)

    def plan(self, asked: Asked) -> Plan:
        """The rungs for what is asked.

        Errors: Forbidden where the caller's key may not use the model, NoRoute where nobody serves it.
        """
        model, client = asked.model, asked.caller.client
        if client is not None and not is_allowed(model, asked.caller):
            raise Forbidden(f"the key {client.name!r} may not use the model {model!r}", param="model")
        base, window = undeclared.windowed(model)
        if window and model not in self._routes:
            plan = self.plan(msgspec.structs.replace(asked, model=base))
            return msgspec.structs.replace(plan, window=window, rationale=f"{plan.rationale}, window {window}")
        if client is not None and client.overrides and (used := _override(client, model)) is not None:
            plan = self._plan(msgspec.structs.replace(asked, model=used))
            return msgspec.structs.replace(plan, rationale=f"override {model} -> {used}; {plan.rationale}")
        return self._plan(asked)

    def _plan(self, asked: Asked) -> Plan:
        route = self._route(asked)
        pinned = asked.pinned
        if route.settled is None:
            plan = route.plan(asked)
            return plan if pinned is None else _with_pin(plan, pinned)
        if pinned is None:
            return route.settled
        known = route.pinned.get(pinned)
        if known is None:
            known = _with_pin(route.settled, pinned)
            if len(route.pinned) < _PINNED_PLANS:
                route.pinned[pinned] = known
        return known

    def _route(self, asked: Asked) -> _Route:
        model = asked.model
        route = self._routes.get(model) or self._met.get(model)
        if route is None:
            route = self._undeclared(asked)
            # Its rung is kept with it, and what others worked out for that. (An override may mean a name with a window
            # as it stands; who asks for that name does not.)
            if not undeclared.windowed(model)[1]:
                if len(self._met) >= MOST_MET:
                    self._met.clear()
                self._met[model] = route
        return route

    def _undeclared(self, asked: Asked) -> _Route:
        model = asked.model
        named, slash, rest = model.partition("/")
        provider = self._snapshot.providers.get(named)
        if slash and rest and provider is not None and not provider.models:
            # A provider that lists no models serves whatever it is asked by its own name.
            return self._explicit(Rung(provider, rest), f"model {model} -> {provider.name}/{rest}")
        for owner in self._snapshot.providers.values():
            name = rest if slash and named == owner.name else model
            if undeclared.takes(owner, name):
                rung = Rung(owner, name)
                return self._explicit(rung, f"auto model {model} -> {rung.name}", is_auto=True)
        if self._default is not None:
            return self._explicit(Rung(self._default, model), f"default provider -> {self._default.name}/{model}")
        raise NoRoute(self._said_of(model, asked.caller), param="model")

    def _explicit(self, rung: Rung, why: str, warning: str | None = None, *, is_auto: bool = False) -> _Route:
        return _Route(Target(Order((rung,), why)), self._behind_models, warning=warning, is_auto=is_auto)

    def _said_of(self, model: str, caller: Caller) -> str:
        """What a caller is told of a model that nobody serves. Names that its key may not use stay unsaid."""
        from difflib import get_close_matches  # for mistakes alone

        said = f"no provider serves the model {model!r}; "
        named, slash, _ = model.partition("/")
        providers = self._snapshot.providers
        # Of a provider that there is, only its models are alike: its name alone is likeness enough for any.
        shared = f"{named}/" if slash and named in providers else ""
        known = [name for name in self._routes if name.startswith(shared) and is_allowed(name, caller)]
        ends = [name.removeprefix(shared) for name in known]
        if close := get_close_matches(model.removeprefix(shared)[:80], ends, n=1):
            return f"{said}did you mean {shared + close[0]!r}? GET /v1/models lists what there is"
        if slash and not shared:
            said += f"there is no provider {named!r}, but {', '.join(providers)}; "
        return f"{said}GET /v1/models lists what there is"


def is_allowed(model: str, caller: Caller) -> bool:
    """May this caller name this model? A client without an `allow` list may name any; an entry may be a glob. A window
    behind a name is no other model."""
    client = caller.client
    if client is None or not client.allow:
        return True
    names = {model, undeclared.windowed(model)[0]}
    return any(fnmatchcase(name, pattern) for pattern in client.allow for name in names)


def _override(client: Client, model: str) -> str | None:
    """What this client gets in place of `model`: by its very name, else by the first glob that fits."""
    found = dict(client.overrides)
    if model in found:
        return found[model]
    return next((used for asked, used in client.overrides if fnmatchcase(model, asked)), None)


def _with_pin(plan: Plan, pinned: Pinned) -> Plan:
    """`plan` with the target that served the conversation before in front, where it is among its own.

    A model that was named comes first whatever served before: then a pin chooses no more than its account.
    """
    rungs = plan.rungs
    at = len(rungs) - 1
    while at >= 0 and (rungs[at].model != pinned.model or rungs[at].provider.name != pinned.provider):
        at -= 1
    if at < 0 or (at and plan.alias is None):
        why = f"{plan.rationale}; the pin to {pinned.provider}/{pinned.model} does not fit"
        return msgspec.structs.replace(plan, rationale=why)
    if at:
        rungs = (rungs[at], *rungs[:at], *rungs[at + 1 :])
    on = f" on {pinned.account}" if pinned.account else ""
    why = f"pin -> {rungs[0].name}{on} ({plan.rationale})"
    return msgspec.structs.replace(plan, rungs=rungs, rationale=why, pinned=pinned)


def _collision(model: str, owners: Sequence[str], is_alias: bool) -> str | None:
    """What else the name of a declared model means; the model of the provider listed first is what it gets."""
    used, *others = owners
    if is_alias:
        others.append("an alias")
    if not others:
        return None
    return f"model_collision: {model} of {used} was used; the name also means {', '.join(others)}"
