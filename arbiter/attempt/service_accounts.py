"""Google's service accounts (`type: vertex` with `credentials`): an account with an access token that is good now.

A token is had for a statement that the account's private key signed (RFC 7523), and lives for an hour. Nothing is used
up by that, so each worker has tokens of its own: kept until shortly before their end, and asked for once, however many
wait. Where the next one cannot be had, the one at hand serves for as long as it is good.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from functools import partial

import msgspec

from arbiter.attempt.renewals import Renewals
from arbiter.clock import now_ms
from arbiter.config.snapshot import Account, OAuth, Provider, ServiceAccount
from arbiter.errors import KeyRefused, UpstreamError
from arbiter.log import Blotter, Log
from arbiter.upstream import token_endpoint
from arbiter.upstream.token_endpoint import TokenRefused, TokenTrouble
from arbiter.upstream.transport import Transport

LIVES_S = 3600
EARLY_MS = 300_000
"""How long before its end a token is no longer relied on."""
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"

_log = Log(__name__)


@dataclass(slots=True)
class _Known:
    """The token that this worker has for one service account."""

    service: ServiceAccount
    account: Account
    ends_ms: int


class ServiceAccounts:
    """The tokens of one worker. Use it on the loop. `blot` learns each before it is used."""

    def __init__(self, transport: Transport, blot: Blotter) -> None:
        self._transport = transport
        self._blot = blot
        self._known: dict[str, _Known] = {}
        self._renewals = Renewals()

    def adopt(self, blot: Blotter) -> None:
        """Go on under another configuration."""
        self._blot = blot
        self._known.clear()

    async def account(self, provider: Provider) -> Account:
        """The account to ask `provider` on. Errors: KeyRefused where Google knows no such account; UpstreamError where
        it could not be asked."""
        known, now = self._of(provider), now_ms()
        if known is not None and now < known.ends_ms - EARLY_MS:
            return known.account
        ask = partial(self._ask, provider)
        if known is not None and now < known.ends_ms:
            return await self._renewals.soon(provider.name, ask, known.account)
        return await asyncio.shield(self._renewals.joined(provider.name, ask)[0])

    async def renewed(self, provider: Provider, refused: Account) -> Account:
        """The same after `provider` refused what it was sent. Errors: as of `account`; KeyRefused, too, where that had
        been renewed for the same reason just now."""
        known = self._of(provider)
        if known is not None and known.account is refused:
            self._renewals.check(provider.name)
            del self._known[provider.name]
        account = await self.account(provider)
        self._renewals.replaced(provider.name, account)
        return account

    def served(self, provider: Provider) -> None:
        """`provider` took what it was sent."""
        self._renewals.served(provider.name)

    async def aclose(self) -> None:
        """Ask for nothing more."""
        for task in self._renewals.under_way:
            task.cancel()

    def _of(self, provider: Provider) -> _Known | None:
        known = self._known.get(provider.name)
        return known if known is not None and known.service == provider.service else None

    async def _ask(self, provider: Provider) -> Account:
        service, known = provider.service, self._of(provider)
        assert service is not None, "it is asked on a service account"
        oauth = OAuth(token_at=service.token_at, client_id="")
        try:
            asked = {"grant_type": _GRANT, "assertion": assertion(service, now_ms() // 1000)}
            tokens = await token_endpoint.grant(self._transport, oauth, asked)
        except TokenRefused as no:
            raise KeyRefused(f"the service account of the provider {provider.name!r} was refused: {no.error}") from None
        except TokenTrouble as trouble:
            if known is not None and now_ms() < known.ends_ms:
                _log.warn("a service account's token could not be renewed", provider=provider.name, error=trouble)
                return known.account
            raise UpstreamError(f"no token for the provider {provider.name!r} could be had: {trouble}") from None
        self._blot.learn((tokens.access_token,))
        account = Account(sent=(("authorization", f"Bearer {tokens.access_token}"),))
        self._known[provider.name] = _Known(service, account, tokens.expires_ms)
        return account


def assertion(service: ServiceAccount, now_s: int) -> str:
    """Return the signed statement that a token is had for: a JWT (RFC 7519) with RS256."""
    # A quarter of a second to import: only who has such an account needs it.
    from cryptography.hazmat.primitives.asymmetric import padding, rsa
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    head = {"alg": "RS256", "typ": "JWT", **({"kid": service.key_id} if service.key_id else {})}
    claims = {
        "iss": service.email,
        "scope": SCOPE,
        "aud": service.audience,
        "iat": now_s,
        "exp": now_s + LIVES_S,
    }
    said = b".".join(_base64url(msgspec.json.encode(one)) for one in (head, claims))
    key = load_pem_private_key(service.private_key.encode(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey), "the configuration checked it"
    return (said + b"." + _base64url(key.sign(said, padding.PKCS1v15(), SHA256()))).decode()


def _base64url(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")
