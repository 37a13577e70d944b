"""ChatGPT's word to itself between the requests of one turn, which agents send back (`x-codex-turn-state`, SPEC 4.7a).

It says where the turn is kept. Whoever did not say it has no use for it, and is not sent it: who said it is remembered
by hash.
"""

from __future__ import annotations

from hashlib import sha256

from arbiter.config.snapshot import Provider
from arbiter.state.base import Origin, State
from arbiter.upstream.exchange import Answering
from arbiter.wire.headers import Pairs

HEADER = "x-codex-turn-state"
REMEMBERED_S = 6 * 3600.0  # a turn is over by then


def told(headers: Pairs, provider: Provider, state: State) -> Pairs:
    """The headers that `provider` may be sent: without another's word."""
    said = next((value for name, value in headers if name == HEADER), None)
    if said is None:
        return headers
    (origin,) = state.origins([_mark(said)])
    if origin is None or origin.provider == provider.name:
        return headers
    return [pair for pair in headers if pair[0] != HEADER]


def heard(exchange: Answering, provider: Provider, state: State) -> None:
    """Remember who said what it said."""
    said = exchange.header(HEADER)
    if said is not None:
        state.remember([_mark(said)], Origin(provider.name, "", ""), REMEMBERED_S)


def _mark(said: str) -> bytes:
    return sha256(b"turn state\0" + said.encode("utf-8", "surrogatepass")).digest()[:16]
