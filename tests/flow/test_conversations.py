"""Conversations on a bad day: thinking that only its maker accepts, answers that say nothing, prompts too long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.fakes.client import Answer, ask, run
from tests.fakes.gateway import Gateway, free_port
from tests.fakes.origin import Origin, Peer, Request, chunk

MESSAGES, CHAT = "/v1/messages", "/v1/chat/completions"
LAST = b"0\r\n\r\n"
RETRY = {"attempts": 3, "base": "10ms"}


class Upstream:
    """One upstream that says what a test put in its mouth; `bodies` are the requests that it got."""

    def __init__(self) -> None:
        self.port = free_port()
        self.bodies: list[dict[str, Any]] = []
        self.saying: bytes | None = None  # None: it is down with a 529
        self.then: bytes | None = None  # what it says after that

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def script(self, peer: Peer, request: Request) -> None:
        self.bodies.append(json.loads(request.body))
        if self.saying is None:
            await peer.send(reply(529, {"type": "error", "error": {"type": "overloaded_error", "message": "no room"}}))
        else:
            await peer.send(self.saying)
            self.saying, self.then = self.then or self.saying, None


def reply(status: int, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


def stream(*events: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(chunk(event) for event in events) + LAST


def event(**data: Any) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def thoughtful(signature: str, text: str) -> bytes:
    """A Messages stream that thinks, signs in two pieces, and speaks."""
    usage = {"input_tokens": 9, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    half = len(signature) // 2
    deltas: list[tuple[int, dict[str, Any]]] = [
        (0, {"type": "thinking_delta", "thinking": "hmm"}),
        (0, {"type": "signature_delta", "signature": signature[:half]}),
        (0, {"type": "signature_delta", "signature": signature[half:]}),
        (1, {"type": "text_delta", "text": text}),
    ]
    return stream(
        event(type="message_start", message=message),
        event(type="content_block_start", index=0, content_block={"type": "thinking", "thinking": ""}),
        *(event(type="content_block_delta", index=index, delta=delta) for index, delta in deltas[:3]),
        event(type="content_block_stop", index=0),
        event(type="content_block_start", index=1, content_block={"type": "text", "text": ""}),
        event(type="content_block_delta", index=1, delta=deltas[3][1]),
        event(type="content_block_stop", index=1),
        event(type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5}),
        event(type="message_stop"),
    )


USER = {"role": "user", "content": "Tell me something about the continuity of conversations."}
MORE = {"role": "user", "content": "And more of it."}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}


def thought(signature: str, *more: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "thinking", "thinking": "hmm", "signature": signature}, {"type": "text", "text": "so"}, *more]
    return {"role": "assistant", "content": content}


@pytest.fixture(scope="module")
def upstreams() -> tuple[Upstream, Upstream]:
    return Upstream(), Upstream()


@pytest.fixture(scope="module")
def gateway(upstreams: tuple[Upstream, Upstream], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    a, b = upstreams
    chat = {"type": "openai", "endpoint": f"{a.url}/v1", "key": "sk-a", "retry": RETRY}
    config = {
        "providers": {
            "a": {"type": "anthropic", "endpoint": a.url, "key": "sk-a", "models": ["m"], "retry": RETRY},
            "b": {"type": "anthropic", "endpoint": b.url, "key": "sk-b", "models": ["m"], "retry": RETRY},
            "flagging": {**chat, "models": ["silent"]},
            "nudging": {**chat, "models": ["silent-nudged"], "speechless": "nudge"},
            "rare": {
                **chat,
                "models": ["silent-rarely"],
                "speechless": "nudge",
                "limits": {"requests_per_day": 1},
            },
            "small": {**chat, "models": ["small"]},
            "large": {**chat, "endpoint": f"{b.url}/v1", "models": ["large"]},
        },
        "models": [
            {"model": "small/small", "max_input_tokens": 1000},
            {"model": "large/large", "max_input_tokens": 100_000},
        ],
        "aliases": {
            "talk": {"group": ["a/m", "b/m"]},
            "fit": {"group": ["small/small", "a/m", "large/large"]},
            "two": {"group": ["small/small", "large/large"]},
        },
    }
    with Gateway(config, tmp_path_factory.mktemp("conversations")) as made:
        yield made


class Talk:
    """Both upstreams running, and a client who talks to the gateway."""

    def __init__(self, gateway: Gateway, upstreams: tuple[Upstream, Upstream], stack: AsyncExitStack) -> None:
        self._gateway = gateway
        self.a, self.b = upstreams
        self._stack = stack

    async def begin(self) -> None:
        for upstream in (self.a, self.b):
            upstream.bodies.clear()
            upstream.saying = upstream.then = None
            await self._stack.enter_async_context(Origin(upstream.script, port=upstream.port))

    async def turn(self, *messages: dict[str, Any], session: str, asked: str = "talk") -> Answer:
        body = {"model": asked, "max_tokens": 99, "stream": True, "messages": list(messages)}
        return await ask(self._gateway.port, MESSAGES, body, headers=[("x-session-id", session)])


@pytest.fixture
def talking(gateway: Gateway, upstreams: tuple[Upstream, Upstream]) -> Any:
    def go(main: Any) -> None:
        async def bounded() -> None:
            async with AsyncExitStack() as stack:
                talk = Talk(gateway, upstreams, stack)
                await talk.begin()
                await main(talk)

        run(bounded)

    return go


def signatures(body: dict[str, Any]) -> list[str]:
    """The signatures in a request's conversation."""
    contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    return [block["signature"] for content in contents for block in content if block["type"] == "thinking"]


def test_a_failover_never_leaves_a_session_stuck_on_a_signature(talking: Any, gateway: Gateway) -> None:
    """SPEC 4.7a, over four turns: made by a, failed over to b, on at b with both in the history, and back to a."""

    async def main(talk: Talk) -> None:
        talk.a.saying = thoughtful("signature of a", "one")
        first = await talk.turn(USER, session="stuck")
        assert first.header("x-arbiter-provider") == "a" and b"signature of a"[:7] in first.body

        talk.a.saying, talk.b.saying = None, thoughtful("signature of b", "two")
        history = [USER, thought("signature of a"), MORE]
        second = await talk.turn(*history, session="stuck")
        assert second.header("x-arbiter-provider") == "b" and second.status == 200
        assert signatures(talk.b.bodies[-1]) == [], "b would have answered 400"
        assert (second.header("x-arbiter-warning") or "").startswith("thinking_removed")
        assert second.header("x-arbiter-fidelity") == "$.messages,$.model"

        history += [thought("signature of b"), MORE]
        third = await talk.turn(*history, session="stuck")
        assert third.header("x-arbiter-provider") == "b" and third.header("x-arbiter-attempts") == "1"
        assert signatures(talk.b.bodies[-1]) == ["signature of b"]

        talk.a.saying, talk.b.saying = thoughtful("signature of a, again", "four"), None
        fourth = await talk.turn(*history, session="stuck")
        assert fourth.header("x-arbiter-provider") == "a"
        assert signatures(talk.a.bodies[-1]) == ["signature of a"]
        row = gateway.row(fourth.trace_id)
        assert row["affinity"] == "moved" and row["warning"].startswith("thinking_removed")

    talking(main)


def test_an_open_tool_loop_is_not_taken_elsewhere(talking: Any) -> None:
    """Its thinking may not go, and another would refuse it: the client hears what its own upstream said."""

    async def main(talk: Talk) -> None:
        talk.a.saying = thoughtful("signature of the loop", "one")
        await talk.turn(USER, session="loop")
        talk.a.saying, talk.b.saying = None, thoughtful("signature of b", "two")
        broken = await talk.turn(USER, thought("signature of the loop", CALL), RESULT, session="loop")
        assert broken.status == 529 and b"no room" in broken.body
        assert talk.b.bodies == []
        talk.a.saying = thoughtful("signature of the loop, on", "two")
        again = await talk.turn(USER, thought("signature of the loop", CALL), RESULT, session="loop")
        assert again.status == 200 and signatures(talk.a.bodies[-1]) == ["signature of the loop"]

    talking(main)


def test_a_conversation_without_thinking_goes_wherever_it_is_served(talking: Any) -> None:
    async def main(talk: Talk) -> None:
        talk.b.saying = thoughtful("signature of b", "one")
        answer = await talk.turn(USER, {"role": "assistant", "content": "so"}, MORE, session="plain")
        assert answer.header("x-arbiter-provider") == "b" and answer.header("x-arbiter-warning") is None
        assert talk.b.bodies[-1]["messages"] == [USER, {"role": "assistant", "content": "so"}, MORE]

    talking(main)


# --- answers that say nothing -----------------------------------------------------------------------------------------


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(data)}\n\n".encode()


def chat(text: str, *, streamed: bool) -> bytes:
    """An answer that thinks, and says `text`."""
    if streamed:
        said = [chat_chunk({"content": text})] if text else []
        thinking = chat_chunk({"role": "assistant", "reasoning_content": "hmm"})
        return stream(thinking, *said, chat_chunk({}, "stop"), b"data: [DONE]\n\n")
    message = {"role": "assistant", "content": text or None, "reasoning_content": "hmm"}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return reply(200, {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices})


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "stream"])
def test_an_answer_that_says_nothing_is_flagged_and_relayed(talking: Any, gateway: Gateway, streamed: bool) -> None:
    """SPEC 4.7: by default the conversation is not changed, and nothing is asked again."""

    async def main(talk: Talk) -> None:
        talk.a.saying = chat("", streamed=streamed)
        before = gateway.metric("arbiter_empty_completions_total")
        answer = await ask(gateway.port, CHAT, {"model": "silent", "messages": [USER], "stream": streamed})
        assert answer.status == 200 and b"hmm" in answer.body and len(talk.a.bodies) == 1
        row = gateway.row(answer.trace_id)
        assert [attempt["empty_completion"] for attempt in row["attempts"]] == [1] and row["outcome"] == "ok"
        assert gateway.metric("arbiter_empty_completions_total") == before + 1

    talking(main)


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "stream"])
def test_a_nudge_asks_once_more_before_the_client_has_seen_anything(
    talking: Any, gateway: Gateway, streamed: bool
) -> None:
    """SPEC 4.7: both attempts are rows, and the client's answer is the second one alone."""

    async def main(talk: Talk) -> None:
        talk.a.saying = chat("", streamed=streamed)
        talk.a.then = chat("Here it is.", streamed=streamed)
        answer = await ask(gateway.port, CHAT, {"model": "silent-nudged", "messages": [USER], "stream": streamed})
        assert answer.status == 200 and answer.body.count(b"hmm") == 1 and b"Here it is." in answer.body
        assert answer.header("x-arbiter-attempts") == "2"
        first, second = talk.a.bodies
        assert first["messages"] == [USER] and second["messages"][:1] == [USER] and len(second["messages"]) == 2
        assert second["messages"][1]["role"] == "user"
        row = gateway.row(answer.trace_id)
        assert [(a["why"], a["outcome"], a["empty_completion"]) for a in row["attempts"]] == [
            ("first", "ok", 1),
            ("nudge", "ok", 0),
        ]
        # Both are the client's request; what was made of it for the second has a hash of its own.
        asked, nudged = row["attempts"]
        assert asked["input_chain"] == nudged["input_chain"] and nudged["inputs"] == 1
        assert (asked["replaced"], asked["projection_hash"], nudged["replaced"]) == (None, None, 0)
        assert len(nudged["projection_hash"]) == 12

    talking(main)


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "stream"])
def test_a_second_answer_that_says_nothing_is_relayed_with_an_error_in_its_row(
    talking: Any, gateway: Gateway, streamed: bool
) -> None:
    async def main(talk: Talk) -> None:
        talk.a.saying = chat("", streamed=streamed)
        answer = await ask(gateway.port, CHAT, {"model": "silent-nudged", "messages": [USER], "stream": streamed})
        assert answer.status == 200 and b"hmm" in answer.body and len(talk.a.bodies) == 2
        second = gateway.row(answer.trace_id)["attempts"][1]
        assert second["empty_completion"] == 1 and second["error_class"] == "upstream_error" and second["message"]

    talking(main)


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "stream"])
def test_a_nudge_that_fails_costs_nobody_the_answer_that_was_there(
    talking: Any, gateway: Gateway, streamed: bool
) -> None:
    """It was an offer: a template that takes no second user turn answers 400, and the first answer is relayed."""

    async def main(talk: Talk) -> None:
        talk.a.saying = chat("", streamed=streamed)
        talk.a.then = reply(400, {"error": {"message": "roles must alternate", "type": "invalid_request_error"}})
        answer = await ask(gateway.port, CHAT, {"model": "silent-nudged", "messages": [USER], "stream": streamed})
        assert answer.status == 200 and answer.body.count(b"hmm") == 1 and b"alternate" not in answer.body
        row = gateway.row(answer.trace_id)
        assert (row["outcome"], row["provider"], row["attempts"][1]["status"]) == ("ok", "nudging", 400)

    talking(main)


def test_a_nudge_that_may_not_be_sent_costs_nobody_the_answer_that_was_there(talking: Any, gateway: Gateway) -> None:
    """The provider's limit is used up by the first question."""

    async def main(talk: Talk) -> None:
        talk.a.saying = chat("", streamed=False)
        answer = await ask(gateway.port, CHAT, {"model": "silent-rarely", "messages": [USER]})
        assert answer.status == 200 and b"hmm" in answer.body and len(talk.a.bodies) == 1

    talking(main)


def test_an_answer_of_sound_or_images_is_one(talking: Any, gateway: Gateway) -> None:
    """What is not text is not nothing: tokens were written, and none of them were thoughts."""

    async def main(talk: Talk) -> None:
        message = {"role": "assistant", "content": None, "audio": {"id": "a", "data": "UklGRg=="}}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 5, "completion_tokens": 50, "total_tokens": 55}
        said = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}
        talk.a.saying = reply(200, said)
        answer = await ask(gateway.port, CHAT, {"model": "silent-nudged", "messages": [USER]})
        assert answer.status == 200 and b"UklGRg" in answer.body and len(talk.a.bodies) == 1
        assert gateway.row(answer.trace_id)["attempts"][0]["empty_completion"] == 0

    talking(main)


# --- prompts too long -------------------------------------------------------------------------------------------------


def test_too_long_a_prompt_goes_to_the_larger_window(talking: Any, gateway: Gateway) -> None:
    """SPEC 4.6: past a target whose window nobody knows."""

    async def main(talk: Talk) -> None:
        error = {"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}
        talk.a.saying, talk.b.saying = reply(400, error), chat("It fits.", streamed=False)
        answer = await ask(gateway.port, CHAT, {"model": "fit", "messages": [USER]})
        assert answer.status == 200 and answer.header("x-arbiter-provider") == "large"
        row = gateway.row(answer.trace_id)
        assert [(a["provider"], a["error_class"]) for a in row["attempts"]] == [
            ("small", "context_length"),
            ("large", None),
        ]

    talking(main)


def test_whose_window_is_surely_too_small_is_not_asked_while_there_is_another(talking: Any, gateway: Gateway) -> None:
    """SPEC 1.1: sure is what the target's own answers taught. By its name it is asked, and its pin says who served."""

    async def main(talk: Talk) -> None:
        long = [{"role": "user", "content": "0123456789abcde " * 20_000}]
        usage = {"prompt_tokens": 80_000, "completion_tokens": 1, "total_tokens": 80_001}
        choices = [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]
        said = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}
        talk.a.saying = talk.b.saying = reply(200, said)
        for asked, provider in (("two", "small"), ("two", "large"), ("small", "small")):
            answer = await ask(gateway.port, CHAT, {"model": asked, "messages": long})
            assert (answer.status, answer.header("x-arbiter-provider")) == (200, provider), asked
            row = gateway.row(answer.trace_id)
            (attempt,) = row["attempts"]
            assert attempt["why"] == "first"
            passed = "small/small takes 1000 tokens, and the prompt is longer" in row["rationale"]
            assert passed == (provider == "large")
        talk.a.saying = reply(200, said)
        answer = await ask(gateway.port, CHAT, {"model": "two", "messages": [USER]})
        assert answer.header("x-arbiter-provider") == "small"  # what fits goes where it always went

    talking(main)
