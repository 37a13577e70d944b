"""Responses on their way: natively, through chat where there is no endpoint for them, and back to who keeps them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.client import ask, run
from tests.fakes.gateway import ADMIN, Gateway, free_port, until
from tests.fakes.origin import Origin, Peer, Request, chunk
from tests.fakes.wires import CHAT, EVENT_STREAM, JSON, RESPONSES, begun

PATH = "/v1/responses"
KEYS = {
    "auth": {"mode": "require"},
    "clients": [
        {"name": name, "key_hash": f"sha256:{hashlib.sha256(f'sk-{name}'.encode()).hexdigest()}"}
        for name in ("ann", "ben")
    ],
}
NO_PATH = {"error": {"message": "Not Found", "type": "invalid_request_error", "param": None, "code": None}}


def reply(status: int, body: bytes, kind: tuple[str, str] = JSON) -> bytes:
    head = f"HTTP/1.1 {status} x\r\n{kind[0]}: {kind[1]}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Upstream:
    """A server of OpenAI's format. `says` is what it answers for a path: a status and a body."""

    def __init__(self) -> None:
        self.port = free_port()
        self.says: dict[str, tuple[int, bytes]] = {}
        self.kind = JSON  # of what it `says`
        self.seen: list[Request] = []

    async def script(self, peer: Peer, request: Request) -> None:
        self.seen.append(request)
        path = request.target.partition("?")[0]
        said = self.says.get(path)
        if said is not None:
            await peer.send(reply(*said, self.kind))
            return
        wire = CHAT if path.endswith("/chat/completions") else RESPONSES
        if request.body and json.loads(request.body).get("stream"):
            await peer.send(reply(200, b"".join(wire.events("hello")), EVENT_STREAM))
        else:
            await peer.send(reply(200, wire.answer()))

    def asked(self) -> list[str]:
        """The paths since the last look."""
        found = [request.target for request in self.seen]
        self.seen.clear()
        return found


@pytest.fixture(scope="module")
def ups() -> dict[str, Upstream]:
    return {name: Upstream() for name in ("one", "two")}


@pytest.fixture(scope="module")
def shared(ups: dict[str, Upstream], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    def provider(name: str, **more: Any) -> dict[str, Any]:
        made = {"type": "openai", "endpoint": f"http://127.0.0.1:{ups[name].port}/v1", "key": "sk-up"}
        return {**made, "retry": {"attempts": 1}, **more}

    pool = [{"label": "work", "key": "sk-work"}, {"label": "home", "key": "sk-home"}]
    one, two = provider("one", models=["m", "slow"]), provider("two", models=["n"])
    pooled = {name: value for name, value in provider("two", models=["p"], keys=pool).items() if name != "key"}
    config = {
        **KEYS,
        "providers": {
            "one": one,
            "two": two,
            "pool": pooled,
            "native": provider("one", models=["native"], responses_api="native"),
            "transcode": provider("one", models=["transcode"], responses_api="transcode"),
            "keyless": {name: value for name, value in provider("one", models=["local"]).items() if name != "key"},
            "nudging": provider("one", models=["silent"], speechless="nudge"),
            "apis": provider(
                "one", models=[{"id": "by-chat", "api": "chat"}, {"id": "by-responses", "api": "responses"}]
            ),
        },
        "models": [{"model": "one/slow", "input_usd_per_mtok": 3, "output_usd_per_mtok": 15}],
        "aliases": {"either": {"group": ["one/m", "two/n"], "select": "random"}},
    }
    with Gateway(config, tmp_path_factory.mktemp("responses")) as made:
        yield made


@pytest.fixture
def gateway(shared: Gateway, ups: dict[str, Upstream]) -> Gateway:
    """Nobody lacks anything, and nobody was asked yet."""
    shared.get("/admin/cooldowns/clear", method="POST", headers=ADMIN)
    for up in ups.values():
        up.says.clear()
        up.seen.clear()
    return shared


def caller(name: str = "ann") -> list[tuple[str, str]]:
    return [("authorization", f"Bearer sk-{name}")]


def body(model: str, **members: Any) -> dict[str, Any]:
    return {"model": model, "input": [{"role": "user", "content": "hello"}], **members}


# --- Where there is no endpoint ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_missing_endpoint_is_remembered_and_the_request_goes_through_chat(
    gateway: Gateway, ups: dict[str, Upstream], status: int, stream: bool
) -> None:
    """SPEC 6.1: in the same request, and for a while in all others to that base URL."""
    up = ups["one"]
    up.says["/v1/responses"] = status, json.dumps(NO_PATH).encode()

    async def main() -> None:
        async with Origin(up.script, port=up.port):
            found = await ask(gateway.port, PATH, body("m", stream=stream), headers=caller())
            assert (found.status, up.asked()) == (200, ["/v1/responses", "/v1/chat/completions"])
            if stream:
                assert RESPONSES.text(found.body) == "hello"
            else:
                assert found.json["output"][0]["content"][0]["text"] == "hello"
            assert (await ask(gateway.port, PATH, body("m"), headers=caller())).status == 200
            assert up.asked() == ["/v1/chat/completions"]
            # Another provider at the same base URL is the same server; one that must be native is asked all the same.
            assert (await ask(gateway.port, PATH, body("native"), headers=caller())).status == status
            assert up.asked() == ["/v1/responses"]
        row = gateway.row(found.trace_id)
        first, second = row["attempts"]
        assert (first["status"], first["format_out"], first["lane"]) == (status, "openai-responses", "native")
        assert (second["status"], second["format_out"], second["lane"]) == (200, "openai-chat", "translated")
        assert (second["why"], row["outcome"], row["fidelity"]) == ("transcode", "ok", "translated")

    run(main)


SOMETHING_ELSE = [
    {"message": "The model `m` does not exist or you do not have access to it.", "code": "model_not_found"},
    {"message": "The model `m` does not exist.", "type": "NotFoundError", "param": "model", "code": 404},
    {"message": "Item with id 'rs_1' not found.", "type": "invalid_request_error", "param": "input", "code": None},
    {"message": "Response with id 'resp_1' not found.", "type": "invalid_request_error", "param": None, "code": None},
    {"message": "model 'm' not found, try pulling it first", "type": "api_error", "param": None, "code": None},
]


@pytest.mark.parametrize("error", SOMETHING_ELSE, ids=lambda error: error["message"][:20])
def test_a_404_for_something_else_passes_as_it_came(
    gateway: Gateway, ups: dict[str, Upstream], error: dict[str, Any]
) -> None:
    up = ups["one"]
    up.says["/v1/responses"] = 404, json.dumps({"error": error}).encode()

    async def main() -> None:
        async with Origin(up.script, port=up.port):
            found = await ask(gateway.port, PATH, body("m"), headers=caller())
            assert (found.status, found.json["error"]) == (404, error)
            up.says.clear()
            assert (await ask(gateway.port, PATH, body("m"), headers=caller())).status == 200
            assert up.asked() == ["/v1/responses", "/v1/responses"]

    run(main)


@pytest.mark.parametrize(
    ("model", "path"),
    [("m", "/v1/responses"), ("native", "/v1/responses"), ("transcode", "/v1/chat/completions"),
     ("local", "/v1/chat/completions"), ("by-chat", "/v1/chat/completions"), ("by-responses", "/v1/responses")],
)  # fmt: skip
def test_the_configuration_says_how_responses_are_asked_for(
    gateway: Gateway, ups: dict[str, Upstream], model: str, path: str
) -> None:
    """`auto` is the provider's own endpoint where it has a key; a model's `api` outranks `responses_api`."""
    up = ups["one"]

    async def main() -> None:
        async with Origin(up.script, port=up.port):
            assert (await ask(gateway.port, PATH, body(model), headers=caller())).status == 200
            assert up.asked() == [path]
            chat = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
            assert (await ask(gateway.port, "/v1/chat/completions", chat, headers=caller())).status == 200
            assert up.asked() == ["/v1/responses" if model == "by-responses" else "/v1/chat/completions"]

    run(main)


def test_a_compaction_is_forwarded_or_refused(gateway: Gateway, ups: dict[str, Upstream]) -> None:
    """It says what only its provider can read, so nothing could be put in its place."""
    up = ups["one"]
    item = {"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAA"}
    usage = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}
    answer = {"id": "resp_1", "object": "response.compaction", "created_at": 1, "output": [item], "usage": usage}
    up.says["/v1/responses/compact"] = 200, json.dumps(answer).encode()

    async def main() -> None:
        async with Origin(up.script, port=up.port):
            asked = body("m", instructions="Be terse", future={"x": 1})
            found = await ask(gateway.port, PATH + "/compact", asked, headers=caller())
            assert (found.status, found.json) == (200, answer)
            assert json.loads(up.seen[0].body) == asked and up.asked() == ["/v1/responses/compact"]
            refused = await ask(gateway.port, PATH + "/compact", body("transcode"), headers=caller())
            assert (refused.status, refused.json["error"]["code"]) == (400, "protocol_unsupported")
            assert up.asked() == []
            up.says["/v1/responses/compact"] = 404, json.dumps(NO_PATH).encode()
            assert (await ask(gateway.port, PATH + "/compact", body("m"), headers=caller())).status == 404
            assert (await ask(gateway.port, PATH, body("m"), headers=caller())).status == 200
            assert up.asked() == ["/v1/responses/compact", "/v1/responses"]  # the one says nothing of the other
        row = gateway.row(found.trace_id)
        assert (row["endpoint"], row["request_kind"], row["attempts"][0]["input_tokens"]) == (
            "compact",
            "compaction",
            9,
        )

    run(main)


# --- Who keeps what ---------------------------------------------------------------------------------------------------


def stored(gateway: Gateway, ups: dict[str, Upstream], ident: str) -> None:
    """Both answer with that id from now on."""
    for up in ups.values():
        up.says["/v1/responses"] = 200, RESPONSES.answer().replace(b"resp_1", ident.encode())
        for what in ("", "/input_items", "/cancel"):
            up.says[f"/v1/responses/{ident}{what}"] = 200, json.dumps({"id": ident, "of": what}).encode()


@pytest.mark.parametrize(
    ("method", "what", "endpoint"),
    [("GET", "", "response"), ("DELETE", "", "response"), ("GET", "/input_items", "input_items"),
     ("POST", "/cancel", "cancel")],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "/v1", "/openai/v1"])
def test_a_stored_answer_is_asked_for_where_it_was_made(
    gateway: Gateway, ups: dict[str, Upstream], method: str, what: str, endpoint: str, prefix: str
) -> None:
    """With the key that made it, and nobody else's; it was paid for when it was made."""
    ident = f"resp_{endpoint}{method}{prefix.replace('/', '')}"
    stored(gateway, ups, ident)

    async def main() -> None:
        async with Origin(ups["one"].script, port=ups["one"].port), Origin(ups["two"].script, port=ups["two"].port):
            made = await ask(gateway.port, PATH, body("p"), headers=caller())
            assert made.status == 200
            key = ups["two"].seen[0].header("authorization")
            for _ in range(3):
                url = f"{prefix}/responses/{ident}{what}?include=a&limit=2"
                found = await ask(gateway.port, url, method=method, headers=caller())
                assert (found.status, found.json) == (200, {"id": ident, "of": what})
                sent = ups["two"].seen[-1]
                assert (sent.method, sent.target) == (method, f"/v1/responses/{ident}{what}?include=a&limit=2")
                assert (sent.header("authorization"), sent.body) == (key, b"")
            assert ups["one"].asked() == []
            other = await ask(gateway.port, f"/v1/responses/{ident}{what}", method=method, headers=caller("ben"))
            assert other.status == 404, "an id counts only for whom it was given to"
            assert ident in other.json["error"]["message"]
        row = gateway.row(found.trace_id)
        assert (row["endpoint"], row["outcome"], row["request_kind"]) == (endpoint, "ok", "auxiliary")
        assert (row["model_asked"], row["cost_pd"], row["provider"]) == (None, None, "pool")
        assert gateway.row(other.trace_id)["error_class"] == "not_found"

    run(main)


def test_what_is_not_stored_or_not_known_is_not_found(gateway: Gateway, ups: dict[str, Upstream]) -> None:
    stored(gateway, ups, "resp_unstored")

    async def main() -> None:
        async with Origin(ups["one"].script, port=ups["one"].port):
            assert (await ask(gateway.port, PATH, body("m", store=False), headers=caller())).status == 200
            for ident in ("resp_unstored", "resp_of_nobody"):
                found = await ask(gateway.port, f"{PATH}/{ident}", method="GET", headers=caller())
                assert (found.status, found.json["error"]["type"]) == (404, "invalid_request_error")
            found = await ask(gateway.port, f"{PATH}/resp_unstored", method="GET")
            assert found.status == 401
            found = await ask(gateway.port, f"{PATH}/resp_unstored", method="PUT", headers=caller())
            assert (found.status, found.header("allow")) == (405, "DELETE, GET")
            for path in (f"{PATH}/a/b", f"{PATH}/a/input_items/b", f"{PATH}/", f"{PATH}/a%20b"):
                assert (await ask(gateway.port, path, method="GET", headers=caller())).status == 404

    run(main)


def test_a_stored_answer_may_be_asked_for_as_a_stream(gateway: Gateway, ups: dict[str, Upstream]) -> None:
    async def script(peer: Peer, request: Request) -> None:
        if request.method == "POST":
            await peer.send(reply(200, RESPONSES.answer().replace(b"resp_1", b"resp_again")))
        else:
            await peer.send(reply(200, b"".join(RESPONSES.events("again")), EVENT_STREAM))

    async def main() -> None:
        async with Origin(script, port=ups["one"].port):
            assert (await ask(gateway.port, PATH, body("m"), headers=caller())).status == 200
            url = f"{PATH}/resp_again?stream=true&starting_after=0"
            found = await ask(gateway.port, url, method="GET", headers=caller())
            assert (found.status, found.body) == (200, b"".join(RESPONSES.events("again")))
        (attempt,) = gateway.row(found.trace_id)["attempts"]
        assert (attempt["input_tokens"], attempt["usage_source"]) == (None, "missing")

    run(main)


@pytest.mark.parametrize("how", ["previous_response_id", "conversation", "item_reference", "untyped"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_nobody_goes_on_with_what_was_given_to_another(
    gateway: Gateway, ups: dict[str, Upstream], how: str, stream: bool
) -> None:
    """Behind one key of the provider's, the model would tell a client what another had said."""
    ident = f"_{how}_{stream}"

    def refer(number: str) -> dict[str, Any]:
        if how in ("item_reference", "untyped"):
            typed = {"type": "item_reference"} if how == "item_reference" else {}
            return {"input": [{**typed, "id": f"msg{number}"}, {"role": "user", "content": "go on"}]}
        return {how: f"resp{number}" if how == "previous_response_id" else f"conv{number}"}

    async def main() -> None:
        async with Origin(ups["one"].script, port=ups["one"].port):
            said = b"".join(RESPONSES.events("hello")) if stream else RESPONSES.answer()
            renamed = said.replace(b"resp_1", b"resp" + ident.encode()).replace(b"msg_1", b"msg" + ident.encode())
            made = body("m", stream=stream, **(refer(ident) if how == "conversation" else {}))
            ups["one"].says["/v1/responses"] = 200, renamed
            kind = EVENT_STREAM if stream else JSON
            ups["one"].kind = kind
            assert (await ask(gateway.port, PATH, made, headers=caller())).status == 200
            ups["one"].says.clear()
            ups["one"].kind = JSON
            ups["one"].seen.clear()
            theirs = body("m") | refer(ident)
            assert (await ask(gateway.port, PATH, theirs, headers=caller())).status == 200
            found = await ask(gateway.port, PATH, theirs, headers=caller("ben"))
            error = found.json["error"]
            what = {"previous_response_id": "Previous response", "conversation": "Conversation"}.get(how, "Item")
            param = "input" if what == "Item" else how
            assert (found.status, error["param"], error["type"]) == (404, param, "invalid_request_error")
            assert error["message"].startswith(f"{what} with id '") and error["message"].endswith("' not found.")
            assert len(ups["one"].asked()) == 1
            # What nobody remembers was made outside of the gateway; its provider judges that.
            outside = body("m") | refer("_made_elsewhere")
            assert (await ask(gateway.port, PATH, outside, headers=caller("ben"))).status == 200
        assert gateway.row(found.trace_id)["error_class"] == "not_found"

    run(main)


def test_what_a_client_is_shown_of_a_stored_answer_is_no_others_to_refer_to(
    gateway: Gateway, ups: dict[str, Upstream]
) -> None:
    """What was made in the background is first seen when it is asked for; its items are that client's from then on."""
    ident = "resp_shown_later"

    async def script(peer: Peer, request: Request) -> None:
        ups["one"].seen.append(request)
        told: dict[str, Any] = {"id": ident, "object": "response", "model": "served", "status": "queued", "output": []}
        if request.method == "GET":
            item = {"type": "message", "id": "msg_shown_later", "role": "assistant", "content": []}
            told |= {"status": "completed", "output": [item]}
        if request.target.endswith("/input_items"):
            told = {"object": "list", "data": [{"type": "message", "id": "msg_listed", "role": "user", "content": []}]}
        await peer.send(reply(200, json.dumps(told).encode()))

    async def main() -> None:
        async with Origin(script, port=ups["one"].port):
            await ask(gateway.port, PATH, body("m", background=True), headers=caller())
            for url in (f"{PATH}/{ident}", f"{PATH}/{ident}/input_items"):
                assert (await ask(gateway.port, url, method="GET", headers=caller())).status == 200
            for item in ("msg_shown_later", "msg_listed"):
                theirs = body("m") | {"input": [{"type": "item_reference", "id": item}]}
                found = [await ask(gateway.port, PATH, theirs, headers=caller(*who)) for who in (("ben",), ())]
                assert [one.status for one in found] == [404, 200], item

    run(main)


def test_an_answer_is_known_while_it_is_made(gateway: Gateway, ups: dict[str, Upstream]) -> None:
    """From `response.created` on: a stream may be cancelled, and asked for again where it broke off."""
    cancelled = asyncio.Event()

    async def script(peer: Peer, request: Request) -> None:
        if request.target.endswith("/cancel"):
            cancelled.set()
            await peer.send(reply(200, json.dumps({"id": "resp_made", "status": "cancelled"}).encode()))
            return
        opening = [one.replace(b"resp_1", b"resp_made") for one in RESPONSES.opening("hello")]
        await peer.send(begun(*opening))
        await cancelled.wait()
        peer.close()

    async def main() -> None:
        async with Origin(script, port=ups["one"].port):
            asked = body("m", stream=True, background=True)
            stream = asyncio.create_task(ask(gateway.port, PATH, asked, headers=caller()))
            url = f"{PATH}/resp_made/cancel"
            while (found := await ask(gateway.port, url, {}, headers=caller())).status != 200:
                assert not stream.done()
                await asyncio.sleep(0.02)
            assert found.json["status"] == "cancelled"
            await stream
            # Broken off as it is, it is still there.
            assert (await ask(gateway.port, url, {}, headers=caller())).status == 200
            assert (await ask(gateway.port, url, {}, headers=caller("ben"))).status == 404

    run(main)


@pytest.mark.parametrize("kind", ["added", "done"])
def test_an_item_of_a_stream_that_goes_on_is_no_others_to_refer_to(
    gateway: Gateway, ups: dict[str, Upstream], kind: str
) -> None:
    """From when it passes: the rest of the answer may take minutes, and an id is no secret."""
    ident = f"msg_under_way_{kind}"
    begins, over = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer, request: Request) -> None:
        ups["one"].seen.append(request)
        if not json.loads(request.body).get("stream"):
            await peer.send(reply(200, RESPONSES.answer().replace(b"resp_1", b"resp_other")))
            return
        opening = [one.replace(b"resp_1", b"resp_" + ident.encode()) for one in RESPONSES.opening("hello")]
        passed = [one for one in opening if b"response.output_item." not in one]
        item = {"type": "message", "id": ident, "role": "assistant", "content": [], "status": "in_progress"}
        told = {"type": f"response.output_item.{kind}", "output_index": 0, "item": item}
        await peer.send(begun(passed[0]))
        await begins.wait()
        await peer.send(chunk(b"data: " + json.dumps(told).encode() + b"\n\n" + b"".join(passed[1:])))
        await over.wait()
        peer.close()

    async def main() -> None:
        async with Origin(script, port=ups["one"].port):
            stream = asyncio.create_task(ask(gateway.port, PATH, body("m", stream=True), headers=caller()))
            theirs = body("m") | {"input": [{"type": "item_reference", "id": ident}]}
            for made, at in ((body("m", previous_response_id=f"resp_{ident}"), begins), (theirs, None)):
                asked: list[int] = []
                while 404 not in asked and len(asked) < 400:
                    asked.append((await ask(gateway.port, PATH, made, headers=caller("ben"))).status)
                    await asyncio.sleep(0.02)
                assert asked[-1] == 404 and not stream.done(), asked
                if at is not None:
                    at.set()
            assert (await ask(gateway.port, PATH, theirs, headers=caller())).status == 200, "its own client may"
            over.set()
            await stream
            assert (await ask(gateway.port, PATH, theirs, headers=caller("ben"))).status == 404

    run(main)


BILL = {"input_tokens": 1000, "output_tokens": 200, "total_tokens": 1200}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_what_was_made_in_the_background_is_paid_for_once(
    gateway: Gateway, ups: dict[str, Upstream], stream: bool
) -> None:
    """By whoever first sees it whole; what asked for it has nothing to count, and no estimate either."""
    ident = f"resp_background_{stream}"

    def told(status: str, **more: Any) -> bytes:
        return (
            RESPONSES.answer().replace(b"resp_1", ident.encode())
            if not more
            else json.dumps(
                {"id": ident, "object": "response", "model": "served", "status": status, "output": [], **more}
            ).encode()
        )

    over = told("completed", usage=BILL)

    async def script(peer: Peer, request: Request) -> None:
        up = ups["one"]
        up.seen.append(request)
        if request.method == "POST":
            if stream:
                await peer.send(begun(*[one.replace(b"resp_1", ident.encode()) for one in RESPONSES.opening("hel")]))
                peer.close()
            else:
                await peer.send(reply(200, told("queued", usage=None)))
        elif len(up.seen) == 2:
            await peer.send(reply(200, told("in_progress", usage=None)))
        elif "stream=true" in request.target:
            event = {"type": "response.completed", "sequence_number": 9, "response": json.loads(over)}
            await peer.send(reply(200, f"data: {json.dumps(event)}\n\n".encode(), EVENT_STREAM))
        else:
            await peer.send(reply(200, over))

    async def main() -> None:
        async with Origin(script, port=ups["one"].port):
            made = await ask(gateway.port, PATH, body("slow", background=True, stream=stream), headers=caller())
            until(lambda: gateway.row(made.trace_id)["finished_ms"] is not None)
            urls = [f"{PATH}/{ident}", *([f"{PATH}/{ident}?stream=true"] if stream else []), *[f"{PATH}/{ident}"] * 2]
            seen = [await ask(gateway.port, url, method="GET", headers=caller()) for url in urls]
            assert {found.status for found in seen} == {200}
        first, *rows = [gateway.row(found.trace_id)["attempts"][0] for found in (made, *seen)]
        assert first["finish_reason"] == ("in_progress" if stream else "queued")
        assert (first["usage_source"], first["estimated_input_tokens"]) == ("missing", None)
        assert [row["input_tokens"] for row in rows] == [None, 1000, *[None] * (len(rows) - 2)]
        assert rows[1]["usage_source"] == "provider" and rows[1]["output_tokens"] == 200
        assert [row["cost_pd"] for row in (first, *rows) if row["cost_pd"]] == [1000 * 3 * 10**6 + 200 * 15 * 10**6]

    run(main)


# --- Who goes on ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_conversation_goes_on_where_its_last_answer_is_kept(
    gateway: Gateway, ups: dict[str, Upstream], stream: bool
) -> None:
    """SPEC 5.7: `previous_response_id` is scoped to the account, whatever a draw would say."""

    async def main() -> None:
        async with Origin(ups["one"].script, port=ups["one"].port), Origin(ups["two"].script, port=ups["two"].port):
            for n in range(6):
                ident = f"resp_{stream}_{n}"
                for up in ups.values():
                    up.says["/v1/responses"] = 200, RESPONSES.answer().replace(b"resp_1", ident.encode())
                first = await ask(gateway.port, PATH, body("either"), headers=caller())
                made = first.header("x-arbiter-provider")
                for up in ups.values():
                    up.says.clear()
                next_ = body("either", previous_response_id=ident, stream=stream)
                found = await ask(gateway.port, PATH, next_, headers=caller())
                assert (found.status, found.header("x-arbiter-provider")) == (200, made)

    run(main)


def test_what_was_encrypted_in_a_stream_goes_back_to_who_did_it(gateway: Gateway, ups: dict[str, Upstream]) -> None:
    """And to the key that did; what only that account accepts is offered to no other."""

    async def script(peer: Peer, request: Request) -> None:
        account = (request.header("authorization") or "").rpartition("-")[2]
        asked = json.loads(request.body)
        sealed = [item["encrypted_content"] for item in asked["input"] if item.get("type") == "reasoning"]
        if any(not one.startswith(account) for one in sealed):
            error = {"message": "could not be verified", "code": "invalid_encrypted_content", "param": None}
            await peer.send(reply(400, json.dumps({"error": error}).encode()))
            return
        item = {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [],
            "encrypted_content": f"{account}-{len(sealed)}-{id(peer)}",
        }
        done = {"type": "response.output_item.done", "output_index": 0, "item": item}
        first, *rest = RESPONSES.events("hello")
        await peer.send(reply(200, b"".join([first, f"data: {json.dumps(done)}\n\n".encode(), *rest]), EVENT_STREAM))

    async def main() -> None:
        async with Origin(script, port=ups["two"].port):
            for n in range(6):
                items: list[dict[str, Any]] = [{"role": "user", "content": f"conversation number {n} begins"}]
                for _ in range(3):
                    asked = {"model": "p", "input": items, "stream": True, "store": False}
                    found = await ask(gateway.port, PATH, asked, headers=caller())
                    assert found.status == 200, found.body
                    events = [json.loads(data) for _, data in found.events]
                    items += [event["item"] for event in events if event["type"] == "response.output_item.done"]
                    # Another opener each time: no pin says where it goes.
                    items[0] = {"role": "user", "content": f"conversation number {n} is at {len(items)}"}
                    items.append({"role": "user", "content": "go on"})

    run(main)


def test_a_failed_response_before_its_output_is_tried_elsewhere(gateway: Gateway, ups: dict[str, Upstream]) -> None:
    """SPEC 4.2: what opens a stream, however long it repeats the request, commits to nothing."""
    failed = {"id": "resp_1", "status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down"}}
    created = {"id": "resp_1", "status": "in_progress", "instructions": "x" * 100_000}
    events = [
        f"data: {json.dumps({'type': f'response.{kind}', 'response': response})}\n\n".encode()
        for kind, response in (("created", created), ("in_progress", created), ("failed", failed))
    ]

    async def script(peer: Peer, request: Request) -> None:
        await peer.send(reply(200, b"".join(events), EVENT_STREAM))

    async def main() -> None:
        async with Origin(script, port=ups["one"].port), Origin(ups["two"].script, port=ups["two"].port):
            seen = set()
            for n in range(8):
                asked = body("either", stream=True, instructions=f"You are number {n} of several testers.")
                found = await ask(gateway.port, PATH, asked, headers=caller())
                assert (found.status, RESPONSES.text(found.body)) == (200, "hello")
                seen.add(len(gateway.row(found.trace_id)["attempts"]))
                gateway.get("/admin/cooldowns/clear", method="POST", headers=ADMIN)
            assert 2 in seen
            found = await ask(gateway.port, PATH, body("m", stream=True), headers=caller())
            assert (found.status, found.json["error"]["code"]) == (429, "rate_limit_exceeded")
            until(lambda: gateway.row(found.trace_id)["status"] == 429)

    run(main)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("asked", ["hello", [{"role": "user", "content": "hello"}]], ids=["text", "items"])
def test_who_only_thought_is_asked_once_more(
    gateway: Gateway, ups: dict[str, Upstream], stream: bool, asked: Any
) -> None:
    """SPEC 4.7: the nudge is one more item; both attempts are rows, and the client sees the second answer alone."""
    up = ups["one"]
    thought = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    usage = {"input_tokens": 7, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 3}}
    silent = {"id": "resp_0", "status": "completed", "error": None, "output": [thought], "usage": usage}
    created = {"type": "response.created", "response": {"id": "resp_0"}}
    events = [created, {"type": "response.completed", "response": silent}]

    def said(name: str) -> bytes:
        if stream:
            spelt = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
            return reply(200, spelt if name == "first" else b"".join(RESPONSES.events("hello")), EVENT_STREAM)
        return reply(200, json.dumps(silent).encode() if name == "first" else RESPONSES.answer())

    async def script(peer: Peer, request: Request) -> None:
        up.seen.append(request)
        await peer.send(said("first" if len(up.seen) == 1 else "second"))

    async def main() -> None:
        async with Origin(script, port=up.port):
            body = {"model": "silent", "input": asked, "stream": stream}
            found = await ask(gateway.port, PATH, body, headers=caller())
            assert found.status == 200 and b"hello" in found.body and b"resp_0" not in found.body
            first, second = (json.loads(request.body)["input"] for request in up.seen)
            assert first == asked and second[0] == {"role": "user", "content": "hello"} and second[1]["role"] == "user"
        row = gateway.row(found.trace_id)
        assert [(one["why"], one["empty_completion"]) for one in row["attempts"]] == [("first", 1), ("nudge", 0)]
        assert (row["fidelity"], row["attempts"][1]["replaced"]) == ("$.input[-1]", 0)

    run(main)
