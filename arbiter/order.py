"""The order in which the events of an answer may come. Pure."""

from __future__ import annotations

import enum
from typing import Final

from arbiter.errors import Cut, Garbled
from arbiter.model import OUTPUT, Ended, Event, Failed, Finish, Finished, Started

_OUTPUT = frozenset(OUTPUT)


class Stage(enum.Enum):
    """Where a stream of events stands. (That its client left is nothing that the stream could know.)"""

    NEW = "new"
    OPEN = "open"  # it started; output comes
    FINISHED = "finished"  # the model said why it stopped; only usage and the end may come
    COMPLETE = "complete"
    CUT = "cut"  # the bytes ended before the answer was whole
    FAILED = "failed"  # the upstream reported an error, or broke its format


# A member that is looked up in its class takes the interpreter as long as ten that are not.
NEW: Final = Stage.NEW
OPEN: Final = Stage.OPEN
FINISHED: Final = Stage.FINISHED
COMPLETE: Final = Stage.COMPLETE
CUT: Final = Stage.CUT
FAILED: Final = Stage.FAILED


class Order:
    """The grammar every stream of events obeys (SPEC 2.6), kept in one place for readers, writers and the fold.

        NEW ------anything but a failure--> OPEN
        OPEN -----Finished----------------> FINISHED
        FINISHED -Ended-------------------> COMPLETE
        any ------Failed------------------> CUT, where the error says that bytes are missing; else FAILED

    A second start and a repeated equal finish are noise of the upstream and are swallowed.
    """

    __slots__ = ("closed", "finish", "stage")

    def __init__(self) -> None:
        self.stage = NEW
        self.closed = False  # it is over, in one way or another
        self.finish: Finish | None = None

    def admit(self, event: Event) -> bool:
        """Say whether `event` is to be passed on.

        Errors: Garbled where the upstream broke the order: output or another finish after the finish, or anything
        after the end.
        """
        stage, kind = self.stage, type(event)
        if stage is OPEN and kind in _OUTPUT:
            return True
        if self.closed:
            raise Garbled("the upstream sent more after the end of its stream")
        if type(event) is Failed:
            self.stage = CUT if isinstance(event.error, Cut) else FAILED
            self.closed = True
            return True
        if stage is NEW:
            stage = self.stage = OPEN
        elif kind is Started:
            return False
        if kind in _OUTPUT:
            if stage is FINISHED:
                raise Garbled(f"the upstream sent output after its finish reason ({self.finish})")
        elif type(event) is Finished:
            if self.finish is not None:
                if event.finish is not self.finish:
                    raise Garbled(f"the upstream finished twice, with {self.finish} and then {event.finish}")
                return False
            self.finish = event.finish
            self.stage = FINISHED
        elif kind is Ended:
            if stage is not FINISHED:
                raise Garbled("the upstream ended its stream without saying why the model stopped")
            self.stage = COMPLETE
            self.closed = True
        return True
