"""Puts reasoning that a client handed along back to where it stood in a conversation (SPEC 6.6).

Every item is opened and checked once, whoever is asked: that it is whole and this client's, and that what it was said
with is still there: the calls by their ids, the text before it but for its blanks. What of it a target gets depends on
who thought it (SPEC 4.7a):

    text                             whoever takes earlier reasoning at all
    of a chat's message or call      the same model behind the same base URL; left out for others
    signed, by Anthropic or Google   the same model behind the same base URL, the same Claude at each of its homes; left
                                     out for others
    encrypted, by OpenAI             the same account behind the same base URL; left out for others

Beside an item, the plain text of the same thoughts, which many clients send too, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from arbiter.errors import InvalidReasoning
from arbiter.model import Message, Part, RedactedThinking, Request, SealedThinking, Text, Thinking, ToolCall
from arbiter.wire import bedrock_converse, signatures
from arbiter.wire.native import CHAT, GEMINI, MESSAGES, RESPONSES
from arbiter.wire.openai_models import Dialect
from arbiter.wire.vault import Origin, Sealed, Thought, Vault, digest, squeezed

_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")  # characters of an id that some clients replace
_ENCRYPTED = re.compile(rb'"encrypted_content"\s*:\s*"')  # Codex writes null where there is none
_MOST_ANSWERS = 64  # in a row without anybody between: each is where an item's text could begin


class Restored(NamedTuple):
    request: Request
    left_out: int
    """How many items hold nothing that the target could take."""


class _Item(NamedTuple):
    place: int  # of the message that holds it
    start: int  # of the text that was said with it: which part of its run
    sealed: Sealed


class _Run(NamedTuple):
    """Messages in a row of the assistant's with items in them."""

    places: list[int]
    items: list[_Item]


class HandedAlong:
    """The items of one conversation, opened."""

    def __init__(self, request: Request, vault: Vault | None, owner: str | None) -> None:
        """Errors: InvalidReasoning with the part, and in `param` the place of its message in `request`."""
        self._request = request
        self._runs: list[_Run] = []
        messages = request.messages
        calls = {_plain(part.id) for message in messages for part in message.parts() if type(part) is ToolCall}
        for is_said, run in groupby(range(len(messages)), lambda place: messages[place].role == "assistant"):
            if is_said:
                places = list(run)
                items = _opened(messages, places, calls, vault, owner)
                if items:
                    self._runs.append(_Run(places, items))

    @property
    def count(self) -> int:
        return sum(len(run.items) for run in self._runs)

    def texts(self) -> dict[int, str]:
        """What was thought in a message, as text, by its place."""
        found: dict[int, str] = {}
        for run in self._runs:
            for item in run.items:
                text = "".join(thought.text for thought in item.sealed.thoughts)
                found[item.place] = found.get(item.place, "") + text
        return found

    def told_to(self, target: Origin, *, takes_text: bool = True) -> Restored:
        """Return the conversation as `target` gets it; `takes_text`: as text it takes earlier reasoning."""
        messages = list(self._request.messages)
        left_out = 0
        for run in self._runs:
            thoughts: list[tuple[int, Thought]] = []
            for item in run.items:
                sealed = item.sealed
                fitting = [one for one in sealed.thoughts if _fits(one, sealed, target, takes_text=takes_text)]
                thoughts += ((item.start, one) for one in fitting)
                left_out += not fitting
            for place, content in _rebuilt(messages, run.places, thoughts, splits=target.format == MESSAGES):
                messages[place] = replace(messages[place], content=content)
        return Restored(replace(self._request, messages=tuple(messages)), left_out)


def lost(request: Request, format: str, takes: Dialect | None) -> int:
    """In how many messages something that its maker signed or encrypted is nothing to an upstream of `format`, and is
    not told as text either; `takes` is what that takes where it is a chat."""
    count = 0
    for message in request.messages:
        if message.role == "assistant" and not isinstance(message.content, str):
            for part in message.content:
                if type(part) in (Thinking, RedactedThinking) and _is_lost(part, format, takes):
                    count += 1
                    break
    return count


def _is_lost(part: Part, format: str, takes: Dialect | None) -> bool:
    if type(part) is RedactedThinking:
        if part.place == "block":
            return format not in (MESSAGES, bedrock_converse.name)
        return takes is None or not takes.signs
    assert type(part) is Thinking
    if part.signature is None and (part.item is None or _ENCRYPTED.search(part.item) is None):
        return False
    if part.signature == signatures.ELSEWHERE:
        return False
    if takes is not None:
        return takes.reasoning is None or not part.text
    if format == RESPONSES:
        return part.item is None
    if format == GEMINI:
        return signatures.googles(part.signature) is None
    return not signatures.is_anthropics(part.signature)


def _opened(
    messages: tuple[Message, ...], places: list[int], calls: set[str], vault: Vault | None, owner: str | None
) -> list[_Item]:
    parts = [(place, part) for place in places for part in messages[place].parts()]
    handed = {part: place for place, part in parts if type(part) is SealedThinking}
    if not handed:
        return []
    texts = [squeezed(part.text) if type(part) is Text else "" for _, part in parts]
    own = {_plain(part.id) for _, part in parts if type(part) is ToolCall}
    found = []
    for part, place in handed.items():
        try:
            if vault is None:
                raise InvalidReasoning("there is no key for it")
            sealed = vault.open(part.item, owner)
            start = _start(texts, sealed)
            ids = [_plain(id) for id in sealed.calls]
            if not calls.issuperset(ids) or (ids and ids[-1] not in own):
                raise InvalidReasoning("a call that it was thought for is not there")
        except InvalidReasoning as error:
            message = f"the reasoning that was handed along cannot be used: {error}"
            raise InvalidReasoning(message, param=f"messages[{place}]", part=part) from None
        found.append(_Item(place, start, sealed))
    return found


def _start(texts: list[str], sealed: Sealed) -> int:
    """Return the part with which the text begins that was said before the item: with the first, or, where there are
    several answers in a row, with another. Errors: InvalidReasoning where it has been changed."""
    if not sealed.said:
        return 0
    said = "".join(texts)
    at = tries = 0
    for start, text in enumerate(texts):
        if text and len(said) - at >= sealed.said and tries < _MOST_ANSWERS:
            if digest(said[at : at + sealed.said]) == sealed.digest:
                return start
            tries += 1
        at += len(text)
    raise InvalidReasoning("the text that was said with it has been changed")


def _fits(thought: Thought, sealed: Sealed, target: Origin, *, takes_text: bool) -> bool:
    """Whether `target` can take one of the thoughts of an item."""
    origin = sealed.origin
    is_maker = (origin.format, origin.home, origin.model) == (target.format, target.home, target.model)
    if target.format == CHAT:
        return is_maker if thought.data is not None else takes_text and bool(thought.text)
    if target.format == RESPONSES:
        return (origin.format, origin.home, origin.account) == (RESPONSES, target.home, target.account)
    if is_maker:
        return True
    if not origin.claude or origin.claude != target.claude:
        return False
    # Signatures are the same in Messages and in Bedrock's own format; of what is redacted nobody says so.
    return origin.format == target.format or all(one.data is None for one in sealed.thoughts)


def _rebuilt(
    messages: list[Message], places: list[int], thoughts: list[tuple[int, Thought]], *, splits: bool
) -> Iterator[tuple[int, str | tuple[Part, ...]]]:
    """Yield the messages that change: without items and plain thoughts, and with `thoughts` where they stood, once.

    `splits`: a thought may stand in the middle of a text that a client joined; else it stands before it.
    """
    parts = [part for place in places for part in messages[place].parts()]
    sizes = [len(squeezed(part.text)) if type(part) is Text else 0 for part in parts]
    standing: dict[int, list[tuple[int, Part]]] = {}
    put_back = [thought.part() for _, thought in thoughts]
    for start, thought in thoughts:
        place, offset = _place(parts, sizes, start, thought)
        standing.setdefault(place, []).append((offset if splits else 0, thought.part()))
    at = 0
    for place in places:
        before = messages[place].parts()
        after: list[Part] = []
        for part in before:
            after += _with_thoughts(part, standing.get(at, []), put_back)
            at += 1
        if place == places[-1]:
            after += (thought for _, thought in standing.get(at, ()))
        if len(after) != len(before) or any(one is not other for one, other in zip(after, before, strict=True)):
            alone = after[0] if len(after) == 1 else None
            yield place, alone.text if type(alone) is Text and alone.cache is None else tuple(after)


def _place(parts: list[Part], sizes: list[int], start: int, thought: Thought) -> tuple[int, int]:
    """Return before which part a thought stands, and how far into it where that is text, in characters but blanks."""
    said = calls = 0
    for place in range(start, len(parts)):
        size = sizes[place]
        if size and thought.calls <= calls and thought.said < said + size:
            return place, max(0, thought.said - said)
        if type(parts[place]) is ToolCall:
            if thought.calls <= calls and thought.said <= said:
                return place, 0
            calls += 1
        said += size
    return len(parts), 0


def _with_thoughts(part: Part, standing: list[tuple[int, Part]], put_back: list[Part]) -> Iterator[Part]:
    if type(part) is SealedThinking or (type(part) is Thinking and _is_plain(part)):
        return
    if type(part) in (Thinking, RedactedThinking) and part in put_back:
        return  # the client's format has a place for it, too
    rest = part
    past = 0
    for offset, thought in standing:
        if type(rest) is Text and offset > past:
            cut = _index(rest.text, offset - past)
            yield Text(rest.text[:cut])
            rest, past = Text(rest.text[cut:], rest.cache), offset
        yield thought
    yield rest


def _index(text: str, count: int) -> int:
    """Return where in `text` so many characters end that are no blanks."""
    for index, character in enumerate(text):
        count -= not character.isspace()
        if not count:
            return index + 1
    return len(text)


def _is_plain(thought: Thinking) -> bool:
    return thought.signature is None and (thought.item is None or _ENCRYPTED.search(thought.item) is None)


def _plain(id: str) -> str:
    return _FOREIGN.sub("_", id)
