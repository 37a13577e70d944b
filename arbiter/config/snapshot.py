"""What the configuration comes to: immutable values, checked, with every default filled in.

A reload builds a new Snapshot beside the old one and swaps the reference; a request keeps the one it began with.
Secrets are fields without a `repr`; `config.redacted` shows the whole without them.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from arbiter.config.rates import Card, Known, Pricing, Rate

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def key_digest(key: str) -> str:
    """The hexadecimal SHA-256 by which a client key is known; `Client.key_sha256` holds the same.

    Plain SHA-256 serves here because our keys are 256 random bits: there is nothing to guess one by one.
    """
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place to connect to, and how: equal endpoints may share connections.

    `path` is the base path without a trailing slash ("" or "/v1"). `host_header` is set only where the operator
    replaced the default. `scheme` is "http", "https", or "echo" (nothing to connect to). `http2`: it is spoken to in
    HTTP/2 and nothing else.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    host_header: str | None = None
    uds: str | None = None
    proxy: str | None = field(default=None, repr=False)  # may hold credentials
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    http2: bool = False

    @property
    def authority(self) -> str:
        """The Host header: what was configured (a signature may cover it), else where we connect to."""
        if self.host_header is not None:
            return self.host_header
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.uds is None and self.port != (443 if self.scheme == "https" else 80):
            return f"{host}:{self.port}"
        return host

    @property
    def url(self) -> str:
        """The endpoint for people: no credentials, no default port."""
        if self.scheme == "echo":
            return "echo:"
        if self.uds is not None:
            return f"unix://{self.uds}{':' + self.path if self.path else ''}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == (443 if self.scheme == "https" else 80) else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


@dataclass(frozen=True, slots=True)
class Budgets:
    """How long each phase of an attempt may take; 0 = no limit."""

    queue_s: float = 10.0
    connect_s: float = 10.0
    headers_s: float = 60.0
    first_event_s: float = 0.0
    idle_s: float = 0.0
    unary_s: float = 600.0
    total_s: float = 0.0

    def items(self) -> Iterator[tuple[str, float]]:
        """Each phase's name, as SPEC 3.3 and the file spell it, with its budget."""
        for name in self.__slots__:
            yield name.removesuffix("_s"), getattr(self, name)


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """What the operator knows of a prompt cache: the smallest loss that counts and the shortest prompt that is cached,
    in tokens, and how long it is kept. None: nobody said."""

    floor: int | None = None
    minimum: int | None = None
    ttl_s: float | None = None


APIS = {
    "chat": "openai-chat",
    "responses": "openai-responses",
    "messages": "anthropic-messages",
    "converse": "bedrock-converse",
}
"""The format of each API that a model may be asked through."""


@dataclass(frozen=True, slots=True)
class Model:
    """A declared model: `id` is what clients say, `upstream` what the provider is sent.

    `max_output` is the most it writes, in tokens; None where nobody said. `api` is what it is asked through, a key of
    `APIS`; None where the provider's format says.
    """

    id: str
    upstream: str
    max_output: int | None = None
    cache: CacheFacts = CacheFacts()
    api: str | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """One key of a provider. `label` names it in rows, logs and state; None for the only key where there is no pool.
    Caches, rate limits and cooldowns belong to accounts.

    One that signs (Bedrock) has the `access_id` of its secret `key`, and a `session_token` where both are borrowed.

    A caller's own login is an account for the length of one request: `sent` are the headers that it came in, and go out
    as they are; `label` is its fingerprint. A login of the gateway's own is one for as long as its access token lives.
    """

    label: str | None = None
    key: str = field(default="", repr=False)
    sent: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    access_id: str = ""
    session_token: str = field(default="", repr=False)
    name: str = field(init=False, repr=False)
    """What the shared state knows it by: another key under the same label is another account, and has not been limited
    or refused. A few digits of a hash tell keys apart, and nothing about them."""

    def __post_init__(self) -> None:
        digits = f"#{key_digest(self.key)[:6]}" if self.key else ""
        object.__setattr__(self, "name", (self.label or "") + digits)

    @staticmethod
    def label_of(name: str) -> str | None:
        """The label in what the shared state knows an account by."""
        return name.partition("#")[0] or None


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and for how long, one request is tried (SPEC 4.1, 4.2)."""

    attempts: int = 8
    budget_s: float = 10.0
    base_s: float = 0.25
    cap_s: float = 8.0
    before_fallback: int = 2
    accepted_timeout: int = 1


@dataclass(frozen=True, slots=True)
class OAuth:
    """How a login of the gateway's own is had and kept (`auth: oauth`). `token_at` and `device_at` are where to connect
    and the request target there; `clients` may be served on it, all where there are none."""

    token_at: tuple[Endpoint, str]
    client_id: str
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    encoding: Literal["form", "json"] = "form"
    authorize_url: str | None = None
    redirect_uri: str | None = None
    device_at: tuple[Endpoint, str] | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    refresh_before_s: float = 300.0
    clients: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """One of Google's: who it is, the key that it signs with (PEM), and where a token is had for what it signed.

    `token_at` is where to connect and the request target there, `audience` the same as the statement names it.
    """

    email: str
    private_key: str = field(repr=False)
    key_id: str
    token_at: tuple[Endpoint, str]
    audience: str


@dataclass(frozen=True, slots=True)
class VertexPlace:
    """Where the models of a Vertex provider are."""

    project: str
    location: str


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a provider may be asked, over all workers; 0 = no limit."""

    per_minute: int = 0
    per_day: int = 0


_UNKNOWN = Known()


@dataclass(frozen=True, slots=True)
class Provider:
    """One upstream.

    `wire` is the format it speaks ("openai-chat", "anthropic-messages", "google-gemini"; "any" for echo). `accounts`
    are its keys, in the file's order; there is always one, with an empty key where none was given. `rates` are the
    declared prices and `cards` the rest of the catalog, by the name that a model goes by at the provider. `pin_ttl_s`
    is how long a conversation stays with it after its last call. `known` is what was known of its declared models
    when the configuration was read, wherever it came from; `billing` and `priced_as` are the file's.
    """

    name: str
    type: str
    wire: str
    endpoint: Endpoint
    accounts: tuple[Account, ...] = (Account(),)
    models: tuple[Model, ...] = ()
    relay: Literal["native", "rebuild"] = "native"
    api: Literal["chat", "responses"] = "chat"
    api_version: str | None = None
    region: str | None = None
    responses_api: Literal["auto", "native", "transcode"] = "auto"
    prompt_cache: Literal["auto", "client", "arbiter", "off"] = "auto"
    prompt_cache_ttl: Literal["5m", "1h"] = "5m"
    attribution: Literal["auto", "keep", "drop"] = "auto"
    budgets: Budgets = Budgets()
    max_connections: int = 1000
    idle_connections: int = 64
    idle_for_s: float = 60.0
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    forward_headers: tuple[str, ...] = ()  # lower case; may be globs
    rates: Mapping[str, Rate] = field(default_factory=dict, hash=False)
    cards: Mapping[str, Card] = field(default_factory=dict, hash=False)
    retry: Retry = Retry()
    request_limits: RequestLimits = RequestLimits()
    pin_ttl_s: float = 25 * 3600.0
    cache: CacheFacts = CacheFacts()
    speechless: Literal["flag", "nudge"] = "flag"
    known: Mapping[str, Known] = field(default_factory=dict, hash=False)
    billing: Literal["metered", "subscription"] = "metered"
    priced_as: str | None = None
    auth: Literal["key", "passthrough", "oauth"] = "key"
    auto_models: bool = False
    oauth: OAuth | None = None
    vertex: VertexPlace | None = None
    service: ServiceAccount | None = None

    @property
    def takes_logins(self) -> bool:
        """Whether it is sent the caller's own credential, and with it the caller's own body (SPEC 6.5)."""
        return self.auth == "passthrough"

    @property
    def url(self) -> str:
        return self.endpoint.url

    @property
    def is_anthropics_own(self) -> bool:
        """Whether it is Anthropic's own API."""
        host = self.endpoint.host
        return host == "anthropic.com" or host.endswith(".anthropic.com")

    @property
    def drops_attribution(self) -> bool:
        """Whether Claude Code's attribution line is taken out (SPEC 2.2a). Anthropic removes it itself."""
        if self.attribution != "auto":
            return self.attribution == "drop"
        if self.takes_logins:
            return False
        return not self.is_anthropics_own

    def wire_of(self, upstream: str) -> str:
        """The format that a model is asked in, by the name that the provider is sent, where nobody said which."""
        if self.wire == APIS["converse"] and "anthropic.claude" in upstream.lower():
            return APIS["messages"]
        return self.wire

    def rate(self, upstream: str) -> Rate | None:
        """What a model costs, by the name that the provider is sent; None where nobody knows."""
        return self.known.get(upstream, _UNKNOWN).rate or self.rates.get(upstream)

    def window(self, upstream: str) -> int | None:
        """How many tokens of input a model takes; None where nobody knows. What the file says wins over price lists."""
        card = self.cards.get(upstream)
        declared = card.max_input if card is not None else None
        return declared if declared is not None else self.known.get(upstream, _UNKNOWN).max_input

    def model(self, model_id: str) -> Model | None:
        """The declared model of that id."""
        return next((model for model in self.models if model.id == model_id), None)


Select = Literal[
    "ordered", "random", "weighted", "cheapest_input", "cheapest_output", "fastest", "fastest_measured", "least_busy"
]


@dataclass(frozen=True, slots=True)
class Member:
    """What an alias or a fallback list points at: a model of a provider (`model` is its id), or another alias.

    Exactly one of `provider` (with `model`) and `alias` is set. `weight` counts for `select: weighted`.
    """

    provider: str | None = None
    model: str = ""
    alias: str | None = None
    weight: float = 1.0

    @property
    def name(self) -> str:
        """As an operator writes it."""
        return self.alias if self.alias is not None else f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class Alias:
    """A name of the operator's own: for one model (`is_group` False, one member), or for a group to select from."""

    name: str
    members: tuple[Member, ...]
    is_group: bool = False
    select: Select = "ordered"
    display_name: str | None = None
    advertise_as: str | None = None


@dataclass(frozen=True, slots=True)
class Routing:
    """`fallback` is tried when nothing that was asked for serves; `explicit_fallback`: for explicit models too."""

    default_provider: str | None = None
    fallback: tuple[Member, ...] = ()
    explicit_fallback: bool = False


@dataclass(frozen=True, slots=True)
class SessionAffinity:
    """Where a conversation is told from another (SPEC 5.7). `header` is in lower case; `no_pin` are request kinds."""

    header: str = "x-session-id"
    ttl_s: float = 25 * 3600.0
    no_pin: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Titles:
    """Who is asked for the titles of sessions, and how often on one day (SPEC 8.4)."""

    alias: str
    per_day: int = 50


@dataclass(frozen=True, slots=True)
class Sessions:
    """Which signals name a session, when one is over, and what it is called (SPEC 8.2, 8.4)."""

    trust_user_agent: bool = False
    prompt_cache_key: bool = False
    idle_timeout_s: float = 12 * 3600.0
    titles: Titles | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """A caller that has a key; `key_sha256` is 64 lower-case hexadecimal digits (`key_digest`).

    `overrides` are (asked, used): what it gets in place of what it asks for; the first may be a glob.
    """

    name: str
    key_sha256: str
    agent: str | None = None
    allow: tuple[str, ...] = ("*",)
    group: str | None = None
    expires_ms: int | None = None
    revoked_ms: int | None = None
    overrides: tuple[tuple[str, str], ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Server:
    bind: str = "127.0.0.1"
    port: int = 8080
    socket: str | None = None
    workers: int = 1
    drain_s: float = 30.0
    keepalive_s: float = 15.0
    commit_after_s: float = 15.0
    stream_failure: Literal["event", "abort", "both"] = "both"
    trusted_proxies: tuple[Network, ...] = (ipaddress.IPv4Network("127.0.0.1/32"),)

    def trusts(self, peer: str) -> bool:
        """Whether `peer`, an address without its port, is one of the trusted proxies."""
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.trusted_proxies)


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes."""

    body: int = 32 << 20
    headers: int = 64 << 10
    event: int = 16 << 20
    answer: int = 64 << 20
    stream_buffer: int = 256 << 10
    slow_sender_s: float = 30.0
    json_depth: int = 200


@dataclass(frozen=True, slots=True)
class Auth:
    mode: Literal["none", "attribute", "require"] = "attribute"


@dataclass(frozen=True, slots=True)
class Admin:
    token: str = field(default="", repr=False)
    forward_auth_header: str | None = None  # lower case


@dataclass(frozen=True, slots=True)
class Capture:
    """What is kept of the traffic itself (SPEC 7.8). `redact` are regular expressions; `max` is in bytes."""

    content: bool = False
    headers: bool = False
    ttl_s: float = 72 * 3600.0  # 0: for ever
    redact: tuple[str, ...] = ()
    preview_chars: int = 4096
    max: int = 256 << 20

    @property
    def is_on(self) -> bool:
        return self.content or self.headers


@dataclass(frozen=True, slots=True)
class Embed:
    """Who is asked for vectors, how wide these are to be, and how often on one day (SPEC 8.5)."""

    alias: str
    dimensions: int | None = None
    per_day: int = 1000


@dataclass(frozen=True, slots=True)
class Search:
    """Whether there is an index to search, and one of meanings (SPEC 8.5)."""

    index: bool = False
    embed: Embed | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """Where rows go. `url` may hold a password, `shown` is the same without; "none": nothing is recorded."""

    url: str = field(default="none", repr=False)
    shown: str = "none"
    path: Path | None = None  # the SQLite file, where it is one
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    journal_max: int = 1 << 30
    on_full: Literal["serve", "refuse"] = "serve"
    capture: Capture = Capture()
    rows_ttl_s: float | None = None  # None: for ever


@dataclass(frozen=True, slots=True)
class Telemetry:
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    metrics: bool = True


@dataclass(frozen=True, slots=True)
class PluginSpec:
    use: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One configuration, whole.

    `epoch` is a short hash of all of it but the secrets and where it listens; equal epochs behave alike.

    `models` answers a bare model name: the provider that listed it first, and the model. `providers` keep the file's
    order. `aliases` holds an alias under its name and, the same object, under its `advertise_as`.

    `clients` are the file's; `keys` come and go without it (`config.keyring`), and are no part of the epoch, nor are
    `reasoning_keys`, which seal reasoning; `has_own_keys` where these are not the data directory's.
    `fingerprint_key` is what fingerprints are made with; empty where none are needed.
    """

    server: Server
    limits: Limits
    auth: Auth
    admin: Admin
    storage: Storage
    state_dir: Path
    telemetry: Telemetry
    providers: dict[str, Provider]
    models: dict[str, tuple[Provider, Model]]
    aliases: dict[str, Alias]
    routing: Routing
    clients: tuple[Client, ...]
    plugins: tuple[PluginSpec, ...]
    epoch: str
    warnings: tuple[str, ...] = ()
    affinity: SessionAffinity = SessionAffinity()
    sessions: Sessions = Sessions()
    search: Search = Search()
    data_dir: Path = Path("data")
    keys: tuple[Client, ...] = ()
    reasoning_keys: tuple[bytes, ...] = field(default=(), repr=False)
    has_own_keys: bool = False
    pricing: Pricing = field(default_factory=Pricing)
    fingerprint_key: bytes = field(default=b"", repr=False)

    @property
    def callers(self) -> tuple[Client, ...]:
        """Everybody who has, or had, a key."""
        return self.clients + self.keys

    @property
    def client_names(self) -> list[str]:
        """Everybody who has a key, each once."""
        return list(dict.fromkeys(client.name for client in self.callers if client.revoked_ms is None))

    @property
    def takes_logins(self) -> bool:
        """Whether there is a provider that is sent its callers' own credentials."""
        return any(provider.takes_logins for provider in self.providers.values())

    @property
    def logins(self) -> tuple[Provider, ...]:
        """The providers that are asked on a login of the gateway's own."""
        return tuple(provider for provider in self.providers.values() if provider.oauth is not None)

    def secrets(self) -> frozenset[str]:
        """Every secret of this configuration, for whoever must keep them out of something."""
        found = {self.admin.token, *self.storage.secrets, *self.pricing.secrets()}
        for provider in self.providers.values():
            found.update(one for account in provider.accounts for one in (account.key, account.session_token))
            found.update(value for _, value in provider.headers)
            found.add(provider.endpoint.proxy or "")
            found.add(provider.oauth.client_secret if provider.oauth is not None else "")
        found.update(base64.urlsafe_b64encode(key).decode().rstrip("=") for key in self.reasoning_keys)
        return frozenset(found - {""})

    def rates(self) -> Iterator[tuple[str, Rate]]:
        """Each known price with its model, as `provider/model`."""
        for provider in self.providers.values():
            ids = {model.upstream: model.id for model in reversed(provider.models)}
            known = {name: one.rate for name, one in provider.known.items() if one.rate is not None}
            for name, rate in {**provider.rates, **known}.items():
                yield f"{provider.name}/{ids.get(name, name)}", rate

    def catalog(self) -> Iterator[tuple[str, Rate | None, Card | None]]:
        """Each model with a row in `models`, as `provider/model`, with that row's price and card."""
        for provider in self.providers.values():
            ids = {model.upstream: model.id for model in reversed(provider.models)}
            for name in dict.fromkeys((*provider.rates, *provider.cards)):
                yield f"{provider.name}/{ids.get(name, name)}", provider.rates.get(name), provider.cards.get(name)
