"""`arbiter connect`: what each agent's settings say then, that nothing else changed, and that all of it goes back."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from arbiter.cli import main
from arbiter.cli.connecting import changes, jsonc
from arbiter.cli.connecting.agents import AGENTS
from arbiter.cli.connecting.tree import Named
from tests.fakes.homes import EXISTING, KEY, MODELS, WITH_FILES, files, lay, parsed, read
from tests.fakes.pages import Page, Site


def test_every_agent_is_tried() -> None:
    assert set(AGENTS) - set(EXISTING) == {"copilot", "cline"}  # which have no files to edit


def test_an_agent_without_files_is_not_told_that_it_was_never_connected(home: Path, connect: Any) -> None:
    """Nothing can be put back; what it was told, ends elsewhere."""
    for agent in ("copilot", "cline"):
        assert connect(agent, "--key", KEY, "--model", "big")[0] == 0
        code, _, err = connect(agent, "--undo", url=None)
        assert code == 0 and f"no file was written for {agent}" in err and "not connected" not in err
        code, _, err = connect(agent, "--undo", url=None)
        assert code == 0 and f"{agent} was not connected from here" in err


# --------------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("agent", WITH_FILES)
def test_settings_come_back_byte_for_byte(agent: str, home: Path, connect: Any) -> None:
    lay(home, agent)
    before = files(home)
    assert connect(agent, "--key", KEY, "--model", "big")[0] == 0
    after = files(home)
    assert after != before and set(after) == set(before)
    assert all(after[name] != before[name] for name in before)
    assert {stat.S_IMODE((home / name).stat().st_mode) for name in before} == {0o640}
    code, out, err = connect(agent, "--undo", url=None)
    assert (code, err) == (0, "") and out.count("put back") == len(before)
    assert files(home) == before
    assert {stat.S_IMODE((home / name).stat().st_mode) for name in before} == {0o640}


@pytest.mark.parametrize("agent", WITH_FILES)
def test_where_there_was_nothing_nothing_is_left(agent: str, home: Path, connect: Any) -> None:
    assert connect(agent, "--key", KEY, "--model", "big")[0] == 0
    made = [home / name for name in files(home)]
    assert made and {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}
    assert any(KEY.encode() in path.read_bytes() for path in made)
    assert connect(agent, "--undo", url=None)[0] == 0
    assert [path.name for path in home.iterdir()] == [".local"]
    assert [path for path in (home / ".local").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("agent", WITH_FILES)
@pytest.mark.parametrize("laid", [True, False])
def test_once_more_changes_nothing_and_needs_no_options(agent: str, laid: bool, home: Path, connect: Any) -> None:
    if laid:
        lay(home, agent)
    before = files(home)
    connect(agent, "--key", KEY, "--model", "big")
    after = files(home)
    code, out, _ = connect(agent, url=None)
    assert code == 0 and "written" not in out and files(home) == after
    # Another choice replaces the one before, and the first state is what comes back.
    connect(agent, "--model", "vendor/small:7b", url=None)
    changed = files(home)
    assert changed != after
    connect(agent, "--model", "big", url=None)
    assert files(home) == after
    connect(agent, "--undo", url=None)
    assert files(home) == before


@pytest.mark.parametrize("agent", WITH_FILES)
def test_what_would_be_written_is_shown_and_nothing_is(agent: str, home: Path, connect: Any) -> None:
    lay(home, agent)
    before = files(home)
    code, out, _ = connect(agent, "--key", KEY, "--model", "big", "--print")
    assert code == 0 and files(home) == before and not (home / ".local").exists()
    assert KEY not in out and "***" in out
    added = [line for line in out.splitlines() if line.startswith("+")]
    assert added and all(name in out for name in before)
    connect(agent, "--key", KEY, "--model", "big")
    after = files(home)
    code, out, _ = connect(agent, "--undo", "--print", url=None)
    assert code == 0 and files(home) == after and any(line.startswith("-") for line in out.splitlines())


@pytest.mark.parametrize("agent", WITH_FILES)
def test_what_others_change_meanwhile_is_kept(agent: str, home: Path, connect: Any) -> None:
    """Also over another connect in between; only what was ours goes."""
    lay(home, agent)
    before = files(home)
    connect(agent, "--key", KEY, "--model", "big")
    for name, text in _others(home, before).items():
        (home / name).write_bytes(text)
    connect(agent, "--model", "vendor/small:7b", url=None)
    code, _, err = connect(agent, "--undo", url=None)
    assert code == 0 and err == ""
    assert {name: parsed(name, text) for name, text in files(home).items()} == {
        name: parsed(name, text) for name, text in _others_added(before).items()
    }


def _others(home: Path, names: dict[str, bytes]) -> dict[str, bytes]:
    return _others_added({name: (home / name).read_bytes() for name in names})


def _others_added(texts: dict[str, bytes]) -> dict[str, bytes]:
    """Each file with something more in it, as another hand adds it."""
    added = {}
    for name, text in texts.items():
        if name.endswith((".json", ".jsonc")):
            added[name] = jsonc.put(text.decode(), ("theirs",), "1").encode()
        elif name.endswith(".toml"):
            added[name] = text + b"\n[theirs]\na = 1\n"
        elif name.endswith("extra-openai-models.yaml"):
            added[name] = text.rstrip(b"\n") + b"\n- model_id: theirs\n  model_name: t\n"
        elif name.endswith((".yml", ".yaml")):
            added[name] = text.rstrip(b"\n") + b"\ntheirs: 1 # too\n"
        elif name.endswith(".env"):
            added[name] = text.rstrip(b"\n") + b"\nTHEIRS=1\n"
        else:
            added[name] = text
    return added


# ------------------------------------------------------------------------------------------------------ where, and how


@pytest.mark.parametrize(
    ("agent", "variable", "file"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", "settings.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
        ("qwen", "QWEN_HOME", "settings.json"),
        ("pi", "PI_CODING_AGENT_DIR", "models.json"),
        ("omp", "PI_CODING_AGENT_DIR", "models.yml"),
        ("continue", "CONTINUE_GLOBAL_DIR", "config.yaml"),
        ("llm", "LLM_USER_PATH", "keys.json"),
        ("llm", "XDG_CONFIG_HOME", "io.datasette.llm/keys.json"),
    ],
)
def test_an_agents_own_variable_says_where_its_settings_are(
    agent: str, variable: str, file: str, home: Path, tmp_path: Path, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    connect(agent, "--model", "big")
    assert (tmp_path / "elsewhere" / file).is_file() and files(home) == {}


def test_what_is_remembered_is_its_owners_alone(home: Path, connect: Any) -> None:
    lay(home, "claude-code")
    connect("claude-code", "--key", KEY)
    folder = home / ".local/state/arbiter/connect/claude-code"
    assert sorted(path.name for path in folder.iterdir()) == ["1-settings.json", "record.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = (folder / "1-settings.json").read_text()
    assert kept == EXISTING["claude-code"][".claude/settings.json"]


def test_a_link_stays_one_and_what_it_leads_to_is_edited(home: Path, tmp_path: Path, connect: Any) -> None:
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "aider.yml").write_text("dark-mode: true\n")
    (home / ".aider.conf.yml").symlink_to(dotfiles / "aider.yml")
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").symlink_to(dotfiles / "claude/settings.json")  # which there is not yet
    connect("aider", "--model", "big")
    connect("claude-code")
    assert (home / ".aider.conf.yml").is_symlink() and "openai/big" in (dotfiles / "aider.yml").read_text()
    assert (home / ".claude/settings.json").is_symlink() and (dotfiles / "claude/settings.json").is_file()
    assert [path.name for path in dotfiles.iterdir() if path.name.startswith(".")] == []
    connect("aider", "--undo", url=None)
    connect("claude-code", "--undo", url=None)
    assert (home / ".aider.conf.yml").is_symlink() and read(dotfiles / "aider.yml") == {"dark-mode": True}
    assert [path.name for path in dotfiles.iterdir()] == ["aider.yml"]


@pytest.mark.parametrize(
    ("agent", "file", "text"),
    [
        ("claude-code", ".claude/settings.json", b'{"env": '),
        ("claude-code", ".claude/settings.json", b'{"env": "none"}'),
        ("claude-code", ".claude/settings.json", b'{"a": "\xff"}'),
        ("codex", ".codex/config.toml", b"model = \n"),
        ("aider", ".aider.conf.yml", b"model: [\n"),
        ("llm", ".config/io.datasette.llm/keys.json", b"[]"),
    ],
)
def test_a_broken_file_is_told_of_and_left_alone(agent: str, file: str, text: bytes, home: Path, connect: Any) -> None:
    """And so are the other files of that agent."""
    path = home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    code, out, err = connect(agent, "--model", "big")
    assert code == 1 and out == ""
    assert err.count("\n") == 1 and err.startswith(f"arbiter: {path} is not ") and "left alone" in err
    assert files(home) == {file: text}
    assert not (home / ".local/state/arbiter/connect" / agent).exists()


def test_what_is_no_file_is_told_of(home: Path, connect: Any) -> None:
    (home / ".aider.conf.yml").mkdir()
    os.mkfifo(home / ".env")
    (home / ".gemini").mkdir()
    (home / ".gemini/.env").symlink_to(home / ".env")
    for agent in ("aider", "gemini-cli"):
        code, _, err = connect(agent, "--model", "big")
        assert code == 1 and err.endswith(" is no file\n")


def test_a_file_that_cannot_be_written_stays_as_it_is(
    home: Path, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole new file takes the place of the old one, or nothing happens; and --undo knows what to do with either."""
    lay(home, "gemini-cli")
    before = files(home)
    real = os.replace

    def full(source: str, target: Path) -> None:
        if Path(target).name == "settings.json":
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    code, _, err = connect("gemini-cli", "--key", KEY)
    assert code == 1 and "settings.json cannot be written: No space left on device" in err
    half = files(home)
    assert half[".gemini/settings.json"] == before[".gemini/settings.json"] and set(half) == set(before)
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(home))
    assert connect("gemini-cli", "--undo", url=None)[0] == 0
    assert files(home) == before


def test_settings_that_others_can_read_are_told_of(home: Path, connect: Any) -> None:
    lay(home, "aider")
    assert "chmod 600" in connect("aider", "--key", KEY, "--model", "big")[2]
    lay(home, "claude-code")
    assert "chmod 600" not in connect("claude-code")[2]  # there is no key in it


# ---------------------------------------------------------------------------------------------------------------- undo


def test_a_value_that_was_changed_since_stays_and_is_told(home: Path, connect: Any) -> None:
    lay(home, "aider")
    connect("aider", "--model", "big")
    path = home / ".aider.conf.yml"
    path.write_text(path.read_text().replace("openai/big", "theirs"))
    code, _, err = connect("aider", "--undo", url=None)
    assert code == 0 and err == f"arbiter: {path}: model was changed since, and stays\n"
    assert read(path) == {"model": "theirs", "dark-mode": True}


def test_a_file_that_broke_since_is_left_alone_with_its_copy(home: Path, connect: Any) -> None:
    lay(home, "gemini-cli")
    before = files(home)
    connect("gemini-cli")
    path = home / ".gemini/settings.json"
    path.write_text("{oops")
    code, _, err = connect("gemini-cli", "--undo", url=None)
    copy = home / ".local/state/arbiter/connect/gemini-cli/1-settings.json"
    assert code == 1 and str(copy) in err and copy.read_text() == "{}"
    assert path.read_text() == "{oops" and files(home)[".gemini/.env"] == before[".gemini/.env"]
    path.write_text("{}")
    assert connect("gemini-cli", "--undo", url=None)[0] == 0  # repaired: now it goes
    assert files(home) == before and not copy.exists()


def test_a_file_that_was_removed_since_comes_back_as_it_was(home: Path, connect: Any) -> None:
    lay(home, "pi")
    before = files(home)
    connect("pi", "--model", "big")
    (home / ".pi/agent/models.json").unlink()
    connect("pi", "--undo", url=None)
    assert files(home) == before
    assert stat.S_IMODE((home / ".pi/agent/models.json").stat().st_mode) == 0o640


def test_there_may_be_nothing_to_undo(home: Path, connect: Any) -> None:
    code, out, err = connect("codex", "--undo", url=None)
    assert (code, out) == (0, "") and "nothing to undo" in err
    assert not (home / ".local/state/arbiter/connect/codex").exists()


def test_folders_that_others_use_by_now_stay(home: Path, connect: Any) -> None:
    connect("claude-code")
    (home / ".claude/theirs").write_text("x")
    connect("claude-code", "--undo", url=None)
    assert files(home) == {".claude/theirs": b"x"}


# --------------------------------------------------------------------------------------------------- choices, addresses


def test_without_a_url_it_is_where_the_configuration_listens(
    config: Path, home: Path, deaf_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = deaf_port
    for bind, url in (
        ("0.0.0.0", f"http://127.0.0.1:{port}"),
        ("::1", f"http://[::1]:{port}"),
        ("::", f"http://[::1]:{port}"),
    ):
        config.write_text(f"server: {{ bind: '{bind}', port: {port} }}\nproviders: {{ e: {{ type: echo }} }}\n")
        assert main(["connect", "claude-code"]) == 0
        assert read(home / ".claude/settings.json")["env"]["ANTHROPIC_BASE_URL"] == url
        assert "did not tell of its models" in capsys.readouterr().err
    config.unlink()
    monkeypatch.setenv("PORT", str(port))
    assert main(["connect", "claude-code"]) == 0  # as the demo would listen
    assert read(home / ".claude/settings.json")["env"]["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:{port}"
    config.write_text("server: { socket: /run/a.sock }\nproviders: { e: { type: echo } }\n")
    assert main(["connect", "claude-code"]) == 1
    assert "--url" in capsys.readouterr().err


def test_the_key_may_come_from_the_environment(
    home: Path, site: Site, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARBITER_KEY", KEY)
    connect("claude-code")
    monkeypatch.delenv("ARBITER_KEY")
    connect("claude-code", url=None)
    assert read(home / ".claude/settings.json")["env"]["ANTHROPIC_AUTH_TOKEN"] == KEY
    assert {headers["authorization"] for headers in site.headers} == {f"Bearer {KEY}"}


def test_a_refused_key_is_told_before_anything_is_written(home: Path, site: Site, connect: Any) -> None:
    site.pages["/v1/models"] = Page(401)
    code, _, err = connect("claude-code", "--key", KEY)
    assert code == 1 and "refuses this key" in err and KEY not in err and files(home) == {}
    code, _, err = connect("claude-code")
    assert code == 1 and "needs a key, and none was given" in err and "refuses" not in err and files(home) == {}


@pytest.mark.parametrize("page", [Page(200, b"<html>"), Page(404), Page(200, b'{"data": [1]}'), Page(200, b"[]")])
def test_what_does_not_answer_as_a_gateway_is_doubted(page: Page, home: Path, site: Site, connect: Any) -> None:
    site.pages["/v1/models"] = page
    code, _, err = connect("aider", "--model", "big")
    assert code == 0 and "did not tell of its models" in err
    code, _, err = connect("opencode")  # there is nothing to choose from
    assert code == 2 and "did not tell of its models" in err and "start it, or name one with --model" in err


@pytest.mark.parametrize(("agent", "own"), [("claude-code", "claude-opus-4-6"), ("gemini-cli", "gemini-2.5-pro")])
def test_an_agent_that_asks_for_its_makers_models_is_told_where_there_are_none(
    agent: str, own: str, home: Path, site: Site, connect: Any
) -> None:
    code, _, err = connect(agent)
    assert code == 0 and "asks for those by itself" in err and "--model big" in err
    assert ("--pin-models" in err) == (agent == "claude-code")
    for name in (own, f"vendor/{own}"):
        site.pages["/v1/models"] = Page(200, json.dumps({"data": [*MODELS, {"id": name}]}).encode())
        assert "by itself" not in connect(agent)[2]
    site.pages["/v1/models"] = Page(200, json.dumps({"data": MODELS}).encode())
    assert "by itself" not in connect(agent, "--model", "big")[2]


def test_the_only_model_is_the_chosen_one(home: Path, site: Site, connect: Any) -> None:
    code, _, err = connect("aider")
    assert code == 2 and "--model: big, vendor/small:7b, unknown" in err
    site.pages["/v1/models"] = Page(200, json.dumps({"data": MODELS[:1]}).encode())
    assert connect("aider")[0] == 0 and read(home / ".aider.conf.yml")["model"] == "openai/big"


def test_a_model_that_is_not_listed_may_be_meant(home: Path, connect: Any) -> None:
    code, _, err = connect("opencode", "--model", "other")
    assert code == 0 and "does not list the model other" in err
    assert "other" in read(home / ".config/opencode/opencode.json")["provider"]["arbiter"]["models"]


def test_names_that_nobody_can_mean_are_left_out(home: Path, site: Site, connect: Any) -> None:
    hostile = [{"id": "a\nb"}, {"id": ""}, {"id": 3}, {"id": "ok", "display_name": "x\u202ey", "max_tokens": -1}]
    site.pages["/v1/models"] = Page(200, json.dumps({"data": hostile}).encode())
    connect("opencode")
    assert read(home / ".config/opencode/opencode.json")["provider"]["arbiter"]["models"] == {"ok": {"name": "ok"}}


@pytest.mark.parametrize(
    "words",
    [
        ("nobody",),
        ("aider", "--url", "127.0.0.1:8080"),
        ("aider", "--url", "ftp://x"),
        ("aider", "--url", "http://u:p@x"),
        ("aider", "--url", "http://x/?a=b"),
        ("aider", "--url", "http://x:99999"),
        ("aider", "--url", 'http://x/"'),
        ("aider", "--key", "two words"),
        ("aider", "--model", "a\nb"),
        ("aider", "--model", "\udcff"),
        ("aider", "--format", "messages"),
        ("aider", "--pin-models"),
        ("claude-code", "--pin-models"),
        ("claude-code", "--undo", "--model", "x"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    words: tuple[str, ...], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["connect", *words]) == 2
    assert capsys.readouterr().err and files(home) == {}


@pytest.mark.parametrize(("given", "used"), [("/", ""), ("/v1", ""), ("/v1/", ""), ("/prefix/v1", "/prefix")])
def test_a_url_may_end_in_v1(given: str, used: str, home: Path, site: Site, connect: Any) -> None:
    site.pages["/prefix/v1/models"] = site.pages["/v1/models"]
    connect("claude-code", url=site.url + given)
    assert read(home / ".claude/settings.json")["env"]["ANTHROPIC_BASE_URL"] == site.url + used


def test_programs_are_told_as_well(home: Path, site: Site, connect: Any) -> None:
    _, out, err = connect("claude-code", "--model", "big", "--json")
    told = json.loads(out)
    path = str(home / ".claude/settings.json")
    assert err == "" and told["files"] == [{"path": path, "changed": True, "what": "written"}]
    assert (told["agent"], told["url"], told["model"], told["format"]) == ("claude-code", site.url, "big", "messages")
    told = json.loads(connect("copilot", "--model", "big", "--json")[1])
    assert told["environment"]["COPILOT_MODEL"] == "big" and told["files"] == []
    told = json.loads(connect("claude-code", "--undo", "--json", url=None)[1])
    assert told["files"] == [{"path": path, "changed": True, "what": "removed"}]


def test_a_record_that_cannot_be_understood_is_told_of(home: Path, connect: Any) -> None:
    folder = home / ".local/state/arbiter/connect/aider"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text("{}")
    for arguments in (("--model", "big"), ("--undo",)):
        code, _, err = connect("aider", *arguments, url=None)
        assert code == 1 and "record.json cannot be understood" in err
    assert files(home) == {}


def test_places_are_told_as_people_write_them() -> None:
    assert changes.spelled(("models", Named("name", "x"), "id")) == "models.x.id"
