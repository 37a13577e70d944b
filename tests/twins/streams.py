"""Streams as providers send them, and the story that a tap tells of one."""

from __future__ import annotations

import itertools
import json
from types import ModuleType
from typing import Any

from arbiter.errors import Garbled

ATTRIBUTES = (
    "boundary", "offset", "events", "pings", "text_bytes", "thinking_bytes", "argument_bytes", "finish", "finished",
    "done", "errored", "tool_names", "response_id", "model",
)  # fmt: skip
USAGE = {"ChatTap": ("usage", "service_tier", "fingerprint"),
         "MessagesTap": ("usage_start", "usage_delta", "cleared_tokens", "compacted"),
         "ResponsesTap": ("usage", "service_tier", "created_s", "compacted"),
         "GeminiTap": ("usage",)}  # fmt: skip
KINDS = ("USAGE_ONLY", "FINISH", "DONE", "ERROR", "CLASH", "AFTER_FINISH", "FOREIGN", "MALFORMED", "START", "RESTART",
         "EXCESS")  # fmt: skip


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def chat(*choices: dict[str, Any], **members: Any) -> str:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "m-1"}
    return f"data: {compact({**head, 'choices': list(choices), **members})}\n\n"


def delta(index: int = 0, finish: str | None = None, **members: Any) -> dict[str, Any]:
    return {"index": index, "delta": members, "logprobs": None, "finish_reason": finish}


def call(index: int | None, ident: str | None = None, name: str | None = None, arguments: Any = "") -> dict[str, Any]:
    fragment: dict[str, Any] = {} if index is None else {"index": index}
    if ident is not None:
        fragment |= {"id": ident, "type": "function"}
    return {**fragment, "function": {"arguments": arguments} | ({"name": name} if name else {})}


def event(kind: str, **members: Any) -> str:
    return f"event: {kind}\ndata: {compact({'type': kind, **members})}\n\n"


def block(index: int = 0, **members: Any) -> str:
    return event("content_block_delta", index=index, delta=members)


def item(index: int = 0, done: bool = False, **members: Any) -> str:
    """The beginning, or the end, of an item of a Responses answer."""
    return event(f"response.output_item.{'done' if done else 'added'}", output_index=index, item=members)


def said(kind: str, delta: Any, **members: Any) -> str:
    return event(f"response.{kind}.delta", item_id="i", output_index=0, delta=delta, **members)


def response(kind: str, **members: Any) -> str:
    head = {"id": "resp_1", "object": "response", "status": kind, "model": "m-3", "output": [], "error": None}
    return event(f"response.{kind}", sequence_number=0, response={**head, **members})


TOKENS = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
DONE = "data: [DONE]\n\n"
CHAT = "".join(
    [
        ": OPENROUTER PROCESSING\n\n",
        chat(delta(role="assistant", content=""), usage=None),
        chat(delta(reasoning="Hmm, "), usage=None),
        chat(delta(content="Grüße, "), usage=None, obfuscation="aGVsbG8"),
        chat(delta(content='"usage":{"prompt_tokens":1},"finish_reason":"stop" \n🌍'), usage=None),
        chat(delta(tool_calls=[call(0, "call_a", "read_file")]), usage=None),
        chat(delta(tool_calls=[call(0, arguments='{"path":')]), usage=None),
        chat(delta(tool_calls=[call(0, arguments='"/tmp"}')]), usage=None),
        chat(delta(finish="tool_calls"), usage=None),
        chat(usage=TOKENS),
        DONE,
    ]
)
MESSAGES = "".join(
    [
        event(
            "message_start",
            message={"id": "msg_1", "model": "m-2", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}},
        ),
        event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
        event("ping"),
        block(type="thinking_delta", thinking="Hmm, "),
        block(type="signature_delta", signature="EqQBCgIYAhIM"),
        event("content_block_stop", index=0),
        event("content_block_start", index=1, content_block={"type": "text", "text": ""}),
        block(1, type="text_delta", text='Grüße 🌍\n"stop_reason":"x"'),
        event("content_block_stop", index=1),
        event("content_block_start", index=2, content_block={"type": "tool_use", "id": "t", "name": "ls", "input": {}}),
        block(2, type="input_json_delta", partial_json='{"path":"/"}'),
        event("content_block_stop", index=2),
        event("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 15}),
        event("message_stop"),
    ]
)


def rest(reader: Any) -> list[tuple[bytes, bytes]]:
    """Every event that a reader still has of what it was given."""
    return list(iter(reader.next, None))


def fed(reader: Any, data: bytes) -> list[tuple[bytes, bytes]]:
    """Every event that `data` completed."""
    reader.open(data)
    return rest(reader)


def ended(reader: Any) -> list[tuple[bytes, bytes]]:
    """The last event of a stream, if it came without its blank line."""
    reader.end()
    return rest(reader)


class Story:
    """What a tap told about a stream."""

    def __init__(
        self, module: ModuleType, tap: str, stream: str | bytes, cuts: list[int] | None = None, limit: int = 1 << 20
    ):
        data = stream.encode() if isinstance(stream, str) else stream
        names = {getattr(module, kind): kind for kind in KINDS}
        self.tap = getattr(module, tap)(limit)
        self.marks: list[tuple[str, int, int, bytes]] = []
        self.fault: str | None = None
        self.boundaries: list[int] = []
        marks: list[Any] = []
        at = [0, *sorted(min(cut, len(data)) for cut in cuts or []), len(data)]
        try:
            for a, b in itertools.pairwise(at):
                marks += self.tap.feed(data[a:b])
                self.boundaries.append(self.tap.boundary)
            marks += self.tap.end()
            marks += self.tap.end()
        except Garbled as error:
            self.fault = str(error)
        self.marks = [(names[kind], start, end, payload) for kind, start, end, payload in marks]
        self.kinds = [mark[0] for mark in self.marks]
        self.facts = {name: getattr(self.tap, name) for name in ATTRIBUTES + USAGE[tap]}
        if self.fault is not None:
            del self.facts["offset"]  # how much was fed when the fault showed depends on the cuts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Story) and (self.marks, self.fault, self.facts) == (
            other.marks,
            other.fault,
            other.facts,
        )

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"{self.marks} {self.fault} {self.facts}"


SPENT = {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5, "total_tokens": 25}
RESPONSES = "".join(
    [
        response("created", service_tier="auto"),
        response("in_progress", service_tier="auto"),
        item(0, id="rs_1", type="reasoning", summary=[]),
        event("response.reasoning_summary_part.added", part={"type": "summary_text", "text": ""}),
        said("reasoning_summary_text", "Hmm, ", obfuscation="aGVsbG8"),
        event("response.reasoning_summary_text.done", text="Hmm, "),
        item(0, True, id="rs_1", type="reasoning", summary=[{"type": "summary_text", "text": "Hmm, "}]),
        item(1, id="msg_1", type="message", role="assistant", content=[]),
        event("response.content_part.added", part={"type": "output_text", "text": "", "annotations": []}),
        said("output_text", 'Grüße 🌍\n"type":"response.completed"', logprobs=[]),
        event("response.output_text.done", text='Grüße 🌍\n"type":"response.completed"'),
        event("response.content_part.done", part={"type": "output_text", "text": "Grüße"}),
        item(1, True, id="msg_1", type="message", content=[{"type": "output_text", "text": "Grüße"}]),
        item(2, id="fc_1", type="function_call", call_id="call_1", name="ls", arguments=""),
        said("function_call_arguments", '{"path":'),
        said("function_call_arguments", '"/"}'),
        event("response.function_call_arguments.done", arguments='{"path":"/"}'),
        item(2, True, id="fc_1", type="function_call", call_id="call_1", name="ls", arguments='{"path":"/"}'),
        response("completed", usage=SPENT, service_tier="default"),
    ]
)
