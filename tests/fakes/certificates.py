"""A private CA for tests, and the certificates and contexts that come from it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Authority:
    """One CA; its files lie in `where`."""

    where: Path
    ca: trustme.CA

    @property
    def file(self) -> str:
        """The CA's certificate, as `tls.ca` names it."""
        path = self.where / "ca.pem"
        if not path.exists():
            self.ca.cert_pem.write_to_path(str(path))
        return str(path)

    def server(self, *names: str, client_ca: bool = False) -> ssl.SSLContext:
        """A server's context for these names; `client_ca`: it asks for a certificate of the same CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*(names or ("127.0.0.1", "localhost"))).configure_cert(context)
        if client_ca:
            self.ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_files(self, name: str = "client@example.com") -> tuple[str, str]:
        """A client's certificate and key, as `tls.cert` and `tls.key` name them."""
        issued = self.ca.issue_cert(name)
        cert, key = self.where / "client.pem", self.where / "client.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return str(cert), str(key)


@cache
def _ca(name: str) -> trustme.CA:
    return trustme.CA(organization_name=name)


def authority(where: Path, name: str = "arbiter tests") -> Authority:
    """The CA called `name`, made once per run, with its files in `where`."""
    return Authority(where, _ca(name))
