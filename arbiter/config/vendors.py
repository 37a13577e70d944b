"""What each type of provider brings, and what it has to say beside its endpoint and key."""

from __future__ import annotations

import re
from collections.abc import Mapping

from arbiter.config.address import Fault
from arbiter.config.decode import join
from arbiter.config.schema import Model, Provider
from arbiter.config.snapshot import Account
from arbiter.config.words import check_secret

WIRES = {
    "openai": "openai-chat",
    "azure": "openai-chat",
    "openrouter": "openai-chat",
    "ollama": "openai-chat",
    "anthropic": "anthropic-messages",
    "gemini": "google-gemini",
    "bedrock": "bedrock-converse",
    "vertex": "google-gemini",
    "echo": "any",
}
"""The format that it speaks."""

HEADERS_S = {"anthropic": 120.0, "bedrock": 120.0, "vertex": 120.0}
"""How long a stream's headers are waited for, where that is not a minute (SPEC 3.3)."""

_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-[a-z]{1,16})?")


_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]{1,12}){1,3}-[0-9]{1,2}")
_OF_AWS = ("region", "access_key_id", "secret_access_key", "session_token")

_APIS = {"bedrock": ("converse", "messages"), "vertex": ("messages",)}
_USUAL = ("chat", "responses", "messages")
"""What models may be asked through: at these two, and elsewhere."""


def check(written: Provider, path: str, error: Fault) -> None:
    """Errors: what `error(path, message)` makes, where a key is not for this type, or cannot be."""
    if written.api_version is not None:
        here = join(path, "api_version")
        if written.type != "azure":
            raise error(here, f"only azure has versions; {written.type} has none")
        if not _VERSION.fullmatch(written.api_version):
            raise error(here, "expected a version like 2024-10-21 or 2025-04-01-preview")
    if written.type != "bedrock":
        for option in _OF_AWS:
            if getattr(written, option) is not None:
                raise error(join(path, option), f"only bedrock is AWS's; {written.type} has none")
    for index, model in enumerate(written.models):
        if isinstance(model, Model) and model.api is not None and model.api not in _APIS.get(written.type, _USUAL):
            raise error(join(join(join(path, "models"), index), "api"), f"{written.type} has no {model.api}")


def region(written: Provider, path: str, env: Mapping[str, str], error: Fault) -> str | None:
    """AWS's region of a provider of type bedrock. Errors: what `error(path, message)` makes where there is none."""
    if written.type != "bedrock":
        return None
    here = join(path, "region")
    found = written.region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or ""
    if not found:
        raise error(here, "AWS's region is missing; write it, or set AWS_REGION")
    if not _REGION.fullmatch(found):
        raise error(here, "expected a region like us-east-1")
    return found


def signing(written: Provider, path: str, env: Mapping[str, str], error: Fault) -> tuple[Account, ...] | None:
    """The account of a provider of type bedrock that has no `key`: an access key, or AWS's own variables; None for any
    other provider. Errors: what `error(path, message)` makes; none shows a key."""
    if written.type != "bedrock":
        return None
    has_key = written.key is not None or written.key_file is not None or bool(written.keys)
    given = [option for option in _OF_AWS[1:] if getattr(written, option) is not None]
    if given and has_key:
        raise error(join(path, given[0]), "give either a key, which is a Bedrock API key, or an access key")
    if has_key:
        return None
    if given:
        id, secret, token = written.access_key_id, written.secret_access_key, written.session_token
        for option, value in (("access_key_id", id), ("secret_access_key", secret)):
            if not (value or "").strip():
                raise error(join(path, option), "an access key is an id and its secret; give both")
    elif bearer := env.get("AWS_BEARER_TOKEN_BEDROCK"):
        id, secret, token = "", bearer, None
    else:
        id, secret, token = (env.get(f"AWS_{name}") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"))
        if not id or not secret:
            return (Account(),)
    parts = [(part or "").strip() for part in (id, secret, token)]
    for part in parts:
        check_secret(part, lambda message: error(path, message))
    return (Account(None, parts[1], access_id=parts[0], session_token=parts[2]),)


def api_of(provider: str, model: str, api: str | None) -> str | None:
    """The API that a model is asked through, where that is not what its provider speaks: Vertex has Anthropic's too."""
    return "messages" if api is None and provider == "vertex" and model.startswith("claude") else api
