"""Which conversation a request goes on with, for the sake of caches: the slot of its pin (SPEC 5.7).

Other than a session's identity this may be guessed: a wrong guess costs a cache, and no book is kept by it. A slot is
made of who asks, of a key, and of the prompt family (the system prompt), so that titles and sub-agents, which have
another prompt under the same key, leave the main thread's pin alone. docs/sessions.md lists where keys come from.

What is read of a conversation is its beginning, the *opener*: the system prompt, and the first turn of the user's that
has text. It is read in canonical form: what differs between the turns of one conversation is no part of it (JSON's
spelling, cache marks, blocks or bare strings, the attribution line, reminders put in by the client). What the history
behind it holds is never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw
from xxhash import xxh3_128_digest

from arbiter._speedups import nesting
from arbiter.config.snapshot import SessionAffinity
from arbiter.sessions.signals import AGENTS, Fields, Members, body_value, is_well_formed

VERSION = b"1"
"""Of how slots are made. Another version loses every pin: it wants a note in docs/changes."""

MIN_CHARS = 16
"""An opener of fewer characters is no conversation's own."""

PROMPTS = {
    "anthropic-messages": ("system",),
    "openai-responses": ("instructions",),
    "google-gemini": ("systemInstruction", "system_instruction"),
}
"""The formats whose system prompt stands beside the messages, and under which names."""
CONVERSATIONS = {"openai-responses": "input", "google-gemini": "contents"}
"""Where a conversation stands, where that is not `messages`."""
BODY_KEYS = ("prompt_cache_key", "session_id")

ATTRIBUTION = "x-anthropic-billing-header:"
"""How Claude Code's attribution line begins: it differs between the requests of one conversation."""
REMINDERS = ("system-reminder", "environment_context", "environment_details", "user_instructions")
"""Elements that agents put into the user's turn, and that are none of the user's words."""

_TAGS = tuple((f"<{name}>", f"</{name}>") for name in REMINDERS)

_SPELLINGS = tuple(dict.fromkeys(header for agent in AGENTS for header in (*agent.headers, *agent.generic)))
_ANY_SPELLING = frozenset(_SPELLINGS)

_FIRST_BYTES, _MOST_BYTES = 16 << 10, 4 << 20
_FIRST_TURNS, _MOST_TURNS = 2, 128
"""How much of a history the opener is looked for in: little at first, then more, and no more than the second."""
_MOST_BLOCKS = 256
_MOST_REMINDERS = 256
"""Of one kind in one text. Agents put in a few; what somebody else writes is read as it stands."""
_REMEMBERED = 4096


class Slot(msgspec.Struct, frozen=True, gc=False):
    """`key` is 16 bytes; `source` says in words where it came from.

    `opener` is the hash of the user's first text, when the conversation is met for the first time and the text is long
    enough to be its own; else empty.
    """

    key: bytes
    source: str
    opener: bytes = b""


class _Said(msgspec.Struct, frozen=True, gc=False):
    """One message's text, canonical: its hash and its length. `role` is "system", "user" or "" (anybody else)."""

    role: str
    digest: bytes = b""
    chars: int = 0


_SILENT_USER = _Said("user")


class _Opener(msgspec.Struct, frozen=True, gc=False):
    """`family` is the hash of the system prompt, `user` that of the user's first text (empty where there is none)."""

    family: bytes
    user: bytes
    chars: int
    user_chars: int


class _Message(msgspec.Struct):
    role: str = ""
    content: Raw = Raw()
    parts: Raw = Raw()  # of Gemini, in place of `content`

    @property
    def said(self) -> bytes:
        return bytes(self.content) or bytes(self.parts)

    @property
    def speaker(self) -> str:
        return self.role or ("user" if bytes(self.parts) else "")


class _Block(msgspec.Struct):
    """`type` is empty where a format has no word for it: Gemini's text is what has `text`, and no `thought`."""

    type: str = ""
    text: str = ""
    thought: bool = False


_decode_message = msgspec.json.Decoder(_Message).decode
_decode_block = msgspec.json.Decoder(_Block).decode
_decode_str = msgspec.json.Decoder(str).decode

_ROLES = {"system": "system", "developer": "system", "user": "user"}
_NO_FAMILY = bytes(16)


class Affinity:
    """The slots of one configuration. What was read is remembered: a long prompt is decoded once, and not per turn."""

    def __init__(self, settings: SessionAffinity) -> None:
        self._settings = settings
        self._read: dict[bytes, _Said] = {}
        self._read_before: dict[bytes, _Said] = {}
        self._slots: dict[tuple[bytes | None, tuple[bytes, str, str] | None, str | None], Slot] = {}

    def pins(self, kind: str | None) -> bool:
        """Whether a request of this kind pins its conversation (`session_affinity.no_pin`)."""
        return kind not in self._settings.no_pin

    def slot(self, wire: str, members: Members, fields: Fields, session: str | None, client: str | None) -> Slot | None:
        """The slot of a request's conversation; None where nothing tells one from another, so that it is never pinned.

        Shapes: `wire` is the format's name, `session` the identity of `sessions.identity`, `client` who asks, None for
        the unattributed. Malformed values are passed over, malformed messages have no text.
        """
        found = self._key(members, fields, session)
        system = None
        for name in PROMPTS.get(wire, ()):
            if name in members:
                system = members[name]
                break
        messages = members.get(CONVERSATIONS.get(wire, "messages"))
        begins = _beginning(system, messages)
        # What begins with these bytes, and has that key, goes on with what went on with them before.
        spelt = (begins, found, client)
        known = self._slots.get(spelt) if begins is not None else None
        if known is not None:
            return known
        opener, turns = self._opener(system, messages)
        if found is None:
            if not opener.user or opener.chars < MIN_CHARS:
                return None
            kind, key, source = b"opener", opener.user, "opener"
        else:
            kind, value, source = found
            key = value.encode()
        who = b"" if client is None else b"=" + client.encode("utf-8", "surrogatepass")
        # A key is visible ASCII or 16 bytes, a family 16 bytes: no two slots are spelled alike.
        slot = Slot(xxh3_128_digest(b"\0".join((VERSION, kind, key, opener.family, who))), source)
        if begins is not None and turns <= _FIRST_TURNS:
            if len(self._slots) >= _REMEMBERED:
                self._slots.clear()
            self._slots[spelt] = slot
        return Slot(slot.key, source, opener.user) if opener.user_chars >= MIN_CHARS else slot

    def named(self, messages: Raw | None) -> bytes:
        """The hash of the text that a request for a title is about: what follows its own words, as `Slot.opener` has
        the conversation's; empty where it is too short to be one's own."""
        follows = False
        for entry in entries(messages):
            parts = users_words(entry)
            if parts is None:
                continue
            text = "\n".join(parts if follows else parts[1:])
            if text:
                return xxh3_128_digest(text.encode()) if len(text) >= MIN_CHARS else b""
            follows = True
        return b""

    def _key(self, members: Members, fields: Fields, session: str | None) -> tuple[bytes, str, str] | None:
        """(kind, key, source), in the order of SPEC 5.7."""
        value = fields.get(header := self._settings.header)
        if value is not None and is_well_formed(value):
            return b"header", value, f"header {header}"
        if session is not None:
            return b"session", session, "session"
        for name in BODY_KEYS:
            if name in members and (value := body_value(members, name)) is not None and is_well_formed(value):
                return b"body", value, f"body {name}"
        if not _ANY_SPELLING.isdisjoint(fields):
            for name in _SPELLINGS:
                if (value := fields.get(name)) is not None and is_well_formed(value):
                    return b"spelling", value, f"header {name}"
        return None

    def _opener(self, prompt: Raw | None, messages: Raw | None) -> tuple[_Opener, int]:
        """The opener, and how many of the messages decide it; more than there may be where all that follow might."""
        family, chars = b"", 0
        user = _SILENT_USER
        if prompt is not None:
            # As a message of its own, so that a prompt is read in one way wherever it stands.
            said = self._said(b'{"role":"system","content":%b}' % bytes(prompt))
            family, chars = said.digest, said.chars
        leads = True  # system messages are the prompt as long as they do
        turns = 0
        for entry in entries(messages):
            said = self._said(entry)
            turns += 1
            if said.role != "system":
                leads = False
                if said.role == "user" and said.chars:
                    user = said
                    break
            elif leads:
                family += said.digest
                chars += said.chars
        else:
            turns = _MOST_TURNS + 1
        if len(family) > 16:
            family = xxh3_128_digest(family)
        return _Opener(family or _NO_FAMILY, user.digest, chars + user.chars, user.chars), turns

    def _said(self, entry: bytes) -> _Said:
        # Whoever makes two messages of one hash moves pins, and gets at nothing: a slot holds the client's name.
        key = xxh3_128_digest(entry)
        said = self._read.get(key)
        if said is None:
            said = self._read_before.get(key) or _said(entry)
            # What was not asked for during a whole generation is forgotten.
            if len(self._read) >= _REMEMBERED:
                self._read, self._read_before = {}, self._read
            self._read[key] = said
        return said


def _beginning(system: Raw | None, messages: Raw | None) -> bytes | None:
    """A hash of the bytes in which the system prompt and the first turns stand; None where there are fewer turns."""
    if messages is None:
        return None
    head = nesting.beginning(messages, _FIRST_TURNS, _FIRST_BYTES)
    if head is None:
        return None
    begins: bytes = xxh3_128_digest(head)
    return begins if system is None else begins + xxh3_128_digest(memoryview(system))


def entries(messages: Raw | None) -> Iterator[bytes]:
    """The messages of a request, undecoded; no more of it is looked at than is asked for."""
    if messages is None:
        return
    view = memoryview(messages)
    if bytes(view[:1]) == b'"':  # of Responses: one message of the user's
        yield b'{"role":"user","content":%b}' % bytes(view)
        return
    reach, turns = _FIRST_BYTES, _FIRST_TURNS
    done, start = 0, 1
    while reach <= _MOST_BYTES and turns <= _MOST_TURNS:
        head = bytes(view[:reach])
        if head[:1] != b"[":
            return
        ends = nesting.cuts(head, turns)
        for end in ends[done:]:
            yield head[start:end]
            start = end + 1
        done = len(ends)
        if done == turns:
            turns *= 4
        elif reach < len(view):
            reach *= 4
        else:
            return


def users_words(entry: bytes) -> list[str] | None:
    """The texts of a message of the user's, canonical; None for what is none."""
    message = _decoded(_decode_message, entry)
    if message is None or message.speaker != "user":
        return None
    return [part for part in map(_canonical, _texts(message.said)) if part]


def _said(entry: bytes) -> _Said:
    """What one message says, canonical. A message that is none is nobody's."""
    message = _decoded(_decode_message, entry)
    if message is None or (role := _ROLES.get(message.speaker)) is None:
        return _Said("")
    parts = list(_texts(message.said))
    if role == "system" and parts and parts[0].startswith(ATTRIBUTION):
        parts[0] = parts[0].partition("\n")[2]
    text = "\n".join([part for part in map(_canonical, parts) if part])
    return _Said(role, xxh3_128_digest(text.encode()), len(text)) if text else _Said(role)


def _texts(content: bytes) -> Iterator[str]:
    """The texts of a message's content: a string, or the text blocks of an array."""
    if content[:1] == b'"':
        text = _decoded(_decode_str, content)
        if text is not None:
            yield text
    elif content[:1] == b"[":
        start = 1
        for end in nesting.cuts(content, _MOST_BLOCKS):
            block = _decoded(_decode_block, content[start:end])
            start = end + 1
            if block is not None and block.type in ("text", "input_text", "") and not block.thought:
                yield block.text
    elif content[:1] == b"{":  # Gemini's instructions: a content of their own
        message = _decoded(_decode_message, content)
        if message is not None and bytes(message.parts)[:1] == b"[":
            yield from _texts(bytes(message.parts))


def _canonical(text: str) -> str:
    """`text` without what the client put into it, and without the white space around."""
    for opening, closing in _TAGS if "<" in text else ():
        kept: list[str] = []
        at = 0
        while len(kept) < _MOST_REMINDERS and (start := text.find(opening, at)) >= 0:
            end = text.find(closing, start)
            if end < 0:
                break
            kept.append(text[at:start])
            at = end + len(closing)
        if kept:
            text = "".join((*kept, text[at:]))
    return text.strip()


def _decoded(decode: Any, raw: bytes) -> Any:
    """What `decode` makes of it; None where it is something else. Half a surrogate pair is no reason to stop."""
    try:
        return decode(raw)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return decode(nesting.whole(raw))
    except (msgspec.MsgspecError, RecursionError):
        return None
