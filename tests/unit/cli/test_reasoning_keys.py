"""`arbiter keys deployment` without a running gateway: what is printed, what is kept, and what is never shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arbiter.cli import main
from arbiter.config import reasoning
from arbiter.config.load import Source

ECHO = "providers: { a: { type: echo } }\n"


@pytest.fixture
def file(config: Path) -> Path:
    """Where the keys of the working directory are."""
    return reasoning.path_in(config.parent / "data")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["keys", "deployment", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_new_key_is_printed_and_not_kept(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "deployment", "new"]) == 0
    out, err = capsys.readouterr()
    (key,) = reasoning.decoded([out.strip()], AssertionError)
    assert reasoning.fingerprint(key) in err and out.strip() not in err
    assert not file.exists()
    made = told(capsys, "new")
    assert made["fingerprint"] == reasoning.fingerprint(reasoning.decoded([made["key"]], AssertionError)[0])


def test_rotating_puts_a_new_key_in_front_and_keeps_the_others(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = told(capsys, "rotate"), told(capsys, "rotate")
    assert first["file"] == second["file"] == str(file)
    shown = told(capsys, "show")
    assert [(one["fingerprint"], one["seals"]) for one in shown] == [
        (second["fingerprint"], True),
        (first["fingerprint"], False),
    ]
    assert [reasoning.fingerprint(key) for key in Source(None, {}).load().reasoning_keys] == [
        second["fingerprint"],
        first["fingerprint"],
    ]
    assert file.stat().st_mode & 0o777 == 0o600


def test_of_many_rotations_the_oldest_keys_go(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [told(capsys, "rotate")["fingerprint"] for _ in range(reasoning.MOST_KEYS + 2)]
    assert [one["fingerprint"] for one in told(capsys, "show")] == made[:1:-1]


def test_what_is_shown_is_no_key(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "deployment", "show"]) == 0
    assert "the first start" in capsys.readouterr().out
    told(capsys, "rotate")
    assert main(["keys", "deployment", "show"]) == 0
    out = capsys.readouterr().out
    assert "seals and opens" in out and file.read_text().strip() not in out


def test_keys_of_the_configuration_are_changed_there(
    config: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key in the data directory would seal nothing, and nobody would notice."""
    key = reasoning.spelled(reasoning.new())
    config.write_text(f"{ECHO}reasoning: {{ keys: ['{key}'] }}\n")
    ((only),) = told(capsys, "show")
    assert only["from"] == "the configuration" and key not in json.dumps(only)
    assert main(["keys", "deployment", "rotate"]) == 1
    assert "stand in the configuration" in capsys.readouterr().err
    assert not file.exists()


def test_a_broken_configuration_stands_in_no_rotations_way(
    config: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("providers: {")
    made = told(capsys, "rotate")
    assert [one["fingerprint"] for one in told(capsys, "show")] == [made["fingerprint"]]


def test_what_the_configuration_says_of_keys_and_cannot_be_had_is_told(
    config: Path, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the data directory, which seal nothing here, are not shown in their place; a provider's key is no
    matter."""
    told(capsys, "rotate")
    config.write_text(
        'providers: { a: { type: openai, key: "${UNSET_KEY}" } }\nreasoning: { keys: ["${UNSET_SEAL}"] }\n'
    )
    assert main(["keys", "deployment", "show"]) == 1
    assert "reasoning.keys[0]: the environment variable UNSET_SEAL is not set" in capsys.readouterr().err
    monkeypatch.setenv("UNSET_SEAL", reasoning.spelled(reasoning.new()))
    ((only),) = told(capsys, "show")
    assert only["from"] == "the configuration"
