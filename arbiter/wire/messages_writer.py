"""Anthropic Messages, outwards: events -> named events, one block at a time.

    NEW --first event: message_start--> BETWEEN
    BETWEEN --text, thinking, a call: content_block_start--> that block
    a block --something that does not belong into it: content_block_stop--> BETWEEN
    BETWEEN --Finished--> FINISHED --Ended: message_delta, message_stop--> CLOSED
    any --Failed: an error event--> CLOSED

message_delta waits for the end because it carries the usage, which other formats tell after the finish.

Output may be interleaved elsewhere, not here: while a call is open whose arguments are not whole (`Span`), everything
that belongs elsewhere waits, in its order, until they are, or until the model has finished. Upstreams that send one
thing after the other, which is nearly all, never wait.

Inside a block, deltas of its kind may pass the writer by (`moulds`); of a call's arguments it is told afterwards
(`carried`), or it would not know when they are whole.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from arbiter.errors import Garbled
from arbiter.model import (
    OUTPUT,
    Answer,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finish,
    Finished,
    Order,
    RefusalDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.wire.json import encode
from arbiter.wire.messages_answer import FINISH_OUT, call_block, text_block, write_message, write_usage
from arbiter.wire.messages_errors import write_error_event
from arbiter.wire.moulds import NO_MOULDS, Moulds
from arbiter.wire.span import Span

MAX_WAITING_BYTES = 16 << 20
"""What interleaved output may amount to while it waits; as much as one event (SPEC 2.10)."""

_TEXT, _THINKING = "text", "thinking"


class _Waiting:
    """A call that waits for its turn, with what came of its arguments."""

    def __init__(self, call: CallStarted) -> None:
        self.call = call
        self.slices: list[str] = []


class MessagesWriter:
    """Write one client stream. `model` stands in where the upstream named none.

    `created_s` and `include_usage` are other formats' business; this one always tells.
    """

    def __init__(self, trace_id: str, model: str, created_s: int, *, include_usage: bool = True) -> None:
        self._trace_id = trace_id
        self._model = model
        self._order = Order()
        self._opened = False
        self._block: str | int | None = None  # _TEXT, _THINKING, or the number of a call
        self._index = -1  # of the latest block
        self._delta = (b"", b"")  # what stands around the string of a delta of the open block
        self._span = Span()  # the arguments of the open call
        self._calls = 0  # that started
        self._queue: deque[Event | _Waiting] = deque()
        self._waiting: dict[int, _Waiting] = {}  # the calls in it
        self._waiting_bytes = 0
        self._usage: Usage | None = None
        self._finished = Finished(Finish.STOP)

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
            self._span.feed(event.arguments)
            return self._delta[0] + encode(event.arguments) + self._delta[1]
        if not self._order.admit(event):
            return b""
        if type(event) is Failed:
            self._block = None
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
        if isinstance(self._block, int) and not self._queue:
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
        if self._queue or self._is_blocked():
            return self._wait(event)
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
            delta = {"type": "signature_delta", "signature": event.signature}
            before = self._think()
            return before + _event("content_block_delta", {"index": self._index, "delta": delta}) + self._close()
        if type(event) is ThinkingRedacted:
            return self._enter("redacted", {"type": "redacted_thinking", "data": event.data}, "", "") + self._close()
        if type(event) is CallStarted:
            self._span = Span()
            return self._enter(event.index, call_block(event.id, event.name, {}), "input_json_delta", "partial_json")
        return b""

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

    def _close(self) -> bytes:
        if self._block is None:
            return b""
        self._block = None
        return _event("content_block_stop", {"index": self._index})

    # --- What waits ---------------------------------------------------------------------------------------------------

    def _is_blocked(self) -> bool:
        return isinstance(self._block, int) and not self._span.whole

    def _write_slice(self, event: CallDelta) -> bytes:
        if event.index == self._block:
            self._span.feed(event.arguments)
            written = self._say(event.arguments)
            return written + self._release() if self._queue and self._span.whole else written
        waiting = self._waiting.get(event.index)
        if waiting is not None:
            self._hold(len(event.arguments))
            waiting.slices.append(event.arguments)
            return b""
        if 0 <= event.index < self._calls and not event.arguments.strip():
            return b""
        raise Garbled(f"the upstream sent arguments for tool call {event.index}, which is not open")

    def _wait(self, event: Event) -> bytes:
        if type(event) is CallStarted:
            self._hold(len(event.id) + len(event.name))
            waiting = self._waiting[event.index] = _Waiting(event)
            self._queue.append(waiting)
        else:
            self._hold(len(encode(event)))
            self._queue.append(event)
        return b""

    def _hold(self, size: int) -> None:
        self._waiting_bytes += size
        if self._waiting_bytes > MAX_WAITING_BYTES:
            raise Garbled("the upstream interleaves more output with an open tool call than can wait")

    def _release(self, *, to_the_last: bool = False) -> bytes:
        """Write what waits, up to a call whose arguments are not whole; or all, as whatever they lack will not come."""
        written: list[bytes] = []
        while self._queue and (to_the_last or not self._is_blocked()):
            item = self._queue.popleft()
            if isinstance(item, _Waiting):
                del self._waiting[item.call.index]
                written.append(self._put(item.call))
                arguments = "".join(item.slices)
                self._span.feed(arguments)
                if arguments:
                    written.append(self._say(arguments))
            else:
                written.append(self._put(item))
        if not self._queue:
            self._waiting_bytes = 0
        return b"".join(written)

    def _end(self) -> bytes:
        finish = self._finished
        reason = {"stop_reason": FINISH_OUT[finish.finish], "stop_sequence": finish.stop_sequence}
        delta = {**reason, "stop_details": None, "container": None}  # what no other format tells
        usage = write_usage(self._usage)
        return _event("message_delta", {"delta": delta, "usage": usage}) + _event("message_stop", {})


def _event(kind: str, members: dict[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + encode({"type": kind, **members}) + b"\n\n"
