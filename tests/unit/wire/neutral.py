"""Neutral values for property tests: whatever the table in docs/formats.md says that a format carries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

import msgspec
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from arbiter.model import (
    Answer,
    Audio,
    CacheMark,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    File,
    Finish,
    Finished,
    Grammar,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    OutputShape,
    Part,
    Reasoning,
    RedactedThinking,
    Refusal,
    RefusalDelta,
    Request,
    Started,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
    UsageReported,
)

CHAT, MESSAGES, RESPONSES, GEMINI = "openai-chat", "anthropic-messages", "openai-responses", "google-gemini"


def members(wire: str, body: bytes, request: Request) -> dict[str, Raw]:
    """A body's members, with those in front that a format says in its path."""
    found = msgspec.json.decode(body, type=dict[str, Raw])
    if wire != GEMINI:
        return found
    told = {"model": msgspec.json.encode(request.model), **({"stream": b"true"} if request.stream else {})}
    return {**{name: Raw(raw) for name, raw in told.items()}, **found}


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
spoken_words = words.filter(str.strip)  # Anthropic takes no text that is only blanks
names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
base64s = st.sampled_from(["AAAA", "iVBORw0KGgo="])
counts = st.integers(0, 2**53)
objects = st.dictionaries(names, st.none() | st.booleans() | st.integers() | words, max_size=3).map(json.dumps)
schemas = objects.map(lambda text: json.dumps({"type": "object", "properties": json.loads(text)}).encode())


def marks(wire: str) -> st.SearchStrategy[CacheMark | None]:
    """Cache marks, where the format sends them upstream."""
    return st.none() if wire != MESSAGES else st.none() | st.builds(CacheMark, st.sampled_from([None, "5m", "1h"]))


def pictures(wire: str) -> st.SearchStrategy[Part]:
    detail = st.sampled_from([None, "low"]) if wire not in (MESSAGES, GEMINI) else st.none()
    by_url = st.builds(Image, url=st.just("https://pictures.example/a.png"), detail=detail, cache=marks(wire))
    media = st.just("image/png")
    return by_url | st.builds(Image, media_type=media, data=base64s, detail=detail, cache=marks(wire))


def files(wire: str) -> st.SearchStrategy[Part]:
    if wire == GEMINI:
        pdf = st.just("application/pdf")
        by_data = st.builds(File, media_type=pdf, data=st.just("JVBERi0="))
        return by_data | st.builds(File, media_type=pdf, url=st.just("https://files.example/a.pdf"))
    # A chat gives data a name where it has none, and says plain text as text.
    named = {"filename": words if wire != MESSAGES else st.none() | words, "cache": marks(wire)}
    by_id = named | {"filename": st.none() | words}
    by_url = named if wire == CHAT else by_id
    kinds = [
        st.builds(File, media_type=st.just("application/pdf"), data=st.just("JVBERi0="), **named),  # type: ignore[arg-type]
        st.builds(File, url=st.just("https://files.example/a.pdf"), **by_url),  # type: ignore[arg-type]
        st.builds(File, file_id=names, **by_id),  # type: ignore[arg-type]
    ]
    if wire == MESSAGES:
        kinds.append(st.builds(File, media_type=st.just("text/plain"), text=words, **named))  # type: ignore[arg-type]
    return st.one_of(kinds)


def opaques(wire: str) -> st.SearchStrategy[Part]:
    if wire == GEMINI:  # its parts have no type
        return st.just(Opaque(wire, b'{"brandNew":{"x":[1,{"y":"z"}]}}'))
    kind = {CHAT: "video_url", MESSAGES: "search_result", RESPONSES: "input_video"}[wire]
    return st.just(Opaque(wire, json.dumps({"type": kind, "x": [1, {"y": "z"}]}).encode()))


def texts(wire: str) -> st.SearchStrategy[Part]:
    return st.builds(Text, spoken_words, marks(wire))


def contents(wire: str, *, more: bool = True) -> st.SearchStrategy[str | tuple[Part, ...]]:
    parts = [texts(wire), pictures(wire), files(wire), opaques(wire)] if more else [texts(wire)]
    if wire in (CHAT, GEMINI) and more:
        parts.append(st.builds(Audio, base64s, st.just("wav")))
    several = st.lists(st.one_of(parts), min_size=1, max_size=4)
    if wire != MESSAGES:
        # Text alone leaves OpenAI's formats as a bare string, in however many parts it came (SPEC 2.4).
        several = (
            several.filter(lambda found: not all(isinstance(part, Text) for part in found)) if more else st.nothing()
        )
    if wire == GEMINI:
        several = st.lists(st.one_of(parts), min_size=2, max_size=4)
    return spoken_words | several.map(tuple)


@st.composite
def said(draw: st.DrawFn, wire: str) -> str | tuple[Part, ...]:
    """What an assistant said, with its calls at the end."""
    made = st.builds(ToolCall, names, names, objects, marks(wire))
    if wire == RESPONSES:
        made |= st.builds(ToolCall, names, names, st.text(max_size=5), is_free=st.just(True))
    calls = draw(st.lists(made, max_size=3))
    if wire == RESPONSES:
        if not calls and draw(st.booleans()):
            return draw(spoken_words)
        item = st.builds(thought_item, words) | st.just(Opaque(wire, b'{"type":"brand_new_call","x":[1]}'))
        spoken: list[Part] = draw(st.lists(item | texts(wire), min_size=1, max_size=3))
        if not calls and len(spoken) == 1 and isinstance(spoken[0], Text):
            return spoken[0].text
        return (*spoken, *calls)
    if wire == GEMINI:
        thought = st.builds(Thinking, words | st.just(""), names.map("gemini#{}".format))
        spoken = draw(st.lists(thought | texts(wire) | opaques(wire), min_size=0 if calls else 1, max_size=3))
        # What a model said in slices is one text.
        spoken = [one for at, one in enumerate(spoken) if not (at and type(one) is type(spoken[at - 1]) is Text)]
        if len(spoken) == 1 and isinstance(spoken[0], Text) and not calls:
            return spoken[0].text
        return (*spoken, *calls)
    if wire == CHAT:
        spoken = draw(st.lists(texts(wire), max_size=1))
        if draw(st.booleans()):
            spoken.insert(0, Thinking(draw(words), spelling=draw(st.sampled_from(["reasoning_content", "reasoning"]))))
        if draw(st.booleans()):
            spoken.append(Refusal(draw(words)))
        if not calls and all(isinstance(part, Text) for part in spoken):
            return draw(st.text(max_size=5))
    else:
        thought = st.builds(Thinking, words, names) | st.builds(RedactedThinking, names)
        spoken = draw(st.lists(thought | texts(wire) | opaques(wire), min_size=0 if calls else 1, max_size=3))
    return (*spoken, *calls)


def thought_item(text: str) -> Thinking:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}]}
    return Thinking(text, item=json.dumps(item).encode())


@st.composite
def turns(draw: st.DrawFn, wire: str) -> list[Message]:
    """One turn: the user, the assistant with calls, their results."""
    built = [Message("user", draw(contents(wire))), Message("assistant", draw(said(wire)))]
    if built[1].content == "":
        del built[1]
    for part in built[-1].parts():
        if isinstance(part, ToolCall):
            failed = st.sampled_from([None, True, False]) if wire == MESSAGES else st.none()
            if wire == GEMINI:
                failed = st.sampled_from([None, True])
            content = draw(contents(wire, more=wire != CHAT) if wire != GEMINI else spoken_words)
            has_failed = draw(failed)
            is_text = isinstance(content, str) or all(type(one) is Text for one in content)
            if wire == MESSAGES and not is_text and has_failed:
                has_failed = None  # it is said in words
            built.append(Message("tool", (ToolResult(part.id, content, has_failed, draw(marks(wire))),)))
    if built[-1].role == "tool" and wire == MESSAGES:
        # The user's words share the message of the results, and so are blocks.
        built.append(Message("user", draw(st.lists(texts(wire), min_size=1, max_size=2).map(tuple))))
    return built


def numbered(messages: Iterable[Message]) -> list[Message]:
    """The same messages, each call and its result under an id of their own."""
    built: list[Message] = []
    count, open_calls = 0, []
    for message in messages:
        parts: list[Part] = []
        for part in message.parts():
            if isinstance(part, ToolCall):
                count += 1
                open_calls.append(f"call_{count}")
                part = replace(part, id=open_calls[-1])
            elif isinstance(part, ToolResult):
                part = replace(part, call_id=open_calls.pop(0))
            parts.append(part)
        kept = isinstance(message.content, str)
        built.append(message if kept else replace(message, content=tuple(parts)))
    return built


def unmarked(request: Request) -> str:
    """The request as text, without cache marks: where they may not sit they move."""
    return re.sub(r"CacheMark\(ttl=[^)]*\)", "None", repr(request))


def tools(wire: str) -> st.SearchStrategy[Tool | OpaqueTool]:
    flag = st.sampled_from([None, True, False])
    parameters = schemas if wire == MESSAGES else st.none() | schemas
    if wire == RESPONSES:
        flag = st.booleans()  # it is always said
    raw = json.dumps({"type": "bash_20250124" if wire == MESSAGES else "brand_new", "x": {"y": 1}})
    functions = st.builds(Tool, names, st.none() | words, parameters, flag, marks(wire))
    opaque = st.just(OpaqueTool(wire, raw.encode()))
    if wire == GEMINI:
        own = OpaqueTool(wire, b'{"brandNew":{"x":1}}')
        return st.builds(Tool, names, st.none() | words, st.none() | schemas) | st.just(own)
    if wire != RESPONSES:  # most of a chat's servers do not take free text
        return functions | opaque
    grammars = st.none() | st.builds(Grammar, st.sampled_from(["lark", "regex"]), words)
    free = st.builds(Tool, names, st.none() | words, is_free=st.just(True), grammar=grammars)
    return functions | opaque | free


def shared(wire: str) -> dict[str, st.SearchStrategy[object]]:
    """The members of a request that all formats carry, but for `top_k` and `stop`, which Responses lacks."""
    return {
        "tools": st.lists(tools(wire), min_size=1, max_size=3).map(tuple),
        "max_output": st.integers(1, 10**6),
        "temperature": st.none() | st.floats(0, 2),
        "top_p": st.none() | st.floats(0, 1),
        "top_k": st.none() | st.integers(1, 100) if wire != RESPONSES else st.none(),
        "stop": st.lists(spoken_words, max_size=3 if wire != RESPONSES else 0).map(tuple),
        "user": st.none() | words,
        "stream": st.booleans(),
    }


@st.composite
def requests(draw: st.DrawFn, wire: str) -> Request:
    members = {name: draw(strategy) for name, strategy in shared(wire).items()}
    choice = draw(st.sampled_from([None, *(ToolChoice(mode) for mode in ("auto", "none", "required"))]))
    members["tool_choice"] = draw(st.sampled_from([choice, ToolChoice("tool", "f")]))
    if wire == GEMINI:
        return draw(gemini_requests(members))
    flag = st.sampled_from([None, True, False])
    output = st.builds(OutputShape, st.just("json_schema"), schemas)
    shapes = st.sampled_from([None, OutputShape("text"), OutputShape("json_object")])
    if wire == RESPONSES:
        logs = draw(st.sampled_from([None, True]))
        members |= {
            "parallel_tools": draw(flag),
            "logprobs": logs,
            "top_logprobs": draw(st.integers(0, 20)) if logs else None,
            "reasoning": draw(
                st.none()
                | st.builds(Reasoning, st.sampled_from(["low", "high"]), summary=st.sampled_from([None, "auto"]))
            ),
            "output": draw(
                shapes | st.builds(OutputShape, st.just("json_schema"), schemas, names, st.none() | words, flag)
            ),
            "verbosity": draw(st.sampled_from([None, "low"])),
            "metadata": draw(st.dictionaries(names, words, max_size=2).map(lambda found: tuple(found.items()))),
            "service_tier": draw(st.sampled_from([None, "auto", "flex"])),
            "cache_key": draw(st.none() | names),
            "store": draw(st.booleans()),
            "previous_id": draw(st.none() | names),
            "include_usage": True,
        }
        head = st.lists(
            st.builds(Message, st.just("developer"), contents(wire, more=False)), max_size=2
        ) | spoken_words.map(lambda text: [Message("system", text)])
    elif wire == CHAT:
        members |= {
            "parallel_tools": draw(flag),
            "seed": draw(st.none() | st.integers(0, 2**31)),
            "frequency_penalty": draw(st.none() | st.floats(-2, 2)),
            "presence_penalty": draw(st.none() | st.floats(-2, 2)),
            "logit_bias": draw(st.sampled_from([None, b'{"5":-1}'])),
            "logprobs": draw(flag),
            "top_logprobs": draw(st.none() | st.integers(0, 20)),
            "choices": draw(st.sampled_from([None, 1])),
            "reasoning": draw(st.none() | st.builds(Reasoning, st.sampled_from(["low", "high"]))),
            "output": draw(
                shapes
                | st.builds(OutputShape, st.just("json_schema"), st.none() | schemas, names, st.none() | words, flag)
            ),
            "metadata": draw(st.dictionaries(names, words, max_size=2).map(lambda found: tuple(found.items()))),
            "service_tier": draw(st.sampled_from([None, "auto", "flex"])),
            "cache_key": draw(st.none() | names),
            "include_usage": bool(members["stream"]) and draw(st.booleans()),
        }
        head = st.lists(
            st.builds(Message, st.sampled_from(["system", "developer"]), contents(wire, more=False)), max_size=2
        )
    else:
        mode = st.sampled_from([None, "enabled", "disabled", "adaptive"])
        reasoning = draw(
            st.builds(Reasoning, st.sampled_from([None, "low"]), mode, st.none() | st.integers(1024, 9999))
        )
        if reasoning.mode is None:
            reasoning = Reasoning(reasoning.effort)
        if members["tool_choice"] is not None and members["tool_choice"] != ToolChoice("none"):
            members["parallel_tools"] = draw(flag)
        members |= {
            "reasoning": reasoning if reasoning != Reasoning() else None,
            "output": draw(st.none() | output),
            "service_tier": draw(st.sampled_from([None, "auto", "standard_only"])),
            "include_usage": True,
        }
        head = st.lists(st.builds(Message, st.just("system"), contents(wire, more=False)), max_size=1)
    conversation = draw(st.lists(turns(wire), min_size=1, max_size=3))
    # To Anthropic, instructions in the middle leave as the user's, and an answer that has begun loses its last blanks.
    between = [Message("system", draw(words))] if wire != MESSAGES else []
    end = [Message("user", draw(spoken_words))] if wire == MESSAGES else []
    said_all = [*conversation[0], *between, *(message for turn in conversation[1:] for message in turn), *end]
    said_all = numbered(said_all)
    return Request(model=draw(names), messages=(*draw(head), *said_all), **members)  # type: ignore[arg-type]


@st.composite
def gemini_requests(draw: st.DrawFn, members: dict[str, object]) -> Request:
    # Tools of Google's own stand behind the functions, and no two functions have one name.
    given = {one.name if isinstance(one, Tool) else one.raw: one for one in members["tools"]}  # type: ignore[attr-defined]
    members["tools"] = tuple(sorted(given.values(), key=lambda one: isinstance(one, OpaqueTool)))
    if members["tool_choice"] == ToolChoice("auto"):  # which it is anyway
        members["tool_choice"] = None
    members |= {
        "user": None,
        "seed": draw(st.none() | st.integers(0, 2**31)),
        "frequency_penalty": draw(st.none() | st.floats(-2, 2)),
        "presence_penalty": draw(st.none() | st.floats(-2, 2)),
        "output": draw(
            st.sampled_from([None, OutputShape("json_object")])
            | st.builds(OutputShape, st.just("json_schema"), schemas)
        ),
        "service_tier": draw(st.sampled_from([None, "default", "flex", "priority"])),
        "cached": draw(st.none() | names),
        "include_usage": True,
    }
    head = draw(st.lists(st.builds(Message, st.just("system"), contents(GEMINI, more=False)), max_size=1))
    said_all = [message for turn in draw(st.lists(turns(GEMINI), min_size=1, max_size=3)) for message in turn]
    return Request(model=draw(names), messages=(*head, *numbered(said_all)), **members)  # type: ignore[arg-type]


@st.composite
def usages(draw: st.DrawFn, wire: str) -> Usage:
    """Usage as a format can say it: OpenAI's always have a total, Messages alone tells writes by lifetime."""
    fresh, read, write, output = draw(st.tuples(*[st.integers(0, 10**6)] * 4))
    reasoning = draw(st.none() | st.integers(0, output)) if wire != RESPONSES else draw(st.integers(0, output))
    if wire == GEMINI:
        return Usage(fresh, read, output=output, reasoning=reasoning, total=fresh + read + output)
    if wire != MESSAGES:
        return Usage(fresh, read, write, None, None, output, reasoning, fresh + read + write + output)
    split = draw(st.integers(0, write))
    return Usage(fresh, read, write, split, write - split, output, reasoning, None)


@st.composite
def streams(draw: st.DrawFn, wire: str) -> list[Event]:
    """A whole stream, as a reader of `wire` would tell it."""
    events: list[Event] = [Started("x", "m")]
    calls = 0
    kinds = [
        "text",
        "thinking",
        "call",
        *{CHAT: ["refusal", "free"], MESSAGES: ["redacted"], GEMINI: ["signed"]}.get(wire, ["refusal", "free"]),
    ]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=5)):
        slices: Sequence[str] = draw(st.lists(words, min_size=1, max_size=3))
        if kind == "text":
            events += [TextDelta(one) for one in slices]
        elif kind == "refusal":
            events += [RefusalDelta(one) for one in slices]
        elif kind == "thinking":
            spelling = draw(st.sampled_from(["reasoning_content", "reasoning"])) if wire == CHAT else None
            events += [ThinkingDelta(one, spelling) for one in slices]
            if wire == MESSAGES:
                events.append(ThinkingSigned(draw(names)))
            elif wire == RESPONSES and draw(st.booleans()):
                events.append(ThinkingSigned(""))
        elif kind == "signed":
            arguments = draw(objects)
            events += [ThinkingSigned(f"gemini#{draw(base64s)}"), CallStarted(calls, f"c{calls}", draw(names))]
            events.append(CallDelta(calls, arguments))
            calls += 1
        elif kind == "redacted":
            events.append(ThinkingRedacted(draw(names)))
        elif kind == "free":
            events.append(CallStarted(calls, f"c{calls}", draw(names), True))
            events += [CallDelta(calls, one) for one in slices]
            calls += 1
        else:
            arguments = draw(objects)
            cut = draw(st.integers(0, len(arguments)))
            events.append(CallStarted(calls, f"c{calls}", draw(names)))
            events += [CallDelta(calls, one) for one in (arguments[:cut], arguments[cut:]) if one]
            calls += 1
    if calls:
        finish = Finish.TOOL_CALLS
    elif wire != MESSAGES:
        finish = draw(st.sampled_from([Finish.STOP, Finish.LENGTH, Finish.CONTENT_FILTER]))
    else:
        finish = draw(st.sampled_from([one for one in Finish if one is not Finish.TOOL_CALLS]))
    sequence = draw(words) if finish is Finish.STOP_SEQUENCE else None
    return [*events, Finished(finish, sequence), UsageReported(draw(usages(wire))), Ended()]


def folds_to(answer: Answer) -> Answer:
    """The answer without what only the writer chooses."""
    return Answer(parts=answer.parts, finish=answer.finish, stop_sequence=answer.stop_sequence, usage=answer.usage)
