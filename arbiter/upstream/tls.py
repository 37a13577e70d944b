"""One TLS context per identity, always verifying, with the system's trust or the configured CA; and sessions to resume.

A resumed handshake shows and verifies no certificates: less CPU on both sides (docs/design.md has figures), and in
TLS 1.2 a round trip less. It stands on what the full one verified, so a session goes back only to the place that gave
it, as the same identity, for an hour at most.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from ..clock import monotonic
from ..errors import ConfigFault
from ..log import Log

_CONTEXTS = 256  # identities come from the configuration; the bound is against reloads that rotate file names
_SESSIONS = 1024
_SESSION_S = 3600.0  # a certificate that expired or was replaced is noticed after this long at the latest

_log = Log(__name__)


class Contexts:
    """TLS contexts, built once per (CA file, certificate, key, protocol)."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[str | None, str | None, str | None, bool], ssl.SSLContext] = {}
        self._told: set[str] = set()  # what the log has of files that cannot be used

    def get(self, ca: str | None, cert: str | None, key: str | None, http2: bool = False) -> ssl.SSLContext:
        """The context for this identity.

        Errors: ConfigFault if a file cannot be used. It reaches clients, so the log alone has the file's name, once.
        """
        identity = (ca, cert, key, http2)
        context = self._contexts.get(identity)
        if context is None:
            if len(self._contexts) >= _CONTEXTS:
                self._contexts.clear()
            context = self._contexts[identity] = self._build(ca, cert, key, http2)
        return context

    def _build(self, ca: str | None, cert: str | None, key: str | None, http2: bool) -> ssl.SSLContext:
        try:
            # `tls.ca` replaces the system's trust: who names a private CA trusts that one.
            context = ssl.create_default_context(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise self._unusable("tls.ca", ca, error) from None
        if cert is not None:
            try:
                context.load_cert_chain(cert, key)
            except (OSError, ssl.SSLError) as error:
                raise self._unusable("tls.cert", cert, error) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"] if http2 else ["http/1.1"])
        return context

    def _unusable(self, key: str, file: str | None, error: OSError) -> ConfigFault:
        why = error.strerror or type(error).__name__
        said = f"{key} {file} cannot be used: {why}"
        if said not in self._told:
            if len(self._told) >= _CONTEXTS:
                self._told.clear()
            self._told.add(said)
            _log.warn(said)
        return ConfigFault(f"the provider's {key} cannot be used: {why}")


class Handshake:
    """One connection's TLS, given to a loop as `ssl=`: of a context it asks `wrap_bio` alone, and names no session.

    `place` is all that two connections must share for one to resume the other: the address and the identity.
    """

    __slots__ = ("context", "offered", "place", "started_at", "tls")

    def __init__(self, place: object, context: ssl.SSLContext, offered: ssl.SSLSession | None = None) -> None:
        self.place = place
        self.context = context
        self.offered = offered
        self.started_at = monotonic()
        self.tls: ssl.SSLObject | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> ssl.SSLObject:
        self.tls = self.context.wrap_bio(incoming, outgoing, server_side, server_hostname, self.offered)
        return self.tls


@dataclass(frozen=True, slots=True)
class _Kept:
    context: ssl.SSLContext
    session: ssl.SSLSession
    kept_at: float


class Sessions:
    """The TLS session that each place gave last.

    One session serves many connections, as in nginx: what RFC 8446 C.4 fears, that an observer links them, a gateway's
    address tells anyway. A server that takes each once answers with a full handshake, whose session is kept instead.
    """

    def __init__(self) -> None:
        self._kept: dict[object, _Kept] = {}

    def handshake(self, place: object, context: ssl.SSLContext) -> Handshake:
        """The next handshake with `place`: resuming, if it gave a session to this very context within the hour."""
        kept = self._kept.get(place)
        if kept is None or kept.context is not context or monotonic() - kept.kept_at > _SESSION_S:
            return Handshake(place, context)
        return Handshake(place, context, kept.session)

    def keep(self, handshake: Handshake) -> None:
        """Keep what the server gave after this full handshake; in TLS 1.3 it comes with the first bytes of an answer.

        Of a burst the first one's is enough: to take one costs a tenth of a millisecond. One that comes of a resumed
        handshake is not taken, or certificates would never be looked at again.
        """
        place, tls = handshake.place, handshake.tls
        if tls is None or tls.session_reused:
            return
        kept = self._kept.get(place)
        if kept is not None and kept.context is handshake.context and kept.kept_at >= handshake.started_at:
            return
        session = tls.session
        if session is None or not (session.has_ticket or (session.id and tls.version() == "TLSv1.2")):
            return
        if len(self._kept) >= _SESSIONS:
            self._kept.clear()
        self._kept[place] = _Kept(handshake.context, session, monotonic())

    def forget(self, place: object) -> None:
        """Offer `place` nothing until it gives another: what it gave may be why a connection failed."""
        self._kept.pop(place, None)
