"""What a server of OpenAI Chat wants back with an assistant's message, because it alone can tell what it is.

The format has no reasoning, so servers that must see theirs again add members of their own to a message, and to calls:

    reasoning_details          OpenRouter, MiniMax: texts with a `signature`, `data` that is encrypted, summaries
    extra_content              Google, of a message; only with a `thought_signature` in it
    tool_calls[].extra_content the same, of a call: Gemini 3 refuses the next turn without it

They are carried as the JSON that they came as (`model.RedactedThinking`): an object of such members, for a message or
for one call. A stream tells details in slices: those of one type, `index` and `id` are one detail, whose `text` and
`summary` are joined; a signature ends it. What else a slice has stands in the place of what was there, null excepted.

Source: openrouter.ai/docs, reasoning tokens ("preserving reasoning blocks": back unmodified, in their order);
ai.google.dev, OpenAI compatibility, thought signatures; what servers stream, in tests/vectors/openai-chat. 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.wire.json import ABSENT, encode, one_line, present

DETAILS, EXTRA = "reasoning_details", "extra_content"
_DETAILS, _EXTRA = DETAILS.encode(), EXTRA.encode()
_SIGNATURE = b"thought_signature"
_NULL = b"null"
_JOINED = ("text", "summary")
_WHOSE = ("type", "index", "id")
_MOST_OPEN = 8
"""How many details may be told side by side."""


class _Members(msgspec.Struct):
    reasoning_details: list[dict[str, Raw]] | None = None
    extra_content: Raw = ABSENT


_CALL = msgspec.json.Decoder(dict[str, Raw])
_MEMBERS = msgspec.json.Decoder(_Members)


def of_message(details: Raw, extra: Raw) -> str | None:
    """Return what of a message, or of a delta, its server wants back; None where that is nothing."""
    if details is ABSENT and extra is ABSENT:
        return None
    found = []
    value = present(details)
    if value is not None and value[:1] == b"[" and value[1:-1].strip():
        found.append(b'"%b":%b' % (_DETAILS, one_line(value)))
    if (value := _signed(extra)) is not None:
        found.append(b'"%b":%b' % (_EXTRA, value))
    return (b"{%b}" % b",".join(found)).decode() if found else None


def of_call(extra: Raw) -> str | None:
    """Return what of a call its server wants back; None where that is nothing."""
    value = _signed(extra)
    return encode({EXTRA: Raw(value)}).decode() if value is not None else None


def members_of_call(proof: str) -> dict[str, Raw]:
    """Return the members of a call that `of_call` found."""
    return _CALL.decode(proof)


def _signed(extra: Raw) -> bytes | None:
    value = present(extra)
    return one_line(value) if value is not None and value[:1] == b"{" and _SIGNATURE in value else None


class _Detail:
    """One detail, as far as it was told."""

    __slots__ = ("members", "texts")

    def __init__(self, slice: dict[str, Raw]) -> None:
        self.members = dict(slice)
        self.texts: dict[str, list[bytes]] = {}  # slices of JSON strings, without their quotes
        self._join(slice)

    def takes(self, slice: dict[str, Raw]) -> bool:
        """Whether a slice is more of this one."""
        for name in _WHOSE:
            mine, theirs = bytes(self.members.get(name, b"")), bytes(slice.get(name, b""))
            is_said = mine not in (b"", _NULL) and theirs not in (b"", _NULL)
            if mine != theirs and (is_said or name != "id"):
                return False
        data, more = bytes(self.members.get("data", b"")), bytes(slice.get("data", _NULL))
        if data[:1] == b'"' and more not in (data, _NULL):
            return False
        return bytes(self.members.get("signature", b""))[:1] != b'"'

    def take(self, slice: dict[str, Raw]) -> int:
        """Add a slice; return how many bytes that made more."""
        more = 0
        for name, raw in slice.items():
            if name in _JOINED or name in _WHOSE[:2] or (bytes(raw) == _NULL and name in self.members):
                continue
            if bytes(self.members.get(name, b"")) != bytes(raw):
                self.members[name] = raw
                more += len(name) + len(memoryview(raw))
        return more + self._join(slice)

    def _join(self, slice: dict[str, Raw]) -> int:
        more = 0
        for name in _JOINED:
            value = bytes(slice.get(name, b""))
            if value[:1] == b'"':
                self.members.setdefault(name, slice[name])  # its place among the members
                self.texts.setdefault(name, []).append(value[1:-1])
                more += len(value)
        return more

    def whole(self) -> dict[str, Raw]:
        texts = {name: Raw(b'"%b"' % b"".join(slices)) for name, slices in self.texts.items()}
        return {**self.members, **texts}


class Gathered:
    """The members of one message, from slices as `of_message` returns them.

    The slices of a text are alike but for what they say, so one like the last is not read again.
    """

    def __init__(self, slices: Iterable[str] = ()) -> None:
        self.size = 0  # in bytes of JSON, about
        self._before, self._behind = "", ""  # what stood around the text of the last slice; "" where it is no text
        self._latest: list[bytes] = []  # where that text went
        self._details: list[_Detail] = []
        self._extra: Raw | None = None
        for one in slices:
            self.add(one)

    def add(self, slice: str) -> None:
        """Add a slice. What is none says nothing."""
        if self._before and slice.startswith(self._before) and slice.endswith(self._behind):
            said = slice[len(self._before) : -len(self._behind)]
            if '"' not in said and said[-1:] != "\\":
                text = said.encode()
                self._latest.append(text)
                self.size += len(text)
                return
        self._before = ""
        try:
            found = _MEMBERS.decode(slice)
        except (msgspec.MsgspecError, RecursionError):
            return
        if present(found.extra_content) is not None:
            self._extra = found.extra_content
            self.size += len(memoryview(self._extra))
        under_way = self._details[: -_MOST_OPEN - 1 : -1]  # the entries of one slice are details of their own
        for one in found.reasoning_details or ():
            last = next((detail for detail in under_way if detail.takes(one)), None)
            if last is not None:
                self.size += last.take(one)
            else:
                self.size += sum(len(name) + len(memoryview(raw)) for name, raw in one.items())
                last = _Detail(one)
                self._details.append(last)
            if len(found.reasoning_details or ()) == 1 and present(found.extra_content) is None:
                self._remember(slice, one, last)

    def _remember(self, slice: str, one: dict[str, Raw], detail: _Detail) -> None:
        """Note what stands around the text of a slice of `detail`, of which nothing but that text may come again."""
        told = [name for name in _JOINED if name in one]
        if len(told) != 1 or bytes(one.get("signature", _NULL)) != _NULL or "data" in one:
            return
        text = bytes(one[told[0]]).decode()
        if text[:1] == '"' and len(text) > 2 and slice.count(text) == 1:
            self._before, _, self._behind = slice.partition(text)
            self._before, self._behind = self._before + '"', '"' + self._behind
            self._latest = detail.texts[told[0]]

    def members(self) -> dict[str, Any]:
        """Return the members, to be put into a message."""
        found: dict[str, Any] = {}
        if self._details:
            found[DETAILS] = [detail.whole() for detail in self._details]
        if self._extra is not None:
            found[EXTRA] = self._extra
        return found

    def whole(self) -> str:
        """Return all of it as one slice."""
        return encode(self.members()).decode()
