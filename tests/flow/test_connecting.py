"""`arbiter connect` against a running gateway: what it writes is an address that answers and a key that is taken."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from arbiter.cli import main
from tests.fakes.gateway import Gateway


def test_what_an_agent_is_told_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address is the configuration's, the key lets in, and what it may ask for is what is offered."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "ARBITER_KEY", "ARBITER_CONFIG", "HOST", "PORT"):
        monkeypatch.delenv(name, raising=False)
    providers = {"echo": {"type": "echo", "models": ["small", "large", "secret"]}}
    with Gateway({"providers": providers, "auth": {"mode": "require"}}, tmp_path / "gateway") as gateway:
        monkeypatch.setenv("ARBITER_DATA_DIR", str(gateway.data))
        config = str(gateway.folder / "arbiter.yaml")
        assert main(["keys", "new", "dev", "--allow", "small", "--allow", "large"]) == 0
        key = capsys.readouterr().out.strip()
        assert main(["connect", "opencode", "--config", config, "--model", "small"]) == 1
        assert "needs a key, and none was given" in capsys.readouterr().err
        assert main(["connect", "opencode", "--config", config, "--key", key, "--model", "small"]) == 0
        assert capsys.readouterr().err == ""

        told = json.loads((home / ".config/opencode/opencode.json").read_text())
        provider = told["provider"]["arbiter"]
        assert sorted(provider["models"]) == ["large", "small"] and told["model"] == "arbiter/small"
        base = urlsplit(provider["options"]["baseURL"])
        connection = http.client.HTTPConnection(base.hostname or "", base.port, timeout=10)
        body = json.dumps({"model": "small", "messages": [{"role": "user", "content": "hello"}]})
        headers = {"content-type": "application/json", "authorization": f"Bearer {provider['options']['apiKey']}"}
        connection.request("POST", f"{base.path}/chat/completions", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200 and json.loads(answer.read())["choices"]
        connection.close()


def test_gemini_cli_is_told_an_address_that_speaks_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its address has no version, and the key goes the way that Google's SDK sends it."""
    home = tmp_path / "home"
    (home / ".gemini").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "ARBITER_KEY", "ARBITER_CONFIG", "HOST", "PORT"):
        monkeypatch.delenv(name, raising=False)
    providers = {"echo": {"type": "echo", "models": ["small"]}}
    with Gateway({"providers": providers, "auth": {"mode": "require"}}, tmp_path / "gateway") as gateway:
        monkeypatch.setenv("ARBITER_DATA_DIR", str(gateway.data))
        config = str(gateway.folder / "arbiter.yaml")
        assert main(["keys", "new", "dev"]) == 0
        key = capsys.readouterr().out.strip()
        assert main(["connect", "gemini-cli", "--config", config, "--key", key, "--model", "small"]) == 0

        lines = (home / ".gemini/.env").read_text().splitlines()
        told = dict(line.split("=", 1) for line in lines)
        base = urlsplit(told["GOOGLE_GEMINI_BASE_URL"])
        connection = http.client.HTTPConnection(base.hostname or "", base.port, timeout=10)
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]})
        headers = {"content-type": "application/json", "x-goog-api-key": told["GEMINI_API_KEY"]}
        path = f"/v1beta/models/{told['GEMINI_MODEL']}:streamGenerateContent?alt=sse"
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        assert answer.status == 200 and b'"text":"hello"' in answer.read()
        connection.close()
