"""Anthropic Messages, outwards: events -> named events, one block at a time.

    NEW --first event: message_start--> BETWEEN
    BETWEEN --text, thinking, a call: content_block_start--> that block
    a block --something that does not belong into it: content_block_stop--> BETWEEN
    BETWEEN --Finished--> FINISHED --Ended: message_delta, message_stop--> CLOSED
    any --Failed: an error event--> CLOSED

message_delta waits for the end because it carries the usage, which other formats tell after the finish.

Output may be interleaved elsewhere, not here: while a call is open whose arguments are not whole (`Span`), everything
that belongs elsewhere waits, in its order, until they are, or until the model has finished. Upstreams that send one
thing after the other, which is nearly all, never wait, but for a call without any arguments: when text or thinking
follows, it has none; another call says nothing of it, since several may open before the first arguments of any, and
those may come in any order.

Arguments that are no object would break the client's input, and what was streamed cannot be taken back: their first
character decides whether they leave as they are or as the text inside of one (`WRAP`).

Inside a block, deltas of its kind may pass the writer by (`moulds`); of a call's arguments it is told afterwards
(`carried`), or it would not know when they are whole.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from arbiter.errors import Garbled
from arbiter.model import (
    OUTPUT,
    STOP,
    Answer,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finished,
    RefusalDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSealed,
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.order import Order
from arbiter.wire.json import NO_MEMBERS, Members, encode
from arbiter.wire.messages_answer import FINISH_OUT, WRAP, call_block, text_block, write_message, write_usage
from arbiter.wire.messages_errors import write_error_event
from arbiter.wire.moulds import NO_MOULDS, Moulds
from arbiter.wire.span import BLANK, Span
from arbiter.wire.vault import UNSIGNED

MAX_WAITING_BYTES = 4 << 20
"""What interleaved output may amount to while it waits: a large file, written by one of several calls at once."""

_ITEM_BYTES = 512  # what anything that waits costs beside its text

_TEXT, _THINKING = "text", "thinking"


class _Waiting:
    """Output that waits for its turn, with the text, or the arguments, that came of it so far."""

    __slots__ = ("_size", "event", "text")

    def __init__(self, event: Event) -> None:
        self.event = event
        self._size = _ITEM_BYTES + len(encode(event))
        self.text = bytearray()  # joined: a slice of two letters would cost fifty bytes

    @property
    def size(self) -> int:
        return self._size + len(self.text)


class MessagesWriter:
    """Write one client stream. `model` stands in where the upstream named none.

    `created_s`, `include_usage` and `asked` are other formats' business; this one always tells.
    """

    def __init__(
        self,
        trace_id: str,
        model: str,
        created_s: int,
        *,
        include_usage: bool = True,
        asked: Members = NO_MEMBERS,
    ) -> None:
        self._trace_id = trace_id
        self._model = model
        self._order = Order()
        self._opened = False
        self._block: str | int | None = None  # _TEXT, _THINKING, or the number of a call
        self._index = -1  # of the latest block
        self._delta = (b"", b"")  # what stands around the string of a delta of the open block
        self._span = Span()  # the arguments of the open call
        self._calls = 0  # that started
        self._queue: deque[_Waiting] = deque()
        self._waiting: dict[int, _Waiting] = {}  # the calls in it
        self._others = 0  # how many in it are no calls
        self._waiting_bytes = 0
        self._usage: Usage | None = None
        self._finished = Finished(STOP)

    def write(self, event: Event) -> bytes:
        """Return the bytes for `event`.

        Errors: Garbled where the event breaks the order (SPEC 2.6), or too much of it is interleaved.
        """
        # The bulk of every stream, where nothing could be out of order: a block is open only where output may come, and
        # nothing waits but for a call.
        if type(event) is TextDelta and self._block is _TEXT:
            return self._delta[0] + encode(event.text) + self._delta[1] if event.text else b""
        if type(event) is ThinkingDelta and self._block is _THINKING:
            return self._delta[0] + encode(event.text) + self._delta[1] if event.text else b""
        if type(event) is CallDelta and self._block == event.index and not self._queue:
            return self._say_arguments(event.arguments)
        if not self._order.admit(event):
            return b""
        if type(event) is Failed:
            self._block = None
            self._queue.clear()
            self._waiting.clear()
            return write_error_event(event.error, self._trace_id)
        opening = b"" if self._opened else self._start(event if type(event) is Started else Started())
        written = self._write(event)
        self._opened = True
        return opening + written

    def moulds(self) -> Moulds:
        """Return what may be moved past the writer until the next `write`."""
        if self._block is _TEXT:
            return Moulds(text=self._delta)
        if self._block is _THINKING:
            return Moulds(reasoning_content=self._delta, reasoning=self._delta)
        if isinstance(self._block, int) and not self._queue and self._span.opener == "{":
            return Moulds(arguments=self._delta, call=self._block, keep=True)
        return NO_MOULDS

    def carried(self, arguments: str) -> None:
        """Be told of arguments of the open call that were moved past the writer."""
        self._span.feed(arguments)

    def _start(self, started: Started) -> bytes:
        self._usage = started.usage
        answer = Answer(model=started.model, usage=started.usage)
        message = write_message(answer, self._trace_id, self._model, [], None)
        return _event("message_start", {"message": message})

    def _write(self, event: Event) -> bytes:
        if isinstance(event, OUTPUT):
            return self._write_output(event)
        if type(event) is UsageReported:
            self._usage = event.usage if self._usage is None else self._usage.merged(event.usage)
        elif type(event) is Finished:
            self._finished = event
            return self._release(to_the_last=True) + self._close()
        elif type(event) is Ended:
            return self._end()
        return b""

    # --- Output, block by block ---------------------------------------------------------------------------------------

    def _write_output(self, event: Event) -> bytes:
        if type(event) is CallStarted:
            if event.index != self._calls:
                raise Garbled(f"tool call {event.index} opens where number {self._calls} is due")
            self._calls += 1
        elif type(event) is CallDelta:
            return self._write_slice(event)
        elif type(event) is ThinkingRedacted and event.place != "block":
            return b""  # a chat's own
        if self._queue or self._is_blocked():
            self._wait(event)
            return self._release()
        return self._put(event)

    def _put(self, event: Event) -> bytes:
        """Write output that may stand here, in the block that is its own."""
        if type(event) is TextDelta or type(event) is RefusalDelta:
            if not event.text:
                return b""
            return self._enter(_TEXT, text_block(""), "text_delta", "text") + self._say(event.text)
        if type(event) is ThinkingDelta:
            return self._think() + self._say(event.text) if event.text else b""
        if type(event) is ThinkingSigned:
            if not event.signature:
                return self._close() if self._block is _THINKING else b""
            return self._think() + self._close(event.signature)
        if type(event) is ThinkingRedacted:
            return self._redacted(event.data)
        if type(event) is ThinkingSealed:
            return self._redacted(event.item)
        if type(event) is CallStarted:
            block = call_block(event.id, event.name, {})
            opening = self._enter(event.index, block, "input_json_delta", "partial_json")
            self._span = Span()
            return opening
        return b""

    def _redacted(self, data: str) -> bytes:
        return self._enter("redacted", {"type": "redacted_thinking", "data": data}, "", "") + self._close()

    def _think(self) -> bytes:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        return self._enter(_THINKING, block, "thinking_delta", "thinking")

    def _enter(self, block: str | int, start: dict[str, Any], kind: str, member: str) -> bytes:
        """Be inside `block`: close what is open, and open it if it is not."""
        if self._block == block:
            return b""
        before = self._close()
        self._block = block
        self._index += 1
        head = f'{{"type":"content_block_delta","index":{self._index},"delta":{{"type":"{kind}","{member}":'
        self._delta = b"event: content_block_delta\ndata: " + head.encode(), b"}}\n\n"
        return before + _event("content_block_start", {"index": self._index, "content_block": start})

    def _say(self, text: str) -> bytes:
        return self._delta[0] + encode(text) + self._delta[1]

    def _say_arguments(self, arguments: str) -> bytes:
        """Write a slice of the open call's arguments; blanks in front of them say nothing."""
        is_first = not self._span.opener
        arguments = arguments.lstrip(BLANK) if is_first else arguments
        self._span.feed(arguments)
        if not arguments:
            return b""
        if self._span.opener == "{":
            return self._say(arguments)
        return self._say((WRAP[0] if is_first else "") + encode(arguments)[1:-1].decode())

    def _close(self, signature: str = UNSIGNED) -> bytes:
        if self._block is None:
            return b""
        ending = b""
        if self._block is _THINKING:
            delta = {"type": "signature_delta", "signature": signature}
            ending = _event("content_block_delta", {"index": self._index, "delta": delta})
        elif isinstance(self._block, int) and self._span.opener not in ("", "{"):
            ending = self._say(WRAP[1])
        self._block = None
        return ending + _event("content_block_stop", {"index": self._index})

    # --- What waits ---------------------------------------------------------------------------------------------------

    def _is_blocked(self) -> bool:
        """May more arguments of the open call come?"""
        if not isinstance(self._block, int) or self._span.whole:
            return False
        return self._span.opener != "" or not self._others

    def _write_slice(self, event: CallDelta) -> bytes:
        if event.index == self._block:
            return self._say_arguments(event.arguments) + self._release()
        waiting = self._waiting.get(event.index)
        if waiting is not None:
            self._hold(waiting, event.arguments if waiting.text else event.arguments.lstrip(BLANK))
            return self._release()
        if 0 <= event.index < self._calls and not event.arguments.strip(BLANK):
            return b""
        raise Garbled(f"the upstream sent arguments for tool call {event.index}, which is not open")

    def _wait(self, event: Event) -> None:
        text = ""
        if type(event) is TextDelta or type(event) is RefusalDelta:
            event, text = TextDelta(""), event.text
        elif type(event) is ThinkingDelta:
            event, text = ThinkingDelta(""), event.text
        latest = self._queue[-1] if self._queue else None
        if type(event) is TextDelta or type(event) is ThinkingDelta:
            if not text:
                return
            if latest is not None and type(latest.event) is type(event):
                self._hold(latest, text)
                return
        waiting = _Waiting(event)
        self._queue.append(waiting)
        self._others += type(event) is not CallStarted
        self._waiting_bytes += waiting.size
        if type(event) is CallStarted:
            self._waiting[event.index] = waiting
        self._hold(waiting, text)

    def _hold(self, waiting: _Waiting, text: str) -> None:
        size = waiting.size
        waiting.text += text.encode("utf-8", "surrogatepass")
        self._waiting_bytes += waiting.size - size
        if self._waiting_bytes > MAX_WAITING_BYTES:
            raise Garbled("the upstream interleaves more output with an open tool call than can wait")

    def _release(self, *, to_the_last: bool = False) -> bytes:
        """Write what waits, up to a call whose arguments are not whole; or all, as whatever they lack will not come."""
        written: list[bytes] = []
        while self._queue and (to_the_last or not self._is_blocked()):
            waiting = self._queue.popleft()
            self._others -= type(waiting.event) is not CallStarted
            self._waiting_bytes -= waiting.size
            event, text = waiting.event, waiting.text.decode("utf-8", "surrogatepass")
            if type(event) is CallStarted:
                del self._waiting[event.index]
                written += self._put(event), self._say_arguments(text)
            elif type(event) is TextDelta:
                written.append(self._put(TextDelta(text)))
            elif type(event) is ThinkingDelta:
                written.append(self._put(ThinkingDelta(text)))
            else:
                written.append(self._put(event))
        return b"".join(written)

    def _end(self) -> bytes:
        finish = self._finished
        reason = {"stop_reason": FINISH_OUT[finish.finish], "stop_sequence": finish.stop_sequence}
        delta = {**reason, "stop_details": None, "container": None}  # what no other format tells
        usage = write_usage(self._usage)
        return _event("message_delta", {"delta": delta, "usage": usage}) + _event("message_stop", {})


def _event(kind: str, members: dict[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + encode({"type": kind, **members}) + b"\n\n"
