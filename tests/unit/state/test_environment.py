"""LMDB as the processes of one gateway share it."""

from __future__ import annotations

import os
import stat

import lmdb
import pytest

from arbiter.state import environment


def test_only_the_owner_can_read_what_is_kept(tmp_path):
    """State and journal hold whom people talked to: 0700 and 0600, whatever the umask is."""
    old = os.umask(0)
    try:
        env = environment.open_shared(tmp_path / "a" / "journal", 1 << 20)
    finally:
        os.umask(old)
    try:
        assert stat.S_IMODE((tmp_path / "a" / "journal").stat().st_mode) == 0o700
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "a" / "journal").iterdir()}
        assert modes == {"data.mdb": 0o600, "lock.mdb": 0o600}
    finally:
        env.close()


def test_two_users_in_one_process_share_one_environment(tmp_path):
    """LMDB forbids to open the same files twice; the first one to leave does not take it from the other."""
    first = environment.open_shared(tmp_path, 1 << 20)
    second = environment.open_shared(tmp_path, 1 << 20)
    assert first is second
    first.close()
    database = second.open_db(b"x")
    with second.begin() as txn:
        txn.put(b"k", b"v", db=database)
    assert second.used_bytes(database) == second.page_bytes
    second.close()
    third = environment.open_shared(tmp_path, 1 << 20)
    assert third is not first
    third.close()


def test_pages_given_back_do_not_count_as_used(tmp_path):
    """The file never shrinks; fullness is judged by what is in it now."""
    env = environment.open_shared(tmp_path, 4 << 20)
    database = env.open_db(b"x")
    with env.begin() as txn:
        for number in range(1000):
            txn.put(b"%04d" % number, bytes(500), db=database)
    assert env.used_bytes(database) > 500_000
    with env.begin() as txn:
        txn.drop(database, delete=False)
    assert env.used_bytes(database) == 0
    env.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_must_open_its_own(tmp_path):
    """LMDB's locks do not survive a fork: the child is refused, and the parent goes on."""
    env = environment.open_shared(tmp_path, 1 << 20)
    pid = os.fork()
    if pid == 0:
        refused = 0
        for act in (env.begin, env.read):
            try:
                act()
            except lmdb.Error:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    env.begin().abort()
    env.close()


def test_a_place_that_cannot_be_written_is_an_error_to_catch(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises((OSError, lmdb.Error)):
        environment.open_shared(tmp_path / "file" / "journal", 1 << 20)


def test_what_a_broken_disk_does_not_let_flush_is_closed_all_the_same(tmp_path):
    """Or it would be "already open" for whoever tries again when the disk is well."""
    env = environment.open_shared(tmp_path, 1 << 20)

    class Broken:
        close = env.lmdb.close

        def sync(self, force):
            raise lmdb.DiskError("no space left")

    env.lmdb = Broken()
    with pytest.raises(lmdb.DiskError):
        env.close()
    again = environment.open_shared(tmp_path, 1 << 20)
    again.begin().abort()
    again.close()
