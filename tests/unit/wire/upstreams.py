"""Hypothesis strategies of upstream streams: all that servers do within, beside and around the books.

Each stream comes with the answer that it means and with a unary body that means the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from arbiter.model import Answer, Finish, Part, RedactedThinking, Refusal, Text, Thinking, ToolCall, Usage
from tests.unit.wire.neutral import CHAT, GEMINI, MESSAGES, RESPONSES, names, objects

# Text that must be escaped, text that must not be, and half an emoji, which becomes U+FFFD.
words = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n\t\x00é日🎈'), min_size=1, max_size=9)
ids = st.uuids(version=4).map(lambda id: f"call_{id.hex[:12]}")


class Stream(NamedTuple):
    data: bytes
    answer: Answer
    body: bytes


class _Call(NamedTuple):
    id: str
    name: str
    arguments: str


def cut(draw: st.DrawFn, text: str, most: int = 4) -> list[str]:
    """Slices of `text`, none empty unless it is."""
    at = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=most)))
    return [one for one in (text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)) if one]


def calls(draw: st.DrawFn) -> list[_Call]:
    made = draw(st.lists(st.tuples(ids, names, objects), max_size=3, unique_by=lambda call: call[0]))
    return [_Call(*one) for one in made]


def sse(draw: st.DrawFn, events: Sequence[tuple[str, str]], noise: Sequence[bytes]) -> bytes:
    """Events as bytes, with what may stand between them."""
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    space = draw(st.sampled_from([b" ", b""]))
    out = [b"\xef\xbb\xbf" if draw(st.booleans()) else b""]
    for name, data in events:
        if draw(st.integers(0, 5)) == 0:
            out.append(draw(st.sampled_from(noise)).replace(b"\n", end))
        if name:
            out += b"event:", space, name.encode(), end
        out += b"data:", space, data.encode(), end, end
    if draw(st.integers(0, 5)) == 0:
        out[-1] = b""  # the last event lacks its blank line
    return b"".join(out)


def dumped(draw: st.DrawFn) -> Any:
    """JSON as different servers write it: spaces or none, escapes or none."""
    ascii = draw(st.booleans())
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return lambda value: json.dumps(value, ensure_ascii=ascii, separators=separators)


def usage_of(draw: st.DrawFn, wire: str) -> tuple[Usage, dict[str, Any]]:
    fresh, read, output = draw(st.tuples(*[st.integers(0, 9999)] * 3))
    if wire == CHAT:
        told: dict[str, Any] = {"prompt_tokens": fresh + read, "completion_tokens": output}
        told |= {"prompt_tokens_details": {"cached_tokens": read}, "completion_tokens_details": None}
        return Usage(input=fresh, cache_read=read, output=output), told
    if wire == GEMINI:
        thoughts = draw(st.integers(1, 99))
        told = {"promptTokenCount": fresh + read, "cachedContentTokenCount": read, "candidatesTokenCount": output}
        total = fresh + read + output + thoughts
        told |= {"thoughtsTokenCount": thoughts, "totalTokenCount": total}
        return Usage(input=fresh, cache_read=read, output=output + thoughts, reasoning=thoughts, total=total), told
    if wire == RESPONSES:
        told = {"input_tokens": fresh + read, "output_tokens": output, "input_tokens_details": {"cached_tokens": read}}
        return Usage(input=fresh, cache_read=read, output=output), {**told, "output_tokens_details": None}
    told = {"input_tokens": fresh, "cache_read_input_tokens": read, "output_tokens": output}
    return Usage(input=fresh, cache_read=read, output=output), {**told, "cache_creation_input_tokens": None}


# --- OpenAI Chat ------------------------------------------------------------------------------------------------------

CHAT_NOISE = [
    b": OPENROUTER PROCESSING\n\n",
    b"\n",
    b'data: {"warning":"x"}\n\n',
    b"event: ping\ndata: {}\n\n",
    b"id: 7\n\n",
]

ON_TEXT = ["stop", "eos", "length", "content_filter", "tool_calls", "max_tokens"]
ON_CALLS = ["tool_calls", "stop", "function_call", "length"]
FINISHES = {"length": Finish.LENGTH, "max_tokens": Finish.LENGTH, "content_filter": Finish.CONTENT_FILTER}


@st.composite
def chat(draw: st.DrawFn) -> Stream:
    """A stream of OpenAI's format, as some server sends it."""
    dumps = dumped(draw)
    spelling = draw(st.sampled_from(["reasoning_content", "reasoning"]))
    deltas: list[dict[str, Any]] = []
    message: dict[str, Any] = {"role": "assistant", "content": None}
    parts: list[Part] = []
    thought, text, refusal = (draw(st.none() | words) for _ in range(3))
    if thought is not None:
        parts.append(Thinking(thought, spelling=spelling))
        message[spelling] = thought
        both = draw(st.booleans()) and spelling == "reasoning_content"
        for one in cut(draw, thought):
            deltas.append(
                {spelling: one, **({"reasoning": one} if both else {}), "content": draw(st.sampled_from([None, ""]))}
            )
    if text is not None:
        parts.append(Text(text))
        message["content"] = text
        as_list = draw(st.booleans())
        for one in cut(draw, text):
            deltas.append({"content": [{"type": "text", "text": one}] if as_list else one})
    if refusal is not None:
        parts.append(Refusal(refusal))
        message["refusal"] = refusal
        deltas += [{"refusal": one} for one in cut(draw, refusal)]
    made = calls(draw)
    if made:
        parts += [ToolCall(*call) for call in made]
        message["tool_calls"] = [whole_call(draw, call, place) for place, call in enumerate(made)]
        deltas += call_deltas(draw, made)
    if draw(st.booleans()):
        deltas = [{"role": draw(st.sampled_from(["assistant", ""])), **delta} for delta in deltas]
    usage, told = usage_of(draw, CHAT)
    word = draw(st.sampled_from(ON_CALLS if made else ON_TEXT))
    finish = FINISHES.get(word, Finish.TOOL_CALLS if made else Finish.STOP)
    chunks = chat_chunks(draw, deltas, word, told)
    events = [("", dumps(chunk)) for chunk in chunks]
    if draw(st.booleans()):
        events.append(("", "[DONE]"))
    choice = {"index": 0, "message": message, "finish_reason": word, "logprobs": None}
    body = {"id": "cc", "object": "chat.completion", "model": "m", "choices": [choice], "usage": told}
    answer = Answer(id="cc", model="m", parts=tuple(parts), finish=finish, usage=usage)
    return Stream(sse(draw, events, CHAT_NOISE), answer, dumps(body).encode())


def chat_chunks(
    draw: st.DrawFn, deltas: list[dict[str, Any]], word: str, usage: dict[str, Any]
) -> list[dict[str, Any]]:
    head = {"id": "cc", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    if draw(st.booleans()):
        deltas = [{"role": "assistant", "content": ""}, *deltas]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    if draw(st.booleans()) and choices:
        choices[-1]["finish_reason"] = word
    else:
        choices.append({"index": 0, "delta": draw(st.sampled_from([{}, None, {"content": ""}])), "finish_reason": word})
    chunks = [{**head, "choices": [choice]} for choice in choices]
    for chunk in chunks:
        if draw(st.integers(0, 9)) == 0:  # n > 1
            chunk["choices"] = [
                *chunk["choices"],
                {"index": 1, "delta": {"content": "other"}, "finish_reason": "length"},
            ]
    if draw(st.booleans()):
        repeated = draw(st.sampled_from([None, word, ""]))
        chunks.append(
            {
                **head,
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": repeated}],
            }
        )
    match draw(st.sampled_from(["own", "last", "each", "choice", "groq"])):
        case "own":
            chunks.append({**head, "choices": draw(st.sampled_from([[], None])), "usage": usage})
        case "last":
            chunks = [{**chunk, "usage": None} for chunk in chunks[:-1]] + [{**chunks[-1], "usage": usage}]
        case "each":
            chunks = [{**chunk, "usage": {"prompt_tokens": 1, "completion_tokens": 0}} for chunk in chunks]
            chunks[-1]["usage"] = usage
        case "choice":
            chunks[-1]["choices"][0]["usage"] = usage
        case "groq":
            chunks[-1]["x_groq"] = {"id": "req", "usage": usage}
    if draw(st.booleans()):
        chunks.insert(0, {"id": "", "choices": [], "prompt_filter_results": []})
    return chunks


def whole_call(draw: st.DrawFn, call: _Call, place: int) -> dict[str, Any]:
    made: dict[str, Any] = {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
    extra = draw(st.sampled_from([{}, {"type": "function"}, {"type": "function", "index": place}]))
    return {**made, **extra}


def call_deltas(draw: st.DrawFn, made: list[_Call]) -> list[dict[str, Any]]:
    """The calls as slices: numbered rightly, all as 0, or not at all; ids and names once or again and again."""
    numbered = draw(st.sampled_from(["right", "zero", "none"]))
    each_id = draw(st.booleans())
    each_name = draw(st.booleans())
    pieces = draw(st.booleans()) and not each_name and numbered != "none"
    slices: list[list[dict[str, Any]]] = []
    for place, call in enumerate(made):
        index = {"right": {"index": place}, "zero": {"index": 0}, "none": {}}[numbered]
        first = draw(st.sampled_from([{"arguments": ""}, {}, {"arguments": None}]))
        parts = cut(draw, call.name) if pieces else [call.name]
        if any(part.startswith("".join(parts[:i])) for i, part in enumerate(parts) if i):
            parts = [call.name]  # "a" and "a": the name again, or its second half?
        opening = [{**index, "function": {"name": part, **first}} for part in parts]
        for one in opening if each_id else opening[:1]:
            one |= {"id": call.id, "type": "function"}
        rest = [{**index, "function": {"arguments": one}} for one in cut(draw, call.arguments)]
        if draw(st.booleans()) and not pieces:  # the first slice has arguments, too
            opening[0]["function"] |= rest.pop(0)["function"]
        for one in rest:
            one |= {"id": call.id} if each_id else draw(st.sampled_from([{}, {"id": None}, {"id": ""}]))
            if each_name:
                one["function"]["name"] = call.name
        behind = draw(st.sampled_from(["", "", call.arguments, " \n", "}"]))  # an echo, a blank, a brace too many
        echo: list[dict[str, Any]] = [{**index, "function": {"arguments": behind}}] if behind else []
        for one in echo:
            one |= {"id": call.id} if each_id else {}
        slices.append(opening + rest + echo)
    if numbered == "right" or each_id:
        mixed = interleaved(draw, slices)
    else:
        mixed = [one for call in slices for one in call]
    if draw(st.booleans()) and numbered != "zero" and not each_name:
        return [{"tool_calls": mixed}]
    return [{"tool_calls": [one]} for one in mixed]


def interleaved(draw: st.DrawFn, slices: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Slices of several calls in one order; each call's own stay in theirs, and calls open in the order of the list."""
    if not draw(st.booleans()):
        return [one for call in slices for one in call]
    mixed = list(slices[0])
    for call in slices[1:]:
        at = 0
        opened = max(i for i, one in enumerate(mixed) if one.get("function", {}).get("name") or i == 0) + 2
        for number, one in enumerate(call):
            at = draw(st.integers(min(opened, len(mixed)) if number == 0 else at + 1, len(mixed)))
            mixed.insert(at, one)
    return mixed


# --- Anthropic Messages -----------------------------------------------------------------------------------------------

MESSAGES_NOISE = [
    b": hello\n\n",
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b'data: {"type":"ping"}\n\n',
    b'event: something_new\ndata: {"type":"something_new","index":3}\n\n',
]
WORDS = {
    "end_turn": Finish.STOP,
    "max_tokens": Finish.LENGTH,
    "stop_sequence": Finish.STOP_SEQUENCE,
    "refusal": Finish.CONTENT_FILTER,
    "pause_turn": Finish.PAUSE,
    "model_context_window_exceeded": Finish.CONTEXT_WINDOW,
    "tool_use": Finish.STOP,
    "brand_new": Finish.STOP,
}


@st.composite
def messages(draw: st.DrawFn) -> Stream:
    """A stream of Anthropic's format, as some server sends it."""
    dumps = dumped(draw)
    events: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []
    parts: list[Part] = []
    usage, told = usage_of(draw, MESSAGES)
    kinds = st.sampled_from(["text", "thinking", "omitted", "redacted", "call", "builtin", "new"])
    for kind in draw(st.lists(kinds, max_size=5)):
        index = len(content)
        if kind == "text":
            text = draw(words)
            deltas = [{"type": "text_delta", "text": one} for one in cut(draw, text)]
            block = {"type": "text", "text": text}
            add(parts, Text(text))
            cited = [{"type": "citations_delta", "citation": {"cited_text": "x"}}] if draw(st.booleans()) else []
            events += block_events(draw, index, {"type": "text", "text": ""}, deltas + cited)
        elif kind in ("thinking", "omitted"):
            text = draw(words) if kind == "thinking" else ""
            signature = draw(names) if kind == "omitted" else draw(st.sampled_from(["", "sig"]))
            deltas = [{"type": "thinking_delta", "thinking": one} for one in cut(draw, text)]
            deltas += [{"type": "signature_delta", "signature": signature}] if signature else []
            block = {"type": "thinking", "thinking": text, "signature": signature}
            parts.append(Thinking(text, signature or None))
            events += block_events(draw, index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        elif kind == "redacted":
            block = {"type": "redacted_thinking", "data": draw(names)}
            parts.append(RedactedThinking(block["data"]))
            events += block_events(draw, index, block, [])
        elif kind == "call":
            id, name, arguments = draw(ids), draw(names), draw(objects)
            block = {"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments)}
            parts.append(ToolCall(id, name, arguments))
            events += call_events(draw, index, block, arguments)
        elif kind == "builtin":
            block = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
            events += block_events(draw, index, block, [{"type": "input_json_delta", "partial_json": '{"q":1}'}])
        else:
            block = {"type": "brand_new", "data": {"x": [1]}}
            events += block_events(draw, index, block, [{"type": "brand_new_delta", "x": 1}])
        content.append(block)
    has_calls = any(isinstance(part, ToolCall) for part in parts)
    word = draw(st.sampled_from(["tool_use", "end_turn", "max_tokens"] if has_calls else list(WORDS)))
    finish = Finish.TOOL_CALLS if has_calls and word != "max_tokens" else WORDS[word]
    sequence = draw(words) if word == "stop_sequence" else None
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    early = draw(st.sampled_from([{"input_tokens": 3, "output_tokens": 1}, None, told]))
    final = {"type": "message_delta", "delta": {"stop_reason": word, "stop_sequence": sequence}, "usage": told}
    events = [{"type": "message_start", "message": {**message, "usage": early}}, *events, final]
    if draw(st.booleans()):
        events.append(final)
    if draw(st.booleans()):
        events.append({"type": "message_stop"})
    named = draw(st.booleans())
    written = [(event["type"] if named else "", dumps(event)) for event in events]
    answer = Answer(id="msg_1", model="m", parts=tuple(parts), finish=finish, stop_sequence=sequence, usage=usage)
    body = {**message, "content": content, "stop_reason": word, "stop_sequence": sequence, "usage": told}
    return Stream(sse(draw, written, MESSAGES_NOISE), answer, dumps(body).encode())


def add(parts: list[Part], text: Text) -> None:
    """Neighbours are one text: nothing in an answer depends on where a block of text ends."""
    before = parts[-1] if parts else None
    if isinstance(before, Text):
        parts[-1] = Text(before.text + text.text)
    else:
        parts.append(text)


def block_events(
    draw: st.DrawFn, index: int, start: dict[str, Any], deltas: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    member = start["type"]
    if deltas and member in ("text", "thinking") and draw(st.booleans()) and member in deltas[0]:
        start = {**start, member: deltas.pop(0)[member]}
    elif deltas and member in ("text", "thinking") and draw(st.booleans()):
        deltas.insert(0, {"type": f"{member}_delta", member: ""})
    stop = [{"type": "content_block_stop", "index": index}]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        *(stop if draw(st.integers(0, 5)) or start["type"] != "text" else []),
    ]


def call_events(draw: st.DrawFn, index: int, block: dict[str, Any], arguments: str) -> list[dict[str, Any]]:
    """The input as slices behind an empty object, whole in the start of its block, or both."""
    slices = [{"type": "input_json_delta", "partial_json": one} for one in cut(draw, arguments)]
    empty = {"type": "input_json_delta", "partial_json": ""}
    start = {**block, "input": {}}
    match draw(st.sampled_from(["slices", "both", "nothing"])):
        case "both":
            return block_events(draw, index, block, [empty, *slices])
        case "nothing" if arguments == "{}":
            return block_events(draw, index, start, [empty] if draw(st.booleans()) else [])
    return block_events(draw, index, start, [empty, *slices] if draw(st.booleans()) else slices)


# --- OpenAI Responses -------------------------------------------------------------------------------------------------

RESPONSES_NOISE = [
    b": hello\n\n",
    b'data: {"type":"ping"}\n\n',
    b'event: response.something_new\ndata: {"type":"response.something_new","output_index":3}\n\n',
]
REASONS = {None: Finish.STOP, "max_output_tokens": Finish.LENGTH, "content_filter": Finish.CONTENT_FILTER}


@st.composite
def responses(draw: st.DrawFn) -> Stream:
    """A stream of OpenAI's Responses, as some server sends it: with or without indexes, numbers, names and deltas."""
    dumps = dumped(draw)
    events: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []
    parts: list[Part] = []
    placed = draw(st.sampled_from(["index", "id", "both"]))
    kinds = st.sampled_from(["message", "thought", "call", "free", "builtin"])
    for kind in draw(st.lists(kinds, max_size=5)):
        id = f"item_{len(output)}"
        at = {"index": {"output_index": len(output)}, "id": {"item_id": id}}
        where = {**at["index"], **at["id"]} if placed == "both" else at[placed]
        beginning, whole = response_item(draw, kind, id, parts)
        added = {"type": "response.output_item.added", "item": beginning, **where}
        done = {"type": "response.output_item.done", "item": whole, **where}
        events += [added, *({**one, **where} for one in item_deltas(draw, whole)), done]
        output.append(whole)
    has_calls = any(isinstance(part, ToolCall) for part in parts)
    reason = draw(st.sampled_from([None, None, "max_output_tokens", "content_filter"]))
    finish = Finish.TOOL_CALLS if has_calls and reason is None else REASONS[reason]
    usage, told = usage_of(draw, RESPONSES)
    head = {"id": "resp_1", "object": "response", "model": "m", "status": "in_progress"}
    details = {"reason": reason} if reason is not None else None
    status = "completed" if reason is None else "incomplete"
    body = {**head, "status": status, "output": output, "usage": told, "incomplete_details": details, "error": None}
    starts = [{"type": f"response.{word}", "response": head} for word in ("created", "in_progress")]
    only_whole = draw(st.integers(0, 9)) == 0
    end = {"type": f"response.{status}", "response": body}
    events = [*starts, *([] if only_whole else events), end]
    if draw(st.booleans()):
        events = [{**event, "sequence_number": n} for n, event in enumerate(events)]
    named = draw(st.booleans())
    written = [(event["type"] if named else "", dumps(event)) for event in events]
    answer = Answer(id="resp_1", model="m", parts=tuple(parts), finish=finish, usage=usage)
    return Stream(sse(draw, written, RESPONSES_NOISE), answer, dumps(body).encode())


def response_item(draw: st.DrawFn, kind: str, id: str, parts: list[Part]) -> tuple[dict[str, Any], dict[str, Any]]:
    """An item as it begins, and whole; what it means is added to `parts`."""
    if kind == "message":
        said = draw(st.lists(st.tuples(st.sampled_from(["output_text", "refusal"]), words), min_size=1, max_size=2))
        content = [{"type": one, "text" if one == "output_text" else "refusal": text} for one, text in said]
        for one, text in said:
            if one == "output_text":
                add(parts, Text(text))
            elif parts and isinstance(parts[-1], Refusal):
                parts[-1] = Refusal(parts[-1].text + text)
            else:
                parts.append(Refusal(text))
        item: dict[str, Any] = {"type": "message", "id": id, "role": "assistant", "content": content}
        return {**item, "content": []}, item
    if kind == "thought":
        member, one = draw(st.sampled_from([("summary", "summary_text"), ("content", "reasoning_text")]))
        texts = draw(st.lists(words, max_size=2))
        if texts:
            parts.append(Thinking("\n\n".join(texts)))
        item = {"type": "reasoning", "id": id, "summary": [], member: [{"type": one, "text": text} for text in texts]}
        return {"type": "reasoning", "id": id, "summary": []}, item
    if kind == "builtin":
        item = {"type": "web_search_call", "id": id, "status": "completed", "action": {"type": "search", "query": "q"}}
        return item, item
    call_id, name = draw(ids), draw(names)
    is_free = kind == "free"
    arguments = draw(words if is_free else objects)
    parts.append(ToolCall(call_id, name, arguments, is_free=is_free))
    member = "input" if is_free else "arguments"
    item = {"type": "custom_tool_call" if is_free else "function_call", "id": id, "call_id": call_id, "name": name}
    return {**item, member: ""}, {**item, member: arguments}


def item_deltas(draw: st.DrawFn, item: dict[str, Any]) -> list[dict[str, Any]]:
    """What comes between an item's beginning and its end; nothing of some servers, and nothing of some items."""
    if draw(st.integers(0, 5)) == 0:
        return []
    said: list[tuple[str, dict[str, int], str]] = []
    for place, part in enumerate(item.get("content", ())):
        if part["type"] == "reasoning_text":
            said.append(("reasoning_text", {"content_index": place}, part["text"]))
        else:
            member = "text" if part["type"] == "output_text" else "refusal"
            said.append((part["type"], {"content_index": place}, part[member]))
    for place, part in enumerate(item.get("summary", ())):
        said.append(("reasoning_summary_text", {"summary_index": place}, part["text"]))
    for member, kind in (("arguments", "function_call_arguments"), ("input", "custom_tool_call_input")):
        if member in item:
            said.append((kind, {}, item[member]))
    return [
        {"type": f"response.{kind}.delta", **where, "delta": one}
        for kind, where, text in said
        for one in cut(draw, text)
    ]


# --- Gemini -----------------------------------------------------------------------------------------------------------

GEMINI_NOISE = [b": hello\n\n", b"\n", b'data: {"modelStatus":{}}\n\n', b'data: {"candidates":[]}\n\n']
GEMINIS = {"STOP": Finish.STOP, "MAX_TOKENS": Finish.LENGTH, "SAFETY": Finish.CONTENT_FILTER, "BRAND_NEW": Finish.STOP}


@st.composite
def gemini(draw: st.DrawFn) -> Stream:
    """A stream of Google's: calls with ids or without, thoughts, signatures, and usage on every chunk or the last."""
    dumps = dumped(draw)
    said: list[dict[str, Any]] = []
    slices: list[dict[str, Any]] = []
    parts: list[Part] = []
    count = 0
    for kind in draw(st.lists(st.sampled_from(["text", "thought", "call", "builtin"]), max_size=5)):
        if kind == "call":
            arguments, id = dumps(json.loads(draw(objects))), draw(st.none() | ids)
            call = {"name": draw(names), "args": json.loads(arguments), **({"id": id} if id is not None else {})}
            part: dict[str, Any] = {"functionCall": call}
            if draw(st.booleans()):
                part["thoughtSignature"] = draw(st.sampled_from(["AAAA", "c2ln"]))
                sign(parts, f"gemini#{part['thoughtSignature']}")
            parts.append(ToolCall(id or f"call_r1_{count}", call["name"], arguments))
            count += 1
            slices.append(part)
        elif kind == "builtin":
            part = {"executableCode": {"language": "PYTHON", "code": "1"}}
            slices.append(part)
        else:
            text = draw(words)
            mark = {"thought": True} if kind == "thought" else {}
            part = {"text": text, **mark}
            slices += [{"text": one, **mark} for one in cut(draw, text)]
            if kind == "text":
                add(parts, Text(text))
            elif parts and isinstance(parts[-1], Thinking) and parts[-1].signature is None:
                parts[-1] = Thinking(parts[-1].text + text)
            else:
                parts.append(Thinking(text))
        said.append(part)
    word = draw(st.sampled_from(list(GEMINIS)))
    finish = Finish.TOOL_CALLS if count and GEMINIS[word] is Finish.STOP else GEMINIS[word]
    usage, told = usage_of(draw, GEMINI)
    head = {"modelVersion": "m", "responseId": "r1"}
    chunks: list[dict[str, Any]] = [gemini_chunk([one], **head) for one in slices]
    if draw(st.booleans()) or not chunks:
        chunks.append(gemini_chunk(draw(st.sampled_from([[], [{"text": ""}]])), **head))
    for chunk in chunks if draw(st.booleans()) else chunks[-1:]:  # older models finish with every chunk
        chunk["candidates"][0]["finishReason"] = word
    for chunk in chunks if draw(st.booleans()) else []:
        chunk["usageMetadata"] = {"promptTokenCount": 1, "cachedContentTokenCount": 0, "totalTokenCount": 1}
    chunks[-1]["usageMetadata"] = told
    body = {**gemini_chunk(said, **head), "usageMetadata": told}
    body["candidates"][0]["finishReason"] = word
    answer = Answer(id="r1", model="m", parts=tuple(parts), finish=finish, usage=usage)
    return Stream(sse(draw, [("", dumps(chunk)) for chunk in chunks], GEMINI_NOISE), answer, dumps(body).encode())


def gemini_chunk(parts: list[dict[str, Any]], **head: str) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}], **head}


def sign(parts: list[Part], signature: str) -> None:
    """A signature proves the thought in front of it, or one without words."""
    if parts and isinstance(parts[-1], Thinking) and parts[-1].signature is None:
        parts[-1] = Thinking(parts[-1].text, signature)
    else:
        parts.append(Thinking("", signature))


STREAMS = {CHAT: chat(), MESSAGES: messages(), RESPONSES: responses(), GEMINI: gemini()}
