"""The plain dialect: a server of a vendor's format, as the vendor has it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from arbiter.config.snapshot import Account, Provider
from arbiter.pieces import Body
from arbiter.wire.dialects.unframing import Unframer
from arbiter.wire.gemini_names import path_of
from arbiter.wire.native import GEMINI, GEMINI_EMBEDDINGS, MESSAGES

Pairs = list[tuple[str, str]]

_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Changes(msgspec.Struct, frozen=True):
    """What every body to a provider has in place of the client's members, and what none has: `without` names members,
    `without_inner` members of members."""

    more: Mapping[str, Raw] = {}
    without: tuple[str, ...] = ()
    without_inner: tuple[tuple[str, str], ...] = ()

    def applied(self, members: Mapping[str, Raw]) -> tuple[Mapping[str, Raw], tuple[str, ...]]:
        """Return the members as they leave, and the names of those that changed (`outer.inner` of an inner one)."""
        changed = [name for name in self.without if name in members]
        for outer, inner in self.without_inner:
            rest = _without(members.get(outer), inner)
            if rest is not None:
                members = {**members, outer: rest}
                changed.append(f"{outer}.{inner}")
        changed += [name for name, raw in self.more.items() if bytes(members.get(name, b"")) != bytes(raw)]
        if not changed:
            return members, ()
        kept = {name: raw for name, raw in members.items() if name not in self.without}
        return {**kept, **self.more}, tuple(changed)

    def in_body(self, body: bytes) -> bytes:
        """Return a body that we built, changed."""
        return _encode(self.applied(_decode(body))[0])


def _without(raw: Raw | None, inner: str) -> Raw | None:
    """Return an object without its member `inner`; None where there is none."""
    if raw is None or f'"{inner}"'.encode() not in bytes(raw):
        return None
    try:
        members = _decode(raw)
    except msgspec.MsgspecError:
        return None  # no object: the provider says so
    if inner not in members:
        return None
    del members[inner]
    return Raw(_encode(members))


class Dialect:
    """What a type of provider does around the formats that it speaks."""

    forwards: tuple[str, ...] = ()
    """Headers of the caller's that mean something to it, in lower case."""

    names_its_own = False
    """Whether its names of models are whoever set it up's, and need not say which models they are."""

    counts_by_right = False
    """Whether counting is a right of its own there, which who may ask need not have."""

    tells_errors = True
    """Whether its errors have the shape of the format that it was asked in."""

    seals = False
    """Whether `sealed` has anything to say."""

    def target(self, provider: Provider, wire: str, path: str, model: str, *, stream: bool, query: str = "") -> str:
        """Return the request target of a call in the format `wire`; `path` is the format's own, `query` the client's.

        Vendors differ in what a base URL ends with: OpenAI's holds `/v1`, Anthropic's and Google's do not; people write
        either. Google has the model, and what is done with it, in the path.
        """
        base = provider.endpoint.path
        if wire in (GEMINI, GEMINI_EMBEDDINGS):
            base += "" if base.endswith(GOOGLES_VERSIONS) else GOOGLES_VERSIONS[0]
            return base + path_of(path, model, stream=stream) + events_query(query, stream=stream)
        if provider.type == "gemini":  # what it has of OpenAI's API (embeddings)
            base += "/openai" if base.endswith(GOOGLES_VERSIONS) else f"{GOOGLES_VERSIONS[0]}/openai"
        if (wire == MESSAGES or provider.type == "anthropic") and not base.endswith("/v1"):
            path = "/v1" + path
        return f"{base}{path}?{query}" if query else base + path

    def credential(self, account: Account, wire: str) -> Pairs:
        """Return the headers that show an account's key; none where it has none."""
        if not account.key:
            return []
        name = _KEYS.get(wire)
        return [(name, account.key) if name is not None else ("authorization", f"Bearer {account.key}")]

    def counts(self, wire: str) -> bool:
        """Return whether it counts tokens where the format `wire` has an endpoint for that."""
        return True

    def changes(
        self, wire: str, fields: Mapping[str, str], betas: tuple[str, ...] = (), *, counts: bool = False
    ) -> Changes | None:
        """Return what is changed in every body of the format `wire`, if anything.

        `fields` are the caller's headers, `betas` what is to be in its `anthropic-beta` besides; `counts`: it is only
        counted.
        """
        return None

    def to_count(self, wire: str, body: bytes) -> bytes:
        """Return the body of a count, of one of the format `wire`."""
        return body

    def counted(self, wire: str, answer: bytes) -> bytes:
        """Return the answer to a count as the format `wire` has it. Errors: Garbled where it is none."""
        return answer

    def sealed(
        self,
        provider: Provider,
        account: Account,
        target: str,
        headers: Pairs,
        body: Body,
        *,
        now_ms: int,
        stream: bool,
    ) -> Pairs:
        """Return the headers as they leave, with what depends on the whole request. `now_ms` is wall time."""
        return headers

    def unframer(self, kind: str, wire: str, limit: int) -> Unframer | None:
        """Return what makes server-sent events of a stream of media type `kind`; None where it is made of them."""
        return None


_KEYS = {MESSAGES: "x-api-key", GEMINI: "x-goog-api-key", GEMINI_EMBEDDINGS: "x-goog-api-key"}
"""The header for a key, where that is not a bearer's."""

GOOGLES_VERSIONS = ("/v1beta", "/v1alpha", "/v1")


def events_query(query: str, *, stream: bool) -> str:
    """Return the query of a call of Gemini's, with its question mark. How the answer comes to the client is not the
    upstream's affair, which streams an array unless it is asked for events."""
    kept = [pair for pair in query.split("&") if pair and pair.partition("=")[0] not in ("alt", "$alt")]
    asked = ["alt=sse", *kept] if stream else kept
    return "?" + "&".join(asked) if asked else ""
