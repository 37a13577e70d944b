"""Takes sealed reasoning out of a request to an upstream of the client's own format (SPEC 6.6).

An item was made when an upstream of another format answered; one of the client's own has no use for it, and refuses
what it cannot read. What stood beside an item goes with it: thinking without a signature, reasoning items of ours that
hold no more than a summary. Every other byte is as it came.

Where an open tool loop loses its thoughts, Anthropic would refuse to think on with a budget: it wants each call to
follow a thought of its own. So such a request goes without thinking, and without the edits that need it. (Adaptive
thinking does not ask for that, and stays on.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.wire import bound, bound_responses, gemini_sealed, marked, signatures
from arbiter.wire.bound import Stripped
from arbiter.wire.gemini_models import abilities_of
from arbiter.wire.json import encode
from arbiter.wire.marked import Cutter
from arbiter.wire.native import CHAT, GEMINI, MESSAGES, RESPONSES
from arbiter.wire.openai_models import dialect
from arbiter.wire.restored import HandedAlong
from arbiter.wire.vault import MARK, is_sealed

_BLANK = b" \t\r\n"
_CONVERSATIONS = {CHAT: "messages", MESSAGES: "messages", RESPONSES: "input", GEMINI: "contents"}
_WORDS = (MARK, signatures.GEMINI.encode())
_BEGINNINGS = {MESSAGES: _WORDS, GEMINI: (gemini_sealed.MARK, gemini_sealed.MARK)}
"""What a string with something for this module to look at begins with, by format; MARK in those that are not here."""
_SIGNATURES = (b"thoughtSignature", b"thought_signature")
_THINKING_OFF = Raw(b'{"type":"disabled"}')
_CLEARS_THINKING = b"clear_thinking"


def may_hold(format: str, members: Mapping[str, Raw]) -> bool:
    """Whether there could be an item in a request. False is certain; a text that quotes one is no reason to look."""
    raw = members.get(_CONVERSATIONS.get(format, ""))
    if raw is None:
        return False
    # Within a text, the quote is escaped.
    return nesting.begins(memoryview(raw), *_BEGINNINGS.get(format, (MARK, MARK)))


def unsealed(format: str, members: Mapping[str, Raw], handed: HandedAlong, model: str) -> Stripped:
    """Return the request for an upstream of its own format, which is asked for `model`.

    Errors: BadRequest where there is more of it than anybody may look through.
    """
    if format == RESPONSES:
        return _changed(members, "input", lambda cutter, place, item: None if _is_item(item) else item)
    if format == CHAT:
        texts = handed.texts() if dialect(model).wants_reasoning else None
        return _changed(members, "messages", lambda cutter, place, turn: _chat(cutter, turn, place, texts))
    if format == GEMINI:
        elsewhere = abilities_of(model).wants_signatures
        return _changed(members, "contents", lambda cutter, place, turn: _gemini(cutter, turn, elsewhere=elsewhere))
    assert format == MESSAGES, "no other format is translated"
    stripped = _changed(members, "messages", lambda cutter, place, turn: _messages(cutter, turn))
    return _thinking_off(stripped, members) if bound.is_open(members, _WORDS) else stripped


def _changed(members: Mapping[str, Raw], name: str, change: Callable[[Cutter, int, bytes], bytes | None]) -> Stripped:
    raw = bytes(members[name])
    if not marked.is_array(raw):
        return Stripped(members, ())
    cutter = Cutter()
    before = cutter.pieces_of(raw)
    after = [change(cutter, place, piece) for place, piece in enumerate(before)]
    if after == before:
        return Stripped(members, ())
    kept = [piece for piece in after if piece is not None]
    return Stripped({**members, name: Raw(marked.joined(raw, kept))}, (f"$.{name}",))


class _Item(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    encrypted_content: str | None = None


_ITEM = msgspec.json.Decoder(_Item)


def _is_item(raw: bytes) -> bool:
    if b'"reasoning"' not in raw:
        return False
    try:
        item = _ITEM.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return bound_responses.is_own(item.type, item.id, item.encrypted_content)


def _chat(cutter: Cutter, turn: bytes, place: int, texts: Mapping[int, str] | None) -> bytes:
    """Return a message without items; with their text where the upstream wants it back and the client left it out."""
    if MARK not in turn or not marked.is_object(turn):
        return turn
    kept: list[bytes] = []
    names = set()
    found = False
    for member in cutter.members_of(turn):
        if member.name == b"reasoning_details" and marked.is_array(member.value):
            details = cutter.pieces_of(member.value)
            others = [one for one in details if not is_sealed(_word(cutter, one, b"data"))]
            found = found or len(others) != len(details)
            if others:
                kept.append(member.with_value(marked.joined(member.value, others)).text)
            continue
        names.add(member.name)
        kept.append(member.text)
    if found and texts is not None and b"reasoning_content" not in names:
        kept.append(b'"reasoning_content":%b' % encode(texts.get(place, "")))
    return marked.joined(turn, kept) if found else turn


def _messages(cutter: Cutter, turn: bytes) -> bytes | None:
    """Return a message without items and what others thought; None where nothing is left of it."""
    if not any(word in turn for word in _WORDS) or not marked.is_object(turn):
        return turn
    members = cutter.members_of(turn)
    after: list[bytes] = []
    for member in members:
        kept = member
        if member.name == b"content" and marked.is_array(member.value):
            blocks = cutter.pieces_of(member.value)
            if not any(_is_ours(cutter, block) for block in blocks):
                return turn
            rest = [block for block in blocks if not _is_ours(cutter, block) and not _is_unsigned(cutter, block)]
            if not rest:
                return None
            kept = member.with_value(marked.joined(member.value, rest))
        after.append(kept.text)
    return marked.joined(turn, after)


def _gemini(cutter: Cutter, turn: bytes, *, elsewhere: bool) -> bytes:
    """Return a content without items; `elsewhere`: its first call then says that it was made elsewhere."""
    if gemini_sealed.MARK not in turn or not marked.is_object(turn):
        return turn
    after: list[bytes] = []
    for member in cutter.members_of(turn):
        kept = member
        if member.name == b"parts" and marked.is_array(member.value):
            is_first, parts = True, []
            for part in cutter.pieces_of(member.value):
                is_call = b'"functionCall"' in part or b'"function_call"' in part
                parts.append(_part(cutter, part, elsewhere=elsewhere and is_call and is_first))
                is_first = is_first and not is_call
            said = [part for part in parts if part is not None]
            kept = member.with_value(marked.joined(member.value, said or [b'{"text":""}']))
        after.append(kept.text)
    return marked.joined(turn, after)


def _part(cutter: Cutter, part: bytes, *, elsewhere: bool) -> bytes | None:
    """Return a part without the item that it bears; None where there is nothing else."""
    if gemini_sealed.MARK not in part or not marked.is_object(part):
        return part
    kept: list[bytes] = []
    texts: list[bytes] = []
    for member in cutter.members_of(part):
        value = member.value.strip(_BLANK)
        if member.name in _SIGNATURES and (marked.word(value) or "").startswith(gemini_sealed.MARK.decode()):
            if elsewhere:
                kept.append(member.with_value(b'"%b"' % signatures.MADE_ELSEWHERE.encode()).text)
            continue
        kept.append(member.text)
        texts.append(value if member.name == b"text" else b"")
    return None if texts == [b'""'] else marked.joined(part, kept)


def _is_ours(cutter: Cutter, block: bytes) -> bool:
    """Whether a block is an item, or thinking that bears a name of ours in a signature's place."""
    if not any(word in block for word in _WORDS):
        return False
    kind = _word(cutter, block, b"type")
    if kind == "redacted_thinking":
        return is_sealed(_word(cutter, block, b"data"))
    signature = _word(cutter, block, b"signature") if kind == "thinking" else None
    return bool(signature) and not signatures.is_anthropics(signature)


def _is_unsigned(cutter: Cutter, block: bytes) -> bool:
    if b'"thinking"' not in block or _word(cutter, block, b"type") != "thinking":
        return False
    return not _word(cutter, block, b"signature")


def _word(cutter: Cutter, block: bytes, name: bytes) -> str | None:
    if not marked.is_object(block):
        return None
    return next((marked.word(one.value.strip(_BLANK)) for one in cutter.members_of(block) if one.name == name), None)


class _Switch(msgspec.Struct):
    type: str | None = None


_SWITCH = msgspec.json.Decoder(_Switch)


def _thinking_off(stripped: Stripped, members: Mapping[str, Raw]) -> Stripped:
    try:
        switch = _SWITCH.decode(members.get("thinking", Raw(b"{}")))
    except msgspec.MsgspecError:
        return stripped
    if switch.type != "enabled":
        return stripped
    changed = dict(stripped.members)
    changed["thinking"] = _THINKING_OFF
    paths = (*stripped.changed, "$.thinking")
    if _CLEARS_THINKING in bytes(changed.get("context_management", b"")):
        del changed["context_management"]
        paths = (*paths, "$.context_management")
    return Stripped(changed, paths)
