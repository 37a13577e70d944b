"""The messages of an OpenAI Chat request, outwards: neutral messages -> what is sent, in the order that servers want.

The results of a turn stand together right behind their calls. A chat tool message holds text only, so what else was in
a result follows in one user message behind all of them; and what a client put between a call and its result waits until
then too. So a conversation keeps its beginning, byte for byte, whenever it grows by what follows a finished turn: an
assistant's message, or all results of its calls with whatever the user adds (SPEC 2.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.errors import PartUnsupported
from arbiter.model import (
    Audio,
    File,
    Image,
    Message,
    Opaque,
    Part,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from arbiter.wire.answered import in_turns
from arbiter.wire.chat_parse import FORMAT
from arbiter.wire.chat_proofs import DETAILS, Gathered, members_of_call
from arbiter.wire.json import type_of
from arbiter.wire.openai_models import Dialect
from arbiter.wire.openai_names import sent_call_id, sent_name
from arbiter.wire.openai_parts import bare, file_data, file_name, image_url, joined
from arbiter.wire.results import result_of

BRIDGE = {"role": "assistant", "content": "OK."}
"""What stands between results and the user's words where a server lets only an assistant follow a tool."""


def build_messages(messages: tuple[Message, ...], dialect: Dialect) -> list[dict[str, Any]]:
    """Return the messages in the order in which they are sent. Errors: ProtocolUnsupported."""
    built = _ordered(messages, dialect)
    return built if dialect.user_after_tool else _bridged(built)


def _bridged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    bridged: list[dict[str, Any]] = []
    last = None
    for built in messages:
        if last == "tool" and built["role"] not in ("tool", "assistant"):
            bridged.append(BRIDGE)
        bridged.append(built)
        last = built["role"]
    return bridged


def _ordered(messages: tuple[Message, ...], dialect: Dialect) -> list[dict[str, Any]]:
    ordered: list[dict[str, Any]] = []
    open_calls: set[str] = set()
    held: list[Any] = []  # pictures and files out of tool results
    waiting: list[dict[str, Any]] = []  # what stands between a call and its result
    for message in in_turns(messages):
        role = message.role
        if role == "tool":
            result = result_of(message.content[0] if message.content else None)  # type: ignore[arg-type]  # it has one
            open_calls.discard(result.call_id)
            ordered.append(_build_result(result, message, held, dialect))
            continue
        is_first = not (ordered or waiting)
        built = _build_said(message, dialect) if role == "assistant" else _build_other(message, is_first, dialect)
        if open_calls and role != "assistant":
            waiting.append(built)
            continue
        if held:
            ordered.append({"role": "user", "content": held})
            held = []
        if waiting:
            ordered += waiting
            waiting = []
        ordered.append(built)
        if role == "assistant":
            open_calls = _calls(message) if "tool_calls" in built else set()
    if held:
        ordered.append({"role": "user", "content": held})
    return ordered + waiting if waiting else ordered


def _calls(message: Message) -> set[str]:
    calls: set[str] = set()
    if not isinstance(message.content, str):
        for part in message.content:
            if type(part) is ToolCall:
                calls.add(part.id)
    return calls


def _build_other(message: Message, is_first: bool, dialect: Dialect) -> dict[str, Any]:
    said = bare(message.content, FORMAT)
    content = said if isinstance(said, str) else [build_part(part) for part in said]
    is_late = not is_first and message.role in ("system", "developer")
    if is_late and not dialect.system_anywhere and isinstance(content, str):
        # Moving it to the front would change the beginning of the conversation, and cost its cache.
        return {"role": "user", "content": f"<system>\n{content}\n</system>"}
    built = {"role": message.role, "content": content}
    if message.name is not None:
        built["name"] = message.name
    return built


def _build_result(result: ToolResult, message: Message, held: list[Any], dialect: Dialect) -> dict[str, Any]:
    """Return a tool message. It holds text only; anything else goes into `held`."""
    call_id = sent_call_id(result.call_id, dialect)
    content = result.content if isinstance(result.content, str) else bare(result.content, FORMAT)
    if not isinstance(content, str):
        held.append({"type": "text", "text": f"Attached to the result of {call_id}:"})
        held += [build_part(part) for part in content if type(part) is not Text]
        content = joined(tuple(part for part in content if type(part) is Text)) or "Attached below."
    if result.is_error:
        content = f"Error: {content}"  # there is no member for it; the model would take the failure for an answer
    built = {"role": "tool", "tool_call_id": call_id, "content": content}
    if message.name is not None:
        built["name"] = message.name
    return built


def _build_said(message: Message, dialect: Dialect) -> dict[str, Any]:
    """Return an assistant message: this format knows one content, one reasoning and a list of calls, in no order."""
    built: dict[str, Any] = {"role": "assistant"}
    if isinstance(message.content, str):
        built["content"] = message.content
        if message.name is not None:
            built["name"] = message.name
        return built
    calls: list[Any] = []
    proofs: list[str] = []  # of the message
    proof: str | None = None  # of the next call
    said: list[Part] = []
    thoughts: dict[str, list[str]] = {}
    refusals: list[str] = []
    for part in message.content:
        if type(part) is ToolCall:
            if proof is None and not calls and dialect.unsigned is not None:
                proof = f"{{{dialect.unsigned}}}"
            id, name = sent_call_id(part.id, dialect), sent_name(part.name)
            calls.append(_write_call(id, name, part, proof if dialect.signs else None))
            proof = None
        elif type(part) is Thinking:
            spelling = part.spelling if dialect.spells == "the maker's" and part.spelling else dialect.reasoning
            if dialect.reasoning is not None and spelling is not None and part.text:
                thoughts.setdefault(spelling, []).append(part.text)
        elif type(part) is Refusal:
            refusals.append(part.text)
        elif type(part) is not RedactedThinking:
            said.append(part)
        elif part.place == "message":
            proofs.append(part.data)
        elif part.place == "call":
            proof = part.data  # for a block of Anthropic's there is no place
    if len(said) == 1 and type(said[0]) is Text:
        content: str | list[Any] = said[0].text
    else:
        content = build_content(said) if said else ""
    built["content"] = content if content else None if calls or refusals else ""
    if refusals:
        built["refusal"] = "".join(refusals)
    if calls and not thoughts and dialect.wants_reasoning and dialect.reasoning is not None:
        thoughts[dialect.reasoning] = []  # a turn from before, or of another model: they want the member at least
    members = Gathered(proofs).members() if proofs and dialect.signs else {}
    if thoughts and (DETAILS not in members or dialect.wants_reasoning):  # else they hold the text, too
        for spelling, texts in thoughts.items():
            built[spelling] = "".join(texts)
    built.update(members)
    if calls:
        built["tool_calls"] = calls
    if message.name is not None:
        built["name"] = message.name
    return built


def build_call(call: ToolCall, proof: str | None = None) -> dict[str, Any]:
    """Return one call; `proof` is what its server wants back with it."""
    return _write_call(call.id, call.name, call, proof)


def _write_call(id: str, name: str, call: ToolCall, proof: str | None) -> dict[str, Any]:
    built: dict[str, Any]
    if call.is_free:
        built = {"id": id, "type": "custom", "custom": {"name": name, "input": call.arguments}}
    else:
        built = {"id": id, "type": "function", "function": {"name": name, "arguments": call.arguments}}
    return {**built, **members_of_call(proof)} if proof is not None else built


def build_content(content: str | Sequence[Part]) -> str | list[Any]:
    """Return content in the shape that it needs: a bare string where all of it is text (SPEC 2.4).

    Several texts are one string with blank lines between them: many servers take an array from users only, or never.
    """
    parts = bare(content, FORMAT)
    return parts if isinstance(parts, str) else [build_part(part) for part in parts]


def build_part(part: Part) -> Any:
    """Return one part. Cache marks stay behind: OpenAI refuses members that it does not know."""
    if type(part) is Text:
        return {"type": "text", "text": part.text}
    if type(part) is Image:
        image: dict[str, str | None] = {"url": image_url(part)}
        if part.detail is not None:
            image["detail"] = part.detail
        return {"type": "image_url", "image_url": image}
    if type(part) is File:
        return {"type": "file", "file": _build_file(part)}
    if type(part) is Audio:
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
    if type(part) is Refusal:
        return {"type": "refusal", "refusal": part.text}
    if type(part) is Opaque and part.format == FORMAT:
        return Raw(part.raw)
    what = _kind_of(part.raw) if type(part) is Opaque else f"of type {_ELSEWHERE[type(part)]}"
    raise PartUnsupported(f"a part {what} cannot be told to this upstream, which speaks OpenAI Chat", part)


_ELSEWHERE: dict[type, str] = {  # parts that stand where only another role has them
    ToolCall: "tool_use",
    ToolResult: "tool_result",
    Thinking: "thinking",
    RedactedThinking: "redacted_thinking",
}


def _build_file(file: File) -> dict[str, str]:
    if file.file_id is not None:
        return (
            {"file_id": file.file_id} if file.filename is None else {"filename": file.filename, "file_id": file.file_id}
        )
    return {"filename": file_name(file), "file_data": file.url if file.url is not None else file_data(file)}


class _Source(msgspec.Struct, frozen=True):
    type: str = ""


class _Sourced(msgspec.Struct):
    source: _Source = _Source()


def _kind_of(raw: bytes) -> str:
    """Return what a part is, for people: an image may be one, and its source be what cannot be had elsewhere."""
    try:
        source = msgspec.json.decode(raw, type=_Sourced).source.type
    except msgspec.ValidationError:
        source = ""
    return f"of type {type_of(raw) or 'unknown'}" + (f" with a source of type {source}" if source else "")
