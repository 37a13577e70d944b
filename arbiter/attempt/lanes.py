"""The two lanes: which of them a request takes to a rung.

Native, where the upstream speaks as the client does: bytes that need no change are not changed. Translated, where it
does not, or where the provider's `relay` is `rebuild`: the request and its answer pass through the neutral model.
"""

from __future__ import annotations

from arbiter.attempt.ask import Ask
from arbiter.attempt.lane import Lane
from arbiter.attempt.native_lane import EmbeddingsLane, NativeLane, StoredLane
from arbiter.attempt.translated_lane import TranslatedLane
from arbiter.attempt.ways import goes_native, spoken, way_of
from arbiter.errors import ProtocolUnsupported
from arbiter.routing.plan import Rung
from arbiter.wire import bound_responses, chat_thoughts, embeddings, native, native_marks
from arbiter.wire.format import EMBEDDINGS

_EMBEDDERS = (native.CHAT, native.RESPONSES, "any")
"""Who has embeddings: they stand beside OpenAI's other APIs, on every server of that vendor's formats. Google has them
in OpenAI's format too, besides its own."""


def holds_up(ask: Ask, rung: Rung, *, lacks: bool = False, moved: bool = False) -> bool:
    """Whether to `choose` would hold up everybody else on the loop: where a long request is read, and not only sent."""
    if ask.is_of_stored or not ask.is_long:
        return False
    if ask.format.name in EMBEDDINGS:
        return ask.format.name != embeddings.name
    if ask.seems_sealed or not goes_native(ask, rung, spoken(ask.format.name, rung, lacks=lacks)):
        return True
    if ask.format.name == native.CHAT:
        return moved or chat_thoughts.may_hold(ask.opened.members)
    return ask.format.name == native.MESSAGES and native_marks.sets(rung.target)


def choose(ask: Ask, rung: Rung, account: str = "", *, lacks: bool = False, moved: bool = False) -> Lane:
    """The lane for this request to this rung, on the account of that label; `lacks`: there is no endpoint for Responses
    behind its base URL; `moved`: others have answered in the conversation, too.

    Errors: BadRequest and ProtocolUnsupported where the request cannot be told to the upstream.
    """
    if ask.is_of_stored:
        return StoredLane(ask, rung)
    if not (lacks or ask.opened.edits) and way_of(ask, rung).is_native:
        return NativeLane(ask, rung, moved=moved)
    provider = rung.provider
    if ask.format.name in EMBEDDINGS:
        is_googles = provider.type == "gemini"
        if rung.wire not in _EMBEDDERS and not is_googles:
            raise ProtocolUnsupported(f"the provider {provider.name!r} has no embeddings")
        is_native = is_googles or ask.format.name == embeddings.name
        return NativeLane(ask, rung) if is_native else EmbeddingsLane(ask, rung)
    wire = spoken(ask.format.name, rung, lacks=lacks)
    if ask.opened.edits and wire == native.RESPONSES:
        ask = ask.edited(bound_responses.without_bare_thoughts(ask.opened.members), ())
    if goes_native(ask, rung, wire):
        return NativeLane(ask, rung, moved=moved)
    if ask.is_bound_to_format:
        what = "count tokens" if ask.counts_tokens else f"answer {ask.path}, which is forwarded as it is or not at all"
        raise ProtocolUnsupported(f"the provider {provider.name!r} cannot {what}")
    return TranslatedLane(ask, rung, wire, account, moved=moved)
