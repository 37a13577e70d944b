"""Thinkers as the clouds have them, as strict as `fakes.thinkers`.

- `Conversing`: a Claude through Bedrock's Converse; behind `fakes.bedrock`, which judges the rest of a body.
- `Routed`: a model at OpenRouter whose thoughts are text. It takes them back under each of OpenRouter's names; a call
  of its own without them it refuses, and a member that OpenRouter does not know.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.fakes import eventstream
from tests.fakes.thinkers import ARGUMENTS, Claude, DeepSeek, Refused, _slices


def _in_messages(block: dict[str, Any]) -> dict[str, Any]:
    """A block of Converse's in the words of Messages."""
    ((kind, told),) = block.items()
    if kind == "text":
        return {"type": "text", "text": told}
    if kind == "toolUse":
        return {"type": "tool_use", "id": told["toolUseId"], "name": told["name"], "input": told["input"]}
    if kind == "toolResult":
        return {"type": "tool_result", "tool_use_id": told["toolUseId"]}
    if kind == "cachePoint":
        return {"type": "cache_point"}
    if "redactedContent" in told:
        return {"type": "redacted_thinking", "data": base64.b64decode(told["redactedContent"]).decode()}
    thought = told["reasoningText"]
    return {"type": "thinking", "thinking": thought["text"], "signature": thought["signature"]}


class Conversing(Claude):
    PREFIX = "conversing"

    def judge(self, body: dict[str, Any], account: str) -> int:
        turns = [{**turn, "content": list(map(_in_messages, turn["content"]))} for turn in body["messages"]]
        more = body.get("additionalModelRequestFields", {})
        return super().judge({"messages": turns, **more}, account)

    def refusal(self, message: str) -> tuple[str, dict[str, Any]]:
        return "400 Bad Request", {"message": message}

    def frame(self, event: bytes) -> bytes:
        return event

    def stream(self, thought: str, text: str, call: str | None, account: str) -> list[bytes]:
        thinking, redacted = self._blocks(thought, call)
        events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]

        def block(index: int, *deltas: dict[str, Any], start: dict[str, Any] | None = None) -> None:
            at = {"contentBlockIndex": index}
            events.extend([("contentBlockStart", {"start": start, **at})] if start is not None else [])
            events.extend(("contentBlockDelta", {"delta": delta, **at}) for delta in deltas)
            events.append(("contentBlockStop", at))

        signed = {"reasoningContent": {"signature": thinking["signature"]}}
        block(0, *({"reasoningContent": {"text": one}} for one in _slices(thought)), signed)
        block(1, {"reasoningContent": {"redactedContent": base64.b64encode(redacted["data"].encode()).decode()}})
        if text:
            block(2, *({"text": one} for one in _slices(text)))
        if call is not None:
            use = {"toolUse": {"toolUseId": call, "name": "read"}}
            block(3, *({"toolUse": {"input": one}} for one in ARGUMENTS), start=use)
        events.append(("messageStop", {"stopReason": "end_turn" if call is None else "tool_use"}))
        events.append(("metadata", {"usage": self._usage(), "metrics": {"latencyMs": 1}}))
        return [eventstream.event(name, json.dumps(payload).encode()) for name, payload in events]

    def whole(self, thought: str, text: str, call: str | None, account: str) -> dict[str, Any]:
        thinking, redacted = self._blocks(thought, call)
        told = {"text": thought, "signature": thinking["signature"]}
        content: list[dict[str, Any]] = [{"reasoningContent": {"reasoningText": told}}]
        hidden = base64.b64encode(redacted["data"].encode()).decode()
        content.append({"reasoningContent": {"redactedContent": hidden}})
        content += [{"text": text}] if text else []
        if call is not None:
            content.append({"toolUse": {"toolUseId": call, "name": "read", "input": {"path": "a.txt"}}})
        reason = "end_turn" if call is None else "tool_use"
        message = {"role": "assistant", "content": content}
        return {"output": {"message": message}, "stopReason": reason, "usage": self._usage()}

    def _usage(self) -> dict[str, int]:
        return {"inputTokens": 9, "outputTokens": 5, "totalTokens": 14}


class Routed(DeepSeek):
    PREFIX, MEMBER = "routed", "reasoning"
    KNOWN = frozenset(("role", "content", "tool_calls", "reasoning", "reasoning_content", "reasoning_details"))

    def judge(self, body: dict[str, Any], account: str) -> int:
        done = 0
        for place, message in enumerate(body["messages"]):
            if message["role"] != "assistant":
                continue
            if message.keys() - self.KNOWN:
                raise Refused(f"messages[{place}]: unknown field {sorted(message.keys() - self.KNOWN)}")
            details = message.get("reasoning_details", ())
            told = {message.get("reasoning"), message.get("reasoning_content"), "".join(one["text"] for one in details)}
            calls = [call["id"] for call in message.get("tool_calls", ())]
            done += len(calls)
            if calls and self.has_made(calls[0]) and self.minted[calls[0]] not in told:
                raise Refused(f"messages[{place}]: the thought of {calls[0]} is not there")
        return done
