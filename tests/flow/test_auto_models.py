"""Names that nobody declared: a provider of their vendor's is asked whether it has them, and all workers know."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from arbiter.config.snapshot import key_digest
from tests.fakes.client import Answer, ask, run
from tests.fakes.gateway import Gateway, free_port, until
from tests.fakes.origin import Origin, Peer, Request, answer

LOGIN = "sk-ant-oat01-" + "Login0of0Ann-" * 3
CLIENT_KEY = "arb-" + "0123456789abcdef" * 2
JSON = ("content-type", "application/json")
NOT_FOUND = {"type": "error", "error": {"type": "not_found_error", "message": "model: nope"}}


def message(model: str) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}  # fmt: skip


class Vendor:
    """Anthropic's API: it has models, lacks models, or says nothing of use; `models` are those answers by name."""

    def __init__(self) -> None:
        self.port = free_port()
        self.models: dict[str, bytes] = {}
        self.origin = Origin()

    async def script(self, peer: Peer, request: Request) -> None:
        if request.method == "GET":
            await peer.send(self.models.get(request.target.rpartition("/")[2], answer(b"{}", headers=[JSON])))
        else:
            body = json.dumps(message(json.loads(request.body)["model"])).encode()
            await peer.send(answer(body, headers=[JSON]))

    async def serve(self, main: Callable[[], Awaitable[None]]) -> None:
        self.origin = Origin(self.script, port=self.port)
        async with self.origin:
            await main()

    def looked_up(self, model: str) -> int:
        return sum(one.method == "GET" and one.target == f"/v1/models/{model}" for one in self.origin.requests)

    @property
    def asked(self) -> list[Request]:
        return [one for one in self.origin.requests if one.method == "POST"]


@pytest.fixture(scope="module")
def vendor() -> Vendor:
    return Vendor()


@pytest.fixture(scope="module")
def gateway(vendor: Vendor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    at = {"type": "anthropic", "endpoint": f"http://127.0.0.1:{vendor.port}"}
    config = {
        "clients": [{"name": "ann", "key_hash": "sha256:" + key_digest(CLIENT_KEY), "allow": ["claude-opus-*"]}],
        "providers": {
            "claude": {**at, "auth": "passthrough", "models": ["claude-sonnet-4-5"]},
            "keyed": {**at, "key": "sk-key-of-ours", "models": [{"id": "sonnet", "upstream": "claude-sonnet-4-5"},
                                                                 {"id": "odd[1m]", "upstream": "odd[1m]"}]},
        },
        "aliases": {"main": {"pin": "keyed/sonnet"}},
    }  # fmt: skip
    with Gateway(config, tmp_path_factory.mktemp("auto"), workers=2) as made:
        yield made


@pytest.fixture
def served(vendor: Vendor) -> Callable[[Callable[[], Awaitable[None]]], None]:
    return lambda main: run(lambda: vendor.serve(main))


def talk(gateway: Gateway, model: str, *headers: tuple[str, str]) -> Awaitable[Answer]:
    body = {"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
    return ask(gateway.port, "/v1/messages", body, headers=[("authorization", f"Bearer {LOGIN}"), *headers])


def test_a_model_that_the_provider_has_is_let_through_and_looked_up_once(gateway, vendor, served):
    """Once for all workers, and for all who ask at the same time; with the login, since it may depend on it."""

    async def main() -> None:
        answers = await asyncio.gather(*(talk(gateway, "claude-opus-4-9") for _ in range(6)))
        answers += [await talk(gateway, "claude-opus-4-9") for _ in range(12)]
        assert {got.status for got in answers} == {200}
        assert all(got.header("x-arbiter-warning") is None for got in answers)
        # Two workers may ask at the same moment; whoever comes later knows.
        assert 1 <= vendor.looked_up("claude-opus-4-9") <= 2
        lookup = next(one for one in vendor.origin.requests if one.method == "GET")
        assert lookup.header("authorization") == f"Bearer {LOGIN}" and lookup.header("anthropic-version")
        assert {json.loads(one.body)["model"] for one in vendor.asked} == {"claude-opus-4-9"}
        row = gateway.row(answers[0].trace_id)
        assert row["rationale"].startswith("auto model claude-opus-4-9 -> claude/claude-opus-4-9")

    served(main)


def test_a_model_that_the_provider_lacks_ends_here(gateway, vendor, served):
    """SPEC 6.5: a 404 blocks; nobody is asked for an answer, nor for ten minutes whether there is one."""

    async def main() -> None:
        vendor.models["claude-nope"] = answer(json.dumps(NOT_FOUND).encode(), status="404 x", headers=[JSON])
        for _ in range(8):
            got = await talk(gateway, "claude-nope")
            assert got.status == 404 and "has no model 'claude-nope'" in got.json["error"]["message"]
        assert vendor.looked_up("claude-nope") == 1 and vendor.asked == []
        assert gateway.row(got.trace_id)["error_class"] == "no_route"

    served(main)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("claude-limited", answer(b"{}", status="429 x", headers=[JSON])),
        ("claude-no-path", answer(b'{"detail":"Not Found"}', status="404 x", headers=[JSON])),
        ("claude-page", answer(b"<html>404</html>", status="404 x")),
        ("claude-refused", answer(b"{}", status="401 x", headers=[JSON])),
    ],
)
def test_what_stays_open_goes_on_with_one_warning(gateway, vendor, served, name, said):
    """The request itself finds out; one line, and one warning to whoever asked first."""

    async def main() -> None:
        vendor.models[name] = said
        answers = [await talk(gateway, name) for _ in range(8)]
        assert {got.status for got in answers} == {200} and len(vendor.asked) == 8
        warned = [got.header("x-arbiter-warning") for got in answers if got.header("x-arbiter-warning")]
        assert warned == [f"model_unverified: claude did not say whether it has {name}"]
        assert vendor.looked_up(name) == 1
        until(lambda: sum(line.get("model") == name and line["level"] == "warn" for line in gateway.lines()) == 1)

    served(main)


def test_a_name_that_nobody_declared_is_told_of(gateway, vendor, served):
    """`GET /models/{id}` answers from memory: what the vendor is to be asked for is there, with its window, until it
    said that it has none such."""

    async def told(name: str) -> Answer:
        headers = [("authorization", f"Bearer {LOGIN}"), ("anthropic-version", "2023-06-01")]
        return await ask(gateway.port, f"/v1/models/{name}", method="GET", headers=headers)

    async def main() -> None:
        vendor.models["claude-opus-never"] = answer(
            json.dumps(NOT_FOUND).encode(), status="404 Not Found", headers=[JSON]
        )
        for name in ("claude-opus-4-8", "claude-opus-4-8%5B1m%5D", "claude-opus-4-8[1m]", "claude-opus-never"):
            found = await told(name)
            assert (found.status, found.json["id"]) == (200, name.replace("%5B", "[").replace("%5D", "]"))
            assert found.json["max_input_tokens"] == (1_000_000 if "1m" in name else None)
        assert not vendor.origin.requests
        assert (await talk(gateway, "claude-opus-never")).status == 404
        for name in ("claude-opus-never", "claude-opus-never[1m]"):
            found = await told(name)
            assert (found.status, found.json["error"]["type"]) == (404, "not_found_error")
        for name in ("sonnet[1m]", "main[1m]", "odd[1m]"):
            assert (await told(name)).status == 200
        assert (await told("nobodys[1m]")).status == 404

    served(main)


def test_an_allow_list_holds_for_names_that_nobody_declared(gateway, vendor, served):
    async def main() -> None:
        refused = await talk(gateway, "claude-haiku-9", ("x-arbiter-key", CLIENT_KEY))
        assert refused.status == 403 and vendor.origin.requests == []
        assert (await talk(gateway, "claude-opus-9", ("x-arbiter-key", CLIENT_KEY))).status == 200
        windowed = await talk(gateway, "claude-opus-9[1m]", ("x-arbiter-key", CLIENT_KEY))
        assert windowed.status == 200

    served(main)


def test_other_names_are_nobodys(gateway, vendor, served):
    async def main() -> None:
        for name in ("gpt-9", "opus", "xclaude-1"):
            assert (await talk(gateway, name)).status == 404
        assert vendor.origin.requests == []

    served(main)


def test_a_window_is_a_beta_where_we_have_the_key(gateway, vendor, served):
    """FEATURES P43: Anthropic's API knows no suffix. Rows keep what was asked, and what was sent."""

    async def main() -> None:
        for asked in ("sonnet[1m]", "main[1M]", "keyed/sonnet[1m]"):
            got = await talk(gateway, asked, ("anthropic-beta", "one-2025-01-01"))
            assert got.status == 200, got.body
            request = vendor.asked[-1]
            assert json.loads(request.body)["model"] == "claude-sonnet-4-5"
            assert request.header("anthropic-beta") == "one-2025-01-01,context-1m-2025-08-07"
            row = gateway.row(got.trace_id)
            assert row["model_asked"] == asked and "window [1" in row["rationale"]
            (attempt,) = gateway.attempts(row["id"])
            assert attempt["model_asked"] == "claude-sonnet-4-5"
        kept = await talk(gateway, "sonnet[1m]", ("anthropic-beta", "context-1m-2025-08-07,b"))
        assert kept.status == 200 and vendor.asked[-1].header("anthropic-beta") == "context-1m-2025-08-07,b"
        plain = await talk(gateway, "sonnet")
        assert plain.status == 200 and vendor.asked[-1].header("anthropic-beta") is None
        narrow = await talk(gateway, "sonnet[200k]")
        assert narrow.status == 200 and vendor.asked[-1].header("anthropic-beta") is None

    served(main)


def test_a_window_goes_along_with_a_login(gateway, vendor, served):
    """FEATURES P43: to whom a login goes the name goes as it stands, and the beta goes with it."""

    async def main() -> None:
        got = await talk(gateway, "claude-sonnet-4-5[1m]")
        assert got.status == 200 and got.header("x-arbiter-fidelity") == "verbatim"
        (request,) = vendor.asked
        assert json.loads(request.body)["model"] == "claude-sonnet-4-5[1m]"
        assert request.header("anthropic-beta") == "context-1m-2025-08-07,oauth-2025-04-20"

    served(main)


def test_a_declared_name_wins_over_what_its_end_looks_like(gateway, vendor, served):
    async def main() -> None:
        assert (await talk(gateway, "odd[1m]")).status == 200
        (request,) = vendor.asked
        assert json.loads(request.body)["model"] == "odd[1m]" and request.header("anthropic-beta") is None

    served(main)
