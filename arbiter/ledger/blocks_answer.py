"""An answer as the client got it, folded into the one message that it is; of Responses, into its items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from arbiter._speedups import nesting, sse
from arbiter.errors import ArbiterError
from arbiter.fold import collect
from arbiter.model import OUTPUT, Ended, Event, Failed, Finish, Finished
from arbiter.wire import gemini_embeddings
from arbiter.wire.format import EMBEDDINGS, FORMATS, Format

_DEPTH = 200
_SLICE = 64 << 10


def message_of(format: str, pieces: Sequence[bytes], *, is_stream: bool, limit: int) -> bytes | None:
    """The message in an answer as JSON; None where there is none, or no sense in it.

    Shapes: `pieces` are a whole body, or what was sent of a stream, cut anywhere; one that broke off gives what had
    come of it. `limit` is the longest event there may be. An answer of several choices gives all of their messages, one
    of several items all of these, one of embeddings what `vectors_of` says of it.
    """
    body = b"".join(pieces)
    if format in EMBEDDINGS:
        return vectors_of(body, is_googles=format == gemini_embeddings.name)
    wire = FORMATS.get(format)
    if wire is None:
        return None
    try:
        whole = _folded(wire, body, limit) if is_stream else body
        if nesting.fault(whole, _DEPTH, len(whole) + 1) != nesting.FINE:
            return None
        said = msgspec.json.decode(nesting.whole(whole))
    except (ArbiterError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    found = _message(said)
    return None if found is None else msgspec.json.encode(found)


class _Last(msgspec.Struct):
    type: str = ""
    response: msgspec.Raw = msgspec.Raw()


_decode_last = msgspec.json.Decoder(_Last).decode


def _repeated(body: bytes, limit: int) -> bytes | None:
    """The response that the last event of a stream of them repeats, whatever is in it; None where it holds nothing."""
    reader = sse.SSEReader(limit)
    reader.open(body)
    last: bytes | None = None
    while (event := reader.next()) is not None:
        if b'"response.completed"' in event[1] or b'"response.incomplete"' in event[1]:
            last = event[1]
    if last is None:
        return None
    try:
        told = _decode_last(nesting.whole(last))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    is_last = told.type in ("response.completed", "response.incomplete") and b'"output":[]' not in bytes(told.response)
    return bytes(told.response) or None if is_last else None


class _Vector(msgspec.Struct):
    embedding: msgspec.Raw


class _Vectors(msgspec.Struct):
    data: list[_Vector]
    model: object = None
    usage: object = None


def vectors_of(body: bytes, *, is_googles: bool = False) -> bytes | None:
    """An answer of embeddings without its numbers: model and usage as it says, how many `vectors`, and their `width`.

    Shapes: the width is the first one's, as floats or as the 32-bit floats that base64 packs.
    """
    try:
        if nesting.fault(body, _DEPTH, len(body) + 1) != nesting.FINE:
            return None
        if is_googles:
            (vectors, usage), model = gemini_embeddings.vectors_in(body), None
        else:
            answer = msgspec.json.decode(body, type=_Vectors)
            vectors, usage, model = [bytes(one.embedding) for one in answer.data], answer.usage, answer.model
        first = vectors[0] if vectors else b"[]"
        width = first.count(b",") + 1 if first[:1] == b"[" and first[1:-1].strip() else 0
        if first[:1] == b'"':
            width = len(msgspec.json.decode(first, type=bytes)) // 4
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    told = {"model": model, "usage": usage, "vectors": len(vectors), "width": width}
    return msgspec.json.encode(told)


def _folded(wire: Format, body: bytes, limit: int) -> bytes:
    if wire.name == "openai-responses" and (repeated := _repeated(body, limit)) is not None:
        return repeated
    reader = wire.reader(limit)
    events: list[Event] = []
    for start in range(0, len(body), _SLICE):
        events += reader.feed(body[start : start + _SLICE])
    kept = [event for event in events if type(event) is not Failed and type(event) is not Ended]
    if not any(type(event) in OUTPUT for event in kept):
        return b"{}"
    if not any(type(event) is Finished for event in kept):
        kept.append(Finished(Finish.STOP))
    return wire.write_answer(collect([*kept, Ended()]), "", "", 0)


def _message(said: Any) -> Any:
    if not isinstance(said, dict):
        return None
    if isinstance(content := said.get("content"), list):
        return {"role": "assistant", "content": content} if content else None
    if isinstance(output := said.get("output"), list):  # of Responses
        items = [item for item in output if isinstance(item, dict)]
        return items[0] if len(items) == 1 else items or None
    if isinstance(candidates := said.get("candidates"), list):  # of Gemini
        contents = [
            one["content"] for one in candidates if isinstance(one, dict) and isinstance(one.get("content"), dict)
        ]
        return contents[0] if len(contents) == 1 else contents or None
    choices = said.get("choices")
    if not isinstance(choices, list):
        return None
    messages = [one["message"] for one in choices if isinstance(one, dict) and isinstance(one.get("message"), dict)]
    return messages[0] if len(messages) == 1 else messages or None
