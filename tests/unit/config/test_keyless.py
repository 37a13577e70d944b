"""A configuration for who asks no provider: what opens something is not wanted, all else is judged as ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from arbiter.config.load import PRICED, ConfigError, Source

SEALED = """\
providers:
  openai:
    type: openai
    key_file: /nowhere/key
    models: [gpt-5.2]
    headers: { x-account: "${UNSET}" }
    proxy: "${UNSET}"
    tls: { ca: /nowhere/ca.pem }
  pool: { type: openai, keys: ["${UNSET}", "${UNSET}", { label: c, key_file: /nowhere/key }], models: [mini] }
  aws: { type: bedrock, region: us-east-1, access_key_id: "${UNSET}", secret_access_key: "${UNSET}", models: [m] }
  google: { type: vertex, project: p-123456, credentials: /nowhere/account.json, models: [gemini-3-pro] }
  login:
    type: anthropic
    auth: oauth
    oauth: { token_url: "https://vendor.example/t", client_id: z, client_secret: "${UNSET}" }
  echo: { type: echo, models: [echo] }
admin: { token: "${UNSET}" }
reasoning: { keys: ["${UNSET}"] }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "arbiter.yaml"


def test_nothing_that_opens_something_is_wanted(file: Path) -> None:
    file.write_text(SEALED)
    with pytest.raises(ConfigError):
        Source(file, {}).load()
    found = Source(file, {"ARBITER_ADMIN_TOKEN_FILE": "/nowhere/token"}).keyless()
    assert list(found.providers) == ["openai", "pool", "aws", "google", "login", "echo"]
    assert found.reasoning_keys == ()


def test_what_stands_in_keeps_a_pool_a_pool(file: Path) -> None:
    """Its labels are what rows and prepaid balances name."""
    file.write_text(SEALED)
    accounts = Source(file, {}).keyless().providers["pool"].accounts
    assert [one.label for one in accounts] == ["key-1", "key-2", "c"]
    assert len({one.key for one in accounts}) == 3 and all(one.key for one in accounts)


@pytest.mark.parametrize(
    "wrong", ["endpoint: nonsense", 'endpoint: "${UNSET}"', "models: [m, m]", "keyy: 1", "auth: nobody"]
)
def test_what_is_no_secret_is_judged_as_ever(file: Path, wrong: str) -> None:
    file.write_text(f'providers: {{ a: {{ type: openai, key: "${{UNSET}}", {wrong} }} }}\n')
    with pytest.raises(ConfigError):
        Source(file, {}).keyless()


def test_sections_that_say_nothing_of_prices_are_not_looked_at(file: Path) -> None:
    file.write_text(SEALED + 'storage: { url: "postgresql://ada:${UNSET}@db/arbiter" }\n')
    with pytest.raises(ConfigError):
        Source(file, {}).keyless()
    assert "openai" in Source(file, {}).keyless(*PRICED).providers


def test_of_a_provider_that_is_asked_the_keys_are_wanted_and_of_no_other(file: Path, tmp_path: Path) -> None:
    """Who logs in at one vendor need not be able to read the keys of all others."""
    file.write_text(SEALED)
    found = Source(file, {}).keyless("providers", asked=["echo"])
    assert len(found.providers) == 6
    for name in ("openai", "pool", "aws", "google", "login"):
        with pytest.raises(ConfigError):
            Source(file, {}).keyless("providers", asked=[name])
    key = tmp_path / "key"
    key.write_text("sk-read")
    file.write_text(f"providers: {{ a: {{ type: openai, key_file: {key} }}, b: {{ type: openai, key: '${{B}}' }} }}\n")
    providers = Source(file, {}).keyless("providers", asked=["a"]).providers
    assert providers["a"].accounts[0].key == "sk-read" and providers["b"].accounts[0].key.startswith("withheld")


def test_a_provider_whose_name_begins_like_that_of_one_asked_is_another(file: Path) -> None:
    file.write_text("providers: { a: { type: openai, key: k }, ab: { type: openai, key: '${UNSET}' } }\n")
    assert len(Source(file, {}).keyless("providers", asked=["a"]).providers) == 2
