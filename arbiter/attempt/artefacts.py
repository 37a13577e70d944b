"""What of an answer is remembered, and where it was made: so that who made it can be asked again (SPEC 4.7a)."""

from __future__ import annotations

from msgspec import Raw

from arbiter.accounting.facts import UNFINISHED
from arbiter.attempt.ask import Ask
from arbiter.attempt.lane import Lane
from arbiter.attempt.live import Live
from arbiter.routing.plan import Plan
from arbiter.state.base import Origin, State
from arbiter.wire import bound, bound_responses, native

REMEMBERED_S = 25 * 3600.0  # as long as a conversation lives that rested for a day
STORED_S = 30 * 86_400.0  # for how long OpenAI keeps a response


class Signatures:
    """Of Messages, whatever is signed."""

    def of_answer(self, body: bytes) -> list[bytes]:
        return bound.marks_of_answer(body)

    def reader(self) -> bound.SignatureReader:
        return bound.SignatureReader()


class Artefacts:
    """One request's answer, and what of it is remembered."""

    __slots__ = ("_format", "_is_new", "_keeper", "_life_s")

    def __init__(
        self, format: str, keeper: Signatures | bound_responses.Keeper, life_s: float, *, is_new: bool = True
    ) -> None:
        self._format = format
        self._keeper = keeper
        self._life_s = life_s
        self._is_new = is_new  # the answer is made for this request, and not looked up

    def watch(self, state: State, live: Live, lane: Lane) -> None:
        """Read along with a stream. What is translated has none: artefacts do not cross formats.

        A response is there from its first event on, for whoever would cancel it, or ask for it when the stream broke;
        and so is each of its items, which another client must not name in the meantime.
        """
        if live.stream is not None and lane.name == "native" and lane.format.name == self._format:
            live.stream.signatures = self._keeper.reader()
            if self._format == native.RESPONSES:
                made = _made_at(live)  # and not `live`, which holds the stream
                live.stream.on_marks = lambda marks: self._keep(state, made, marks)

    def remember(self, state: State, live: Live) -> None:
        """The answer is through, or broke off: who made what is in it may be asked later."""
        if live.stream is not None:
            marks = live.stream.marks
        else:
            marks = self._keeper.of_answer(live.body) if live.kind is None else []
        if marks:
            self._keep(state, _made_at(live), marks)
        if isinstance(self._keeper, bound_responses.Keeper) and self._keeper.stored and self._is_new:
            self._owe(state, live, self._keeper)

    def _owe(self, state: State, live: Live, keeper: bound_responses.Keeper) -> None:
        """What goes on in the background has yet to be counted, by whoever first sees it whole."""
        facts = live.facts
        if facts is not None and facts.finish in UNFINISHED and facts.response_id is not None:
            self._keep(state, _made_at(live), [bound_responses.owed_mark(keeper.owner, facts.response_id)])

    def _keep(self, state: State, made: Origin, marks: list[bytes]) -> None:
        state.remember(marks, made, self._life_s)


def _made_at(live: Live) -> Origin:
    return Origin(live.rung.provider.name, live.account.label or "", live.rung.model)


def artefacts_of(ask: Ask, plan: Plan, *, is_guarded: bool) -> Artefacts | None:
    """What is to be remembered of the answer to `ask`; None where nothing is.

    Where there is nobody else to ask, nothing need be known; but what is stored for a client may be asked for later.
    """
    if ask.format.name == native.MESSAGES:
        return Artefacts(native.MESSAGES, Signatures(), REMEMBERED_S) if is_guarded else None
    if ask.format.name != native.RESPONSES:
        return None
    members = ask.opened.members
    has_others = is_guarded or any(len(rung.provider.accounts) > 1 for rung in plan.rungs)
    # What was made in the background has items that nobody has seen yet.
    is_new = not ask.is_of_stored
    stored = not is_new or (not ask.is_bound_to_format and bytes(members.get("store", Raw(b"true"))) != b"false")
    if not has_others and not stored:
        return None
    return Artefacts(
        native.RESPONSES,
        bound_responses.Keeper(ask.owner, has_others, stored, bound_responses.conversation_of(members)),
        STORED_S if stored else REMEMBERED_S,
        is_new=is_new,
    )
