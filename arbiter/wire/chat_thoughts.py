"""Earlier reasoning in a chat request that goes to a chat upstream: spelt as that server takes it (SPEC 4.7a).

What it takes says `openai_servers`. A message that needs no change keeps every byte; in others the text of a thought
moves, as the JSON string that it was, into the member that the server reads, or goes where it reads none. What Google
adds to messages and their calls (`extra_content`) goes where nobody knows it, and is put where Google must have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.wire import marked
from arbiter.wire.bound import Stripped
from arbiter.wire.json import encode
from arbiter.wire.marked import Cutter, Member
from arbiter.wire.openai_models import Dialect

_TEXTS = (b"reasoning_content", b"reasoning")
_DETAILS = b"reasoning_details"
_EXTRA = b"extra_content"
_BEGINS = b'"reasoning'
_ADDS = b'"extra_content"'
_CALLS = b'"tool_calls"'
_TOOL_CALLS = b"tool_calls"
_THOUGHTS = (*_TEXTS, _DETAILS)
_FOREIGN = (*_THOUGHTS, _EXTRA)
_OTHERS = {
    None: (b"reasoning",),
    "reasoning": (b"reasoning_",),
    "reasoning_content": (b'reasoning"', b"reasoning_details"),
}
"""How the names begin that others have for what a server calls so."""
_BLANK = b" \t\r\n"


def may_hold(members: Mapping[str, Raw]) -> bool:
    """Whether any of it could be in a request. False is certain."""
    told = members.get("messages")
    return told is not None and nesting.begins(memoryview(told), _BEGINS[1:], _ADDS[1:])


def respelled(members: Mapping[str, Raw], takes: Dialect, *, moved: bool) -> tuple[Stripped, int]:
    """Return the request as a server that takes `takes` gets it, and in how many messages thoughts were left out.

    `moved`: others have answered in the conversation, too; who must have reasoning with each call then gets an empty
    one where there is none.
    Errors: BadRequest where there is more of it than anybody may look through.
    """
    told = members.get("messages")
    fills = moved and takes.wants_reasoning
    if told is None or takes.spells == "the maker's":
        return Stripped(members, ()), 0
    adds_to_calls = fills or takes.unsigned is not None
    if not may_hold(members) and not (adds_to_calls and nesting.begins(memoryview(told), _CALLS[1:], _CALLS[1:])):
        return Stripped(members, ()), 0
    raw = bytes(told)
    if not marked.is_array(raw) or not _may_change(raw, takes, fills=fills):
        return Stripped(members, ()), 0
    cutter = Cutter()
    left_out = 0
    before = cutter.pieces_of(raw)
    after: list[bytes] = []
    for turn in before:
        kept = turn
        if any(word in turn for word in (_BEGINS, _ADDS, _CALLS)) and marked.is_object(turn):
            kept, is_left_out = _turn(cutter, turn, takes, fills=fills)
            left_out += is_left_out
        after.append(kept)
    if after == before:
        return Stripped(members, ()), 0
    return Stripped({**members, "messages": Raw(marked.joined(raw, after))}, ("$.messages",)), left_out


def _may_change(raw: bytes, takes: Dialect, *, fills: bool) -> bool:
    """Whether a message may have to change. False is certain; it is the answer for nearly every request."""
    words = [*_OTHERS[takes.reasoning]]
    if takes.spells == "its own" and not takes.signs:
        words.append(_EXTRA)
    if fills or takes.unsigned is not None:
        words.append(_TOOL_CALLS)
    view = memoryview(raw)
    return any(nesting.begins(view, one, two) for one, two in zip_longest(words[::2], words[1::2], fillvalue=words[0]))


def _turn(cutter: Cutter, turn: bytes, takes: Dialect, *, fills: bool) -> tuple[bytes, bool]:
    """Return a message, and whether something was thought in it that it no longer tells."""
    members = cutter.members_of(turn)
    before = [one.text for one in members]
    values = {one.name: one.value.strip(_BLANK) for one in members}
    if marked.word(values.get(b"role", b"")) != "assistant":
        return turn, False
    name = takes.reasoning.encode() if takes.reasoning is not None else None
    is_alone = takes.spells == "its own"
    must_have = fills and values.get(_TOOL_CALLS, b"null") not in (b"null", b"[]")
    value = _value(cutter, values, name, is_wanted=is_alone or must_have, must_have=must_have) if name else None
    if is_alone:
        members = [_calls(cutter, one, takes) if one.name == _TOOL_CALLS else one for one in members]
    foreign = _FOREIGN if not takes.signs else _THOUGHTS
    dropped = [one for one in members if is_alone and one.name in foreign and one.name != name]
    kept: list[bytes] = []
    for one in members:
        # A new member stands where the first of those stood that it takes the place of.
        if one.name == name or (one in dropped and name not in values):
            if value is not None and name is not None:
                kept.append(one.text if (one.name, values[one.name]) == (name, value) else _spelled(name, value))
            value = None
        elif one not in dropped:
            kept.append(one.text)
    if value is not None and name is not None:
        kept.append(_spelled(name, value))
    if kept == before:
        return turn, False
    return marked.joined(turn, kept), name is None and any(
        _is_thought(values[one.name]) for one in dropped if one.name != _EXTRA
    )


def _value(
    cutter: Cutter, values: Mapping[bytes, bytes], name: bytes, *, is_wanted: bool, must_have: bool
) -> bytes | None:
    """Return what the member `name` of a message holds, as JSON; None where there is to be none."""
    own = values.get(name)
    if not is_wanted or _is_text(own):
        return own
    text = next((values[one] for one in _TEXTS if _is_text(values.get(one))), None)
    text = text or _told(cutter, values.get(_DETAILS, b""))
    if text is not None:
        return text
    return b'""' if must_have and own in (None, b"null") else own


def _calls(cutter: Cutter, calls: Member, takes: Dialect) -> Member:
    """Return a message's calls without what Google adds to each, or with it where they are Google's."""
    is_signed = _ADDS in calls.value
    if is_signed == takes.signs or not marked.is_array(calls.value):
        return calls
    built = [_plain(cutter, one) if is_signed else one for one in cutter.pieces_of(calls.value)]
    if takes.unsigned is not None and built and marked.is_object(built[0]):
        inside = built[0].rstrip(_BLANK)[:-1].rstrip(_BLANK)
        built[0] = b"%b,%b}" % (inside, takes.unsigned.encode())
    return calls.with_value(marked.joined(calls.value, built))


def _plain(cutter: Cutter, call: bytes) -> bytes:
    if _ADDS not in call or not marked.is_object(call):
        return call
    return marked.joined(call, [one.text for one in cutter.members_of(call) if one.name != _EXTRA])


def _is_text(value: bytes | None) -> bool:
    return value is not None and value[:1] == b'"' and value != b'""'


def _is_thought(value: bytes) -> bool:
    return value not in (b"null", b'""', b"[]")


def _spelled(name: bytes, value: bytes) -> bytes:
    return b'"%b":%b' % (name, value)


class _Detail(msgspec.Struct):
    text: str | None = None
    summary: str | None = None


_DETAIL = msgspec.json.Decoder(_Detail)


def _told(cutter: Cutter, details: bytes) -> bytes | None:
    """Return the text of OpenRouter's details as a JSON string, None where none of them has any."""
    if not marked.is_array(details):
        return None
    texts: list[str] = []
    for one in cutter.pieces_of(details):
        try:
            detail = _DETAIL.decode(one)
        except (msgspec.MsgspecError, RecursionError):
            continue
        texts.append(detail.text or detail.summary or "")
    text = "".join(texts)
    return encode(text) if text else None
