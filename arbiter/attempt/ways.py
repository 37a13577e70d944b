"""How a rung is asked: in which format, at which path, and what is so for every request that goes there."""

from __future__ import annotations

from typing import cast

import msgspec

from arbiter.attempt.ask import Ask
from arbiter.clock import monotonic
from arbiter.routing.plan import Rung
from arbiter.state.base import State
from arbiter.wire import dialects, native, native_marks
from arbiter.wire.converse_models import is_known
from arbiter.wire.dialects import dialect_of
from arbiter.wire.format import EMBEDDINGS, FORMATS, Asked
from arbiter.wire.messages_models import abilities_of
from arbiter.wire.openai_models import dialect
from arbiter.wire.openai_servers import taken


def spoken(asked: str, rung: Rung, *, lacks: bool = False) -> str:
    """The format in which `rung` is asked for what a client asked in the format `asked`: its own; where a provider has
    both of OpenAI's, that of a client who speaks one of them, as far as it really has it (SPEC 6.1)."""
    provider = rung.provider
    if rung.api is not None or rung.wire != native.CHAT or asked == native.CHAT:
        return rung.wire
    if asked != native.RESPONSES:
        return native.RESPONSES if provider.api == "responses" else rung.wire
    if provider.takes_logins:
        return native.RESPONSES  # what came with a login goes out as it came, or not at all
    if provider.responses_api == "auto":
        has_them = (bool(provider.accounts[0].key) or provider.oauth is not None) and not lacks
    else:
        has_them = provider.responses_api == "native"
    return native.RESPONSES if has_them else rung.wire


def may_lack(asked: str, rung: Rung) -> bool:
    """Whether it is to be found out if there is an endpoint for Responses: it is tried, and chat is there in its
    place."""
    is_open = asked == native.RESPONSES and rung.api is None and rung.wire == native.CHAT
    return is_open and rung.provider.responses_api == "auto" and not rung.provider.takes_logins


def is_lacking(state: State, rung: Rung) -> bool:
    """Whether somebody found out lately that there is no endpoint for Responses behind its base URL."""
    return state.standing().lacking.get(rung.url, 0.0) > monotonic()


def counts_tokens(asked: str, rung: Rung, *, lacks: bool = False) -> bool:
    """Whether it may be asked to count: whoever has the format `asked` is asked as that vendor's clients ask it."""
    return dialect_of(rung.provider).counts(asked) and spoken(asked, rung, lacks=lacks) in (asked, "any")


class Way(msgspec.Struct, frozen=True):
    """What is so for every request of a format at a path to one rung, where it is known to have what it is asked for.

    `changes` says whether the dialect has anything to change in a body, `respells` whether chat's reasoning may have to
    be spelled otherwise though nobody else answered. `targets` are those of a request without a query, by whether it
    streams.
    """

    is_native: bool
    is_chat: bool
    is_sent_as_it_came: bool
    sets_marks: bool
    spoken_by: dialects.Dialect
    changes: bool
    respells: bool
    targets: dict[bool, str]


_WAYS = 32  # of a rung: some paths name something of the client's


def way_of(ask: Ask, rung: Rung) -> Way:
    """The way of such a request, worked out for the first and kept with the rung."""
    key = ask.format.name, ask.path
    known = rung.ways.get(key)
    if known is None:
        if len(rung.ways) >= _WAYS:
            rung.ways.clear()
        known = rung.ways[key] = _worked_out(ask, rung)
    return cast(Way, known)


def _worked_out(ask: Ask, rung: Rung) -> Way:
    name, provider = ask.format.name, rung.provider
    spoken_by, takes_logins = dialect_of(provider), provider.takes_logins
    is_chat = name == native.CHAT and not takes_logins
    return Way(
        name not in EMBEDDINGS and goes_native(ask, rung, spoken(name, rung)),
        is_chat,
        takes_logins,
        native_marks.sets(rung.target),
        spoken_by,
        type(spoken_by).changes is not dialects.Dialect.changes,
        is_chat and taken(telling_name(rung, native.CHAT), rung.target.server).spells != "the maker's",
        {},
    )


def goes_native(ask: Ask, rung: Rung, wire: str) -> bool:
    """Whether nothing is changed that need not be, where the rung is asked in the format `wire`."""
    return wire in (ask.format.name, "any") and (rung.provider.relay == "native" or ask.is_bound_to_format)


def telling_name(rung: Rung, wire: str) -> str:
    """The name by which a builder knows what the model takes: the operator's, where the provider's does not say."""
    if rung.known_as is None or not dialect_of(rung.provider).names_its_own or _says(wire, rung.model):
        return rung.model
    return rung.known_as if _says(wire, rung.known_as) else rung.model


def _says(wire: str, model: str) -> bool:
    if wire == native.MESSAGES:
        return abilities_of(model) is not None
    return dialect(model).known if wire in FORMATS else is_known(model)


def target_of(rung: Rung, format: Asked, ask: Ask, path: str, query: str = "") -> str:
    """The request target for what the client asked at `path`, as the provider's dialect has it."""
    dialect = dialect_of(rung.provider)
    return dialect.target(rung.provider, format.name, path, rung.model, stream=ask.stream, query=query)
