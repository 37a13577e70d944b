"""What a type of provider does around its format: where a call goes, how its key is shown, what every body has."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import unquote

import pytest

from arbiter.attempt import ways
from arbiter.attempt.lanes import choose
from arbiter.config.snapshot import Account, Endpoint, Provider
from arbiter.errors import Garbled
from arbiter.model import Usage
from arbiter.routing.plan import Rung
from arbiter.wire.dialects import dialect_of
from arbiter.wire.headers import Incoming, to_upstream
from tests.fakes.asks import ask

CHAT, MESSAGES, RESPONSES = "openai-chat", "anthropic-messages", "openai-responses"
HELLO: dict[str, Any] = {"model": "asked", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
EMBED: dict[str, Any] = {"model": "asked", "input": ["a"]}
KEY = Account(key="sk")


CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
ARN = "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.meta.llama3-2-3b-instruct-v1:0"


def rung(kind: str, model: str = "served", *, base: str = "", api: str | None = None, **provider: Any) -> Rung:
    place = Endpoint("https", "up.test", 443, base)
    wire = "bedrock-converse" if kind == "bedrock" else CHAT
    known_as = provider.pop("known_as", None)
    return Rung(Provider("up", kind, wire, place, accounts=(KEY,), **provider), model, api=api, known_as=known_as)


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
    lane = choose(ask(CHAT, HELLO, query="api-version=2030-01-01&x=1"), at)
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


@pytest.mark.parametrize(
    ("model", "api", "stream", "target"),
    [
        (CLAUDE, None, False, "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke"),
        (CLAUDE, None, True, "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke-with-response-stream"),
        (CLAUDE, "converse", True, "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"),
        ("global.anthropic.claude-opus-4-6-v1", None, False, "/model/global.anthropic.claude-opus-4-6-v1/invoke"),
        ("us.amazon.nova-pro-v1:0", None, False, "/model/us.amazon.nova-pro-v1%3A0/converse"),
        ("us.amazon.nova-pro-v1:0", None, True, "/model/us.amazon.nova-pro-v1%3A0/converse-stream"),
        (
            ARN,
            None,
            False,
            "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Ainference-profile%2Feu.meta.llama3-2-3b-instruct-v1%3A0"
            "/converse",
        ),
        (ARN, "messages", False, "/model/" + ARN.replace(":", "%3A").replace("/", "%2F") + "/invoke"),
    ],
)
def test_bedrock_is_asked_by_the_models_path(model: str, api: str | None, stream: bool, target: str) -> None:
    """Claude by its name in Anthropic's format, whatever region stands before it; an ARN hides whose model it is."""
    body = HELLO | {"stream": True} if stream else HELLO
    assert choose(ask(MESSAGES, body, query="beta=true"), rung("bedrock", model, api=api)).target() == target


@pytest.mark.parametrize("wire", [MESSAGES, CHAT])
def test_bedrocks_claude_is_told_nothing_that_stands_elsewhere(wire: str) -> None:
    """On both lanes: the path says model and stream, the version is Bedrock's, every other byte the client's."""
    body = HELLO | {"stream": True, "metadata": {"user_id": "u"}} if wire == MESSAGES else HELLO | {"stream": True}
    lane = choose(ask(wire, body | {"service_tier": "auto"}), rung("bedrock", CLAUDE))
    sent = json.loads(lane.body)
    assert sent["anthropic_version"] == "bedrock-2023-05-31"
    assert not {"model", "stream", "service_tier", "speed", "inference_geo", "anthropic_beta"} & sent.keys()
    assert (lane.name, lane.format.name) == ("native" if wire == MESSAGES else "translated", MESSAGES)
    if wire == MESSAGES:
        assert lane.fidelity == "$.model,$.stream,$.service_tier,$.anthropic_version"
        assert sent == {
            **{name: value for name, value in body.items() if name not in ("model", "stream")},
            "anthropic_version": "bedrock-2023-05-31",
        }


def test_beta_features_that_bedrock_knows_stand_in_its_body() -> None:
    """One that it does not know is a 400 for the whole request; the header is Anthropic's own, and stays behind."""
    at = rung("bedrock", CLAUDE)
    million, thinking = "context-1m-2025-08-07", "interleaved-thinking-2025-05-14"
    told = f"claude-code-20250219,{million}, {thinking},oauth-2025-04-20,{million}"
    changes = dialect_of(at.provider).changes(MESSAGES, {"anthropic-beta": told}, ("context-management-2025-06-27",))
    assert changes is not None and json.loads(changes.in_body(b'{"model":"m","max_tokens":1}')) == {
        "max_tokens": 1,
        "anthropic_version": "bedrock-2023-05-31",
        "anthropic_beta": [
            "context-1m-2025-08-07",
            "interleaved-thinking-2025-05-14",
            "context-management-2025-06-27",
        ],
    }
    sent = headers(at, MESSAGES, ("anthropic-beta", told), ("anthropic-version", "2023-06-01"))
    left = dialect_of(at.provider).sealed(at.provider, KEY, "/x", list(sent.items()), b"", now_ms=0, stream=False)
    assert not [name for name, _ in left if name.startswith("anthropic")]


@pytest.mark.parametrize("config", [None, 7, {"effort": "low"}, {"task_budget": 1}, {"a": '"task_budget"'}])
def test_a_member_of_a_feature_that_nobody_asked_for_is_bedrocks_to_refuse(config: object) -> None:
    """And only the member itself goes with its feature, whatever else stands where it does."""
    body = {"fallbacks": [], "output_config": config}
    bedrock = dialect_of(rung("bedrock", CLAUDE).provider)
    for told, more in (("", False), ("server-side-fallback-2027-01-01,task-budgets-2027-01-01", True)):
        changes = bedrock.changes(MESSAGES, {"anthropic-beta": told})
        assert changes is not None
        sent = json.loads(changes.in_body(json.dumps(body).encode()))
        inside = {} if more and config == {"task_budget": 1} else config
        assert sent == {
            "anthropic_version": "bedrock-2023-05-31",
            "output_config": inside,
            **({} if more else {"fallbacks": []}),
        }


def test_bedrock_is_shown_a_key_of_its_own_or_a_signature_and_never_the_secret() -> None:
    at = rung("bedrock", CLAUDE, region="eu-west-1")
    assert headers(at, MESSAGES)["authorization"] == "Bearer sk" and "x-api-key" not in headers(at, MESSAGES)
    signing = Account(key="SECRET", access_id="AKID", session_token="TOKEN")
    plain = to_upstream(at.provider, signing, MESSAGES, Incoming(()), stream=True)
    assert "SECRET" not in str(plain) and "authorization" not in dict(plain)
    seal = dialect_of(at.provider).sealed
    left = dict(seal(at.provider, signing, "/model/m/invoke", plain, b"{}", now_ms=1_440_938_160_000, stream=True))
    assert left["x-amz-date"] == "20150830T123600Z" and left["x-amz-security-token"] == "TOKEN"
    assert left["accept"] == "application/vnd.amazon.eventstream"
    assert left["authorization"].startswith(
        "AWS4-HMAC-SHA256 Credential=AKID/20150830/eu-west-1/bedrock/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature="
    )
    again = dict(seal(at.provider, signing, "/model/m/invoke", plain, b"{ }", now_ms=1_440_938_160_000, stream=True))
    assert again["authorization"] != left["authorization"], "the body is signed too"


def test_an_answer_that_bedrock_gives_whole_has_its_facts() -> None:
    """Nobody is relayed in Converse: what it says of itself is what was read of it."""
    lane = choose(ask(CHAT, HELLO), rung("bedrock", "us.amazon.nova-pro-v1:0"))
    call = {"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}
    output = {"message": {"role": "assistant", "content": [{"text": "hé"}, call]}}
    usage = {"inputTokens": 4, "outputTokens": 5, "totalTokens": 9}
    body = json.dumps({"output": output, "stopReason": "tool_use", "usage": usage}).encode()
    whole = asyncio.run(lane.whole(body, "application/json"))
    assert whole.facts is not None and whole.facts.usage == Usage(input=4, output=5, total=9)
    assert (whole.facts.finish, whole.facts.output_bytes, whole.facts.tool_names) == ("tool_calls", 5, ("f",))
    assert json.loads(whole.body)["choices"][0]["message"]["content"] == "hé"
    with pytest.raises(Garbled):
        raise asyncio.run(lane.whole(b"{}", "application/json")).error or AssertionError


def test_who_counts_is_asked_for_it() -> None:
    """Who has Anthropic's format: Bedrock too, but not what is asked through Converse."""
    assert ways.counts_tokens(MESSAGES, rung("bedrock", CLAUDE, api="messages"))
    assert not ways.counts_tokens(MESSAGES, rung("bedrock", CLAUDE, api="converse"))
    assert ways.counts_tokens(MESSAGES, rung("azure", api="messages"))


@pytest.mark.parametrize(
    ("model", "counted"),
    [
        (CLAUDE, "anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("us-gov.anthropic.claude-x", "anthropic.claude-x"),
        ("anthropic.claude-x", "anthropic.claude-x"),
        ("arn:aws:bedrock:eu-west-1:1:inference-profile/global.anthropic.claude-x", "anthropic.claude-x"),
        ("arn:aws:bedrock:eu-west-1::foundation-model/anthropic.claude-x", "anthropic.claude-x"),
        ("arn:aws:bedrock:eu-west-1:1:application-inference-profile/abc", None),
    ],
)
def test_bedrock_counts_for_models_and_not_for_profiles(model: str, counted: str | None) -> None:
    """A profile of one's own does not say which model it is: Bedrock may say what it will."""
    at = rung("bedrock", model, api="messages")
    path = choose(ask(MESSAGES, HELLO, path="/messages/count_tokens"), at).target()
    assert unquote(path) == f"/model/{counted or model}/count-tokens"


PROFILE = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc"


def test_a_deployment_is_asked_as_the_model_that_its_operator_says_it_is() -> None:
    """A name that somebody made up says nothing of what the model takes; what is sent is that name all the same."""
    for model, known_as, limit in (
        ("my-deployment", "gpt-5.2", "max_completion_tokens"),
        ("my-deployment", "mine-too", "max_tokens"),
        ("my-deployment", None, "max_tokens"),
        ("gpt-4o", "gpt-5.2", "max_tokens"),
    ):
        sent = json.loads(choose(ask(MESSAGES, HELLO), rung("azure", model, known_as=known_as)).body)
        assert (sent["model"], sent[limit]) == (model, 9)
    plain = json.loads(choose(ask(MESSAGES, HELLO), rung("openai", "m", known_as="gpt-5.2")).body)
    assert plain["max_tokens"] == 9, "elsewhere the provider's name is the model's"


@pytest.mark.parametrize("api", ["messages", "converse"])
def test_an_arn_is_asked_as_the_model_that_its_operator_says_it_is(api: str) -> None:
    hello = {"model": "asked", "messages": [{"role": "user", "content": "hi"}], "reasoning_effort": "high"}
    lane = choose(ask(CHAT, hello), rung("bedrock", PROFILE, api=api, known_as="claude-sonnet-4-5"))
    sent = json.loads(lane.body)
    told = sent if api == "messages" else sent["additionalModelRequestFields"]
    assert told["thinking"] == {"type": "enabled", "budget_tokens": 24_576} and "model" not in sent
    assert "inference-profile%2Fabc/" in lane.target()
