"""What a request's inputs stand behind: its instructions and its tools, hashed in canonical form (SPEC 7.4).

Agents send the same tools and the same system prompt with every request, and these are most of a young conversation. So
what was read is remembered by its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec import Raw
from xxhash import xxh3_128_digest

from arbiter._speedups import chain
from arbiter._speedups.py.chain import Led
from arbiter.inputs import INSTRUCTIONS, instructions_of
from arbiter.ledger import toolsets

MARKER = b"x-anthropic-billing-header:"
"""How Claude Code's attribution line begins. It differs between conversations and is no part of a prompt."""
TOOLS = "tools"
MAX_ENTRIES = 100_000
"""Of tools, and of inputs: as many messages as Anthropic takes. Each costs a microsecond or more."""

SHORT = 6
"""Bytes of a hash that rows keep, as 12 hexadecimal digits."""

_ABSENT = bytes(16)
NOTHING_BESIDE = _ABSENT + _ABSENT
"""The seed of a request without tools, and without instructions beside its inputs."""
BESIDE = frozenset((TOOLS, *INSTRUCTIONS))
"""Members that hold these."""
_ZERO = bytes(32)
_REMEMBERED = 512
_ATTRIBUTED = re.compile(rb'\[\{"text":"(%b(?:[^"\\]++|\\.)*+)","type":"text"\}' % re.escape(MARKER), re.DOTALL)
_LINE = re.compile(rb"(?:[^\\]++|\\[^n])*+(?:\\n)++", re.DOTALL)
_DEFAULT_TTL = "5m"
_TTL = re.compile(rb'"ttl"\s*+:\s*+"([0-9A-Za-z]{1,8})"')


class Part(NamedTuple):
    """One part of a head: the link behind the last of its entries, and the marks in them."""

    digest: bytes
    entries: int
    marks: tuple[str, ...]


class Head(NamedTuple):
    """The head of a chain. `told` is what rows tell of it: its hash, and those of its instructions and of its tools,
    None where there are none."""

    digest: bytes
    told: tuple[str, str | None, str | None]
    tools_offered: int
    marks: tuple[str, ...]


_NOTHING = Part(_ZERO, 0, ())


class Heads:
    """The heads of one worker's requests, read in any thread; two at once may read the same one."""

    def __init__(self) -> None:
        self._parts: dict[bytes, Part] = {}
        self._heads: dict[bytes, Head] = {}

    def unread_bytes(self, members: Mapping[str, Raw], seed: bytes) -> int:
        """How much of a head would have to be hashed, but for instructions among the inputs."""
        if seed == NOTHING_BESIDE:
            return 0
        tools, prompt = members.get(TOOLS), instructions_of(members)
        unread = len(memoryview(tools)) if tools is not None and b"t" + seed[:16] not in self._parts else 0
        return unread + (len(memoryview(prompt)) if prompt is not None and b"i" + seed[16:] not in self._parts else 0)

    def of(self, members: Mapping[str, Raw], seed: bytes, led: Led) -> Head | None:
        """The head of a request; `seed` is that of its members, `led` the instructions among its inputs.

        None where something of it is no JSON.
        """
        key = seed + xxh3_128_digest(b"\n".join(led.forms)) if led.forms else seed
        head = self._heads.get(key)
        if head is None:
            head = self._made(members, seed, led)
            if head is not None:
                _remember(self._heads, key, head)
        return head

    def _made(self, members: Mapping[str, Raw], seed: bytes, led: Led) -> Head | None:
        tools = self._part(b"t" + seed[:16], members.get(TOOLS), _tools)
        prompt = self._part(b"i" + seed[16:], instructions_of(members), _instructions)
        if tools is None or prompt is None:
            return None
        system, offered = prompt.digest, tools.digest
        for form in led.forms:
            system = sha256(system + _of_message(form)).digest()
        says = prompt.entries > 0 or len(led.forms) > 0
        digest = sha256(system + offered).digest()
        system_hash = system[:SHORT].hex() if says else None
        tools_hash = offered[:SHORT].hex() if tools.entries else None
        return Head(digest, (digest.hex(), system_hash, tools_hash), tools.entries, tools.marks + prompt.marks)

    def _part(self, key: bytes, raw: Raw | None, read: Callable[[memoryview], Part | None]) -> Part | None:
        if raw is None:
            return _NOTHING
        part = self._parts.get(key)
        if part is None:
            part = read(memoryview(raw))
            if part is not None:
                _remember(self._parts, key, part)
        return part


def _remember(known: dict[bytes, Any], key: bytes, value: object) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[key] = value


def seed_of(members: Mapping[str, Raw]) -> bytes:
    """What stands for the tools and the instructions beside the inputs, by their bytes: 32 bytes."""
    if BESIDE.isdisjoint(members):
        return NOTHING_BESIDE
    tools, prompt = members.get(TOOLS), instructions_of(members)
    key = xxh3_128_digest(memoryview(tools)) if tools is not None else _ABSENT
    return key + (xxh3_128_digest(memoryview(prompt)) if prompt is not None else _ABSENT)


def _tools(raw: memoryview) -> Part | None:
    if bytes(raw[:4]) == b"null":
        return _NOTHING
    folded = chain.fold(raw, 0, _ZERO, MAX_ENTRIES)
    if folded is None or not folded.is_over:
        return None
    marks = tuple(in_words("tools", places, value) for places, value in folded.marks)
    said = bytes(raw)
    count = len(toolsets.offered(said)) if toolsets.declares(said) else len(folded.ends)
    return Part(folded.links[-len(_ZERO) :] or _ZERO, count, marks)


def _instructions(raw: memoryview) -> Part | None:
    found = chain.form(raw, is_content=True)
    if found is None:
        return None
    form = without_attribution(found[0])
    marks = tuple(in_words("system", places, value) for places, value in found[1])
    if form in (b"[]", b"null"):
        return Part(_ZERO, 0, marks)
    return Part(sha256(_ZERO + form).digest(), 1, marks)


def _of_message(form: bytes) -> bytes:
    content = b'{"content":'
    if not form.startswith(content):
        return form
    return content + without_attribution(form[len(content) :])


def without_attribution(content: bytes) -> bytes:
    """The form of a prompt without the attribution line; a block that says nothing else goes as a whole."""
    block = _ATTRIBUTED.match(content)
    if block is None:
        return content
    line = _LINE.match(block[1])
    text = block[1][line.end() :] if line is not None else b""
    if text:
        return content[: block.start(1)] + text + content[block.end(1) :]
    return b"[" + content[block.end() :].removeprefix(b",")


def in_words(part: str, places: tuple[int, ...], value: bytes) -> str:
    """A cache mark in words: `message:36.0@5m` is the first block of message 36, counted from 0, for five minutes."""
    ttl = _TTL.search(value)
    lasts = ttl[1].decode() if ttl is not None else _DEFAULT_TTL if b"ephemeral" in value else ""
    where = f"{part}:{'.'.join(map(str, places))}" if places else part
    return f"{where}@{lasts}" if lasts else where
