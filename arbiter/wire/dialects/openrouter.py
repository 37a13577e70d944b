"""OpenRouter: OpenAI's format with books of its own.

It is asked for its figures (`usage: {include: true}`, SPEC 6.6a), without which older accounts get no `cost`; newer
ones get it either way. An app is known to it by `HTTP-Referer` and `X-Title`: a caller that names itself so is
attributed, and nobody is made up (SPEC 6.7).

Source: openrouter.ai/docs, usage accounting and app attribution, 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from arbiter.config.snapshot import Account
from arbiter.wire.dialects.dialect import Changes, Dialect, Pairs
from arbiter.wire.native import CHAT

ASKED = Changes({"usage": Raw(b'{"include":true}')})


class OpenRouter(Dialect):
    forwards = ("http-referer", "x-title", "x-openrouter-title", "x-openrouter-categories")

    def credential(self, account: Account, wire: str) -> Pairs:
        return [("authorization", f"Bearer {account.key}")] if account.key else []

    def changes(
        self, wire: str, fields: Mapping[str, str], betas: tuple[str, ...] = (), *, counts: bool = False
    ) -> Changes | None:
        return ASKED if wire == CHAT else None
