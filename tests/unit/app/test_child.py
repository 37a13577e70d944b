"""A child's place as the supervisor sees it: what it is told, once and whoever fills it. Its line is real."""

from __future__ import annotations

from typing import Any

from arbiter.app.child import Child
from arbiter.lines import Counted, Line, Prices, Serving


class Process:
    """A child's process that was never forked: its end of the line stays here."""

    pid = 1
    exitcode = 0

    def start(self) -> None:
        pass

    def join(self) -> None:
        pass

    def close(self) -> None:
        pass


class Place:
    """`child`, and `end`: its end of the line."""

    def __init__(self) -> None:
        def make(ours: Line, theirs: Line) -> Any:
            # `start` closes the end that a fork would have copied.
            self.end = Line(theirs._end.dup())
            return Process()

        self.child = Child("worker-1", make)

    def heard(self) -> list[Any]:
        return [message for message, _ in self.end.receive()]


def test_a_child_is_told_of_prices_once_and_so_is_its_successor():
    """One that is born later learns what was told before it; nobody hears the same twice."""
    place = Place()
    place.child.tell(Prices(entries=1))  # there is nobody yet
    place.child.start(1)
    for prices in (Prices(entries=1), Prices(entries=1), Prices(entries=2), Prices(entries=2)):
        place.child.tell(prices)
    assert place.heard() == [Prices(entries=1), Prices(entries=2)]
    place.child.bury()
    place.end.close()
    place.child.tell(Prices(entries=2))
    place.child.start(1)
    place.child.tell(Prices(entries=2))
    assert place.heard() == [Prices(entries=2)]
    place.child.bury()
    place.end.close()


def test_a_child_that_leaves_too_much_unread_is_told_once_it_has_read():
    """Nobody waits for it meanwhile, and it hears the latest."""
    place = Place()
    place.child.start(1)
    assert place.child.line is not None
    while place.child.line.send(Counted("ok")):
        pass
    place.child.tell(Prices(entries=1))
    assert Prices(entries=1) not in place.heard()
    place.child.tell(Prices(entries=2))
    assert place.heard() == [Prices(entries=2)]
    place.end.send(Serving())
    assert list(place.child.hear()) == [] and place.child.has_served
    place.child.bury()
    place.end.close()
