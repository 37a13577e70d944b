"""Logging in at a vendor: with a browser and a code to paste (RFC 7636), or on another device (RFC 8628)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import sys
from collections.abc import Coroutine, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from arbiter.cli import CommandError
from arbiter.clock import monotonic
from arbiter.config.snapshot import OAuth
from arbiter.state.login_file import Login
from arbiter.upstream import token_endpoint
from arbiter.upstream.token_endpoint import TokenRefused, Tokens, TokenTrouble
from arbiter.upstream.transport import Transport

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
INTERVAL_S, SLOWER_S, DEVICE_S, DAY_S = 5.0, 5.0, 900.0, 86_400.0


def _login(asking: Coroutine[Any, Any, Tokens]) -> Login:
    try:
        tokens = asyncio.run(asking)
    except (TokenRefused, TokenTrouble) as fault:
        raise CommandError(f"the vendor gave no login: {fault}") from None
    if tokens.refresh_token is None:
        raise CommandError("the vendor gave no refresh token; is a scope missing in `oauth.scopes`?")
    return Login(tokens.refresh_token, tokens.access_token, tokens.obtained_ms, tokens.expires_ms)


# ---------------------------------------------------------------------------------------------------- with a browser


def by_paste(oauth: OAuth) -> Login:
    """With a browser, and what it is sent back with, pasted. Errors: CommandError."""
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    print(
        f"Open this in a browser, log in, and paste what you get:\n\n  {address(oauth, verifier, state)}\n", flush=True
    )
    print("The code, or the address that the browser was sent to: ", end="", flush=True)
    code, told_state = pasted(sys.stdin.readline())
    if told_state is not None and not secrets.compare_digest(told_state.encode(), state.encode()):
        raise CommandError("this belongs to another login: its state is not the one that was asked for")
    asked = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": oauth.redirect_uri or "",
        "code_verifier": verifier,
    }
    if told_state is not None:
        asked["state"] = told_state  # some vendors want to see it again
    return _login(_granted(oauth, asked))


def address(oauth: OAuth, verifier: str, state: str) -> str:
    """Where a person logs in (RFC 7636)."""
    digest = hashlib.sha256(verifier.encode()).digest()
    asked = {
        "response_type": "code",
        "client_id": oauth.client_id,
        "redirect_uri": oauth.redirect_uri or "",
        "scope": " ".join(oauth.scopes),
        "state": state,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        **dict(oauth.parameters),
    }
    url = oauth.authorize_url or ""
    return f"{url}{'&' if '?' in url else '?'}{urlencode({name: value for name, value in asked.items() if value})}"


def pasted(text: str) -> tuple[str, str | None]:
    """The code, and the state where it came along: an address with both in its query, `code#state`, or a code alone.

    Errors: CommandError.
    """
    text = text.strip()
    if "://" in text:
        try:
            told = parse_qs(urlsplit(text).query)
        except ValueError:
            raise CommandError("this is no address") from None
        if "error" in told:
            raise CommandError(f"the vendor refused: {told['error'][0][:100]!r}")
        code, state = told.get("code", [""])[0], told.get("state", [""])[0]
    else:
        code, _, state = text.partition("#")
    if not code or not code.isprintable() or " " in code:
        raise CommandError("there is no code in this")
    return code, state or None


async def _granted(oauth: OAuth, asked: Mapping[str, str]) -> Tokens:
    transport = Transport()
    try:
        return await token_endpoint.grant(transport, oauth, asked)
    finally:
        await transport.close()


# ------------------------------------------------------------------------------------------------- on another device


def by_device(oauth: OAuth) -> Login:
    """With a code that somebody enters elsewhere. Errors: CommandError."""
    return _login(_by_device(oauth))


async def _by_device(oauth: OAuth) -> Tokens:
    assert oauth.device_at is not None, "it was asked for"
    transport = Transport()
    try:
        asked = {"scope": " ".join(oauth.scopes)} if oauth.scopes else {}
        told = await token_endpoint.call(transport, oauth, *oauth.device_at, asked)
        code, shown = told.get("device_code"), told.get("user_code")
        where = told.get("verification_uri_complete") or told.get("verification_uri")
        if not all(isinstance(word, str) and word.isprintable() for word in (code, shown, where)):
            raise TokenTrouble("the vendor's answer to a login by device has no code")
        print(f"Open {where} and enter the code {shown}", flush=True)
        wait_s = _seconds(told.get("interval"), INTERVAL_S)
        until = monotonic() + _seconds(told.get("expires_in"), DEVICE_S)
        while monotonic() < until:
            await asyncio.sleep(wait_s)
            try:
                return await token_endpoint.grant(
                    transport, oauth, {"grant_type": DEVICE_GRANT, "device_code": str(code)}
                )
            except TokenRefused as no:
                if no.error == "slow_down":
                    wait_s += SLOWER_S
                elif no.error != "authorization_pending":
                    raise
            except TokenTrouble:
                continue  # RFC 8628, section 3.5: the next try may go through
        raise TokenTrouble("nobody entered the code in time")
    finally:
        await transport.close()


def _seconds(told: Any, usual: float) -> float:
    found = token_endpoint.seconds(told, usual)
    return found if found < DAY_S else usual
