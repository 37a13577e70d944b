"""The native lane: the client's format is the upstream's, so bytes that need no change are not changed.

A request is opened one level deep and spliced: members that must change are encoded anew, every other member, known
or not, keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from arbiter import inputs
from arbiter._speedups import nesting
from arbiter.errors import BadRequest
from arbiter.model import Target
from arbiter.pieces import LEAST_BYTES, Body, Pieces
from arbiter.wire import gemini_names, native_marks
from arbiter.wire.attribution import MARKER
from arbiter.wire.gemini_names import Addressed
from arbiter.wire.json import around

CHAT, MESSAGES, RESPONSES, GEMINI = "openai-chat", "anthropic-messages", "openai-responses", "google-gemini"
GEMINI_EMBEDDINGS = "google-embeddings"

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_str = msgspec.json.Decoder(str).decode
_decode_bool = msgspec.json.Decoder(bool).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

_MAX_MEMBERS = 1024  # SPEC 14.1's "no unbounded": each becomes two objects here; the largest real request has some 40
_BLANK = b" \t\r\n"


class _TextBlock(msgspec.Struct):
    text: str


_decode_text_block = msgspec.json.Decoder(_TextBlock).decode


class Written(msgspec.Struct, frozen=True):
    """Members, and the body in which they came."""

    members: dict[str, Raw]
    body: bytes

    def is_of(self, members: dict[str, Raw]) -> bool:
        """Whether `members`, written anew, would be this body: each of them once, and no blanks around."""
        if members is not self.members and members != self.members:  # nearly all are the same objects
            return False
        return len(self.body) == nesting.length(members)


class Opened(msgspec.Struct, frozen=True):
    """A request body, opened one level deep."""

    members: dict[str, Raw]
    model: str
    stream: bool
    previous: Raw | None = None
    """The answer that it goes on from, where `members` hold all of the conversation in its place."""
    edits: tuple[str, ...] = ()
    """JSON paths at which `members` hold what was captured earlier, in the place of what only named it."""
    written: Written | None = None
    """How `members` came, or others that these were made of."""

    @property
    def told(self) -> dict[str, Raw]:
        """The members as an answer repeats them."""
        return self.members if self.previous is None else {**self.members, "previous_response_id": self.previous}


def open_body(body: bytes, depth: int = 200, addressed: Addressed | None = None) -> Opened:
    """Open a request body; `depth` is how deeply it may be nested.

    Shapes: what a format says in the path, `addressed`, becomes members in front of the body's own.
    Errors: BadRequest naming the member at fault; the value is never repeated.
    """
    members = nesting.raws(body, depth, _MAX_MEMBERS)
    if members is not None:
        written = Written(members, body)
    else:
        members, written = _looked_through(body, depth), None
    if addressed is not None:
        _check_name(addressed.model)
        told = {"model": Raw(_encode(addressed.model)), **({"stream": Raw(b"true")} if addressed.stream else {})}
        return Opened({**told, **_without(members, *_ADDRESSED)}, addressed.model, addressed.stream)
    if "model" not in members:
        raise BadRequest("`model` is missing", param="model")
    model: str = _member(members, "model", _decode_str, "a string")
    if not model:
        raise BadRequest("`model` is empty", param="model")
    if ".." in model:
        _check_name(model)
    stream = members.get("stream")
    streams = stream is not None and bytes(stream) != b"null"
    is_stream = streams and _member(members, "stream", _decode_bool, "true or false")
    return Opened(members, model, is_stream, None, (), written)


_ADDRESSED = ("model", "stream")
"""Members that stand for what a path says, and are none of the body's."""


def _looked_through(body: bytes, depth: int) -> dict[str, Raw]:
    """The members of a body that is not opened in one look: what is wrong with it, if anything is.

    Errors: BadRequest.
    """
    bad = nesting.not_utf8(body)
    if bad >= 0:
        raise BadRequest(f"the request body is not valid UTF-8 (byte {bad})")
    match nesting.fault(body, depth, _MAX_MEMBERS):
        case nesting.DEEP:
            raise BadRequest("the request body is nested too deeply")
        case nesting.WIDE:
            raise BadRequest(f"the request body has more than {_MAX_MEMBERS:,} members at its top level")
    try:
        return _members(body)
    except RecursionError:
        raise BadRequest("the request body is nested too deeply") from None
    except msgspec.ValidationError:
        raise BadRequest("the request body must be a JSON object") from None
    except msgspec.DecodeError as error:
        raise BadRequest(
            f"the request body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}"
        ) from None


def _check_name(model: str) -> None:
    # Some providers have the model in the path, and a server that goes up there answers for a model, or for something
    # else, that nobody let this client ask for. An operator whose server has such a name declares it by another.
    if ".." in model.split("/"):
        raise BadRequest("`model` holds `..` between slashes, which names no model", param="model")


def _without(members: dict[str, Raw], *names: str) -> dict[str, Raw]:
    return {name: raw for name, raw in members.items() if name not in names}


def _members(text: bytes) -> dict[str, Raw]:
    """The members of a JSON object, undecoded.

    Errors: msgspec's, for what is no object or no JSON; BadRequest for a name that is no text.
    """
    try:
        return _decode_members(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # The decoder refuses the escape of half a surrogate pair in any string, also in those it passes over; JSON does
        # not, and agents do cut text in the middle of an emoji. Nobody here reads those strings: they may pass.
        readable = nesting.whole(text)
        if readable is text:
            raise
    _decode_members(readable)
    members: dict[str, Raw] = {}
    start = readable.index(b"{") + 1
    for end in nesting.cuts(readable, _MAX_MEMBERS):
        ((name, value),) = _decode_members(b"{%b}" % readable[start:end]).items()
        member = text[start:end].rstrip(_BLANK)
        colon = len(member) - len(memoryview(value))
        if member[:colon] != readable[start : start + colon]:
            raise BadRequest("the name of a member holds half of a surrogate pair")
        members[name] = Raw(member[colon:])
        start = end + 1
    return members


def _member(members: dict[str, Raw], name: str, decode: Any, expected: str) -> Any:
    try:
        return decode(members[name])
    except msgspec.ValidationError:
        raise BadRequest(f"`{name}` must be {expected}", param=name) from None
    except msgspec.DecodeError:  # the body is JSON: only this is left
        raise BadRequest(f"`{name}` holds half of a surrogate pair", param=name) from None


class Spliced(msgspec.Struct, frozen=True):
    """What goes upstream, and what was done to it."""

    body: Body
    changed: tuple[str, ...]  # JSON paths
    asked_usage: bool  # we asked for the usage chunk, the client did not


def fidelity(changed: tuple[str, ...]) -> str:
    """The value of `X-Arbiter-Fidelity` (SPEC 2.1) for a request that was changed at these JSON paths."""
    if not changed:
        return "verbatim"
    return "model-only" if changed == ("$.model",) else ",".join(changed)


class Changing(Protocol):
    """What a provider wants otherwise in every body."""

    def applied(self, members: Mapping[str, Raw]) -> tuple[Mapping[str, Raw], tuple[str, ...]]: ...


def splice(
    opened: Opened, wire: str, model: str, target: Target, *, asks_usage: bool, changes: Changing | None = None
) -> Spliced:
    """The upstream body for `opened`: the rung's `model`; usage asked for, where a stream is to tell it;
    the attribution line dropped and cache marks replaced where `target` says so; then what `changes` wants otherwise.

    The body is written anew from its members, even when nothing changes: of duplicate keys only the last one, the one
    that routing saw, may go out. What is written so already is not copied, nor is a long conversation.
    """
    members, written = opened.members, opened.written
    changed: list[str] = []
    asked_usage = False
    if model != opened.model:
        members = {**members, "model": Raw(_encode(model))}
        changed.append("$.model")
    if wire == CHAT and asks_usage:
        options = _with_usage(members.get("stream_options"))
        if options is not None:
            members = {**members, "stream_options": options}
            changed.append("$.stream_options.include_usage")
            asked_usage = True
    elif wire in (GEMINI, GEMINI_EMBEDDINGS):
        members = _without(members, *_ADDRESSED)
        named = gemini_names.of_model(members, model)
        changed += [f"$.{name}.model" for name, raw in named.items() if raw is not members[name]]
        members = dict(named)
    elif wire == MESSAGES:
        system = _without_attribution(members.get("system")) if target.drop_attribution else None
        if system is not None:
            members = {**members, "system": system}
            changed.append("$.system[0]")
            if bytes(system) == b"[]":
                members = {name: value for name, value in members.items() if name != "system"}
        settled, replaced = native_marks.settled(members, target)
        members = dict(settled)
        changed += [f"$.{name}" for name in replaced]
    if changes is not None:
        taken, names = changes.applied(members)
        members = dict(taken)
        changed += [path for name in names if (path := f"$.{name}") not in changed]
    body = written.body if written is not None and written.is_of(members) else _written(members)
    return Spliced(body, tuple(changed), asked_usage)


def _written(members: Mapping[str, Raw]) -> Body:
    """An object of these members. A long conversation stays where it is."""
    name = inputs.name_in(members)
    if name is None or len(memoryview(members[name])) < LEAST_BYTES:
        return _encode(members)
    before, after = around(members, name)
    return Pieces(before, memoryview(members[name]), after)


def _with_usage(options: Raw | None) -> Raw | None:
    """`stream_options` with `include_usage: true`, or None where it is already so."""
    if options is None or bytes(options) == b"null":
        return Raw(b'{"include_usage":true}')
    try:
        if nesting.fault(bytes(options), len(bytes(options)), _MAX_MEMBERS) == nesting.WIDE:
            raise BadRequest(f"`stream_options` has more than {_MAX_MEMBERS:,} members", param="stream_options")
        members = _members(bytes(options))
    except (msgspec.MsgspecError, RecursionError):
        raise BadRequest("`stream_options` must be an object", param="stream_options") from None
    if bytes(members.get("include_usage", b"")) == b"true":
        return None
    return Raw(_encode({**members, "include_usage": Raw(b"true")}))


def _without_attribution(system: Raw | None) -> Raw | None:
    """The `system` array without Claude Code's first entry, or None where there is no such entry."""
    # The cheap look first: the line stands within the first hundred bytes or not at all.
    if system is None or MARKER.encode() not in bytes(memoryview(system)[:256]):
        return None
    blocks = bytes(system)
    if blocks[:1] != b"[":
        return None
    # Only the first entry is looked at; an array may have millions.
    (end,) = nesting.cuts(blocks, 1)
    try:
        text = _decode_text_block(blocks[1:end]).text
    except (msgspec.MsgspecError, RecursionError):
        return None
    if not text.startswith(MARKER):
        return None
    return Raw(b"[" + blocks[end + 1 : -1].strip(_BLANK) + b"]")
