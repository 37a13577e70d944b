"""Who speaks what: the APIs that each vendor's own server had on one day.

Nothing is routed by it: a model is asked as its provider's type and its own `api` say, and one that nobody knows in
chat. It warns of an `api` that its vendor had not, and it has an age, which is that of all our knowledge of vendors and
their models (`wire/*_models.py` is of the same day). Once it is too old, a process that starts says so, once.

Source: the vendors' API references.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime

from arbiter.config.snapshot import Provider

AS_OF = date(2026, 11, 30)
MAX_AGE_DAYS = 90

SPOKEN: Mapping[str, tuple[str, ...]] = {
    "api.anthropic.com": ("messages", "chat"),
    "api.deepseek.com": ("chat", "messages"),
    "api.groq.com": ("chat", "responses"),
    "api.mistral.ai": ("chat",),
    "api.moonshot.ai": ("chat", "messages"),
    "api.moonshot.cn": ("chat", "messages"),
    "api.openai.com": ("chat", "responses"),
    "api.together.xyz": ("chat",),
    "api.x.ai": ("chat", "responses", "messages"),
    "api.z.ai": ("chat", "messages"),
    "generativelanguage.googleapis.com": ("chat",),
    "openrouter.ai": ("chat", "responses", "messages"),
}
"""What a model of that host may name as its `api`."""


def doubts(providers: Mapping[str, Provider]) -> Iterator[str]:
    """What is told of models that are to be asked through an API which their vendor had not."""
    for provider in providers.values():
        had = SPOKEN.get(provider.endpoint.host)
        for model in provider.models:
            if had is not None and model.api is not None and model.api not in had:
                yield (
                    f"providers.{provider.name}: {model.id} is asked through `api: {model.api}`, which "
                    f"{provider.endpoint.host} did not have on {AS_OF}"
                )


def overdue(now_ms: int) -> str | None:
    """What is told of this snapshot's age at a moment; None while it is not too old."""
    days = (datetime.fromtimestamp(now_ms / 1000, UTC).date() - AS_OF).days
    if days <= MAX_AGE_DAYS:
        return None
    return (
        f"what this release knows of vendors and their models is of {AS_OF}, {days} days old: what came since is asked "
        "as its provider's type says, and models[].api says otherwise; a newer release knows more"
    )
