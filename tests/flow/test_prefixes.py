"""What the rows say of prompts, through real sockets and processes (SPEC 7.4)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.fakes.client import Caller, ask, request, run
from tests.fakes.origin import Origin, Peer, Request, answer
from tests.fakes.wires import CHAT, JSON, MESSAGES, RESPONSES, WIRES, Front, Wire, begun, sse

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)
SYSTEM = "You are a careful assistant with a system prompt of your own."
TOLD = ("head_hash", "system_hash", "inputs", "input_chain", "tools_offered", "cache_marks", "conversation", "client")


def asked(wire: Wire, *turns: dict[str, Any], **members: Any) -> dict[str, Any]:
    body = wire.ask(**members)
    if wire is CHAT:
        return {**body, "messages": [{"role": "system", "content": SYSTEM}, *turns]}
    if wire is RESPONSES:
        return {**body, "instructions": SYSTEM, "input": list(turns)}
    return {**body, "system": SYSTEM, "messages": list(turns)}


def told(attempt: dict[str, Any]) -> dict[str, Any]:
    return {name: attempt[name] for name in TOLD}


USER = {"role": "user", "content": "What is in this file, and what is in the other one?"}
ANSWER = {"role": "assistant", "content": "This and that."}
MARKED = {"role": "user", "content": [{"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}]}


@each_wire
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_a_turn_repeats_the_last_hash_of_the_turn_before(front: Front, wire: Wire, stream: bool) -> None:
    """And both are of one conversation, which needs no session."""

    async def main() -> None:
        reply = begun(*wire.events("hello")) + b"0\r\n\r\n" if stream else answer(wire.answer(), headers=[JSON])
        async with Origin(reply, port=front.upstream):
            first = await ask(front.port, wire.path, asked(wire, USER, stream=stream))
            second = await ask(front.port, wire.path, asked(wire, USER, ANSWER, MARKED, stream=stream))
        assert (first.status, second.status) == (200, 200)
        (one,), (two,) = (front.row(found.trace_id)["attempts"] for found in (first, second))
        lead = 1 if wire is CHAT else 0
        assert (one["inputs"], two["inputs"]) == (1 + lead, 3 + lead)
        assert one["head_hash"] == two["head_hash"] and len(one["head_hash"]) == 64
        assert json.loads(one["input_chain"])[-1] in json.loads(two["input_chain"])
        assert (one["cache_marks"], json.loads(two["cache_marks"])) == ("[]", [f"message:{2 + lead}.0@5m"])
        assert one["conversation"] == two["conversation"] and len(one["conversation"]) == 32
        assert (one["tools_offered"], one["tools_hash"], one["replaced"], one["projection_hash"]) == (
            0,
            None,
            None,
            None,
        )

    run(main)


@each_wire
def test_an_attempt_that_fails_tells_its_prompt_too(make_front: Any, wire: Wire) -> None:
    """Each attempt of a request, and all the same."""
    front = make_front(provider={"retry": {"attempts": 3, "base": "1ms"}})

    async def main() -> None:
        left = ["503 x", "529 x", "200 OK"]

        async def script(peer: Peer, request: Request) -> None:
            await peer.send(answer(wire.answer(), status=left.pop(0), headers=[JSON]))

        async with Origin(script, port=front.upstream):
            found = await ask(front.port, wire.path, asked(wire, USER))
        row = front.row(found.trace_id)
        assert [attempt["outcome"] for attempt in row["attempts"]] == ["error", "error", "ok"]
        assert row["attempts"][0]["input_chain"] and len({json.dumps(told(one)) for one in row["attempts"]}) == 1
        # Nobody listens there: it is never sent, and told all the same.
        nowhere = await ask(front.port, wire.path, asked(wire, USER))
        (last, *_) = front.row(nowhere.trace_id)["attempts"]
        assert last["outcome"] == "error" and told(last) == told(row["attempts"][0])

    run(main)


@each_wire
def test_an_attempt_that_was_left_tells_its_prompt_too(front: Front, wire: Wire) -> None:
    """Its tokens were paid for, and are in the provider's cache."""

    async def main() -> None:
        async with (
            Origin(begun(*wire.opening("hello")), port=front.upstream),
            await Caller.connect(front.port) as caller,
        ):
            await caller.send(request(wire.path, asked(wire, USER, stream=True)))
            found = await caller.head()
            await caller.piece()
            caller.leave()
            row = await asyncio.to_thread(front.row, found.trace_id)
        (attempt,) = row["attempts"]
        assert (attempt["outcome"], attempt["inputs"]) == ("cancelled", 2 if wire is CHAT else 1)
        assert attempt["head_hash"] and attempt["input_chain"]

    run(main)


def test_counting_tokens_tells_nothing_of_a_prompt(front: Front) -> None:
    """Nothing is cached by it."""

    async def main() -> None:
        async with Origin(answer(b'{"input_tokens":5}', headers=[JSON]), port=front.upstream):
            found = await ask(front.port, "/v1/messages/count_tokens", asked(MESSAGES, USER))
        (attempt,) = front.row(found.trace_id)["attempts"]
        assert (attempt["head_hash"], attempt["inputs"], attempt["input_chain"]) == (None, None, None)

    run(main)


@pytest.mark.parametrize(
    ("whose", "marks"), [("off", []), ("arbiter", ["tools:0@5m", "system:0@5m", "message:2.0@5m"])]
)
def test_marks_are_told_as_they_were_sent(make_front: Any, whose: str, marks: list[str]) -> None:
    """Where they are not the client's to set, what it set was never seen by the provider."""
    front = make_front(provider={"prompt_cache": whose})

    async def main() -> None:
        async with Origin(answer(MESSAGES.answer(), headers=[JSON]), port=front.upstream) as origin:
            tools = [{"name": "read", "input_schema": {"type": "object"}}]
            found = await ask(front.port, MESSAGES.path, asked(MESSAGES, USER, ANSWER, MARKED, tools=tools))
            assert origin.requests[0].body.count(b"cache_control") == len(marks)
        (attempt,) = front.row(found.trace_id)["attempts"]
        assert json.loads(attempt["cache_marks"]) == marks
        assert attempt["tools_offered"] == 1 and attempt["projection_hash"] is None

    run(main)


def test_a_compaction_is_told_in_the_agents_words(front: Front) -> None:
    """Claude Code says what made it compact, and which request is the first one after."""

    async def main() -> None:
        async with Origin(answer(MESSAGES.answer(), headers=[JSON]), port=front.upstream):
            headers = ({"x-claude-code-compaction": "auto"}, {"x-claude-code-context-compacted": "1"}, {})
            rows = []
            for more in headers:
                found = await ask(front.port, MESSAGES.path, asked(MESSAGES, USER), headers=list(more.items()))
                rows.append(front.row(found.trace_id))
        assert [(row["compaction"], row["follows_compaction"], row["request_kind"]) for row in rows] == [
            ("auto", 0, "compaction"),
            (None, 1, None),
            (None, 0, None),
        ]
        assert [row["attempts"][0]["request_kind"] for row in rows] == ["compaction", None, None]

    run(main)


def test_a_long_prompt_is_told_like_a_short_one(front: Front) -> None:
    """It is hashed in a thread, while others are served; an upstream that answers at once is faster than that."""

    async def main() -> None:
        async with Origin(answer(MESSAGES.answer(), headers=[JSON]), port=front.upstream):
            long = [USER, ANSWER, {"role": "user", "content": "x" * 6_000_000}]
            found = await asyncio.gather(
                *(
                    ask(front.port, MESSAGES.path, asked(MESSAGES, *turns))
                    for turns in (long, [USER], long, [USER, ANSWER, USER])
                )
            )
        rows = [front.row(one.trace_id)["attempts"][0] for one in found]
        assert [row["inputs"] for row in rows] == [3, 1, 3, 3]
        chains = [json.loads(row["input_chain"]) for row in rows]
        assert chains[0] == chains[2] and chains[0][:2] == chains[3][:2] and chains[0][:1] == chains[1]
        assert chains[0][2] != chains[3][2]

    run(main)


def test_a_history_that_was_rewritten_is_found_out(front: Front) -> None:
    """What all of it is for: the provider read nothing, and the rows know that the client is to blame, and where."""
    turns = [
        {"role": ("user", "assistant")[n % 2], "content": f"This is turn {n} of a conversation."} for n in range(9)
    ]
    rewritten = [*turns[:3], {"role": "assistant", "content": "Something else."}, *turns[4:]]
    more = [*turns, {"role": "assistant", "content": "And so on."}, MARKED]

    async def main() -> None:
        usage = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 20_000}
        again = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 20_500}
        told = [usage, {"cache_read_input_tokens": 20_000, "cache_creation_input_tokens": 100}, again]

        async def script(peer: Peer, request: Request) -> None:
            said = json.loads(MESSAGES.answer())
            said["usage"] = {"input_tokens": 10, "output_tokens": 5, **told.pop(0)}
            await peer.send(answer(json.dumps(said).encode(), headers=[JSON]))

        rows = []
        async with Origin(script, port=front.upstream):
            for history in (turns, more, [*rewritten, *more[9:], ANSWER, USER]):
                headers = [("x-claude-code-session-id", "a-session-that-is-rewritten")]
                found = await ask(front.port, MESSAGES.path, asked(MESSAGES, *history), headers=headers)
                rows.append(front.row(found.trace_id)["attempts"][0])
        assert [row["cache_verdict"] for row in rows] == [None, None, "drift"]
        assert rows[2]["cache_lost_tokens"] == 20_100 and rows[2]["cache_against"] == rows[1]["id"]
        # As narrowly as the positions that both kept: the fourth was changed, and the fifth is the first of these.
        assert (rows[2]["cache_lost_at"], rows[2]["cache_lost_in"]) == (5, "messages 1-5")

    run(main)


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_what_the_provider_cleared_by_itself_is_no_miss(front: Front, stream: bool) -> None:
    """Anthropic takes old results out of the prompt where a request asks for it; its cache holds them still."""
    cleared = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_input_tokens": 30_000}]}
    counts = [
        ({"input_tokens": 9, "cache_creation_input_tokens": 60_000, "cache_read_input_tokens": 0}, None),
        ({"input_tokens": 9, "cache_creation_input_tokens": 31_000, "cache_read_input_tokens": 5000}, cleared),
        ({"input_tokens": 9, "cache_creation_input_tokens": 31_000, "cache_read_input_tokens": 5000}, cleared),
    ]

    async def main() -> None:
        left = iter(counts)

        async def script(peer: Peer, request: Request) -> None:
            usage, edits = next(left)
            if not stream:
                body = {**json.loads(MESSAGES.answer()), "usage": {**usage, "output_tokens": 3}}
                await peer.send(answer(json.dumps({**body, "context_management": edits}).encode(), headers=[JSON]))
                return
            start, *rest, end, stop = MESSAGES.events("hello")
            said = json.loads(end.partition(b"data: ")[2])
            end = b"event: message_delta\ndata: %s\n\n" % json.dumps({**said, "context_management": edits}).encode()
            begin = json.loads(start.partition(b"data: ")[2])
            begin["message"]["usage"] = {**usage, "output_tokens": 1}
            await peer.send(sse(b"event: message_start\ndata: %s\n\n" % json.dumps(begin).encode(), *rest, end, stop))

        turns: list[dict[str, Any]] = [{"role": "user", "content": f"What is in all of these files? {stream}"}]
        rows = []
        async with Origin(script, port=front.upstream):
            for _ in counts:
                body = asked(MESSAGES, *turns, stream=stream, context_management={"edits": [{"type": "clear"}]})
                found = await ask(front.port, MESSAGES.path, body)
                assert found.status == 200
                rows.append(front.row(found.trace_id)["attempts"][0])
                turns += [ANSWER, MARKED]
        assert [row["cleared_tokens"] for row in rows] == [None, 30_000, 30_000]
        assert [row["cache_verdict"] for row in rows] == [None, "cleared", "miss"]

    run(main)


@pytest.mark.parametrize("way", ["stream", "unary", "compact"])
def test_what_openai_compacted_is_no_miss(front: Front, way: str) -> None:
    """On the way, in an answer; or asked for, and handed back as the next request's whole history."""
    item = {"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAA"}
    reads = iter((60_000, 61_000, 0, 20_000))

    async def main() -> None:
        async def script(peer: Peer, request: Request) -> None:
            read = next(reads)
            spent = {"input_tokens": 62_000 if read > 20_000 else 21_000, "output_tokens": 9, "total_tokens": 70_000}
            spent["input_tokens_details"] = {"cached_tokens": read}  # type: ignore[assignment]
            is_compacting = read == 61_000
            whole = {**json.loads(RESPONSES.answer()), "usage": spent}
            if is_compacting:
                whole["output"] = [item] if way == "compact" else [item, *whole["output"]]
            if way == "compact" and is_compacting:
                whole = {"id": "resp_c", "object": "response.compaction", "output": [item], "usage": spent}
            if way != "stream":
                await peer.send(answer(json.dumps(whole).encode(), headers=[JSON]))
                return
            *events, end = RESPONSES.events("hello")
            last = {**json.loads(end.partition(b"data: ")[2]), "response": {**whole, "status": "completed"}}
            said = [b"event: response.completed\ndata: %s\n\n" % json.dumps(last).encode()]
            if is_compacting:
                done = {"type": "response.output_item.done", "output_index": 0, "item": item}
                said.insert(0, b"event: response.output_item.done\ndata: %s\n\n" % json.dumps(done).encode())
            await peer.send(sse(*events, *said))

        said: dict[str, Any] = {"role": "user", "content": f"What is in all of these files? {way}"}
        more = {"role": "user", "content": "Go on."}
        history: list[dict[str, Any]] = [said]
        headers = [("x-arbiter-session-id", f"compacted-{way}")]
        rows = []
        async with Origin(script, port=front.upstream):
            for number in range(4):
                is_asked = way == "compact" and number == 1
                body = asked(RESPONSES, *history, stream=way == "stream")
                path = f"{RESPONSES.path}/compact" if is_asked else RESPONSES.path
                found = await ask(front.port, path, body, headers=headers)
                assert found.status == 200, found.body
                rows.append(front.row(found.trace_id)["attempts"][0])
                if is_asked:
                    history = [item, more]
                else:
                    history = [*history, *([item] if number == 1 else ()), ANSWER, more]
        assert [row["compacted"] for row in rows] == [0, 1, 0, 0]
        assert [row["cache_verdict"] for row in rows] == [None, None, "compaction", None]

    run(main)
