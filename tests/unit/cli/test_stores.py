"""What stands where a store was to be read: one line says what is wrong with it, and it is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from arbiter.ledger.schema import VERSION
from arbiter.ledger.sqlite import SqliteStore
from tests.fakes.stores import Place, SqlitePlace
from tests.unit.cli.conftest import Arbiter

COMMANDS = [
    ("requests",),
    ("sessions",),
    ("session", "some-session"),
    ("session", "some-session", "--end"),
    ("search", "words"),
    ("cache",),
    ("cost",),
    ("limits",),
    ("export",),
]


def directory(at: Path) -> str:
    at.mkdir()
    return f"the store cannot be read: {at} is a directory"


def its_directory(at: Path) -> str:
    at.mkdir()
    SqliteStore(at / "arbiter.db").close()
    return f"the store cannot be read: {at} is a directory; do you mean {at}/arbiter.db?"


def text(at: Path) -> str:
    at.write_text("providers: { openai: { type: openai } }  # this is no database\n" * 100)
    return f"the store cannot be read: {at} is no SQLite database"


def empty(at: Path) -> str:
    at.touch()
    return f"{at} has none of the gateway's tables; a store is made when the gateway starts; if that has run, name"


def another_program_s(at: Path) -> str:
    SqlitePlace(at).sql("CREATE TABLE bookmarks (url TEXT)")
    return f"{at} has none of the gateway's tables; "


def nothing(at: Path) -> str:
    return f"there is no store at {at}; a store is made when the gateway starts; "


def newer(at: Path) -> str:
    SqliteStore(at).close()
    SqlitePlace(at).sql("UPDATE schema_version SET version = 99")
    ahead = f"schema version 99, of a newer Arbiter than this one, which knows {VERSION}"
    return f"the store cannot be read: {at}: it has {ahead}"


@pytest.mark.parametrize("made", [directory, its_directory, text, empty, another_program_s, nothing, newer])
def test_what_is_no_store_is_said_in_one_line(made: Callable[[Path], str], tmp_path: Path, arbiter: Arbiter) -> None:
    at = tmp_path / "it"
    said = made(at)
    before = at.read_bytes() if at.is_file() else None
    for command in COMMANDS:
        done = arbiter(*command, "--db", at)
        assert (done.code, done.err.count("\n")) == (1, 1), command
        assert done.err.startswith(f"arbiter: {said}"), command
    assert before == (at.read_bytes() if at.is_file() else None)


def test_a_store_of_an_earlier_version_says_which_and_what_to_do(place: Place, arbiter: Arbiter) -> None:
    """Also where a question would not have needed what it lacks."""
    place.open().close()
    place.sql("ALTER TABLE attempts DROP COLUMN cleared_tokens")
    at = place.url.removeprefix("sqlite:///")
    for command in COMMANDS:
        if "--end" in command:
            continue
        done = arbiter(*command, "--db", at)
        assert (done.code, done.err.count("\n")) == (1, 1), command
        told = f" is of an earlier version (schema {VERSION}): it has no attempts.cleared_tokens; start its gate"
        assert told in done.err
    # Who changes something in it brings it up to date.
    assert "there is no session" in arbiter("session", "some-session", "--end", "--db", at).err
    assert arbiter("requests", "--db", at).out == "No request yet.\n"


def test_a_path_that_no_file_has_is_said_to_be_none(arbiter: Arbiter) -> None:
    done = arbiter("requests", "--db", "x" * 5000)
    assert done.code == 1 and done.err.endswith(": File name too long\n")


def test_a_server_that_does_not_answer_is_one_line_without_its_password(arbiter: Arbiter, deaf_port: int) -> None:
    for host in (f"127.0.0.1:{deaf_port}", "no-such-host.invalid"):
        done = arbiter("requests", "--db", f"postgresql://u:SECRET@{host}/arbiter")
        assert (done.code, done.err.count("\n")) == (1, 1) and "SECRET" not in done.err
        assert done.err.startswith(f"arbiter: the store cannot be read: postgresql://u:***@{host}/arbiter: ")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_store_is_read_without_the_providers_keys(
    arbiter: Arbiter, config: Path, stored: Callable[..., Path], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `storage.url` is needed to look at what was recorded: the shell at hand may have no key."""
    monkeypatch.delenv("MINE_KEY", raising=False)
    config.write_text(
        'providers: { mine: { type: openai, key: "${MINE_KEY}", models: [m] } }\n'
        f"storage: {{ url: 'sqlite:///{stored([])}' }}\n"
        "prices: { prepaid: [{ provider: mine, balance_usd: 20, since: 2026-01-01 }] }\n"
    )
    done = arbiter(*words)
    assert "MINE_KEY" not in done.err + done.out
    assert done.code == 0 or "no session" in done.err.lower() or "there is no index to search" in done.err
    assert (words != ("cost",)) or "Prepaid, mine: $20.00 left" in done.out


def test_the_stores_own_variable_is_needed(arbiter: Arbiter, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_STORE", raising=False)
    config.write_text('providers: { e: { type: echo } }\nstorage: { url: "${MY_STORE}" }\n')
    done = arbiter("requests")
    assert done.code != 0 and "storage.url: the environment variable MY_STORE is not set" in done.err
