"""What an answer says about itself. Read on the side of the native lane, kept in the attempt's row.

A count that the upstream did not state stays None (SPEC 7.2).
"""

from __future__ import annotations

from typing import Final

import msgspec

from arbiter._speedups import answers, reduce
from arbiter.accounting import usage as usages
from arbiter.errors import Garbled
from arbiter.model import Usage

# One that ran out of tokens, or was filtered, has its reason for having said nothing.
_OWN_ACCORD = ("stop", "end_turn", "completed", "STOP")
UNFINISHED = ("queued", "in_progress")
"""The states of a response that is still being made: what it costs is told when it is over."""


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
        version = answers.text(tap.fingerprint)
        usage = usages.chat(tap.usage, answers.text(tap.service_tier))
    elif isinstance(tap, reduce.ResponsesTap):
        usage = usages.responses(tap.usage, answers.text(tap.service_tier))
        compacted = tap.compacted
    elif isinstance(tap, reduce.GeminiTap):
        usage = usages.gemini(tap.usage)
    else:
        usage = usages.messages(tap.usage_start, tap.usage_delta, is_cut=not is_whole)
        cleared_tokens, compacted = tap.cleared_tokens, tap.compacted
    # With more than fifteen keywords the interpreter makes a dictionary first, which costs three times as much.
    found = Facts(
        response_id=answers.text(tap.response_id),
        model=answers.text(tap.model),
        model_version=version,
        finish=answers.text(tap.finish),
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


def of_chat_answer(body: bytes) -> Facts:
    """The facts of a unary chat answer.

    Errors: Garbled where the body is no JSON object. One of an unexpected shape yields the facts that stand beside its
    content, what it cost among them; half an emoji among its texts counts as U+FFFD.
    """
    said = answers.chat(body)
    return _of_whole(said, usages.chat(said[_USAGE], said[_TIER]))


def of_messages_answer(body: bytes) -> Facts:
    """The facts of a unary messages answer. Errors: as `of_chat_answer`."""
    said = answers.messages(body)
    return _of_whole(said, usages.messages(said[_USAGE]))


def of_responses_answer(body: bytes) -> Facts:
    """The facts of a unary Responses answer, or of a compaction. Errors: as `of_chat_answer`."""
    said = answers.responses(body)
    return _of_whole(said, usages.responses(said[_USAGE], said[_TIER]))


def of_gemini_answer(body: bytes) -> Facts:
    """The facts of a unary Gemini answer; of a stream's chunks in an array, all of them. Errors: as
    `of_chat_answer`."""
    said = answers.gemini(body)
    return _of_whole(said, usages.gemini(said[_USAGE]))


_TIER: Final = 4  # where it stands in what was said
_USAGE: Final = 5
_ERROR = "the upstream answered 200 with an error"


def _of_whole(said: answers.Said, usage: Usage | None) -> Facts:
    response_id, model, version, finish, _, _, thinking, output, names, is_error, cleared, compacted = said
    return Facts(
        response_id=response_id,
        model=model,
        model_version=version,
        finish=finish,
        usage=usage,
        usage_source=usages.source(usage, finished=True),
        thinking_bytes=thinking,
        output_bytes=output,
        tool_names=names,
        error=_ERROR if is_error else None,
        cleared_tokens=cleared,
        compacted=compacted,
    )


class _Embeddings(msgspec.Struct):
    """`data` stays undecoded: it is thousands of numbers to the vector."""

    model: object = None
    data: msgspec.Raw = msgspec.Raw()
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_decode_embeddings = msgspec.json.Decoder(_Embeddings).decode


def of_embeddings_answer(body: bytes) -> Facts:
    """The facts of an answer of embeddings. Errors: Garbled where the body is no JSON object."""
    try:
        answer = _decode_embeddings(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Garbled("the upstream's answer is not a JSON object") from None
    usage = _unwritten(usages.chat(bytes(answer.usage) or None))
    return Facts(
        model=answers.word(answer.model),
        usage=usage,
        usage_source=usages.source(usage, finished=True),
        error=_ERROR if not bytes(answer.data) and answers.is_error(answer.error) else None,
    )


class _GoogleEmbeddings(msgspec.Struct, rename="camel"):
    """One vector or several, undecoded."""

    model_version: object = None
    embedding: msgspec.Raw = msgspec.Raw()
    embeddings: msgspec.Raw = msgspec.Raw()
    usage_metadata: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_decode_google_embeddings = msgspec.json.Decoder(_GoogleEmbeddings).decode


def of_google_embeddings_answer(body: bytes) -> Facts:
    """The facts of an answer of Google's embeddings. Errors: Garbled where the body is no JSON object."""
    try:
        answer = _decode_google_embeddings(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Garbled("the upstream's answer is not a JSON object") from None
    has_output = bool(bytes(answer.embedding) or bytes(answer.embeddings))
    usage = _unwritten(usages.gemini(bytes(answer.usage_metadata) or None))
    return Facts(
        model=answers.word(answer.model_version),
        usage=usage,
        usage_source=usages.source(usage, finished=True),
        error=_ERROR if not has_output and answers.is_error(answer.error) else None,
    )


def _unwritten(usage: Usage | None) -> Usage | None:
    """Nothing is written, so nobody counts it: what has no price there (a model of embeddings) must not unprice it."""
    return usage if usage is None or usage.output is not None else msgspec.structs.replace(usage, output=0)
