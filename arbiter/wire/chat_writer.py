"""OpenAI Chat, outwards: events -> chunks.

Blocks have no ends in this format, so the writer keeps little: whether the role chunk left, which calls still lack
arguments (they get `{}` before the finish: `""` is no JSON), and the usage, which leaves as a chunk of its own before
`[DONE]`, and only for a client that asked.

    NEW --first event: role chunk--> OPEN --Finished--> FINISHED --Ended: usage, [DONE]--> CLOSED
    any --Failed: an error event--> CLOSED

While it is OPEN, deltas of text and reasoning may pass it by (`moulds`), and arguments of the call that opened last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arbiter.errors import ArbiterError, Garbled
from arbiter.model import (
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finish,
    Finished,
    RefusalDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSealed,
    Usage,
    UsageReported,
)
from arbiter.order import OPEN, Order
from arbiter.wire.chat_answer import FINISH_OUT, reasoning_detail, write_usage
from arbiter.wire.chat_parse import REASONING
from arbiter.wire.chat_proofs import DETAILS, Gathered, members_of_call
from arbiter.wire.json import NO_MEMBERS, Members, encode
from arbiter.wire.moulds import NO_MOULDS, Moulds
from arbiter.wire.openai_errors import body_of

_TAIL = b',"finish_reason":null}]}\n\n'


class ChatWriter:
    """Write one client stream. `include_usage`: the client asked for the usage chunk.

    `model` stands in where the upstream named none. `asked` is another format's business.
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
        self._created_s = created_s
        self._include_usage = include_usage
        self._order = Order()
        self._opened = False
        self._is_plain = False  # it has, and nothing is held
        self._head = b""  # of every chunk
        self._delta = b""  # of every chunk with a delta
        self._moulds = NO_MOULDS
        self._calls: dict[int, bool] = {}  # those that opened: has it arguments?
        self._free: set[int] = set()  # those of them whose input is free text
        self._usage: Usage | None = None
        self._details = 0  # items of sealed reasoning that were handed along
        self._held: dict[str, Any] = {}  # members for the next delta: what stands beside a thought, or a call
        self._proof: str | None = None  # what a server wants back with the next call

    def write(self, event: Event) -> bytes:
        """Return the bytes for `event`.

        Errors: Garbled where the event breaks the order (SPEC 2.6).
        """
        if self._is_plain and self._order.stage is OPEN:
            # The bulk of every stream, where nothing could be out of order.
            moulds = self._moulds
            if type(event) is TextDelta and event.text and event.logprobs is None and moulds.text is not None:
                return moulds.text[0] + encode(event.text) + moulds.text[1]
            if type(event) is CallDelta and event.index == moulds.call and moulds.arguments is not None:
                return moulds.arguments[0] + encode(event.arguments) + moulds.arguments[1]
            if type(event) is ThinkingDelta and event.text:
                mould = moulds.reasoning if event.spelling == "reasoning" else moulds.reasoning_content
                if mould is not None:
                    return mould[0] + encode(event.text) + mould[1]
        if not self._order.admit(event):
            return b""
        if type(event) is Failed:
            self._moulds = NO_MOULDS
            return write_error_event(event.error, self._trace_id)
        opening = b"" if self._opened else self._open(event)
        written = self._write(event)
        self._opened = True
        self._is_plain = not self._held
        return opening + written

    def moulds(self) -> Moulds:
        """Return what may be moved past the writer until the next `write`."""
        return self._moulds if self._is_plain else NO_MOULDS

    def carried(self, arguments: str) -> None:
        """Nothing here depends on arguments that passed by."""

    def _open(self, event: Event) -> bytes:
        model = event.model if type(event) is Started and event.model else self._model
        head = {"id": f"chatcmpl-{self._trace_id}", "object": "chat.completion.chunk"}
        self._head = b"data: " + encode({**head, "created": self._created_s, "model": model})[:-1]
        self._delta = self._head + b',"choices":[{"index":0,"delta":'
        self._moulds = Moulds(
            text=self._mould('{"content":', "}"),
            reasoning_content=self._mould('{"reasoning_content":', "}"),
            reasoning=self._mould('{"reasoning":', "}"),
        )
        return self._chunk({"role": "assistant", "content": ""})

    def _mould(self, before: str, behind: str) -> tuple[bytes, bytes]:
        return self._delta + before.encode(), behind.encode() + _TAIL

    def _write(self, event: Event) -> bytes:
        if self._held and not (type(event) is CallStarted or (type(event) is ThinkingDelta and event.text)):
            return self._chunk({}) + self._write(event)
        if type(event) is TextDelta:
            if event.logprobs is not None:
                return self._delta + b'{"content":%b},"logprobs":%b' % (encode(event.text), event.logprobs) + _TAIL
            return self._chunk({"content": event.text}) if event.text else b""
        if type(event) is ThinkingDelta:
            spelling = "reasoning" if event.spelling == "reasoning" else REASONING
            return self._chunk({spelling: event.text}) if event.text else b""
        if type(event) is CallDelta:
            return self._write_slice(event)
        if type(event) is CallStarted:
            return self._write_call(event)
        if type(event) is ThinkingSealed:
            return self._write_sealed(event)
        if type(event) is ThinkingRedacted:
            if event.place == "message":
                self._held = Gathered((event.data,)).members()  # with the text that it came with
            elif event.place == "call":
                self._proof = event.data
            return b""  # for a block of Anthropic's there is no place
        if type(event) is RefusalDelta:
            return self._chunk({"refusal": event.text}) if event.text else b""
        if type(event) is UsageReported:
            self._usage = event.usage if self._usage is None else self._usage.merged(event.usage)
        elif type(event) is Started:
            self._usage = event.usage
        elif type(event) is Finished:
            return self._finish(event.finish)
        elif type(event) is Ended:
            return self._end()
        return b""  # signatures: nothing here could hold them as they are

    def _write_sealed(self, event: ThinkingSealed) -> bytes:
        """Hand an item along: with the call that it is for, since some clients (pi) keep it there or not at all."""
        detail = reasoning_detail(event.item, event.call_id, self._details)
        self._details += 1
        self._held = {DETAILS: [detail]}
        return self._chunk({}) if event.call_id is None else b""

    def _write_call(self, call: CallStarted) -> bytes:
        if call.index != len(self._calls):
            raise Garbled(f"tool call {call.index} opens where number {len(self._calls)} is due")
        self._calls[call.index] = False
        self._moulds = self._moulds._replace(arguments=None, call=-1)
        if call.is_free:
            self._free.add(call.index)
            custom = {"name": call.name, "input": ""}
            return self._call(call.index, {"id": call.id, "type": "custom", "custom": custom})
        function = {"name": call.name, "arguments": ""}
        return self._call(call.index, {"id": call.id, "type": "function", "function": function})

    def _write_slice(self, event: CallDelta) -> bytes:
        if not self._calls.get(event.index, False):
            if event.index not in self._calls:
                raise Garbled(f"the upstream sent arguments for tool call {event.index}, which it never opened")
            if not event.arguments:
                return b""  # it has none yet, and gets `{}` if it stays so
            self._calls[event.index] = True
            if event.index == next(reversed(self._calls)):
                kind, member = self._slices(event.index)
                mould = self._mould(f'{{"tool_calls":[{{"index":{event.index},"{kind}":{{"{member}":', "}}]}")
                self._moulds = self._moulds._replace(arguments=mould, call=event.index)
        kind, member = self._slices(event.index)
        return self._call(event.index, {kind: {member: event.arguments}})

    def _slices(self, call: int) -> tuple[str, str]:
        return ("custom", "input") if call in self._free else ("function", "arguments")

    def _call(self, index: int, members: dict[str, Any]) -> bytes:
        proof: Mapping[str, Any] = {}
        if self._proof is not None:
            proof, self._proof = members_of_call(self._proof), None
        return self._chunk({"tool_calls": [{"index": index, **members, **proof}]})

    def _chunk(self, delta: dict[str, Any]) -> bytes:
        if self._held:
            delta, self._held = {**delta, **self._held}, {}
        return self._delta + encode(delta) + _TAIL

    def _finish(self, finish: Finish) -> bytes:
        self._moulds = NO_MOULDS
        bare = [index for index, has_any in self._calls.items() if not has_any and index not in self._free]
        filled = b"".join(self._call(index, {"function": {"arguments": "{}"}}) for index in bare)
        return filled + self._delta + b'{},"finish_reason":"%b"}]}\n\n' % FINISH_OUT[finish].encode()

    def _end(self) -> bytes:
        usage = b""
        if self._include_usage and self._usage is not None and self._usage.is_stated:
            usage = self._head + b',"choices":[],"usage":' + encode(write_usage(self._usage)) + b"}\n\n"
        return usage + b"data: [DONE]\n\n"


def write_error_event(error: ArbiterError, trace_id: str) -> bytes:
    """Return the event that ends a stream which failed. No `[DONE]` follows it (SPEC 2.7)."""
    return b"data: " + encode(body_of(error)) + b"\n\n"
