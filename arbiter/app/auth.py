"""Who asks: an API key to a `Caller`, and who may see the administration (SPEC 8.1, 12.1)."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from urllib.parse import urlsplit

from arbiter.clock import now_ms
from arbiter.config import keyring
from arbiter.config.snapshot import Snapshot, key_digest
from arbiter.errors import Forbidden, Unauthorized
from arbiter.routing.plan import ANYONE, Caller, Login
from arbiter.wire.headers import Incoming

COOKIE = "arbiter_admin"
SENT_AS = "it goes into `Authorization: Bearer KEY`, `x-api-key: KEY`, `x-goog-api-key: KEY` or `X-Arbiter-Key: KEY`"


class Keys:
    """The client keys of one snapshot. Only their hashes are known, and a look-up compares nothing but hashes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._mode = snapshot.auth.mode
        self._by_hash = {client.key_sha256: Caller(client) for client in snapshot.callers}
        self._admin_token = snapshot.admin.token
        self._fingerprints = snapshot.fingerprint_key if snapshot.takes_logins else None

    def identify(self, incoming: Incoming) -> Caller:
        """The caller, with the login that it brought, where one may be of use.

        Errors: as `_identify`.
        """
        caller = self._identify(incoming)
        if self._fingerprints is None:
            return caller
        login = self.login(incoming)
        return caller if login is None else Caller(caller.client, login)

    def login(self, incoming: Incoming) -> Login | None:
        """What was sent for a provider: each credential but those that are ours, as it came; None where there is none,
        or nobody who takes any."""
        if self._fingerprints is None:
            return None
        sent = []
        bearer, key = incoming.get("authorization") or "", incoming.get("x-api-key") or ""
        if bearer[:7].lower() == "bearer " and not self._holds_ours(bearer[7:]):
            sent.append(("authorization", bearer))
        if not self._holds_ours(key):
            sent.append(("x-api-key", key))
        if not sent:
            return None
        told = "\0".join([text for pair in sent for text in pair])
        digest = hmac.new(self._fingerprints, b"login\0" + told.encode("utf-8", "surrogateescape"), hashlib.sha256)
        return Login(digest.digest()[:16], tuple(sent))

    def _holds_ours(self, value: str) -> bool:
        """Whether a header holds nothing, or something that is ours; one that came twice is one here, with a comma."""
        words = value.replace(",", " ").split()
        return not words or any(map(self._is_ours, words))

    def _is_ours(self, credential: str) -> bool:
        """Whether a credential opens this gateway, or once did: no provider is to see it."""
        return (
            credential.startswith(keyring.PREFIX)
            or key_digest(credential) in self._by_hash
            or hmac.compare_digest(credential.encode("utf-8", "surrogateescape"), self._admin_token.encode())
        )

    def _identify(self, incoming: Incoming) -> Caller:
        """Who asks.

        Errors: Unauthorized for a key that was revoked or has expired, and where `auth.mode` is `require` for a missing
        or unknown one; it repeats nothing of the key.
        """
        if self._mode == "none":
            return ANYONE
        ended = ""
        if self._by_hash:
            for key in incoming.credentials():
                caller = self._by_hash.get(key_digest(key))
                if caller is None or caller.client is None:
                    continue
                client = caller.client
                if client.revoked_ms is not None:
                    ended = f"this key of {client.name!r} was revoked"
                elif client.expires_ms is not None and now_ms() >= client.expires_ms:
                    ended = f"this key of {client.name!r} has expired"
                else:
                    return caller
        # As a stranger it might be served more than its `allow` let it have.
        if ended:
            raise Unauthorized(ended)
        if self._mode == "require":
            sent = "none that it knows" if incoming.credentials() else "none"
            raise Unauthorized(
                f"this gateway needs a key of its own, and {sent} was sent: {SENT_AS}; whoever runs it makes one with "
                "`arbiter keys new NAME`"
            )
        return ANYONE


class Gate:
    """Who may use `/admin`.

    Whoever has the token (as a bearer or as a browser's cookie) or a trusted proxy's word; a loopback peer where
    neither was configured.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._token = snapshot.admin.token
        self._header = snapshot.admin.forward_auth_header
        self._trusts: Callable[[str], bool] = snapshot.server.trusts
        # The cookie proves that its bearer once knew the token; it is not the token, and dies with it.
        self.cookie = hmac.new(self._token.encode(), b"arbiter admin cookie", hashlib.sha256).hexdigest()

    @property
    def wants_token(self) -> bool:
        return bool(self._token)

    def accepts(self, token: str) -> bool:
        """Is `token` the admin token? Constant time."""
        return bool(self._token) and hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token.encode())

    def check(self, incoming: Incoming, peer: str, method: str) -> str:
        """Let an administrator through; who it is: `user:NAME` as the proxy says, `token`, or `loopback`.

        Errors: Unauthorized where a token would help, Forbidden where it would not.
        """
        if self._header is not None and incoming.get(self._header) and self._trusts(address_of(peer)):
            _refuse_foreign(incoming, method)
            return f"user:{incoming.get(self._header)}"
        if self._token:
            bearer = incoming.get("authorization") or ""
            if bearer[:7].lower() == "bearer " and self.accepts(bearer[7:].strip()):
                return "token"
            if hmac.compare_digest(_cookie(incoming).encode(), self.cookie.encode()):
                _refuse_foreign(incoming, method)
                return "token"
            raise Unauthorized("the administration needs the admin token, as `Authorization: Bearer TOKEN`")
        if self._header is not None:
            raise Unauthorized(f"the administration needs the header {self._header} from a trusted proxy")
        if not is_loopback(incoming, peer):
            raise Forbidden(
                "the administration answers loopback peers only; "
                "set `admin.token` in the configuration to reach it from elsewhere"
            )
        return "loopback"


def is_loopback(incoming: Incoming, peer: str) -> bool:
    """Did this come from this machine, and by no detour? A proxy or a foreign web page on it does not count."""
    # A unix socket has no peer's address, and usually a proxy in front of it: the rest counts there all the more.
    if peer and not _is_loopback_address(address_of(peer)):
        return False
    fields = incoming.fields
    if "forwarded" in fields or any(name.startswith("x-forwarded-") for name in fields):
        return False
    if not _is_loopback_name(_host_of(f"//{fields.get('host', '')}")):
        return False
    origin = fields.get("origin")
    if origin is not None and not _is_loopback_name(_host_of(origin)):
        return False
    return fields.get("sec-fetch-site", "none") in ("none", "same-origin")


def _refuse_foreign(incoming: Incoming, method: str) -> None:
    """A browser's cookie comes along whoever wrote the page: only our own pages may change anything (CSRF)."""
    if method in ("GET", "HEAD"):
        return
    site = incoming.get("sec-fetch-site")
    origin = incoming.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        raise Forbidden("this was sent by a page of another site")
    if origin is not None and origin.partition("//")[2] != incoming.get("host"):
        raise Forbidden("this was sent by a page of another site")


def address_of(peer: str) -> str:
    """The address of an `ip:port`."""
    return peer.rpartition(":")[0].strip("[]")


def _is_loopback_address(address: str) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return ip.is_loopback


def _host_of(url: str) -> str:
    """The host that a browser would contact for `url`; empty where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_loopback_name(name: str) -> bool:
    return name.rstrip(".") == "localhost" or _is_loopback_address(name)


def _cookie(incoming: Incoming) -> str:
    for part in (incoming.get("cookie") or "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""
