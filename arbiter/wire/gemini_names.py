"""Names in Gemini: members in both spellings, of functions what Google takes, and what a path says.

The REST API reads JSON as protocol buffers do: `systemInstruction` and `system_instruction` are one member. SDKs write
the first, people and older examples the second. `camel` makes one of the two; what is not spelled with an underscore,
which is nearly everything, keeps its bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import Request, Tool
from arbiter.wire import toolbox
from arbiter.wire.disguises import Disguises
from arbiter.wire.json import encode

Shape = Mapping[str, object]
"""The members of an object that have members themselves, by their names; every other one is a leaf."""

MAX_NAME = 64

_BLOB: Shape = {}
_PART: Shape = {
    "inlineData": _BLOB,
    "fileData": _BLOB,
    "functionCall": _BLOB,
    "functionResponse": {"parts": {"inlineData": _BLOB, "fileData": _BLOB}},
}
_CONTENT: Shape = {"parts": _PART}
REQUEST: Shape = {
    "contents": _CONTENT,
    "systemInstruction": _CONTENT,
    "tools": {"functionDeclarations": _BLOB},
    "toolConfig": {"functionCallingConfig": _BLOB},
    "generationConfig": {"thinkingConfig": _BLOB},
}
ANSWER: Shape = {"candidates": {"content": _CONTENT}, "promptFeedback": _BLOB, "usageMetadata": _BLOB}

_UNDERSCORE = re.compile(r"_([a-z])")
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.:-]")
_BEGINS = re.compile(r"[a-zA-Z_]")


def camel(body: bytes, shape: Shape, beside: bytes = b"") -> bytes:
    """Return a JSON object with its members, and those inside of them that `shape` names, in one spelling.

    Shapes: the very same bytes where nothing is spelled with an underscore, nor in what else came with it, `beside`.
    What a model or a tool wrote is a leaf.
    Errors: msgspec's for what is no JSON.
    """
    is_spelled = nesting.underscored(body) or nesting.underscored(beside)
    return bytes(_renamed(Raw(body), shape)) if is_spelled else body


def _renamed(raw: Raw, shape: Shape) -> Raw:
    first = bytes(memoryview(raw)[:1])
    if first == b"[":
        return Raw(encode([_renamed(one, shape) for one in _ARRAY.decode(raw)]))
    if first != b"{":
        return raw
    members: dict[str, Raw] = {}
    for name, value in _OBJECT.decode(raw).items():
        name = one_spelling(name)
        inner = shape.get(name)
        members[name] = _renamed(value, inner) if isinstance(inner, dict) else value
    return Raw(encode(members))


def one_spelling(name: str) -> str:
    """Return the name of a member as SDKs write it."""
    return _UNDERSCORE.sub(lambda found: found[1].upper(), name)


def member(members: Mapping[str, Raw], name: str) -> Raw | None:
    """Return a member of a body under either spelling of its name."""
    if name in members:
        return members[name]
    for spelled, raw in members.items():
        if "_" in spelled and one_spelling(spelled) == name:
            return raw
    return None


def to_count(members: Mapping[str, Raw]) -> Mapping[str, Raw]:
    """Return what is to be counted: a request whole, where a count has one inside of it; else the body as it is."""
    inner = member(members, "generateContentRequest")
    if inner is None:
        return members
    try:
        return _OBJECT.decode(inner)
    except (msgspec.MsgspecError, RecursionError):
        return members


def of_model(members: Mapping[str, Raw], model: str) -> Mapping[str, Raw]:
    """Return a body whose inner requests, of a count and of several embeddings, are for `model`; the very same where
    they are. Google wants them to name the model of the path, and a client names it as the gateway does.

    Errors: BadRequest where they are no objects.
    """
    name = Raw(encode(f"models/{model.removeprefix('models/')}"))
    for spelled, decoder in _INNER.items():
        raw = members.get(spelled)
        if raw is None:
            continue
        try:
            found = decoder.decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            raise BadRequest(f"{spelled}: must hold requests", param=spelled) from None
        inner = found if isinstance(found, list) else [found]
        if all(bytes(one.get("model", name)) == bytes(name) for one in inner):
            continue
        named = [{**one, "model": name} for one in inner]
        members = {**members, spelled: Raw(encode(named if isinstance(found, list) else named[0]))}
    return members


_INNER: Mapping[str, msgspec.json.Decoder[Any]] = {
    "requests": msgspec.json.Decoder(list[dict[str, Raw]]),
    "generateContentRequest": _OBJECT,
    "generate_content_request": _OBJECT,
}


def nudged(members: Mapping[str, Raw], text: str) -> dict[str, Raw]:
    """Return a request with a turn of the user's behind the others that says `text`."""
    contents = bytes(members.get("contents", b"[]")).rstrip()
    turn = encode({"role": "user", "parts": [{"text": text}]})
    joint = b"" if contents[1:-1].strip() == b"" else b","
    return {**members, "contents": Raw(contents[:-1] + joint + turn + b"]")}


# --- Functions --------------------------------------------------------------------------------------------------------


def sent_name(name: str) -> str:
    """Return the name under which a function is sent: letters, digits and `_.:-`, 64 of them, a letter or `_` first."""
    if len(name) <= MAX_NAME and name.isascii() and name.isidentifier():
        return name
    sent = _NOT_IN_NAMES.sub("_", name) or "unnamed"
    if _BEGINS.match(sent) is None:
        sent = f"_{sent}"
    if len(sent) > MAX_NAME:
        sent = f"{sent[: MAX_NAME - 9]}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
    return sent


def disguised(request: Request) -> Disguises:
    """Return the tools that are sent under another name, or as functions although they take free text.

    Errors: ProtocolUnsupported where two could not be told apart.
    """
    tools = request.tools
    return toolbox.made(tools, "disguised for Google", partial(_disguised, tools)) if tools else {}


def _disguised(tools: toolbox.Tools) -> Disguises:
    found: dict[str, Tool] = {}
    seen: set[str] = set()
    for i, tool in enumerate(tools):
        if not isinstance(tool, Tool):
            continue
        sent = sent_name(tool.name)
        if sent in seen:
            raise ProtocolUnsupported(
                f"tools[{i}].name: to Gemini it would have the name of another tool, {sent}", param=f"tools[{i}].name"
            )
        seen.add(sent)
        if sent != tool.name or tool.is_free:
            found[sent] = tool
    return found


# --- Paths ------------------------------------------------------------------------------------------------------------

PATH = "/models/{model}:generateContent"
COUNT_PATH = "/models/{model}:countTokens"
EMBED_PATH = "/models/{model}:embedContent"
BATCH_PATH = "/models/{model}:batchEmbedContents"
"""What an endpoint is called inside: its path without the model."""


class Addressed(NamedTuple):
    """What a path says, where other formats say it in the body: the model, and whether the answer is a stream."""

    model: str
    stream: bool = False


def path_of(path: str, model: str, *, stream: bool) -> str:
    """Return the path of a call, `model` quoted."""
    if stream:
        path = path.replace(":generateContent", ":streamGenerateContent")
    return path.replace("{model}", quoted(model))


def quoted(model: str) -> str:
    name = model.removeprefix("models/")
    return re.sub(r"[^A-Za-z0-9._~:@/-]", lambda found: "".join(f"%{one:02X}" for one in found[0].encode()), name)
