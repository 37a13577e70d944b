"""What a type of provider does around its format: where a call goes, how its key is shown, what every body has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.attempt.lanes import choose
from arbiter.config.snapshot import Account, Endpoint, Provider
from arbiter.routing.plan import Rung
from arbiter.wire.headers import Incoming, to_upstream
from tests.fakes.asks import ask

CHAT, MESSAGES, RESPONSES = "openai-chat", "anthropic-messages", "openai-responses"
HELLO: dict[str, Any] = {"model": "asked", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
EMBED: dict[str, Any] = {"model": "asked", "input": ["a"]}
KEY = Account(key="sk")


def rung(kind: str, model: str = "served", *, base: str = "", api: str | None = None, **provider: Any) -> Rung:
    place = Endpoint("https", "up.test", 443, base)
    return Rung(Provider("up", kind, CHAT, place, accounts=(KEY,), **provider), model, api=api)


def headers(target: Rung, wire: str, *pairs: tuple[str, str]) -> dict[str, str]:
    return dict(to_upstream(target.provider, KEY, wire, Incoming(pairs), stream=False))


@pytest.mark.parametrize(
    ("base", "version", "wire", "target"),
    [
        ("", None, CHAT, "/openai/v1/chat/completions"),
        ("", None, RESPONSES, "/openai/v1/responses"),
        ("", None, "embeddings", "/openai/v1/embeddings"),
        ("/openai", None, CHAT, "/openai/v1/chat/completions"),
        ("/openai/v1", None, CHAT, "/openai/v1/chat/completions"),
        ("/proxy/azure", None, CHAT, "/proxy/azure/openai/v1/chat/completions"),
        ("", "2024-10-21", CHAT, "/openai/deployments/my%20gpt%2F4/chat/completions?api-version=2024-10-21"),
        ("", "2024-10-21", "embeddings", "/openai/deployments/my%20gpt%2F4/embeddings?api-version=2024-10-21"),
        ("", "2025-04-01-preview", RESPONSES, "/openai/responses?api-version=2025-04-01-preview"),
        ("/openai", "2024-10-21", RESPONSES, "/openai/responses?api-version=2024-10-21"),
        ("", None, MESSAGES, "/anthropic/v1/messages"),
        ("/anthropic", None, MESSAGES, "/anthropic/v1/messages"),
        ("/openai/v1", "2024-10-21", MESSAGES, "/anthropic/v1/messages"),
    ],
)
def test_azure_has_its_formats_at_addresses_of_its_own(base: str, version: str | None, wire: str, target: str) -> None:
    """With the newer API the deployment is the model in the body; with a dated one it is in the path."""
    body = EMBED if wire == "embeddings" else {"model": "asked", "input": "hi"} if wire == RESPONSES else HELLO
    api = "messages" if wire == MESSAGES else None
    at = rung("azure", "my gpt/4", base=base, api=api, api_version=version)
    lane = choose(ask(wire, body), at)
    assert (lane.name, lane.target()) == ("native", target)
    assert json.loads(lane.body)["model"] == "my gpt/4"


def test_a_query_of_the_clients_goes_along_with_azures_own() -> None:
    at = rung("azure", "d", api_version="2024-10-21")
    lane = choose(ask(CHAT, HELLO, query="x=1"), at)
    assert lane.target() == "/openai/deployments/d/chat/completions?api-version=2024-10-21&x=1"


def test_azure_is_shown_its_key_in_a_header_of_its_own() -> None:
    """And never as a bearer, which is for Entra's tokens there."""
    at = rung("azure")
    assert headers(at, CHAT)["api-key"] == "sk" and "authorization" not in headers(at, CHAT)
    assert headers(at, "embeddings")["api-key"] == "sk"
    assert headers(at, MESSAGES)["x-api-key"] == "sk"
    assert (
        not {"api-key", "authorization"}
        & dict(to_upstream(at.provider, Account(), CHAT, Incoming(()), stream=True)).keys()
    )


@pytest.mark.parametrize("wire", [CHAT, MESSAGES])
def test_openrouter_is_asked_for_its_figures_on_both_lanes(wire: str) -> None:
    """SPEC 6.6a. The rest of the body stays as it was, and the change is declared."""
    lane = choose(ask(wire, HELLO), rung("openrouter", base="/api/v1"))
    assert json.loads(lane.body)["usage"] == {"include": True}
    assert lane.target() == "/api/v1/chat/completions"
    if wire == CHAT:
        assert lane.fidelity == "$.model,$.usage"
        assert json.loads(lane.body) == HELLO | {"model": "served", "usage": {"include": True}}


@pytest.mark.parametrize(
    ("said", "fidelity"),
    [({"include": True}, "$.model,$.usage"), ({"include": False}, "$.model,$.usage"), (None, "$.model,$.usage")],
)
def test_what_a_client_said_of_openrouters_figures_gives_way(said: Any, fidelity: str) -> None:
    lane = choose(ask(CHAT, HELLO | {"usage": said}), rung("openrouter", base="/api/v1"))
    assert (json.loads(lane.body)["usage"], lane.fidelity) == ({"include": True}, fidelity)


def test_openrouters_other_formats_have_their_figures_anyway() -> None:
    at = rung("openrouter", base="/api/v1", api="messages")
    lane = choose(ask(MESSAGES, HELLO), at)
    assert (lane.target(), json.loads(lane.body)) == ("/api/v1/messages", HELLO | {"model": "served"})
    assert headers(at, MESSAGES)["authorization"] == "Bearer sk" and "x-api-key" not in headers(at, MESSAGES)


def test_an_app_that_names_itself_is_attributed_at_openrouter_alone() -> None:
    """SPEC 6.6a, 6.7: its own words cross, nobody's are made up, and the operator's win."""
    named = [("http-referer", "https://app.test"), ("x-title", "App"), ("x-other", "1")]
    sent = headers(rung("openrouter"), CHAT, *named)
    assert (sent["http-referer"], sent["x-title"], "x-other" in sent) == ("https://app.test", "App", False)
    assert not {"http-referer", "x-title"} & headers(rung("openrouter"), CHAT).keys()
    assert not {"http-referer", "x-title"} & headers(rung("openai"), CHAT, *named).keys()
    own = rung("openrouter", headers=(("X-Title", "Ours"),))
    assert [value for name, value in headers(own, CHAT, *named).items() if name.lower() == "x-title"] == ["Ours"]
