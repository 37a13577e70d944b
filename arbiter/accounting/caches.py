"""What is known of the providers' prompt caches: how small, how fine and how lasting they are.

A loss is only told from the ordinary by these. The configuration's word goes first (`providers.<name>.cache`, and the
same with a model), then what is known of a model by its name, then what holds for the format that the provider speaks.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from arbiter.config.snapshot import CacheFacts, Provider

FLOOR = 8192
"""Tokens. Providers read in blocks, and some of a prefix late: about 2k is usual, 6k were seen."""
EXACT_FLOOR = 2048
"""Where reads are exact to the token."""
MINIMUM = 1024
TTL_S = 300.0


class Cache(NamedTuple):
    """Losses below `floor` tokens are not counted; prompts below `minimum` are not cached; what nobody used for `ttl_s`
    may be gone, where a request's own marks say nothing else. `drops_thinking`: once the user speaks again, the
    provider takes the model's thoughts of the turn before out of the prompt, and so out of what it has cached."""

    floor: int = FLOOR
    minimum: int = MINIMUM
    ttl_s: float = TTL_S
    drops_thinking: bool = False


_KNOWN: tuple[tuple[str, Cache], ...] = (
    # Anthropic: lengths and times are from its page on prompt caching, what becomes of thoughts from that on thinking.
    ("*claude*haiku-4*", Cache(EXACT_FLOOR, 4096, drops_thinking=True)),
    ("*claude*haiku*", Cache(EXACT_FLOOR, 2048, drops_thinking=True)),
    ("*claude*opus-4[-.][5-9]*", Cache(EXACT_FLOOR, 4096)),
    ("*claude*sonnet-4[-.][6-9]*", Cache(EXACT_FLOOR, 2048)),
    ("*claude*opus-4*", Cache(EXACT_FLOOR, 1024, drops_thinking=True)),
    ("*claude*sonnet-4*", Cache(EXACT_FLOOR, 1024, drops_thinking=True)),
    ("*claude-3*", Cache(EXACT_FLOOR, 1024, drops_thinking=True)),
    ("*claude*", Cache(EXACT_FLOOR, 1024)),
    # OpenAI: "5 to 10 minutes of inactivity" for what is held in memory; 30 minutes at least from GPT-5.6 on.
    ("*gpt-5.[6-9]*", Cache(ttl_s=1800.0)),
    ("*gpt-*", Cache()),
    # Implicit caching, without a promise.
    ("*gemini*", Cache(minimum=4096, ttl_s=3600.0)),
    ("*deepseek*", Cache(minimum=64, ttl_s=7200.0)),
)
"""The first whose pattern fits the model's name, in lower case."""

_BY_WIRE = {"anthropic-messages": Cache(EXACT_FLOOR, 4096)}


def cache(provider: Provider | None, model: str | None, wire: str) -> Cache:
    """What holds for `model`, by the name that its provider knows it by; `provider` None: it left the configuration."""
    found = _known(model or "", wire)
    if provider is None:
        return found
    for facts in (provider.cache, _declared(provider, model)):
        found = _over(found, facts)
    return found


def _declared(provider: Provider, model: str | None) -> CacheFacts:
    return next((one.cache for one in provider.models if one.upstream == model), CacheFacts())


def _over(below: Cache, facts: CacheFacts) -> Cache:
    return Cache(
        below.floor if facts.floor is None else facts.floor,
        below.minimum if facts.minimum is None else facts.minimum,
        below.ttl_s if facts.ttl_s is None else facts.ttl_s,
        below.drops_thinking,
    )


@lru_cache(maxsize=1024)
def _known(model: str, wire: str) -> Cache:
    name = model.lower()
    fallback = _BY_WIRE.get(wire, Cache())
    return next((facts for pattern, facts in _KNOWN if fnmatchcase(name, pattern)), fallback)
