"""OpenAI Responses answers, outwards: `Answer` -> the response object; and what streams share of it.

A response repeats what was asked. Settings are repeated as the client wrote them; what it left out has the vendor's
defaults. The tier is not among them: whether another vendor has it, and gave it, nobody knows.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from arbiter import _speedups
from arbiter.model import STOP, TOOL_CALLS, Answer, Finish, Refusal, SealedThinking, Text, Thinking, ToolCall, Usage
from arbiter.wire.answers import usage_reader
from arbiter.wire.bound_responses import OWN_ANSWER
from arbiter.wire.json import ABSENT, NO_MEMBERS, Members, encode, one_line
from arbiter.wire.responses_parse import namespaces
from arbiter.wire.span import BLANK, Span

COMPLETED, INCOMPLETE = "completed", "incomplete"

REASONS = {  # why an answer is incomplete
    Finish.LENGTH: "max_output_tokens",
    Finish.CONTEXT_WINDOW: "max_output_tokens",
    Finish.CONTENT_FILTER: "content_filter",
}
_FINISH_IN = {"max_output_tokens": Finish.LENGTH, "content_filter": Finish.CONTENT_FILTER}


def finish_of(word: str, has_calls: bool) -> Finish:
    """Return what the status of a response, or the reason why it is incomplete, means."""
    return _FINISH_IN.get(word, TOOL_CALLS if has_calls else STOP)


def status_of(finish: Finish) -> str:
    return INCOMPLETE if finish in REASONS else COMPLETED


def status_of_call(finish: str, arguments: str | None, *, is_last: bool) -> str:
    """Return the status of a call in an answer that ended with the status `finish`; None for `arguments` that are free
    text, of which nobody can tell where they end.

    A call is cut where its arguments are; and where it has none, or free text, if nothing came behind it.
    """
    if arguments is None or arguments.strip(BLANK) in ("", "{}"):
        is_cut = is_last
    else:
        span = Span()
        span.feed(arguments)
        is_cut = not span.whole
    return finish if is_cut else COMPLETED


read_usage = usage_reader(_speedups.usage.responses)


def write_usage(usage: Usage | None) -> dict[str, Any]:
    """Return usage as this format counts: the input includes what was cached. A number it demands is 0 if unknown."""
    usage = usage or Usage()
    read, output = usage.all_input() or 0, usage.output or 0
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read or 0,
            "cache_write_tokens": usage.cache_write or 0,
        },
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.total if usage.total is not None else read + output,
    }


_REPEATED: dict[str, Any] = {  # in this order, with what a member is where the client left it out
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}
_NULLABLE = frozenset(name for name, default in _REPEATED.items() if default is None)
_IF_SAID = ("prompt_cache_key", "safety_identifier", "user")


class Head:
    """The response object of one answer, but for what comes of it: its status, its output and its usage."""

    def __init__(self, trace_id: str, model: str, created_s: int, asked: Members, *, id: str | None = None) -> None:
        self._first = {"id": id or f"{OWN_ANSWER}{trace_id}", "object": "response", "created_at": created_s}
        self._model = model
        repeated = dict(_REPEATED)
        for name, raw in asked.items():
            if name in _REPEATED:
                repeated[name] = _repeated(name, bytes(raw))
        for name in _IF_SAID:
            if name in asked and bytes(asked[name]) != b"null":
                repeated[name] = asked[name]
        self._repeated = one_line(encode(repeated)[1:-1])

    def build(
        self,
        status: str,
        output: bytes,
        *,
        finish: Finish | None = None,
        usage: Usage | None = None,
        error: dict[str, Any] | None = None,
    ) -> bytes:
        """Return the whole of it as JSON; `output` is the inside of the list of its items."""
        reason = REASONS.get(finish) if finish is not None else None
        ahead = {
            **self._first,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": reason} if reason is not None else None,
            "model": self._model,
        }
        # An answer that ended without it is none to the AI SDK, which asks again and again.
        is_told = status in (COMPLETED, INCOMPLETE) or (usage is not None and usage.is_stated)
        ending = b",%b" % encode({"usage": write_usage(usage)})[1:] if is_told else b"}"
        return b'%b,%b,"output":[%b]%b' % (encode(ahead)[:-1], self._repeated, output, ending)


def _repeated(name: str, raw: bytes) -> Any:
    if not raw or (raw == b"null" and name not in _NULLABLE):
        return _REPEATED[name]
    if name == "tools":
        return [_repeated_tool(one, tool) for one, tool in zip(_RAWS.decode(raw), _TOOLS.decode(raw), strict=True)]
    return Raw(raw)


class _Tool(msgspec.Struct):
    type: str = ""
    strict: Raw = ABSENT
    parameters: Raw = ABSENT


_RAWS = msgspec.json.Decoder(list[Raw])
_TOOLS = msgspec.json.Decoder(list[_Tool])


def _repeated_tool(raw: Raw, tool: _Tool) -> Raw:
    """Return a tool as the vendor repeats it: a function says whether it is strict, and what it takes."""
    if tool.type != "function" or (tool.parameters is not ABSENT and tool.strict is not ABSENT):
        return raw
    missing = b',"parameters":null' if tool.parameters is ABSENT else b""
    if tool.strict is ABSENT:
        missing += b',"strict":true'
    return Raw(b"%b%b}" % (bytes(raw).rstrip()[:-1].rstrip(), missing))


# --- Items ------------------------------------------------------------------------------------------------------------


class Names:
    """The names of items and of what was called in them, in one answer."""

    def __init__(self, trace_id: str, asked: Members) -> None:
        self._trace_id = trace_id
        self._asked = asked
        self._namespaces: dict[str, tuple[str, str]] | None = None  # looked up for the first call

    def id(self, kind: str, place: int) -> str:
        """Return the id of the item at a place of the output. It is never used twice (SPEC 2.7)."""
        return f"{kind}_{self._trace_id}_{place}"

    def call(self, name: str) -> dict[str, str]:
        """Return how a call names its tool."""
        if self._namespaces is None:
            self._namespaces = namespaces(self._asked)
        found = self._namespaces.get(name)
        return {"name": name} if found is None else {"namespace": found[0], "name": found[1]}


MESSAGE, CALL, FREE_CALL, REASONING = "msg", "fc", "ctc", "rs"
"""How the ids of items begin, by what they are."""


def text_part(text: Any, logprobs: list[Raw] | None = None) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs or []}


def refusal_part(text: Any) -> dict[str, Any]:
    return {"type": "refusal", "refusal": text}


def summary_part(text: Any) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def message_item(id: str, status: str, content: list[Any]) -> dict[str, Any]:
    return {"id": id, "type": "message", "status": status, "role": "assistant", "content": content}


def reasoning_item(id: str, summary: list[Any], sealed: str | None = None) -> dict[str, Any]:
    item = {"id": id, "type": "reasoning", "summary": summary}
    return item if sealed is None else {**item, "encrypted_content": sealed}


def call_item(id: str, status: str, call_id: str, named: dict[str, str], arguments: Any) -> dict[str, Any]:
    called = {"id": id, "type": "function_call", "status": status, "call_id": call_id}
    return {**called, **named, "arguments": arguments}


def free_call_item(id: str, status: str, call_id: str, named: dict[str, str], input: Any) -> dict[str, Any]:
    called = {"id": id, "type": "custom_tool_call", "status": status, "call_id": call_id}
    return {**called, **named, "input": input}


class _Logprobs(msgspec.Struct):
    content: list[Raw] | None = None


_LOGPROBS = msgspec.json.Decoder(_Logprobs)


def read_logprobs(raw: bytes) -> bytes | None:
    """Return log probabilities in the neutral shape, which is a chat's, in one line; None where there are none."""
    return b'{"content":%b,"refusal":null}' % one_line(raw) if raw[:1] == b"[" and raw.strip() != b"[]" else None


def write_logprobs(raw: bytes) -> list[Raw]:
    """Return neutral log probabilities as this format has them."""
    return _LOGPROBS.decode(raw).content or []


def write_answer(answer: Answer, trace_id: str, model: str, created_s: int, *, asked: Members = NO_MEMBERS) -> bytes:
    """Return the unary body for a client; `model` stands in where the upstream named none.

    Its id is built from `trace_id` (SPEC 1.4), so it is never used twice.
    """
    finish = answer.finish or STOP
    status = status_of(finish)
    names = Names(trace_id, asked)
    logprobs = [one for raw in answer.logprobs for one in write_logprobs(raw)]
    items: list[dict[str, Any]] = []
    calls: dict[int, ToolCall] = {}  # by place
    for part in answer.parts:
        place = len(items)
        if type(part) is Text or type(part) is Refusal:
            said = refusal_part(part.text) if type(part) is Refusal else text_part(part.text, logprobs)
            if type(part) is Text:
                logprobs = []
            if items and items[-1]["type"] == "message":
                items[-1]["content"].append(said)
            else:
                items.append(message_item(names.id(MESSAGE, place), COMPLETED, [said]))
        elif type(part) is Thinking:
            if part.text:
                items.append(reasoning_item(names.id(REASONING, place), [summary_part(part.text)]))
        elif type(part) is SealedThinking:
            items.append(reasoning_item(names.id(REASONING, place), [], part.item))
        elif type(part) is ToolCall:
            named, calls[place] = names.call(part.name), part
            if part.is_free:
                items.append(free_call_item(names.id(FREE_CALL, place), COMPLETED, part.id, named, part.arguments))
            else:
                items.append(call_item(names.id(CALL, place), COMPLETED, part.id, named, part.arguments))
    if items and items[-1]["type"] == "message":
        items[-1]["status"] = status
    for place, call in calls.items():
        arguments = None if call.is_free else call.arguments
        items[place]["status"] = status_of_call(status, arguments, is_last=place == len(items) - 1)
    head = Head(trace_id, answer.model or model, created_s, asked)
    return head.build(status, encode(items)[1:-1], finish=finish, usage=answer.usage)
