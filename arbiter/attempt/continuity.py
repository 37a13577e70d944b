"""The continuity guard: no fallback gets a conversation that it would refuse (SPEC 4.7a).

Some of what an answer brings is good only where it was made: thinking signatures of Messages at the same base URL, for
the same model, but those of a Claude at any home of that model (`claudes`); what OpenAI encrypted or stored, at the
same base URL, for the same account. Who made which is remembered by hash when an answer brings it; what nobody
remembers was made by whoever the conversation is pinned to, as long as it never moved. A target that did not make one
is *foreign* to it, and is passed over while there are others. Where none is left, the thinking of closed turns is taken
out for it; that of an open tool loop may not be.

Chat has no kind: what is thought there is text, and binds nobody. Whoever takes over is told it in a member that it
knows, or is not told it (`chat_thoughts`).
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

from arbiter.attempt import ways
from arbiter.attempt.ask import Ask
from arbiter.attempt.claudes import claude_of
from arbiter.attempt.conversation import Conversation
from arbiter.config.snapshot import Account
from arbiter.errors import NotFound
from arbiter.routing.plan import Plan, Rung
from arbiter.state.base import Origin, State
from arbiter.wire import bound, bound_responses, native

Home = tuple[str, str]
"""Where something is good: a base URL, and a model or an account there; "" and a Claude, at each home of it."""


class _Kind(Protocol):
    """What binds a conversation of one format."""

    def marks(self, ask: Ask) -> list[bytes]: ...

    def without(self, ask: Ask, foreign: set[bytes]) -> bound.Stripped | None: ...

    def home(self, rung: Rung, account: str) -> Home: ...

    def crosses(self, ask: Ask) -> bool:
        """Whether the conversation may go to another format, where none of it is left."""


class _Signed:
    """Messages: whoever has the model behind the URL takes it."""

    def marks(self, ask: Ask) -> list[bytes]:
        return bound.marks(ask.opened.members)

    def without(self, ask: Ask, foreign: set[bytes]) -> bound.Stripped | None:
        return bound.without_thinking(ask.opened.members, foreign)

    def home(self, rung: Rung, account: str) -> Home:
        claude = claude_of(rung)
        return (rung.url, rung.model) if claude is None else ("", claude)

    def crosses(self, ask: Ask) -> bool:
        return True


class _Encrypted:
    """Responses: whoever has the account takes it, for any model."""

    def marks(self, ask: Ask) -> list[bytes]:
        return bound_responses.marks(ask.opened.members, ask.owner)

    def without(self, ask: Ask, foreign: set[bytes]) -> bound.Stripped | None:
        return bound_responses.without_reasoning(ask.opened.members, ask.owner, foreign)

    def home(self, rung: Rung, account: str) -> Home:
        return rung.url, account

    def crosses(self, ask: Ask) -> bool:
        return not bound_responses.refers(ask.opened.members)


_KINDS: dict[str, _Kind] = {native.MESSAGES: _Signed(), native.RESPONSES: _Encrypted()}


def guard(ask: Ask, plan: Plan, conversation: Conversation, state: State) -> Continuity | None:
    """The guard of one request, None where there is nothing to guard.

    Models that the caller named itself are its own affair: nothing is judged or taken out for them.
    """
    kind = _KINDS.get(ask.format.name)
    if plan.is_explicit or ask.counts_tokens or kind is None:
        return None
    if len(plan.rungs) == 1 and (conversation.pinned is None or not conversation.pinned.moved):
        is_pool = ask.format.name == native.RESPONSES and len(plan.rungs[0].provider.accounts) > 1
        if not is_pool:
            return None
    return Continuity(ask, plan, conversation, state, kind)


def maker(ask: Ask, state: State) -> Origin | None:
    """Who should be asked because what the request goes on from was made there, whatever else is known of it."""
    if ask.format.name != native.RESPONSES:
        return None
    mark = bound_responses.newest(ask.opened.members, ask.owner)
    return state.origins([mark])[0] if mark is not None else None


def check_owner(ask: Ask, state: State) -> None:
    """See that all the request refers to is the client's own, as far as anybody remembers: behind one account of a
    provider's, one client could go on with another's conversation, which the model would tell it.

    What nobody remembers was made outside of the gateway, or too long ago; its provider judges that.

    Errors: NotFound in the vendor's words.
    """
    if ask.format.name != native.RESPONSES:
        return
    found = bound_responses.referred(ask.opened.members)
    if not found:
        return
    owns = [bound_responses.id_mark(ask.owner, one.ident) for one in found]
    kept = [bound_responses.kept_mark(ask.owner, one.kept_as) for one in found]
    known = [bound_responses.known_mark(one.kept_as) for one in found]
    origins = iter(state.origins([*owns, *kept, *known]))
    for one, own, own_kept, anybodys in zip(found, *(list(islice(origins, len(found))) for _ in range(3)), strict=True):
        if anybodys is not None and own is None and own_kept is None:
            raise NotFound(f"{one.what} with id {one.ident!r} not found.", param=one.param)


class Continuity:
    """What one request carries that binds it, read when a target first needs to be judged."""

    __slots__ = ("_ask", "_kind", "_makers", "_marks", "_pinned", "_rungs", "_state")

    def __init__(self, ask: Ask, plan: Plan, conversation: Conversation, state: State, kind: _Kind) -> None:
        pinned = conversation.pinned
        self._ask = ask
        self._kind = kind
        self._state = state
        self._pinned = pinned
        self._rungs = plan.rungs
        self._marks: list[bytes] | None = None
        self._makers: list[Home | None] | None = None

    def knows(self, rung: Rung) -> bool:
        """Whether nothing need be read to judge `rung`."""
        return self._marks is not None or self._is_pinned_to(rung)

    def read(self) -> None:
        """Read what the request carries. In any thread."""
        self._marks = self._kind.marks(self._ask)

    def look_up(self) -> None:
        """Find out who made it, where that is not known yet."""
        if self._marks is None:
            self.read()
        if self._makers is None:
            origins = self._state.origins(self._marks) if self._marks else []
            self._makers = [self._maker(origin) for origin in origins]

    def fits(self, rung: Rung, account: Account) -> bool:
        """Whether `rung` would take the conversation as it is, on that account."""
        asked = self._ask.format.name
        if ways.spoken(asked, rung, lacks=ways.is_lacking(self._state, rung)) not in (asked, "any"):
            return self._kind.crosses(self._ask)
        return self._is_pinned_to(rung) or not self._foreign(rung, account)

    def _is_pinned_to(self, rung: Rung) -> bool:
        """Whether it made all of it. A pin says nothing of an account that it did not always have."""
        pinned = self._pinned
        if pinned is None or pinned.moved or self._ask.format.name != native.MESSAGES:
            return False
        return (pinned.provider, pinned.model) == (rung.provider.name, rung.model)

    def adapted(self, rung: Rung) -> Ask | None:
        """The request without the closed turns' thinking that `rung` would refuse; None where an open tool loop holds
        such thinking, where it is more than thinking, or where `rung` is sent requests as they came.

        In any thread, once it was looked up who made what."""
        if rung.provider.takes_logins:
            return None
        foreign = {mark for account in rung.provider.accounts for mark in self._foreign(rung, account)}
        stripped = self._kind.without(self._ask, foreign)
        if stripped is None:
            return None
        return self._ask.edited(stripped.members, stripped.changed)

    def _foreign(self, rung: Rung, account: Account) -> set[bytes]:
        self.look_up()
        assert self._marks is not None and self._makers is not None, "they were looked up"
        home = self._kind.home(rung, account.label or "")
        return {mark for mark, maker in zip(self._marks, self._makers, strict=True) if maker not in (None, home)}

    def _maker(self, origin: Origin | None) -> Home | None:
        pinned = self._pinned
        if origin is None and pinned is not None and not pinned.moved:
            origin = Origin(pinned.provider, pinned.account, pinned.model)
        if origin is None:
            return None
        theirs = [rung for rung in self._rungs if rung.provider.name == origin.provider]
        if not theirs:
            return origin.provider, ""  # none of those that may be asked
        rung = next((one for one in theirs if one.model == origin.model), None)
        return self._kind.home(rung or Rung(theirs[0].provider, origin.model), origin.account)
