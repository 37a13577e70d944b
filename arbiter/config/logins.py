"""Providers that are asked on logins: their callers' own (`auth: passthrough`), or one of ours (`auth: oauth`).

A caller's login goes with the request that it came with: whatever would change that request, or put another credential
in the login's place, is a fault of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from arbiter.config import schema
from arbiter.config.address import Fault, call
from arbiter.config.decode import join
from arbiter.config.snapshot import Endpoint, OAuth

TYPES = ("anthropic", "openai")

AGENTS_HEADERS: dict[str, tuple[str, ...]] = {
    "anthropic": (
        "user-agent",
        "x-app",
        "x-stainless-*",
        "x-claude-code-*",
        "x-client-request-id",
        "anthropic-*",
    ),
    "openai": (
        "user-agent",
        "originator",
        "version",
        "chatgpt-account-id",
        "openai-*",
        "x-openai-*",
        "x-oai-*",
        "x-codex-*",
        "x-stainless-*",
        "x-client-request-id",
        "session_id",
        "session-id",
        "thread_id",
        "thread-id",
        "conversation_id",
    ),
}
"""What the vendors' own agents (Claude Code, Codex) send beside a login, and what their services look at."""

_REPLACED = frozenset({"authorization", "x-api-key"})


def oauth(
    written: schema.Provider, path: str, base: Path, env: Mapping[str, str], error: Fault, stands: Callable[[str], bool]
) -> OAuth | None:
    """The login of a provider, where it is asked on one. Errors: what `error(path, message)` makes."""
    here = join(path, "oauth")
    if written.auth != "oauth":
        return None
    if written.type not in TYPES:
        raise error(join(path, "auth"), f"{written.type} has no logins; {' and '.join(TYPES)} have")
    for option in ("key", "key_file", "keys"):
        if stands(join(path, option)):
            raise error(join(path, option), "with auth: oauth the login is sent; remove this")
    told = written.oauth
    if told.token_url is None or told.client_id is None:
        missing = "token_url" if told.token_url is None else "client_id"
        raise error(here if stands(here) else join(path, "auth"), f"auth: oauth needs oauth.{missing}")
    if told.authorize_url is not None and told.redirect_uri is None:
        raise error(join(here, "authorize_url"), "needs redirect_uri: where the vendor sends the browser back")
    if told.authorize_url is not None:
        call(told.authorize_url, written, path, join(here, "authorize_url"), base, env, error)

    def at(option: str, url: str) -> tuple[Endpoint, str]:
        return call(url, written, path, join(here, option), base, env, error)

    return OAuth(
        token_at=at("token_url", told.token_url),
        client_id=told.client_id,
        client_secret=told.client_secret or "",
        scopes=tuple(told.scopes),
        encoding=told.encoding,
        authorize_url=told.authorize_url,
        redirect_uri=told.redirect_uri,
        device_at=at("device_url", told.device_url) if told.device_url is not None else None,
        parameters=tuple(told.parameters.items()),
        refresh_before_s=told.refresh_before_s,
        clients=frozenset(told.clients),
    )


def check(written: schema.Provider, path: str, error: Fault, stands: Callable[[str], bool]) -> None:
    """Refuse what a provider that takes logins cannot have. Errors: what `error(path, message)` makes."""
    if written.type not in TYPES:
        raise error(join(path, "auth"), f"{written.type} has no logins to pass through; {' and '.join(TYPES)} have")
    for option in ("key", "key_file", "keys"):
        if stands(join(path, option)):
            raise error(join(path, option), "with auth: passthrough the caller's own credential is sent; remove this")
    for option, refused in (
        ("relay", ("rebuild",)),
        ("prompt_cache", ("arbiter", "off")),
        ("attribution", ("drop",)),
        ("speechless", ("nudge",)),
        ("responses_api", ("transcode",)),
    ):
        if getattr(written, option) in refused:
            raise error(
                join(path, option),
                "with auth: passthrough the caller's request goes out as it is; nothing may alter it",
            )
    for name in written.headers:
        if name.lower() in _REPLACED:
            raise error(join(join(path, "headers"), name), "with auth: passthrough this is the caller's own to send")
