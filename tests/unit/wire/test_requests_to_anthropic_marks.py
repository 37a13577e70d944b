"""Cache marks on requests to Anthropic (SPEC 2.8): whose, where, how many, how long."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.model import (
    CacheMark,
    Message,
    Opaque,
    OpaqueTool,
    Part,
    RedactedThinking,
    Request,
    Target,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from arbiter.wire import anthropic_messages as messages
from arbiter.wire import openai_chat as chat

MARK, HOUR = CacheMark(), CacheMark("1h")
TOOLS = (Tool("f"), Tool("g"))
SYSTEM = Message("system", "Be terse.")


def build(*said: Message, tools: tuple[Tool, ...] = (), **target: Any) -> Any:
    return json.loads(messages.build_request(Request(model="m", messages=said, tools=tools), Target(**target)))


def marks(body: Any) -> list[tuple[Any, ...]]:
    """Where the marks are, in the order of the prompt, and how long they last."""
    found: list[tuple[Any, ...]] = []
    for n, tool in enumerate(body.get("tools", ())):
        found += [("tools", n, tool["cache_control"].get("ttl"))] if "cache_control" in tool else []
    contents = [("system", body.get("system", ""))] + [(n, turn["content"]) for n, turn in enumerate(body["messages"])]
    for place, content in contents:
        for n, block in enumerate(() if isinstance(content, str) else content):
            found += [(place, n, block["cache_control"].get("ttl"))] if "cache_control" in block else []
    assert json.dumps(body).count('"cache_control"') == len(found)  # none deeper down
    return found


def test_arbiters_marks_are_on_the_tools_the_system_prompt_and_the_newest_turn() -> None:
    """S43 to S47: three marks, all of one lifetime, and every content is an array."""
    talk = (SYSTEM, Message("user", "Go"), Message("assistant", "Ok."), Message("user", (Text("a"), Text("b"))))
    body = build(*talk, tools=TOOLS)
    assert marks(body) == [("tools", 1, None), ("system", 0, None), (2, 1, None)]
    assert body["system"] == [{"type": "text", "text": "Be terse.", "cache_control": {"type": "ephemeral"}}]
    assert all(isinstance(turn["content"], list) for turn in body["messages"])
    hour = build(*talk, tools=TOOLS, prompt_cache="arbiter", prompt_cache_ttl="1h")
    assert marks(hour) == [("tools", 1, "1h"), ("system", 0, "1h"), (2, 1, "1h")]


def test_the_clients_marks_are_kept_or_replaced_as_the_target_says() -> None:
    """`auto`: the client's where it set any. A bare string stays one where Arbiter never marks."""
    talk = (SYSTEM, Message("user", (Text("a", HOUR), Text("b"))), Message("assistant", "Ok."), Message("user", "c"))
    for owner in ("auto", "client"):
        body = build(*talk, tools=TOOLS, prompt_cache=owner)
        assert marks(body) == [(0, 0, "1h")]
        bare = owner == "client"
        assert body["system"] == ("Be terse." if bare else [{"type": "text", "text": "Be terse."}])
        assert body["messages"][2]["content"] == ("c" if bare else [{"type": "text", "text": "c"}])
    replaced = build(*talk, tools=TOOLS, prompt_cache="arbiter")
    assert marks(replaced) == [("tools", 1, None), ("system", 0, None), (2, 0, None)]
    assert marks(build(*talk, tools=TOOLS, prompt_cache="off")) == []
    assert marks(build(Message("user", "a"), prompt_cache="client")) == []


@pytest.mark.parametrize(
    "marked",
    [
        {"tools": (Tool("f", cache=MARK),)},
        {"said": Message("user", (Text("", MARK), Text("x")))},
        {"said": Message("tool", (ToolResult("a", (Text("x", MARK),)),))},
        {"said": Message("user", (Opaque(messages.name, b'{"type":"x","cache_control":{"type":"ephemeral"}}'),))},
        {
            "said": Message(
                "user", (Opaque(messages.name, b'{"type":"x","content":[{"cache\\u005fcontrol":{"a":1}}]}'),)
            )
        },
    ],
)
def test_any_mark_of_the_clients_is_a_say(marked: dict[str, Any]) -> None:
    body = build(SYSTEM, Message("user", "a"), marked.get("said", Message("user", "b")), tools=marked.get("tools", ()))
    assert body["system"] == [{"type": "text", "text": "Be terse."}]


@pytest.mark.parametrize("inner", [b"null", b'"cache_control"', b'{"cache_control":1}'])
def test_what_is_only_called_like_a_mark_is_none(inner: bytes) -> None:
    """Not a mark of null, and not a name in a schema or in what a model wrote."""
    tool = OpaqueTool(messages.name, b'{"type":"x","name":"x","cache_control":null,"input_schema":%b}' % inner)
    body = json.loads(
        messages.build_request(Request(model="m", messages=(SYSTEM, Message("user", "a")), tools=(tool,)))
    )
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize("owner", ["off", "arbiter", "client"])
def test_a_mark_inside_of_a_block_is_on_the_block(owner: Any) -> None:
    """And goes with it where it is not the client's to set."""
    source = b'{"type": "content", "content": [{"type":"text","text":"x","n":1.50%b}]}'
    block = b'{"type":"document","source":%b}' % (source % b',"cache_control":{"type":"ephemeral"}')
    said = (Message("user", (Opaque(messages.name, block), Text("a"))),)
    body = messages.build_request(Request(model="m", messages=said), Target(prompt_cache=owner))
    assert source % b"" in body
    assert marks(json.loads(body)) == {"off": [], "arbiter": [(0, 1, None)], "client": [(0, 0, None)]}[owner]


def test_a_trailing_assistant_turn_is_not_marked() -> None:
    """It comes back as the beginning of another; the user's turn before it comes back as it is, and stays warm."""
    talk = (Message("user", "Go"), Message("assistant", "Two:"))
    assert marks(build(*talk, prompt_cache="arbiter")) == [(0, 0, None)]
    mine = (Message("user", "Go"), Message("user", (Text("x"),)), Message("assistant", (Text("Two:", HOUR),)))
    assert marks(build(*mine, prompt_cache="client")) == [(1, 0, "1h")]


def test_marks_sit_on_what_bears_them() -> None:
    """Not on thoughts; one on blank text moves to the block before; one inside of a result to the result."""
    thought: tuple[Part, ...] = (Text("ok"), ToolCall("a", "f", "{}"), Thinking("Hm", "s"), RedactedThinking("r"))
    talk = (Message("user", "Go"), Message("assistant", thought))
    result = Message("tool", (ToolResult("a", (Text("x"), Text("y", HOUR))),))
    assert marks(build(*talk, result)) == [(2, 0, "1h")]
    assert marks(build(Message("user", (Text("a"), Text(" ", HOUR), Text("b"))))) == [(0, 0, "1h")]
    assert marks(build(Message("user", (Text(" ", HOUR), Text("b"))))) == []
    mine = b'{"type":"search_result","n":123456789012345678901234567890,"cache_control":{"type":"ephemeral"}}'
    body = messages.build_request(
        Request(model="m", messages=(Message("user", (Opaque("anthropic-messages", mine), Text("a"))),)),
        Target(prompt_cache="arbiter"),
    )
    assert marks(json.loads(body)) == [(0, 1, None)] and b"123456789012345678901234567890" in body


def test_of_more_than_four_marks_the_last_of_each_kind_stay() -> None:
    """And then those nearest to the end, where the next turn looks."""
    marked = tuple(Tool(name, cache=MARK) for name in "abc")
    system = Message("system", (Text("a", MARK), Text("b", MARK)))
    talk = (
        Message("user", (Text("a", MARK),)),
        Message("assistant", (Text("b", MARK),)),
        Message("user", (Text("c", MARK),)),
    )
    assert marks(build(system, *talk, tools=marked)) == [
        ("tools", 2, None),
        ("system", 1, None),
        (1, 0, None),
        (2, 0, None),
    ]


def test_a_mark_before_one_of_an_hour_lasts_an_hour() -> None:
    """Anthropic refuses the longer behind the shorter. What lies behind it may be shorter."""
    system = Message("system", (Text("a", MARK), Text("b", HOUR)))
    talk = (Message("user", (Text("a", CacheMark("5m")),)),)
    tools = (Tool("f", cache=CacheMark("5m")),)
    assert marks(build(system, *talk, tools=tools)) == [
        ("tools", 0, "1h"),
        ("system", 0, "1h"),
        ("system", 1, "1h"),
        (0, 0, "5m"),
    ]


def test_marks_of_chat_clients_are_read_wherever_they_put_them() -> None:
    """On parts, on whole messages, on tools, inside of their functions."""
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    tools = [
        {"type": "function", "function": {"name": "f"}, **mark},
        {"type": "function", "function": {"name": "g", **mark}},
    ]
    said = [
        {"role": "system", "content": "Be terse.", **mark},
        {"role": "user", "content": [{"type": "text", "text": "a"}], **mark},
    ]
    raw = json.dumps({"model": "m", "messages": said, "tools": tools}).encode()
    request = chat.parse_request(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))
    assert marks(json.loads(messages.build_request(request))) == [
        ("tools", 0, "1h"),
        ("tools", 1, "1h"),
        ("system", 0, "1h"),
        (0, 0, "1h"),
    ]


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_marks(inner) for name, inner in value.items() if name != "cache_control"}
    return [without_marks(inner) for inner in value] if isinstance(value, list) else value


some_mark = st.sampled_from([None, None, MARK, HOUR, CacheMark("5m")])
some_text = st.builds(Text, st.sampled_from(["", " ", "x"]), some_mark)
some_said = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "developer"]),
    st.sampled_from(["", "Hi"]) | st.lists(some_text, max_size=4).map(tuple),
)


@pytest.mark.parametrize("owner", ["auto", "client", "arbiter", "off"])
@given(
    said=st.lists(some_said, min_size=1, max_size=6),
    tools=st.lists(st.builds(Tool, st.just("f"), cache=some_mark), max_size=3).map(tuple),
    ttl=st.sampled_from(["5m", "1h"]),
)
@settings(max_examples=60)
def test_no_request_is_refused_for_its_marks(owner: Any, said: Any, tools: Any, ttl: Any) -> None:
    """At most four, none on blank text or on a trailing assistant turn, and none of an hour behind a shorter one."""
    body = build(*said, tools=tools, prompt_cache=owner, prompt_cache_ttl=ttl)
    found = marks(body)
    assert len(found) <= (0 if owner == "off" else 4)
    lifetimes = [one[2] == "1h" for one in found]
    assert lifetimes == sorted(lifetimes, reverse=True)
    turns = body["messages"]
    if turns[-1]["role"] == "assistant":
        assert all(one[0] != len(turns) - 1 for one in found)


@pytest.mark.parametrize("owner", ["auto", "arbiter"])
@given(
    said=st.lists(some_said, min_size=2, max_size=6),
    now=st.lists(some_mark, min_size=6, max_size=6),
    later=st.lists(some_mark, min_size=6, max_size=6),
    kept=st.integers(1, 5),
)
@settings(max_examples=100)
def test_whose_marks_they_are_changes_nothing_else(
    owner: Any, said: list[Message], now: Any, later: Any, kept: int
) -> None:
    """A client may set its first mark in any turn, on any message: what went before is the same (SPEC 2.4)."""
    said = [Message("user", "Go"), *(one for one in said if one.role != "developer"), Message("user", "End")][:6]

    def turns(marks_now: Any, count: int) -> list[Any]:
        talk = [
            one if mark is None else Message(one.role, tuple(Text(p.text, mark) for p in one.parts()))  # type: ignore[union-attr]
            for one, mark in zip(said, marks_now, strict=False)
        ]
        body = build(*talk[:count], prompt_cache=owner)
        return [body.get("system"), *without_marks(body["messages"])]

    whole = len(said)
    assert turns(now, whole) == turns(later, whole)
    # All but the turn that may still grow, or that loses its last blanks while it is the end.
    short, long = turns(now, min(kept, whole)), turns(later, whole)
    assert short[:-1] == long[: len(short) - 1]


@pytest.mark.parametrize("control", [b'{"type":"ephemeral","ttl":1e999}', b"1e999", b'{"a":%b}' % (b"9" * 5000)])
def test_a_mark_of_no_kind_stays_on_a_block_that_nobody_knows(control: bytes) -> None:
    """What it is for is its upstream's to say, also where it holds numbers that nothing here can hold."""
    block = b'{"type":"zzz","cache_control":%b}' % control
    for whose in ("auto", "client"):
        said = Request(model="m", messages=(Message("user", (Opaque(messages.FORMAT, block),)),))
        assert block in messages.build_request(said, Target(prompt_cache=whose))
    assert b"1e999" not in messages.build_request(said, Target(prompt_cache="off"))
