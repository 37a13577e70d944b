"""Requests of the gateway's own: known by the key of the run, and by nothing else."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from arbiter import own
from arbiter.config.words import check_name
from arbiter.own import Own


@pytest.mark.parametrize("what", [Own("summary", "title", "ci 0199/ü%20&"), Own("probe"), Own("replay", None, " s")])
def test_what_control_says_is_what_a_worker_hears(tmp_path: Path, what: Own) -> None:
    own.make_key(tmp_path)
    sent = own.headers(what, own.key_of(tmp_path))
    assert own.told(sent, own.key_of(tmp_path)) == what
    assert all(value.isascii() and value.isprintable() and " " not in value for value in sent.values())


def test_a_key_is_private_and_each_runs_own(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    keys = set()
    for run in (tmp_path / "one", tmp_path / "two"):
        own.make_key(run)
        keys.add(own.key_of(run))
        assert [stat.S_IMODE(file.stat().st_mode) for file in run.iterdir()] == [0o600]
    assert len(keys) == 2 and all(len(key) == 64 for key in keys)


@pytest.mark.parametrize("sent", ["", "0" * 64, "\udcff\u00fc", None])
def test_no_other_key_fits_and_none_fits_where_there_is_none(tmp_path: Path, sent: str | None) -> None:
    fields = {"x-arbiter-own-kind": "summary"} | ({own.KEY_HEADER: sent} if sent is not None else {})
    assert own.told(fields, own.key_of(tmp_path)) is None, "this run has no key"
    own.make_key(tmp_path)
    assert own.told(fields, own.key_of(tmp_path)) is None


def test_no_client_can_be_called_as_the_gateway_is() -> None:
    with pytest.raises(ValueError, match="letters"):
        check_name(own.GATEWAY, ValueError)
