"""Which headers cross the gateway, in both directions (SPEC 2.13). docs/headers.md lists them for people.

Towards an upstream: nothing of the caller's but what the formats need (`anthropic-version`, `anthropic-beta`,
`openai-beta`) and what the provider's `forward_headers` name; its credential only to a provider that takes logins, as
part of the account that it is asked on. Towards the client: an allow-list, and every rate-limit
and quota header whatever its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from math import ceil

from arbiter import __version__
from arbiter._speedups import h1
from arbiter.clock import now_ms
from arbiter.config.credentials import is_credential
from arbiter.config.snapshot import Account, Provider
from arbiter.config.words import CREDENTIALS, FRAMING, OURS, PREFIX
from arbiter.errors import HeadersTooLarge
from arbiter.wire import waits
from arbiter.wire.dialects import dialect_of

Pairs = list[tuple[str, str]]

USER_AGENT = f"arbiter/{__version__}"
ANTHROPIC_VERSION = "2023-06-01"

_PRODUCT = 64  # characters

PROTOCOL_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta")
"""The caller's headers that reach every upstream of their format, whole."""

NEVER_FORWARDED = FRAMING | CREDENTIALS | OURS
"""Not even `forward_headers` lets these through, nor any name with `PREFIX`: a caller's credential, or word to us,
never reaches an upstream. What a glob covers may look like a credential just as little."""

OAUTH_BETA = "oauth-2025-04-20"
"""Anthropic takes a login as a bearer only beside this `anthropic-beta`; its API keys come as `x-api-key`."""

_GOOGLES_CREDENTIALS = ("access_token", "oauth_token")
"""Parameters of Google's REST APIs that are nobody else's."""

REQUEST_IDS = ("request-id", "x-request-id", "x-amzn-requestid")
"""What providers call a request of ours, of which one is in an answer."""

TO_CLIENT_NAMES = frozenset(
    (*REQUEST_IDS, "retry-after", "retry-after-ms", "x-should-retry", "content-type",
     "x-models-etag", "x-reasoning-included")
)  # fmt: skip
TO_CLIENT_PREFIXES = ("openai-", "anthropic-", "x-ratelimit-", "x-codex-", "x-oai-")
TO_CLIENT_PARTS = ("ratelimit", "rate-limit", "quota")
TO_CLIENT_PAIRS = 100
TO_CLIENT_BYTES = 64 << 10
"""Of an upstream's headers no more than this crosses, counted as HTTP writes them. Clients bound what they read, and
Granian's own map of headers ends its process at some 24,000 names."""


class Incoming:
    """The caller's headers: names in lower case, repeated ones joined with a comma as HTTP allows."""

    __slots__ = ("fields", "query", "size")

    def __init__(self, items: Iterable[tuple[str, str]], query: str = "") -> None:
        self.fields, self.size = h1.fields(items)  # the size in bytes is that of the header block
        self.query = query

    def check_size(self, limit: int) -> None:
        """Errors: HeadersTooLarge over `limit` bytes."""
        if self.size > limit:
            raise HeadersTooLarge(f"the request's headers are over the limit of {limit} bytes (`limits.headers`)")

    def get(self, name: str) -> str | None:
        return self.fields.get(name)

    @property
    def user_agent(self) -> str | None:
        value = self.fields.get("user-agent")
        return value[:256] if value is not None else None

    @property
    def product(self) -> str:
        """What the user agent calls itself, without its version."""
        return _product(self.fields.get("user-agent", "")[:_PRODUCT])

    @property
    def client_trace_id(self) -> str | None:
        """What the caller calls this trace; kept beside ours, since one may span many calls (SPEC 1.4)."""
        value = self.fields.get("x-trace-id") or self.fields.get("traceparent")
        return value[:256] if value else None

    def credentials(self) -> list[str]:
        """Every credential offered, our own header first."""
        found = []
        own = self.fields.get("x-arbiter-key")
        if own:
            found.append(own.strip())
        bearer = self.fields.get("authorization", "")
        if bearer[:7].lower() == "bearer ":
            found.append(bearer[7:].strip())
        for name in ("x-api-key", "x-goog-api-key"):
            key = self.fields.get(name)
            if key:
                found.append(key.strip())
        return found

    @property
    def told_query(self) -> str:
        """The query as it may go on to an upstream of the caller's own format: without credentials."""
        return _without_credentials(self.query) if self.query else ""

    def without_key(self) -> None:
        """Take Google's `key=` out of the query, as the header that it stands for: nobody logs a header's value, and it
        never goes on to an upstream."""
        kept = []
        for pair in self.query.split("&"):
            name, _, value = pair.partition("=")
            if name == "key":
                self.fields.setdefault("x-goog-api-key", _unquoted(value))
            elif name not in _GOOGLES_CREDENTIALS:
                kept.append(pair)
        self.query = "&".join(kept)


def _without_credentials(query: str) -> str:
    return "&".join(pair for pair in query.split("&") if not is_credential(_unquoted(pair.partition("=")[0])))


@lru_cache(1024)
def _product(user_agent: str) -> str:
    name = user_agent.partition("/")[0].partition(" ")[0]
    return name if name.isascii() and name.isprintable() else ""


def _unquoted(value: str) -> str:
    text = value.replace("+", " ").encode("utf-8", "surrogateescape")
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes((int(found[1], 16),)), text).decode("utf-8", "replace")


def to_upstream(
    provider: Provider,
    account: Account,
    wire: str,
    incoming: Incoming,
    *,
    stream: bool,
    betas: tuple[str, ...] = (),
) -> Pairs:
    """The headers of a request to `provider` on `account`, not to be changed; of `betas` what its `anthropic-beta`
    lacks is put there. `Host`, `Content-Length` and the connection's own are the transport's."""
    fields = incoming.fields
    if account.sent:
        return _to_upstream(provider, account, wire, fields, stream=stream, betas=betas)
    # Agents send the same headers with every request, and most clients none that matters.
    key: tuple[object, ...] = (id(provider), id(account), wire, stream)
    bare = _bare.get(key)
    # Of either one that is gone another may have the place.
    if bare is None or bare[0] is not provider or bare[1] is not account:
        bare = _learn_bare(key, provider, account)
    crossing = bare[2]
    if crossing is None or betas:
        return _to_upstream(provider, account, wire, fields, stream=stream, betas=betas)
    if fields.keys().isdisjoint(crossing):
        return bare[3]
    key = (*key, *map(fields.get, crossing))
    known = _sent.get(key)
    if known is None or known[0] is not provider or known[1] is not account:
        if any(len(value) > _LONG for value in map(fields.get, crossing) if value is not None):
            return _to_upstream(provider, account, wire, fields, stream=stream)
        if len(_sent) >= _SENT:
            _sent.clear()
        known = _sent[key] = (provider, account, _to_upstream(provider, account, wire, fields, stream=stream))
    return known[2]


def _learn_bare(key: tuple[object, ...], provider: Provider, account: Account) -> _Bare:
    """What `provider` is sent on `account` of a caller without any of the headers that matter."""
    _, _, wire, stream = key
    if len(_bare) >= _SENT:
        _bare.clear()
    if provider.forward_headers or provider.type == "echo":
        found: _Bare = (provider, account, None, [])
    else:
        headers = _to_upstream(provider, account, str(wire), {}, stream=bool(stream))
        found = (provider, account, PROTOCOL_HEADERS + dialect_of(provider).forwards, headers)
    _bare[key] = found
    return found


_Bare = tuple[Provider, Account, tuple[str, ...] | None, Pairs]
"""A provider and an account, the caller's headers that matter there, and what is sent where there are none of them;
None where any may matter."""

_SENT, _LONG = 256, 1024  # entries, and characters of a value that is not kept
_bare: dict[tuple[object, ...], _Bare] = {}
_sent: dict[tuple[object, ...], tuple[Provider, Account, Pairs]] = {}


def _to_upstream(
    provider: Provider,
    account: Account,
    wire: str,
    fields: dict[str, str],
    *,
    stream: bool,
    betas: tuple[str, ...] = (),
) -> Pairs:
    headers: Pairs = [
        ("content-type", "application/json"),
        ("accept", "text/event-stream" if stream else "application/json"),
        # A compressed stream could not be relayed event by event; a compressed answer would only be unpacked here.
        ("accept-encoding", "identity"),
        ("user-agent", USER_AGENT),
    ]
    if wire == "anthropic-messages":
        headers.append(("anthropic-version", fields.get("anthropic-version", ANTHROPIC_VERSION)))
        told = _betas(provider, account, fields, betas)
        if told is not None:
            headers.append(("anthropic-beta", told))
    elif "openai-beta" in fields:
        headers.append(("openai-beta", fields["openai-beta"]))
    dialect = dialect_of(provider)
    headers += dialect.credential(account, wire)
    headers += account.sent
    headers += [(name, fields[name]) for name in dialect.forwards if name in fields]
    if provider.type == "echo":
        headers += [(name, value) for name, value in fields.items() if name == "x-echo" or name.startswith("x-echo-")]
    if provider.forward_headers:
        # What `connection` names is of that connection alone (RFC 9110, section 7.6.1).
        apart = {name.strip().lower() for name in fields.get("connection", "").split(",")}
        seen = {
            name: value
            for name, value in fields.items()
            if name not in apart and is_forwarded(name, provider.forward_headers)
        }
        headers = [pair for pair in headers if pair[0] not in seen]
        headers += seen.items()
    if provider.headers:
        set_by_operator = {name.lower() for name, _ in provider.headers}
        if account.sent:
            set_by_operator.discard("anthropic-beta")  # it is among the others already
        headers = [pair for pair in headers if pair[0] not in set_by_operator]
        headers += [pair for pair in provider.headers if pair[0].lower() in set_by_operator]
    return headers


def _betas(provider: Provider, account: Account, fields: dict[str, str], betas: tuple[str, ...]) -> str | None:
    """The caller's `anthropic-beta`, and behind it what else must be in it; None where there is nothing to say."""
    asked = fields.get("anthropic-beta")
    if not account.sent:
        return joined(asked, betas) if betas else asked
    wanted = [*betas]
    wanted += [value for name, value in provider.headers if name.lower() == "anthropic-beta"]
    if any(name == "authorization" for name, _ in account.sent):
        wanted.append(OAUTH_BETA)
    return joined(asked, wanted)


def joined(asked: str | None, wanted: Iterable[str]) -> str | None:
    """A list as a header writes it, with what it lacks of `wanted` put behind it; as it came where it lacks nothing."""
    known = {entry.strip() for entry in (asked or "").split(",")}
    lacking = [entry for value in wanted for entry in map(str.strip, value.split(",")) if entry and entry not in known]
    return ",".join(([asked] if asked else []) + list(dict.fromkeys(lacking))) or asked


@lru_cache(4096)
def is_forwarded(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a caller's header of this name (lower case) may be seen by a provider with these `forward_headers`."""
    if name in NEVER_FORWARDED or name in PROTOCOL_HEADERS or name.startswith(PREFIX):
        return False
    return name in patterns or (
        not is_credential(name) and any("*" in pattern and fnmatchcase(name, pattern) for pattern in patterns)
    )


_crosses: dict[str, bool] = {}  # what was decided per header name; upstreams use few, and the bound keeps it so


def _may_cross(name: str) -> bool:
    crosses = (
        name in TO_CLIENT_NAMES or name.startswith(TO_CLIENT_PREFIXES) or any(part in name for part in TO_CLIENT_PARTS)
    )
    if len(_crosses) < 1024:
        _crosses[name] = crosses
    return crosses


_RETRY_AFTER_DIGITS = 6  # more is over a week, which no client would wait


def to_client(headers: Iterable[tuple[str, str]]) -> Pairs:
    """The upstream's headers that the client gets; `retry-after` leaves as whole seconds: all Claude Code reads."""
    out, size = h1.chosen(headers, _crosses, _may_cross)
    if len(out) > TO_CLIENT_PAIRS or size > TO_CLIENT_BYTES:
        out = _most_wanted(out)
    for at, (name, value) in enumerate(out):
        if name == "retry-after":
            out[at] = name, _whole_seconds(value)
    return out


def _whole_seconds(value: str) -> str:
    if len(value) <= _RETRY_AFTER_DIGITS and value.isdecimal():
        return value
    seconds = waits.retry_after_s(value, now_ms())
    return str(ceil(seconds) if seconds is not None else 1)


def _most_wanted(pairs: Pairs) -> Pairs:
    """Those of `pairs` that there is room for, in their order: first the names we know, then those about limits."""

    def rank(pair: tuple[str, str]) -> int:
        name = pair[0]
        if name in TO_CLIENT_NAMES:
            return 0
        return 1 if any(part in name for part in TO_CLIENT_PARTS) else 2

    kept: list[int] = []
    room = TO_CLIENT_BYTES
    for place in sorted(range(len(pairs)), key=lambda place: rank(pairs[place])):
        size = len(pairs[place][0]) + len(pairs[place][1]) + 4
        if size <= room:
            room -= size
            kept.append(place)
            if len(kept) == TO_CLIENT_PAIRS:
                break
    return [pairs[place] for place in sorted(kept)]


@lru_cache(1024)
def visible(text: str) -> str:
    """`text` as a header value of at most 256 characters: anything that a header cannot hold becomes `?`."""
    text = text[:256]
    return text if text.isascii() and text.isprintable() else "".join(c if " " <= c <= "~" else "?" for c in text)
