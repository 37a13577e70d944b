"""The formats as flow tests speak them: what a client asks, what an upstream says, what an error looks like.

    @pytest.mark.parametrize("wire", WIRES, ids=str)
    def test_something(front, wire):
        async def main():
            async with Origin(sse(*wire.events("hello")), port=front.upstream):
                answer = await ask(front.port, wire.path, wire.ask(stream=True))

`config(port)` is the configuration with one provider per format, both at `port` of this host.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .client import Answer, events_of
from .gateway import ADMIN, Gateway, free_port
from .origin import LAST_CHUNK, chunk, chunked_head

UPSTREAM_KEY = "sk-the-key-of-the-upstream"
EVENT_STREAM = ("content-type", "text/event-stream")
JSON = ("content-type", "application/json")


@dataclass(frozen=True)
class Wire:
    """One format. `path` is its endpoint, `model` what clients ask for, `terminal` what only a whole stream holds."""

    name: str
    path: str
    upstream_path: str
    model: str
    terminal: bytes
    keepalive: bytes

    def __str__(self) -> str:
        return self.name

    def ask(self, text: str = "hello", *, stream: bool = False, **members: Any) -> dict[str, Any]:
        """A request's body."""
        raise NotImplementedError

    def events(self, *texts: str, usage: bool = True) -> list[bytes]:
        """The events of a whole stream that says `texts`, one delta each."""
        raise NotImplementedError

    def opening(self, *texts: str) -> list[bytes]:
        """The events of a stream that has said `texts` and could go on."""
        said = self.events(*texts)
        return said[: len(said) - len(self.events()) + (1 if self is CHAT else 2)]

    def without_keepalives(self, body: bytes) -> bytes:
        """A client's stream without what fills its silences; inside of an event that would be none, and would stay."""
        blocks = body.split(b"\n\n")
        return b"\n\n".join(block for block in blocks if block + b"\n\n" != self.keepalive)

    def answer(self, text: str = "hello") -> bytes:
        """The body of a whole answer."""
        raise NotImplementedError

    def error_event(self, message: str) -> bytes:
        """An error as an upstream reports it inside its stream."""
        raise NotImplementedError

    def text(self, body: bytes) -> str:
        """What a client's stream says."""
        raise NotImplementedError

    def told(self, answer: Answer) -> str | None:
        """The message of the error event that ends a client's stream; None if it does not end with one."""
        raise NotImplementedError

    def complaint(self, answer: Answer) -> str:
        """The message of an error body, which must have the format's own shape."""
        raise NotImplementedError


class Chat(Wire):
    def ask(self, text: str = "hello", *, stream: bool = False, **members: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": text}]}
        return {**body, "stream": True, **members} if stream else {**body, **members}

    def events(self, *texts: str, usage: bool = True) -> list[bytes]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
        found = [self._chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
        found.append(self._chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
        if usage:
            found.append(self._chunk([], usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}))
        return [*found, b"data: [DONE]\n\n"]

    def _chunk(self, choices: list[dict[str, Any]], **members: Any) -> bytes:
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "served"}
        return b"data: " + json.dumps({**chunk, "choices": choices, **members}).encode() + b"\n\n"

    def answer(self, text: str = "hello") -> bytes:
        message = {"role": "assistant", "content": text}
        return json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "served",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
            }
        ).encode()

    def error_event(self, message: str) -> bytes:
        return b"data: " + json.dumps({"error": {"message": message, "type": "server_error"}}).encode() + b"\n\n"

    def text(self, body: bytes) -> str:
        said = ""
        for _, data in events_of(body):
            chunk = json.loads(data) if data != "[DONE]" else {}
            said += "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ()))
        return said

    def told(self, answer: Answer) -> str | None:
        if not answer.events or not answer.events[-1][1].startswith("{"):
            return None
        error = json.loads(answer.events[-1][1]).get("error")
        return None if error is None else str(error["message"])

    def complaint(self, answer: Answer) -> str:
        assert answer.header("content-type") == "application/json"
        error = answer.json["error"]
        assert {"message", "type", "param", "code"} <= set(error), error
        assert isinstance(error["message"], str)
        return str(error["message"])


class Messages(Wire):
    def ask(self, text: str = "hello", *, stream: bool = False, **members: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
        return {**body, "stream": True, **members} if stream else {**body, **members}

    def events(self, *texts: str, usage: bool = True) -> list[bytes]:
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "served", "content": []}
        begun = {**message, "stop_reason": None, "stop_sequence": None}
        if usage:
            begun["usage"] = {"input_tokens": 7, "output_tokens": 1}
        end: dict[str, Any] = {"delta": {"stop_reason": "end_turn", "stop_sequence": None}}
        if usage:
            end["usage"] = {"output_tokens": 3}
        return [
            self._event("message_start", message=begun),
            self._event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            *(self._event("content_block_delta", index=0, delta={"type": "text_delta", "text": t}) for t in texts),
            self._event("content_block_stop", index=0),
            self._event("message_delta", **end),
            self._event("message_stop"),
        ]

    def _event(self, kind: str, **members: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()

    def answer(self, text: str = "hello") -> bytes:
        return json.dumps(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "served",
                "content": [{"type": "text", "text": text}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 7, "output_tokens": 3},
            }
        ).encode()

    def error_event(self, message: str) -> bytes:
        return self._event("error", error={"type": "api_error", "message": message})

    def text(self, body: bytes) -> str:
        found = [json.loads(data) for name, data in events_of(body) if name == "content_block_delta"]
        return "".join(event["delta"]["text"] for event in found)

    def told(self, answer: Answer) -> str | None:
        if not answer.events or answer.events[-1][0] != "error":
            return None
        event = json.loads(answer.events[-1][1])
        assert event["type"] == "error"
        return str(event["error"]["message"])

    def complaint(self, answer: Answer) -> str:
        assert answer.header("content-type") == "application/json"
        body = answer.json
        assert body["type"] == "error", body
        assert isinstance(body["error"]["type"], str)
        return str(body["error"]["message"])


class Responses(Wire):
    def ask(self, text: str = "hello", *, stream: bool = False, **members: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "input": [{"role": "user", "content": text}]}
        return {**body, "stream": True, **members} if stream else {**body, **members}

    def events(self, *texts: str, usage: bool = True) -> list[bytes]:
        item = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
        return [
            self._event("created", response=self._response("in_progress")),
            self._event("output_item.added", output_index=0, item=item),
            *(self._event("output_text.delta", item_id="msg_1", delta=text) for text in texts),
            self._event("output_item.done", output_index=0, item={**item, "content": self._content("".join(texts))}),
            self._event("completed", response=self._response("completed", "".join(texts), usage=usage)),
        ]

    def _event(self, kind: str, **members: Any) -> bytes:
        return f"event: response.{kind}\ndata: {json.dumps({'type': f'response.{kind}', **members})}\n\n".encode()

    def _content(self, text: str) -> list[dict[str, Any]]:
        return [{"type": "output_text", "text": text, "annotations": []}]

    def _response(self, status: str, text: str | None = None, *, usage: bool = False) -> dict[str, Any]:
        said = {"id": "msg_1", "type": "message", "role": "assistant", "status": status}
        response: dict[str, Any] = {"id": "resp_1", "object": "response", "created_at": 1, "model": "served"}
        response |= {"status": status, "error": None, "incomplete_details": None}
        response["output"] = [{**said, "content": self._content(text)}] if text is not None else []
        if usage:
            response["usage"] = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        return response

    def answer(self, text: str = "hello") -> bytes:
        return json.dumps(self._response("completed", text, usage=True)).encode()

    def error_event(self, message: str) -> bytes:
        error = {"code": "server_error", "message": message}
        return self._event("failed", response={**self._response("failed"), "error": error})

    def text(self, body: bytes) -> str:
        found = [json.loads(data) for _, data in events_of(body) if data.startswith("{")]
        return "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")

    def told(self, answer: Answer) -> str | None:
        """Either event that ends a failed stream."""
        event = json.loads(answer.events[-1][1]) if answer.events else {"type": ""}
        if event["type"] == "response.failed":
            return str(event["response"]["error"]["message"])
        return str(event["message"]) if event["type"] == "error" else None

    def complaint(self, answer: Answer) -> str:
        return CHAT.complaint(answer)


CHAT = Chat("chat", "/v1/chat/completions", "/v1/chat/completions", "chat-model", b"data: [DONE]", b": keepalive\n\n")
MESSAGES = Messages(
    "messages",
    "/v1/messages",
    "/v1/messages",
    "messages-model",
    b"message_stop",
    b'event: ping\ndata: {"type":"ping"}\n\n',
)
RESPONSES = Responses(
    "responses", "/v1/responses", "/v1/responses", "responses-model", b"response.completed", b": keepalive\n\n"
)
WIRES: tuple[Wire, ...] = (CHAT, MESSAGES, RESPONSES)


class Gemini(Wire):
    """Google's: the model and whether it streams are in the path, so it has one for each (`at`)."""

    def at(self, model: str = "", *, stream: bool = False, query: str = "alt=sse") -> str:
        method = f"streamGenerateContent?{query}".rstrip("?") if stream else "generateContent"
        return f"/v1beta/models/{model or self.model}:{method}"

    def ask(self, text: str = "hello", *, stream: bool = False, **members: Any) -> dict[str, Any]:
        return {"contents": [{"role": "user", "parts": [{"text": text}]}], **members}

    def events(self, *texts: str, usage: bool = True) -> list[bytes]:
        found = [self._chunk([{"text": text}]) for text in texts]
        told = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
        return [*found, self._chunk([{"text": ""}], "STOP", **({"usageMetadata": told} if usage else {}))]

    def _chunk(self, parts: list[dict[str, Any]], reason: str | None = None, **members: Any) -> bytes:
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if reason is not None:
            candidate["finishReason"] = reason
        chunk = {"candidates": [candidate], **members, "modelVersion": "served", "responseId": "r-1"}
        return b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n"

    def answer(self, text: str = "hello") -> bytes:
        told = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
        return self._chunk([{"text": text}], "STOP", usageMetadata=told)[6:]

    def error_event(self, message: str) -> bytes:
        error = {"code": 503, "message": message, "status": "UNAVAILABLE"}
        return b"data: " + json.dumps({"error": error}).encode() + b"\r\n\r\n"

    def text(self, body: bytes) -> str:
        said = [json.loads(data) for _, data in events_of(body)]
        parts = [part for one in said for candidate in one["candidates"] for part in candidate["content"]["parts"]]
        return "".join(part.get("text", "") for part in parts)

    def told(self, answer: Answer) -> str | None:
        error = json.loads(answer.events[-1][1]).get("error") if answer.events else None
        return None if error is None else str(error["message"])

    def complaint(self, answer: Answer) -> str:
        assert answer.header("content-type") == "application/json"
        error = answer.json["error"]
        assert error["code"] == answer.status and isinstance(error["status"], str), error
        return str(error["message"])


GEMINI = Gemini("gemini", "", "", "gemini-model", b'"finishReason"', b"")


def config(upstream_port: int, *, provider: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    """An `arbiter.yaml`: one provider per format at `upstream_port`, with what `provider` adds, and echo.

    One attempt a request, unless `provider` says otherwise: what becomes of further ones has tests of its own.
    """
    at = f"http://127.0.0.1:{upstream_port}"
    more = {"key": UPSTREAM_KEY, "retry": {"attempts": 1}, **(provider or {})}
    providers = {
        "chat": {
            **{"type": "openai", "endpoint": f"{at}/v1", "models": ["chat-model"], "responses_api": "transcode"},
            **more,
        },
        "messages": {"type": "anthropic", "endpoint": at, "models": ["messages-model"], **more},
        "responses": {
            **{"type": "openai", "endpoint": f"{at}/v1", "models": ["responses-model"], "responses_api": "native"},
            **more,
        },
        "gemini": {"type": "gemini", "endpoint": at, "models": ["gemini-model", "gemini-3-pro"], **more},
        "echo": {"type": "echo", "models": ["echo"]},
    }
    return {"providers": providers, **sections}


class Front(Gateway):
    """A gateway whose providers are all at `upstream`, a port where each test runs an upstream of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        gateway: dict[str, Any] | None = None,
        provider: dict[str, Any] | None = None,
        **sections: Any,
    ) -> None:
        self.upstream = free_port()
        super().__init__(config(self.upstream, provider=provider, **sections), folder, **(gateway or {}))

    def forget(self) -> None:
        """Forget what a test's upstream asked for: the next test's is another one, at the same address."""
        self.get("/admin/cooldowns/clear", method="POST", headers=ADMIN)


def sse_head(*headers: tuple[str, str]) -> bytes:
    """The head of an upstream's stream."""
    return chunked_head(headers=(EVENT_STREAM, *headers))


def sse(*events: bytes, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """A whole streamed answer of an upstream, one chunk per event."""
    return sse_head(*headers) + b"".join(map(chunk, events)) + LAST_CHUNK


def begun(*events: bytes) -> bytes:
    """A streamed answer as far as `events`, and no end of it."""
    return sse_head() + b"".join(map(chunk, events))
