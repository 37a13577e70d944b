"""Agents of four formats, as they keep a conversation: all that an answer brought goes into the next request.

    agent = ChatAgent(gateway.port, "claude", stream=True)
    answer = await agent.turn()                     # asks, and answers the calls that came; `agent.said` grew
    while agent.is_calling: await agent.turn()

`key` is the client's own; `members` go into every request. What was refused leaves the conversation as it was.
"""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any, ClassVar

from tests.fakes.client import Answer, ask

TASK = "Task {}: read five files, one after the other, and tell me when you are done."
_numbers = itertools.count(1)  # no conversation begins as another one did
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


class Agent:
    PATH: ClassVar[str]

    def __init__(self, port: int, model: str, *, stream: bool, key: str | None = None, **members: Any) -> None:
        self.port, self.model, self.stream, self.key, self.members = port, model, stream, key, members
        self.history: list[dict[str, Any]] = [{"role": "user", "content": TASK.format(next(_numbers))}]
        self.said: list[str] = []
        self.is_calling = True

    async def turn(self) -> Answer:
        headers = [("authorization", f"Bearer {self.key}")] if self.key else []
        answer = await ask(self.port, self.path(), {**self.body(), **self.members}, headers=headers)
        if answer.status == 200:
            self.take(answer)
        return answer

    def path(self) -> str:
        return self.PATH

    def body(self) -> dict[str, Any]:
        raise NotImplementedError

    def take(self, answer: Answer) -> None:
        raise NotImplementedError

    def forget_plain_thoughts(self) -> None:
        """Keep of what was thought only what nobody can read."""
        raise NotImplementedError


class ChatAgent(Agent):
    """As pi and others that know OpenRouter's `reasoning_details`, and what Google adds to calls."""

    PATH = "/v1/chat/completions"

    def body(self) -> dict[str, Any]:
        tool = {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
        return {
            "model": self.model,
            "messages": self.history,
            "tools": [tool],
            "stream": self.stream,
            "reasoning_effort": "high",
        }

    def take(self, answer: Answer) -> None:
        message = self._streamed(answer) if self.stream else answer.json["choices"][0]["message"]
        kept = ("role", "content", "reasoning_content", "reasoning", "reasoning_details", "extra_content", "tool_calls")
        self.history.append({name: message[name] for name in kept if message.get(name) is not None})
        self.said.append(message.get("content") or "")
        calls = message.get("tool_calls") or []
        self.is_calling = bool(calls)
        self.history += [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]

    def forget_plain_thoughts(self) -> None:
        for message in self.history:
            message.pop("reasoning_content", None)
            message.pop("reasoning", None)

    def _streamed(self, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant"}
        calls: dict[int, dict[str, Any]] = {}
        for _, data in answer.events:
            if data == "[DONE]":
                break
            for choice in json.loads(data)["choices"]:
                delta = choice["delta"]
                for name in ("content", "reasoning_content", "reasoning"):
                    if delta.get(name):
                        message[name] = message.get(name, "") + delta[name]
                for one in delta.get("reasoning_details", ()):
                    self._detail(message.setdefault("reasoning_details", []), one)
                if "extra_content" in delta:
                    message["extra_content"] = delta["extra_content"]
                for place, one in enumerate(delta.get("tool_calls", ())):
                    fresh = {"type": "function", "id": one.get("id"), "function": {"name": "", "arguments": ""}}
                    call = calls.setdefault(one.get("index", place), fresh)
                    if "extra_content" in one:
                        call["extra_content"] = one["extra_content"]
                    for name, value in one.get("function", {}).items():
                        call["function"][name] += value
        if calls:
            message["tool_calls"] = list(calls.values())
        return message

    def _detail(self, details: list[dict[str, Any]], one: dict[str, Any]) -> None:
        """Slices of one detail are one, as OpenRouter's own SDK joins them."""
        last = details[-1] if details else {}
        if (last.get("type"), last.get("index")) != (one["type"], one.get("index")) or "data" in one:
            details.append(one)
            return
        for name, value in one.items():
            if value is not None:
                last[name] = last[name] + value if name in ("text", "summary") and last.get(name) else value


class MessagesAgent(Agent):
    """As Claude Code: blocks come back as they came."""

    PATH = "/v1/messages"

    def body(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "max_tokens": 8000,
            "messages": self.history,
            "tools": [{"name": "read", "input_schema": SCHEMA}],
            "stream": self.stream,
        }

    def take(self, answer: Answer) -> None:
        content = self._streamed(answer) if self.stream else answer.json["content"]
        self.history.append({"role": "assistant", "content": content})
        self.said.append("".join(block["text"] for block in content if block["type"] == "text"))
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        self.is_calling = bool(calls)
        results = [{"type": "tool_result", "tool_use_id": call, "content": "ok"} for call in calls]
        if results:
            self.history.append({"role": "user", "content": results})

    def forget_plain_thoughts(self) -> None:
        for turn in self.history:
            if turn["role"] == "assistant":
                turn["content"] = [block for block in turn["content"] if block["type"] != "thinking"]

    def _streamed(self, answer: Answer) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        for name, data in answer.events:
            event = json.loads(data)
            if name == "content_block_start":
                blocks.append(event["content_block"])
            elif name == "content_block_delta":
                delta = event["delta"]
                member = {
                    "text_delta": "text",
                    "thinking_delta": "thinking",
                    "signature_delta": "signature",
                    "input_json_delta": "partial_json",
                }[delta["type"]]
                blocks[-1][member] = blocks[-1].get(member, "") + delta[member]
        for block in blocks:
            if block["type"] == "tool_use":
                block["input"] = json.loads(block.pop("partial_json", "{}"))
        return blocks


class ResponsesAgent(Agent):
    """As Codex: nothing is stored, and every item comes back."""

    PATH = "/v1/responses"

    def body(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "input": self.history,
            "tools": [{"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}],
            "stream": self.stream,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "high", "summary": "auto"},
        }

    def take(self, answer: Answer) -> None:
        if self.stream:
            items = [json.loads(data)["item"] for name, data in answer.events if name == "response.output_item.done"]
            last = json.loads(answer.events[-1][1])["response"]["output"]
            assert items == last, "the items and the response at the end differ"
        else:
            items = answer.json["output"]
        # As Codex: what an item has not, it has as null.
        self.history += [{"encrypted_content": None, **one} if one["type"] == "reasoning" else one for one in items]
        texts = [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
        self.said.append("".join(texts))
        calls = [item["call_id"] for item in items if item["type"] == "function_call"]
        self.is_calling = bool(calls)
        self.history += [{"type": "function_call_output", "call_id": call, "output": "ok"} for call in calls]

    def forget_plain_thoughts(self) -> None:
        self.history = [item for item in self.history if item.get("type") != "reasoning" or not item["summary"]]


class GeminiAgent(Agent):
    """As Google's SDK keeps a chat: every part comes back as it came."""

    def __init__(self, port: int, model: str, *, stream: bool, key: str | None = None, **members: Any) -> None:
        super().__init__(port, model, stream=stream, key=key, **members)
        self.history = [{"role": "user", "parts": [{"text": self.history[0]["content"]}]}]

    def path(self) -> str:
        how = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
        return f"/v1beta/models/{self.model}:{how}"

    def body(self) -> dict[str, Any]:
        thinking = {"includeThoughts": True, "thinkingLevel": "high"}
        read = {"name": "read", "parameters": SCHEMA}
        return {
            "contents": self.history,
            "tools": [{"functionDeclarations": [read]}],
            "generationConfig": {"thinkingConfig": thinking},
        }

    def take(self, answer: Answer) -> None:
        told = [json.loads(data) for _, data in answer.events] if self.stream else [answer.json]
        parts = [part for one in told for part in one["candidates"][0].get("content", {}).get("parts", ())]
        self.history.append({"role": "model", "parts": parts})
        self.said.append("".join(one["text"] for one in parts if "text" in one and not one.get("thought")))
        calls = [one["functionCall"] for one in parts if "functionCall" in one]
        self.is_calling = bool(calls)
        answers = [{"name": one["name"], "response": {"output": "ok"}} for one in calls]
        ids = [{"id": one["id"]} if "id" in one else {} for one in calls]
        results = [{"functionResponse": {**id, **one}} for id, one in zip(ids, answers, strict=True)]
        if results:
            self.history.append({"role": "user", "parts": results})

    def forget_plain_thoughts(self) -> None:
        for turn in self.history:
            turn["parts"] = [part for part in turn["parts"] if not part.get("thought")]


class BareGeminiAgent(GeminiAgent):
    """As clients that keep less of it: the AI SDK's knows no ids of calls, Google's for Python writes signatures in the
    other alphabet of base64, gemini-cli drops thoughts, and texts that say nothing."""

    def take(self, answer: Answer) -> None:
        super().take(answer)
        for turn in self.history:
            turn["parts"] = [part for part in turn["parts"] if not part.get("thought") and part.get("text") != ""]
            for part in turn["parts"]:
                for name in ("functionCall", "functionResponse"):
                    part.get(name, {}).pop("id", None)
                if "thoughtSignature" in part:
                    raw = base64.b64decode(part["thoughtSignature"], altchars=b"-_")
                    part["thoughtSignature"] = base64.urlsafe_b64encode(raw).decode()
