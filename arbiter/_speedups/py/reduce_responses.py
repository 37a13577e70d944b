"""The story of one OpenAI Responses stream.

A stream opens with `response.created`, has deltas between the `added` and `done` of items and their parts, and ends
with one terminal event, which holds the whole response once more: `response.completed`, `response.incomplete`, or
`response.failed`, which is an error. What comes with `…done` was said before; only an answer without any delta is
counted from its terminal event.

Some servers leave out `event:` lines, indices and sequence numbers; none of these is asked for.
"""

from __future__ import annotations

from typing import Any

import msgspec

from arbiter._speedups.py.reduce_state import (
    AFTER_FINISH,
    DONE,
    FINISH,
    FOREIGN,
    RESTART,
    START,
    State,
    bytes_of,
    is_compaction,
    json_size,
    number_of,
    text_size,
    word_of,
)

TEXT = frozenset(("response.output_text.delta", "response.refusal.delta"))
THINKING = frozenset(("response.reasoning_text.delta", "response.reasoning_summary_text.delta"))
ARGUMENTS = frozenset(
    ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta",
     "response.mcp_call_arguments.delta", "response.code_interpreter_call_code.delta")
)  # fmt: skip
OPENING = frozenset(("response.created", "response.queued", "response.in_progress"))
FAILURES = frozenset(("response.failed", "response.cancelled"))
ENDS = frozenset(("response.completed", "response.incomplete"))

_SILENT = frozenset(("message", "reasoning", "compaction"))
"""Types of items that are no call."""


class _Event(msgspec.Struct):
    response: dict[str, msgspec.Raw] = {}


_RAW_RESPONSE = msgspec.json.Decoder(_Event)


class ResponsesState(State):
    """The story of one Responses stream."""

    def __init__(self) -> None:
        super().__init__()
        self.usage: bytes | None = None
        self.service_tier: bytes | None = None
        self.created_s: int | None = None
        self.compacted = False
        self.finish: bytes | None = None
        self.started = False

    @property
    def finished(self) -> bool:
        return self.finish is not None

    @property
    def plain(self) -> bool:
        return not (self.done or self.errored)

    def _done(self, kinds: list[int]) -> None:
        kinds.append(FOREIGN)  # some send `[DONE]` behind the terminal event, which ended it before

    def _is_ours(self, members: dict[str, Any]) -> bool:
        kind = members.get("type")
        return isinstance(kind, str) and kind.startswith("response.")

    def _is_ping(self, name: bytes, members: dict[str, Any]) -> bool:
        return members.get("type") == "keepalive" or super()._is_ping(name, members)

    def _is_error(self, name: bytes, members: dict[str, Any]) -> bool:
        if self._is_ours(members):
            return name == b"error" or members["type"] in FAILURES
        return super()._is_error(name, members)

    def _note(self, data: bytes, members: dict[str, Any]) -> None:
        """Keep what a response says of itself; the first id and model win, the last usage does. The tier of an opening
        is the one that was asked for, that of the end the one that served."""
        response = members.get("response")
        if not isinstance(response, dict):
            return
        self.response_id = self.response_id or word_of(response.get("id"))
        self.model = self.model or word_of(response.get("model"))
        self.created_s = number_of(response.get("created_at")) if self.created_s is None else self.created_s
        kind = members.get("type")
        if not (isinstance(kind, str) and kind in OPENING):
            self.service_tier = word_of(response.get("service_tier"))
        usage = response.get("usage")
        if isinstance(usage, dict) and usage:
            self.usage = bytes_of(usage, lambda: _RAW_RESPONSE.decode(data).response["usage"])

    def _read(self, name: bytes, data: bytes, members: dict[str, Any], kinds: list[int]) -> None:
        kind = members.get("type")
        if not isinstance(kind, str) or not kind.startswith("response."):
            kinds.append(FOREIGN)
        elif kind.endswith(".delta"):
            self._delta(kind, members.get("delta"), kinds)
        elif kind == "response.output_item.added":
            self._added(members.get("item"), kinds)
        elif kind == "response.output_item.done":
            self._compacted(members.get("item"))
        elif kind in OPENING:
            self._note(data, members)
            if kind == "response.created":
                kinds.append(RESTART if self.started else START if self.plain else AFTER_FINISH)
                self.started = True
        elif kind in ENDS:
            self._end(kind, data, members, kinds)

    def _delta(self, kind: str, delta: object, kinds: list[int]) -> None:
        size = text_size(delta)
        if kind in TEXT:
            self.text_bytes += size
        elif kind in THINKING:
            self.thinking_bytes += size
        elif kind in ARGUMENTS:
            self.argument_bytes += size
        else:
            return
        if size and not self.plain:
            kinds.append(AFTER_FINISH)

    def _added(self, item: object, kinds: list[int]) -> None:
        called = called_by(item)
        if called is not None:
            self._name(called)
        if not self.plain:
            kinds.append(AFTER_FINISH)

    def _compacted(self, item: object) -> None:
        """A compaction has no words of its own: what it says is in there for its maker alone."""
        if isinstance(item, dict) and is_compaction(item):
            self.compacted = True
            self.text_bytes += text_size(item.get("encrypted_content"))

    def _end(self, kind: str, data: bytes, members: dict[str, Any], kinds: list[int]) -> None:
        if not self.plain:
            kinds.append(AFTER_FINISH)
            return
        self._note(data, members)
        response = members.get("response")
        response = response if isinstance(response, dict) else {}
        details = response.get("incomplete_details")
        reason = word_of(details.get("reason")) if isinstance(details, dict) else None
        self.finish = (reason if kind == "response.incomplete" else None) or kind[len("response.") :].encode()
        self.done = True
        output = response.get("output")
        if isinstance(output, list):
            self.compacted = self.compacted or any(map(is_compaction, output))
        if isinstance(output, list) and not (self.text_bytes or self.thinking_bytes or self.argument_bytes):
            self._whole(output)
        kinds += (FINISH, DONE)

    def _whole(self, output: list[Any]) -> None:
        """Count an answer that came in one piece behind its opening."""
        knows_calls = bool(self.tool_names)
        for item in output:
            if not isinstance(item, dict):
                continue
            called = called_by(item)
            if called is not None and not knows_calls:
                self._name(called)
            text, thinking, arguments = sizes_of(item)
            self.text_bytes += text
            self.thinking_bytes += thinking
            self.argument_bytes += arguments


def called_by(item: object) -> bytes | None:
    """The name of the tool that an item of the output calls, None where it calls none; of a built-in one its type."""
    if not isinstance(item, dict):
        return None
    kind = word_of(item.get("type"))
    if kind is None or kind.decode() in _SILENT or kind.endswith((b"_output", b"_list_tools")):
        return None
    return word_of(item.get("name")) or kind.removesuffix(b"_call")


def sizes_of(item: dict[str, Any]) -> tuple[int, int, int]:
    """Bytes of text, thinking and arguments in a whole item of the output."""
    if item.get("type") == "reasoning":
        return 0, _texts(item.get("summary")) or _texts(item.get("content")), 0
    if is_compaction(item):
        return text_size(item.get("encrypted_content")), 0, 0
    arguments = json_size(item.get("arguments")) + text_size(item.get("input")) + text_size(item.get("code"))
    return _texts(item.get("content")), 0, arguments


def _texts(parts: object) -> int:
    if not isinstance(parts, list):
        return 0
    return sum(text_size(part.get("text")) + text_size(part.get("refusal")) for part in parts if isinstance(part, dict))
