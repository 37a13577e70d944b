"""What rows say of a prompt: hashes in which nothing counts that a provider's cache would not see."""

from __future__ import annotations

import asyncio
import json
import random
import re
import tracemalloc
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter import clock
from arbiter.ledger.prefix import AT_ONCE_BYTES, TOOLS_SAMPLE_BYTES, Prefix, Prefixes
from arbiter.ledger.toolsets import USED_EVERY_S
from arbiter.wire import native

CAPTURES = Path(__file__).parents[2] / "vectors" / "turns"
MARK = {"type": "ephemeral"}
Body = dict[str, Any]


@pytest.fixture
def prefixes() -> Iterator[Prefixes]:
    loop = asyncio.new_event_loop()
    made = Prefixes(loop)
    yield made
    loop.run_until_complete(made.aclose())
    loop.close()


def members_of(body: Body | bytes) -> Mapping[str, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return native.open_body(raw).members


def told(prefixes: Prefixes, body: Body | bytes) -> Prefix:
    found = prefixes.reading(members_of(body)).read()
    assert found is not None
    return found


def fresh(body: Body | bytes) -> Prefix:
    """As a worker tells it that has seen nothing before."""
    loop = asyncio.new_event_loop()
    try:
        return told(Prefixes(loop), body)
    finally:
        loop.close()


def kept(prefix: Prefix) -> dict[int, str]:
    return {int(at): digest for at, _, digest in (entry.partition(":") for entry in prefix.input_chain)}


def goes_on(before: Prefix, after: Prefix) -> bool:
    """Whether `after` repeats the last hash of `before` (SPEC 7.4)."""
    return before.input_chain[-1] in after.input_chain and before.head_hash == after.head_hash


# --- conversations ----------------------------------------------------------------------------------------------------


def chat(*messages: Body, system: str | None = "You are kind.", **members: Any) -> Body:
    lead = [{"role": "system", "content": system}] if system is not None else []
    return {"model": "m", "messages": [*lead, *messages], **members}


def messages(*turns: Body, system: Any = "You are kind.", **members: Any) -> Body:
    return {"model": "m", "system": system, "messages": list(turns), **members}


def user(text: str) -> Body:
    return {"role": "user", "content": text}


def chat_calls(turn: int, count: int, *, thinking: bool, each: bool) -> list[Body]:
    """A turn in which a model called `count` tools at once, and their results."""
    ids = [f"call_{turn}_{n}" for n in range(count)]
    calls = [{"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}} for id in ids]
    thought = {"reasoning_content": "hm"} if thinking else {}
    return [{"role": "assistant", "content": None, **thought, "tool_calls": calls},
            *({"role": "tool", "tool_call_id": id, "content": f"result of {id}"} for id in ids)]  # fmt: skip


def messages_calls(turn: int, count: int, *, thinking: bool, each: bool) -> list[Body]:
    """The same; `each`: some clients send each result in a message of its own."""
    ids = [f"toolu_{turn}_{n}" for n in range(count)]
    thought = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}] if thinking else []
    calls = [{"type": "tool_use", "id": id, "name": "read", "input": {"path": "a"}} for id in ids]
    results = [{"type": "tool_result", "tool_use_id": id, "content": f"result of {id}"} for id in ids]
    answers = [[result] for result in results] if each else [results]
    return [
        {"role": "assistant", "content": [*thought, *calls]},
        *({"role": "user", "content": one} for one in answers),
    ]


def items_calls(turn: int, count: int, *, thinking: bool, each: bool) -> list[Body]:
    """The items of the Responses format: a model makes several in a row."""
    ids = [f"fc_{turn}_{n}" for n in range(count)]
    thought = [{"type": "reasoning", "summary": [], "encrypted_content": "c2ln"}] if thinking else []
    return [*thought, *({"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"} for id in ids),
            *({"type": "function_call_output", "call_id": id, "output": f"result of {id}"} for id in ids)]  # fmt: skip


def responses(*items: Body, **members: Any) -> Body:
    return {"model": "m", "instructions": "You are kind.", "input": list(items), **members}


def gemini_calls(turn: int, count: int, *, thinking: bool, each: bool) -> list[Body]:
    """Gemini's calls have no ids of their own, and their results stand together."""
    signed = {"thoughtSignature": "c2ln"} if thinking else {}
    calls = [{"functionCall": {"name": "read", "args": {"path": f"{turn}/{n}"}}} for n in range(count)]
    results = [{"functionResponse": {"name": "read", "response": {"output": f"{turn}/{n}"}}} for n in range(count)]
    answers = [[result] for result in results] if each else [results]
    return [
        {"role": "model", "parts": [calls[0] | signed, *calls[1:]]},
        *({"role": "user", "parts": one} for one in answers),
    ]


def gemini(*turns: Body, **members: Any) -> Body:
    said = [{"role": "user", "parts": [{"text": one["content"]}]} if "content" in one else one for one in turns]
    return {"model": "m", "systemInstruction": {"parts": [{"text": "You are kind."}]}, "contents": said, **members}


FORMATS = [(chat, chat_calls), (messages, messages_calls), (responses, items_calls), (gemini, gemini_calls)]


@pytest.mark.parametrize(("request_of", "calls_of"), FORMATS, ids=["chat", "messages", "items", "gemini"])
@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("more", [False, True], ids=["", "text-after"])
@pytest.mark.parametrize("each", [False, True], ids=["together", "each"])
@pytest.mark.parametrize("count", range(1, 21))
def test_a_turn_with_any_number_of_results_repeats_the_last_hash(
    prefixes: Prefixes, request_of: Any, calls_of: Any, thinking: bool, more: bool, each: bool, count: int
) -> None:
    """And the last hashes of the three turns before it, if they are asked for."""
    history = [user("read it")]
    turns = [told(prefixes, request_of(*history))]
    for turn in range(5):
        history = history + calls_of(turn, count, thinking=thinking, each=each) + [user("go on")] * more
        turns.append(told(prefixes, request_of(*history)))
        for before in turns[-5:-1]:
            assert goes_on(before, turns[-1])


def test_a_retried_request_repeats_everything(prefixes: Prefixes) -> None:
    body = chat(user("a"), *chat_calls(0, 3, thinking=False, each=False))
    assert told(prefixes, body).input_chain == told(prefixes, body).input_chain == fresh(body).input_chain


# --- what does not count ----------------------------------------------------------------------------------------------


def respelled(value: Any, draw: random.Random, *, name: str = "") -> str:
    """The same JSON in another spelling: blanks, escapes, the order of members that clients move."""
    if isinstance(value, dict):
        members = list(value.items())
        if name not in ("input", "input_schema", "parameters", "properties"):
            draw.shuffle(members)
        blank = draw.choice(["", " ", "\n  "])
        return "{" + ",".join(f"{blank}{json.dumps(k)}:{respelled(v, draw, name=k)}" for k, v in members) + blank + "}"
    if isinstance(value, list):
        blank = draw.choice(["", " ", "\t"])
        return "[" + ",".join(blank + respelled(one, draw) for one in value) + blank + "]"
    if isinstance(value, str) and draw.random() < 0.3:
        return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else json.dumps(c)[1:-1] for c in value) + '"'
    return json.dumps(value, ensure_ascii=draw.random() < 0.5)


def marked(body: Body, draw: random.Random) -> Body:
    """The same request with its marks somewhere else."""
    body = json.loads(json.dumps(body))
    for entry in [*body.get("tools", ()), *body["messages"]]:
        if draw.random() < 0.3:
            entry["cache_control"] = {"type": "ephemeral", "ttl": draw.choice(["5m", "1h"])}
        content = entry.get("content")
        if isinstance(content, str) and draw.random() < 0.5:
            entry["content"] = content = [{"type": "text", "text": content}]
        for block in content if isinstance(content, list) else ():
            if draw.random() < 0.3:
                block["cache_control"] = MARK
    return body


TOOLS = [
    {"name": "read", "description": "Reads.", "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}}}
]
LONG = messages(
    user('grüße \U0001f30d / "x"\n'),
    *(turn for n in range(12) for turn in messages_calls(n, 2, thinking=n % 2 == 0, each=n % 3 == 0)),
    tools=TOOLS,
)
LONG_CHAT = chat(
    user("grüße \U0001f30d"),
    *(turn for n in range(12) for turn in chat_calls(n, 2, thinking=n % 2 == 0, each=False)),
    tools=[{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}],
)


@pytest.mark.parametrize("body", [LONG, LONG_CHAT], ids=["messages", "chat"])
@pytest.mark.parametrize("seed", range(25))
def test_marks_blanks_and_the_order_of_keys_change_nothing(body: Body, seed: int) -> None:
    """Real agents change all of these from turn to turn."""
    draw = random.Random(seed)
    other = fresh(respelled(marked(body, draw), draw).encode())
    same = fresh(body)
    assert other.input_chain == same.input_chain
    assert (other.head_hash, other.system_hash, other.tools_hash) == (same.head_hash, same.system_hash, same.tools_hash)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 38), st.sampled_from([LONG, LONG_CHAT]))
def test_an_edit_first_shows_at_the_first_kept_position_behind_it(at: int, body: Body) -> None:
    """So whoever compares two chains knows between which two inputs a history was changed."""
    body = json.loads(json.dumps(body))
    before = kept(fresh(body))
    at %= len(body["messages"])
    if body["messages"][at]["role"] == "system":
        at += 1
    body["messages"][at]["content"] = "something else"
    after = kept(fresh(body))
    shared = before.keys() & after.keys()
    assert {k for k in shared if before[k] != after[k]} == {k for k in shared if k > at}


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda body: body["tools"][0].update(description="Writes."), {"tools"}),
        (lambda body: body["tools"][0]["input_schema"]["properties"].update(c={}), {"tools"}),
        (lambda body: body["tools"].append({"name": "write"}), {"tools"}),
        (lambda body: body.update(tools=[]), {"tools"}),
        (lambda body: body.update(system="You are rude."), {"system"}),
        (lambda body: body.pop("system"), {"system"}),
        (lambda body: body.update(temperature=0.5, max_tokens=5), set()),
    ],
)
def test_which_part_of_a_head_changed_is_told(change: Any, parts: set[str]) -> None:
    body = json.loads(json.dumps(LONG))
    change(body)
    before, after = fresh(LONG), fresh(body)
    assert {"system"} & parts == ({"system"} if before.system_hash != after.system_hash else set())
    assert {"tools"} & parts == ({"tools"} if before.tools_hash != after.tools_hash else set())
    assert (before.head_hash != after.head_hash) == bool(parts)
    assert bool(kept(before).items() & kept(after).items()) == (not parts)  # the chain begins with the head


def test_the_order_in_which_a_schema_names_its_properties_counts() -> None:
    """The model reads it."""
    other = json.loads(json.dumps(LONG))
    other["tools"][0]["input_schema"]["properties"] = {"a": {}, "b": {}}
    assert fresh(other).tools_hash != fresh(LONG).tools_hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"functionCall": {"name": "f", "args": {"b": 1, "a": 2}}},
         {"functionCall": {"args": {"b": 1, "a": 2}, "name": "f"}}),
        ({"functionResponse": {"name": "f", "response": {"b": 1, "a": 2}}},
         {"functionResponse": {"response": {"b": 1, "a": 2}, "name": "f"}}),
    ],
    ids=["call", "result"],
)  # fmt: skip
def test_of_geminis_arguments_the_order_counts_and_of_the_rest_it_does_not(one: Body, other: Body) -> None:
    def chain_of(part: Body) -> list[str]:
        return fresh({"model": "m", "contents": [{"role": "model", "parts": [part]}]}).input_chain

    swapped = json.loads(json.dumps(one).replace('"b": 1, "a": 2', '"a": 2, "b": 1'))
    assert chain_of(one) == chain_of(other) != chain_of(swapped)


def test_geminis_tools_are_counted_one_by_one() -> None:
    functions = [{"name": f"f{n}", "parametersJsonSchema": {"type": "object"}} for n in range(3)]
    body = gemini(user("hi"), tools=[{"functionDeclarations": functions}, {"googleSearch": {}}])
    found = fresh(body)
    assert (found.tools_offered, found.tools_hash is not None, found.system_hash is not None) == (4, True, True)
    other = fresh(json.loads(json.dumps(body).replace("You are kind.", "You are not.")))
    assert (other.tools_hash, other.system_hash == found.system_hash) == (found.tools_hash, False)


def test_a_head_can_be_hashed_by_whoever_has_the_prompt() -> None:
    """The rows' hashes are worth something outside of this program, too."""
    system = sha256(bytes(32) + b'[{"text":"You are kind.","type":"text"}]').digest()
    tool = b'{"description":"Reads.","input_schema":{"type":"object","properties":{"b":{},"a":{}}},"name":"read"}'
    tools = sha256(bytes(32) + tool).digest()
    found = fresh(messages(user("a"), tools=TOOLS))
    assert found.head_hash == sha256(system + tools).hexdigest()
    assert (found.system_hash, found.tools_hash) == (system.hex()[:12], tools.hex()[:12])
    first = sha256(
        sha256(system + tools).digest() + b'{"content":[{"text":"a","type":"text"}],"role":"user"}'
    ).hexdigest()
    assert found.input_chain == [f"1:{first[:12]}"]


def test_without_instructions_or_tools_there_are_no_hashes_of_them() -> None:
    for body in (
        chat(user("a"), system=None),
        messages(user("a"), system=[], tools=[]),
        messages(user("a"), system=None),
    ):
        found = fresh(body)
        assert (found.system_hash, found.tools_hash, found.tools_offered) == (None, None, 0)
        assert found.head_hash == sha256(bytes(64)).hexdigest()


def test_leading_instructions_are_the_heads_and_take_their_places() -> None:
    """So that `message 3` in a row is the third message of the request, whatever the format."""
    found = fresh(chat({"role": "developer", "content": "b"}, user("a"), {"role": "system", "content": "late"}))
    assert found.inputs == 4
    assert list(kept(found)) == [1, 2, 3, 4]
    assert kept(found)[1] == kept(found)[2] == found.head_hash[:12]
    changed = fresh(chat({"role": "developer", "content": "c"}, user("a"), {"role": "system", "content": "late"}))
    assert changed.system_hash != found.system_hash and not kept(found).items() & kept(changed).items()
    late = fresh(chat({"role": "developer", "content": "b"}, user("a"), {"role": "system", "content": "later"}))
    assert late.head_hash == found.head_hash and kept(late)[3] == kept(found)[3] and kept(late)[4] != kept(found)[4]


@pytest.mark.parametrize("rest", ["", "You are kind.", 'Two\nlines \\ "quoted"'])
def test_the_attribution_line_is_left_out(rest: str) -> None:
    """Its version differs between Claude Code's conversations (CLIENTS.md 2)."""
    line = "x-anthropic-billing-header: cc_version=2.1.197.{}; cc_entrypoint=cli;"
    text = [{"type": "text", "text": rest}] if rest else []
    for system in (
        [{"type": "text", "text": line}, *text],
        f"{line}\n{rest}",
        [{"type": "text", "text": f"{line}\n\n{rest}"}],
    ):
        spelled = json.dumps(system)
        one, two = (fresh(messages(user("a"), system=json.loads(spelled.replace("{}", n)))) for n in ("abc", "def"))
        assert one.head_hash == two.head_hash == fresh(messages(user("a"), system=rest or None)).head_hash
    in_chat = [fresh(chat(user("a"), system=f"{line.format(n)}\n{rest}")).head_hash for n in ("abc", "def")]
    assert in_chat[0] == in_chat[1]


# --- marks and effort -------------------------------------------------------------------------------------------------


def test_marks_are_told_in_the_order_of_the_prompt() -> None:
    """Tools come first, then the system prompt, then the messages; places are counted from 0 as in JSON paths."""
    hour = {"type": "ephemeral", "ttl": "1h"}
    system = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": hour}]
    result = {"type": "tool_result", "content": [{"type": "text", "text": "x", "cache_control": MARK}]}
    body = messages(
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": MARK}]},
        {"role": "user", "content": [{"type": "text", "text": "b"}, result]},
        system=system,
        tools=[{"name": "a"}, {"name": "b", "cache_control": MARK}],
        cache_control=hour,
    )
    assert fresh(body).cache_marks == ["tools:1@5m", "system:1@1h", "message:0.0@5m", "message:1.1.0@5m", "request@1h"]
    in_chat = chat(
        {"role": "user", "content": [{"type": "text", "text": "a", "prompt_cache_breakpoint": {"ttl": "30m"}}]}
    )
    in_chat["messages"][0] = {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": MARK}]}
    in_chat["prompt_cache_retention"] = "24h"
    assert fresh(in_chat).cache_marks == ["message:0.0@5m", "message:1.0@30m", "request@24h"]
    assert fresh(LONG).cache_marks == []


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({}, None),
        ({"reasoning_effort": "high"}, "high"),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, "low"),
        ({"reasoning": {"max_tokens": 2000}}, "reasoning:2000"),
        ({"output_config": {"effort": "max"}, "thinking": {"type": "adaptive"}}, "max thinking:adaptive"),
        ({"thinking": {"type": "enabled", "budget_tokens": 8000}}, "thinking:8000"),
        ({"thinking": {"type": "disabled"}}, "thinking:disabled"),
        ({"reasoning_effort": None, "thinking": 5, "reasoning": [], "output_config": {"effort": {}}}, None),
        ({"reasoning_effort": "two words"}, None),
        ({"reasoning_effort": "x" * 100}, "x" * 32),
        ({"thinking": {"type": "x" * 10_000}}, None),
    ],
)
def test_effort_is_told_in_the_requests_own_words(asked: Body, word: str | None) -> None:
    assert fresh({**LONG, **asked}).effort == word


def test_what_else_reaches_the_prompt_is_one_hash() -> None:
    """However it is spelled; effort has a word of its own, and what is left at nothing is not asked for."""
    bare = fresh(LONG).settings_hash
    assert bare is None
    for nothing in ({"tool_choice": None}, {"output_config": {"effort": "high"}}, {"response_format": {}}):
        assert fresh({**LONG, **nothing}).settings_hash is None
    shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    turned = {"json_schema": {"schema": {"type": "object"}, "name": "a"}, "type": "json_schema"}
    told = fresh({**LONG, "response_format": shape}).settings_hash
    assert told is not None and told == fresh({**LONG, "response_format": turned}).settings_hash
    others: list[Body] = [
        {"tool_choice": "none"},
        {"tool_choice": {"type": "any"}},
        {"output_config": {"format": {"type": "json_schema"}}},
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ]
    found = [fresh({**LONG, **other}).settings_hash for other in others]
    assert None not in found and len({told, *found}) == len(others) + 1
    assert fresh({**LONG, "tool_choice": "x" * 300_000}).settings_hash is None


# --- going on ---------------------------------------------------------------------------------------------------------


def conversation(size: int, draw: random.Random) -> list[Body]:
    turns: list[Body] = [user("x" * 500)]
    while size > 0:
        turns += messages_calls(len(turns), 1, thinking=False, each=False)
        text = "".join(draw.choices('abc \n"', k=draw.randrange(100, 4000)))
        turns[-1]["content"][0]["content"] = [{"type": "text", "text": text}]
        size -= len(text)
    return turns


def with_mark(turns: list[Body]) -> Body:
    """As Claude Code does: the newest block is marked, and only it."""
    turns = json.loads(json.dumps(turns))
    last = turns[-1]
    if isinstance(last["content"], str):
        last["content"] = [{"type": "text", "text": last["content"]}]
    last["content"][-1]["cache_control"] = MARK
    return messages(*turns, tools=TOOLS)


def test_a_conversation_that_goes_on_costs_its_new_inputs(prefixes: Prefixes) -> None:
    """Although its marks moved, so that the newest bytes of the last turn come back as others (SPEC 7.4)."""
    draw = random.Random(7)
    turns = conversation(2_000_000, draw)
    body = with_mark(turns)
    told(prefixes, body)
    whole = prefixes.folded_bytes
    assert whole > 1_900_000
    for n in range(5):
        turns = turns + messages_calls(10_000 + n, 3, thinking=True, each=False)
        before, body = prefixes.folded_bytes, with_mark(turns)
        assert told(prefixes, body).input_chain == fresh(body).input_chain
        new = len(json.dumps(turns[-4:]))  # the new turn, and the one that lost its mark
        assert prefixes.folded_bytes - before <= new + 200 < whole / 100


def test_a_turn_that_was_rewound_or_forked_goes_on_from_where_it_leaves(prefixes: Prefixes) -> None:
    """Also a conversation that others were sent after, and whose beginning others share."""
    draw = random.Random(3)
    turns = conversation(200_000, draw)
    told(prefixes, with_mark(turns))
    whole = prefixes.folded_bytes
    for body in (with_mark(turns[:-40]), with_mark([*turns[:-20], user("another way")]), with_mark(turns)):
        before = prefixes.folded_bytes
        assert told(prefixes, body).input_chain == fresh(body).input_chain
        assert prefixes.folded_bytes - before < whole / 2


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 5)), min_size=1, max_size=12),
    st.integers(0, 99),
)
def test_resuming_never_changes_what_is_told(moves: list[tuple[int, int, int]], seed: int) -> None:
    """Whatever was read before: continued, rewound, edited in the middle, with other tools, or another conversation."""
    draw = random.Random(seed)
    loop = asyncio.new_event_loop()
    prefixes = Prefixes(loop, trails_bytes=60_000)
    turns = conversation(40_000, draw)
    tools: list[Body] = TOOLS
    for move, at, count in moves:
        if move == 0:
            turns = turns + messages_calls(draw.randrange(1 << 30), count + 1, thinking=False, each=True)
        elif move == 1:
            turns = turns[: max(1, len(turns) - at)]
        elif move == 2:
            turns = [*turns[: at % len(turns)], user(f"edited {draw.random()}"), *turns[at % len(turns) + 1 :]]
        else:
            tools = [{"name": f"tool-{count}"}]
        body = {**(with_mark(turns) if count % 2 else messages(*turns)), "tools": tools}
        for _ in range(2):
            one, other = told(prefixes, body), fresh(body)
            assert (one.head_hash, one.input_chain, one.cache_marks, one.inputs) == (
                other.head_hash, other.input_chain, other.cache_marks, other.inputs)  # fmt: skip
        assert prefixes.trails.size <= prefixes.trails.limit_bytes
    loop.close()


def test_what_trails_take_is_bounded() -> None:
    """A worker of many long conversations forgets those that were left the longest ago."""
    loop = asyncio.new_event_loop()
    prefixes = Prefixes(loop, trails_bytes=200_000)
    draw = random.Random(1)
    conversations = [conversation(60_000, draw) for _ in range(60)]
    for turns in conversations:
        told(prefixes, messages(*turns))
        assert 0 < prefixes.trails.size <= 200_000
    for turns, is_known in ((conversations[-1], True), (conversations[0], False)):
        before = prefixes.folded_bytes
        told(prefixes, messages(*turns, user("go on")))
        assert (prefixes.folded_bytes - before < 10_000) == is_known
    loop.close()


def test_instructions_that_follow_on_instructions_are_seen(prefixes: Prefixes) -> None:
    """They are the head's: a conversation is not taken for another one that begins with fewer of them."""
    one, two = ({"role": "system", "content": letter * 10_000} for letter in "ab")
    bodies = [chat(one, user("hello"), system="s"), chat(one, two, user("hello"), system="s"), chat(one, system="s")]
    for body in bodies * 2:
        assert told(prefixes, body).input_chain == fresh(body).input_chain
        assert told(prefixes, body).system_hash == fresh(body).system_hash


@pytest.mark.parametrize("where", ["messages", "system", "tools"])
def test_much_to_hash_does_not_keep_the_loop(prefixes: Prefixes, where: str) -> None:
    """It goes to a thread; whoever asks before it is done is called back, and gets the same."""
    much = "x" * (40 * AT_ONCE_BYTES)
    body = messages(
        user(much if where == "messages" else "a"),
        system=much if where == "system" else "b",
        tools=[{"name": much if where == "tools" else "c"}],
    )
    turns: list[str] = []

    async def main() -> tuple[Prefix | None, Prefix | None]:
        patient, hasty = prefixes.reading(members_of(body)), prefixes.reading(members_of(body))
        patient.begin()
        patient.begin()
        while not patient.is_over:
            turns.append("another's turn")
            await asyncio.sleep(0)
        prefixes.trails, prefixes.heads = type(prefixes.trails)(1 << 20), type(prefixes.heads)()
        told = asyncio.Event()
        assert not hasty.is_ready(told.set) and prefixes.late_bytes > 0
        await told.wait()
        assert hasty.is_ready(told.clear) and told.is_set() and prefixes.late_bytes == 0
        return patient.prefix, hasty.prefix

    patient, hasty = prefixes.loop.run_until_complete(main())
    assert patient == fresh(body) and hasty is not None
    assert hasty.input_chain == patient.input_chain
    assert turns
    # What is known by now is not hashed elsewhere.
    again = prefixes.reading(members_of(body))
    assert again._look() < AT_ONCE_BYTES


def test_tools_are_sampled_once(prefixes: Prefixes) -> None:
    """Whoever counts their tokens needs them once; they are most of a young conversation."""
    first, second = told(prefixes, LONG), told(prefixes, {**LONG, "tools": json.loads(json.dumps(TOOLS))})
    assert first.tools_sample is not None and json.loads(first.tools_sample) == TOOLS
    assert second.tools_sample is None and first.tools_offered == second.tools_offered == 1
    assert told(prefixes, messages(user("a"))).tools_sample is None
    many = [{"name": f"tool-{n}", "description": "x" * 1000} for n in range(TOOLS_SAMPLE_BYTES // 1000)]
    large = told(prefixes, messages(user("a"), tools=many))
    assert large.tools_sample is None and large.tools_offered == len(many)


def test_tools_that_were_not_seen_for_an_hour_are_sampled_again(
    prefixes: Prefixes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody uses may be gone from the store by then; what is in use is not sent over and over."""
    now_s = 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    assert told(prefixes, LONG).tools_sample is not None
    for _ in range(3):
        now_s += USED_EVERY_S - 1
        assert told(prefixes, LONG).tools_sample is None
    now_s += USED_EVERY_S
    assert told(prefixes, LONG).tools_sample is not None


# --- what comes in from outside ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "member",
    [b'"messages":5', b'"messages":null', b'"messages":{}', b'"messages":"text"', b'"messages":[]', b'"x":1',
     b'"messages":[1,"a",null,[]]', b'"messages":[{"role":"user"},{"role":5}]', b'"messages":[[[[[[]]]]]]',
     b'"messages":[{"role":"user","role":"assistant","content":"\\ud83c"}]',
     b'"messages":[' + b'{"a":' * 190 + b"1" + b"}" * 190 + b"]", b'"system":5,"messages":[]',
     b'"system":{"a":[1]},"messages":[]', b'"tools":null,"messages":[]', b'"tools":"x","messages":[]',
     b'"tools":{},"messages":[]', b'"tools":[[],5,{"cache_control":5}],"messages":[]',
     b'"input":"text"', b'"input":["a","b"]', b'"input":[[1,2],[3]]'],
)  # fmt: skip
def test_no_request_is_too_strange(prefixes: Prefixes, member: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """There is an answer or none, and never an error."""
    for _ in range(2):
        prefixes.reading(members_of(b'{"model":"m",%b}' % member)).read()
    assert not caplog.records


def test_more_inputs_than_anybody_sends_have_no_chain(prefixes: Prefixes) -> None:
    """Each costs a microsecond; a body of nothing but commas could hold six million."""
    assert prefixes.reading(members_of(b'{"model":"m","messages":[' + b"{}," * 100_000 + b"{}]}")).read() is None
    found = prefixes.reading(members_of(b'{"model":"m","messages":[' + b"{}," * 99_999 + b"{}]}")).read()
    assert found is not None and found.inputs == 100_000


@settings(deadline=None, max_examples=200)
@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["role", "content", "type", "cache_control", "input"]), inner)))  # fmt: skip
def test_any_json_has_some_prefix(value: Any) -> None:
    for name in (
        "messages",
        "system",
        "tools",
        "input",
        "thinking",
        "reasoning",
        "prompt_cache_options",
        "cache_control",
    ):
        body: Body = {"model": "m", "messages": [user("a")], name: value}
        loop = asyncio.new_event_loop()
        Prefixes(loop).reading(members_of(body)).read()
        loop.close()


# --- real agents ------------------------------------------------------------------------------------------------------


def captured(client: str) -> list[Body]:
    found: list[Body] = json.loads((CAPTURES / f"{client}.json").read_bytes())
    return found


CLIENTS = sorted(file.stem for file in CAPTURES.glob("*.json"))


@pytest.mark.parametrize("client", CLIENTS)
def test_the_turns_of_a_real_agent_go_on_from_each_other(prefixes: Prefixes, client: str) -> None:
    """With its marks moved, its members in another order and its strings turned into blocks, as it sends them."""
    turns = [told(prefixes, body) for body in captured(client)]
    assert len(turns) >= 2
    for before, after in pairwise(turns):
        assert goes_on(before, after)
        assert before.inputs < after.inputs
        assert (before.system_hash, before.tools_hash) == (after.system_hash, after.tools_hash)
    assert all(
        re.fullmatch(r"(tools|system|message)(:[0-9.]+)?@(5m|1h)", mark) for one in turns for mark in one.cache_marks
    )


def test_claude_codes_marks_and_effort_are_told(prefixes: Prefixes) -> None:
    turns = [told(prefixes, body) for body in captured("claude")]
    assert [one.cache_marks[:2] for one in turns] == [["system:1@5m", "system:2@5m"]] * 3
    assert [one.cache_marks[2] for one in turns] == ["message:0.1@5m", "message:3.0@5m", "message:5.0@5m"]
    assert {one.effort for one in turns} == {"high thinking:adaptive"}


def test_what_is_remembered_of_a_head_is_not_its_text() -> None:
    """System prompts have hundreds of kilobytes, and a worker sees many."""
    loop = asyncio.new_event_loop()
    prefixes = Prefixes(loop)
    tracemalloc.start()
    for n in range(40):
        told(
            prefixes,
            messages(user("a"), system=f"{n}" + "x" * 500_000, tools=[{"name": "a", "text": f"{n}" + "y" * 500_000}]),
        )
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    loop.close()
    assert kept_bytes < 2_000_000
