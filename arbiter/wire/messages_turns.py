"""A conversation as Anthropic Messages has it: turns of two roles, and each call answered in the turn behind it.

Messages are taken one by one, and each only adds: to the last turn, or as a new one. What was built for the turns
before does not depend on what came later, so a conversation that grew has the same bytes up to where it grew (SPEC
2.4). The one exception is a conversation that ends with the assistant, whose words are a beginning that the model goes
on with: they may not end in blanks while they are the end.

    calls are made      the results are gathered, in the order of the calls; whoever else speaks meanwhile is held back
    all are answered    the results are a turn of the user's, and what was held stands behind them
    nobody answers      as soon as the assistant speaks again: a result that says so takes the place of the missing one

Ids become what this format takes, and different where a server counts its calls from zero in each turn.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from arbiter.model import Message, Part, Text, Thinking, ToolCall, ToolResult
from arbiter.wire.messages_blocks import NOTHING, block_of, blocks_of
from arbiter.wire.results import UNANSWERED, orphaned, result_of

_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 128
_MAX_ID = 1 << 16  # some servers keep whole signatures in them


def _fit(name: str) -> str:
    # Nearly all are such words, which takes a fifth of what it takes to replace nothing.
    return name if name.isascii() and name.isidentifier() else _FOREIGN.sub("_", name)


def turns_of(messages: Iterable[Message], *, blocks: bool) -> list[dict[str, Any]]:
    """Return `messages`, the instructions at their head excepted, as this format's turns.

    Shapes: the first is the user's. With `blocks` every content is an array and two turns of one role are one; without,
    a bare string stays one (SPEC 2.4) and turns are joined only where calls and results need it.
    Errors: ProtocolUnsupported where a part has no place in this format.
    """
    turns = _Turns(blocks)
    for message in messages:
        turns.take(message)
    return turns.finish()


def _aside(parts: Iterable[Part]) -> list[Part]:
    """Instructions in the middle, in the user's turn: a role of their own is taken by a few models, in a few places.

    Not moved to the head, where they would change what was sent before; set apart as Claude knows it, so that nobody
    takes them for the user's words.
    """
    return [
        replace(part, text=f"<system-reminder>\n{part.text}\n</system-reminder>")
        if type(part) is Text and part.text.strip()
        else part
        for part in parts
    ]


class _Turns:
    __slots__ = ("_blocks", "_calls", "_fresh", "_heard", "_held", "_ids", "_numbers", "_open", "_results", "_turns")

    def __init__(self, blocks: bool) -> None:
        self._blocks = blocks
        self._turns: list[dict[str, Any]] = []
        self._ids: set[str] = set()  # of all calls so far
        self._numbers: dict[str, int] = {}  # the last one that was given to an id which was there before
        self._calls: list[str] = []  # of the open turn, by the id that is sent
        self._open: dict[str, deque[str]] = {}  # those without a result, by the client's id
        self._results: dict[str, Any] = {}  # by the id that is sent
        self._held: list[Any] = []
        self._heard = False  # somebody else has spoken since the last of the calls
        self._fresh = False  # the last turn is results: the user's words belong to it

    def take(self, message: Message) -> None:
        if message.role == "assistant":
            self._take_said(message)
            self._heard = False
            return
        self._heard = True
        if message.role == "tool":
            for part in message.parts():
                self._take_result(result_of(part))
        elif message.role == "user":
            self._take_words(message.content)
        else:
            self._take_words(tuple(_aside(message.parts())), optional=True)

    def finish(self) -> list[dict[str, Any]]:
        self._close()
        last = self._turns[-1] if self._turns else None
        if last is not None and last["role"] == "assistant":
            _trim(last)
        if last is None or self._turns[0]["role"] == "assistant":
            opening: Any = [{"type": "text", "text": NOTHING}] if self._blocks else NOTHING
            self._turns.insert(0, {"role": "user", "content": opening})
        return self._turns

    def _take_said(self, message: Message) -> None:
        """Add what the assistant said. Calls and words of one turn may be two messages (an old Codex does that)."""
        together = bool(self._calls) and not self._heard
        if not together:
            self._close()
        parts = message.parts()
        if ToolCall in map(type, parts):
            parts = tuple([self._renamed(part) if type(part) is ToolCall else part for part in parts])
        built = blocks_of(parts)
        if not built:
            return
        self._add("assistant", built, _bare(message, built), joined=together)

    def _renamed(self, call: ToolCall) -> ToolCall:
        """Return a call under an id and a name that this format takes. Only calls before it have a say in them."""
        base = _fit(call.id[:_MAX_ID]) or "call"
        sent = base
        while sent in self._ids:
            self._numbers[base] = self._numbers.get(base, 1) + 1
            sent = f"{base}_{self._numbers[base]}"
        self._ids.add(sent)
        self._calls.append(sent)
        self._open.setdefault(call.id, deque()).append(sent)
        name = _fit(call.name[:_MAX_NAME]) or "unnamed"
        return call if sent == call.id and name == call.name else replace(call, id=sent, name=name)

    def _take_result(self, result: ToolResult) -> None:
        waiting = self._open.get(result.call_id)
        if waiting:
            sent = waiting.popleft()
            self._results[sent] = block_of(result if sent == result.call_id else replace(result, call_id=sent))
        else:
            self._take_words(orphaned(result), optional=True)

    def _take_words(self, content: str | tuple[Part, ...], *, optional: bool = False) -> None:
        bare = content if isinstance(content, str) else None
        built = blocks_of((Text(content),) if isinstance(content, str) else content)
        if len(self._results) < len(self._calls):
            self._held += built
            return
        self._close()
        if not built and not (optional or self._fresh):
            built, bare = [{"type": "text", "text": NOTHING}], NOTHING
        if built:
            self._add("user", built, bare, joined=self._fresh)
            self._fresh = False

    def _close(self) -> None:
        """End the open turn of calls, if there is one: its results, and what was held, are the user's turn."""
        if not self._calls:
            return
        results = [self._results.get(sent) or _unanswered(sent) for sent in self._calls]
        self._add("user", results + self._held, None, joined=False)
        self._fresh = True
        self._calls, self._open, self._results, self._held = [], {}, {}, []

    def _add(self, role: str, built: list[Any], bare: str | None, *, joined: bool) -> None:
        last = self._turns[-1] if self._turns else None
        if last is not None and last["role"] == role and (joined or self._blocks):
            last["content"] += built
        else:
            content = bare if bare is not None and not self._blocks else built
            self._turns.append({"role": role, "content": content})
        self._fresh = False


def _bare(message: Message, built: list[Any]) -> str | None:
    """Return what was a bare string, also where there was reasoning beside it that could not be kept.

    Clients leave old reasoning out as they go on; the turn must not change its shape for that (SPEC 2.4).
    """
    if isinstance(message.content, str):
        return message.content
    first = built[0]
    if len(built) > 1 or len(message.content) < 2 or not isinstance(first, dict) or first.keys() != {"type", "text"}:
        return None
    return str(first["text"]) if any(type(part) is Thinking for part in message.content) else None


def _unanswered(sent: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": sent, "content": UNANSWERED, "is_error": True}


def _trim(turn: dict[str, Any]) -> None:
    """Take the blanks off the end of the assistant's words: with them the whole request would be refused."""
    content = turn["content"]
    if isinstance(content, str):
        turn["content"] = content.rstrip()
    elif isinstance(content[-1], dict) and content[-1].get("type") == "text":
        content[-1]["text"] = content[-1]["text"].rstrip()
