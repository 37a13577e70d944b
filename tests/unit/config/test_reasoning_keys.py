"""Deployment keys: where they come from, and what is never shown of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from arbiter.config import reasoning
from arbiter.config.load import parse, with_keys
from arbiter.config.redacted import redacted
from arbiter.config.source import ConfigError

ECHO = "providers: { a: { type: echo } }\n"
ONE, TWO = b"1" * 32, b"2" * 32
FIRST, SECOND = reasoning.spelled(ONE), reasoning.spelled(TWO)


def keys(tmp_path: Path, text: str = "", **env: str) -> tuple[bytes, ...]:
    found = {"ARBITER_DATA_DIR": str(tmp_path / "data"), **env}
    return with_keys(parse(ECHO + text, str(tmp_path / "arbiter.yaml"), found)).reasoning_keys


def test_a_key_is_read_as_it_is_printed() -> None:
    key = reasoning.new()
    assert len(key) == 32 and len(reasoning.spelled(key)) == 43 and key != reasoning.new()
    assert reasoning.fingerprint(ONE) != reasoning.fingerprint(TWO)
    assert reasoning.spelled(ONE)[:8] not in reasoning.fingerprint(ONE)


def test_the_configuration_comes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    reasoning.write(reasoning.path_in(tmp_path / "data"), [TWO, ONE])
    (tmp_path / "secret").write_text(f"{SECOND}\n{FIRST}\n")
    assert keys(tmp_path) == (TWO, ONE)
    assert keys(tmp_path, ARBITER_REASONING_KEY=FIRST) == (ONE,)
    assert keys(tmp_path, ARBITER_REASONING_KEY=f"{FIRST} {SECOND}") == (ONE, TWO)
    assert keys(tmp_path, ARBITER_REASONING_KEY_FILE=str(tmp_path / "secret")) == (TWO, ONE)
    assert keys(tmp_path, "reasoning: { keys: ['${K}'] }", K=FIRST, ARBITER_REASONING_KEY=SECOND) == (ONE,)
    assert keys(tmp_path, "reasoning: { key_file: secret }") == (TWO, ONE)


def test_without_any_there_is_none(tmp_path: Path) -> None:
    assert keys(tmp_path) == () and not (tmp_path / "data").exists()


def test_the_file_is_the_owners_alone(tmp_path: Path) -> None:
    file = reasoning.path_in(tmp_path / "data")
    reasoning.write(file, [ONE])
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    "text",
    [
        f"keys: ['{FIRST[:-1]}']",
        f"keys: ['{FIRST}A']",
        f"keys: ['{FIRST}', '{FIRST}']",
        "keys: ['not a key of any kind, but secret']",
        "keys: ['']",
        f"keys: [{', '.join(repr(reasoning.spelled(bytes([n]) * 32)) for n in range(17))}]",
        f"{{ keys: ['{FIRST}'], key_file: secret }}",
        "key_file: nowhere",
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        keys(tmp_path, f"reasoning: {text if text.startswith('{') else f'{{ {text} }}'}")
    assert "reasoning." in str(refused.value)
    assert FIRST[:20] not in str(refused.value) and "secret" not in str(refused.value).replace("key_file", "")


def test_no_key_is_shown_nor_part_of_the_epoch(tmp_path: Path) -> None:
    """Two gateways that differ in a secret only run one configuration."""
    snapshots = [parse(ECHO + f"reasoning: {{ keys: ['{key}'] }}", "a", {}) for key in (FIRST, SECOND)]
    assert snapshots[0].epoch == snapshots[1].epoch
    assert redacted(snapshots[0])["reasoning"] == {"keys": ["***"]}
    assert FIRST in snapshots[0].secrets() and FIRST not in repr(snapshots[0])
