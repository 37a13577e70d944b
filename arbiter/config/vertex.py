"""Vertex AI: a project at a place, and the service account that may ask there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from arbiter.config import schema
from arbiter.config.address import Fault, call
from arbiter.config.decode import join
from arbiter.config.snapshot import ServiceAccount, VertexPlace
from arbiter.config.source import read_secret

_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]{0,62}")
_LOCATION = re.compile(r"[a-z][a-z0-9-]{0,62}")
_OPTIONS = ("project", "location", "credentials")


class _File(msgspec.Struct):
    """A service account's key, as Google's console gives it."""

    type: str
    client_email: str
    private_key: str
    private_key_id: str = ""
    token_uri: str = "https://oauth2.googleapis.com/token"


def place(written: schema.Provider, path: str, error: Fault) -> VertexPlace | None:
    """Where a provider's models are, None for one of another type. Errors: what `error(path, message)` makes."""
    if written.type != "vertex":
        for option in _OPTIONS:
            if getattr(written, option) is not None:
                raise error(join(path, option), f"only vertex has this; {written.type} has none")
        return None
    if written.project is None:
        raise error(path, '"project" is missing: the id of the Google Cloud project that pays')
    if not _PROJECT.fullmatch(written.project):
        raise error(join(path, "project"), "expected a project's id, as in my-project-123")
    location = written.location or "global"
    if not _LOCATION.fullmatch(location):
        raise error(join(path, "location"), "expected a region, as in us-east5, or global")
    return VertexPlace(written.project, location)


def service(
    written: schema.Provider, path: str, base: Path, env: Mapping[str, str], error: Fault
) -> ServiceAccount | None:
    """The service account of a provider, None where it has none. Errors: what `error(path, message)` makes; none shows
    anything of the key."""
    if written.type != "vertex" or written.credentials is None:
        return None
    here = join(path, "credentials")
    for option in ("key", "key_file"):
        if getattr(written, option) is not None:
            raise error(here, f"give either {option} or credentials")
    if written.keys:
        raise error(here, "give either keys or credentials")
    text = read_secret(base / written.credentials, "credentials", partial(error, here))
    try:
        found = msgspec.json.decode(text, type=_File)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise error(here, "not the key of a service account: expected the JSON file that Google gives") from None
    if found.type != "service_account":
        raise error(here, "only keys of service accounts are built; this file holds another kind of credentials")
    if not _is_rsa(found.private_key):
        raise error(here, "its private_key is none, or not one of RSA")
    at = call(found.token_uri, written, path, here, base, env, error)
    return ServiceAccount(found.client_email, found.private_key, found.private_key_id, at, found.token_uri)


def _is_rsa(pem: str) -> bool:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return isinstance(load_pem_private_key(pem.encode(), password=None), RSAPrivateKey)
    except (ValueError, TypeError):
        return False
