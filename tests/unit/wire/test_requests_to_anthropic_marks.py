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
    """`auto`: the client's where it set any. A bare string stays one where Arbiter does not mark."""
    talk = (SYSTEM, Message("user", (Text("a", HOUR), Text("b"))), Message("assistant", "Ok."), Message("user", "c"))
    for owner in ("auto", "client"):
        body = build(*talk, tools=TOOLS, prompt_cache=owner)
        assert marks(body) == [(0, 0, "1h")] and body["system"] == "Be terse."
        assert body["messages"][2]["content"] == "c"
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
        {
            "said": Message(
                "user", (Opaque("anthropic-messages", b'{"type":"x","cache_control":{"type":"ephemeral"}}'),)
            )
        },
    ],
)
def test_any_mark_of_the_clients_is_a_say(marked: dict[str, Any]) -> None:
    body = build(SYSTEM, Message("user", "a"), marked.get("said", Message("user", "b")), tools=marked.get("tools", ()))
    assert body["system"] == "Be terse."


def test_a_trailing_assistant_turn_is_not_marked() -> None:
    """It comes back as the beginning of another; the user's turn before it comes back as it is, and stays warm."""
    talk = (Message("user", "Go"), Message("assistant", "Two:"))
    assert marks(build(*talk, prompt_cache="arbiter")) == [(0, 0, None)]
    mine = (Message("user", "Go"), Message("user", (Text("x"),)), Message("assistant", (Text("Two:", HOUR),)))
    assert marks(build(*mine)) == [(1, 0, "1h")]


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


@pytest.mark.parametrize("control", [b'{"type":"ephemeral","ttl":1e999}', b"1e999", b'{"a":%b}' % (b"9" * 5000)])
def test_a_mark_of_no_kind_stays_on_a_block_that_nobody_knows(control: bytes) -> None:
    """What it is for is its upstream's to say, also where it holds numbers that nothing here can hold."""
    block = b'{"type":"zzz","cache_control":%b}' % control
    for whose in ("auto", "client"):
        said = Request(model="m", messages=(Message("user", (Opaque(messages.FORMAT, block),)),))
        assert block in messages.build_request(said, Target(prompt_cache=whose))
    assert b"1e999" not in messages.build_request(said, Target(prompt_cache="off"))
