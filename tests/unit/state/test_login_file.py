"""A login in its file: what is kept of it, what is never taken in again, and that nobody gets in between."""

from __future__ import annotations

import json
import os
import stat

import pytest

from arbiter.config.snapshot import Endpoint, OAuth, Provider
from arbiter.state.login_file import MOST_CONSUMED, Login, LoginFault, LoginFile, Refused, faults

VENDOR = Endpoint("https", "vendor.test", 443)
PROVIDER = Provider(
    "claude", "anthropic", "anthropic-messages", VENDOR, auth="oauth", oauth=OAuth((VENDOR, "/token"), "client")
)
NOW = 1_800_000_000_000


@pytest.fixture
def file(tmp_path):
    made = LoginFile(tmp_path / "data", "claude", b"k" * 32)
    with made.held():
        pass
    return made


def test_what_is_written_is_read_for_its_owner_alone(file):
    assert file.read() is None and file.stamp() is None
    assert file.open_to() is None
    login = Login("refresh", "access", NOW, NOW + 1000, ["a"], Refused("b", "invalid_grant", NOW))
    file.write(login)
    assert file.read() == login and stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert file.open_to() is None
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


@pytest.mark.parametrize("token", ["a\nb", "a b", "a\x00", "tök", "x" * 20_000, ""])
@pytest.mark.parametrize("place", ["refresh_token", "access_token"])
def test_a_token_that_no_header_could_carry_makes_the_file_unusable(file, token, place):
    """A line break that an editor left would else be refused as if the caller had sent it. No access token is fine."""
    file.path.write_text(json.dumps({"refresh_token": "r", "access_token": "a", place: token}))
    if (token, place) == ("", "access_token"):
        assert file.read() == Login("r")
        return
    with pytest.raises(LoginFault, match="printable ASCII") as fault:
        file.read()
    assert "tök" not in str(fault.value) and str(file.path) in str(fault.value)


@pytest.mark.parametrize(
    ("mode", "told"), [(0o600, None), (0o400, None), (0o644, "0644"), (0o640, "0640"), (0o602, "0602")]
)
def test_a_file_that_others_have_rights_in_is_told_of_and_used(file, mode, told):
    file.write(Login("r"))
    file.path.chmod(mode)
    assert file.open_to() == told and file.read() == Login("r")
    said = faults([PROVIDER], file.path.parent.parent, b"k" * 32)
    assert len(said) == (told is not None) and all(f"(mode {told}); `chmod 600`" in line for line in said)


def test_only_the_operator_is_told_where_the_file_is(file):
    """`/health/ready` answers anybody."""
    file.path.write_bytes(b"{")
    (said,) = faults([PROVIDER], file.path.parent.parent, b"k" * 32)
    assert said == (
        "login: claude: its file holds no login; remove it, and log in again (logins/claude.json in the data directory)"
    )
    with pytest.raises(LoginFault) as fault:
        file.read()
    assert str(file.path) in str(fault.value) and "/" not in fault.value.why


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
    file.take_in(Login("two", "newer-access"), replaces=True)
    assert file.read() == Login("two", "newer-access", consumed=[file.fingerprint("one")])
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
