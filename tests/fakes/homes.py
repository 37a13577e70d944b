"""Home directories with agents' settings in them, for `arbiter connect`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

from arbiter.cli.connecting import jsonc

KEY = "arb-test-key"
MODELS = [
    {"id": "big", "display_name": "The Big One", "max_input_tokens": 200_000, "context_length": 200_000}
    | {"max_tokens": 32_000, "architecture": {"input_modalities": ["text", "image", "file"]}},
    {"id": "vendor/small:7b", "display_name": "vendor/small:7b", "architecture": {"input_modalities": ["text"]}},
    {"id": "unknown", "display_name": "unknown"},
]
"""What the gateway tells of its models."""

EXISTING = {
    "claude-code": {".claude/settings.json": '{\n  // mine\n  "env": {"FOO": "1"},\n  "hooks": {"a": []},\n}\n'},
    "codex": {".codex/config.toml": '# mine\nmodel = "o3"  # best\n\n[mcp_servers.x]\ncommand = "y"\r\n'},
    "opencode": {".config/opencode/opencode.jsonc": '{"theme": "x", /* mine */ "model": "anthropic/claude"}'},
    "aider": {".aider.conf.yml": "# mine\nmodel: sonnet   # best\ndark-mode: true"},
    "gemini-cli": {".gemini/.env": "# mine\nexport GEMINI_API_KEY=old\nX=1", ".gemini/settings.json": "{}"},
    "qwen": {".qwen/settings.json": '{\r\n\t"modelProviders": {"openai": [{"id": "big", "envKey": "X"}]}\r\n}'},
    "pi": {".pi/agent/models.json": '{"providers": {"o": {}}}', ".pi/agent/settings.json": "\ufeff{}"},
    "omp": {".omp/agent/models.yaml": "providers: {}\n", ".omp/agent/config.yml": "modelRoles:\n  slow: x/y # mine\n"},
    "continue": {".continue/config.yaml": "# mine\nname: Mine\nmodels:\n  - name: A  # a\n\nrules: []\n"},
    "llm": {
        ".config/io.datasette.llm/extra-openai-models.yaml": "- model_id: a\n  model_name: b\n",
        ".config/io.datasette.llm/keys.json": '{"// Note": "secret", "openai": "sk"}',
        ".config/io.datasette.llm/default_model.txt": "a",
    },
}  # fmt: skip
WITH_FILES = sorted(EXISTING)
"""The agents whose settings are files."""


def lay(home: Path, agent: str) -> None:
    for name, text in EXISTING[agent].items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        path.chmod(0o640)


def files(folder: Path) -> dict[str, bytes]:
    """Every file below, but for what the command itself remembers."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".local" not in path.parts
    }


def read(path: Path) -> Any:
    return parsed(path.name, path.read_bytes())


def parsed(name: str, text: bytes) -> Any:
    if name.endswith((".json", ".jsonc")):
        return jsonc.parse(text.decode())
    if name.endswith(".toml"):
        return tomllib.loads(text.decode())
    if name.endswith((".yml", ".yaml")):
        return yaml.safe_load(text)
    return sorted(text.decode().split("\n"))
