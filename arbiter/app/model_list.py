"""What a caller may name: `GET /models` and `GET /models/{id}` (SPEC 1.1).

Whoever sends `anthropic-version` gets Anthropic's shape, in pages, and whoever asks under one of Google's versions
Gemini's; everybody else a union that OpenAI's clients read, and Anthropic's too. What is not known of a model is left
out, or null where the vendor's shape has it so: neither yes nor no.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from arbiter.config.aliases import targets
from arbiter.config.rates import Card
from arbiter.config.snapshot import Alias, Model, Provider, Snapshot
from arbiter.errors import BadRequest, NoRoute
from arbiter.routing import undeclared
from arbiter.routing.plan import Asked, Caller, Rung
from arbiter.routing.router import Router, is_allowed

_LONGEST = 256
PAGE, MOST = 20, 1000  # of Anthropic's lists, as its own API has it
GOOGLES_PAGE = 50  # the same of Google's

Told = dict[str, Any]


class Able(NamedTuple):
    """What is known of a name: tokens of input and output, what it takes in, and words of the operator's own."""

    max_input: int | None = None
    max_output: int | None = None
    modalities: tuple[str, ...] | None = None
    metadata: tuple[tuple[str, str], ...] = ()


class Entry(NamedTuple):
    """One name. `owner` is its provider, or "alias"; `unsure` is who would be asked for a name that nobody declared."""

    id: str
    owner: str
    shown: str
    able: Able
    unsure: Rung | None = None


def entries(snapshot: Snapshot, caller: Caller) -> list[Entry]:
    """Every name that is listed for this caller: aliases as they are advertised, then models by their bare names."""
    found: dict[str, Entry] = {}
    for alias in snapshot.aliases.values():
        name = alias.advertise_as or alias.name
        found[name] = _of_alias(name, alias, snapshot)
    for name, (provider, model) in snapshot.models.items():
        found[name] = _of_model(name, provider, model)  # it wins over an alias of its name
    return [entry for name, entry in found.items() if is_allowed(name, caller)]


def entry(snapshot: Snapshot, router: Router, caller: Caller, name: str) -> Entry:
    """What is known under `name`, also where the list has it under another (an alias's own, or provider/model), with a
    window behind it, or not at all, and somebody is asked for it all the same.

    Errors: NoRoute for what there is not, and for what this caller may not name.
    """
    if is_allowed(name, caller) and len(name) <= _LONGEST and ".." not in name.split("/"):  # no request may name others
        owner, _, model_id = name.partition("/")
        provider = snapshot.providers.get(owner)
        model = provider.model(model_id) if provider is not None else None
        if provider is not None and model is not None:
            return _of_model(name, provider, model)
        if name in snapshot.models:
            return _of_model(name, *snapshot.models[name])
        if name in snapshot.aliases:
            return _of_alias(name, snapshot.aliases[name], snapshot)
        base, window = undeclared.windowed(name)
        if window:
            found = entry(snapshot, router, caller, base)
            return found._replace(id=name, able=found.able._replace(max_input=undeclared.tokens_of(window)))
        plan = router.plan(Asked(name, caller))
        rung = plan.rungs[0]
        able = _able(rung.provider, rung.model, rung.provider.model(rung.model))
        return Entry(name, rung.provider.name, rung.model, able, rung if plan.is_auto else None)
    raise NoRoute(f"there is no model {name[:256]!r}; GET /v1/models lists what there is", param="model")


def union_list(found: Sequence[Entry], started_s: int, started: str) -> Told:
    """The whole list, for OpenAI's clients and everybody's."""
    data = [union(one, started_s, started) for one in found]
    return {"object": "list", "data": data, **_ends(data), "has_more": False}


def union(one: Entry, started_s: int, started: str) -> Told:
    """One model for OpenAI's clients, and everybody's. `started` is what stands in for a date of release."""
    told: Told = {
        "id": one.id,
        "object": "model",
        "created": started_s,
        "owned_by": one.owner,
        "type": "model",
        "display_name": one.shown,
        "created_at": started,
        "lifecycle": "active",
    }
    able = one.able
    if able.max_input is not None:
        told["max_input_tokens"] = told["context_length"] = able.max_input
    if able.max_output is not None:
        told["max_tokens"] = able.max_output
    if able.modalities is not None:
        told["architecture"] = {"input_modalities": able.modalities}
    if able.metadata:
        told["metadata"] = dict(able.metadata)
    return told


def anthropic_page(found: Sequence[Entry], query: str, started: str) -> Told:
    """One page of the list as Anthropic has it. Errors: BadRequest for a query that cannot be meant."""
    asked = parse_qs(query, keep_blank_values=True)
    limit = _limit(asked.get("limit", [str(PAGE)])[-1])
    places = {one.id: place for place, one in enumerate(found)}
    after, before = _place(asked, "after_id", places), _place(asked, "before_id", places)
    if after is not None and before is not None:
        raise BadRequest("`after_id` and `before_id` cannot stand together", param="before_id")
    if before is not None:
        begin, end = max(0, before - limit), before
        has_more = begin > 0
    else:
        begin = 0 if after is None else after + 1
        end = begin + limit
        has_more = end < len(found)
    data = [anthropic(one, started) for one in found[begin:end]]
    return {"data": data, **_ends(data), "has_more": has_more}


def anthropic(one: Entry, started: str) -> Told:
    """One model as Anthropic tells of it.

    Of its `capabilities` all must be known or none is told: each must be there, with a yes or a no, and of
    most (citations, batches, the vendor's own tools) neither the catalog nor a price list says anything.
    """
    return {
        "type": "model",
        "id": one.id,
        "display_name": one.shown,
        "created_at": started,
        "lifecycle": "active",
        "max_input_tokens": one.able.max_input,
        "max_tokens": one.able.max_output,
        "capabilities": None,
        "line": None,
        "deprecated_at": None,
        "retires_at": None,
    }


def googles_page(found: Sequence[Entry], query: str) -> Told:
    """One page of the list as Gemini has it. Errors: BadRequest for a query that cannot be meant."""
    asked = parse_qs(query)
    size = _limit(asked.get("pageSize", [str(GOOGLES_PAGE)])[-1], "pageSize")
    token = asked.get("pageToken", ["0"])[-1]
    if not token.isascii() or not token.isdecimal() or len(token) > 6:
        raise BadRequest("`pageToken` is none that this list gave", param="pageToken")
    begin = int(token)
    told: Told = {"models": [googles(one) for one in found[begin : begin + size]]}
    if begin + size < len(found):
        told["nextPageToken"] = str(begin + size)
    return told


def googles(one: Entry) -> Told:
    """One model as Gemini tells of it."""
    told: Told = {
        "name": f"models/{one.id}",
        "version": one.id,
        "displayName": one.shown,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
    if one.able.max_input is not None:
        told["inputTokenLimit"] = one.able.max_input
    if one.able.max_output is not None:
        told["outputTokenLimit"] = one.able.max_output
    return told


# --------------------------------------------------------------------------------------------------------------- inside


def _of_model(name: str, provider: Provider, model: Model) -> Entry:
    return Entry(name, provider.name, model.id, _able(provider, model.upstream, model))


def _of_alias(name: str, alias: Alias, snapshot: Snapshot) -> Entry:
    return Entry(name, "alias", alias.display_name or alias.name, _common(_ables(alias, snapshot)))


def _ables(alias: Alias, snapshot: Snapshot) -> Iterator[Able]:
    for member in targets(alias.members, snapshot.aliases):
        provider = snapshot.providers[member.provider or ""]
        model = provider.model(member.model)
        yield _able(provider, model.upstream if model is not None else member.model, model)


def _able(provider: Provider, upstream: str, model: Model | None) -> Able:
    card = provider.cards.get(upstream, Card())
    most = model.max_output if model is not None else None
    return Able(provider.window(upstream), most, card.input_modalities, card.metadata)


def _common(members: Iterable[Able]) -> Able:
    """What holds whichever member serves: of that which is not known of all, nothing is."""
    inputs, outputs, modalities, _ = zip(*members, strict=True)
    kinds = [kind for kind in modalities[0] or () if all(taken and kind in taken for taken in modalities)]
    return Able(_least(inputs), _least(outputs), tuple(kinds) if None not in modalities else None)


def _least(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return min(known) if len(known) == len(numbers) else None


def _limit(written: str, name: str = "limit") -> int:
    if not written.isascii() or not written.isdecimal() or len(written) > 4 or not 1 <= int(written) <= MOST:
        raise BadRequest(f"`{name}` must be a number from 1 to {MOST:,}", param=name)
    return int(written)


def _place(asked: dict[str, list[str]], name: str, places: dict[str, int]) -> int | None:
    if name not in asked:
        return None
    place = places.get(asked[name][-1])
    if place is None:
        raise BadRequest(f"`{name}` names no model of this list", param=name)
    return place


def _ends(data: Sequence[Told]) -> Told:
    return {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
