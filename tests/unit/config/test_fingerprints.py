"""The key of fingerprints: made once, kept for good, and never replaced in silence."""

from __future__ import annotations

import stat

import pytest

from arbiter.config import fingerprints
from arbiter.config.source import ConfigError


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path):
    data = tmp_path / "data"
    made = fingerprints.key(data, make=True)
    file = data / fingerprints.FILE
    assert len(made) == fingerprints.KEY_BYTES and file.read_bytes() == made
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert fingerprints.key(data, make=True) == fingerprints.key(data, make=False) == made
    assert [one.name for one in data.iterdir()] == [fingerprints.FILE]


def test_whoever_only_looks_makes_nothing(tmp_path):
    one = fingerprints.key(tmp_path, make=False)
    assert one == fingerprints.key(tmp_path, make=False) and list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_kept_the_key_is_this_processes(tmp_path):
    (tmp_path / "file").write_text("")
    assert fingerprints.key(tmp_path / "file" / "data", make=True) == fingerprints.key(tmp_path, make=False)


@pytest.mark.parametrize("held", [b"", b"short", bytes(33)])
def test_a_damaged_key_is_not_replaced(tmp_path, held):
    """Another key would make every login a stranger, and nobody would see why."""
    (tmp_path / fingerprints.FILE).write_bytes(held)
    with pytest.raises(ConfigError, match="fingerprint key"):
        fingerprints.key(tmp_path, make=True)
    assert (tmp_path / fingerprints.FILE).read_bytes() == held
