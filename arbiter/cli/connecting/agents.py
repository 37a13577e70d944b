"""The agents that can be connected: which files each reads, and what has to stand there.

Each has a function from what it is pointed at to what to do. Where an agent's settings know nothing of gateways there
is no file, but the environment variables or the command that do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from arbiter.cli.connecting.aim import NAME, Aim, Home, Known
from arbiter.cli.connecting.documents import Edit
from arbiter.cli.connecting.gateway import is_loopback
from arbiter.cli.connecting.tree import MISSING, Named
from arbiter.cli.connecting.word import WORD

CHAT, MESSAGES, RESPONSES = "chat", "messages", "responses"
KEY_VARIABLE = "ARBITER_KEY"

_FAMILIES = ("OPUS", "SONNET", "HAIKU")


class Settings(NamedTuple):
    """A file. `edits` are made in any case, `defaults` where nothing stands at their place; MISSING means: nothing may
    stand there."""

    path: Path
    kind: str
    edits: list[Edit]
    defaults: Sequence[Edit] = ()


@dataclass(frozen=True, slots=True)
class Steps:
    """What connects an agent. `command` is for one that writes its settings itself."""

    files: list[Settings] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Agent:
    """`formats` are those it can speak, its usual one first. `own` is how the names of the models begin that it chooses
    by itself; empty where it chooses none."""

    title: str
    formats: tuple[str, ...]
    steps: Callable[[Aim, Home], Steps]
    own: str = ""

    @property
    def has_default(self) -> bool:
        return bool(self.own)


def _claude_code(aim: Aim, home: Home) -> Steps:
    variables: dict[str, Any] = {
        "ANTHROPIC_BASE_URL": aim.url,
        "ANTHROPIC_AUTH_TOKEN": aim.key,
        "ANTHROPIC_API_KEY": MISSING,  # it would be sent beside the token, and is somebody else's
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
    }
    if aim.model is not None:
        variables["ANTHROPIC_MODEL"] = aim.model
        if aim.pins:
            variables |= {f"ANTHROPIC_DEFAULT_{family}_MODEL": aim.model for family in _FAMILIES}
    edits: list[Edit] = [(("env", name), value) for name, value in variables.items()]
    return Steps([Settings(home.folder("CLAUDE_CONFIG_DIR", ".claude") / "settings.json", "json", edits)])


def _codex(aim: Aim, home: Home) -> Steps:
    provider = ("model_providers", NAME)
    edits: list[Edit] = [
        (("model",), aim.model),
        (("model_provider",), NAME),
        ((*provider, "name"), "Arbiter"),
        ((*provider, "base_url"), aim.v1),
        ((*provider, "wire_api"), aim.format),
        ((*provider, "env_key"), MISSING),  # without the variable that it names Codex does not start
        ((*provider, "http_headers", "Authorization"), f"Bearer {aim.key}"),
    ]
    return Steps([Settings(home.folder("CODEX_HOME", ".codex") / "config.toml", "toml", edits)])


_AI_SDK = {CHAT: "@ai-sdk/openai-compatible", MESSAGES: "@ai-sdk/anthropic", RESPONSES: "@ai-sdk/openai"}


def _opencode(aim: Aim, home: Home) -> Steps:
    folder = home.config / "opencode"
    names = ("opencode.jsonc", "opencode.json", "config.json")
    path = next((folder / name for name in names if (folder / name).exists()), folder / "opencode.json")
    provider = ("provider", NAME)
    edits: list[Edit] = [
        ((*provider, "npm"), _AI_SDK[aim.format]),
        ((*provider, "name"), "Arbiter"),
        ((*provider, "options", "baseURL"), aim.v1),
        ((*provider, "options", "apiKey"), aim.key),
        *(((*provider, "models", one.id), _opencode_model(one)) for one in aim.listed),
        (("model",), f"{NAME}/{aim.model}"),
    ]
    return Steps([Settings(path, "json", edits, [(("$schema",), "https://opencode.ai/config.json")])])


def _opencode_model(one: Known) -> dict[str, Any]:
    """What opencode cannot find in its own catalogue, where the name stands for another provider's model or none."""
    model: dict[str, Any] = {"name": one.shown}
    if one.takes is not None:
        takes = [{"file": "pdf"}.get(kind, kind) for kind in one.takes]
        model["attachment"] = any(kind != "text" for kind in takes)
        model["modalities"] = {"input": takes, "output": ["text"]}
    if one.max_input is not None and one.max_output is not None:
        model["limit"] = {"context": one.max_input, "output": one.max_output}
    return model


def _aider(aim: Aim, home: Home) -> Steps:
    edits: list[Edit] = [
        (("openai-api-base",), aim.v1),
        (("openai-api-key",), aim.key),
        (("model",), f"openai/{aim.model}"),
    ]
    return Steps([Settings(home.path / ".aider.conf.yml", "yaml", edits)])


def _gemini_cli(aim: Aim, home: Home) -> Steps:
    folder = home.path / ".gemini"
    variables: list[Edit] = [(("GEMINI_API_KEY",), aim.key), (("GOOGLE_GEMINI_BASE_URL",), aim.url)]
    if aim.model is not None:
        variables.append((("GEMINI_MODEL",), aim.model))
    notes = ["a project's own .env file takes the place of ~/.gemini/.env"]
    if aim.url.startswith("http://") and not is_loopback(aim.url):
        notes.append("Gemini CLI takes only https:// for gateways on other hosts")
    login: list[Edit] = [(("security", "auth", "selectedType"), "gemini-api-key")]
    files = [Settings(folder / ".env", "env", variables), Settings(folder / "settings.json", "json", login)]
    return Steps(files, notes=notes)


def _qwen(aim: Aim, home: Home) -> Steps:
    kind, base = ("anthropic", aim.url) if aim.format == MESSAGES else ("openai", aim.v1)
    edits: list[Edit] = [(("env", KEY_VARIABLE), aim.key)]
    for one in aim.listed:
        model: dict[str, Any] = {"id": one.id, "name": one.shown, "baseUrl": base, "envKey": KEY_VARIABLE}
        if one.max_input is not None:
            model["generationConfig"] = {"contextWindowSize": one.max_input}
        edits.append((("modelProviders", kind, Named("id", one.id)), model))
    edits += [(("security", "auth", "selectedType"), kind), (("model", "name"), aim.model)]
    return Steps([Settings(home.folder("QWEN_HOME", ".qwen") / "settings.json", "json", edits)])


_PI_APIS = {CHAT: "openai-completions", MESSAGES: "anthropic-messages", RESPONSES: "openai-responses"}


def _pi(aim: Aim, home: Home) -> Steps:
    folder = home.folder("PI_CODING_AGENT_DIR", ".pi/agent")
    choice: list[Edit] = [(("defaultProvider",), NAME), (("defaultModel",), aim.model)]
    models = Settings(folder / "models.json", "json", _pi_provider(aim))
    return Steps([models, Settings(folder / "settings.json", "json", choice)])


def _omp(aim: Aim, home: Home) -> Steps:
    folder = home.folder("PI_CODING_AGENT_DIR", ".omp/agent")
    choice: list[Edit] = [(("modelRoles", "default"), f"{NAME}/{aim.model}")]
    models = Settings(_yaml(folder, "models"), "yaml", _pi_provider(aim))
    return Steps([models, Settings(_yaml(folder, "config"), "yaml", choice)])


def _pi_provider(aim: Aim) -> list[Edit]:
    base = aim.url if aim.format == MESSAGES else aim.v1
    values = {"baseUrl": base, "api": _PI_APIS[aim.format], "apiKey": aim.key}
    values["models"] = [_pi_model(one) for one in aim.listed]  # type: ignore[assignment]
    return [(("providers", NAME, name), value) for name, value in values.items()]


def _pi_model(one: Known) -> dict[str, Any]:
    model: dict[str, Any] = {"id": one.id, "name": one.shown}
    if one.accepts("image"):
        model["input"] = ["text", "image"]
    if one.max_input is not None:
        model["contextWindow"] = one.max_input
    if one.max_output is not None:
        model["maxTokens"] = one.max_output
    return model


def _yaml(folder: Path, name: str) -> Path:
    """The file of that name, however its suffix is spelled."""
    other = folder / f"{name}.yaml"
    return other if other.exists() and not (folder / f"{name}.yml").exists() else folder / f"{name}.yml"


def _copilot(aim: Aim, home: Home) -> Steps:
    wire = {CHAT: {"WIRE_API": "completions"}, RESPONSES: {"WIRE_API": "responses"}, MESSAGES: {}}[aim.format]
    provider = {
        "TYPE": "anthropic" if aim.format == MESSAGES else "openai",
        "BASE_URL": aim.url if aim.format == MESSAGES else aim.v1,
        "API_KEY": aim.key,
        **wire,
    }
    variables = {f"COPILOT_PROVIDER_{name}": value for name, value in provider.items()}
    return Steps(environment={"COPILOT_OFFLINE": "true", **variables, "COPILOT_MODEL": aim.model or ""})


def _cline(aim: Aim, home: Home) -> Steps:
    values = {"--apikey": aim.key, "--modelid": aim.model or "", "--baseurl": aim.v1}
    words = [word for pair in values.items() for word in pair]
    return Steps(command=["cline", "auth", "--provider", "openai-compatible", *words])


def _continue(aim: Aim, home: Home) -> Steps:
    kind = "anthropic" if aim.format == MESSAGES else "openai"
    edits: list[Edit] = []
    for one in aim.listed:
        model: dict[str, Any] = {
            "name": f"{one.shown} (Arbiter)",
            "provider": kind,
            "model": one.id,
            "apiBase": aim.v1,
            "apiKey": aim.key,
            "roles": ["chat", "edit", "apply"],
            "capabilities": ["tool_use", *(["image_input"] if one.accepts("image") else [])],
        }
        edits.append((("models", Named("name", model["name"])), model))
    begin: list[Edit] = [(("name",), "Local"), (("version",), "1.0.0"), (("schema",), "v1")]
    path = home.folder("CONTINUE_GLOBAL_DIR", ".continue") / "config.yaml"
    return Steps(
        [Settings(path, "yaml", edits, begin)],
        notes=["Continue uses the model that was chosen last, else the first in its file; /model chooses another"],
    )


def _llm(aim: Aim, home: Home) -> Steps:
    folder = home.folder("LLM_USER_PATH", home.config / "io.datasette.llm")
    edits: list[Edit] = []
    for one in aim.listed:
        name = f"{NAME}/{one.id}"
        model: dict[str, Any] = {"model_id": name, "model_name": one.id, "api_base": aim.v1, "api_key_name": NAME}
        model |= {"supports_tools": True, "supports_schema": True}
        if one.accepts("image"):
            model["vision"] = True
        edits.append(((Named("model_id", name),), model))
    return Steps(
        [
            Settings(folder / "extra-openai-models.yaml", "yaml", edits),
            Settings(folder / "keys.json", "json", [((NAME,), aim.key)]),
            Settings(folder / "default_model.txt", "word", [(WORD, f"{NAME}/{aim.model}")]),
        ]
    )


AGENTS: dict[str, Agent] = {
    "claude-code": Agent("Claude Code", (MESSAGES,), _claude_code, own="claude-"),
    "codex": Agent("Codex", (RESPONSES, CHAT), _codex),
    "opencode": Agent("opencode", (CHAT, MESSAGES, RESPONSES), _opencode),
    "aider": Agent("aider", (CHAT,), _aider),
    "gemini-cli": Agent("Gemini CLI", ("gemini",), _gemini_cli, own="gemini-"),
    "qwen": Agent("Qwen Code", (CHAT, MESSAGES), _qwen),
    "pi": Agent("pi", (CHAT, MESSAGES, RESPONSES), _pi),
    "omp": Agent("oh-my-pi", (CHAT, MESSAGES, RESPONSES), _omp),
    "copilot": Agent("GitHub Copilot CLI", (CHAT, MESSAGES, RESPONSES), _copilot),
    "cline": Agent("Cline CLI", (CHAT,), _cline),
    "continue": Agent("Continue CLI", (CHAT, MESSAGES), _continue),
    "llm": Agent("llm", (CHAT,), _llm),
}
