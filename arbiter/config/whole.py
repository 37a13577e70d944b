"""What only a whole configuration can be asked: whether what one section names is there in another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from arbiter.config.address import Fault, is_loopback
from arbiter.config.aliases import targets
from arbiter.config.decode import join, nearest
from arbiter.config.snapshot import Snapshot


def check_whole(snapshot: Snapshot, error: Fault) -> None:
    """Errors: what `error(path, message)` makes."""
    _check_overrides(snapshot, error)
    _check_own(snapshot, error)


def doubts(snapshot: Snapshot, bare: Iterable[str]) -> Iterator[str]:
    """What is probably not meant; `bare` are the places with a variable in them that nobody reads."""
    for path in dict.fromkeys(bare):
        yield f"{path}: begins with $ and is taken as it stands; an environment variable is written ${{NAME}}"
    server, mode = snapshot.server, snapshot.auth.mode
    pays = any(not (provider.type == "echo" or provider.takes_logins) for provider in snapshot.providers.values())
    if pays and mode != "require" and server.socket is None and not is_loopback(server.bind):
        yield (
            f"server.bind is {server.bind} and auth.mode is {mode}: whoever reaches this address is served at your "
            "expense; `auth: { mode: require }` wants a key (`arbiter keys new NAME`), and 127.0.0.1 is reached from "
            "this machine alone"
        )


def _check_overrides(snapshot: Snapshot, error: Fault) -> None:
    """An override to what nobody serves would be met by its client first."""
    if snapshot.routing.default_provider is not None:
        return
    for index, client in enumerate(snapshot.clients):
        for asked, used in client.overrides:
            provider = snapshot.providers.get(used.partition("/")[0])
            if used in snapshot.models or used in snapshot.aliases:
                continue
            if provider is None or (provider.models and provider.model(used.partition("/")[2]) is None):
                path = join(join(join("clients", index), "overrides"), asked)
                raise error(path, f"{used!r} is neither an alias nor a model{nearest(used, snapshot.models)}")


def _check_own(snapshot: Snapshot, error: Fault) -> None:
    """What the gateway asks an alias by itself needs the alias, and a place for the answers."""
    asks = {"sessions.titles.alias": snapshot.sessions.titles, "search.embed.alias": snapshot.search.embed}
    for key, own in asks.items():
        if own is None:
            continue
        if own.alias not in snapshot.aliases:
            raise error(key, f'there is no alias "{own.alias}"{nearest(own.alias, snapshot.aliases)}')
        alias = snapshot.aliases[own.alias]
        asked = [snapshot.providers[one.provider or ""] for one in targets(alias.members, snapshot.aliases)]
        if all(provider.takes_logins for provider in asked):
            raise error(
                key, f'"{own.alias}" is asked on callers\' logins (auth: passthrough), and we have none of them'
            )
        if key == "search.embed.alias" and all(provider.auth != "key" for provider in asked):
            raise error(key, f'"{own.alias}" is asked on logins, which buy no embeddings')
        if snapshot.storage.url == "none":
            raise error(key, "its answers are kept in the store, and `storage.url` is `none`: nothing is kept")
