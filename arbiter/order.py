"""The order in which the events of an answer may come. Pure."""

from __future__ import annotations

import enum

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
        self.stage = Stage.NEW
        self.closed = False  # it is over, in one way or another
        self.finish: Finish | None = None

    def admit(self, event: Event) -> bool:
        """Say whether `event` is to be passed on.

        Errors: Garbled where the upstream broke the order: output or another finish after the finish, or anything
        after the end.
        """
        stage, kind = self.stage, type(event)
        if stage is Stage.OPEN and kind in _OUTPUT:
            return True
        if self.closed:
            raise Garbled("the upstream sent more after the end of its stream")
        if type(event) is Failed:
            self.stage = Stage.CUT if isinstance(event.error, Cut) else Stage.FAILED
            self.closed = True
            return True
        if stage is Stage.NEW:
            stage = self.stage = Stage.OPEN
        elif kind is Started:
            return False
        if kind in _OUTPUT:
            if stage is Stage.FINISHED:
                raise Garbled(f"the upstream sent output after its finish reason ({self.finish})")
        elif type(event) is Finished:
            if self.finish is not None:
                if event.finish is not self.finish:
                    raise Garbled(f"the upstream finished twice, with {self.finish} and then {event.finish}")
                return False
            self.finish = event.finish
            self.stage = Stage.FINISHED
        elif kind is Ended:
            if stage is not Stage.FINISHED:
                raise Garbled("the upstream ended its stream without saying why the model stopped")
            self.stage = Stage.COMPLETE
            self.closed = True
        return True
