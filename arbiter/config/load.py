"""From a file and an environment to a Snapshot.

`parse` decodes the text (`decode`) and resolves it here: defaults that depend on something, endpoints, secrets from
files, aliases, and what no single key can know (a model at two providers). Whatever is wrong is one ConfigError.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from arbiter.config import schema
from arbiter.config.address import data_dir, endpoint, sqlite_path, state_dir
from arbiter.config.decode import Decoder, join, nearest
from arbiter.config.snapshot import (
    Account,
    Admin,
    Alias,
    Auth,
    Budgets,
    Client,
    Limits,
    Member,
    Model,
    Network,
    PluginSpec,
    Provider,
    Rate,
    Routing,
    Server,
    Snapshot,
    Storage,
    Telemetry,
)
from arbiter.config.source import ConfigError, read_secret, read_text, variable
from arbiter.config.words import check_header, check_identifier, check_name, check_secret

__all__ = ["ConfigError", "Flags", "NoConfig", "Source", "config_path", "demo_snapshot", "load", "parse"]

DEFAULT_PATH = "arbiter.yaml"
MAX_ALIAS_STEPS = 8  # more is a mistake that nobody can read any more
_WIRES = {"openai": "openai-chat", "ollama": "openai-chat", "anthropic": "anthropic-messages", "echo": "any"}
_HEADERS_S = {"anthropic": 120.0}
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


@dataclass(frozen=True, slots=True)
class Source:
    """Where a configuration comes from, so that a reload can ask again."""

    path: Path | None
    env: Mapping[str, str] = field(repr=False)
    flags: Flags = Flags()
    demo: bool = False

    def load(self) -> Snapshot:
        """The configuration as it stands now. Errors: ConfigError."""
        return demo_snapshot(self.env, self.flags) if self.demo else load(self.path, self.env, self.flags)

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


def load(path: Path | None, env: Mapping[str, str], flags: Flags = Flags()) -> Snapshot:
    """Read and resolve a configuration file. Errors: ConfigError."""
    chosen = config_path(path, env)
    if path is None and not env.get("ARBITER_CONFIG") and not chosen.exists():
        raise NoConfig(
            f"there is no {DEFAULT_PATH} here; name one with --config or ARBITER_CONFIG, "
            f"try `arbiter demo`, which needs none, or write one: {_SMALLEST}"
        )
    return parse(read_text(chosen), str(chosen), env, flags)


def parse(text: str, name: str, env: Mapping[str, str], flags: Flags = Flags()) -> Snapshot:
    """Resolve a configuration from its text; `name` stands for the file in messages and anchors relative paths.

    Errors: ConfigError, and nothing else.
    """
    decoder = Decoder(name, env)
    config = decoder.read(text, schema.Config)
    if config is None:
        raise ConfigError(f"the file is empty; {_SMALLEST}", file=name)
    return _Resolver(config, decoder, Path(name).parent, env, flags).snapshot()


DEMO = """\
server: { workers: 1 }
auth: { mode: none }
providers:
  echo:
    type: echo
    models: [claude-opus-4-5, claude-sonnet-4-5, claude-haiku-4-5, gpt-5.2, gpt-5.2-codex, gpt-5.2-mini, o4-mini,
      gemini-3-pro, gemini-3-flash, deepseek-chat, deepseek-reasoner, grok-4, kimi-k2, glm-4.6, llama-4, mistral-large,
      qwen3-coder, echo]
routing: { default_provider: echo }
telemetry: { log: { format: text } }
"""


def demo_snapshot(env: Mapping[str, str] | None = None, flags: Flags = Flags()) -> Snapshot:
    """What `arbiter demo` serves: the echo provider under every usual model name, and no keys."""
    return parse(DEMO, "demo", env or {}, flags)


class _Resolver:
    """One pass over a decoded file."""

    def __init__(
        self, config: schema.Config, decoder: Decoder, base: Path, env: Mapping[str, str], flags: Flags
    ) -> None:
        self.config = config
        self.error = decoder.error
        self.base = base  # relative paths of secret and certificate files start at the configuration file
        self.env = env
        self.flags = flags
        self.warnings: list[str] = []

    def snapshot(self) -> Snapshot:
        config = self.config
        if not config.providers:
            raise self.error("providers", f"at least one provider is needed; {_SMALLEST}")
        cap_s = self._cap_s()
        providers = self._priced(
            {name: self._provider(name, written, cap_s) for name, written in config.providers.items()}
        )
        models = self._models(providers)
        data = data_dir(self.env)
        default = config.routing.default_provider
        if default is not None and default not in providers:
            raise self.error("routing.default_provider", f"no such provider{nearest(default, providers)}")
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
            aliases=self._aliases(providers, models),
            routing=Routing(default),
            clients=self._clients(),
            plugins=self._plugins(),
            epoch="",
        )
        # Where and by how many it is served says nothing about how: `check` and `serve --port` name one epoch.
        resolved = snapshot.redacted()
        resolved["server"] = {key: value for key, value in resolved["server"].items() if key not in _WHERE}
        # As the environment gives them, values may hold bytes that are not UTF-8.
        canonical = json.dumps(resolved, sort_keys=True, ensure_ascii=True).encode()
        epoch = hashlib.sha256(canonical).hexdigest()[:12]
        return replace(snapshot, epoch=epoch, warnings=tuple(self.warnings))

    def _cap_s(self) -> float:
        raw = self.env.get("ARBITER_PROVIDER_TIMEOUT_MS") or "0"
        if not raw.isascii() or not raw.isdigit() or len(raw) > 12:
            raise ConfigError("ARBITER_PROVIDER_TIMEOUT_MS: expected a whole number of milliseconds")
        return int(raw) / 1000

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

    def _provider(self, name: str, written: schema.Provider, cap_s: float) -> Provider:
        path = join("providers", name)
        check_name(name, partial(self.error, path))
        key = self._key(path, written)
        place = endpoint(written, path, self.base, self.env, self.error)
        if written.type == "echo":
            for option in ("key", "key_file", "endpoint", "proxy", "host"):
                if getattr(written, option) is not None:
                    raise self.error(join(path, option), "the echo provider is built in and takes none")
        elif not key and written.endpoint is None and written.type != "ollama":
            self.warnings.append(f"{path}: no key; {place.host} will refuse every request")
        elif key and place.scheme == "http" and place.uds is None and not _is_loopback(place.host):
            self.warnings.append(f"{path}: the key crosses the network unencrypted (http://{place.host})")
        if _WIRES[written.type] == "openai-chat" and place.path == "":
            self.warnings.append(
                f"{join(path, 'endpoint')}: no path; most servers of OpenAI's format live under /v1, as in "
                "http://localhost:8000/v1"
            )
        self._warn_of_idle(written, path)
        models: dict[str, Model] = {}
        for index, entry in enumerate(written.models):
            here = join(join(path, "models"), index)
            if isinstance(entry, str):
                model = Model(entry, entry)
            else:
                model = Model(entry.id, entry.upstream or entry.id, entry.max_output_tokens)
            for text in (model.id, model.upstream):
                check_identifier(text, partial(self.error, here))
            if model.id in models:
                raise self.error(here, f'"{model.id}" is listed twice')
            models[model.id] = model
        timeouts = written.timeouts
        headers_s = timeouts.headers_s if timeouts.headers_s is not None else _HEADERS_S.get(written.type, 60.0)
        written_s = {**msgspec.structs.asdict(timeouts), "headers_s": headers_s}
        budgets = Budgets(**{phase: _capped(budget_s, cap_s) for phase, budget_s in written_s.items()})
        headers = []
        for header, value in written.headers.items():
            here = join(join(path, "headers"), header)
            check_header(header, value, partial(self.error, here))
            headers.append((header, value))
        for index, header in enumerate(written.forward_headers):
            here = join(join(path, "forward_headers"), index)
            check_header(header, "", partial(self.error, here), forwarded=True)
        return Provider(
            name=name,
            type=written.type,
            wire=_WIRES[written.type],
            endpoint=place,
            accounts=(Account(None, key),),
            models=tuple(models.values()),
            relay=written.relay,
            prompt_cache=written.prompt_cache,
            prompt_cache_ttl=written.prompt_cache_ttl,
            attribution=written.attribution,
            budgets=budgets,
            max_connections=written.connections.max,
            idle_connections=written.connections.idle,
            idle_for_s=written.connections.idle_for_s,
            headers=tuple(headers),
            forward_headers=tuple(header.lower() for header in written.forward_headers),
        )

    def _warn_of_idle(self, written: schema.Provider, path: str) -> None:
        """Warn of keys that do nothing where they stand."""
        if _WIRES[written.type] == "openai-chat":
            for option, default in (("prompt_cache", "auto"), ("prompt_cache_ttl", "5m")):
                if getattr(written, option) != default:
                    self.warnings.append(
                        f"{join(path, option)}: has no effect; only Anthropic's format has cache marks"
                    )
            if written.attribution == "keep":
                self.warnings.append(
                    f"{join(path, 'attribution')}: has no effect; the line never leaves for {written.type}"
                )
        elif written.prompt_cache in ("off", "client") and written.prompt_cache_ttl != "5m":
            self.warnings.append(
                f"{join(path, 'prompt_cache_ttl')}: has no effect; with prompt_cache: {written.prompt_cache} Arbiter "
                "sets no marks"
            )

    def _key(self, path: str, written: schema.Provider) -> str:
        if written.key is not None and written.key_file is not None:
            raise self.error(join(path, "key_file"), "give either key or key_file")
        option, key = "key", (written.key or "").strip()
        if written.key_file is not None:
            option = "key_file"
            here = join(path, option)
            key = read_secret(self.base / written.key_file, option, partial(self.error, here))
        check_secret(key, partial(self.error, join(path, option)))
        return key

    def _priced(self, providers: dict[str, Provider]) -> dict[str, Provider]:
        """The providers with the prices of `models`, under the names that their models are asked for by."""
        rates: dict[str, dict[str, Rate]] = {name: {} for name in providers}
        for index, row in enumerate(self.config.models):
            here = join("models", index)
            name, _, model_id = row.model.partition("/")
            provider, path = providers.get(name), join(here, "model")
            whole = {f"{known.name}/{model.id}" for known in providers.values() for model in known.models}
            if provider is None or not model_id:
                raise self.error(path, f'expected provider/model, and "{row.model}" is none{nearest(row.model, whole)}')
            check_identifier(model_id, partial(self.error, path))
            model = provider.model(model_id)
            # Names that are not declared reach a provider that lists none, and the default one.
            if model is None and provider.models and name != self.config.routing.default_provider:
                hint = nearest(row.model, whole)
                raise self.error(path, f'{name} declares no model "{model_id}"{hint}')
            asked = model.upstream if model is not None else model_id
            if asked in rates[name]:
                raise self.error(path, f'"{asked}" of {name} has a price already')
            rates[name][asked] = self._rate(row, here, provider)
        return {name: replace(provider, rates=rates[name]) for name, provider in providers.items()}

    def _rate(self, row: schema.CatalogRow, here: str, provider: Provider) -> Rate:
        tiers: dict[int, Rate] = {}
        for index, tier in enumerate(row.tiers):
            path = join(join(here, "tiers"), index)
            if tier.above_input_tokens in tiers:
                raise self.error(path, f"there is a tier above {tier.above_input_tokens} already")
            tiers[tier.above_input_tokens] = self._prices(tier, path, provider)
        return replace(self._prices(row, here, provider), tiers=tuple(sorted(tiers.items(), reverse=True)))

    def _prices(self, written: schema.Prices, path: str, provider: Provider) -> Rate:
        rate = Rate(
            input=written.input_pd,
            cached_input=written.cached_input_pd,
            cache_write_5m=written.cache_write_5m_pd,
            cache_write_1h=written.cache_write_1h_pd,
            output=written.output_pd,
        )
        if rate == Rate():
            raise self.error(path, "no price stands here; at least one …_usd_per_mtok is needed, 0 where it is free")
        usual = {"input", "cached_input", "output"} | ({"cache_write_5m"} if provider.type == "anthropic" else set())
        missing = [f"{kind}_usd_per_mtok" for kind, pd in rate.items() if pd is None and kind in usual]
        if missing:
            self.warnings.append(f"{path}: without {', '.join(missing)}; what uses such tokens has no known cost")
        return rate

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

    def _aliases(self, providers: dict[str, Provider], models: dict[str, tuple[Provider, Model]]) -> dict[str, Alias]:
        """Every alias under its name, and once more under the name it is advertised as."""
        written = self.config.aliases
        found: dict[str, Alias] = {}
        for name, alias in written.items():
            path = join("aliases", name)
            check_identifier(name, partial(self.error, path))
            self._check_free(name, path, providers, models)
            provider, model = self._pinned(name, providers, models)
            member = Member(provider, model)
            found[name] = Alias(
                name, (member,), display_name=alias.display_name or None, advertise_as=alias.advertise_as or None
            )
        for alias_found in list(found.values()):
            shown, path = alias_found.advertise_as, join(join("aliases", alias_found.name), "advertise_as")
            if shown is None or shown == alias_found.name:
                continue
            check_identifier(shown, partial(self.error, path))
            self._check_free(shown, path, providers, models)
            if shown in found:
                raise self.error(path, f'"{shown}" is taken by another alias')
            found[shown] = alias_found
        return found

    def _check_free(
        self, name: str, path: str, providers: dict[str, Provider], models: dict[str, tuple[Provider, Model]]
    ) -> None:
        if name in providers:
            raise self.error(path, f'"{name}" is the name of a provider; choose another')
        if name.split("/", 1)[0] in providers and "/" in name:
            raise self.error(path, f'"{name}" would be read as provider/model; choose another')
        if name in models:
            self.warnings.append(f'{path}: "{name}" is a declared model, which wins over the alias')

    def _pinned(
        self, name: str, providers: dict[str, Provider], models: dict[str, tuple[Provider, Model]]
    ) -> tuple[str, str]:
        """Provider and model id behind an alias, read in the order in which a request's `model` is."""
        aliases, seen, step = self.config.aliases, [name], name
        while True:
            path = join(join("aliases", step), "pin")
            pin = aliases[step].pin
            if pin in models:
                return models[pin][0].name, pin
            provider, slash, model = pin.partition("/")
            if slash and provider in providers:
                declared = [known.id for known in providers[provider].models]
                # A provider that lists no models serves whatever it is asked for by name.
                if (declared or not model) and model not in declared:
                    hint = nearest(model, declared) or f"; add it to {join('providers', provider)}.models"
                    raise self.error(path, f'{provider} declares no model "{model}"{hint}')
                return provider, model
            if pin not in aliases:
                whole = {f"{provider.name}/{model.id}" for provider in providers.values() for model in provider.models}
                known = ({*aliases, *models} | whole) - {step}
                raise self.error(path, f'no model, provider/model or alias is called "{pin}"{nearest(pin, known)}')
            if pin in seen:
                raise self.error(path, f"aliases point at each other: {' → '.join([*seen, pin])}")
            if len(seen) == MAX_ALIAS_STEPS:
                raise self.error(path, f"more than {MAX_ALIAS_STEPS} aliases lead from one to the next")
            seen.append(pin)
            step = pin

    def _clients(self) -> tuple[Client, ...]:
        found: dict[str, Client] = {}
        hashes: dict[str, str] = {}
        for index, written in enumerate(self.config.clients):
            path = join("clients", index)
            check_name(written.name, partial(self.error, join(path, "name")))
            digest = written.key_hash.removeprefix("sha256:")
            if digest == written.key_hash or len(digest) != 64 or not set(digest) <= set("0123456789abcdefABCDEF"):
                message = "expected sha256: and 64 hexadecimal digits, from `arbiter keys new`; never the key itself"
                raise self.error(join(path, "key_hash"), message)
            digest = digest.lower()
            if written.name in found:
                raise self.error(join(path, "name"), f'"{written.name}" is listed twice')
            if digest in hashes:
                raise self.error(join(path, "key_hash"), f"the key of {hashes[digest]}; every client has its own")
            if not written.allow:
                raise self.error(join(path, "allow"), "an empty list allows nothing; remove it, or name models")
            hashes[digest] = written.name
            found[written.name] = Client(written.name, digest, written.agent or None, tuple(written.allow))
        if self.config.auth.mode == "require" and not found:
            self.warnings.append("auth.mode is require and there are no clients: every request will be refused")
        if self.config.auth.mode == "none" and found:
            self.warnings.append("auth.mode is none: the keys of clients are ignored")
        return tuple(found.values())

    def _admin(self) -> Admin:
        token, header = self.config.admin.token.strip(), self.config.admin.forward_auth_header
        if not token:
            # In a container the token arrives in the environment, whatever the file says.
            token = variable("ARBITER_ADMIN_TOKEN", self.env, partial(self.error, "admin.token")) or ""
        check_secret(token, partial(self.error, "admin.token"))
        if header is not None:
            check_header(header, "", partial(self.error, "admin.forward_auth_header"))
        return Admin(token, header.lower() if header else None)

    def _storage(self, data: Path) -> Storage:
        written = self.config.storage
        path, url = sqlite_path(written.url, data, partial(self.error, "storage.url"))
        return Storage(url, path, written.journal_max, written.on_full)

    def _plugins(self) -> tuple[PluginSpec, ...]:
        for index, written in enumerate(self.config.plugins):
            module, colon, name = written.use.partition(":")
            if not colon or not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
                raise self.error(join(join("plugins", index), "use"), "expected module:Class")
        return tuple(PluginSpec(written.use, written.required) for written in self.config.plugins)


def _capped(budget_s: float, cap_s: float) -> float:
    if not cap_s:
        return budget_s
    return min(budget_s, cap_s) if budget_s else cap_s


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


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
