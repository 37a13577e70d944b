"""What an answer says about itself. Read on the side of the native lane, kept in the attempt's row.

A count that the upstream did not state stays None (SPEC 7.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from arbiter._speedups import nesting, reduce
from arbiter.accounting import usage as usages
from arbiter.errors import Garbled
from arbiter.model import Usage

# One that ran out of tokens, or was filtered, has its reason for having said nothing.
_OWN_ACCORD = ("stop", "end_turn", "completed", "STOP")
_WIDE_BYTES, _WIDE_VALUES = 1 << 20, 100_000
_SHORT_BYTES = reduce.MAX_VALUES  # and so it has no more values than that

T = TypeVar("T")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One answer's facts. Bytes are of UTF-8 text after JSON unescaping."""

    response_id: str | None = None
    model: str | None = None
    model_version: str | None = None
    finish: str | None = None  # the upstream's own word
    usage: Usage | None = None
    usage_source: usages.Source = "missing"
    events: int | None = None  # of a stream
    thinking_bytes: int = 0
    output_bytes: int = 0  # text and call arguments
    tool_names: tuple[str, ...] = ()
    error: str | None = None  # the answer is an error in spite of its 200
    first_event_ns: int = 0  # on the monotonic clock; 0 where no event came
    last_event_ns: int = 0
    cleared_tokens: int | None = None  # taken out of the prompt by the provider, as the request had asked
    compacted: bool = False  # a part of the answer stands for the context before it from now on
    finish_inferred: bool = False  # the stream ended without saying why
    protocol_fault: str | None = None  # what broke the format's rules and was passed on all the same

    @property
    def is_speechless(self) -> bool:
        """Whether the model ended of its own accord and said nothing: no text, no call (SPEC 4.7).

        What it said may be something that is not read here (sound, images): where tokens were written and none of them
        were thoughts, it was.
        """
        if self.finish not in _OWN_ACCORD or self.output_bytes or self.tool_names or self.error is not None:
            return False
        usage = self.usage
        if usage is None or not usage.is_stated:
            return self.thinking_bytes > 0
        return self.thinking_bytes > 0 or not usage.output or bool(usage.reasoning)


def of_stream(
    tap: reduce.ChatTap | reduce.MessagesTap | reduce.ResponsesTap | reduce.GeminiTap,
    *,
    first_event_ns: int,
    last_event_ns: int,
    finish_inferred: bool,
    protocol_fault: str | None,
) -> Facts:
    """The facts of a stream, as far as it came."""
    cleared_tokens, compacted, version = None, False, None
    is_whole = tap.finish is not None or tap.done
    if isinstance(tap, reduce.ChatTap):
        version = _text(tap.fingerprint)
        usage = usages.chat(tap.usage, _text(tap.service_tier))
    elif isinstance(tap, reduce.ResponsesTap):
        usage = usages.responses(tap.usage, _text(tap.service_tier))
        compacted = tap.compacted
    elif isinstance(tap, reduce.GeminiTap):
        usage = usages.gemini(tap.usage)
    else:
        usage = usages.messages(tap.usage_start, tap.usage_delta, is_cut=not is_whole)
        cleared_tokens, compacted = tap.cleared_tokens, tap.compacted
    # With more than fifteen keywords the interpreter makes a dictionary first, which costs three times as much.
    found = Facts(
        response_id=_text(tap.response_id),
        model=_text(tap.model),
        model_version=version,
        finish=_text(tap.finish),
        usage=usage,
        usage_source=usages.source(usage, finished=is_whole),
        events=tap.events,
        thinking_bytes=tap.thinking_bytes,
        output_bytes=tap.text_bytes + tap.argument_bytes,
        tool_names=tuple(name.decode("utf-8", "replace") for name in tap.tool_names),
        first_event_ns=first_event_ns,
        last_event_ns=last_event_ns,
        cleared_tokens=cleared_tokens,
        compacted=compacted,
        finish_inferred=finish_inferred,
    )
    return found if protocol_fault is None else msgspec.structs.replace(found, protocol_fault=protocol_fault)


def _text(raw: bytes | None) -> str | None:
    return raw.decode("utf-8", "replace") if raw is not None else None


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


UNFINISHED = ("queued", "in_progress")
"""The states of a response that is still being made: what it costs is told when it is over."""
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


def of_chat_answer(body: bytes) -> Facts:
    """The facts of a unary chat answer.

    Errors: Garbled where the body is no JSON object. One of an unexpected shape yields the facts that stand beside its
    content, what it cost among them; half an emoji among its texts counts as U+FFFD.
    """
    answer = _decoded(_decode_chat, body)
    if isinstance(answer, dict):
        tier = _text_in(answer.get("service_tier"))
        return _beside(answer, usages.chat(_raw_in(answer.get("usage")), tier), "choices")
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
    usage = usages.chat(bytes(answer.usage) or None, _word(answer.service_tier))
    return Facts(
        response_id=_word(answer.id),
        model=_word(answer.model),
        model_version=_word(answer.system_fingerprint),
        finish=finish,
        usage=usage,
        usage_source=usages.source(usage, finished=True),
        thinking_bytes=thinking,
        output_bytes=output,
        tool_names=tuple(names),
        error=_error(answer.error, has_output=False) if answer.choices is None else None,
    )


def of_messages_answer(body: bytes) -> Facts:
    """The facts of a unary messages answer. Errors: as `of_chat_answer`."""
    answer = _decoded(_decode_messages, body)
    if isinstance(answer, dict):
        return _beside(answer, usages.messages(_raw_in(answer.get("usage"))), "content")
    output = thinking = 0
    names: list[str] = []
    for block in answer.content or ():
        output += _size(block.text)
        thinking += _size(block.thinking)
        if block.type == "tool_use":
            names.append(block.name or "")
            output += _json_size(block.input)
    usage = usages.messages(bytes(answer.usage) or None)
    return Facts(
        response_id=_word(answer.id),
        model=_word(answer.model),
        finish=answer.stop_reason,
        usage=usage,
        usage_source=usages.source(usage, finished=True),
        thinking_bytes=thinking,
        output_bytes=output,
        tool_names=tuple(names),
        cleared_tokens=reduce.cleared_tokens(answer.context_management),
        compacted=any(block.type == "compaction" for block in answer.content or ()),
        error=_error(answer.error, answer.content is not None),
    )


def of_responses_answer(body: bytes) -> Facts:
    """The facts of a unary Responses answer, or of a compaction. Errors: as `of_chat_answer`."""
    answer = _decoded(_decode_response, body)
    if isinstance(answer, dict):
        usage = usages.responses(_raw_in(answer.get("usage")), _text_in(answer.get("service_tier")))
        has_output = _text_in(answer.get("status")) not in _FAILED
        return _beside(answer, usage, "output" if has_output else None)
    output = thinking = 0
    names: list[str] = []
    for item in answer.output or ():
        called = reduce.called_by(item)
        if called is not None:
            names.append(called.decode())
        text, thought, arguments = reduce.sizes_of(item)
        output += text + arguments
        thinking += thought
    reason = answer.incomplete_details.reason if answer.incomplete_details is not None else None
    usage = usages.responses(bytes(answer.usage) or None, _word(answer.service_tier))
    return Facts(
        response_id=_word(answer.id),
        model=_word(answer.model),
        finish=reason if answer.status == "incomplete" and reason else answer.status,
        usage=usage,
        usage_source=usages.source(usage, finished=True),
        thinking_bytes=thinking,
        output_bytes=output,
        tool_names=tuple(names),
        compacted=any(map(reduce.is_compaction, answer.output or ())),
        error=_error(answer.error, answer.output is not None and answer.status not in _FAILED),
    )


def of_gemini_answer(body: bytes) -> Facts:
    """The facts of a unary Gemini answer; of a stream's chunks in an array, all of them. Errors: as
    `of_chat_answer`."""
    text = nesting.whole(body)
    chunks = [text]
    if text.lstrip()[:1] == b"[" and not _is_too_wide(text):
        try:
            chunks = [bytes(one) for one in _decode_chunks(text)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise Garbled("the upstream's answer is not a JSON object") from None
    state = reduce.GeminiState()
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
    usage = usages.gemini(state.usage)
    return Facts(
        response_id=_text(state.response_id),
        model=_text(state.model),
        finish=_text(state.finish),
        usage=usage,
        usage_source=usages.source(usage, finished=True),
        thinking_bytes=state.thinking_bytes,
        output_bytes=state.text_bytes + state.argument_bytes,
        tool_names=tuple(name.decode("utf-8", "replace") for name in state.tool_names),
        error=_error(error if error is not None else _NOTHING, has_output),
    )


_decode_chunks = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Embeddings(msgspec.Struct):
    """`data` stays undecoded: it is thousands of numbers to the vector."""

    model: object = None
    data: msgspec.Raw = _NOTHING
    usage: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


_decode_embeddings = msgspec.json.Decoder(_Embeddings).decode


def of_embeddings_answer(body: bytes) -> Facts:
    """The facts of an answer of embeddings. Errors: Garbled where the body is no JSON object."""
    try:
        answer = _decode_embeddings(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Garbled("the upstream's answer is not a JSON object") from None
    usage = _unwritten(usages.chat(bytes(answer.usage) or None))
    return Facts(
        model=_word(answer.model),
        usage=usage,
        usage_source=usages.source(usage, finished=True),
        error=_error(answer.error, bool(bytes(answer.data))),
    )


class _GoogleEmbeddings(msgspec.Struct, rename="camel"):
    """One vector or several, undecoded."""

    model_version: object = None
    embedding: msgspec.Raw = _NOTHING
    embeddings: msgspec.Raw = _NOTHING
    usage_metadata: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


_decode_google_embeddings = msgspec.json.Decoder(_GoogleEmbeddings).decode


def of_google_embeddings_answer(body: bytes) -> Facts:
    """The facts of an answer of Google's embeddings. Errors: Garbled where the body is no JSON object."""
    try:
        answer = _decode_google_embeddings(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Garbled("the upstream's answer is not a JSON object") from None
    usage = _unwritten(usages.gemini(bytes(answer.usage_metadata) or None))
    return Facts(
        model=_word(answer.model_version),
        usage=usage,
        usage_source=usages.source(usage, finished=True),
        error=_error(answer.error, bool(bytes(answer.embedding) or bytes(answer.embeddings))),
    )


def _unwritten(usage: Usage | None) -> Usage | None:
    """Nothing is written, so nobody counts it: what has no price there (a model of embeddings) must not unprice it."""
    return usage if usage is None or usage.output is not None else msgspec.structs.replace(usage, output=0)


def _is_too_wide(body: bytes) -> bool:
    """Would decoding it cost far more memory than it has bytes? No model answers with so many values."""
    return len(body) > _WIDE_BYTES and nesting.commas(body) > _WIDE_VALUES


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T | dict[str, msgspec.Raw]:
    """Return an answer; its members, unread, where it has another shape: it is passed on all the same.

    Errors: Garbled where it is no JSON object, which is the upstream's fault.
    """
    text = nesting.whole(body)
    is_short = len(text) <= _SHORT_BYTES
    if not is_short:
        text = reduce.slim(text)
    if is_short or not _is_too_wide(text):
        try:
            return decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    try:
        return _decode_members(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Garbled("the upstream's answer is not a JSON object") from None


def _beside(members: dict[str, msgspec.Raw], usage: Usage | None, content: str | None) -> Facts:
    """What is told beside a content of another shape: nobody knows what was said, but what it cost."""
    return Facts(
        response_id=_text_in(members.get("id")),
        model=_text_in(members.get("model")),
        usage=usage,
        usage_source=usages.source(usage, finished=True),
        error=_error(members.get("error", _NOTHING), content is not None and _raw_in(members.get(content)) is not None),
    )


def _raw_in(raw: msgspec.Raw | None) -> bytes | None:
    return bytes(raw) if raw is not None and bytes(raw) != b"null" else None


def _text_in(raw: msgspec.Raw | None) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str) if raw is not None else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _word(value: object) -> str | None:
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


def _error(raw: msgspec.Raw, has_output: bool) -> str | None:
    if has_output or bytes(raw) in (b"", b"null"):
        return None
    return "the upstream answered 200 with an error"
