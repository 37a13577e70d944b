"""(model asked, Caller, Snapshot) -> Plan. Pure: nothing here waits, reads or writes.

Precedence (SPEC 5.1, as far as it is built): a model that a provider declares or `provider/model`, then a pinned
alias, then `routing.default_provider`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from arbiter.config.snapshot import Provider, Snapshot
from arbiter.errors import Forbidden, NoRoute
from arbiter.routing.plan import Caller, Plan, Rung


class Router:
    """The routing table of one snapshot, worked out once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._providers = snapshot.providers
        self._default = snapshot.providers.get(snapshot.routing.default_provider or "")
        self._plans: dict[str, Plan] = {}
        for name, alias in snapshot.aliases.items():  # each also under the name it is advertised as
            member = alias.members[0]
            provider = snapshot.providers[member.provider or ""]
            rung = _rung(provider, member.model)
            why = f"alias {alias.name} -> {provider.name}/{rung.model}"
            self._plans[name] = Plan((rung,), why, alias.name)
        # Later entries win, so the least of the precedence goes in first: an alias, then a bare model name, then
        # provider/model.
        for name, (provider, model) in snapshot.models.items():
            why = f"model {name} -> {provider.name}/{model.upstream}"
            self._plans[name] = Plan((_rung(provider, model.id),), why, warning=_collision(snapshot, name))
        for provider in snapshot.providers.values():
            for model in provider.models:
                name = f"{provider.name}/{model.id}"
                self._plans[name] = Plan((_rung(provider, model.id),), f"model {name} -> {name}")

    def plan(self, model: str, caller: Caller) -> Plan:
        """The rungs for `model`.

        Errors: Forbidden where the caller's key may not use it, NoRoute where nobody serves it.
        """
        if caller.client is not None and not is_allowed(model, caller):
            raise Forbidden(f"the key {caller.client.name!r} may not use the model {model!r}", param="model")
        plan = self._plans.get(model)
        if plan is not None:
            return plan
        named, slash, rest = model.partition("/")
        provider = self._providers.get(named)
        if slash and rest and provider is not None and not provider.models:
            # A provider that lists no models serves whatever it is asked by its own name.
            return Plan((Rung(provider, rest),), f"model {model} -> {provider.name}/{rest}")
        if self._default is not None:
            return Plan((Rung(self._default, model),), f"default provider -> {self._default.name}/{model}")
        raise NoRoute(self._said_of(model, caller), param="model")

    def _said_of(self, model: str, caller: Caller) -> str:
        """What a caller is told of a model that nobody serves. Names that its key may not use stay unsaid."""
        from difflib import get_close_matches  # for mistakes alone

        said = f"no provider serves the model {model!r}; "
        named, slash, _ = model.partition("/")
        # Of a provider that there is, only its models are alike: its name alone is likeness enough for any.
        shared = f"{named}/" if slash and named in self._providers else ""
        known = [name for name in self._plans if name.startswith(shared) and is_allowed(name, caller)]
        ends = [name.removeprefix(shared) for name in known]
        if close := get_close_matches(model.removeprefix(shared)[:80], ends, n=1):
            return f"{said}did you mean {shared + close[0]!r}? GET /v1/models lists what there is"
        if slash and not shared:
            said += f"there is no provider {named!r}, but {', '.join(self._providers)}; "
        return f"{said}GET /v1/models lists what there is"


def is_allowed(model: str, caller: Caller) -> bool:
    """May this caller name this model? A client without an `allow` list may name any; an entry may be a glob."""
    client = caller.client
    return client is None or not client.allow or any(fnmatchcase(model, pattern) for pattern in client.allow)


def _collision(snapshot: Snapshot, model: str) -> str | None:
    """What else the name of a declared model means; the model of the provider listed first is what it gets."""
    used = snapshot.models[model][0].name
    others = [provider.name for provider in snapshot.providers.values() if provider.model(model) is not None]
    others.remove(used)
    if model in snapshot.aliases:
        others.append("an alias")
    if not others:
        return None
    return f"model_collision: {model} of {used} was used; the name also means {', '.join(others)}"


def _rung(provider: Provider, model_id: str) -> Rung:
    """A declared model is asked for under the provider's name for it; any other under the name it came by."""
    model = provider.model(model_id)
    return Rung(provider, model.upstream, model.max_output) if model is not None else Rung(provider, model_id)
