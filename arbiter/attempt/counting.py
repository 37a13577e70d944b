"""Counting tokens (`/messages/count_tokens`, `/responses/input_tokens`, Gemini's `:countTokens`): by the target where
it can, else estimated.

Asked is the plan's first target and nobody else, since it is the one that would read the prompt. What keeps it from
counting (an overload, a limit, a time-out, a pause) keeps the client from nothing: it gets an estimate, which says so.
What is wrong with the request, or with our key, is told as it is.

Agents ask in bursts, and somebody waits for a screen. So a count is short, and tried once with each key; it waits for
no cooldown and causes none, counts against no limit, is nobody's load, and holds half of the connections at most.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

import msgspec

from arbiter.attempt import ladder, ways
from arbiter.attempt.amounts import Amount
from arbiter.attempt.ask import Ask
from arbiter.attempt.books import Books
from arbiter.attempt.conversation import Conversation
from arbiter.attempt.ladder import Around, Doors
from arbiter.attempt.live import Live
from arbiter.clock import monotonic
from arbiter.errors import (
    BadRequest,
    ErrorClass,
    KeyRefused,
    Paused,
    ProtocolUnsupported,
    Retry,
    UpstreamError,
    UpstreamStatus,
    let_go,
)
from arbiter.model import NOT_KEPT
from arbiter.routing.plan import Plan, Rung
from arbiter.wire import bound_responses, faults, native
from arbiter.wire.dialects import dialect_of

LACKING_S = 15 * 60.0  # how long a server that has no such endpoint is believed

Why = Literal["unsupported", "unavailable", "busy"]


class Estimate(msgspec.Struct, frozen=True):
    """A count of ours for `rung`, as clients of `format` have it. `why`: it cannot count, it could not be asked, or
    enough others ask it already."""

    rung: Rung
    tokens: int
    why: Why
    format: str

    @property
    def body(self) -> bytes:
        told = {"object": "response.input_tokens"} if self.format == native.RESPONSES else {}
        return msgspec.json.encode({**told, _COUNTED[self.format]: self.tokens})


_COUNTED = {native.MESSAGES: "input_tokens", native.RESPONSES: "input_tokens", native.GEMINI: "totalTokens"}
"""The member that holds a count, by the format that counts."""

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Counting:
    """One worker's counts under way."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()

    async def count(
        self,
        plan: Plan,
        ask: Ask,
        book: Books,
        doors: Doors,
        around: Around,
        conversation: Conversation,
        amount: Amount,
    ) -> Live | Estimate:
        """The target's own count, its answer whole, or our estimate.

        Errors: BadRequest for what is no conversation, InvalidReasoning for sealed reasoning that cannot be opened;
        what `ladder.climb` has, where it is not about this target now.
        """
        rung = plan.rungs[0]
        provider = rung.provider
        endpoint = rung.url + ask.path
        here = f"{endpoint} {rung.model}"
        lacking = around.state.standing().lacking
        lacks = ways.may_lack(ask.format.name, rung) and ways.is_lacking(around.state, rung)
        if (
            not ways.counts_tokens(ask.format.name, rung, lacks=lacks)
            or max(lacking.get(endpoint, 0.0), lacking.get(here, 0.0)) > monotonic()
        ):
            return _estimated(rung, ask, amount, "unsupported")
        if self._under_way[provider.name] >= max(1, provider.max_connections // 2):
            return _estimated(rung, ask, amount, "busy")
        alone = msgspec.structs.replace(plan, rungs=(rung,))
        self._under_way[provider.name] += 1
        try:
            live = await ladder.climb(alone, ask, book, doors, around, conversation)
        except Paused as error:
            let_go(error)
            return _estimated(rung, ask, amount, "unavailable")
        except UpstreamError as error:
            let_go(error)
            if _lacks(error):
                around.state.lack(endpoint, LACKING_S)
                return _estimated(rung, ask, amount, "unsupported")
            if _is_not_for(error, rung):
                around.state.lack(here, LACKING_S)
                return _estimated(rung, ask, amount, "unsupported")
            if error.retry is Retry.NEVER or error.code in (ErrorClass.CONFIG, ErrorClass.CONTEXT_LENGTH):
                raise
            return _estimated(rung, ask, amount, "unavailable")
        finally:
            self._under_way[provider.name] -= 1
        _learn(live, around, amount, _COUNTED[ask.format.name])
        return live


def _estimated(rung: Rung, ask: Ask, amount: Amount, why: Why) -> Estimate:
    members, format = ask.opened.members, ask.format.name
    name = {native.RESPONSES: "input", native.GEMINI: "contents"}.get(format, "messages")
    said = bytes(amount.members.get(name, b""))
    is_text = name == "input" and said[:1] == b'"'
    if not (is_text or said[:1] == b"[") or not said[1:-1].strip():
        raise BadRequest(f"{name}: there must be at least one", param=name)
    if ask.seems_sealed:
        ask.handed_along()  # what is damaged is refused as everywhere else
    if why == "unsupported" and format == native.RESPONSES and bound_responses.refers(members):
        # Most of the prompt stands elsewhere, where this target could not go on with it either.
        raise ProtocolUnsupported(NOT_KEPT, param="previous_response_id")
    return Estimate(rung, max(1, amount.tokens(rung.name)), why, format)


def _lacks(error: UpstreamError) -> bool:
    """Whether the server has no such endpoint. A 404 that speaks of a model means the model."""
    if not isinstance(error, UpstreamStatus) or error.status not in (404, 405, 501):
        return False
    if error.format == native.RESPONSES:
        return faults.lacks_endpoint(error)
    return error.status != 404 or b"model" not in error.body.lower()


_SPEAKS_OF_COUNTING = re.compile(rb"count[- ]tokens|counting tokens|token counting", re.IGNORECASE)


def _is_not_for(error: UpstreamError, rung: Rung) -> bool:
    """Whether the server counts for others, but not for this model, in this region or on this key. Clouds say it with
    the status of a bad request: the endpoint is a model's like others (Vertex AI), or knows few names (Bedrock)."""
    if isinstance(error, KeyRefused):
        return error.told == 403 and dialect_of(rung.provider).counts_by_right
    if not isinstance(error, UpstreamStatus) or error.status not in (400, 404):
        return False
    return _SPEAKS_OF_COUNTING.search(error.body) is not None


def _learn(live: Live, around: Around, amount: Amount, member: str) -> None:
    try:
        told = msgspec.json.decode(_decode_members(live.body).get(member, b""), type=int)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    around.amounts.counted(live.rung.name, amount, told)
