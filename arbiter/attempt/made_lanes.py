"""The lanes of one climb, made once, and beside the loop where that would hold up everybody else."""

from __future__ import annotations

from functools import partial

import msgspec

from arbiter.attempt import lanes, ways
from arbiter.attempt.aside import Aside
from arbiter.attempt.ask import Ask
from arbiter.attempt.conversation import Conversation
from arbiter.attempt.lane import Lane
from arbiter.config.snapshot import Account
from arbiter.errors import ArbiterError, let_go
from arbiter.routing.plan import Rung
from arbiter.state.base import State
from arbiter.wire import native


class MadeLanes(msgspec.Struct, eq=False):
    """Keeps the last one: whether a target can be told a request is asked just before it is."""

    _state: State
    _conversation: Conversation
    _aside: Aside
    _last: tuple[Rung, Account, Ask, bool, Lane | ArbiterError] | None = None

    async def prepare(self, rung: Rung, account: Account, ask: Ask) -> None:
        """Have the lane made beside the loop, where that would hold up others."""
        lacks = self._lacks(rung, ask)
        moved = self._conversation.has_been_elsewhere(rung)
        if self._known(rung, account, ask, lacks) is None and lanes.holds_up(ask, rung, lacks=lacks, moved=moved):
            made = await self._aside.run(partial(_made, rung, account, ask, lacks, moved))
            self._last = (rung, account, ask, lacks, made)

    def of(self, rung: Rung, account: Account, ask: Ask) -> Lane:
        """Errors: what `lanes.choose` has."""
        lacks = self._lacks(rung, ask)
        lane = self._known(rung, account, ask, lacks) if self._last is not None else None
        if lane is None:
            lane = _made(rung, account, ask, lacks, self._conversation.has_been_elsewhere(rung))
            self._last = (rung, account, ask, lacks, lane)
        if isinstance(lane, ArbiterError):
            raise lane
        return lane

    def _lacks(self, rung: Rung, ask: Ask) -> bool:
        name = ask.format.name
        return name == native.RESPONSES and ways.may_lack(name, rung) and ways.is_lacking(self._state, rung)

    def _known(self, rung: Rung, account: Account, ask: Ask, lacks: bool) -> Lane | ArbiterError | None:
        last = self._last
        if last is not None and last[0] is rung and last[1] is account and last[2] is ask and last[3] == lacks:
            return last[4]
        return None


def _made(rung: Rung, account: Account, ask: Ask, lacks: bool, moved: bool) -> Lane | ArbiterError:
    """In any thread."""
    try:
        return lanes.choose(ask, rung, account.label or "", lacks=lacks, moved=moved)
    except ArbiterError as error:
        let_go(error)
        return error
