"""What a caller or an upstream may choose is bounded where it is kept, and our own secrets come back to nobody."""

from __future__ import annotations

import json

import pytest

from tests.fakes.client import Caller, ask, run
from tests.fakes.origin import Origin, answer
from tests.fakes.wires import CHAT, GEMINI, JSON, UPSTREAM_KEY, WIRES, Front, Wire
from tests.flow.conftest import MakeFront
from tests.flow.test_upstream_errors import asked

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)


@each_wire
def test_a_models_name_has_a_bound(front: Front, wire: Wire) -> None:
    """It stands in rows, headers, messages and the log: 30 MB of it in each would take the administration down."""

    async def main() -> None:
        found = await ask(front.port, wire.path, {**wire.ask(), "model": "m" * 300_000})
        assert found.status == 400
        assert "longer than 256" in wire.complaint(found)
        row = front.row(found.trace_id)
        assert (row["model_asked"], row["error_class"]) == (None, "bad_request")
        assert len(json.dumps(row)) < 4096

    run(main)


@each_wire
def test_an_upstreams_words_are_kept_as_long_as_words_are(front: Front, wire: Wire) -> None:
    async def main() -> None:
        whole = json.loads(wire.answer())
        body = json.dumps({**whole, "id": "i" * 100_000, "model": "m" * 100_000}).encode()
        found = await asked(front, wire, answer(body, headers=[JSON]))
        assert (found.status, found.body) == (200, body)
        row = front.row(found.trace_id)
        (attempt,) = row["attempts"]
        assert len(attempt["response_id"]) == len(attempt["model_served"]) == len(row["model"]) == 256

    run(main)


@each_wire
@pytest.mark.parametrize("status", ["400 Bad", "401 Unauthorized", "500 Oh"])
def test_an_upstream_that_repeats_our_key_does_not_tell_it_to_anyone(front: Front, wire: Wire, status: str) -> None:
    """Debug pages print the request they got; neither the caller nor the row is to learn the key from them."""

    async def main() -> None:
        told = {"error": {"message": f"cannot do this with {UPSTREAM_KEY}", "type": "x"}}
        found = await asked(front, wire, answer(json.dumps(told).encode(), status=status, headers=[JSON]))
        assert b"cannot do this with ***" in found.body
        assert UPSTREAM_KEY.encode() not in found.body
        assert UPSTREAM_KEY not in json.dumps(front.row(found.trace_id))

    run(main)


@each_wire
def test_an_upstream_that_calls_its_model_by_our_key_does_not_tell_it_to_anyone(front: Front, wire: Wire) -> None:
    """What an upstream reports of itself stands in rows: none of them holds the key."""

    async def main() -> None:
        body = json.dumps({**json.loads(wire.answer()), "model": f"m-{UPSTREAM_KEY}"}).encode()
        found = await asked(front, wire, answer(body, headers=[JSON]))
        assert found.status == 200 and UPSTREAM_KEY not in str(found.headers)
        row = front.row(found.trace_id)
        assert row["model"] == row["attempts"][0]["model_served"] == "m-***"
        assert UPSTREAM_KEY not in json.dumps(row)

    run(main)


def test_a_credential_that_a_caller_writes_in_the_wrong_place_is_in_no_row(make_front: MakeFront) -> None:
    """People take one setting for another: a key as the model, also where a default provider is asked for whatever is
    asked; in the user agent, a label or a trace id. The provider is sent what was asked for."""
    front = make_front(routing={"default_provider": "chat"})
    key = "sk-proj-Zm9vYmFyYmF6cXV4MDEyMzQ1Njc4OQ"

    async def main() -> None:
        headers = [("user-agent", f"mine/1 {key}"), ("x-arbiter-label", f"of={key}"), ("x-trace-id", key)]
        async with Origin(answer(CHAT.answer(), headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, CHAT.path, {**CHAT.ask(), "model": key}, headers=headers)
            assert found.status == 200 and json.loads(origin.requests[0].body)["model"] == key
        row = front.row(found.trace_id)
        assert (row["model_asked"], row["user_agent"]) == ("***", "mine/1 ***")
        assert (json.loads(row["labels"]), row["client_trace_id"]) == ({"of": "***"}, "***")
        assert [one["model_asked"] for one in row["attempts"]] == ["***"]
        assert key not in json.dumps(row)
        assert front.row((await ask(front.port, CHAT.path, CHAT.ask())).trace_id)["model_asked"] == CHAT.model

    run(main)
    assert key not in front.log


@each_wire
def test_an_answer_is_never_changed_for_what_it_says(front: Front, wire: Wire) -> None:
    """Not even where an upstream says our key in it: it is the model's words that a client gets. The row has none."""

    async def main() -> None:
        found = await asked(front, wire, answer(wire.answer(f"your key is {UPSTREAM_KEY}"), headers=[JSON]))
        assert found.status == 200 and UPSTREAM_KEY.encode() in found.body
        assert UPSTREAM_KEY not in json.dumps(front.row(found.trace_id))

    run(main)


@each_wire
def test_a_credential_of_the_callers_that_an_upstream_repeats_is_in_no_row(front: Front, wire: Wire) -> None:
    """A provider quotes what it did not like, and the prompt may hold anything: that is for the caller's eyes."""

    async def main() -> None:
        key = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
        told = json.dumps({"error": {"message": f"this is no schema: {key}", "type": "x"}}).encode()
        found = await asked(front, wire, answer(told, status="400 Bad", headers=[JSON]))
        assert found.status == 400 and key.encode() in found.body
        row = front.row(found.trace_id)
        assert "this is no schema: ***" in row["message"] and key not in json.dumps(row)

    run(main)


@each_wire
@pytest.mark.parametrize("name", ["up/../other", "..", "up/model/../../../v1/files"])
def test_no_model_is_named_by_a_way_up_a_path(front: Front, wire: Wire, name: str) -> None:
    """Where a provider has the model in its path, `allowed/../other` would reach what its client may not ask for."""

    async def main() -> None:
        async with Origin(answer(wire.answer(), headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, wire.path, {**wire.ask(), "model": name})
            assert (found.status, origin.requests) == (400, [])
        assert "names no model" in wire.complaint(found)

    run(main)


def test_no_model_in_geminis_path_is_a_way_up_the_providers(front: Front) -> None:
    """Neither as it stands there nor percent-encoded; two dots within a name are letters like others."""

    async def main() -> None:
        async with Origin(answer(GEMINI.answer(), headers=[JSON]), port=front.upstream) as origin:
            for name in ("gemini/../x", "gemini%2F..%2F..%2Ffiles", "gemini/%2e%2e/x"):
                found = await ask(front.port, f"/v1beta/models/{name}:generateContent", GEMINI.ask())
                assert (found.status, origin.requests) == (400, []), name
                assert found.json["error"]["status"] == "INVALID_ARGUMENT"
            found = await ask(front.port, "/v1beta/models/gemini/a..b:generateContent", GEMINI.ask())
            assert found.status == 404  # a name, if nobody's

    run(main)


@pytest.mark.parametrize("ending", [b"0\r\nchecksum: 1\r\n\r\n", b"zz\r\n\r\n"], ids=["trailers", "no length"])
def test_a_chunked_body_that_is_none_is_a_400_for_who_is_still_there(front: Front, ending: bytes) -> None:
    """499 is what the row says of a client that left, and no status of HTTP."""
    body = json.dumps(CHAT.ask()).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"

    async def main() -> None:
        async with await Caller.connect(front.port) as caller:
            found = await caller.exchange(head + b"%x\r\n%s\r\n" % (len(body), body) + ending)
        assert found.status == 400 and "chunked" in CHAT.complaint(found)
        assert front.row(found.trace_id)["status"] == 499

    run(main)
