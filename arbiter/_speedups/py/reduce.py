"""The side reducer: reads a streamed answer as it passes, and never touches it.

A tap is fed the bytes that are relayed. It counts, remembers what the row needs, and says with a *mark* where an event
stands that the relay must know of: the end, the usage, an error, something to drop or to repair. Plain deltas get no
mark, so a relay that sees no marks forwards what it has.

This file is the definition: framing, one full JSON decode per event, and `ChatState`/`MessagesState`, which say what an
event means. The compiled twin reads plain deltas itself and hands every other event to these same states.

Source: SPEC 2.5-2.7, 2.10, 7.2.
"""

from __future__ import annotations

from typing import Any

import msgspec

from arbiter._speedups.py.reduce_gemini import GeminiState
from arbiter._speedups.py.reduce_responses import ResponsesState, called_by, sizes_of
from arbiter._speedups.py.reduce_state import (
    AFTER_FINISH,
    CLASH,
    DONE,
    ERROR,
    EXCESS,
    FINISH,
    FOREIGN,
    MALFORMED,
    MAX_CALLS,
    MAX_DEPTH,
    MAX_KEPT_BYTES,
    MAX_VALUES,
    RAW_MEMBERS,
    RESTART,
    START,
    USAGE_ONLY,
    Mark,
    State,
    bytes_of,
    check_size,
    compact,
    decode,
    is_compaction,
    json_size,
    number_of,
    refuse,
    slim,
    text_size,
    word_of,
)
from arbiter._speedups.py.sse import LIMIT_BYTES, Frame, Framer

__all__ = [
    "AFTER_FINISH",
    "CLASH",
    "DONE",
    "ERROR",
    "EXCESS",
    "FINISH",
    "FOREIGN",
    "MALFORMED",
    "MAX_CALLS",
    "MAX_DEPTH",
    "MAX_KEPT_BYTES",
    "MAX_VALUES",
    "RESTART",
    "START",
    "USAGE_ONLY",
    "ChatState",
    "ChatTap",
    "GeminiState",
    "GeminiTap",
    "Mark",
    "MessagesState",
    "MessagesTap",
    "ResponsesState",
    "ResponsesTap",
    "called_by",
    "check_size",
    "cleared_tokens",
    "decode",
    "is_compaction",
    "merge",
    "refuse",
    "sizes_of",
    "slim",
]


class _Start(msgspec.Struct):
    message: dict[str, msgspec.Raw] = {}


_RAW_START = msgspec.json.Decoder(_Start)

MAX_TOKENS = 10**15 - 1
"""More is no count of tokens, and sums of such would soon be too much for a store's column."""


class _Call:
    __slots__ = ("ident", "index", "named")

    def __init__(self, ident: bytes, index: int) -> None:
        self.ident = ident
        self.index = index  # on the client's side; -1 where the upstream sends none
        self.named = False


class ChatState(State):
    """The story of one chat-completions stream; every choice of it."""

    def __init__(self) -> None:
        super().__init__()
        self.usage: bytes | None = None
        self.service_tier: bytes | None = None
        self.fingerprint: bytes | None = None
        self.finishes: dict[int, bytes] = {}
        self.seen: set[int] = set()
        self.clashed = False
        self._open: dict[tuple[int, int | None], _Call] = {}  # (choice, index) -> the call that fragments belong to now
        self._by_id: dict[tuple[int, bytes], _Call] = {}
        self._calls = 0  # of all choices
        self._begun: dict[int, int] = {}  # choice -> how many of them are its own
        self._used: dict[int, set[int]] = {}  # choice -> the indices of its calls
        self._next: dict[int, int] = {}  # choice -> the index behind all of those

    @property
    def finish(self) -> bytes | None:
        return self.finishes[min(self.finishes)] if self.finishes else None

    @property
    def finished(self) -> bool:
        return bool(self.finishes) and self.seen <= self.finishes.keys()

    @property
    def plain(self) -> bool:
        return not (self.done or self.errored or self.finishes)

    def _done(self, kinds: list[int]) -> None:
        self.done = True
        kinds.append(DONE)

    def _is_ours(self, members: dict[str, Any]) -> bool:
        return isinstance(members.get("choices"), list) or members.get("object") == "chat.completion.chunk"

    def _note(self, data: bytes, members: dict[str, Any]) -> None:
        """Keep id, model, tier and usage; the first id, model and tier win, the last usage does. A fingerprint is the
        one that came with the id."""
        if not self._is_ours(members):
            return
        if self.response_id is None and (ident := word_of(members.get("id"))) is not None:
            self.response_id, self.fingerprint = ident, word_of(members.get("system_fingerprint"))
        self.model = self.model or word_of(members.get("model"))
        self.service_tier = self.service_tier or word_of(members.get("service_tier"))
        usage = members.get("usage")
        if isinstance(usage, dict) and usage:
            self.usage = bytes_of(usage, lambda: RAW_MEMBERS.decode(data)["usage"])
            return
        # Kimi puts it into the choice, Groq into a member of its own.
        choices = members.get("choices")
        for holder in (*(choices if isinstance(choices, list) else ()), members.get("x_groq")):
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(usage, dict) and usage:
                self.usage = compact(usage)

    def _read(self, name: bytes, data: bytes, members: dict[str, Any], kinds: list[int]) -> None:
        if not self._is_ours(members):
            kinds.append(FOREIGN)
            return
        self._note(data, members)
        choices = members.get("choices")
        if not choices:
            if isinstance(members.get("usage"), dict) and members["usage"]:
                kinds.append(USAGE_ONLY)
            return
        after = clash = False
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            if not isinstance(choice, dict):
                continue
            number = number_of(choice.get("index"))
            number = position if number is None else number
            if number not in self.seen:
                if len(self.seen) >= MAX_CALLS:
                    self._excess = True
                    break
                self.seen.add(number)
            delta = choice.get("delta")
            if isinstance(delta, dict):
                has_data, has_clash = self._read_delta(number, delta)
                clash = clash or has_clash
                after = after or (has_data and (self.done or self.errored or number in self.finishes))
            word = word_of(choice.get("finish_reason"))
            if word is not None:
                if number in self.finishes:
                    after = after or self.finishes[number] != word
                elif self.done or self.errored:
                    after = True
                else:
                    self.finishes[number] = word
                    kinds.append(FINISH)
        if clash:
            kinds.append(CLASH)
        if after:
            kinds.append(AFTER_FINISH)

    def _read_delta(self, choice: int, delta: dict[str, Any]) -> tuple[bool, bool]:
        """Count one delta; say whether it carries output, and whether its calls clash."""
        content = delta.get("content")
        text, thinking = self._parts(content) if isinstance(content, list) else (text_size(content), 0)
        text += text_size(delta.get("refusal"))
        # Some servers send the same reasoning under both names.
        thinking += text_size(delta.get("reasoning")) or text_size(delta.get("reasoning_content"))
        arguments = 0
        clash = False
        calls = delta.get("tool_calls")
        fragments = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        for fragment in fragments:
            function = fragment.get("function")
            function = function if isinstance(function, dict) else {}
            arguments += json_size(function.get("arguments"))
            if self._place(
                choice, number_of(fragment.get("index")), word_of(fragment.get("id")), word_of(function.get("name"))
            ):
                self.clashed = True
            clash = clash or self.clashed
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            arguments += json_size(legacy.get("arguments"))
            named = word_of(legacy.get("name"))
            # Some servers repeat it on every chunk.
            if named is not None and self.tool_names[-1:] != [named]:
                self._name(named)
        self.text_bytes += text
        self.thinking_bytes += thinking
        self.argument_bytes += arguments
        return bool(text or thinking or fragments or legacy), clash

    def _parts(self, parts: list[Any]) -> tuple[int, int]:
        """Mistral's reasoning models stream `content` as a list of parts."""
        text = thinking = 0
        for part in parts:
            if isinstance(part, dict):
                text += text_size(part.get("text"))
                inner = part.get("thinking")
                if isinstance(inner, list):
                    thinking += sum(text_size(piece.get("text")) for piece in inner if isinstance(piece, dict))
                else:
                    thinking += text_size(inner)
        return text, thinking

    def _place(self, choice: int, index: int | None, ident: bytes | None, named: bytes | None) -> bool:
        """Find the call that a fragment belongs to, or begin one; True when the fragment's index is not its call's."""
        key = (choice, index)
        call = self._open.get(key)
        if ident is not None:
            known = self._by_id.get((choice, ident))
            if known is not None:
                call = known
            elif call is not None and not call.ident:
                if self._has_room(ident):
                    call.ident = ident
                    self._by_id[choice, ident] = call
            else:
                call = self._begin(choice, index, ident)
        elif call is None and named is not None:
            call = self._begin(choice, index, b"")
        if call is None:
            return False
        if named is not None and not call.named:
            call.named = True
            self._name(named)
        if key not in self._open and len(self._open) >= MAX_CALLS:
            self._excess = True
            return False
        self._open[key] = call
        return index is not None and call.index != index

    def _begin(self, choice: int, index: int | None, ident: bytes) -> _Call | None:
        """Begin a call at its index, or behind all others where that is taken; None where it is one too many."""
        if self._calls >= MAX_CALLS:
            self._excess = True
            return None
        if not self._has_room(ident):
            return None
        self._calls += 1
        self._begun[choice] = self._begun.get(choice, 0) + 1
        call = _Call(ident, -1)
        if index is not None:
            used, behind = self._used.setdefault(choice, set()), self._next.get(choice, 0)
            call.index = behind if index in used else index
            used.add(call.index)
            self._next[choice] = max(behind, call.index + 1)
        if ident:
            self._by_id[choice, ident] = call
        return call

    def calls(self, choice: int) -> int:
        """How many tool calls the choice has begun."""
        return self._begun.get(choice, 0)

    def index_of(self, choice: int, ident: bytes) -> int:
        """The index of a call on the client's side: the upstream's own, or the next free one where that was taken.

        -1 for an unknown call, and for one that came without an index.
        """
        call = self._by_id.get((choice, ident))
        return -1 if call is None else call.index


class MessagesState(State):
    """The story of one Anthropic messages stream."""

    _TYPES = frozenset(
        {"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"}
        | {"message_stop"}
    )

    def __init__(self) -> None:
        super().__init__()
        self.usage_start: bytes | None = None
        self.usage_delta: bytes | None = None
        self.cleared_tokens: int | None = None
        self.compacted = False
        self.finish: bytes | None = None
        self.started = False

    @property
    def finished(self) -> bool:
        return self.finish is not None

    @property
    def plain(self) -> bool:
        return not (self.done or self.errored or self.finish is not None)

    def _done(self, kinds: list[int]) -> None:
        kinds.append(FOREIGN)  # `[DONE]` is not this format's word

    def _is_ours(self, members: dict[str, Any]) -> bool:
        kind = members.get("type")
        return isinstance(kind, str) and kind in self._TYPES

    def _is_error(self, name: bytes, members: dict[str, Any]) -> bool:
        return super()._is_error(name, members) and (name == b"error" or not self._is_ours(members))

    def _note(self, data: bytes, members: dict[str, Any]) -> None:
        pass

    def _read(self, name: bytes, data: bytes, members: dict[str, Any], kinds: list[int]) -> None:
        match members.get("type"):
            case "content_block_delta":
                delta = members.get("delta")
                if isinstance(delta, dict):
                    self._count(delta.get("text"), delta.get("thinking"), delta.get("partial_json"), kinds)
            case "content_block_start":
                block = members.get("content_block")
                if isinstance(block, dict):
                    self._count(block.get("text"), block.get("thinking"), block.get("input"), kinds)
                    named = word_of(block.get("name"))
                    if named is not None:
                        self._name(named)
                    self.compacted = self.compacted or is_compaction(block)
                if not self.plain and not kinds:
                    kinds.append(AFTER_FINISH)
            case "content_block_stop":
                pass
            case "message_start":
                self._start(data, members.get("message"), kinds)
            case "message_delta":
                self._delta(data, members, kinds)
            case "message_stop":
                self.done = True
                kinds.append(DONE)
            case _:
                kinds.append(FOREIGN)

    def _count(self, text: object, thinking: object, arguments: object, kinds: list[int]) -> None:
        sizes = text_size(text), text_size(thinking), json_size(arguments)
        self.text_bytes += sizes[0]
        self.thinking_bytes += sizes[1]
        self.argument_bytes += sizes[2]
        if any(sizes) and not self.plain:
            kinds.append(AFTER_FINISH)

    def _start(self, data: bytes, message: object, kinds: list[int]) -> None:
        if self.started:
            kinds.append(RESTART)
            return
        self.started = True
        kinds.append(START if self.plain else AFTER_FINISH)
        if isinstance(message, dict):
            self.response_id = word_of(message.get("id"))
            self.model = word_of(message.get("model"))
            usage = message.get("usage")
            if isinstance(usage, dict) and usage:
                self.usage_start = bytes_of(usage, lambda: _RAW_START.decode(data).message["usage"])
            self.cleared_tokens = cleared_tokens(message.get("context_management"))

    def _delta(self, data: bytes, members: dict[str, Any], kinds: list[int]) -> None:
        usage = members.get("usage")
        if isinstance(usage, dict) and usage:
            raw = bytes_of(usage, lambda: RAW_MEMBERS.decode(data)["usage"])
            self.usage_delta = raw if self.usage_delta is None else merge(self.usage_delta, raw)
        cleared = cleared_tokens(members.get("context_management"))
        self.cleared_tokens = self.cleared_tokens if cleared is None else cleared
        delta = members.get("delta")
        word = word_of(delta.get("stop_reason")) if isinstance(delta, dict) else None
        if word is None or word == self.finish:
            return
        if self.plain:
            self.finish = word
            kinds.append(FINISH)
        else:
            kinds.append(AFTER_FINISH)


def cleared_tokens(management: object) -> int | None:
    """How many tokens the provider took out of the prompt before the model saw it, as the request had asked; None where
    it says that it edited nothing, or says nothing.

    Shapes: the answer's `context_management` (`{"applied_edits": [{"cleared_input_tokens": 50000, ...}]}`).
    """
    edits = management.get("applied_edits") if isinstance(management, dict) else None
    if not isinstance(edits, list) or not edits:
        return None
    found = [edit.get("cleared_input_tokens") for edit in edits if isinstance(edit, dict)]
    return min(sum(one for one in found if type(one) is int and one > 0), MAX_TOKENS)


def merge(first: bytes | None, second: bytes | None) -> bytes | None:
    """Two reports of one answer's usage as one: what the second says wins, what it leaves out (or null) stays.

    Where they cannot be read together (a number beyond all bounds) or grow too large, the second is all there is.
    """
    if first is None or second is None:
        return second if first is None else first
    if len(first) + len(second) > MAX_KEPT_BYTES:
        return second
    try:
        earlier, later = decode(first), decode(second)
    except ValueError:
        return second
    return compact({**earlier, **{key: value for key, value in later.items() if value is not None}})


class Tap(State):
    """Framing in front of a state; what both taps can do."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        super().__init__()
        self._framer = Framer(limit)

    def feed(self, data: bytes) -> list[Mark]:
        """Read `data` on the side; return the marks of the events it completed, in order.

        Shapes: any cut of the stream gives the same marks and counts. Ranges are absolute offsets; comments in front of
        an event are outside of its range.
        Errors: Garbled as in `sse.SSEReader`: after the marks that came before the fault. `boundary` stays before it.
        """
        return self._marks(self._framer.feed(data))

    def end(self) -> list[Mark]:
        """The stream's bytes end here: return the marks of a last event without its blank line."""
        return self._marks(self._framer.finish())

    def _marks(self, frames: list[Frame]) -> list[Mark]:
        marks: list[Mark] = []
        for frame in frames:
            self.take(*frame, marks)
        if not marks and self._framer.fault is not None:
            raise self._framer.fault
        return marks

    @property
    def boundary(self) -> int:
        """The offset before which everything is complete: whole events, whole comment lines. Safe to forward."""
        return self._framer.boundary

    @property
    def offset(self) -> int:
        """Bytes fed."""
        return self._framer.offset


class ChatTap(Tap, ChatState):
    """Read one chat-completions stream on the side."""


class MessagesTap(Tap, MessagesState):
    """Read one Anthropic messages stream on the side."""


class ResponsesTap(Tap, ResponsesState):
    """Read one OpenAI Responses stream on the side."""


class GeminiTap(Tap, GeminiState):
    """Read one Gemini stream on the side."""
