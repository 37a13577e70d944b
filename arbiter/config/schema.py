"""The file as written: one Struct per section, one field per key, with its default and what it means.

Nothing here acts. `decode` fills these from YAML, `load` resolves them, `reference` prints them for `docs/config.md`
and `arbiter check --schema`. Durations are held in seconds, sizes in bytes, prices in picodollars per token; a field's
unit is in its Python name, the file's spelling is its `name`. `not_built` lists keys that are planned: writing one is
an error that says so. `hints` has words of its own for keys that are likely to be written and are none, `meant` a
value's usual wrong names.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from arbiter.config.auth_schema import Key, OAuth, Tls
from arbiter.config.callers import Auth, Client, SessionAffinity, Sessions
from arbiter.config.price_schema import CatalogRow, PriceSources
from arbiter.config.reasoning import Reasoning
from arbiter.config.sections import Duration, Number, Secret, Section, Size, doc, instead
from arbiter.config.storage_schema import Search, Storage

_PRICED = ("input", "cached_input", "cache_write_5m", "cache_write_1h", "output")
_PRICES_STAND = "prices stand at the top level: `models: [{ model: provider/model, input_usd_per_mtok: … }]`"


class Server(Section):
    bind: Annotated[str, doc("Address to listen on. `0.0.0.0` (every interface) in the container image.")] = "127.0.0.1"
    port: Annotated[int, doc("TCP port to listen on.", ge=1, le=65535)] = 8080
    socket: Annotated[
        str | None,
        doc(
            "Path of a unix socket to listen on instead of an address and a port. Its directory must exist; only the "
            "gateway's own user may connect (0600)."
        ),
    ] = None
    workers: Annotated[
        Literal["auto"] | Annotated[int, Meta(ge=1, le=256)], doc("Worker processes; `auto` is one per usable core.")
    ] = "auto"
    drain_s: Annotated[
        Duration, doc("How long SIGTERM lets open requests finish. 2 s before the end, streams are ended properly.")
    ] = field(name="drain", default=30.0)
    keepalive_s: Annotated[
        Duration, doc("A stream silent for this long gets a comment or a ping, so that nobody hangs up. `0` is off.")
    ] = field(name="keepalive", default=15.0)
    commit_after_s: Annotated[
        Duration,
        doc("Latest moment at which a streaming client gets its 200 while the upstream has sent nothing. `0` waits."),
    ] = field(name="commit_after", default=15.0)
    stream_failure: Annotated[
        Literal["event", "abort", "both"],
        doc("How a stream that fails midway ends: an error event, a broken connection, or one after the other."),
    ] = "both"
    trusted_proxies: Annotated[
        list[str],
        doc("Networks whose `X-Forwarded-*` headers and `admin.forward_auth_header` are believed."),
    ] = field(default_factory=lambda: ["127.0.0.1/32"])


class Limits(Section):
    body: Annotated[Size, doc("Largest request body, after decompression; beyond it 413.", ge=1024)] = 32 << 20
    headers: Annotated[Size, doc("Largest request header block; beyond it 431.", ge=1024)] = 64 << 10
    event: Annotated[Size, doc("Largest single event of an upstream's stream.", ge=1024)] = 16 << 20
    answer: Annotated[Size, doc("Largest upstream answer that is not a stream.", ge=1024)] = 64 << 20
    stream_buffer: Annotated[
        Size, doc("Bytes a stream may hold for a slow client before its upstream is paused.", ge=4096)
    ] = 256 << 10
    slow_sender_s: Annotated[
        Duration, doc("A request body must have arrived within this time; else 408. `0` is off.")
    ] = field(name="slow_sender", default=30.0)
    json_depth: Annotated[int, doc("Deepest nesting of a request body; beyond it 400.", ge=16, le=500)] = 200


class Cache(Section):
    """What is known of a prompt cache: by this a loss is told from the ordinary (docs/ledger.md)."""

    hints: ClassVar[dict[str, str]] = {
        **instead("floor", "min_loss"),
        **instead("minimum", "min_tokens", "min"),
        **instead("ttl", "cache_ttl", "lifetime"),
    }

    floor: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        doc(
            "Losses of fewer tokens are not counted. Default: `2048` for Claude models, which read to the token, "
            "`8192` for others, which read in blocks."
        ),
    ] = None
    minimum: Annotated[
        Annotated[int, Meta(ge=0, le=10_000_000)] | None,
        doc(
            "Prompts of fewer tokens are not cached. Default: what is known of the model, `1024` to `4096` for Claude, "
            "`4096` for Gemini, `64` for DeepSeek, else `1024`."
        ),
    ] = None
    ttl_s: Annotated[
        Duration | None,
        doc(
            "What nobody used for so long may be gone, where a request's own cache marks say nothing else. Default: "
            "`5m`; GPT-5.6 and later `30m`, Gemini `1h`, DeepSeek `2h`."
        ),
    ] = field(name="ttl", default=None)


class Model(Section):
    hints: ClassVar[dict[str, str]] = {
        **instead("id", "name", "model"),
        **dict.fromkeys((f"{kind}_usd_per_mtok" for kind in _PRICED), _PRICES_STAND),
    }

    id: Annotated[str, doc("The name that clients, aliases and rows use.")]
    upstream: Annotated[str | None, doc("The name that the provider is sent. Default: the same as `id`.")] = None
    max_output_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        doc(
            "The most it writes in one answer. In translated requests a higher limit of the client's is lowered to it, "
            "and an Anthropic upstream, which must have a limit, gets it where the client set none."
        ),
    ] = None
    cache: Annotated[Cache, doc("What differs in its prompt cache from the provider's `cache`.")] = field(
        default_factory=Cache
    )
    api: Annotated[
        Literal["chat", "responses", "messages", "converse"] | None,
        doc(
            "The API that it is asked through, whatever the client speaks. Default: chat completions for `openai`, "
            "`azure`, `openrouter` and `ollama`, and for Responses as `responses_api` says; Messages for `anthropic`. "
            "A `bedrock` provider has `messages` (the default for Claude by its name) and `converse`. "
            "A `vertex` one has `messages` (the same), and else Google's own."
        ),
    ] = None


class Timeouts(Section):
    """The budgets of one attempt, phase by phase; `0` is off."""

    queue_s: Annotated[Duration, doc("Waiting for a free connection (`connections.max`).")] = field(
        name="queue", default=10.0
    )
    connect_s: Annotated[Duration, doc("Name look-up, connecting, TLS.")] = field(name="connect", default=10.0)
    headers_s: Annotated[
        Duration | None,
        doc(
            "From the sent request to a stream's response headers. Default: `60s`; "
            "`anthropic`, `bedrock`, `vertex`: `120s`."
        ),
    ] = field(name="headers", default=None)
    first_event_s: Annotated[Duration, doc("From the sent request to a stream's first event that is no ping.")] = field(
        name="first_event", default=0.0
    )
    idle_s: Annotated[
        Duration, doc("Silence inside a stream. Off, because some servers send a tool call whole, minutes later.")
    ] = field(name="idle", default=0.0)
    unary_s: Annotated[Duration, doc("A whole answer that is not a stream, in place of the other three.")] = field(
        name="unary", default=600.0
    )
    total_s: Annotated[Duration, doc("A whole stream.")] = field(name="total", default=0.0)


class Connections(Section):
    max: Annotated[int, doc("Open connections to this provider, per worker.", ge=1, le=100_000)] = 1000
    idle: Annotated[int, doc("Idle connections kept for reuse, per worker.", ge=0, le=100_000)] = 64
    idle_for_s: Annotated[Duration, doc("How long an idle connection is kept.")] = field(name="idle_for", default=60.0)


class Retry(Section):
    """How often, and for how long, one request is tried."""

    hints: ClassVar[dict[str, str]] = {
        **instead("attempts", "max", "max_attempts", "retries", "max_retries"),
        **instead("base", "delay", "backoff", "min_delay"),
        **instead("cap", "max_delay", "max_backoff"),
    }

    attempts: Annotated[
        int,
        doc(
            "Tries of one request in all, after which nothing is tried again. Another key or another target is still "
            "tried once.",
            ge=1,
            le=100,
        ),
    ] = 8
    budget_s: Annotated[
        Duration,
        doc("How long after a request's first failure a target may still be tried again. `0`: not at all."),
    ] = field(name="budget", default=10.0)
    base_s: Annotated[
        Duration, doc("Wait before a target is tried again; it doubles with each failure. Half of it is drawn.")
    ] = field(name="base", default=0.25)
    cap_s: Annotated[Duration, doc("The most that wait grows to. A longer one that the provider asks for is kept.")] = (
        field(name="cap", default=8.0)
    )
    before_fallback: Annotated[int, doc("Tries of this target while there is another one to go to.", ge=1, le=100)] = 2
    accepted_timeout: Annotated[
        int,
        doc(
            "How many time-outs of a request that a provider had accepted, and bills, are tried again: on the next "
            "target, on the same one where there is no other.",
            ge=0,
            le=10,
        ),
    ] = 1


class RequestLimits(Section):
    """What the provider may be asked, over all workers."""

    hints: ClassVar[dict[str, str]] = {
        **instead("requests_per_minute", "rpm", "per_minute"),
        **instead("requests_per_day", "rpd", "per_day"),
    }

    requests_per_minute: Annotated[
        int, doc("Requests a minute, all workers together. `0`: no limit.", ge=0, le=1_000_000_000)
    ] = 0
    requests_per_day: Annotated[
        int, doc("Requests a day, all workers together. `0`: no limit.", ge=0, le=1_000_000_000)
    ] = 0


class Provider(Section):
    hints: ClassVar[dict[str, str]] = {
        "max_output_tokens": "it stands with a model: `models: [{ id: …, max_output_tokens: … }]`",
        **instead("endpoint", "base_url", "baseURL", "url", "api_base"),
        **instead("key", "api_key", "apiKey"),
        **instead("keys", "api_keys", "accounts"),
        **instead("retry", "retries", "retry_max", "max_retries"),
    }

    type: Annotated[
        Literal["openai", "anthropic", "gemini", "vertex", "azure", "bedrock", "openrouter", "ollama", "echo"],
        Meta(
            extra={
                "not_built": ("decisions",),
                "meant": {
                    "claude": "anthropic",
                    "google": "gemini",
                    "gpt": "openai",
                    "openai-compatible": "openai",
                    "vllm": "openai",
                },
            }
        ),
        doc(
            "What it speaks: `openai`, `azure`, `openrouter` and `ollama` OpenAI Chat Completions, `anthropic` "
            "Messages, `gemini` and `vertex` Google's generateContent, `bedrock` Messages with Claude and Converse "
            "with others; `echo` is built in, needs no network and speaks them all."
        ),
    ]
    api: Annotated[
        Literal["chat", "responses"],
        doc(
            "Which of OpenAI's two APIs a provider that has both is asked in where the client's is neither: "
            "`chat` is what every server has; in `responses` OpenAI's own models also think where there are tools."
        ),
    ] = "chat"
    endpoint: Annotated[
        str | None,
        doc(
            "Base URL (`http`, `https`, or `unix:///path.sock:/base`). Default: `https://api.openai.com/v1`, "
            "`https://api.anthropic.com`, `https://generativelanguage.googleapis.com`, `https://openrouter.ai/api/v1`, "
            "`http://localhost:11434/v1`. `azure` needs its own, `https://NAME.openai.azure.com`; `bedrock` and "
            "`vertex` have that of their region; `echo` has none."
        ),
    ] = None
    api_version: Annotated[
        str | None,
        doc(
            "Of `azure`: the dated version of its older API, as in `2024-10-21`, which has a model's deployment in the "
            "path. Default: the API without versions, `/openai/v1`."
        ),
    ] = None
    region: Annotated[
        str | None, doc("Of `bedrock`: AWS's region, as in `us-east-1`. Default: `AWS_REGION`, `AWS_DEFAULT_REGION`.")
    ] = None
    access_key_id: Annotated[
        Secret | None,
        doc(
            "Of `bedrock`, in place of a `key`, which is a Bedrock API key: an access key that signs "
            "requests. Default, where neither is given: `AWS_BEARER_TOKEN_BEDROCK`, else `AWS_ACCESS_KEY_ID` and "
            "its secret."
        ),
    ] = None
    secret_access_key: Annotated[Secret | None, doc("The secret of `access_key_id`.")] = None
    session_token: Annotated[Secret | None, doc("The session token of a borrowed `access_key_id`.")] = None
    project: Annotated[str | None, doc("Of `vertex`: the id of the Google Cloud project that pays.")] = None
    location: Annotated[
        str | None, doc("Of `vertex`: the region that is asked, as in `us-east5`. Default: `global`.")
    ] = None
    credentials: Annotated[
        str | None,
        doc(
            "Of `vertex`: the key file of a service account (JSON). Tokens are had for it and renewed. In its place "
            "`key` may be an access token."
        ),
    ] = None
    key: Annotated[
        Secret | None,
        Meta(extra={"unset": ", or remove the provider"}),
        doc("Credential sent to the provider; usually `${VARIABLE}`."),
    ] = None
    key_file: Annotated[str | None, doc("File that holds the credential, in place of `key`.")] = None
    keys: Annotated[
        list[Annotated[Secret, Meta(extra={"unset": ", or remove it from the pool"})] | Key],
        doc("A pool of keys in place of `key`: `{ label: …, key: … }` each, or the key alone."),
    ] = field(default_factory=list)
    auth: Annotated[
        Literal["key", "passthrough", "oauth"],
        Meta(extra={"meant": {"login": "oauth", "subscription": "passthrough", "forward": "passthrough"}}),
        doc(
            "Whose credential the provider is sent: `key` the one given here, `passthrough` the caller's own, which "
            "goes to this provider alone, `oauth` a login of the gateway's own (docs/logins.md)."
        ),
    ] = "key"
    models: Annotated[
        list[str | Model],
        doc("Models it serves: a name, or `{ id: …, upstream: … }` where the provider's name differs."),
    ] = field(default_factory=list)
    oauth: Annotated[OAuth, doc("The login of `auth: oauth`: where it comes from, and how it is kept alive.")] = field(
        default_factory=OAuth
    )
    auto_models: Annotated[
        Literal["auto", "on", "off"],
        doc(
            "Whether names of its vendor's that nobody declares go to it: `claude-*` to an `anthropic` provider, "
            "`gpt-*`, `chatgpt-*`, `codex-*` and `o1` to `o9…` to an `openai` one. It is asked first whether it has "
            "such a model. `auto`: with `auth: passthrough` or `oauth`."
        ),
    ] = "auto"
    relay: Annotated[
        Literal["native", "rebuild"],
        doc(
            "`native` changes nothing of a request in the provider's own format that it need not change. `rebuild` is "
            "for servers that refuse members which they do not know: the request is made anew from what "
            "docs/formats.md names, other members are lost, and `n` above 1 is refused."
        ),
    ] = "native"
    responses_api: Annotated[
        Literal["auto", "native", "transcode"],
        doc(
            "How OpenAI's Responses are asked for: at the provider's own `/responses` (`native`), or through its chat "
            "completions (`transcode`). `auto`: at its own where it has a key, and for 15 minutes through chat once it "
            "answered 404, 405 or 501 there."
        ),
    ] = "auto"
    prompt_cache: Annotated[
        Literal["auto", "client", "arbiter", "off"],
        doc(
            "Who sets Anthropic's cache marks: the `client`, `arbiter` (last tool, system, newest message), nobody "
            "(`off`). `auto`: the client; in a translated request without marks, Arbiter. `arbiter` and `off` change "
            "native requests too."
        ),
    ] = "auto"
    prompt_cache_ttl: Annotated[Literal["5m", "1h"], doc("How long the provider keeps what Arbiter marks.")] = "5m"
    attribution: Annotated[
        Literal["auto", "keep", "drop"],
        doc("Claude Code's attribution line, first in `system`: `auto` keeps it for hosts under `anthropic.com` only."),
    ] = "auto"
    cache_ttl_s: Annotated[
        Duration | None,
        doc(
            "How long after its last call a conversation stays with this provider. `0`: not at all. Default: "
            "`session_affinity.ttl`."
        ),
    ] = field(name="cache_ttl", default=None)
    cache: Annotated[Cache, doc("What is known of its prompt cache: what counts as a loss of it.")] = field(
        default_factory=Cache
    )
    timeouts: Annotated[Timeouts, doc("Budgets of one attempt, phase by phase.")] = field(default_factory=Timeouts)
    retry: Annotated[Retry, doc("How often, and for how long, a request is tried.")] = field(default_factory=Retry)
    speechless: Annotated[
        Literal["flag", "nudge"],
        doc(
            "An answer without text and without a call: `flag` it in its row, or `nudge`: ask once more with a line "
            "that asks for the answer, which later turns never see."
        ),
    ] = "flag"
    connections: Annotated[Connections, doc("The connection pool.")] = field(default_factory=Connections)
    limits: Annotated[RequestLimits, doc("How much it may be asked, over all workers.")] = field(
        default_factory=RequestLimits
    )
    headers: Annotated[
        dict[str, Secret], doc("Extra request headers, applied last. Their values are treated as secrets.")
    ] = field(default_factory=dict)
    forward_headers: Annotated[
        list[str],
        doc(
            "The caller's headers that this provider may see, beside those the format needs; names, or globs like "
            "`x-opencode-*`. With `auth: passthrough` those that the vendor's own agents send, where the key is absent."
        ),
    ] = field(default_factory=list)
    host: Annotated[str | None, doc("`Host` header to send in place of the endpoint's own.")] = None
    http: Annotated[
        Literal["1.1", "2"],
        doc("Version of HTTP to speak; `2` is for servers that speak nothing else. Not for unix sockets."),
    ] = "1.1"
    billing: Annotated[
        Literal["metered", "subscription"] | None,
        Meta(extra={"meant": {"flat": "subscription", "tokens": "metered", "api": "metered"}}),
        doc(
            "How it is paid: by what is used, or by the month. What a subscription serves has no cost of its own; the "
            "row keeps beside it what the same would have cost. Default: `metered`; `subscription` with "
            "`auth: passthrough` or `oauth`."
        ),
    ] = None
    priced_as: Annotated[
        str | None,
        doc(
            "Whose prices hold where the endpoint does not tell (a proxy, a region of your own): a vendor's name in "
            "the price source, like `anthropic` or `openai`."
        ),
    ] = None
    proxy: Annotated[
        Secret | None,
        doc(
            "`http://`, `https://`, `socks5://` or `socks5h://` proxy; `none` for none. "
            "Default: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`; never for loopback."
        ),
    ] = None
    tls: Annotated[Tls, doc("Private authorities and client certificates.")] = field(default_factory=Tls)


class Alias(Section):
    not_built = frozenset({"force", "request_kind"})
    hints: ClassVar[dict[str, str]] = {
        **instead("pin", "model", "target"),
        **instead("group", "members", "models", "targets"),
        **instead("select", "strategy", "policy"),
        "fallback": "the members of a group that were not selected are its fallbacks; `routing.fallback` is for all",
    }

    pin: Annotated[
        str | None, doc("What the name stands for: `provider/model`, a model, or another alias. This or `group`.")
    ] = None
    group: Annotated[
        list[str], doc("Several of these to select from; who was not selected is a fallback, in the same order.")
    ] = field(default_factory=list)
    select: Annotated[
        Literal[
            "ordered",
            "random",
            "weighted",
            "cheapest_input",
            "cheapest_output",
            "fastest",
            "fastest_measured",
            "least_busy",
        ],
        Meta(
            extra={
                "meant": {
                    "priority": "ordered",
                    "failover": "ordered",
                    "round_robin": "random",
                    "balance": "random",
                    "cheapest": "cheapest_output",
                    "latency": "fastest_measured",
                }
            }
        ),
        doc("Who of a group is first."),
    ] = "ordered"
    weights: Annotated[
        dict[str, Number],
        doc("With `select: weighted`: how often a member is first, against the others. A member left out has 1."),
    ] = field(default_factory=dict)
    display_name: Annotated[str | None, doc("What `/models` shows people.")] = None
    advertise_as: Annotated[
        str | None,
        doc(
            "The name under which `/models` lists it, in place of its own; both may be asked for "
            "(Claude Code lists only names that begin with `claude`)."
        ),
    ] = None


class Routing(Section):
    not_built = frozenset({"rules"})
    hints: ClassVar[dict[str, str]] = instead("fallback", "fallbacks")

    default_provider: Annotated[
        str | None, doc("Provider for models that nobody declares. Default: none, they are answered 404.")
    ] = None
    fallback: Annotated[
        list[str],
        doc(
            "What is tried, in order, when nothing that an alias names serves: `provider/model`, a model, or an alias."
        ),
    ] = field(default_factory=list)
    explicit_fallback: Annotated[
        bool, doc("Fall back also where the client named a model, and not an alias: it may then get another one.")
    ] = False


class Admin(Section):
    token: Annotated[
        Secret,
        doc(
            "Needed for `/admin/`, also on the same host: browsers get a form, programs send `Authorization: Bearer "
            "TOKEN`. Empty: on a loopback address or a unix socket only callers on the same host are let in, and need "
            "none; on any other address a token is made at each start and printed on standard error."
        ),
    ] = ""
    forward_auth_header: Annotated[
        str | None, doc("Header in which a proxy of `server.trusted_proxies` names the user it has let in.")
    ] = None


class Log(Section):
    level: Annotated[Literal["debug", "info", "warn", "error"], doc("The least severe lines to write.")] = "info"
    format: Annotated[Literal["json", "text"], doc("One JSON object per line, or text for people.")] = "json"


class Telemetry(Section):
    not_built = frozenset({"otlp"})

    log: Annotated[Log, doc("Log lines, on standard error.")] = field(default_factory=Log)
    metrics: Annotated[bool, doc("Serve `/metrics` in Prometheus text format.")] = True


class Plugin(Section):
    use: Annotated[str, doc("`module:Class`; the module is imported in every process.")]
    required: Annotated[bool, doc("A failure keeps the process from serving; else it is a warning.")] = True


class Config(Section):
    """`arbiter.yaml`, whole."""

    not_built = frozenset(
        {
            "classifiers",
            "guardrails",
            "budgets",
            "alerts",
        }
    )
    server: Annotated[Server, doc("Where and how to listen.")] = field(default_factory=Server)
    limits: Annotated[Limits, doc("Bounds on what is accepted and held.")] = field(default_factory=Limits)
    auth: Annotated[Auth, doc("Whether callers need a key.")] = field(default_factory=Auth)
    clients: Annotated[list[Client], doc("The callers that have a key.")] = field(default_factory=list)
    providers: Annotated[dict[str, Provider], doc("The upstreams, by name. At least one.")] = field(
        default_factory=dict
    )
    models: Annotated[list[CatalogRow], doc("What models cost, and what else is known of them.")] = field(
        default_factory=list
    )
    prices: Annotated[PriceSources, doc("Where the prices of other models come from, and those of your own.")] = field(
        default_factory=PriceSources
    )
    aliases: Annotated[dict[str, Alias], doc("Names of your own for models and groups of them.")] = field(
        default_factory=dict
    )
    routing: Annotated[Routing, doc("Where a request goes.")] = field(default_factory=Routing)
    session_affinity: Annotated[
        SessionAffinity, doc("How a conversation stays with the account that has it in its cache.")
    ] = field(default_factory=SessionAffinity)
    sessions: Annotated[Sessions, doc("Which signals name a session, and who gives it a title.")] = field(
        default_factory=Sessions
    )
    reasoning: Annotated[Reasoning, doc("How reasoning crosses formats.")] = field(default_factory=Reasoning)
    state: Annotated[
        str | None,
        doc("What workers share: `lmdb:///absolute/path` or `lmdb:relative`. Default: `state` in the data directory."),
    ] = None
    storage: Annotated[Storage, doc("The record of every request.")] = field(default_factory=Storage)
    search: Annotated[Search, doc("Searching through what was kept.")] = field(default_factory=Search)
    admin: Annotated[Admin, doc("Who may open `/admin/`.")] = field(default_factory=Admin)
    telemetry: Annotated[Telemetry, doc("Logs and metrics.")] = field(default_factory=Telemetry)
    plugins: Annotated[list[Plugin], doc("Code of your own, started and stopped with each process.")] = field(
        default_factory=list
    )
