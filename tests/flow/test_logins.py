"""Callers' own logins (`auth: passthrough`): to whom they go, what goes with them, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import zstandard

from arbiter.config.snapshot import key_digest
from tests.fakes.client import Answer, ask, run
from tests.fakes.gateway import ADMIN, Gateway, free_port, until
from tests.fakes.origin import Origin, Peer, Request, answer

LOGIN = "sk-ant-oat01-" + "Login0of0Ann-" * 3
OTHER = "sk-ant-oat01-" + "Login0of0Bob-" * 3
OPAQUE = "opaquewords of nobody"[:11] + "-nobody-knows-7"
CODEX = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjb2RleCJ9.c2lnbmF0dXJlMQ"
CLIENT_KEY = "arb-" + "0123456789abcdef" * 2
MESSAGES, RESPONSES, CHAT = "/v1/messages", "/v1/responses", "/v1/chat/completions"
USAGE = {"input_tokens": 1_000_000, "output_tokens": 0}
SAID = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
        "stop_reason": "end_turn", "stop_sequence": None, "usage": USAGE}  # fmt: skip
CHATTED = {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
           "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
           "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}}  # fmt: skip
RESPONDED = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5.2-codex", "output": [],
             "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}}  # fmt: skip
JSON = ("content-type", "application/json")


def told(body: Any, status: str = "200 OK", *headers: tuple[str, str]) -> bytes:
    return answer(json.dumps(body).encode(), status=status, headers=[JSON, *headers])


class Vendors:
    """Upstreams: two that take logins, one that is asked with a key of ours."""

    def __init__(self) -> None:
        self.ports = {name: free_port() for name in ("claude", "codex", "other", "spare")}
        self.origins: dict[str, Origin] = {}
        self.says: dict[str, bytes] = {}

    def usual(self) -> None:
        self.says = {
            "claude": told(SAID),
            "codex": told(RESPONDED, "200 OK", ("x-codex-turn-state", "sticky"), ("x-models-etag", "e1")),
            "other": told(SAID),
            "spare": told(CHATTED),
        }

    async def serve(self, main: Callable[[], Awaitable[None]]) -> None:
        self.usual()

        def script(name: str) -> Callable[[Peer, Request], Awaitable[None]]:
            async def play(peer: Peer, request: Request) -> None:
                await peer.send(self.says[name])

            return play

        self.origins = {name: Origin(script(name), port=port) for name, port in self.ports.items()}
        async with self.origins["claude"], self.origins["codex"], self.origins["other"], self.origins["spare"]:
            await main()

    def asked(self, name: str) -> list[Request]:
        return self.origins[name].requests

    def everything(self, name: str) -> bytes:
        return b"".join(request.head + request.body for request in self.asked(name))


@pytest.fixture(scope="module")
def vendors() -> Vendors:
    return Vendors()


@pytest.fixture(scope="module")
def gateway(vendors: Vendors, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    def at(name: str, path: str = "") -> str:
        return f"http://127.0.0.1:{vendors.ports[name]}{path}"

    config = {
        "clients": [{"name": "ann", "key_hash": "sha256:" + key_digest(CLIENT_KEY)}],
        "providers": {
            "claude": {"type": "anthropic", "endpoint": at("claude"), "auth": "passthrough", "priced_as": "anthropic",
                       "models": ["claude-sonnet-4-5"], "headers": {"anthropic-beta": "house-2026-01-01"}},
            "codex": {"type": "openai", "endpoint": at("codex", "/codex"), "auth": "passthrough",
                      "models": ["gpt-5.2-codex"]},
            "other": {"type": "anthropic", "endpoint": at("other"), "auth": "passthrough", "models": ["claude-other"]},
            "spare": {"type": "openai", "endpoint": at("spare", "/v1"), "key": "sk-key-of-ours", "models": ["m"],
                      "forward_headers": ["x-opencode-*", "*"]},
        },
        "aliases": {
            "safe": {"group": ["claude/claude-sonnet-4-5", "spare/m"]},
            "turns": {"group": ["codex/gpt-5.2-codex", "spare/m"]},
            "both": {"group": ["claude/claude-sonnet-4-5", "other/claude-other"]},
        },
        "storage": {"url": f"sqlite:///{tmp_path_factory.mktemp('db') / 'arbiter.db'}",
                    "capture": {"content": True, "headers": True}},
    }  # fmt: skip
    with Gateway(config, tmp_path_factory.mktemp("logins"), workers=1) as made:
        yield made


@pytest.fixture
def served(gateway: Gateway, vendors: Vendors) -> Iterator[Callable[[Callable[[], Awaitable[None]]], None]]:
    yield lambda main: run(lambda: vendors.serve(main))
    gateway.get("/admin/cooldowns/clear", method="POST", headers=ADMIN)


def talk(gateway: Gateway, model: str = "claude-sonnet-4-5", login: str | None = LOGIN, *headers: tuple[str, str],
         path: str = MESSAGES, **members: Any) -> Awaitable[Answer]:  # fmt: skip
    body: dict[str, Any] = {"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
    sent = [("authorization", f"Bearer {login}")] if login else []
    return ask(gateway.port, path, body | members, headers=[*sent, *headers])


def test_a_login_goes_out_as_it_came_with_the_body_as_it_came(gateway, vendors, served):
    """SPEC 6.5: `system` stays an array with its attribution line and its marks, betas are added to and never lost."""

    async def main() -> None:
        system = [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cc_entrypoint=cli;"},
            {"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ]
        unknown = {"novel": [1, {"x": 1.50}], "metadata": {"user_id": "u"}}
        got = await talk(
            gateway, "claude-sonnet-4-5", LOGIN, ("anthropic-beta", "claude-code-20250219,context-1m-2025-08-07"),
            ("user-agent", "claude-cli/2.1.197 (external, cli)"), ("x-app", "cli"), ("x-stainless-lang", "js"),
            ("x-team", "alpha"), ("cookie", "a=b"), ("X-Arbiter-Key", CLIENT_KEY), ("x-claude-code-session-id", "s1"),
            system=system, **unknown,
        )  # fmt: skip
        assert got.status == 200 and got.header("x-arbiter-fidelity") == "verbatim"
        (request,) = vendors.asked("claude")
        body = json.loads(request.body)
        assert body["system"] == system and body["novel"] == unknown["novel"]
        assert request.header("authorization") == f"Bearer {LOGIN}" and request.header("x-api-key") is None
        betas = (request.header("anthropic-beta") or "").split(",")
        assert betas == ["claude-code-20250219", "context-1m-2025-08-07", "house-2026-01-01", "oauth-2025-04-20"]
        assert request.header("user-agent") == "claude-cli/2.1.197 (external, cli)"
        assert request.header("x-app") == "cli" and request.header("x-stainless-lang") == "js"
        assert request.header("x-team") is None and request.header("cookie") is None
        assert b"arb-" not in vendors.everything("claude") and b"x-arbiter" not in vendors.everything("claude").lower()
        row = gateway.row(got.trace_id)
        assert row["client"] == "ann" and row["provider"] == "claude"

    served(main)


def test_a_key_of_the_callers_own_keeps_the_header_that_it_came_in(gateway, vendors, served):
    """`x-api-key` needs no beta of logins; a helper that sends both has both sent on."""

    async def main() -> None:
        key = "sk-ant-api03-" + "k" * 40
        await talk(gateway, "claude-sonnet-4-5", None, ("x-api-key", key))
        await talk(gateway, "claude-sonnet-4-5", key, ("x-api-key", key))
        alone, both = vendors.asked("claude")
        assert alone.header("x-api-key") == key and alone.header("authorization") is None
        assert alone.header("anthropic-beta") == "house-2026-01-01"
        assert both.header("x-api-key") == key and both.header("authorization") == f"Bearer {key}"

    served(main)


def test_a_key_of_the_gateway_is_nobodys_login(gateway, vendors, served):
    """Whatever opens this gateway, in whatever header, is not sent to a provider; what is left is the login."""

    async def main() -> None:
        for key in (CLIENT_KEY, "arb-" + "f" * 40, ADMIN["authorization"].removeprefix("Bearer ")):
            refused = await talk(gateway, "claude-sonnet-4-5", key)
            assert refused.status == 401 and "X-Arbiter-Key" in refused.json["error"]["message"]
        got = await talk(gateway, "claude-sonnet-4-5", LOGIN, ("x-api-key", CLIENT_KEY))
        assert got.status == 200 and gateway.row(got.trace_id)["client"] == "ann"
        (request,) = vendors.asked("claude")
        assert request.header("x-api-key") is None and request.header("authorization") == f"Bearer {LOGIN}"

    served(main)


def test_a_fallback_gets_the_conversation_and_not_the_login(gateway, vendors, served):
    """SPEC 6.5: it goes to that one provider only; a fallback is asked with our key, and a glob of headers hides it."""

    async def main() -> None:
        limited = {"type": "error", "error": {"type": "rate_limit_error", "message": "enough"}}
        vendors.says["claude"] = told(limited, "429 Too Many Requests", ("retry-after", "600"))
        got = await talk(gateway, "safe", LOGIN, ("x-opencode-session", "ses"), ("x-auth-token", "t0ken-of-ann"))
        assert got.status == 200 and got.header("x-arbiter-provider") == "spare"
        (request,) = vendors.asked("spare")
        assert request.header("authorization") == "Bearer sk-key-of-ours"
        assert request.header("x-opencode-session") == "ses" and request.header("x-auth-token") is None
        assert LOGIN.encode() not in vendors.everything("spare")
        # The login rests, by its fingerprint, and that of somebody else does not.
        (rest,) = gateway.get("/admin/api/state", headers=ADMIN).json["cooldowns"]
        assert rest["provider"] == "claude" and rest["account"].startswith("login-")
        vendors.says["claude"] = told(SAID)
        again = await talk(gateway, "claude-sonnet-4-5", LOGIN)
        assert again.status == 429 and len(vendors.asked("claude")) == 1
        assert (await talk(gateway, "claude-sonnet-4-5", OTHER)).status == 200

    served(main)


def test_a_login_is_one_vendors_for_good(gateway, vendors, served):
    """Once a provider has accepted it no other gets to see it, in whatever group or by whatever name."""

    async def main() -> None:
        assert (await talk(gateway, "claude-sonnet-4-5", LOGIN)).status == 200
        refused = await talk(gateway, "claude-other", LOGIN)
        assert refused.status == 403 and "this login is for" in refused.json["error"]["message"]
        vendors.says["claude"] = told({"type": "error", "error": {"type": "api_error", "message": "no"}}, "500 x")
        failed = await talk(gateway, "both", LOGIN)
        assert failed.status == 500
        assert vendors.asked("other") == []

    served(main)


def test_two_first_requests_at_once_show_a_login_to_one_vendor(gateway, vendors, served):
    """Nobody has accepted it yet: the second goes where the first went, or nowhere. A vendor whose login it is not says
    so, and another may be tried then."""

    async def main() -> None:
        for number in range(4):
            fresh = f"sk-ant-oat01-at-once-{number}-" + "x" * 20
            before = {name: len(vendors.asked(name)) for name in ("claude", "other")}
            models = ("claude-sonnet-4-5", "claude-other")
            answers = await asyncio.gather(*(talk(gateway, model, fresh) for model in models))
            assert sorted(got.status for got in answers) == [200, 403]
            assert sum(len(vendors.asked(name)) - before[name] for name in before) == 1
        error = {"type": "error", "error": {"type": "authentication_error", "message": "not ours"}}
        vendors.says["claude"] = told(error, "401 Unauthorized")
        others = "sk-ant-oat01-of-the-other-" + "y" * 20
        assert (await talk(gateway, "claude-sonnet-4-5", others)).status == 401
        assert (await talk(gateway, "claude-other", others)).status == 200
        unsent = "sk-ant-oat01-that-never-left-" + "z" * 20
        gateway.get("/admin/pause?provider=claude", method="POST", headers=ADMIN)
        try:
            assert (await talk(gateway, "claude-sonnet-4-5", unsent)).status == 503
        finally:
            gateway.get("/admin/resume?provider=claude", method="POST", headers=ADMIN)
        assert (await talk(gateway, "claude-other", unsent)).status == 200, "nobody has seen it"

    served(main)


def test_within_one_request_a_login_has_one_provider(gateway, vendors, served):
    """Nobody knows whose it is yet, the first is down: the second does not get it to try."""

    async def main() -> None:
        vendors.says["claude"] = told({"type": "error", "error": {"type": "api_error", "message": "no"}}, "500 x")
        failed = await talk(gateway, "both", "sk-ant-oat01-" + "n" * 30)
        assert failed.status == 500 and vendors.asked("other") == [] and len(vendors.asked("claude")) == 1

    served(main)


def test_what_the_vendor_says_of_a_login_is_the_callers_to_hear(gateway, vendors, served):
    """SPEC 4.8: under passthrough a 401 passes as it is, without the credential where the vendor repeats it."""

    async def main() -> None:
        error = {"type": "error", "error": {"type": "authentication_error", "message": f"bad token {OPAQUE}"}}
        vendors.says["claude"] = told(error, "401 Unauthorized", ("request-id", f"req-{OPAQUE}"))
        got = await talk(gateway, "claude-sonnet-4-5", OPAQUE)
        assert got.status == 401 and got.header("x-arbiter-error-source") == "upstream"
        assert got.json["error"]["message"] == "bad token ***" and got.header("request-id") == "req-***"
        row = gateway.row(got.trace_id)
        assert row["error_class"] == "unauthorized" and OPAQUE not in str(row)

    served(main)


def content(gateway: Gateway) -> bytes:
    """Everything captured, in plain."""
    plain = zstandard.ZstdDecompressor().decompress
    return b"".join(plain(row["text"]) for row in gateway.select("SELECT text FROM blocks"))


def test_nothing_is_left_of_a_login(gateway, vendors, served, tmp_path):
    """Not in rows, captured content and headers, state, journal or log; its fingerprint is keyed, and the same."""

    async def main() -> None:
        vendors.says["claude"] = told({**SAID, "content": [{"type": "text", "text": f"you sent {OPAQUE}"}]})
        first = await talk(gateway, "claude-sonnet-4-5", OPAQUE)
        second = await talk(gateway, "claude-sonnet-4-5", OPAQUE)
        third = await talk(gateway, "claude-sonnet-4-5", OTHER)
        labels = []
        for got in (first, second, third):
            row = gateway.row(got.trace_id)
            labels += [attempt["account"] for attempt in gateway.attempts(row["id"])]
        assert labels[0] == labels[1] != labels[2] and all(label.startswith("login-") for label in labels)
        until(lambda: b"you sent ***" in content(gateway), "the captured answer")

    served(main)
    for secret in (LOGIN, OTHER, OPAQUE):
        assert secret.encode() not in content(gateway)
    for file in [*gateway.folder.rglob("*"), *gateway.database.parent.rglob("*")]:
        if file.is_file():
            held = file.read_bytes()
            for secret in (LOGIN, OTHER, OPAQUE):
                assert secret.encode() not in held, file
                assert hashlib.sha256(secret.encode()).hexdigest()[:12].encode() not in held, file


def test_a_subscription_costs_nothing_and_its_worth_stands_beside(gateway, vendors, served):
    """SPEC 6.5: what the same would have cost is kept, and is in no sum."""

    async def main() -> None:
        got = await talk(gateway, "claude-sonnet-4-5", LOGIN)
        row = gateway.row(got.trace_id)
        (attempt,) = gateway.attempts(row["id"])
        assert (attempt["cost_source"], attempt["cost_pd"], row["cost_pd"]) == ("subscription", 0, 0)
        assert got.header("x-arbiter-cost-usd") == "0"
        assert attempt["equivalent_pd"] >= 10**12  # a million tokens, at some dollars

    served(main)


def test_codex_gets_its_headers_through_and_its_state_back(gateway, vendors, served):
    """FEATURES D.4: who asks, for which account, and the sticky token, in both directions."""

    async def main() -> None:
        sent = [("chatgpt-account-id", "acc-1"), ("originator", "codex_exec"), ("session_id", "s"), ("session-id", "s"),
                ("x-codex-turn-state", "sticky"), ("version", "0.171.0"), ("openai-beta", "responses=experimental"),
                ("user-agent", "codex_exec/0.171.0")]  # fmt: skip
        body = {"model": "gpt-5.2-codex", "input": "hi", "store": False, "include": ["reasoning.encrypted_content"]}
        got = await ask(gateway.port, RESPONSES, body, headers=[("authorization", f"Bearer {CODEX}"), *sent])
        assert got.status == 200, got.body
        (request,) = vendors.asked("codex")
        assert request.target == "/codex/responses" and json.loads(request.body) == body
        assert request.header("authorization") == f"Bearer {CODEX}"
        for name, value in sent:
            assert request.header(name) == value, name
        assert got.header("x-codex-turn-state") == "sticky" and got.header("x-models-etag") == "e1"

    served(main)


def test_what_one_vendor_says_of_its_turn_no_other_hears(gateway, vendors, served):
    """SPEC 4.7a: a fallback is sent no state that it did not give; what nobody here gave passes."""

    async def main() -> None:
        def turn(state: str) -> Awaitable[Answer]:
            sent = [("authorization", f"Bearer {CODEX}"), ("x-codex-turn-state", state), ("x-codex-window-id", "w")]
            return ask(gateway.port, RESPONSES, {"model": "turns", "input": "hi", "store": False}, headers=sent)

        assert (await turn("none yet")).header("x-codex-turn-state") == "sticky"
        vendors.says["codex"] = told({"error": {"message": "no", "type": "server_error"}}, "500 x")
        vendors.says["spare"] = told(RESPONDED)
        for state in ("sticky", "somebody's"):
            got = await turn(state)
            assert got.status == 200 and got.header("x-arbiter-provider") == "spare"
        assert [one.header("x-codex-turn-state") for one in vendors.asked("codex")] == [
            "none yet", "sticky", "somebody's"
        ]  # fmt: skip
        assert [one.header("x-codex-turn-state") for one in vendors.asked("spare")] == [None, "somebody's"]
        assert [one.header("x-codex-window-id") for one in vendors.asked("spare")] == ["w", "w"]

    served(main)


def test_a_login_does_not_go_where_its_request_would_be_changed(gateway, vendors, served):
    """What would have to be translated stays here, and says why; so do embeddings."""

    async def main() -> None:
        got = await talk(gateway, "claude-sonnet-4-5", LOGIN, path=CHAT)
        assert got.status == 400 and got.json["error"]["code"] == "protocol_unsupported"
        found = await ask(
            gateway.port, "/v1/embeddings", {"model": "gpt-5.2-codex", "input": "x"},
            headers=[("authorization", f"Bearer {CODEX}")],
        )  # fmt: skip
        assert found.status == 400 and "embeddings" in found.json["error"]["message"]
        assert vendors.asked("claude") == [] and vendors.asked("codex") == []

    served(main)


def test_a_stream_of_chat_is_asked_for_as_it_came(gateway, vendors, served):
    """Only the model may change: `stream_options` is not put in where a login is sent."""

    async def main() -> None:
        vendors.says["codex"] = answer(
            b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
            b'{"content":"ok"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
            headers=[("content-type", "text/event-stream")],
        )
        body = {"model": "codex/gpt-5.2-codex", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        got = await ask(gateway.port, CHAT, body, headers=[("authorization", f"Bearer {CODEX}")])
        assert got.status == 200
        (request,) = vendors.asked("codex")
        assert json.loads(request.body) == {**body, "model": "gpt-5.2-codex"}
        assert got.header("x-arbiter-fidelity") == "model-only"

    served(main)


def test_counting_tokens_takes_the_login_along(gateway, vendors, served):
    async def main() -> None:
        vendors.says["claude"] = told({"input_tokens": 7})
        got = await talk(gateway, "claude-sonnet-4-5", LOGIN, path="/v1/messages/count_tokens?beta=true")
        assert got.json == {"input_tokens": 7}
        (request,) = vendors.asked("claude")
        assert request.header("authorization") == f"Bearer {LOGIN}" and request.target.endswith("?beta=true")

    served(main)
