"""A conversation as Gemini has it: contents of two roles, and each turn of calls answered in the content behind it.

Messages are taken one by one, and each only adds: what was built for the turns before does not depend on what came
later (SPEC 2.4). Results are gathered in the order of the calls, as Google matches them by name and order; who else
speaks meanwhile is held back. What Google would refuse in a history is put right, since an agent sends it again and
again:

- The first content is the user's, and none is empty; where words must be and none are, a full stop stands for them.
- A call that nobody answered gets a result that says so; a result without its call is told as text.
- The first call of each turn has a signature where the model wants one: its own, else the word that Google takes in the
  place of one that was made elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting
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
from arbiter.wire.gemini_names import sent_name
from arbiter.wire.gemini_parts import FORMAT
from arbiter.wire.inline import flat
from arbiter.wire.results import UNANSWERED, contents, orphaned, result_of
from arbiter.wire.signatures import MADE_ELSEWHERE, googles

NOTHING = "."

_OBJECT = msgspec.json.Decoder(dict[str, Raw])


def turns_of(messages: Iterable[Message], *, wants_signatures: bool) -> list[dict[str, Any]]:
    """Return `messages`, the instructions at their head excepted, as this format's contents.

    Errors: PartUnsupported where a part has no place in this format.
    """
    turns = _Turns(wants_signatures)
    for message in messages:
        turns.take(message)
    return turns.finish()


def parts_of(said: Iterable[Part]) -> list[Any]:
    """Return the parts for what somebody other than the model said. Errors: PartUnsupported."""
    return [built for one in said if (built := _part(one)) is not None]


class _Turns:
    def __init__(self, wants_signatures: bool) -> None:
        self._wants_signatures = wants_signatures
        self._turns: list[dict[str, Any]] = []
        self._calls: list[ToolCall] = []  # of the open turn
        self._waiting: dict[str, deque[int]] = {}  # the places of those without a result, by id
        self._results: dict[int, Any] = {}  # by the place of their call
        self._held: list[Any] = []
        self._heard = False  # somebody else has spoken since the last of the calls

    def take(self, message: Message) -> None:
        if message.role == "assistant":
            self._take_said(message)
            self._heard = False
            return
        self._heard = True
        if message.role == "tool":
            for part in message.parts():
                self._take_result(result_of(part))
        elif message.role == "user":
            self._take_words(parts_of(message.parts()) or [{"text": NOTHING}])
        else:
            self._take_words(parts_of(_aside(message.parts())))

    def finish(self) -> list[dict[str, Any]]:
        self._close()
        if not self._turns or self._turns[0]["role"] == "model":
            self._turns.insert(0, {"role": "user", "parts": [{"text": NOTHING}]})
        return self._turns

    def _take_said(self, message: Message) -> None:
        """Add what the model said. Calls and words of one turn may be two messages."""
        if not self._calls or self._heard:
            self._close()
        built: list[Any] = []
        signature: str | None = None
        for part in message.parts():
            if type(part) is Thinking:
                signature = _think(part, signature, built)
            elif type(part) is ToolCall:
                if signature is None and self._wants_signatures and not self._calls:
                    signature = MADE_ELSEWHERE
                built.append(_signed({"functionCall": _call(part)}, signature))
                signature = None
                self._waiting.setdefault(part.id, deque()).append(len(self._calls))
                self._calls.append(part)
            elif type(part) is not RedactedThinking:
                one = _part(part)
                if one is not None:
                    _settle(signature, built)
                    signature = None
                    built.append(one)
        _settle(signature, built)
        if built:
            self._add("model", built)

    def _take_result(self, result: ToolResult) -> None:
        waiting = self._waiting.get(result.call_id)
        if not waiting:
            self._take_words(parts_of(orphaned(result)))
            return
        place = waiting.popleft()
        call = self._calls[place]
        said = contents(result)
        texts = [one.text for one in said if type(one) is Text]
        others = parts_of(one for one in said if type(one) is not Text)
        text = "\n\n".join(texts) or ("Attached below." if others else "")
        response = {"error" if result.is_error else "output": text}
        self._results[place] = {"functionResponse": {"id": call.id, "name": sent_name(call.name), "response": response}}
        if others:
            self._held += [{"text": f"Attached to the result of {sent_name(call.name)}:"}, *others]

    def _take_words(self, built: list[Any]) -> None:
        if len(self._results) < len(self._calls):
            self._held += built
            return
        self._close()
        if built:
            self._add("user", built)

    def _close(self) -> None:
        """End the open turn of calls, if there is one: its results, and what was held, are the user's content."""
        if not self._calls:
            return
        results = [self._results.get(place) or _unanswered(call) for place, call in enumerate(self._calls)]
        self._add("user", results + self._held)
        self._calls, self._waiting, self._results, self._held = [], {}, {}, []

    def _add(self, role: str, built: list[Any]) -> None:
        last = self._turns[-1] if self._turns else None
        if last is not None and last["role"] == role:
            last["parts"] += built
        else:
            self._turns.append({"role": role, "parts": built})


def _think(part: Thinking, waiting: str | None, built: list[Any]) -> str | None:
    """Add a thought that Google made; returns the signature that the next call is to bear. Others' are left out."""
    signature = googles(part.signature)
    if signature is None:
        return waiting
    _settle(waiting, built)
    if part.text:
        built.append({"text": part.text, "thought": True})
    return signature


def _settle(signature: str | None, built: list[Any]) -> None:
    """Put a signature that no call claimed onto the part before it, where models put it that only spoke."""
    if signature is None:
        return
    last = built[-1] if built else None
    if last is not None and isinstance(last, dict) and "text" in last and "thoughtSignature" not in last:
        last["thoughtSignature"] = signature
    else:
        built.append({"text": "", "thoughtSignature": signature})


def _signed(built: dict[str, Any], signature: str | None) -> dict[str, Any]:
    return built if signature is None else {**built, "thoughtSignature": signature}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": sent_name(call.name), "args": arguments_of(call.arguments)}


def arguments_of(arguments: str) -> Any:
    """Return call arguments as the object that this format wants, digit for digit. What is none stays readable."""
    raw = nesting.whole(arguments.encode())
    try:
        found = _OBJECT.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return {"invalid_arguments": arguments} if arguments.strip() else {}
    return Raw(raw) if found else {}


def _unanswered(call: ToolCall) -> dict[str, Any]:
    response = {"error": UNANSWERED}
    return {"functionResponse": {"id": call.id, "name": sent_name(call.name), "response": response}}


def _aside(parts: Iterable[Part]) -> list[Part]:
    """Instructions in the middle, in the user's turn and set apart: moved to the head they would change what was
    sent."""
    return [
        Text(f"<system>\n{part.text}\n</system>") if type(part) is Text and part.text.strip() else part
        for part in parts
    ]


def _part(part: Part) -> Any:
    """Return one part, None for what says nothing."""
    if type(part) is Text or type(part) is Refusal:
        return {"text": part.text} if part.text else None
    if type(part) is Image:
        if part.url is not None:
            return {"fileData": {"mimeType": part.media_type or "image/jpeg", "fileUri": part.url}}
        return _blob(part.media_type or "image/jpeg", part.data)
    if type(part) is Audio:
        return _blob(f"audio/{part.format}", part.data)
    if type(part) is File:
        return _file(part)
    if type(part) is Opaque:
        if part.format == FORMAT:
            return Raw(part.raw)
        if part.text is not None:
            return {"text": part.text} if part.text else None
    if type(part) is Thinking or type(part) is RedactedThinking:
        return None
    raise PartUnsupported("this part cannot be told to this upstream, which speaks Gemini", part)


def _blob(media_type: str, data: str | None) -> dict[str, Any]:
    return {"inlineData": {"mimeType": media_type, "data": flat(data or "")}}


def _file(file: File) -> dict[str, Any]:
    if file.text is not None:
        return {"text": f"{file.filename}:\n\n{file.text}" if file.filename else file.text}
    if file.url is not None:
        return {"fileData": {"mimeType": file.media_type or "application/pdf", "fileUri": file.url}}
    if file.data is None:
        raise PartUnsupported(
            "a file that another provider keeps cannot be told to this upstream, which speaks Gemini", file
        )
    return _blob(file.media_type or "application/pdf", file.data)
