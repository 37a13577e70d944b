"""A login in its file: what is kept of it, what is never taken in again, and that nobody gets in between."""

from __future__ import annotations

import os
import stat

import pytest

from arbiter.state.login_file import MOST_CONSUMED, Login, LoginFault, LoginFile, Refused

NOW = 1_800_000_000_000


@pytest.fixture
def file(tmp_path):
    made = LoginFile(tmp_path / "data", "claude", b"k" * 32)
    with made.held():
        pass
    return made


def test_what_is_written_is_read_for_its_owner_alone(file):
    assert file.read() is None and file.stamp() is None
    login = Login("refresh", "access", NOW, NOW + 1000, ["a"], Refused("b", "invalid_grant", NOW))
    file.write(login)
    assert file.read() == login and stat.S_IMODE(file.path.stat().st_mode) == 0o600
    before = file.stamp()
    file.write(login)
    assert file.stamp() != before
    assert "refresh" not in repr(login) and "access" not in repr(login)
    assert {one.name for one in file.path.parent.iterdir()} == {"claude.json", "claude.lock"}


def test_one_at_a_time_holds_it(file):

    held = file.try_hold()
    assert held is not None and file.try_hold() is None
    os.close(held)
    again = file.try_hold()
    assert again is not None
    os.close(again)


@pytest.mark.parametrize("held", [b"", b"[]", b'{"refresh_token": 1}', b'{"refresh_token": "x", "more": 1}', b"\xff"])
def test_what_is_no_login_is_not_replaced_in_silence(file, held):
    file.path.write_bytes(held)
    with pytest.raises(LoginFault, match="holds no login"):
        file.read()


def test_used_up_tokens_are_known_by_the_last_64_fingerprints(file):
    login = Login("token-0")
    for number in range(1, 70):
        token, consumed = file.rotated(login, f"token-{number}")
        login = Login(token, consumed=consumed)
    assert len(login.consumed) == MOST_CONSUMED == 64
    assert file.fingerprint("token-68") in login.consumed and file.fingerprint("token-0") not in login.consumed
    assert "token" not in "".join(login.consumed)
    assert file.rotated(login, None) == (login.refresh_token, login.consumed)
    assert LoginFile(file.path.parent.parent, "claude", b"x" * 32).fingerprint("token-68") not in login.consumed


def test_a_login_replaces_another_only_where_that_is_said_or_the_other_is_dead(file):
    file.take_in(Login("one"), replaces=False)
    with pytest.raises(LoginFault, match="--reconnect"):
        file.take_in(Login("two"), replaces=False)
    file.take_in(Login("two"), replaces=True)
    with pytest.raises(LoginFault, match="used up"):
        file.take_in(Login("one"), replaces=True)
    file.take_in(Login("two", "newer access"), replaces=True)
    assert file.read() == Login("two", "newer access", consumed=[file.fingerprint("one")])
    file.write(Login("two", refused=Refused("x", "invalid_grant", NOW)))
    with pytest.raises(LoginFault, match="refused already"):
        file.take_in(Login("two"), replaces=True)
    file.take_in(Login("three"), replaces=False)
    assert file.read() == Login("three", consumed=[file.fingerprint("two")])


def test_a_token_is_fresh_until_shortly_before_its_end():
    """`refresh_before`, or a fifth of a life that is shorter than that makes sense for."""
    long = Login("r", "a", NOW, NOW + 3_600_000)
    assert long.is_fresh(NOW + 3_299_000, 300) and not long.is_fresh(NOW + 3_301_000, 300)
    assert long.is_good(NOW + 3_599_000) and not long.is_good(NOW + 3_600_000)
    short = Login("r", "a", NOW, NOW + 60_000)
    assert short.is_fresh(NOW + 47_000, 300) and not short.is_fresh(NOW + 49_000, 300)
    assert Login("r", "a", NOW).is_fresh(NOW * 2, 300) and not Login("r").is_fresh(NOW, 300)
