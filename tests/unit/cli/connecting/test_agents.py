"""What each agent's settings say once it is connected."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.homes import KEY, MODELS, files, read
from tests.fakes.pages import Page, Site


def test_claude_code_gets_an_address_and_a_token_and_no_families(home: Path, site: Site, connect: Any) -> None:
    path = home / ".claude/settings.json"
    assert connect("claude-code", "--key", KEY)[0] == 0
    plain = {"ANTHROPIC_BASE_URL": site.url, "ANTHROPIC_AUTH_TOKEN": KEY}
    plain["CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY"] = "1"
    assert read(path) == {"env": plain}
    connect("claude-code", "--model", "big", url=None)
    assert read(path) == {"env": plain | {"ANTHROPIC_MODEL": "big"}}
    families = {f"ANTHROPIC_DEFAULT_{name}_MODEL": "big" for name in ("OPUS", "SONNET", "HAIKU")}
    connect("claude-code", "--pin-models", url=None)
    connect("claude-code", url=None)  # remembered
    assert read(path) == {"env": plain | {"ANTHROPIC_MODEL": "big"} | families}
    connect("claude-code", "--no-pin-models", url=None)
    assert read(path) == {"env": plain | {"ANTHROPIC_MODEL": "big"}}


def test_another_vendors_key_is_taken_out_told_of_and_put_back(home: Path, connect: Any) -> None:
    path = home / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text('{"env": {"ANTHROPIC_API_KEY": "sk-ant"}}')
    _, _, err = connect("claude-code", "--key", KEY)
    assert "env.ANTHROPIC_API_KEY is taken out" in err and "sk-ant" not in path.read_text()
    tree = json.loads(path.read_text())
    path.write_text(json.dumps({**tree, "theirs": 1}))
    connect("claude-code", "--undo", url=None)
    assert json.loads(path.read_text()) == {"env": {"ANTHROPIC_API_KEY": "sk-ant"}, "theirs": 1}


def test_codex_gets_a_provider_with_its_key(home: Path, site: Site, connect: Any) -> None:
    connect("codex", "--key", KEY, "--model", "big")
    told = read(home / ".codex/config.toml")
    provider = {"name": "Arbiter", "base_url": f"{site.url}/v1", "wire_api": "responses"}
    provider["http_headers"] = {"Authorization": f"Bearer {KEY}"}
    assert told == {"model": "big", "model_provider": "arbiter", "model_providers": {"arbiter": provider}}
    connect("codex", "--format", "chat", url=None)
    assert read(home / ".codex/config.toml")["model_providers"]["arbiter"]["wire_api"] == "chat"


def test_opencode_is_told_what_models_take_in(home: Path, site: Site, connect: Any) -> None:
    """It calls `pdf` what the gateway calls `file`; of what the gateway does not know nothing is said."""
    connect("opencode", "--key", KEY, "--model", "big")
    told = read(home / ".config/opencode/opencode.json")
    assert told["$schema"] == "https://opencode.ai/config.json" and told["model"] == "arbiter/big"
    provider = told["provider"]["arbiter"]
    assert provider["options"] == {"baseURL": f"{site.url}/v1", "apiKey": KEY}
    assert provider["npm"] == "@ai-sdk/openai-compatible"
    assert provider["models"] == {
        "big": {
            "name": "The Big One",
            "attachment": True,
            "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]},
            "limit": {"context": 200_000, "output": 32_000},
        },
        "vendor/small:7b": {
            "name": "vendor/small:7b",
            "attachment": False,
            "modalities": {"input": ["text"], "output": ["text"]},
        },
        "unknown": {"name": "unknown"},
    }


def test_a_model_that_is_gone_is_not_offered_any_more(home: Path, site: Site, connect: Any) -> None:
    connect("opencode", "--model", "big")
    site.pages["/v1/models"] = Page(200, json.dumps({"data": MODELS[:1]}).encode())
    connect("opencode", url=None)
    assert list(read(home / ".config/opencode/opencode.json")["provider"]["arbiter"]["models"]) == ["big"]


def test_aider_asks_for_the_model_as_openai_would_have_it(home: Path, site: Site, connect: Any) -> None:
    connect("aider", "--key", KEY, "--model", "big")
    told = {"openai-api-base": f"{site.url}/v1", "openai-api-key": KEY, "model": "openai/big"}
    assert read(home / ".aider.conf.yml") == told


def test_gemini_cli_gets_variables_and_is_told_to_use_a_key(home: Path, site: Site, connect: Any) -> None:
    _, _, err = connect("gemini-cli", "--key", KEY, "--model", "big")
    assert "takes the place of ~/.gemini/.env" in err
    text = (home / ".gemini/.env").read_text()
    assert text == f"GEMINI_API_KEY={KEY}\nGOOGLE_GEMINI_BASE_URL={site.url}\nGEMINI_MODEL=big\n"
    assert read(home / ".gemini/settings.json") == {"security": {"auth": {"selectedType": "gemini-api-key"}}}


def test_qwen_finds_its_key_in_its_own_settings(home: Path, site: Site, connect: Any) -> None:
    connect("qwen", "--key", KEY, "--model", "big")
    told = read(home / ".qwen/settings.json")
    assert told["env"] == {"ARBITER_KEY": KEY} and told["model"] == {"name": "big"}
    assert told["security"] == {"auth": {"selectedType": "openai"}}
    first = told["modelProviders"]["openai"][0]
    assert first == {
        "id": "big",
        "name": "The Big One",
        "baseUrl": f"{site.url}/v1",
        "envKey": "ARBITER_KEY",
        "generationConfig": {"contextWindowSize": 200_000},
    }


@pytest.mark.parametrize(
    ("format", "api", "suffix"),
    [
        ("chat", "openai-completions", "/v1"),
        ("messages", "anthropic-messages", ""),
        ("responses", "openai-responses", "/v1"),
    ],
)
def test_pi_and_oh_my_pi_speak_what_they_are_told_to(
    format: str, api: str, suffix: str, home: Path, site: Site, connect: Any
) -> None:
    for agent in ("pi", "omp"):
        assert connect(agent, "--key", KEY, "--model", "big", "--format", format)[0] == 0
    for told in (read(home / ".pi/agent/models.json"), read(home / ".omp/agent/models.yml")):
        provider = told["providers"]["arbiter"]
        assert (provider["baseUrl"], provider["api"], provider["apiKey"]) == (site.url + suffix, api, KEY)
        big = {"id": "big", "name": "The Big One", "input": ["text", "image"]}
        assert provider["models"][0] == big | {"contextWindow": 200_000, "maxTokens": 32_000}
    assert read(home / ".pi/agent/settings.json") == {"defaultProvider": "arbiter", "defaultModel": "big"}
    assert read(home / ".omp/agent/config.yml") == {"modelRoles": {"default": "arbiter/big"}}


def test_continue_keeps_its_models_and_gets_ours(home: Path, site: Site, connect: Any) -> None:
    connect("continue", "--key", KEY, "--model", "big")
    told = read(home / ".continue/config.yaml")
    assert (told["name"], told["version"], told["schema"]) == ("Local", "1.0.0", "v1")
    assert told["models"][0] == {
        "name": "The Big One (Arbiter)",
        "provider": "openai",
        "model": "big",
        "apiBase": f"{site.url}/v1",
        "apiKey": KEY,
        "roles": ["chat", "edit", "apply"],
        "capabilities": ["tool_use", "image_input"],
    }


def test_llm_gets_models_a_key_and_a_default(home: Path, site: Site, connect: Any) -> None:
    connect("llm", "--key", KEY, "--model", "big")
    folder = home / ".config/io.datasette.llm"
    first = read(folder / "extra-openai-models.yaml")[0]
    assert first == {"model_id": "arbiter/big", "model_name": "big", "api_base": f"{site.url}/v1"} | {
        "api_key_name": "arbiter",
        "supports_tools": True,
        "supports_schema": True,
        "vision": True,
    }
    assert read(folder / "keys.json") == {"arbiter": KEY}
    assert (folder / "default_model.txt").read_text() == "arbiter/big"


@pytest.mark.parametrize("agent", ["copilot", "cline"])
def test_an_agent_without_settings_gets_what_a_shell_can_run(agent: str, home: Path, site: Site, connect: Any) -> None:
    """Standard output is that and nothing else."""
    _, out, _ = connect(agent, "--key", "k'y", "--model", "big")
    assert files(home) == {}
    words = [shlex.split(line) for line in out.splitlines()]
    if agent == "cline":
        (words,) = words
        assert words[:3] == ["cline", "auth", "--provider"] and words[words.index("--apikey") + 1] == "k'y"
    else:
        told = dict(line[1].split("=", 1) for line in words)
        assert {line[0] for line in words} == {"export"} and told["COPILOT_PROVIDER_API_KEY"] == "k'y"
        assert told["COPILOT_PROVIDER_BASE_URL"] == f"{site.url}/v1" and told["COPILOT_PROVIDER_TYPE"] == "openai"
        _, out, _ = connect(agent, "--format", "messages", url=None)
        assert f"COPILOT_PROVIDER_BASE_URL={site.url}\n" in out and "WIRE_API" not in out
    assert connect(agent, "--undo", url=None)[0] == 0
