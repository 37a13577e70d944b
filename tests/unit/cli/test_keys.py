"""`arbiter keys` without a running gateway: what it keeps, and what it never shows again."""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from arbiter.app import preflight, running
from arbiter.cli import main
from arbiter.config import keyring, units
from arbiter.config.load import Source
from arbiter.config.snapshot import key_digest

CLIENT = "clients: [{{ name: ci, key_hash: 'sha256:{}', expires: 2020-01-01T00:00:00Z }}]\n"


@pytest.fixture
def file(config: Path) -> Path:
    """Where the keys of the working directory are."""
    return config.parent / "data" / "keys.json"


def new(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["keys", "new", *arguments, "--json"]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


def listed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["keys", "list", "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_a_key_is_shown_once_and_only_its_hash_is_kept(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["keys", "new", "dev", "--agent", "codex", "--group", "build", "--allow", "gpt-*", "--allow", "mini"]) == 0
    )
    out, err = capsys.readouterr()
    key = out.strip()
    assert key.startswith("arb-") and key not in err and "No gateway runs" in err
    assert key not in file.read_text()
    (client,) = Source(None, {}).load().keys
    assert (client.name, client.key_sha256) == ("dev", key_digest(key))
    assert (client.agent, client.group, client.allow) == ("codex", "build", ("gpt-*", "mini"))


def test_the_file_is_its_owners_alone_and_read_by_people(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new(capsys, "dev")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()] == [0o600, 0o600]
    assert '\n      "name": "dev",\n' in file.read_text()


def test_a_client_may_have_several_keys_and_loses_all_by_its_name(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = new(capsys, "dev"), new(capsys, "dev")
    other = new(capsys, "ops")
    assert main(["keys", "revoke", first["client"]["id"]]) == 0
    assert [one["state"] for one in listed_after(capsys)] == ["revoked", "good", "good"]
    assert main(["keys", "revoke", "dev", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["revoked"] == [second["client"]["id"]]
    assert [one["name"] for one in listed(capsys) if one["state"] == "good"] == [other["client"]["name"]]
    assert main(["keys", "revoke", "dev"]) == 0  # it is already
    assert "revoked already" in capsys.readouterr().out


def listed_after(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    return listed(capsys)


def test_whom_nobody_knows_cannot_be_revoked(config: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "revoke", "nobody"]) == 1
    assert "`arbiter keys list` shows them" in capsys.readouterr().err
    config.write_text(CLIENT.format("0" * 64) + config.read_text())
    assert main(["keys", "revoke", "ci"]) == 1
    assert "remove it from `clients` there" in capsys.readouterr().err


def test_times_in_the_list_are_local_as_in_every_table(
    config: Path, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs get moments of UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        new(capsys, "dev", "--expires", "2998-12-31T20:30:00Z")
        assert main(["keys", "list"]) == 0
        head, _, row = capsys.readouterr().out.splitlines()
        assert "created (JST)" in head and "2999-01-01 05:30" in row and "Z" not in row
        (one,) = listed(capsys)
        assert one["expires"] == "2998-12-31T20:30:00Z"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_keys_of_the_configuration_are_listed_and_not_doubled(
    config: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(CLIENT.format("0" * 64) + config.read_text())
    assert main(["keys", "new", "ci"]) == 1
    assert "is a client of the configuration" in capsys.readouterr().err and not file.exists()
    (one,) = listed(capsys)
    assert (one["id"], one["name"], one["state"]) == (None, "ci", "expired")
    assert "0" * 64 not in json.dumps(one)


@pytest.mark.parametrize("text", ["serve: {}\n", "providers: [\n", ""])
def test_a_configuration_that_does_not_load_stands_in_no_keys_way(
    config: Path, file: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """Of all moments, that of a leaked key is none to repair a file first."""
    made = new(capsys, "dev")
    config.write_text(text)
    assert main(["keys", "revoke", made["client"]["id"]]) == 0
    assert keyring.read(file)[0].revoked is not None


def test_a_key_expires_when_it_was_said_to(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = new(capsys, "dev", "--expires", "12h")["client"]
    assert units.moment_ms(made["expires"]) - units.moment_ms(made["created"]) == 12 * 3_600_000  # type: ignore[operator]
    assert new(capsys, "dev", "--expires", "2999-01-01T01:00:00+01:00")["client"]["expires"] == "2999-01-01T00:00:00Z"
    for wrong in ("soon", "0", "2020-01-01", "-1h"):
        assert main(["keys", "new", "dev", f"--expires={wrong}"]) == 2
        assert capsys.readouterr().err.startswith("arbiter: --expires: ")


def test_a_key_expires_by_the_clock_of_whoever_makes_it(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As times in all arguments; what is written down names its zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        made = [new(capsys, "dev", "--expires", f"2999-01-01T{when}")["client"] for when in ("09:00:00", "00:00:00Z")]
    time.tzset()
    assert [one["expires"] for one in made] == ["2999-01-01T00:00:00Z"] * 2
    assert units.moment_ms("2999-01-01T00:00:00") == units.moment_ms("2999-01-01T00:00:00Z")  # in a file


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"keys": [{"id": "a"}]}',
        '{"keys": [{"id":"a","name":"b","key_hash":"x","created":"","allow":[]}]}',
    ],
)
def test_a_file_that_holds_no_keys_is_an_error_and_not_an_empty_list(
    file: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file.parent.mkdir()
    file.write_text(text)
    for command in (["keys", "list"], ["keys", "new", "x"], ["keys", "revoke", "x"], ["serve"]):
        assert main(command) == 1
        assert "keys.json: is no list of client keys" in capsys.readouterr().err
    assert file.read_text() == text


def test_a_file_left_by_a_killed_gateway_is_no_gateway(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "arbiter-run-gone"
    gone.mkdir()
    (gone / "lock").touch()
    running.announce(file.parent, gone, keeps_nothing=False)
    assert list((file.parent / "running").iterdir())
    new(capsys, "dev")
    assert not list((file.parent / "running").iterdir())


@pytest.mark.parametrize("keeps_nothing", [True, False])
def test_a_gateway_that_runs_is_known_by_its_lock(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_nothing: bool
) -> None:
    """Also one that has made no data directory: the first key makes it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run_dir = preflight.make_run_dir(tmp_path)
    running.announce(file.parent, run_dir, keeps_nothing=keeps_nothing)
    assert list(running.gateways(file.parent)) == [run_dir / "control.sock"]
    assert file.parent.exists() is not keeps_nothing
    assert list(running.gateways(tmp_path / "other")) == []
    running.withdraw(file.parent, run_dir)
    shutil.rmtree(run_dir)
    assert list(running.gateways(file.parent)) == []


def test_clients_of_the_file_are_listed_without_the_providers_keys(config, arbiter, monkeypatch):
    """They were left out without a word where a provider's variable was not set."""
    monkeypatch.delenv("MINE_KEY", raising=False)
    config.write_text(
        'providers: { mine: { type: openai, key: "${MINE_KEY}" } }\n'
        f"clients: [{{ name: laptop, key_hash: 'sha256:{'a' * 64}' }}]\n"
    )
    assert "laptop" in arbiter("keys", "list").out
