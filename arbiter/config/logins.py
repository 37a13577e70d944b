"""Providers that are sent their callers' own logins (`auth: passthrough`): what such a provider may be told besides.

The login goes with the request that it came with: whatever would change that request, or put another credential in the
login's place, is a fault of the file.
"""

from __future__ import annotations

from collections.abc import Callable

from arbiter.config import schema
from arbiter.config.address import Fault
from arbiter.config.decode import join

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
