"""Calls and their results as OpenAI wants them in a history: each call has one, and each result has its call.

An agent sends its history again and again, also where it was interrupted between a call and its result, where it was
cut, or where another server gave two calls one id. What OpenAI would refuse is put right, as in the formats that say
so of themselves (`messages_turns`, `gemini_turns`), and each message only adds to those before (SPEC 2.4). A result
belongs to the latest turn that has a call of its id without one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from arbiter.model import Message, Opaque, Part, ToolCall, ToolResult
from arbiter.wire.results import missing, orphaned

_Open = dict[str, list[str]]
"""By the client's id: the ids that are sent, of calls without a result. None of the lists is empty."""


def in_turns(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield messages of which each with calls is followed by all of their results, before the assistant speaks again.

    Shapes: what the assistant says behind its calls, and before anybody else has spoken, is one message with them. What
    is right already is yielded as it is.
    """
    said: list[Message] = []  # what the assistant says, from its first call on
    open: _Open = {}  # the calls of the turn that have no result yet
    knows_all = True  # of the turn's calls, which they are
    for message in messages:
        role = message.role
        if role == "assistant":
            if not said:
                if open:
                    yield from _missing(open)
                    open = {}
                if not _has(message, ToolCall):
                    yield message
                    continue
            said.append(message)
            continue
        if said:
            turn, open = _opened(said)
            knows_all = not _has(turn, Opaque)
            said = []
            yield turn
        result = message.content[0] if role == "tool" and message.content else None
        if type(result) is ToolResult:
            call_id = result.call_id
            waiting = open.get(call_id)
            if waiting is not None:
                sent = waiting.pop(0)
                if not waiting:
                    del open[call_id]
                if sent != call_id:
                    message = replace(message, content=(replace(result, call_id=sent),))
            elif knows_all:
                yield Message("user", orphaned(result))
                continue
        yield message
    if said:
        yield _opened(said)[0]  # nobody has spoken since: whose turn it is, the server is to say
    elif open:
        yield from _missing(open)


def _has(message: Message, kind: type) -> bool:
    return not isinstance(message.content, str) and kind in map(type, message.content)


class Matched:
    """The calls and results of a conversation in which a result may stand anywhere behind its call."""

    def __init__(self, messages: Iterable[Message]) -> None:
        open: dict[str, deque[int]] = {}  # by id: the places of the latest turn's calls
        turn: dict[str, int] = {}
        self._unanswered: set[int] = set()
        self._orphans: set[int] = set()
        self.knows_all = True
        place = 0
        for number, message in enumerate(messages):
            for part in message.parts():
                if type(part) is ToolCall:
                    if turn.get(part.id) != number:
                        open[part.id] = deque()  # what an earlier turn left open under this id has no result
                        turn[part.id] = number
                    open[part.id].append(place)
                    self._unanswered.add(place)
                elif type(part) is ToolResult:
                    if waiting := open.get(part.call_id):
                        self._unanswered.discard(waiting.popleft())
                    else:
                        self._orphans.add(place)
                elif type(part) is Opaque:
                    self.knows_all = False
                place += 1

    def is_unanswered(self, place: int) -> bool:
        """Whether the call at this place among all parts has no result."""
        return place in self._unanswered

    def is_orphan(self, place: int) -> bool:
        """Whether the result at this place has no call. False for every one where there are parts that may be calls."""
        return self.knows_all and place in self._orphans


def _missing(open: _Open) -> Iterator[Message]:
    return (Message("tool", (missing(sent),)) for waiting in open.values() for sent in waiting)


def _opened(said: list[Message]) -> tuple[Message, _Open]:
    """Return messages with calls as one, each call under an id of its own, and those ids.

    Some servers call everything `call_0`.
    """
    all_parts = said[0].parts() if len(said) == 1 else [part for message in said for part in message.parts()]
    open: _Open = {}
    for part in all_parts:
        if type(part) is ToolCall:
            if part.id in open:
                break
            open[part.id] = [part.id]
    else:
        return said[0] if len(said) == 1 else Message("assistant", tuple(all_parts), said[0].name), open
    open = {}
    known, numbers = {part.id for part in all_parts if type(part) is ToolCall}, Counter[str]()
    parts: list[Part] = []
    for part in all_parts:
        if type(part) is ToolCall:
            waiting = open.setdefault(part.id, [])
            sent = part.id
            while waiting and sent in known:
                numbers[part.id] += 1
                sent = f"{part.id}_{numbers[part.id] + 1}"
            known.add(sent)
            waiting.append(sent)
            part = replace(part, id=sent)
        parts.append(part)
    return Message("assistant", tuple(parts), said[0].name), open
