"""Upstreams that think before a call, and refuse a conversation that does not bring their thoughts back as they were.

    claude = Claude()                                       # .url, .port; .bodies: what it was asked
    async with Origin(claude.script, port=claude.port): ...

Each works off an errand of `STEPS` calls and then says `DONE`. What it thought is new every time; what it is asked next
must hold every thought of its own, byte for byte and where it stood, or it answers 400 as the vendor does:

- `Claude`: Anthropic Messages. A signature that it did not make, or made for other words; a call of its own without its
  thought in front; with a thinking budget, any call of an open tool loop without one. What `same_as` made is its own:
  signatures are good wherever a model of Anthropic's is at home. Behind `fakes.bedrock` it streams as AWS does.
- `DeepSeek`: OpenAI Chat. A turn with calls without `reasoning_content`, or with another than it had; members that it
  does not know.
- `Gpt`: OpenAI Responses. Encrypted reasoning of another account; a call of its own without its reasoning in front;
  reasoning that is not encrypted; a request that does not ask for it to be.
- `Router`: OpenAI Chat as OpenRouter has it: a turn with calls without the `reasoning_details` that it had, one by one;
  members that it does not know. It thinks in turn as a Claude (signed text), as OpenAI (a summary, then encrypted text)
  and as Gemini (encrypted, beside the call).
- `Compat`: Gemini in OpenAI's format: a call of its own without the `extra_content` that it came with; members that it
  does not know.
- `Gem`: Gemini. A call of its own without the signature that it came with; a signature that it did not make, but for
  the word that Google takes for calls of others.

`down` makes one answer 503. With `says` it tells something beside its calls.
"""

from __future__ import annotations

import itertools
import json
from typing import Any, ClassVar

from tests.fakes import eventstream
from tests.fakes.bedrock import STREAM_TYPE
from tests.fakes.gateway import free_port
from tests.fakes.origin import LAST_CHUNK, Peer, Request, answer, chunk, chunked_head

STEPS = 5
DONE = "All five are done."
_HEAD = chunked_head(headers=[("content-type", "text/event-stream")])
_FRAMED_HEAD = chunked_head(headers=[STREAM_TYPE])
_JSON = ("content-type", "application/json")


class Refused(Exception):
    """A 400 in the vendor's words."""


class Thinker:
    """What they have in common. `minted` is what it thought, by the id of the call that followed. One that `insists`
    wants it back also where its vendor would do without."""

    PREFIX: ClassVar[str]
    insists = True

    def __init__(self, *, says: bool = True) -> None:
        self.port = free_port()
        self.bodies: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.says = says
        self.down = False
        self.minted: dict[str, Any] = {}
        self._numbers = itertools.count(1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def script(self, peer: Peer, request: Request) -> None:
        if self.down:
            await peer.send(answer(b'{"error":{"message":"no room"}}', status="503 Busy", headers=[_JSON]))
            return
        body = json.loads(request.body)
        self.bodies.append(body)
        account = request.header("authorization") or request.header("x-api-key") or ""
        try:
            done = self.judge(body, account)
        except Refused as refusal:
            self.refusals.append(str(refusal))
            status, told = self.refusal(str(refusal))
            await peer.send(answer(json.dumps(told).encode(), status=status, headers=[_JSON]))
            return
        number = next(self._numbers)
        thought = f'{self.PREFIX} thought {number}:\n"quoted", \\ and — 思考 🧠'
        text = (DONE if done >= STEPS else f"Step {done + 1}.") if self.says or done >= STEPS else ""
        call = None if done >= STEPS else f"{self.PREFIX}_call_{number}"
        is_framed = request.target.endswith(("/invoke-with-response-stream", "/converse-stream"))
        is_stream = body.get("stream") or ":streamGenerateContent" in request.target or is_framed
        pieces = self.stream(thought, text, call, account) if is_stream else None
        if pieces is None:
            whole = json.dumps(self.whole(thought, text, call, account)).encode()
            await peer.send(answer(whole, headers=[_JSON]))
        elif is_framed:
            await peer.send(_FRAMED_HEAD + b"".join(chunk(self.frame(piece)) for piece in pieces) + LAST_CHUNK)
        else:
            await peer.send(_HEAD + b"".join(chunk(piece) for piece in pieces) + LAST_CHUNK)

    def judge(self, body: dict[str, Any], account: str) -> int:
        """How many calls of the errand are done. Errors: Refused."""
        raise NotImplementedError

    def stream(self, thought: str, text: str, call: str | None, account: str) -> list[bytes]:
        raise NotImplementedError

    def whole(self, thought: str, text: str, call: str | None, account: str) -> dict[str, Any]:
        raise NotImplementedError

    def frame(self, event: bytes) -> bytes:
        """One event of its own stream as Bedrock frames it."""
        return eventstream.chunk(event.split(b"data: ", 1)[1].strip())

    def refusal(self, message: str) -> tuple[str, dict[str, Any]]:
        """The status and the body of what it says to a request that it does not take."""
        return "400 Bad", {"error": {"type": "invalid_request_error", "message": message}, "type": "error"}

    def has_made(self, call: str) -> bool:
        return call in self.minted


def _slices(text: str) -> list[str]:
    return [text[start : start + 7] for start in range(0, len(text), 7)]


def _event(**data: Any) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


ARGUMENTS = ['{"path": ', '"a.txt"', "}"]


class Claude(Thinker):
    """With adaptive thinking Anthropic takes a call without its thought, too: as this one does where it is lenient."""

    PREFIX = "claude"

    def __init__(self, *, says: bool = True, same_as: Claude | None = None) -> None:
        super().__init__(says=says)
        if same_as is not None:
            self.minted, self._numbers = same_as.minted, same_as._numbers

    def _blocks(self, thought: str, call: str | None) -> list[dict[str, Any]]:
        number = len(self.minted) + 1
        blocks = [
            {"type": "thinking", "thinking": thought, "signature": f"sig-{number}+/=" + "x" * 300},
            {"type": "redacted_thinking", "data": f"red-{number}+/="},
        ]
        self.minted[call or f"end-{number}"] = blocks
        return blocks

    def judge(self, body: dict[str, Any], account: str) -> int:
        done = 0
        switch = body.get("thinking", {}).get("type")
        known = [block for blocks in self.minted.values() for block in blocks]
        turns = body["messages"]
        opens = max(
            (
                place
                for place, turn in enumerate(turns)
                if turn["role"] == "user"
                and (isinstance(turn["content"], str) or all(one["type"] != "tool_result" for one in turn["content"]))
            ),
            default=0,
        )
        for place, turn in enumerate(turns):
            content = turn["content"]
            if turn["role"] != "assistant" or isinstance(content, str):
                continue
            thoughts = [one for one in content if one["type"].endswith("thinking")]
            for one in thoughts:
                if one not in known:
                    raise Refused(f"messages.{place}: Invalid `signature` in `thinking` block")
            calls = [one["id"] for one in content if one["type"] == "tool_use"]
            done += len(calls)
            own = [call for call in calls if self.has_made(call)]
            is_bound = switch == "enabled" or (switch == "adaptive" and self.insists)
            if is_bound and own and content[:2] != self.minted[own[0]]:
                raise Refused(f"messages.{place}.content.0: Expected `thinking` or `redacted_thinking`")
            if switch == "enabled" and place >= opens and calls and content[0] not in thoughts:
                raise Refused(f"messages.{place}.content.0.type: Expected `thinking`, but found `{content[0]['type']}`")
        if switch in (None, "disabled") and "clear_thinking" in json.dumps(body.get("context_management")):
            raise Refused("`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive")
        return done

    def _usage(self) -> dict[str, int]:
        return {"input_tokens": 9, "output_tokens": 5}

    def stream(self, thought: str, text: str, call: str | None, account: str) -> list[bytes]:
        thinking, redacted = self._blocks(thought, call)
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
        events = [_event(type="message_start", message={**message, "usage": self._usage()})]
        at = itertools.count()

        def block(start: dict[str, Any], *deltas: dict[str, Any]) -> None:
            index = next(at)
            events.append(_event(type="content_block_start", index=index, content_block=start))
            events.extend(_event(type="content_block_delta", index=index, delta=delta) for delta in deltas)
            events.append(_event(type="content_block_stop", index=index))

        said = [{"type": "thinking_delta", "thinking": one} for one in _slices(thought)]
        signed = {"type": "signature_delta", "signature": thinking["signature"]}
        block({"type": "thinking", "thinking": "", "signature": ""}, *said, signed)
        block(redacted)
        if text:
            block({"type": "text", "text": ""}, *({"type": "text_delta", "text": one} for one in _slices(text)))
        if call is not None:
            slices = ({"type": "input_json_delta", "partial_json": one} for one in ARGUMENTS)
            block({"type": "tool_use", "id": call, "name": "read", "input": {}}, *slices)
        reason = "end_turn" if call is None else "tool_use"
        events.append(_event(type="message_delta", delta={"stop_reason": reason}, usage=self._usage()))
        return [*events, _event(type="message_stop")]

    def whole(self, thought: str, text: str, call: str | None, account: str) -> dict[str, Any]:
        content = list(self._blocks(thought, call))
        content += [{"type": "text", "text": text}] if text else []
        if call is not None:
            content.append({"type": "tool_use", "id": call, "name": "read", "input": {"path": "a.txt"}})
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "stop_reason": "end_turn" if call is None else "tool_use",
            "usage": self._usage(),
        }


class DeepSeek(Thinker):
    """`MEMBER` is what it calls its thoughts, None where it tells none; `must_have` that each call must bring some."""

    PREFIX = "deepseek"
    MEMBER: ClassVar[str | None] = "reasoning_content"
    must_have: ClassVar[bool] = True
    USAGE: ClassVar[dict[str, int]] = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}

    def judge(self, body: dict[str, Any], account: str) -> int:
        done = 0
        for place, message in enumerate(body["messages"]):
            if message["role"] != "assistant":
                continue
            unknown = sorted(message.keys() - {"role", "content", "tool_calls", self.MEMBER})
            if unknown:
                raise Refused(self.unknown(place, unknown[0], message[unknown[0]]))
            calls = [call["id"] for call in message.get("tool_calls", ())]
            done += len(calls)
            for call in message.get("tool_calls", ()):
                if call.keys() - {"id", "type", "function"}:
                    raise Refused(self.unknown(place, "tool_calls", call))
            if calls and self.must_have and not isinstance(message.get("reasoning_content"), str):
                raise Refused("The `reasoning_content` in the thinking mode must be passed back to the API.")
            if calls and self.MEMBER and self.has_made(calls[0]) and message.get(self.MEMBER) != self.minted[calls[0]]:
                raise Refused(f"The `{self.MEMBER}` in the thinking mode must be passed back to the API as it was.")
        return done

    def unknown(self, place: int, member: str, value: Any) -> str:
        """What it says of a member of the message at `place` that it does not know."""
        return f"messages[{place}]: unknown field {member}"

    def _thought(self, text: str) -> dict[str, str]:
        return {self.MEMBER: text} if self.MEMBER is not None else {}

    def stream(self, thought: str, text: str, call: str | None, account: str) -> list[bytes]:
        if call is not None:
            self.minted[call] = thought
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "deepseek-chat"}

        def piece(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()

        pieces = [piece({"role": "assistant", "content": None, **self._thought("")})]
        pieces += [piece(self._thought(one)) for one in _slices(thought) if self.MEMBER is not None]
        pieces += [piece({"content": one}) for one in _slices(text)]
        if call is not None:
            function = {"name": "read", "arguments": ""}
            pieces.append(piece({"tool_calls": [{"index": 0, "id": call, "type": "function", "function": function}]}))
            pieces += [piece({"tool_calls": [{"index": 0, "function": {"arguments": one}}]}) for one in ARGUMENTS]
        usage = f"data: {json.dumps({**head, 'choices': [], 'usage': self.USAGE})}\n\n".encode()
        return [*pieces, piece({}, "stop" if call is None else "tool_calls"), usage, b"data: [DONE]\n\n"]

    def whole(self, thought: str, text: str, call: str | None, account: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text, **self._thought(thought)}
        if call is not None:
            self.minted[call] = thought
            function = {"name": "read", "arguments": "".join(ARGUMENTS)}
            message["tool_calls"] = [{"id": call, "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "stop" if call is None else "tool_calls"}
        head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "deepseek-chat"}
        return {**head, "choices": [choice], "usage": self.USAGE}


class Router(DeepSeek):
    PREFIX = "router"
    MEMBERS: ClassVar[set[str]] = {
        "role", "content", "reasoning", "reasoning_content", "reasoning_details", "tool_calls"
    }  # fmt: skip

    def judge(self, body: dict[str, Any], account: str) -> int:
        done = 0
        for place, message in enumerate(body["messages"]):
            if message["role"] != "assistant":
                continue
            if message.keys() - self.MEMBERS:
                raise Refused(f"messages[{place}]: unknown field {sorted(message.keys() - self.MEMBERS)}")
            details = message.get("reasoning_details")
            if details is not None and details not in self.minted.values():
                raise Refused(f"messages[{place}]: Invalid `signature` in `thinking` block")
            calls = [call["id"] for call in message.get("tool_calls", ())]
            done += len(calls)
            if calls and self.has_made(calls[0]) and details != self.minted[calls[0]]:
                raise Refused("OpenRouter reasoning details must be preserved in each request.")
        return done

    def _details(self, thought: str, call: str | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What it thought, whole, and as it streams: all but the last slice before the text, that one with the call."""
        number = len(self.minted) + 1
        kind, secret = number % 3, f"s3cret-{number}+/=" + "x" * 300
        if kind == 0:
            common = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
            whole = [{**common, "text": thought, "signature": secret}]
            slices = [{**common, "text": one, "signature": None} for one in _slices(thought)]
            slices.append({**common, "signature": secret})
        else:
            told, format = ("summary", "openai-responses-v1") if kind == 1 else ("text", "google-gemini-v1")
            common = {"type": f"reasoning.{told}", "format": format, "index": 0}
            encrypted = {"type": "reasoning.encrypted", "data": secret, "id": call, "format": format, "index": kind - 1}
            whole = [{**common, told: thought}, encrypted]
            slices = [*({**common, told: one} for one in _slices(thought)), encrypted]
        self.minted[call or f"end-{number}"] = whole
        return whole, slices

    def stream(self, thought: str, text: str, call: str | None, account: str) -> list[bytes]:
        head = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

        def piece(delta: dict[str, Any], finish: str | None = None) -> bytes:
            delta = {"role": "assistant", "content": "", **delta}
            choice = {"index": 0, "delta": delta, "finish_reason": finish, "native_finish_reason": finish}
            return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()

        _, slices = self._details(thought, call)
        pieces = [b": OPENROUTER PROCESSING\n\n"]
        for one in slices[:-1]:
            told = one.get("text") or one.get("summary")
            pieces.append(piece({"reasoning": told, "reasoning_details": [one]}))
        last = {"reasoning": None, "reasoning_details": [slices[-1]]}
        beside_call = call is not None and slices[-1]["format"].startswith("google")
        pieces += [] if beside_call else [piece(last)]
        pieces += [piece({"content": one}) for one in _slices(text)]
        if call is not None:
            function = {"name": "read", "arguments": ""}
            calls = [{"index": 0, "id": call, "type": "function", "function": function}]
            pieces.append(piece({"tool_calls": calls, **(last if beside_call else {})}))
            pieces += [piece({"tool_calls": [{"index": 0, "function": {"arguments": one}}]}) for one in ARGUMENTS]
        usage = f"data: {json.dumps({**head, 'choices': [], 'usage': self.USAGE})}\n\n".encode()
        return [*pieces, piece({}, "stop" if call is None else "tool_calls"), usage, b"data: [DONE]\n\n"]

    def whole(self, thought: str, text: str, call: str | None, account: str) -> dict[str, Any]:
        details, _ = self._details(thought, call)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "reasoning": thought}
        message["reasoning_details"] = details
        if call is not None:
            function = {"name": "read", "arguments": "".join(ARGUMENTS)}
            message["tool_calls"] = [{"index": 0, "id": call, "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "stop" if call is None else "tool_calls"}
        head = {"id": "gen-1", "object": "chat.completion", "created": 1, "model": "m"}
        return {**head, "choices": [choice], "usage": self.USAGE}


class Compat(DeepSeek):
    PREFIX = "compat"
    MEMBERS: ClassVar[set[str]] = {"role", "content", "tool_calls", "extra_content"}
    ELSEWHERE: ClassVar[Any] = {"google": {"thought_signature": "skip_thought_signature_validator"}}

    def judge(self, body: dict[str, Any], account: str) -> int:
        done = 0
        known = [self.ELSEWHERE, *self.minted.values()]
        for place, message in enumerate(body["messages"]):
            if message["role"] != "assistant":
                continue
            if message.keys() - self.MEMBERS:
                raise Refused(f'Invalid JSON payload received. Unknown name "{message.keys() - self.MEMBERS}"')
            for one in (message, *message.get("tool_calls", ())):
                if one.get("extra_content", self.ELSEWHERE) not in known:
                    raise Refused(f"messages[{place}]: Corrupted thought signature.")
            for call in message.get("tool_calls", ()):
                done += 1
                own = self.minted.get(call["id"], self.ELSEWHERE)
                if call.get("extra_content") not in ((own,) if self.insists else (own, self.ELSEWHERE)):
                    raise Refused("Function call is missing a thought_signature in functionCall parts.")
        return done

    def _message(self, thought: str, text: str, call: str | None) -> dict[str, Any]:
        number = len(self.minted) + 1
        extra = {"google": {"thought_signature": f"c2ln{number:04d}+/=="}}
        self.minted[call or f"end-{number}"] = extra
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if call is None:
            return {**message, "extra_content": extra}
        function = {"name": "read", "arguments": "".join(ARGUMENTS)}
        return {**message, "tool_calls": [
            {"extra_content": extra, "function": function, "id": call, "type": "function"}
        ]}  # fmt: skip

    def stream(self, thought: str, text: str, call: str | None, account: str) -> list[bytes]:
        """In chunks of whole words, a call in one of them, without an index; the signature of words behind them."""
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        message = self._message(thought, text, call)
        deltas = [{"content": one} for one in _slices(text)]
        deltas += [{name: message[name]} for name in ("tool_calls", "extra_content") if name in message]
        choices: list[dict[str, Any]] = [{"delta": {"role": "assistant", **one}, "index": 0} for one in deltas]
        choices.append({"delta": {"role": "assistant"}, "index": 0, "finish_reason": "stop"})
        pieces = [f"data: {json.dumps({**head, 'choices': [one]})}\n\n".encode() for one in choices]
        return [*pieces, b"data: [DONE]\n\n"]

    def whole(self, thought: str, text: str, call: str | None, account: str) -> dict[str, Any]:
        message = self._message(thought, text, call)
        choice = {"index": 0, "message": message, "finish_reason": "stop" if call is None else "tool_calls"}
        head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
        return {**head, "choices": [choice], "usage": self.USAGE}


class Gpt(Thinker):
    PREFIX = "gpt"

    def judge(self, body: dict[str, Any], account: str) -> int:
        if "reasoning.encrypted_content" not in body.get("include", ()):
            raise Refused("include: reasoning.encrypted_content is missing")
        known = {item["encrypted_content"]: (item, whose) for item, whose in self.minted.values()}
        done, before = 0, None
        for place, item in enumerate(body["input"]):
            if item.get("type") == "reasoning":
                found, whose = known.get(item.get("encrypted_content"), (None, None))
                if found != item or whose != account:
                    raise Refused(f"input[{place}]: the encrypted content could not be verified")
                before = item
            elif item.get("type") == "function_call":
                done += 1
                if self.has_made(item["call_id"]) and before != self.minted[item["call_id"]][0]:
                    raise Refused(f"input[{place}]: a function_call without its required reasoning item")
        return done

    def _reasoning(self, thought: str, call: str | None, account: str) -> dict[str, Any]:
        number = len(self.minted) + 1
        summary = [{"type": "summary_text", "text": thought}]
        item = {"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": f"gAAA-{number}+/="}
        self.minted[call or f"end-{number}"] = (item, account)
        return item

    def _items(self, thought: str, text: str, call: str | None, account: str) -> list[dict[str, Any]]:
        items = [self._reasoning(thought, call, account)]
        if text:
            content = [{"type": "output_text", "text": text, "annotations": []}]
            items.append({"id": "msg_1", "type": "message", "role": "assistant", "content": content})
        if call is not None:
            arguments = "".join(ARGUMENTS)
            called = {"type": "function_call", "call_id": call, "name": "read", "arguments": arguments}
            items.append({"id": "fc_1", **called})
        return items

    def stream(self, thought: str, text: str, call: str | None, account: str) -> list[bytes]:
        items = self._items(thought, text, call, account)
        began = {"id": "resp_1", "model": "gpt-5.2", "status": "in_progress"}
        events = [_event(type="response.created", response=began)]
        for index, item in enumerate(items):
            at = {"output_index": index, "item_id": item["id"]}
            bare = {**item, "summary": []} if item["type"] == "reasoning" else item
            bare = {**bare, "content": []} if item["type"] == "message" else bare
            bare = {**bare, "arguments": ""} if item["type"] == "function_call" else bare
            events.append(_event(type="response.output_item.added", output_index=index, item=bare))
            if item["type"] == "reasoning":
                kind, said = {"type": "response.reasoning_summary_text.delta", "summary_index": 0}, _slices(thought)
            elif item["type"] == "message":
                kind, said = {"type": "response.output_text.delta", "content_index": 0}, _slices(text)
            else:
                kind, said = {"type": "response.function_call_arguments.delta"}, ARGUMENTS
            events += [_event(**kind, **at, delta=one) for one in said]
            events.append(_event(type="response.output_item.done", output_index=index, item=item))
        return [*events, _event(type="response.completed", response=self._response(items))]

    def _response(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        usage = {"input_tokens": 9, "output_tokens": 5, "total_tokens": 14}
        response = {"id": "resp_1", "object": "response", "model": "gpt-5.2", "status": "completed"}
        return {**response, "output": items, "usage": usage}

    def whole(self, thought: str, text: str, call: str | None, account: str) -> dict[str, Any]:
        return self._response(self._items(thought, text, call, account))


class Gem(Thinker):
    PREFIX = "gem"
    ELSEWHERE = "skip_thought_signature_validator"

    def judge(self, body: dict[str, Any], account: str) -> int:
        done = 0
        known = {self.ELSEWHERE, *self.minted.values()}
        for place, turn in enumerate(body["contents"]):
            for part in turn["parts"]:
                signature = part.get("thoughtSignature")
                if signature is not None and signature not in known:
                    raise Refused(f"contents[{place}]: Corrupted thought signature.")
                if turn["role"] == "model" and "functionCall" in part:
                    done += 1
                    if signature != self.minted.get(part["functionCall"].get("id"), signature):
                        raise Refused(f"contents[{place}]: Function call is missing a thought_signature.")
        return done

    def _parts(self, thought: str, text: str, call: str | None) -> list[dict[str, Any]]:
        number = len(self.minted) + 1
        signature = self.minted[call or f"end-{number}"] = f"c2ln{number:04d}"
        parts: list[dict[str, Any]] = [{"text": thought, "thought": True}]
        parts += [{"text": text}] if text and call is not None else []
        if call is None:
            return [*parts, {"text": text, "thoughtSignature": signature}]
        called = {"id": call, "name": "read", "args": {"path": "a.txt"}}
        return [*parts, {"functionCall": called, "thoughtSignature": signature}]

    def _answer(self, parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        usage = {"promptTokenCount": 9, "candidatesTokenCount": 5, "totalTokenCount": 14}
        finished = {"finishReason": finish} if finish is not None else {}
        return {"candidates": [candidate | finished], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}

    def stream(self, thought: str, text: str, call: str | None, account: str) -> list[bytes]:
        parts = self._parts(thought, text, call)
        chunks = [self._answer([part], "STOP" if part is parts[-1] else None) for part in parts]
        return [f"data: {json.dumps(one)}\r\n\r\n".encode() for one in chunks]

    def whole(self, thought: str, text: str, call: str | None, account: str) -> dict[str, Any]:
        return self._answer(self._parts(thought, text, call), "STOP")
