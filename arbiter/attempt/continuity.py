"""The continuity guard: no fallback gets a conversation that it would refuse (SPEC 4.7a).

Thinking signatures are good where they were made: at the same base URL, for the same model. Who made which is
remembered by hash when an answer brings them; one that nobody remembers was made by whoever the conversation is pinned
to, as long as it never moved. A target that did not make one is *foreign* to it, and is passed over while there are
others. Where none is left, the thinking of closed turns is taken out for it; that of an open tool loop may not be.
"""

from __future__ import annotations

from arbiter.attempt.ask import Ask
from arbiter.attempt.conversation import Conversation
from arbiter.routing.plan import Plan, Rung
from arbiter.state.base import Origin, State
from arbiter.wire import bound, native


def guard(ask: Ask, plan: Plan, conversation: Conversation, state: State) -> Continuity | None:
    """The guard of one request, None where there is nothing to guard.

    Models that the caller named itself are its own affair: nothing is judged or taken out for them.
    """
    if plan.is_explicit or ask.counts_tokens or ask.format.name != native.MESSAGES:
        return None
    if len(plan.rungs) == 1 and (conversation.pinned is None or not conversation.pinned.moved):
        return None
    return Continuity(ask, plan, conversation, state)


class Continuity:
    """What one request carries that binds it, read when a target first needs to be judged."""

    __slots__ = ("_ask", "_makers", "_marks", "_pinned", "_state", "_urls")

    def __init__(self, ask: Ask, plan: Plan, conversation: Conversation, state: State) -> None:
        pinned = conversation.pinned
        self._ask = ask
        self._state = state
        self._pinned = pinned
        self._urls = {rung.provider.name: rung.url for rung in plan.rungs}
        self._marks: list[bytes] | None = None
        self._makers: list[tuple[str, str] | None] = []

    def fits(self, rung: Rung) -> bool:
        """Whether `rung` would take the conversation as it is."""
        if not self._is_native(rung):
            return True
        pinned = self._pinned
        if (
            pinned is not None
            and not pinned.moved
            and (pinned.provider, pinned.model) == (rung.provider.name, rung.model)
        ):
            return True  # it made all of it
        return not self._foreign(rung)

    def adapted(self, rung: Rung) -> Ask | None:
        """The request without the closed turns' thinking that `rung` would refuse; None where an open tool loop holds
        such thinking."""
        stripped = bound.without_thinking(self._ask.opened.members, self._foreign(rung))
        if stripped is None:
            return None
        return self._ask.edited(stripped.members, stripped.changed)

    def _foreign(self, rung: Rung) -> set[bytes]:
        if self._marks is None:
            self._marks = bound.marks(self._ask.opened.members)
            origins = self._state.origins(self._marks) if self._marks else []
            self._makers = [self._maker(origin) for origin in origins]
        home = (rung.url, rung.model)
        return {mark for mark, maker in zip(self._marks, self._makers, strict=True) if maker not in (None, home)}

    def _maker(self, origin: Origin | None) -> tuple[str, str] | None:
        if origin is not None:
            return self._urls.get(origin.provider, origin.provider), origin.model
        pinned = self._pinned
        if pinned is None or pinned.moved:
            return None
        return self._urls.get(pinned.provider, pinned.provider), pinned.model

    def _is_native(self, rung: Rung) -> bool:
        # Signatures do not cross formats: a translated request has none.
        return rung.wire in (self._ask.format.name, "any")
