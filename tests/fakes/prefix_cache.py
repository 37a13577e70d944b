"""An upstream with a prompt cache of its own, as providers have them: what it reads and writes is reported as usage.

Anthropic's way (`/v1/messages`): a prefix is written where a block carries a mark, for as long as the mark says, and is
looked for from each mark back over twenty blocks. OpenAI's way (`/chat/completions`): every prompt is kept in blocks of
128 tokens for `ttl_ms`, unasked, and nothing is said of writes. Both keep caches apart by key and by model, prolong
what is read, and cache no prompt below `minimum` tokens. A token is a byte here: small requests are long prompts.

With `thinks` its answers on `/v1/messages` begin with a thought, and once the user speaks again the thoughts before
that are no part of a prompt any more, as it is with Claude's older models. With `compacts` they begin with a
compaction, and what stands before the newest of those in a request is no part of the prompt.

It knows nothing of the gateway, nor the gateway of it. `calls` are what it was asked; `refused` are keys that wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fakes.origin import LAST_CHUNK, Peer, Request, answer, chunk, chunked_head

LOOKBACK = 20
BLOCK = 128
_LASTS_MS = {"5m": 300_000, "1h": 3_600_000}


@dataclass
class Served:
    """One call as the upstream saw it; tokens."""

    key: str
    model: str
    prompt: int
    read: int
    written: int
    written_1h: int = 0


class PrefixCache:
    """See the module's docstring. `say` decides what the next answers hold: how many tool calls."""

    def __init__(self, now_ms: Callable[[], int], *, minimum: int = 1024, ttl_ms: int = 300_000) -> None:
        self.now_ms = now_ms
        self.minimum = minimum
        self.ttl_ms = ttl_ms
        self.calls: list[Served] = []
        self.refused: set[str] = set()
        self.tool_calls = 0
        self.thinks = self.compacts = False
        self.hold: asyncio.Event | None = None  # answers wait for it
        self._kept: dict[tuple[str, str, str], tuple[int, int]] = {}  # -> until, lasts

    def forget(self) -> None:
        """Lose everything, as a machine does that is taken out of service."""
        self._kept.clear()

    async def script(self, peer: Peer, request: Request) -> None:
        headers = {name.lower(): value for name, value in request.headers}
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        body = json.loads(request.body)
        if key in self.refused:
            await peer.send(_refusal())
            return
        is_chat = "chat/completions" in request.target
        served = self.serve(key, body, is_chat=is_chat)
        number, calls = len(self.calls), self.tool_calls
        if self.hold is not None:
            await self.hold.wait()
        is_stream = bool(body.get("stream"))
        if is_chat:
            await peer.send(_say_chat(served, number, calls, is_stream=is_stream, thinks=self.thinks))
            return
        before: list[dict[str, Any]] = []
        if self.compacts:
            before.append({"type": "compaction", "content": f"Summary {number}. " * 1200})
        if self.thinks:
            before.append({"type": "thinking", "thinking": f"Thought {number}. " * 9, "signature": f"signed-{number}"})
        await peer.send(_say_messages(served, number, calls, before, is_stream=is_stream))

    def serve(self, key: str, body: dict[str, Any], *, is_chat: bool) -> Served:
        """What one call reads and writes."""
        served = (self._chat if is_chat else self._messages)(key, body)
        self.calls.append(served)
        return served

    # ------------------------------------------------------------------ inside

    def _alive(self, spot: tuple[str, str, str]) -> bool:
        until, lasts = self._kept.get(spot, (0, 0))
        if until <= self.now_ms():
            return False
        self._kept[spot] = (self.now_ms() + lasts, lasts)
        return True

    def _keep(self, spot: tuple[str, str, str], lasts_ms: int) -> None:
        self._kept[spot] = (self.now_ms() + lasts_ms, lasts_ms)

    def _messages(self, key: str, body: dict[str, Any]) -> Served:
        blocks = list(_blocks(body))
        spots, ends, digest, total = [], [], "", 0
        for text, _ in blocks:
            digest = hashlib.sha256((digest + text).encode()).hexdigest()
            total += len(text)
            spots.append((key, body["model"], digest))
            ends.append(total)
        marks = [at for at, (_, lasts) in enumerate(blocks) if lasts is not None and ends[at] >= self.minimum]
        read_at = -1
        for mark in marks:
            for at in range(mark, max(-1, mark - LOOKBACK), -1):
                if self._alive(spots[at]):
                    read_at = max(read_at, at)
                    break
        read = ends[read_at] if read_at >= 0 else 0
        at, written, hour = read, 0, 0
        for mark in marks:
            lasts = blocks[mark][1] or "5m"
            if mark > read_at:
                written += ends[mark] - at
                hour += ends[mark] - at if lasts == "1h" else 0
                at = ends[mark]
                self._keep(spots[mark], _LASTS_MS[lasts])
        return Served(key, body["model"], total, read, written, hour)

    def _chat(self, key: str, body: dict[str, Any]) -> Served:
        parts = [body.get("tools"), body.get("reasoning_effort"), *body["messages"]]
        text = "".join(json.dumps(part, sort_keys=True) for part in parts)
        spots, digest = [], ""
        for at in range(0, len(text) - BLOCK + 1, BLOCK):
            digest = hashlib.sha256((digest + text[at : at + BLOCK]).encode()).hexdigest()
            spots.append((key, body["model"], digest))
        read = 0
        if len(text) >= self.minimum:
            while read < len(spots) and self._alive(spots[read]):
                read += 1
            for spot in spots[read:]:
                self._keep(spot, self.ttl_ms)
        read *= BLOCK
        return Served(key, body["model"], len(text), read if read >= self.minimum else 0, 0)


def _blocks(body: dict[str, Any]) -> Any:
    """The prompt in its order, as (text, for how long the prefix that ends here is to be kept)."""
    for tool in body.get("tools", ()):
        yield _block(tool)
    system = body.get("system", ())
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        yield _block(block)
    # How to think and to answer is a part of what is cached of the conversation, and not of tools and instructions.
    thinking = json.dumps([body.get("thinking"), body.get("output_config"), body.get("tool_choice")])
    spoken = [
        at
        for at, message in enumerate(body["messages"])
        if message["role"] == "user" and not all(block["type"] == "tool_result" for block in _content(message))
    ]
    compacted = [
        (at, place)
        for at, message in enumerate(body["messages"])
        for place, block in enumerate(_content(message))
        if block["type"] == "compaction"
    ]
    for at, message in enumerate(body["messages"]):
        for place, block in enumerate(_content(message)):
            if (block["type"] == "thinking" and at < spoken[-1]) or (compacted and (at, place) < compacted[-1]):
                continue
            text, lasts = _block(block)
            yield f"{message['role']}{thinking}{text}", lasts
            thinking = ""


def _content(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _block(block: dict[str, Any]) -> tuple[str, str | None]:
    mark = block.get("cache_control")
    text = json.dumps({name: value for name, value in block.items() if name != "cache_control"}, sort_keys=True)
    return text, mark.get("ttl", "5m") if mark else None


def _refusal() -> bytes:
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    headers = [("content-type", "application/json"), ("retry-after", "20")]
    return answer(json.dumps(error).encode(), status="429 Too Many Requests", headers=headers)


def _say_messages(served: Served, number: int, calls: int, before: list[dict[str, Any]], *, is_stream: bool) -> bytes:
    content: list[dict[str, Any]] = [*before, {"type": "text", "text": f"Answer {number}."}]
    content += [
        {"type": "tool_use", "id": f"toolu_{number}_{n}", "name": "read", "input": {"path": f"f{n}"}}
        for n in range(calls)
    ]
    usage = {
        "input_tokens": served.prompt - served.read - served.written,
        "cache_read_input_tokens": served.read,
        "cache_creation_input_tokens": served.written,
        "cache_creation": {
            "ephemeral_5m_input_tokens": served.written - served.written_1h,
            "ephemeral_1h_input_tokens": served.written_1h,
        },
        "output_tokens": 1,
    }
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": served.model}
    reason = "tool_use" if calls else "end_turn"
    if not is_stream:
        whole = message | {"content": content, "stop_reason": reason, "usage": usage | {"output_tokens": 20}}
        return answer(json.dumps(whole).encode(), headers=[("content-type", "application/json")])
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None, "usage": usage}}
    ]
    for index, block in enumerate(content):
        if block["type"] == "text":
            empty, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
        elif block["type"] == "thinking":
            empty, delta = block | {"thinking": ""}, {"type": "thinking_delta", "thinking": block["thinking"]}
        elif block["type"] == "compaction":
            empty, delta = block | {"content": None}, {"type": "compaction_delta", "content": block["content"]}
        else:
            empty = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        if block["type"] == "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            events[-2]["content_block"] = empty | {"signature": ""}
            events.append({"type": "content_block_delta", "index": index, "delta": signed})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 20}})
    events.append({"type": "message_stop"})
    sent = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    head = chunked_head(headers=[("content-type", "text/event-stream")])
    return head + b"".join(map(chunk, sent)) + LAST_CHUNK


def _say_chat(served: Served, number: int, calls: int, *, is_stream: bool, thinks: bool) -> bytes:
    assert not is_stream and not thinks, "the agents of this day ask in one piece here, and get no thoughts"
    message: dict[str, Any] = {"role": "assistant", "content": f"Answer {number}."}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{number}_{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            for n in range(calls)
        ]
    whole = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": served.model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {
            "prompt_tokens": served.prompt,
            "completion_tokens": 20,
            "total_tokens": served.prompt + 20,
            "prompt_tokens_details": {"cached_tokens": served.read},
        },
    }
    return answer(json.dumps(whole).encode(), headers=[("content-type", "application/json")])
