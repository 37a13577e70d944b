"""How many tokens a byte of text is: learned per target and client, from sums of what was sent and what was reported.

A density is believed as far as there is text behind it. What is missing to `PRIOR_BYTES` is made up by what is known of
the target whoever asks, and that in turn by the ordinary density of text.
"""

from __future__ import annotations

from collections.abc import Mapping

Pair = tuple[str, str]
"""(target as "provider/model", client); the client is "" in what is known of a target whoever asks."""
Sums = tuple[float, float]
"""(bytes of text, tokens that they came to)."""

BYTES_PER_TOKEN = 4
"""Of text that nobody counted. The prompts of agents have 3.7 to 4.3, as o200k_base cuts them."""
PRIOR_BYTES = 16 << 10

# Beyond these it is another prompt that was counted: one that a server keeps, or hardly any of ours.
_LEAST, _MOST = 1 / 40, 2.0


def density(learned: Mapping[Pair, Sums], target: str, client: str) -> float:
    """Tokens per byte."""
    found = 1 / BYTES_PER_TOKEN
    for pair in ((target, ""), (target, client)):
        text, tokens = learned.get(pair, (0.0, 0.0))
        missing = max(0.0, PRIOR_BYTES - text)
        found = (tokens + missing * found) / (text + missing)
    return found


def is_believable(text: int, tokens: int) -> bool:
    """Whether so many bytes may come to so many tokens."""
    return text > 0 and _LEAST <= tokens / text <= _MOST
