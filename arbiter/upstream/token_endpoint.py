"""A vendor's token endpoint: what it is asked, and what its answers mean (RFC 6749, RFC 7636, RFC 8628)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from arbiter.clock import now_ms
from arbiter.config.snapshot import Budgets, Endpoint, OAuth
from arbiter.config.words import is_token
from arbiter.errors import ArbiterError
from arbiter.upstream.exchange import Outgoing
from arbiter.upstream.transport import Transport

ASKED_S = 30.0
LIVES_S = 3600.0
"""How long an access token is relied on where the vendor does not say, or says nothing that makes sense."""
_LIVES_AT_MOST_S = 1e10  # whatever is said: a moment must stay a number that files and clocks can hold
ANSWER_BYTES = 1 << 20
_BUDGETS = Budgets(queue_s=10.0, connect_s=10.0, headers_s=ASKED_S, unary_s=ASKED_S)
_PASSING = frozenset((408, 425, 429))
_WORD_CHARS = 64


class TokenRefused(Exception):
    """The endpoint said no, and would say so again. `error` is its word: `invalid_grant`, …"""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class TokenTrouble(Exception):
    """The endpoint could not be asked, or could not answer: another try may go well. Its text holds no token."""


class Tokens(msgspec.Struct):
    """What it gave; `expires_ms` is Unix milliseconds."""

    access_token: str
    refresh_token: str | None
    obtained_ms: int
    expires_ms: int

    def __repr__(self) -> str:
        return f"Tokens(obtained_ms={self.obtained_ms}, expires_ms={self.expires_ms})"


async def refresh(transport: Transport, oauth: OAuth, refresh_token: str) -> Tokens:
    """Turn a refresh token into tokens. Errors: TokenRefused, TokenTrouble."""
    asked = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    if oauth.scopes:
        asked["scope"] = " ".join(oauth.scopes)
    return await grant(transport, oauth, asked)


async def grant(transport: Transport, oauth: OAuth, asked: Mapping[str, str]) -> Tokens:
    """Ask for tokens by whatever `asked` holds. Errors: TokenRefused, TokenTrouble."""
    told = await call(transport, oauth, *oauth.token_at, asked)
    access = told.get("access_token")
    refresh_token = told.get("refresh_token")
    if not is_token(access) or not (refresh_token in (None, "") or is_token(refresh_token)):
        raise TokenTrouble("the token endpoint answered without a usable access token")
    obtained_ms = now_ms()
    lives_s = min(seconds(told.get("expires_in"), LIVES_S), _LIVES_AT_MOST_S)
    return Tokens(str(access), refresh_token or None, obtained_ms, obtained_ms + round(lives_s * 1000))


def seconds(told: Any, usual_s: float) -> float:
    """A time as a vendor tells it: a positive number, or digits in a string; `usual_s` where it is anything else."""
    if isinstance(told, str) and told.isascii() and told.isdigit():
        told = float(told)
    if isinstance(told, bool) or not isinstance(told, int | float):
        return usual_s
    return float(told) if 0 < told <= sys.float_info.max else usual_s


async def call(
    transport: Transport, oauth: OAuth, endpoint: Endpoint, target: str, asked: Mapping[str, str]
) -> dict[str, Any]:
    """One question at one of the vendor's addresses, as the client that `oauth` is.

    Errors: TokenRefused, TokenTrouble.
    """
    members = {**asked, **({"client_id": oauth.client_id} if oauth.client_id else {})}
    if oauth.client_secret:
        members["client_secret"] = oauth.client_secret
    is_json = oauth.encoding == "json"
    body = msgspec.json.encode(members) if is_json else urlencode(members).encode()
    kind = "application/json" if is_json else "application/x-www-form-urlencoded"
    headers = [("content-type", kind), ("accept", "application/json"), ("accept-encoding", "identity")]
    try:
        async with asyncio.timeout(ASKED_S):
            exchange = await transport.send(
                endpoint,
                Outgoing("POST", target, headers, body),
                _BUDGETS,
                stream=False,
                max_connections=8,
                idle_connections=1,
                idle_for_s=5.0,
            )
            try:
                status, raw = exchange.status, await exchange.read(ANSWER_BYTES)
            except BaseException:
                exchange.abort()
                raise
    except TimeoutError:
        raise TokenTrouble(f"the token endpoint did not answer within {ASKED_S:.0f} s") from None
    except ArbiterError as error:
        raise TokenTrouble(f"the token endpoint: {error}") from None
    return _understood(status, raw)


def _understood(status: int, raw: bytes) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        told = None
    word = _word(told) if isinstance(told, dict) else None
    if 200 <= status < 300 and isinstance(told, dict) and word is None:
        return told
    if 400 <= status < 500 and status not in _PASSING:
        # Whatever the word, the same question would get the same answer. Without one it may be a proxy's page.
        if word is not None:
            raise TokenRefused(word)
        if status in (400, 401):
            raise TokenRefused(f"status {status}")
    raise TokenTrouble(f"the token endpoint answered {status}" + (f" ({word})" if word else ""))


def _word(told: Mapping[str, Any]) -> str | None:
    """The vendor's word for what is wrong: RFC 6749's member, or an object as other errors of the vendor's are."""
    error = told.get("error")
    if isinstance(error, dict):
        error = error.get("code") or error.get("type") or "error"
    if not isinstance(error, str) or not error:
        return None
    word = error[:_WORD_CHARS]
    return word if word.isascii() and word.isprintable() else "error"
