"""One TLS context per identity: always verifying, with the system's trust or the configured CA."""

from __future__ import annotations

import ssl

from ..errors import ConfigFault
from ..log import Log

_CONTEXTS = 256  # identities come from the configuration; the bound is against reloads that rotate file names

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
