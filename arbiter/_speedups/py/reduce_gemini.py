"""The story of one Gemini stream.

A chunk has parts of candidates, and perhaps a finish reason; usage comes with each and counts from the start, so the
last one says it all. No event ends the stream, and older models repeat the finish reason in every chunk: neither what
comes behind it nor its absence is a fault by itself.
"""

from __future__ import annotations

from typing import Any

from arbiter._speedups.py.reduce_state import (
    FINISH,
    FOREIGN,
    RAW_MEMBERS,
    State,
    bytes_of,
    json_size,
    text_size,
    word_of,
)

_OURS = ("candidates", "usageMetadata", "promptFeedback")


class GeminiState(State):
    """The story of one Gemini stream, all candidates together; the finish reason is the first one's."""

    def __init__(self) -> None:
        super().__init__()
        self.usage: bytes | None = None
        self.finish: bytes | None = None

    @property
    def finished(self) -> bool:
        return self.finish is not None

    @property
    def plain(self) -> bool:
        return not self.errored

    def _done(self, kinds: list[int]) -> None:
        kinds.append(FOREIGN)  # `[DONE]` is not this format's word

    def _is_ours(self, members: dict[str, Any]) -> bool:
        return any(isinstance(members.get(name), list | dict) for name in _OURS)

    def _is_error(self, name: bytes, members: dict[str, Any]) -> bool:
        return super()._is_error(name, members) and not isinstance(members.get("candidates"), list)

    def _note(self, data: bytes, members: dict[str, Any]) -> None:
        """Keep id, model and usage; the first id and model win, the last usage does."""
        self.response_id = self.response_id or word_of(members.get("responseId"))
        self.model = self.model or word_of(members.get("modelVersion"))
        usage = members.get("usageMetadata")
        if isinstance(usage, dict) and usage:
            self.usage = bytes_of(usage, lambda: RAW_MEMBERS.decode(data)["usageMetadata"])

    def _read(self, name: bytes, data: bytes, members: dict[str, Any], kinds: list[int]) -> None:
        if not self._is_ours(members):
            kinds.append(FOREIGN)
            return
        self._note(data, members)
        reason = None
        candidates = members.get("candidates")
        for one in candidates if isinstance(candidates, list) else ():
            if isinstance(one, dict):
                self._take(one.get("content"))
                if one.get("index") in (None, 0):
                    reason = reason or word_of(one.get("finishReason"))
        feedback = members.get("promptFeedback")
        if reason is None and isinstance(feedback, dict):
            reason = word_of(feedback.get("blockReason"))
        if reason is not None and reason != b"FINISH_REASON_UNSPECIFIED":
            if self.finish is None:
                kinds.append(FINISH)
            self.finish = reason

    def _take(self, content: object) -> None:
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if not isinstance(part, dict):
                continue
            size = text_size(part.get("text"))
            if part.get("thought") is True:
                self.thinking_bytes += size
            else:
                self.text_bytes += size
            call = part.get("functionCall")
            if isinstance(call, dict):
                self.argument_bytes += json_size(call.get("args"))
                named = word_of(call.get("name"))
                if named is not None:
                    self._name(named)
