"""Going on from an answer that no provider keeps, by what the gateway captured of it (SPEC 6.3)."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.fakes import grammar
from tests.fakes.client import Answer, ask, run
from tests.fakes.gateway import Gateway, free_port, run_dir, until
from tests.fakes.origin import Origin, Peer, Request
from tests.fakes.wires import CHAT, EVENT_STREAM, JSON, MESSAGES, RESPONSES, Front, Wire

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "ls", "parameters": {"type": "object"}, "strict": False}
KEYS = {
    "auth": {"mode": "require"},
    "clients": [
        {"name": name, "key_hash": f"sha256:{hashlib.sha256(f'sk-{name}'.encode()).hexdigest()}"}
        for name in ("ann", "ben")
    ],
}
on_each = pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=str)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("earlier")
    storage = {"url": f"sqlite:///{folder / 'data' / 'arbiter.db'}", "capture": {"content": True}}
    with Front(folder, storage=storage, gateway={"workers": 2}, **KEYS) as made:
        run_dir(made)  # control is there: it reads what was said before, and who goes on does not wait for ever
        yield made


class Upstream:
    """It says `answers` one after the other, and remembers what it was asked."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def script(self, peer: Peer, request: Request) -> None:
        self.asked.append(json.loads(request.body))
        said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        kind = EVENT_STREAM if said[:1] != b"{" else JSON
        head = f"HTTP/1.1 200 OK\r\n{kind[0]}: {kind[1]}\r\ncontent-length: {len(said)}\r\n\r\n"
        await peer.send(head.encode() + said)


async def go(front: Front, wire: Wire, said: Any, *, name: str = "ann", **members: Any) -> Answer:
    body = {"model": wire.model, "input": said, **members}
    return await ask(front.port, PATH, body, headers=[("authorization", f"Bearer sk-{name}")])


def ident(found: Answer) -> str:
    if found.events:
        return str(json.loads(found.events[-1][1])["response"]["id"])
    return str(found.json["id"])


def texts(asked: Any) -> list[tuple[str, str]]:
    """The conversation that an upstream was sent: (role, text)."""
    found = []
    for message in asked["messages"]:
        content = message["content"]
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
        found.append((message["role"], text))
    return found


@on_each
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_conversation_goes_on_at_a_provider_that_keeps_none(front: Front, wire: Wire, stream: bool) -> None:
    """Turn by turn, each with nothing but what is new; asked at once, by whichever worker."""

    async def main() -> None:
        said = [b"".join(wire.events(word)) if stream else wire.answer(word) for word in ("one", "two", "three")]
        up = Upstream(*said)
        async with Origin(up.script, port=front.upstream):
            first = await go(front, wire, "hello", stream=stream, instructions="Be terse.")
            assert first.status == 200, first.body
            second = await go(front, wire, "and then?", stream=stream, previous_response_id=ident(first))
            assert second.status == 200, second.body
            items = [{"role": "user", "content": [{"type": "input_text", "text": "so?"}]}]
            third = await go(front, wire, items, stream=stream, previous_response_id=ident(second))
            assert third.status == 200, third.body
        # Instructions are not carried over, as OpenAI has it.
        assert texts(up.asked[1]) == [("user", "hello"), ("assistant", "one"), ("user", "and then?")]
        assert texts(up.asked[2]) == [
            ("user", "hello"),
            ("assistant", "one"),
            ("user", "and then?"),
            ("assistant", "two"),
            ("user", "so?"),
        ]
        told = json.loads(third.events[-1][1])["response"] if stream else third.json
        assert told["previous_response_id"] == ident(second)
        if stream:
            assert grammar.responses(third.body).ending == "complete"

    run(main)


def test_calls_find_their_results(front: Front) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    calling = json.loads(CHAT.answer())
    calling["choices"][0] = {
        "index": 0,
        "message": {"role": "assistant", "content": None, "tool_calls": [call]},
        "finish_reason": "tool_calls",
    }

    async def main() -> None:
        up = Upstream(json.dumps(calling).encode(), CHAT.answer("done"))
        async with Origin(up.script, port=front.upstream):
            first = await go(front, CHAT, "what is here?", tools=[TOOL])
            result = [{"type": "function_call_output", "call_id": "call_1", "output": "a.py"}]
            found = await go(front, CHAT, result, tools=[TOOL], previous_response_id=ident(first))
            assert found.status == 200, found.body
        assert [message["role"] for message in up.asked[1]["messages"]] == ["user", "assistant", "tool"]
        assert up.asked[1]["messages"][1]["tool_calls"] == [call]

    run(main)


def test_only_whose_it_is_goes_on(front: Front) -> None:
    async def main() -> None:
        up = Upstream(CHAT.answer("one"))
        async with Origin(up.script, port=front.upstream):
            first = await go(front, CHAT, "my secret")
            found = await go(front, CHAT, "tell me", name="ben", previous_response_id=ident(first))
            assert (found.status, found.json["error"]["param"]) == (404, "previous_response_id")
            assert ident(first) in found.json["error"]["message"]
            again = await go(front, CHAT, "go on", previous_response_id=ident(first))
            assert again.status == 200
        assert len(up.asked) == 2

    run(main)


def test_it_goes_on_natively_too(front: Front) -> None:
    """An id of ours means nothing to a provider that keeps its own: it gets the conversation, without our thoughts."""
    thinking = json.loads(CHAT.answer("one"))
    thinking["choices"][0]["message"]["reasoning_content"] = "hm"

    async def main() -> None:
        up = Upstream(json.dumps(thinking).encode(), RESPONSES.answer("two"))
        async with Origin(up.script, port=front.upstream):
            first = await go(front, CHAT, "hello")
            # The thought, the words, and the thought sealed for the client to hand along.
            assert [item["type"] for item in first.json["output"]] == ["reasoning", "message", "reasoning"]
            found = await go(front, RESPONSES, "and then?", previous_response_id=ident(first))
            assert found.status == 200, found.body
            assert found.header("x-arbiter-fidelity") == "$.input,$.previous_response_id"
        asked = up.asked[1]
        assert "previous_response_id" not in asked
        assert asked["input"] == [
            {"role": "user", "content": "hello"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "one", "annotations": [], "logprobs": []}],
            },
            {"role": "user", "content": "and then?"},
        ]

    run(main)


@on_each
def test_items_that_are_only_named_are_put_in_their_places(front: Front, wire: Wire) -> None:
    """As the AI SDK goes on: what the user and the tools said is sent whole, what the model said by its id."""

    async def main() -> None:
        up = Upstream(*(wire.answer(word) for word in ("one", "two", "three")))
        async with Origin(up.script, port=front.upstream):
            said: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
            first = await go(front, wire, said)
            said += [*named(first), {"role": "user", "content": "and then?"}]
            second = await go(front, wire, said)
            assert second.status == 200, second.body
            said += [*named(second), {"role": "user", "content": "so?"}]
            third = await go(front, wire, said)
            assert third.status == 200, third.body
            stranger = await go(front, wire, said, name="ben")
            assert (stranger.status, stranger.json["error"]["param"]) == (404, "input")
        assert texts(up.asked[2]) == [
            ("user", "hello"),
            ("assistant", "one"),
            ("user", "and then?"),
            ("assistant", "two"),
            ("user", "so?"),
        ]
        assert len(up.asked) == 3

    run(main)


def named(found: Answer) -> list[dict[str, Any]]:
    return [{"type": "item_reference", "id": item["id"]} for item in found.json["output"]]


def test_a_named_item_that_is_not_kept_is_refused_and_says_why(front: Front) -> None:
    async def main() -> None:
        up = Upstream(CHAT.answer("one"))
        async with Origin(up.script, port=front.upstream):
            first = await go(front, CHAT, "hello", store=False)
            found = await go(front, CHAT, [*named(first), {"role": "user", "content": "go on"}])
            error = found.json["error"]
            assert (found.status, error["code"]) == (400, "protocol_unsupported")
            assert error["message"].startswith("input[0]") and "storage.capture.content" in error["message"]

    run(main)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"store": False}, "storage.capture.content"),
        ({"said": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]},
         "attachments"),
    ],
    ids=["unstored", "attached"],
)  # fmt: skip
def test_what_is_not_kept_whole_is_refused_and_says_why(front: Front, members: dict[str, Any], why: str) -> None:
    async def main() -> None:
        up = Upstream(CHAT.answer("one"))
        async with Origin(up.script, port=front.upstream):
            first = await go(
                front, CHAT, **{"said": "hello", **members} if "input" not in members else {"said": members["input"]}
            )
            found = await go(front, CHAT, "go on", previous_response_id=ident(first))
            error = found.json["error"]
            assert (found.status, error["code"], error["param"]) == (
                400,
                "protocol_unsupported",
                "previous_response_id",
            )
            assert why in error["message"]
            assert len(up.asked) == 1
        assert front.row(found.trace_id)["model_asked"] == CHAT.model

    run(main)


def test_what_was_swept_is_refused(front: Front) -> None:
    async def main() -> None:
        up = Upstream(CHAT.answer("one"))
        async with Origin(up.script, port=front.upstream):
            first = await go(front, CHAT, "soon forgotten, whatever it says")
            trace = first.trace_id
            blocks = (
                "SELECT u.block FROM request_blocks u JOIN requests r ON r.id = u.request_id"
                f" WHERE r.trace_id = '{trace}' AND u.kind = 'message'"
            )

            def is_stored() -> bool:
                with closing(sqlite3.connect(front.database)) as db:
                    return bool(db.execute(blocks).fetchall())

            until(is_stored, "the content in the store")
            with closing(sqlite3.connect(front.database, timeout=10)) as db, db:
                db.execute(f"DELETE FROM blocks WHERE id IN ({blocks})")
            found = await go(front, CHAT, "go on", previous_response_id=ident(first))
            assert (found.status, found.json["error"]["code"]) == (400, "protocol_unsupported")
            assert "no longer kept" in found.json["error"]["message"]

    run(main)


def test_without_capture_the_refusal_says_which_setting_helps(tmp_path_factory: pytest.TempPathFactory) -> None:
    port = free_port()
    provider = {"type": "openai", "endpoint": f"http://127.0.0.1:{port}/v1", "key": "k", "models": ["m"]}
    config = {"providers": {"up": {**provider, "responses_api": "transcode"}}}
    with Gateway(config, tmp_path_factory.mktemp("bare")) as gateway:

        async def main() -> None:
            up = Upstream(CHAT.answer("one"))
            async with Origin(up.script, port=port):
                first = await ask(gateway.port, PATH, {"model": "m", "input": "hello"})
                body = {"model": "m", "input": "go on", "previous_response_id": ident(first)}
                found = await ask(gateway.port, PATH, body)
                assert found.status == 400 and "`storage.capture.content: true`" in found.json["error"]["message"]

        run(main)


def test_what_workers_ask_is_no_part_of_the_administration(front: Front) -> None:
    async def main() -> None:
        for path in (
            "/workers/conversations/x",
            "/admin/../workers/conversations/x",
            "/admin/workers/conversations/x",
            "/workers/answers/x",
        ):
            found = await ask(front.port, path, method="GET", headers=[("authorization", "Bearer sk-ann")])
            assert found.status in (401, 404), path

    run(main)
