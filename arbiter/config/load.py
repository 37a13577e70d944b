"""From a file and an environment to a Snapshot.

`parse` decodes the text (`decode`) and resolves it here: defaults that depend on something, endpoints, secrets from
files, aliases, and what no single key can know (a model at two providers). Whatever is wrong is one ConfigError.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from arbiter.config import fingerprints, keyring, reasoning, schema, spoken
from arbiter.config.address import data_dir, hidden, passwords, state_dir, store
from arbiter.config.aliases import Names
from arbiter.config.catalog import Catalog
from arbiter.config.clients import NO_CLIENTS, clients
from arbiter.config.decode import Decoder, join
from arbiter.config.demo import DEMO
from arbiter.config.local import Local
from arbiter.config.pricing import Sources, prepaid
from arbiter.config.providers import Providers
from arbiter.config.rates import Known, Pricing
from arbiter.config.redacted import redacted
from arbiter.config.snapshot import (
    Admin,
    Auth,
    Capture,
    Embed,
    Limits,
    Model,
    Network,
    PluginSpec,
    Provider,
    Search,
    Server,
    SessionAffinity,
    Sessions,
    Snapshot,
    Storage,
    Telemetry,
    Titles,
)
from arbiter.config.source import ConfigError, read_text, variable
from arbiter.config.whole import check_whole, doubts
from arbiter.config.words import (
    check_header,
    check_pattern,
    check_secret,
)

__all__ = ["ConfigError", "Flags", "NoConfig", "Source", "config_path", "demo_snapshot", "load", "parse"]

DEFAULT_PATH = "arbiter.yaml"
PRICED = ("providers", "models", "prices", "aliases", "routing")
"""The sections that say what a call costs; a price may be that of the provider that undeclared names go to."""
_WHERE = frozenset({"bind", "port", "socket", "workers"})
_SMALLEST = """the smallest useful file is:

  providers:
    openai: { type: openai, key: "${OPENAI_API_KEY}", models: [gpt-5.2] }
"""


class NoConfig(ConfigError):
    """No file was named, and there is none in the usual place."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line said; it wins over the environment, which wins over the file."""

    bind: str | None = None
    port: int | None = None
    socket: str | None = None
    workers: int | None = None


LookUp = Callable[[Pricing, Mapping[str, Provider]], Mapping[str, Mapping[str, Known]]]
"""What is known today of the declared models of each provider, by the names that the providers are sent."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a configuration comes from, so that a reload can ask again.

    `look_up` finds the prices and windows that do not stand in the file, for those who choose or show by them. `keeps`:
    what the data directory lacks is made there (a gateway, and not a command that looks at one).
    """

    path: Path | None
    env: Mapping[str, str] = field(repr=False)
    flags: Flags = Flags()
    demo: bool = False
    look_up: LookUp | None = None
    keeps: bool = False

    def load(self) -> Snapshot:
        """The configuration as it stands now, and the keys. Errors: ConfigError."""
        if self.demo:
            return with_keys(demo_snapshot(self.env, self.flags))
        snapshot = with_keys(load(self.path, self.env, self.flags, self.look_up))
        if not snapshot.takes_logins and not snapshot.logins:
            return snapshot
        makes = self.keeps and (snapshot.storage.url != "none" or bool(snapshot.logins))
        return replace(snapshot, fingerprint_key=fingerprints.key(snapshot.data_dir, make=makes))

    def local(self, *sections: str) -> Local:
        """What these sections of the file say, of those that `Local` has; all else is as by default, and not looked at.

        Whoever only reads what was recorded has no need of the providers' keys. Errors: ConfigError.
        """
        if self.demo:
            return local(DEMO, "demo", self.env, sections)
        path = chosen(self.path, self.env)
        return local(read_text(path), str(path), self.env, sections)

    def keyless(self, *sections: str, asked: Iterable[str] = ()) -> Snapshot:
        """The configuration for who asks no provider but those `asked`, or these sections of it and the rest by
        default: other credentials that are not at hand are stood in for, and nobody's keys are read. Errors:
        ConfigError."""
        path = chosen(self.path, self.env)
        decoder = Decoder(str(path), self.env, only=frozenset(sections) or None, keyless=True, asked=asked)
        return _resolver(read_text(path), decoder, self.env, self.flags, self.look_up).snapshot()

    def stamp(self) -> tuple[int, int, int] | None:
        """Changes whenever the file does; None while there is no file."""
        if self.demo:
            return None
        try:
            found = config_path(self.path, self.env).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def config_path(path: Path | None, env: Mapping[str, str]) -> Path:
    """The file to read: the one given, else `ARBITER_CONFIG`, else `./arbiter.yaml`."""
    return path or Path(env.get("ARBITER_CONFIG") or DEFAULT_PATH)


def chosen(path: Path | None, env: Mapping[str, str]) -> Path:
    """The same. Errors: NoConfig where none was named, and there is none."""
    found = config_path(path, env)
    if path is None and not env.get("ARBITER_CONFIG") and not found.exists():
        raise NoConfig(
            f"there is no {DEFAULT_PATH} here; name one with --config or ARBITER_CONFIG, "
            f"try `arbiter demo`, which needs none, or write one: {_SMALLEST}"
        )
    return found


def load(path: Path | None, env: Mapping[str, str], flags: Flags = Flags(), look_up: LookUp | None = None) -> Snapshot:
    """Read and resolve a configuration file. Errors: ConfigError."""
    file = chosen(path, env)
    return parse(read_text(file), str(file), env, flags, look_up)


def with_keys(snapshot: Snapshot) -> Snapshot:
    """`snapshot` with the keys of its data directory as they stand now: clients', and deployment keys where the
    configuration has none. Errors: ConfigError."""
    keys = tuple(key.client() for key in keyring.read(keyring.path_in(snapshot.data_dir)))
    configured = {client.key_sha256: client.name for client in snapshot.clients}
    for key in keys:
        if key.key_sha256 in configured:
            raise ConfigError(
                f"the key of {key.name} is also that of {configured[key.key_sha256]} in the configuration"
            )
    warnings = list(snapshot.warnings)
    if NO_CLIENTS in warnings and any(key.revoked_ms is None for key in keys):
        warnings.remove(NO_CLIENTS)
    reasoning_keys = snapshot.reasoning_keys
    if not snapshot.has_own_keys:
        reasoning_keys = reasoning.read(reasoning.path_in(snapshot.data_dir))
        if not reasoning_keys and snapshot.storage.url == "none":
            reasoning_keys = (reasoning.of_this_process(),)
    return replace(snapshot, keys=keys, reasoning_keys=reasoning_keys, warnings=tuple(warnings))


def parse(
    text: str, name: str, env: Mapping[str, str], flags: Flags = Flags(), look_up: LookUp | None = None
) -> Snapshot:
    """Resolve a configuration from its text; `name` stands for the file in messages and anchors relative paths.

    Errors: ConfigError, and nothing else.
    """
    return _resolver(text, Decoder(name, env), env, flags, look_up).snapshot()


def _resolver(text: str, decoder: Decoder, env: Mapping[str, str], flags: Flags, look_up: LookUp | None) -> _Resolver:
    config = decoder.read(text, schema.Config)
    if config is None:
        raise ConfigError(f"the file is empty; {_SMALLEST}", file=decoder.file)
    return _Resolver(config, decoder, Path(decoder.file).parent, env, flags, look_up)


def local(text: str, name: str, env: Mapping[str, str], sections: Iterable[str]) -> Local:
    """The named sections of a configuration's text, without any provider; see `Source.local`. Errors: ConfigError."""
    decoder = Decoder(name, env, only=frozenset(sections))
    config = decoder.read(text, schema.Config) or schema.Config()
    return _Resolver(config, decoder, Path(name).parent, env, Flags(), None).local()


def demo_snapshot(env: Mapping[str, str] | None = None, flags: Flags = Flags()) -> Snapshot:
    """What `arbiter demo` serves: the echo provider under every usual model name, and no keys."""
    return parse(DEMO, "demo", env or {}, flags)


class _Resolver:
    """One pass over a decoded file."""

    def __init__(
        self,
        config: schema.Config,
        decoder: Decoder,
        base: Path,
        env: Mapping[str, str],
        flags: Flags,
        look_up: LookUp | None,
    ) -> None:
        self.config = config
        self.error = decoder.error
        self.stands = decoder.lines.__contains__  # whether a key is in the file
        self.bare = decoder.bare
        self.keyless, self.asked = decoder.keyless, decoder.asked
        self.base = base  # relative paths of secret and certificate files start at the configuration file
        self.env = env
        self.flags = flags
        self.look_up = look_up
        self.warnings: list[str] = []

    def snapshot(self) -> Snapshot:
        config = self.config
        if not config.providers:
            raise self.error("providers", f"at least one provider is needed; {_SMALLEST}")
        affinity = self._affinity()
        made = Providers(self.error, self.stands, self.warnings, self.base, self.env, affinity.ttl_s, self._is_unasked)
        providers = Catalog(self.error, self.stands, self.warnings).known(
            config.models,
            {name: made.known(name, written) for name, written in config.providers.items()},
            config.routing.default_provider,
        )
        data = data_dir(self.env)
        pricing = Sources(self.error, self.base, data).pricing(config.prices, providers)
        if self.look_up is not None:
            known = self.look_up(pricing, providers)
            providers = {name: replace(one, known=known.get(name, {})) for name, one in providers.items()}
        models = self._models(providers)
        names = Names(config.aliases, providers, models, self.error, self.stands, self.warnings)
        reasoning_keys = self._reasoning_keys()
        snapshot = Snapshot(
            server=self._server(),
            limits=Limits(**msgspec.structs.asdict(config.limits)),
            auth=Auth(config.auth.mode),
            admin=self._admin(),
            storage=self._storage(data),
            state_dir=state_dir(config.state, data, partial(self.error, "state")),
            telemetry=Telemetry(config.telemetry.log.level, config.telemetry.log.format, config.telemetry.metrics),
            providers=providers,
            models=models,
            aliases=names.aliases(),
            routing=names.routing(config.routing),
            clients=clients(config.clients, config.auth.mode, self.error, self.warnings),
            plugins=self._plugins(),
            epoch="",
            affinity=affinity,
            search=self._search(),
            sessions=self._sessions(),
            data_dir=data,
            pricing=pricing,
            reasoning_keys=reasoning_keys,
            has_own_keys=bool(reasoning_keys),
        )
        check_whole(snapshot, self.error)
        # Where and by how many it is served says nothing about how: `check` and `serve --port` name one epoch.
        resolved = redacted(snapshot)
        resolved["server"] = {key: value for key, value in resolved["server"].items() if key not in _WHERE}
        # As the environment gives them, values may hold bytes that are not UTF-8.
        canonical = json.dumps(resolved, sort_keys=True, ensure_ascii=True).encode()
        epoch = hashlib.sha256(canonical).hexdigest()[:12]
        warnings = (*self.warnings, *doubts(snapshot, self.bare), *spoken.doubts(providers))
        return replace(snapshot, epoch=epoch, warnings=warnings)

    def local(self) -> Local:
        config, data = self.config, data_dir(self.env)
        return Local(
            server=self._server(),
            storage=self._storage(data),
            clients=clients(config.clients, config.auth.mode, self.error, self.warnings),
            prepaid=tuple(map(prepaid, config.prices.prepaid)),
            search=self._search(),
            reasoning_keys=self._reasoning_keys(),
            data_dir=data,
        )

    def _is_unasked(self, provider: str) -> bool:
        return self.keyless and provider not in self.asked

    def _reasoning_keys(self) -> tuple[bytes, ...]:
        return () if self.keyless else reasoning.configured(self.config.reasoning, self.base, self.env, self.error)

    def _server(self) -> Server:
        written, flags, env = self.config.server, self.flags, self.env
        bind, port, socket = written.bind, written.port, written.socket
        if host := env.get("HOST"):
            # Build tools and some shells set HOST to other things; those must not keep us from starting.
            if _is_address(host):
                bind = host
            else:
                self.warnings.append("HOST is set, but is not an IP address or localhost; ignored")
        if text := env.get("PORT"):
            if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 65535:
                raise ConfigError("PORT: expected a whole number from 1 to 65535")
            port = int(text)
        if flags.bind is not None or flags.port is not None:
            socket = flags.socket
            if socket is not None:
                self.warnings.append("--socket takes the place of address and port: --bind and --port are ignored")
        elif flags.socket is not None:
            socket = flags.socket
        bind, port = flags.bind or bind, flags.port or port
        if not _is_address(bind):
            raise self.error("server.bind", "expected an IP address or localhost")
        if socket is not None and (not socket or "\0" in socket or len(os.fsencode(socket)) > 107):
            raise self.error("server.socket", "expected the path of a unix socket, at most 107 bytes")
        networks: list[Network] = []
        for index, network in enumerate(written.trusted_proxies):
            try:
                networks.append(ipaddress.ip_network(network))
            except ValueError:
                message = "expected a network like 10.0.0.0/8 or an address"
                raise self.error(join("server.trusted_proxies", index), message) from None
        return Server(
            bind=bind,
            port=port,
            socket=socket,
            workers=flags.workers or (_cores() if written.workers == "auto" else written.workers),
            drain_s=written.drain_s,
            keepalive_s=written.keepalive_s,
            commit_after_s=written.commit_after_s,
            stream_failure=written.stream_failure,
            trusted_proxies=tuple(networks),
        )

    def _affinity(self) -> SessionAffinity:
        written = self.config.session_affinity
        check_header(written.header, "", partial(self.error, "session_affinity.header"))
        return SessionAffinity(written.header.lower(), written.ttl_s, frozenset(written.no_pin))

    def _models(self, providers: dict[str, Provider]) -> dict[str, tuple[Provider, Model]]:
        """Bare names: the provider listed first wins, and the operator hears of it."""
        found: dict[str, tuple[Provider, Model]] = {}
        for provider in providers.values():
            for model in provider.models:
                first, _ = found.setdefault(model.id, (provider, model))
                if first is not provider:
                    self.warnings.append(
                        f'"{model.id}" is declared by {first.name} and {provider.name}: the bare name goes to '
                        f"{first.name}; ask for {provider.name}/{model.id} to choose"
                    )
        return found

    def _sessions(self) -> Sessions:
        written = self.config.sessions
        titles = Titles(written.titles.alias, written.titles.per_day) if written.titles.alias is not None else None
        return Sessions(written.trust_user_agent, written.prompt_cache_key, written.idle_timeout_s, titles)

    def _search(self) -> Search:
        index, embed = self.config.search.index, self.config.search.embed
        made = Embed(embed.alias, embed.dimensions, embed.per_day) if embed.alias is not None else None
        return Search(index, made)

    def _admin(self) -> Admin:
        token, header = self.config.admin.token.strip(), self.config.admin.forward_auth_header
        if not token and not self.keyless:
            # In a container the token arrives in the environment, whatever the file says.
            token = variable("ARBITER_ADMIN_TOKEN", self.env, partial(self.error, "admin.token")) or ""
        check_secret(token, partial(self.error, "admin.token"))
        if header is not None:
            check_header(header, "", partial(self.error, "admin.forward_auth_header"))
        return Admin(token, header.lower() if header else None)

    def _storage(self, data: Path) -> Storage:
        written = self.config.storage
        path, url = store(written.url, data, partial(self.error, "storage.url"))
        return Storage(
            url=url,
            shown=hidden(url),
            path=path,
            secrets=passwords(url),
            journal_max=written.journal_max,
            on_full=written.on_full,
            capture=self._capture(url),
            rows_ttl_s=None if written.rows_ttl == "never" else written.rows_ttl,
        )

    def _capture(self, url: str) -> Capture:
        written = self.config.storage.capture
        for index, pattern in enumerate(written.redact):
            check_pattern(pattern, partial(self.error, join("storage.capture.redact", index)))
        capture = Capture(**{**msgspec.structs.asdict(written), "redact": tuple(written.redact)})
        if url == "none" and (capture.is_on or self.config.search.index):
            self.warnings.append("storage.url is none: nothing is captured, and there is nothing to search")
        return capture

    def _plugins(self) -> tuple[PluginSpec, ...]:
        for index, written in enumerate(self.config.plugins):
            module, colon, name = written.use.partition(":")
            if not colon or not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
                raise self.error(join(join("plugins", index), "use"), "expected module:Class")
        return tuple(PluginSpec(written.use, written.required) for written in self.config.plugins)


def _cores() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _is_address(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
