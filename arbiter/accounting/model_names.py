"""The names under which a price list may know a model, from the one it was asked by (FEATURES P43, P71)."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Each step takes off one thing that changes no price; what is left is tried before the next one.
_STEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\[1m\]$"), ""),  # a wider context window of the same model
    (re.compile(r"^(?:bedrock|vertex_ai|azure|models|publishers/[a-z-]+/models)/"), ""),
    # OpenRouter's ways to choose among who serves a model. `:free` and `:batch` are models of their own.
    (re.compile(r":(?:nitro|floor|exacto|extended|thinking)$"), ""),
    (re.compile(r"^(?:us-gov|us|eu|apac|au|ca|jp|global)\.(?=[a-z0-9]+\.)"), ""),  # Bedrock: where it runs
    (re.compile(r"-v[0-9]+(?::[0-9]+(?::[0-9a-z]+)?)?$|(?<=[a-z0-9]):[0-9]+$"), ""),  # Bedrock: version, window
    (re.compile(r"[-@]20[0-9]{2}-?[01][0-9]-?[0-3][0-9]$"), ""),
    (re.compile(r"-latest$|@latest$|@default$"), ""),
)
_VENDOR = re.compile(
    r"^(?:[a-z0-9_-]+/|(?:anthropic|meta|mistral|amazon|cohere|deepseek|openai|qwen)\.)", re.IGNORECASE
)


def spellings(model: str) -> Iterator[str]:
    """`model` as it is, then with ever less of what changes no price: regions, versions, dates, the vendor.

    A price list is asked with each in turn, so that a name it knows exactly always wins.
    """
    yield model
    name = model
    for pattern, less in _STEPS:
        shorter = pattern.sub(less, name)
        if shorter != name and shorter:
            name = shorter
            yield name
    bare = _VENDOR.sub("", name)
    if bare != name and bare:
        yield bare
