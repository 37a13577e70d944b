"""Arguments that several commands share, and what they come to."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from arbiter import clock
from arbiter.cli import CommandError, UsageError, moments
from arbiter.cli.table import plain
from arbiter.config import address
from arbiter.config.load import Flags, NoConfig, Source
from arbiter.config.source import ConfigError

if TYPE_CHECKING:
    from arbiter.ledger.sqlstore import SqlStore


MORE = "There are more: --limit N shows N of them."
MOST_NAMED = 5  # of several that an argument may mean
MOST_DIGITS = 9  # of a number on the command line; Python refuses to read one of thousands


def add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    help: str,
    description: str,
    json: str | None = None,
) -> argparse.ArgumentParser:
    """A command, or a verb of one, that `run` runs. `json`: what it prints for programs; see `print_json`."""
    command = commands.add_parser(name, help=help, description=description, allow_abbrev=False)
    command.set_defaults(run=run)
    if json is not None:
        command.add_argument("--json", action="store_true", help=f"print {json}")
    return command


def print_json(value: object) -> None:
    """What `--json` asks for: one line; of a list, one for each of its items."""
    if isinstance(value, list):
        print("[" + ",\n ".join(msgspec.json.encode(one).decode() for one in value) + "]")
    else:
        print(msgspec.json.encode(value).decode())


def add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file (default: ARBITER_CONFIG, else ./arbiter.yaml)",
    )


def add_listen(command: argparse.ArgumentParser, workers: str) -> None:
    """Where to listen, and with how many; `workers` says what that is by default."""
    command.add_argument("--bind", type=_address, metavar="ADDRESS", help="address to listen on (env HOST)")
    command.add_argument("--port", type=whole(1, 65535), metavar="PORT", help="port to listen on (env PORT)")
    command.add_argument("--socket", metavar="PATH", help="unix socket to listen on, in place of address and port")
    command.add_argument("--workers", type=whole(1, 256), metavar="N", help=f"worker processes (default: {workers})")


def add_store(command: argparse.ArgumentParser) -> None:
    """Which store; see `reading`."""
    add_config(command)
    command.add_argument(
        "--db", metavar="STORE", help="the SQLite file, or the store's URL, in place of the configuration's"
    )


def add_since(command: argparse.ArgumentParser, default: str | None = None, more: str = "") -> None:
    """From when on; see `since_ms`."""
    help = f"only since then{more}: 15m, 1h, 7d ago, or an ISO 8601 time (local unless it says otherwise)"
    if default is not None:
        help += f" (default: {default})"
    command.add_argument("--since", metavar="WHEN", default=default, help=help)


def since_ms(arguments: argparse.Namespace) -> int | None:
    """The moment that `--since` means; None where nothing was said."""
    return None if arguments.since is None else moment_ms("since", arguments.since)


def moment_ms(option: str, text: str) -> int:
    """The moment that an argument means: where it names no zone it is local, as the moments that are shown are."""
    from arbiter.ledger import query

    try:
        return query.since(text, clock.now_ms(), zone=None)
    except query.BadParameter as error:
        raise UsageError(f"--{option}: {str(error).partition(': ')[2]}") from error


def add_session(command: argparse.ArgumentParser, more: str = "") -> None:
    """Which session; see `session`."""
    command.add_argument(
        "--session",
        metavar="S",
        help=f"only this session{more}: its name, or 8 and more characters that it begins with",
    )


def session(store: SqlStore, arguments: argparse.Namespace) -> str | None:
    """The name of the session that `--session` means; what no session begins with stands for itself."""
    name = text(arguments.session)
    if name is None:
        return None
    from arbiter.ledger.questions import sessions

    found = store.read(lambda db: sessions.names(db, name))
    if len(found) > 1:
        raise CommandError(f"several sessions begin with {plain(name)!r}: {listed(found)}; give more of it")
    return found[0] if found else name


def listed(names: Sequence[str]) -> str:
    """The first of several that an argument may mean."""
    return ", ".join(map(plain, names[:MOST_NAMED])) + (", …" if len(names) > MOST_NAMED else "")


def none(what: str, since_ms: int | None, is_filtered: bool) -> str:
    """What there is to say where nothing was found."""
    told = " matches" if is_filtered else "" if since_ms is not None else " yet"
    return f"No {what}{moments.since(since_ms)}{told}."


def add_label(command: argparse.ArgumentParser) -> None:
    """What a caller called it; see `label`."""
    command.add_argument("--label", metavar="NAME=VALUE", help="only what its caller labelled so: issue=12")


def label(arguments: argparse.Namespace) -> tuple[str, str] | None:
    """The label that `--label` means."""
    if arguments.label is None:
        return None
    from arbiter.ledger import query

    with parameters():
        return query.label(arguments.label)


def text(word: str | None) -> str | None:
    """A word of the command line; what is no text in it cannot be in the store either."""
    return None if word is None else word.encode("utf-8", "replace").decode()


def asked(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, str]:
    """Those of the named options that were given, as parameters of a question."""
    words = {name: text(getattr(arguments, name)) for name in names}
    return {name: word for name, word in words.items() if word is not None}


@contextlib.contextmanager
def parameters() -> Iterator[None]:
    """What is wrong with a parameter of a question is wrong with the option of its name: a UsageError."""
    from arbiter.ledger.query import BadParameter

    try:
        yield
    except BadParameter as error:
        raise UsageError(f"--{error}") from error


@contextlib.contextmanager
def reading(arguments: argparse.Namespace) -> Iterator[SqlStore]:
    """The store that `--db` or the configuration names, to look at. What it cannot do is a CommandError."""
    with _opened(arguments, readonly=True) as store:
        yield store


@contextlib.contextmanager
def writing(arguments: argparse.Namespace) -> Iterator[SqlStore]:
    """The same store, to change something in it beside the gateway."""
    # Opened to be changed, whatever stands there would become a store.
    with contextlib.suppress(_OldStore), _opened(arguments, readonly=True):
        pass
    with _opened(arguments, readonly=False) as store:
        yield store


class _OldStore(CommandError):
    """Who only looks at a store does not bring it up to date."""


@contextlib.contextmanager
def _opened(arguments: argparse.Namespace, *, readonly: bool) -> Iterator[SqlStore]:
    # Not every command has a store.
    from arbiter.ledger.database import Unstorable
    from arbiter.ledger.opening import open_store
    from arbiter.ledger.store import StoreDown, StoreMissing, StoreOld

    try:
        store = open_store(_store_url(arguments), readonly=readonly)
        try:
            yield store
        finally:
            store.close()
    except StoreMissing as error:
        hint = "a store is made when the gateway starts; if that has run, name its store with --db or --config"
        raise CommandError(f"{error}; {hint}") from error
    except StoreOld as error:
        raise _OldStore(f"{error}; start its gateway once in this version, and it is brought up to date") from error
    except StoreDown as error:
        raise CommandError(f"the store cannot be {'read' if readonly else 'written'}: {error}") from error
    except Unstorable as error:
        # A byte that is not UTF-8 comes in as half a character, which no column holds.
        raise UsageError(f"no store holds what the command line says: {error}") from error


def _store_url(arguments: argparse.Namespace) -> str:
    given: str | None = arguments.db
    if given is not None:
        if "://" not in given:
            return f"sqlite:///{given}"
        return address.store(given, Path(), lambda message: ConfigError(f"--db: {message}"))[1]
    try:
        url = Source(arguments.config, dict(os.environ)).local("storage").storage.url
    except NoConfig as error:
        raise CommandError(
            "which store? There is no arbiter.yaml here: name one with --config FILE, "
            "or the store itself with --db (`arbiter demo` prints its own at the start)"
        ) from error
    if url == "none":
        raise CommandError("nothing is recorded: `storage.url` is `none`; set it to sqlite:///PATH")
    return url


def flags(arguments: argparse.Namespace) -> Flags:
    """What the listen arguments say; the rest is left to environment and file."""
    return Flags(arguments.bind, arguments.port, arguments.socket, arguments.workers)


def _address(text: str) -> str:
    if text != "localhost":
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise argparse.ArgumentTypeError("expected an IP address or localhost") from None
    return text


def whole(low: int, high: int) -> Callable[[str], int]:
    """What an argument takes that is a whole number from `low` to `high`."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}")
        return int(text)

    return number
