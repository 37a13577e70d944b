"""The section `clients`: who may ask, and for what."""

from __future__ import annotations

from functools import partial

from arbiter.config import callers
from arbiter.config.address import Fault
from arbiter.config.decode import join
from arbiter.config.snapshot import Client
from arbiter.config.words import check_identifier, check_name

NO_CLIENTS = "auth.mode is require and there are no clients: every request will be refused (`arbiter keys new`)"


def clients(written_clients: list[callers.Client], mode: str, error: Fault, warnings: list[str]) -> tuple[Client, ...]:
    """The callers of a file. Errors: what `error(path, message)` makes; what is doubtful goes to `warnings`."""
    found: dict[str, Client] = {}
    hashes: dict[str, str] = {}
    for index, written in enumerate(written_clients):
        path = join("clients", index)
        check_name(written.name, partial(error, join(path, "name")))
        digest = written.key_hash.removeprefix("sha256:")
        if digest == written.key_hash or len(digest) != 64 or not set(digest) <= set("0123456789abcdefABCDEF"):
            message = "expected sha256: and 64 hexadecimal digits, from `arbiter keys new`; never the key itself"
            raise error(join(path, "key_hash"), message)
        digest = digest.lower()
        if written.name in found:
            raise error(join(path, "name"), f'"{written.name}" is listed twice')
        if digest in hashes:
            raise error(join(path, "key_hash"), f"the key of {hashes[digest]}; every client has its own")
        if not written.allow:
            raise error(join(path, "allow"), "an empty list allows nothing; remove it, or name models")
        if written.group is not None:
            check_name(written.group, partial(error, join(path, "group")))
        for used in written.overrides.values():
            check_identifier(used, partial(error, join(path, "overrides")))
        hashes[digest] = written.name
        found[written.name] = Client(
            written.name,
            digest,
            written.agent or None,
            tuple(written.allow),
            written.group,
            written.expires_ms,
            overrides=tuple(written.overrides.items()),
            metadata=tuple(written.metadata.items()),
        )
    if mode == "require" and not found:
        warnings.append(NO_CLIENTS)
    if mode == "none" and found:
        warnings.append("auth.mode is none: the keys of clients are ignored")
    return tuple(found.values())
