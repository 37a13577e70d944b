"""`arbiter keys`: make client keys, list them, revoke them. What is kept of a key is its hash."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from arbiter import clock
from arbiter.cli import CommandError, UsageError, complain, moments, options, reasoning_keys
from arbiter.cli.table import Column, render, soft
from arbiter.cli.tell import tell
from arbiter.config import keyring, units
from arbiter.config.address import data_dir
from arbiter.config.keyring import Key
from arbiter.config.load import Source
from arbiter.config.redacted import redacted_client
from arbiter.config.snapshot import Client, key_digest
from arbiter.config.source import ConfigError
from arbiter.config.words import check_identifier, check_name

ENTROPY_BYTES = 32
IN_FILE = "in the file"


def _head() -> tuple[Column, ...]:
    return (
        Column("id"),
        soft("client"),
        Column("state"),
        Column(f"created ({moments.zone()})", spare=2),
        Column("expires"),
        soft("agent", spare=1),
        soft("group", spare=3),
        soft("may use"),
    )


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "keys",
        help="make, list and revoke keys of clients; deployment keys",
        description="Keys for clients, and those that a deployment seals reasoning with.",
        allow_abbrev=False,
    )
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True, title="verbs")
    new = options.add(
        verbs,
        "new",
        run_new,
        help="make a key",
        description="Make a key and print it once. Its hash is kept in the data directory, and a gateway that runs on "
        "it knows the key when this command returns.",
        json="one JSON object",
    )
    new.add_argument("name", metavar="NAME", help="who will use the key; a client may have several")
    new.add_argument("--agent", metavar="AGENT", help="the agent that uses it: claude-code, codex, opencode, …")
    new.add_argument("--group", metavar="GROUP", help="whom the client belongs to; appears in rows")
    new.add_argument(
        "--allow",
        metavar="MODEL",
        action="append",
        help="a model or alias that it may ask for, * and ? as in a shell; several times for several (default: all)",
    )
    new.add_argument(
        "--expires",
        metavar="WHEN",
        help="from when on it is none: in 12h, 30d, or an ISO 8601 time (local unless it says otherwise)",
    )
    new.add_argument(
        "--print",
        action="store_true",
        dest="only_print",
        help="keep nothing; print the lines that belong into the configuration",
    )
    listing = options.add(
        verbs,
        "list",
        run_list,
        help="list the keys",
        description="List the keys, those of the configuration too. No key is shown: nobody has it but its client.",
        json="a JSON array",
    )
    revoke = options.add(
        verbs,
        "revoke",
        run_revoke,
        help="revoke a key",
        description="Revoke one key by its id, or all keys of a client. A gateway that runs on the data directory "
        "refuses them when this command returns.",
        json="one JSON object",
    )
    revoke.add_argument("what", metavar="NAME|ID", help="a client, or the id of one key")
    for verb in (new, listing, revoke):
        options.add_config(verb)
    reasoning_keys.add(verbs)


def run_new(arguments: argparse.Namespace) -> int:
    key = keyring.PREFIX + secrets.token_urlsafe(ENTROPY_BYTES)
    entry = _entry(arguments, key)
    if arguments.only_print:
        return _print(arguments, key, entry)
    file = keyring.path_in(data_dir(os.environ))
    configured = {client.name for client in _configured(arguments.config)}
    if entry.name in configured:
        raise CommandError(f"{entry.name} is a client of the configuration; its key is changed there (--print)")
    with keyring.held(file):
        keys = keyring.read(file)
        if any(known.id == entry.id for known in keys):
            raise CommandError("this key's id is taken, by a chance of one in a trillion: try again")
        keyring.write(file, [*keys, entry])
    # The key first: it is good from here on, whatever becomes of the rest.
    if arguments.json:
        options.print_json({"key": key, "file": str(file), "client": _shown(entry)})
    else:
        print(key)
        until = f" until {entry.expires}" if entry.expires else ""
        print(
            f"\nThis is the only time the key is shown. It is {entry.id}, of {entry.name}, good{until}.",
            file=sys.stderr,
        )
    _tell(file, "knows it")
    _write_down(arguments.config, "keys_new", entry.id, {"client": entry.name, "expires": entry.expires})
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    keys = keyring.read(keyring.path_in(data_dir(os.environ)))
    now_ms = clock.now_ms()
    entries = [{**_shown(key), "state": _state(key.client(), now_ms)} for key in keys]
    for client in _configured(arguments.config):
        shown = redacted_client(client)
        kept = {name: shown[name] for name in ("name", "expires", "agent", "group", "allow")}
        entries.append({"id": None, **kept, "created": None, "revoked": None, "state": _state(client, now_ms)})
    if arguments.json:
        options.print_json(entries)
    elif entries:
        print(render(_head(), map(_row, entries)), end="")
    else:
        print("No client has a key; `arbiter keys new NAME` makes one.")
    return 0


def run_revoke(arguments: argparse.Namespace) -> int:
    file = keyring.path_in(data_dir(os.environ))
    what = arguments.what
    now = units.moment(clock.now_ms())
    with keyring.held(file):
        keys = keyring.read(file)
        meant = [key for key in keys if what in (key.id, key.name)]
        if not meant:
            raise CommandError(_nobody(what, file, arguments.config))
        revoked = [key.id for key in meant if key.revoked is None]
        if revoked:
            keyring.write(
                file,
                [msgspec.structs.replace(key, revoked=now) if key.id in revoked else key for key in keys],
            )
    if arguments.json:
        options.print_json({"revoked": revoked, "file": str(file)})
    else:
        print(f"revoked: {', '.join(revoked)}" if revoked else "revoked already")
    # Whoever keeps the store from being written must not keep a key alive.
    _tell(file, "refuses it" if len(revoked) < 2 else "refuses them")
    for key in revoked:
        _write_down(arguments.config, "keys_revoke", key, {"client": next(one.name for one in meant if one.id == key)})
    return 0


def _entry(arguments: argparse.Namespace, key: str) -> Key:
    check_name(arguments.name, lambda message: UsageError(f"NAME: {message}"))
    if arguments.agent is not None:
        check_name(arguments.agent, lambda message: UsageError(f"--agent: {message}"))
    if arguments.group is not None:
        check_name(arguments.group, lambda message: UsageError(f"--group: {message}"))
    for model in arguments.allow or ():
        check_identifier(model, lambda message: UsageError(f"--allow: {message}"))
    digest, now_ms = key_digest(key), clock.now_ms()
    return Key(
        id=digest[: keyring.ID_DIGITS],
        name=arguments.name,
        key_hash=f"sha256:{digest}",
        created=units.moment(now_ms),
        expires=None if arguments.expires is None else units.moment(_until_ms(arguments.expires, now_ms)),
        agent=arguments.agent,
        group=arguments.group,
        allow=arguments.allow or ["*"],
    )


def _until_ms(text: str, now_ms: int) -> int:
    seconds = units.duration_s(text)
    at_ms = now_ms + int(seconds * 1000) if seconds else units.moment_ms(text, zone=None)
    if at_ms is None:
        raise UsageError("--expires: expected a duration like 12h or 30d, or a moment like 2026-12-31T18:00:00Z")
    if at_ms <= now_ms:
        raise UsageError("--expires: that is over already")
    return at_ms


def _print(arguments: argparse.Namespace, key: str, entry: Key) -> int:
    client: dict[str, Any] = {"name": entry.name, "key_hash": entry.key_hash}
    client |= {name: value for name in ("agent", "group", "expires") if (value := getattr(entry, name))}
    if arguments.allow:
        client["allow"] = entry.allow
    if arguments.json:
        options.print_json({"key": key, "client": client})
        return 0
    print(key)
    # Standard output is the key and nothing else, so that it can be piped to where it belongs.
    lines = [
        f"{'  - ' if first == 'name' else '    '}{first}: {json.dumps(value) if first == 'allow' else value}"
        for first, value in client.items()
    ]
    print("\nThis is the only time the key is shown. In arbiter.yaml:\n\nclients:", *lines, sep="\n", file=sys.stderr)
    return 0


def _tell(file: Path, what: str) -> None:
    told = tell(file.parent, "/admin/keys/reload")
    if told:
        said = f"The running gateway {what}." if told == 1 else f"{told} running gateways: each {what}."
    else:
        said = f"No gateway runs on {file.parent}; {file.name} in it was written, and the next one to start reads it."
    print(said, file=sys.stderr)


def _write_down(config: Path | None, action: str, target: str, details: dict[str, str | None]) -> None:
    """Leave a row of what was done, where a store has been used already; that it cannot is said, and undoes nothing."""
    from arbiter.ledger import audit
    from arbiter.ledger.opening import open_store
    from arbiter.ledger.store import StoreDown

    try:
        storage = Source(config, dict(os.environ)).local("storage").storage
    except ConfigError:
        return
    if storage.url == "none" or (storage.path is not None and not storage.path.exists()):
        return
    try:
        store = open_store(storage.url)
        try:
            store.change(lambda db: audit.record(db, clock.now_ms(), audit.CLI, action, target, details))
        finally:
            store.close()
    except StoreDown as error:
        complain(f"done, but not written down in the store: {error}")


def _configured(config: Path | None) -> Sequence[Client]:
    """The clients of the configuration; a key is made and revoked also where there is none, or one that is broken."""
    try:
        return Source(config, dict(os.environ)).local("clients").clients
    except ConfigError:
        return ()


def _nobody(what: str, file: Path, config: Path | None) -> str:
    if any(client.name == what for client in _configured(config)):
        return f"the key of {what} stands in the configuration: remove it from `clients` there, and reload"
    return f"no key in {file} has this id or client; `arbiter keys list` shows them"


def _shown(key: Key) -> dict[str, Any]:
    shown = msgspec.structs.asdict(key)
    del shown["key_hash"]
    return shown


def _state(client: Client, now_ms: int) -> str:
    if client.revoked_ms is not None:
        return "revoked"
    return "expired" if client.expires_ms is not None and client.expires_ms <= now_ms else "good"


def _local(written: str | None) -> str | None:
    at_ms = units.moment_ms(written) if written is not None else None
    return written if at_ms is None else moments.minute(at_ms)


def _row(entry: dict[str, Any]) -> tuple[Any, ...]:
    return (
        entry["id"] or IN_FILE,
        entry["name"],
        entry["state"],
        _local(entry["created"]),
        _local(entry["expires"]),
        entry["agent"],
        entry["group"],
        ", ".join(entry["allow"]),
    )
