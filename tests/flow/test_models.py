"""`GET /models` and `GET /models/{id}`, as the vendors' SDKs and agents ask for them."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import openai
import pytest

from arbiter.config.snapshot import key_digest
from tests.fakes.client import ask, run
from tests.fakes.gateway import Gateway

PREFIXES = ("", "/v1", "/openai/v1", "/anthropic", "/anthropic/v1", "/v1/v1")
ANTHROPIC = [("anthropic-version", "2023-06-01")]
NAMES = [f"model-{number:02}" for number in range(45)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = {
        "auth": {"mode": "require"},
        "clients": [
            {"name": "all", "key_hash": f"sha256:{key_digest('key-all')}"},
            {"name": "few", "key_hash": f"sha256:{key_digest('key-few')}", "allow": ["claude-*"]},
        ],
        "providers": {"echo": {"type": "echo", "models": [*NAMES, "org/one model"]}},
        "models": [{"model": "echo/model-00", "max_input_tokens": 1000, "input_modalities": ["text", "image"]}],
        "aliases": {"fast": {"pin": "echo/model-00", "advertise_as": "claude-fast", "display_name": "Fast"}},
    }
    with Gateway(config, tmp_path_factory.mktemp("models")) as one:
        yield one


def test_openais_sdk_lists_and_retrieves(gateway: Gateway) -> None:
    """In one page, with what is known of each; a name with a slash is one name."""
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="key-all", max_retries=0, timeout=20) as client:
        found = list(client.models.list())
        assert [one.id for one in found] == ["claude-fast", *NAMES, "org/one model"]
        for name in ("claude-fast", "fast", "model-07", "echo/model-07", "org/one model", "echo/org/one model"):
            one = client.models.retrieve(name)
            assert one.id == name
            type(one).model_validate(one.model_dump(), strict=True)
        assert client.models.retrieve("fast").model_extra["context_length"] == 1000  # type: ignore[index]
        with pytest.raises(openai.NotFoundError) as unknown:
            client.models.retrieve("gpt-99")
        assert unknown.value.code == "no_route" and "gpt-99" in unknown.value.message


def test_anthropics_sdk_turns_the_pages(gateway: Gateway) -> None:
    """Twenty at a time, forth and back."""
    with anthropic.Anthropic(base_url=gateway.url, api_key="key-all", max_retries=0, timeout=20) as client:
        first = client.models.list()
        assert (len(first.data), first.has_more) == (20, True)
        found = list(first)
        assert [one.id for one in found] == ["claude-fast", *NAMES, "org/one model"]
        for one in found:
            type(one).model_validate(one.model_dump())
        assert (found[0].display_name, found[0].max_input_tokens) == ("Fast", 1000)
        back = client.models.list(before_id="model-05", limit=3)
        assert [one.id for one in back.data] == ["model-02", "model-03", "model-04"]
        assert client.models.retrieve("org/one model").type == "model"
        with pytest.raises(anthropic.NotFoundError) as unknown:
            client.models.retrieve("claude-99")
        assert "claude-99" in str(unknown.value)
        with pytest.raises(anthropic.BadRequestError):
            client.models.list(limit=5000)


def test_claude_code_discovers_what_its_key_may_use(gateway: Gateway) -> None:
    """In its own words: one page of a thousand."""

    async def main() -> None:
        headers = [*ANTHROPIC, ("authorization", "Bearer key-few"), ("user-agent", "claude-code/2.1.0")]
        found = await ask(gateway.port, "/v1/models?limit=1000", method="GET", headers=headers)
        assert (found.status, [one["id"] for one in found.json["data"]]) == (200, ["claude-fast"])
        for hidden in ("model-01", "fast", "echo/model-00"):
            found = await ask(gateway.port, f"/v1/models/{hidden}", method="GET", headers=headers)
            assert (found.status, found.json["error"]["type"]) == (404, "not_found_error")
        nobody = await ask(gateway.port, "/v1/models/fast", method="GET", headers=ANTHROPIC)
        assert (nobody.status, nobody.json["error"]["type"]) == (401, "authentication_error")

    run(main)


def test_a_model_is_under_every_mount_and_only_there(gateway: Gateway) -> None:
    headers = [("x-api-key", "key-all")]

    async def main() -> None:
        for prefix in PREFIXES:
            found = await ask(gateway.port, f"{prefix}/models/model-01", method="GET", headers=headers)
            assert (found.status, found.json["id"]) == (200, "model-01"), prefix
        found = await ask(gateway.port, "/v1/models/model-01", method="HEAD", headers=headers)
        assert (found.status, found.body) == (200, b"")
        found = await ask(gateway.port, "/v1/models/model-01", method="DELETE", headers=headers)
        assert (found.status, found.header("allow")) == (405, "GET, HEAD")
        assert found.json["error"]["type"] == "invalid_request_error"
        found = await ask(gateway.port, "/v1/models/", method="GET", headers=headers)
        assert (found.status, found.json["error"]["code"]) == (404, "not_found")
        for path in ("/v2/models/model-01", "/v1/chat/models/model-01"):
            found = await ask(gateway.port, path, method="GET", headers=headers)
            assert (found.status, found.json["code"], found.json["detail"]) == (404, 404, "Not Found"), path

    run(main)
