"""The tool calls of an OpenAI Chat answer, inwards: slices in whatever shape -> calls that open once.

What servers do to them is undone here: every call opens once, with its id and its whole name, under a number of its
own. It goes through three states:

    KNOWN --its name, then a first slice of arguments, another call, or the finish--> OPEN
    OPEN  --arguments that end where they began (`Span`)--> WHOLE; braces and blanks behind them are dropped

Which call a slice belongs to is decided by its id, else by its index, else it is the latest. It begins another one
where its id is new, where it names another function than an open call has, or where it begins new arguments behind
whole ones; the very same once more, without id and name, are no call but an echo. A name comes in pieces (Gemini), or
again with every slice (MiniMax): until the call opens, a piece that repeats the name or begins with it replaces it, and
any other is added.

Slices may be moved past the reader while a call is OPEN (`place_of`), of which it is told (`carried`) before it reads
anything else. None that could be the last is moved, so what is WHOLE is always known.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import reduce
from arbiter.errors import Garbled
from arbiter.model import CallDelta, CallStarted, Event, ThinkingRedacted, ToolCall
from arbiter.wire import chat_proofs
from arbiter.wire.chat_parse import argument_slice
from arbiter.wire.json import ABSENT
from arbiter.wire.reading import word
from arbiter.wire.span import BLANK, Span


class Function(msgspec.Struct):
    name: Any = None
    arguments: Raw = ABSENT


class Custom(msgspec.Struct):
    name: Any = None
    input: Any = None


class CallSlice(msgspec.Struct):
    """One entry of `tool_calls`: of a delta, or a whole one of a message. The index -1 is that of a `function_call`."""

    index: int | None = None
    id: Any = None
    function: Function | None = None
    custom: Custom | None = None
    extra_content: Raw = ABSENT


_ENDS = BLANK + '"]}'
_ID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")


class _Call:
    """A call under way. Arguments that come before its name wait in `held`."""

    __slots__ = ("_is_fed", "digest", "held", "id", "is_free", "is_minted", "name", "number", "place", "proof",
                 "span")  # fmt: skip

    def __init__(self, id: str, place: int | None, *, is_free: bool = False) -> None:
        self.id = id
        self.is_free = is_free  # its input is any text, and so is never known to be whole
        self._is_fed = False
        self.is_minted = False  # the upstream gave none
        self.name = ""
        self.proof: str | None = None  # what its server wants back with it
        self.place = place
        self.number = -1  # among the calls that opened
        self.held = bytearray()
        self.span = Span()
        self.digest = hashlib.blake2b(digest_size=16)  # of the arguments

    @property
    def is_fed(self) -> bool:
        """Has it arguments?"""
        return self._is_fed if self.is_free else self.span.opener != ""

    @property
    def is_whole(self) -> bool:
        return self.span.whole

    def feed(self, arguments: str) -> str:
        """Take a slice; return what of it is said: no blanks in front, and nothing that only repeats the end."""
        if self.is_free:
            self._is_fed = True
            return arguments
        said = _said(self.span, arguments if self.is_fed else arguments.lstrip(BLANK))
        self.digest.update(said.encode("utf-8", "surrogatepass"))
        return said

    def has_said(self, arguments: str) -> bool:
        """Are these its whole arguments?"""
        again = _Call("", None)
        again.feed(arguments)
        return again.is_whole and again.digest.digest() == self.digest.digest()


def _said(span: Span, arguments: str) -> str:
    said = span.feed(arguments)
    # What is more than a slip of the server's parser, the client should see.
    return arguments if arguments[len(said) :].strip(_ENDS) else said


_FEW = 64
_SHORT = 256  # characters


def plain_calls(slices: list[CallSlice]) -> list[ToolCall] | None:
    """Return the calls of a whole answer where each has all that it should, as `Calls` would have them; None where that
    has something to undo."""
    calls: list[ToolCall] = []
    ids: set[str] = set()
    for one in slices:
        id, function = one.id, one.function
        if type(id) is not str or not id or id in ids or len(id) > _SHORT or id.isdecimal() or function is None:
            return None
        ids.add(id)
        name, raw = function.name, bytes(function.arguments)
        if type(name) is not str or not name or len(name) > _SHORT or raw[:1] != b'"':
            return None
        if one.custom is not None or one.extra_content is not ABSENT:
            return None
        calls.append(ToolCall(id, name, _said(Span(), argument_slice(function.arguments).lstrip(BLANK)) or "{}"))
    return calls if len(calls) <= _FEW else None


class Calls:
    """The calls of one answer."""

    def __init__(self) -> None:
        self._all: list[_Call] = []
        self._opened: list[_Call] = []
        self._waiting = 0  # calls that are not open yet
        self._at: dict[int, _Call] = {}  # by the upstream's index, the latest call there
        self._by_id: dict[str, _Call] = {}
        self._kept = 0
        self._aimed: _Call | None = None  # whose slices may pass by
        self._mark = ""  # what ids of our own are made of

    @property
    def has_any(self) -> bool:
        return bool(self._all)

    def name_after(self, answer_id: str | None) -> None:
        """Make ids of our own from the answer's, where it has one."""
        self._mark = _ID_CHARACTERS.sub("", (answer_id or "")[-64:])[-24:] or secrets.token_hex(8)

    def place_of(self, call: int) -> int:
        """Return the upstream's index of the slices of call number `call`; -1 where they cannot be told by it.

        So it is before the first slice and behind the last, and for arguments that are no object: anything could be
        their last slice.
        """
        self._aimed = one = self._opened[call] if 0 <= call < len(self._opened) else None
        if one is None or one.place is None or one.is_whole or one.span.opener != "{":
            return -1
        return one.place if self._at.get(one.place) is one else -1

    def carried(self, arguments: str) -> None:
        """Be told of slices that were moved to the place that was asked for last."""
        if self._aimed is not None:
            self._aimed.feed(arguments)

    def read(self, one: CallSlice, events: list[Event], *, is_new: bool = False) -> None:
        """Add the events of one slice; `is_new` where nothing but its name tells it from the slice before it.

        Errors: Garbled.
        """
        function = one.function
        id, name = word(one.id), word(function.name) if function is not None else None
        arguments = argument_slice(function.arguments) if function is not None else ""
        if one.custom is not None:
            name, arguments = word(one.custom.name), word(one.custom.input) or ""
        if arguments == "{}" and function is not None and bytes(function.arguments)[:1] == b"{":
            arguments = ""  # an object that slices may yet fill; a call without arguments gets one anyhow
        is_new = is_new and one.index is None and id is None and name is not None
        known = None if is_new else self._known(one.index, id, name, arguments)
        if known is None:
            if function is None and one.custom is None and id is None:
                return  # says nothing
            known = self._begin(one.index, id, name, events, is_free=one.custom is not None)
        if one.index is not None:
            self._at[one.index] = known
        if one.extra_content is not ABSENT:
            known.proof = chat_proofs.of_call(one.extra_content) or known.proof
            self._keep(len(known.proof or ""))
        self._add(known, name or "", arguments, events)

    def _known(self, index: int | None, id: str | None, name: str | None, arguments: str) -> _Call | None:
        """Return the call that a slice belongs to, None where it begins one."""
        here = self._at.get(index) if index is not None else None
        if id is not None:
            call = self._by_id.get(id)
            if call is None:
                # The id may come after the name; not if the call there has one, or is under way.
                if here is None or not here.is_minted or here.is_fed or (name and here.name):
                    return None
                here.id, here.is_minted = id, False
                self._by_id[id] = here
                return here
            elsewhere = here is None and index is not None and call.place is not None and call.place != index
            return None if elsewhere and name else call
        if index is None and self._all:
            here = self._all[-1]
        if here is None:
            return None
        if here.is_fed:
            differs = name is not None and name != here.name
            again = here.is_whole and arguments.lstrip(BLANK)[:1] == "{"
            if again and (name is None or not here.is_minted) and here.has_said(arguments):
                return here
            return None if differs or again else here
        if index is None and name is not None and here.name not in ("", name):
            return None
        return here

    def _begin(
        self, index: int | None, id: str | None, name: str | None, events: list[Event], *, is_free: bool
    ) -> _Call:
        if len(self._all) >= reduce.MAX_CALLS:
            raise Garbled(f"the upstream sent more than {reduce.MAX_CALLS:,} tool calls")
        latest = self._all[-1] if self._all else None
        here = self._at.get(index) if index is not None else latest
        if id is None and name is None and here is None:
            raise Garbled("the upstream sent a slice of a tool call that it never opened")
        self._open_named(events)
        is_new = id is not None and id not in self._by_id
        # A server without call ids, or with bare numbers: the result must still find its call, and no other turn's.
        own = f"call_{self._mark}_{len(self._all)}"
        call = _Call(id if id is not None and is_new and not id.isdecimal() else own, index, is_free=is_free)
        call.is_minted = not is_new
        if id is None and name is None and here is not None:
            call.name = here.name  # new arguments behind whole ones: the same function, called again
        self._all.append(call)
        self._waiting += 1
        if id is not None and is_new:
            self._keep(len(id))
            self._by_id[id] = call
        return call

    def _add(self, call: _Call, name: str, arguments: str, events: list[Event]) -> None:
        if call.number < 0:
            named = name if name.startswith(call.name) else call.name + name
            self._keep(len(named) - len(call.name))
            call.name = named
            held = arguments.encode("utf-8", "surrogatepass")
            call.held += held
            if call.held and call.name:
                self._open(call, events)
            else:
                self._keep(len(held))
        elif arguments and not call.is_whole:  # else they are told again, or end in blanks
            self._feed(call, arguments, events)

    def _keep(self, size: int) -> None:
        """Count what has to be remembered of calls: ids, names, and arguments without a name."""
        self._kept += size
        if self._kept > reduce.MAX_KEPT_BYTES:
            raise Garbled("the upstream sent too much of the names of its tool calls, or too much without a name")

    def _open(self, call: _Call, events: list[Event]) -> None:
        call.number = len(self._opened)
        self._opened.append(call)
        self._waiting -= 1
        if call.proof is not None:
            events.append(ThinkingRedacted(call.proof, "call"))
        events.append(CallStarted(call.number, call.id, call.name, call.is_free))
        if call.held:
            self._feed(call, call.held.decode("utf-8", "surrogatepass"), events)
            call.held.clear()

    def _feed(self, call: _Call, arguments: str, events: list[Event]) -> None:
        said = call.feed(arguments)
        if said:
            events.append(CallDelta(call.number, said))

    def _open_named(self, events: list[Event]) -> None:
        for call in self._all if self._waiting else ():
            if call.number < 0 and call.name:
                self._open(call, events)

    def open_all(self, events: list[Event]) -> None:
        """Open what never got a name, too; the client should see that there was a call."""
        for call in self._all if self._waiting else ():
            if call.number < 0:
                self._open(call, events)
