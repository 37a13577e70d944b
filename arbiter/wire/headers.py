"""Which headers cross the gateway, in both directions (SPEC 2.13). docs/headers.md lists them for people.

Towards an upstream: nothing of the caller's but what the formats need (`anthropic-version`, `anthropic-beta`,
`openai-beta`) and what the provider's `forward_headers` name. Towards the client: an allow-list, and every rate-limit
and quota header whatever its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import ceil

from arbiter import __version__
from arbiter.clock import now_ms
from arbiter.config.snapshot import Account, Provider
from arbiter.errors import HeadersTooLarge
from arbiter.wire import waits

Pairs = list[tuple[str, str]]

USER_AGENT = f"arbiter/{__version__}"
ANTHROPIC_VERSION = "2023-06-01"

_PRODUCT = 64  # characters

PROTOCOL_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta")
"""The caller's headers that reach every upstream of their format, whole."""

_HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade", "host", "content-length", "expect")
)  # fmt: skip
_CREDENTIALS = frozenset(
    ("authorization", "x-api-key", "api-key", "x-arbiter-key", "x-arbiter-own-key", "cookie", "x-goog-api-key")
)
_WORDS_TO_US = frozenset(("x-arbiter-label", "x-arbiter-own-kind", "x-arbiter-own-request-kind", "x-arbiter-own-about"))
NEVER_FORWARDED = _HOP_BY_HOP | _CREDENTIALS | _WORDS_TO_US
"""Not even `forward_headers` lets these through: a caller's credential, or word to us, never reaches an upstream."""

TO_CLIENT_NAMES = frozenset(
    ("request-id", "x-request-id", "retry-after", "retry-after-ms", "x-should-retry", "content-type")
)
TO_CLIENT_PREFIXES = ("openai-", "anthropic-", "x-ratelimit-", "x-codex-")
TO_CLIENT_PARTS = ("ratelimit", "rate-limit", "quota")
TO_CLIENT_PAIRS = 100
TO_CLIENT_BYTES = 64 << 10
"""Of an upstream's headers no more than this crosses, counted as HTTP writes them. Clients bound what they read, and
Granian's own map of headers ends its process at some 24,000 names."""


class Incoming:
    """The caller's headers: names in lower case, repeated ones joined with a comma as HTTP allows."""

    __slots__ = ("fields", "query", "size")

    def __init__(self, items: Iterable[tuple[str, str]], query: str = "") -> None:
        fields: dict[str, str] = {}
        size = 0
        for name, value in items:
            size += len(name) + len(value) + 4
            fields[name] = value if name not in fields else f"{fields[name]}, {value}"
        self.fields = fields
        self.size = size  # bytes of the header block, as RFC 9112 writes it
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
        name = self.fields.get("user-agent", "")[:_PRODUCT].partition("/")[0].partition(" ")[0]
        return name if name.isascii() and name.isprintable() else ""

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
        key = self.fields.get("x-api-key")
        if key:
            found.append(key.strip())
        return found


def to_upstream(provider: Provider, account: Account, wire: str, incoming: Incoming, *, stream: bool) -> Pairs:
    """The headers of a request to `provider` on `account`, not to be changed. `Host`, `Content-Length` and the
    connection's own are the transport's."""
    fields = incoming.fields
    if provider.forward_headers or provider.type == "echo":
        return _to_upstream(provider, account, wire, fields, stream=stream)
    # Of a caller no more than these matters, and agents send the same ones with every request.
    key = (id(provider), id(account), wire, stream, *map(fields.get, PROTOCOL_HEADERS))
    known = _sent.get(key)
    if known is None or known[0] is not provider:
        if any(len(value) > _LONG for value in map(fields.get, PROTOCOL_HEADERS) if value is not None):
            return _to_upstream(provider, account, wire, fields, stream=stream)
        if len(_sent) >= _SENT:
            _sent.clear()
        known = _sent[key] = (provider, _to_upstream(provider, account, wire, fields, stream=stream))
    return known[1]


_SENT, _LONG = 256, 1024  # entries, and characters of a value that is not kept
_sent: dict[tuple[object, ...], tuple[Provider, Pairs]] = {}


def _to_upstream(provider: Provider, account: Account, wire: str, fields: dict[str, str], *, stream: bool) -> Pairs:
    headers: Pairs = [
        ("content-type", "application/json"),
        ("accept", "text/event-stream" if stream else "application/json"),
        # A compressed stream could not be relayed event by event; a compressed answer would only be unpacked here.
        ("accept-encoding", "identity"),
        ("user-agent", USER_AGENT),
    ]
    if wire == "anthropic-messages":
        headers.append(("anthropic-version", fields.get("anthropic-version", ANTHROPIC_VERSION)))
        if "anthropic-beta" in fields:
            headers.append(("anthropic-beta", fields["anthropic-beta"]))
        if account.key:
            headers.append(("x-api-key", account.key))
    else:
        if "openai-beta" in fields:
            headers.append(("openai-beta", fields["openai-beta"]))
        if account.key:
            headers.append(("authorization", f"Bearer {account.key}"))
    if provider.type == "echo":
        headers += [(name, value) for name, value in fields.items() if name == "x-echo" or name.startswith("x-echo-")]
    for name in provider.forward_headers:
        if name in fields and name not in NEVER_FORWARDED:
            headers = [pair for pair in headers if pair[0] != name]
            headers.append((name, fields[name]))
    if provider.headers:
        set_by_operator = {name.lower() for name, _ in provider.headers}
        headers = [pair for pair in headers if pair[0] not in set_by_operator]
        headers += provider.headers
    return headers


_crosses: dict[str, bool] = {}  # what was decided per header name; upstreams use few, and the bound keeps it so


def _may_cross(name: str) -> bool:
    known = _crosses.get(name)
    if known is None:
        known = (
            name in TO_CLIENT_NAMES
            or name.startswith(TO_CLIENT_PREFIXES)
            or any(part in name for part in TO_CLIENT_PARTS)
        )
        if len(_crosses) < 1024:
            _crosses[name] = known
    return known


_RETRY_AFTER_DIGITS = 6  # more is over a week, which no client would wait


def to_client(headers: Iterable[tuple[str, str]]) -> Pairs:
    """The upstream's headers that the client gets; `retry-after` leaves as whole seconds: all Claude Code reads."""
    out = [pair for pair in headers if _may_cross(pair[0])]
    if len(out) > TO_CLIENT_PAIRS or sum([len(name) + len(value) + 4 for name, value in out]) > TO_CLIENT_BYTES:
        out = _most_wanted(out)
    for place, (name, value) in enumerate(out):
        if name == "retry-after" and (len(value) > _RETRY_AFTER_DIGITS or not value.isdecimal()):
            seconds = waits.retry_after_s(value, now_ms())
            out[place] = (name, str(ceil(seconds) if seconds is not None else 1))
    return out


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
