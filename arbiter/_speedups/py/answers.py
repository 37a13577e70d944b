"""What a whole answer says about itself: read once, and never believed further than it goes.

The tuple is `Said`. Bytes are of UTF-8 text after JSON unescaping; half an emoji counts as U+FFFD, which a reader makes
of it. The usage is as it stands in the answer, for `usage` to read. Where the content has an unexpected shape, what
stands beside it is told, the usage among it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from arbiter._speedups import nesting  # of the side this process runs on
from arbiter._speedups.py.reduce import GeminiState, called_by, cleared_tokens, is_compaction, sizes_of, slim
from arbiter._speedups.py.reduce_state import MAX_VALUES
from arbiter.errors import Garbled

Said = tuple[
    str | None, str | None, str | None, str | None, str | None, bytes | None, int, int, tuple[str, ...], bool,
    int | None, bool,
]  # fmt: skip
"""(response id, model, its version, the upstream's own word for the end, service tier, usage object, bytes of thoughts,
bytes of text and call arguments, names of called tools, is it an error in spite of its 200, tokens that the provider
took out of the prompt, does a part of it stand for the context before it from now on)"""

_WIDE_BYTES, _WIDE_VALUES = 1 << 20, 100_000
SHORT_BYTES = MAX_VALUES
"""No more than that, and so it has no more values either."""

T = TypeVar("T")

# Members are typed loosely: an odd one among them must cost that fact, not the answer.
_NOTHING = msgspec.Raw()  # an absent member; msgspec takes no union with Raw


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: msgspec.Raw = _NOTHING


class _Call(msgspec.Struct):
    function: _Function | None = None


class _ChatMessage(msgspec.Struct):
    content: object = None
    reasoning_content: str | None = None
    reasoning: object = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    message: _ChatMessage | None = None


class _Chat(msgspec.Struct):
    id: object = None
    model: object = None
    choices: list[_Choice] | None = None
    system_fingerprint: object = None
    service_tier: object = None
    usage: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    name: str | None = None
    input: msgspec.Raw = _NOTHING


class _Messages(msgspec.Struct):
    id: object = None
    model: object = None
    stop_reason: str | None = None
    content: list[_Block] | None = None
    context_management: object = None
    usage: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


_FAILED = ("failed", "cancelled")
"""The states of a response that is no answer, whatever there is of its output."""


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    id: object = None
    model: object = None
    status: str | None = None
    incomplete_details: _Incomplete | None = None
    output: list[dict[str, Any]] | None = None
    service_tier: object = None
    usage: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


_decode_chat = msgspec.json.Decoder(_Chat, strict=True).decode
_decode_messages = msgspec.json.Decoder(_Messages, strict=True).decode
_decode_response = msgspec.json.Decoder(_Response, strict=True).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def chat(body: bytes) -> Said:
    """What an answer of OpenAI Chat says. Errors: Garbled where the body is no JSON object."""
    answer = _decoded(_decode_chat, body)
    if isinstance(answer, dict):
        return _beside(answer, "choices")
    output = thinking = 0
    names: list[str] = []
    finish = None
    for choice in answer.choices or ():
        finish = finish or choice.finish_reason
        message = choice.message
        if message is None:
            continue
        if message.content is not None:
            output += _size(message.content)
        if message.refusal is not None:
            output += _size(message.refusal)
        if message.reasoning_content is not None or message.reasoning is not None:
            thinking += _size(message.reasoning_content) or _size(message.reasoning)
        for call in message.tool_calls or ():
            if call.function is not None:
                names.append(call.function.name or "")
                output += _json_size(call.function.arguments)
    return (
        word(answer.id),
        word(answer.model),
        word(answer.system_fingerprint),
        finish,
        word(answer.service_tier),
        bytes(answer.usage) or None,
        thinking,
        output,
        tuple(names),
        answer.choices is None and is_error(answer.error),
        None,
        False,
    )


def messages(body: bytes) -> Said:
    """What an answer of Anthropic says. Errors: as `chat`."""
    answer = _decoded(_decode_messages, body)
    if isinstance(answer, dict):
        return _beside(answer, "content")
    output = thinking = 0
    names: list[str] = []
    for block in answer.content or ():
        output += _size(block.text)
        thinking += _size(block.thinking)
        if block.type == "tool_use":
            names.append(block.name or "")
            output += _json_size(block.input)
    return (
        word(answer.id),
        word(answer.model),
        None,
        answer.stop_reason,
        None,
        bytes(answer.usage) or None,
        thinking,
        output,
        tuple(names),
        answer.content is None and is_error(answer.error),
        cleared_tokens(answer.context_management),
        any(block.type == "compaction" for block in answer.content or ()),
    )


def responses(body: bytes) -> Said:
    """What an answer of OpenAI Responses says, or a compaction. Errors: as `chat`."""
    answer = _decoded(_decode_response, body)
    if isinstance(answer, dict):
        return _beside(answer, "output" if _text_in(answer.get("status")) not in _FAILED else None)
    output = thinking = 0
    names: list[str] = []
    for item in answer.output or ():
        called = called_by(item)
        if called is not None:
            names.append(called.decode())
        said, thought, arguments = sizes_of(item)
        output += said + arguments
        thinking += thought
    reason = answer.incomplete_details.reason if answer.incomplete_details is not None else None
    return (
        word(answer.id),
        word(answer.model),
        None,
        reason if answer.status == "incomplete" and reason else answer.status,
        word(answer.service_tier),
        bytes(answer.usage) or None,
        thinking,
        output,
        tuple(names),
        (answer.output is None or answer.status in _FAILED) and is_error(answer.error),
        None,
        any(map(is_compaction, answer.output or ())),
    )


_decode_chunks = msgspec.json.Decoder(list[msgspec.Raw]).decode


def gemini(body: bytes) -> Said:
    """What an answer of Gemini says; of a stream's chunks in an array, all of them. Errors: as `chat`."""
    whole = nesting.whole(body)
    chunks = [whole]
    if whole.lstrip()[:1] == b"[" and not _is_too_wide(whole):
        try:
            chunks = [bytes(one) for one in _decode_chunks(whole)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise Garbled("the upstream's answer is not a JSON object") from None
    state = GeminiState()
    has_output = False
    error: msgspec.Raw | None = None
    for chunk in chunks:
        try:
            members = _decode_members(chunk)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise Garbled("the upstream's answer is not a JSON object") from None
        has_output = has_output or "candidates" in members or "promptFeedback" in members
        error = members.get("error", error)
        state.take(b"", chunk, 0, len(chunk), [])
    return (
        text(state.response_id),
        text(state.model),
        None,
        text(state.finish),
        None,
        state.usage,
        state.thinking_bytes,
        state.text_bytes + state.argument_bytes,
        tuple(name.decode("utf-8", "replace") for name in state.tool_names),
        not has_output and error is not None and is_error(error),
        None,
        False,
    )


def _is_too_wide(body: bytes) -> bool:
    """Would decoding it cost far more memory than it has bytes? No model answers with so many values."""
    return len(body) > _WIDE_BYTES and nesting.commas(body) > _WIDE_VALUES


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T | dict[str, msgspec.Raw]:
    """Return an answer; its members, unread, where it has another shape: it is passed on all the same.

    Errors: Garbled where it is no JSON object, which is the upstream's fault.
    """
    whole = nesting.whole(body)
    is_short = len(whole) <= SHORT_BYTES
    if not is_short:
        whole = slim(whole)
    if is_short or not _is_too_wide(whole):
        try:
            return decode(whole)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    try:
        return _decode_members(whole)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Garbled("the upstream's answer is not a JSON object") from None


def _beside(members: dict[str, msgspec.Raw], content: str | None) -> Said:
    """What is told beside a content of another shape: nobody knows what was said, but what it cost."""
    return (
        _text_in(members.get("id")),
        _text_in(members.get("model")),
        None,
        None,
        _text_in(members.get("service_tier")),
        _raw_in(members.get("usage")),
        0,
        0,
        (),
        (content is None or _raw_in(members.get(content)) is None) and is_error(members.get("error", _NOTHING)),
        None,
        False,
    )


def is_error(raw: msgspec.Raw) -> bool:
    """Whether what stands where an error would stand is one."""
    return bytes(raw) not in (b"", b"null")


def _raw_in(raw: msgspec.Raw | None) -> bytes | None:
    return bytes(raw) if raw is not None and bytes(raw) != b"null" else None


def _text_in(raw: msgspec.Raw | None) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str) if raw is not None else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def text(raw: bytes | None) -> str | None:
    """What a tap or a state kept, as text."""
    return raw.decode("utf-8", "replace") if raw is not None else None


def word(value: object) -> str | None:
    """A string, or None for what is none."""
    return value if isinstance(value, str) else None


def _size(value: object) -> int:
    if not isinstance(value, str):
        return 0
    return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))


def _json_size(raw: msgspec.Raw) -> int:
    """Bytes of call arguments: a JSON string's content, or the JSON itself where an object was sent."""
    data = bytes(raw)
    if data[:1] != b'"':
        return len(data)
    try:
        return _size(msgspec.json.decode(data, type=str))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return len(data) - 2
