"""Going on from an answer that no provider keeps, but the gateway does (SPEC 6.3).

An answer that was translated has an id of ours, which means nothing to any provider. Where content is captured, its
conversation is in the store: control reads it, never a worker, and a request that goes on from it is taken as if its
client had sent all of it. So is one that names items of such answers (`item_reference`), as the AI SDK does. From there
on nothing is special about it, what is captured of it included, so the next one needs but one look. Whose an answer is,
the state remembers; what is captured is stored a moment after its last byte, so who asks at once waits for that.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from msgspec import Raw

from arbiter.attempt.artefacts import STORED_S
from arbiter.attempt.ask import Ask
from arbiter.attempt.ladder import Doors
from arbiter.attempt.live import Live
from arbiter.clock import Deadline
from arbiter.config.snapshot import Budgets, Endpoint
from arbiter.errors import ArbiterError, ProtocolUnsupported, Unavailable
from arbiter.ledger.questions.conversation import ANSWERS_PATH, PATH, Kept
from arbiter.state.base import Origin, State
from arbiter.upstream.exchange import Outgoing
from arbiter.wire import bound_responses, native
from arbiter.wire.bound_responses import OWN_ANSWER, kept_mark, known_mark

WAIT_S = 3.0  # for what is captured to be stored
_AGAIN_S = 0.1
_ANSWER_BYTES = 20 << 20  # what control puts together is less
_BUDGETS = Budgets(queue_s=5, connect_s=2, unary_s=8)
_PREVIOUS = "previous_response_id"
_MAX_ANSWERS = 256  # that one request refers to


_decode = msgspec.json.Decoder(Kept).decode


def remember(state: State, ask: Ask, live: Live) -> None:
    """The client is about to be given this answer, under an id of ours; what it says is captured."""
    is_ours = ask.path == "/responses" and live.kind is not None
    if is_ours and bytes(ask.opened.members.get("store", b"")) != b"false":
        ident = OWN_ANSWER + ask.trace_id
        origin = Origin(live.rung.provider.name, live.account.label or "", live.rung.model)
        state.remember([known_mark(ident), kept_mark(ask.owner, ident)], origin, STORED_S)


async def carried_on(
    opened: native.Opened, owner: str | None, state: State, doors: Doors, control: Path
) -> native.Opened:
    """A Responses request with the whole conversation in it, where it goes on from an answer of ours or refers to items
    of such answers; else as it is.

    Errors: ProtocolUnsupported where not all of that is kept; Unavailable where the store does not answer.
    """
    members = await _named(opened.members, owner, state, doors, control)
    ident = bound_responses.previous_of(members)
    if ident is None or not ident.startswith(OWN_ANSWER) or state.origins([kept_mark(owner, ident)]) == [None]:
        if members is not opened.members:
            return msgspec.structs.replace(opened, members=members, edits=("$.input",))
        return opened
    kept = await _asked(PATH + ident.removeprefix(OWN_ANSWER), doors, control)
    if kept.why is not None:
        raise ProtocolUnsupported(f"{_PREVIOUS}: {kept.why}; send the whole conversation in `input`", param=_PREVIOUS)
    members = bound_responses.behind(members, kept.items)
    previous = members.pop(_PREVIOUS)
    return msgspec.structs.replace(opened, members=members, previous=previous, edits=("$.input", f"$.{_PREVIOUS}"))


async def _named(
    members: dict[str, Raw], owner: str | None, state: State, doors: Doors, control: Path
) -> dict[str, Raw]:
    """The request with the items of our answers in the place of references to them."""
    referred = bound_responses.own_items(members)
    traces = list(dict.fromkeys(referred.values()))
    origins = state.origins([kept_mark(owner, OWN_ANSWER + trace) for trace in traces])
    ours = [trace for trace, origin in zip(traces, origins, strict=True) if origin is not None]
    if not ours:
        return members
    if len(ours) > _MAX_ANSWERS:
        raise ProtocolUnsupported(f"input: it refers to items of more than {_MAX_ANSWERS} answers", param="input")
    kept = await _asked(ANSWERS_PATH + ",".join(ours), doors, control)
    if kept.why is not None:
        raise ProtocolUnsupported(f"input: of an item that is referred to: {kept.why}; send it whole", param="input")
    return bound_responses.with_items(members, dict(zip(kept.ids, kept.items, strict=True)))


async def _asked(path: str, doors: Doors, control: Path) -> Kept:
    deadline = Deadline(WAIT_S)
    endpoint = Endpoint("http", "localhost", 80, uds=str(control))
    while True:
        try:
            answered = await doors.transport.send(
                endpoint,
                Outgoing("GET", path, [], b""),
                _BUDGETS,
                stream=False,
                max_connections=16,
                idle_connections=4,
                idle_for_s=30,
            )
            body = await answered.read(_ANSWER_BYTES)
        except ArbiterError as error:
            raise Unavailable("what the gateway keeps of the conversation cannot be read now") from error
        if answered.status != 200:
            raise Unavailable("what the gateway keeps of the conversation cannot be read now", retry_after_s=1)
        kept = _decode(body)
        if not kept.is_late or not deadline.left_s():
            return kept
        await asyncio.sleep(_AGAIN_S)
