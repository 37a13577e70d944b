"""How many tokens a text is, for estimates where nobody counted.

The vocabulary is OpenAI's `o200k_base`, which comes with the package. It takes 0.8 s to load and some 60 MB, so it is
loaded when first needed, and in the control process only: a worker never counts. Other vendors' tokenizers cut text
into more pieces or fewer, by a third at most for most text: it is an estimate, and its columns say so.
"""

from __future__ import annotations

import logging
import lzma
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken

NAME = "o200k_base"
BYTES_PER_TOKEN = 4
"""Of text that is not looked at."""
log = logging.getLogger("arbiter.ledger")

PIECE_BYTES = 512
"""Long enough that the cut at its end does not matter."""


class Tokenizer:
    """`rate` is all there is to ask."""

    def __init__(self) -> None:
        self._encoding: tiktoken.Encoding | None = None
        self._is_missing = False

    def rate(self, text: bytes, at_most: int) -> tuple[float, int]:
        """Return the tokens per byte of `text`, and how much of it was looked at: pieces from all over it.

        Units: bytes; 1 MB takes about a second.
        """
        looked_at = _pieces(text, at_most)
        size = sum(map(len, looked_at))
        if not size:
            return 1 / BYTES_PER_TOKEN, 0
        if self._encoding is None and not self._is_missing:
            try:
                self._encoding = _load()
            except ImportError as error:  # a platform that tiktoken has no build for
                self._is_missing = True
                log.warning("tokens are estimated at %d bytes each: %s", BYTES_PER_TOKEN, error)
        if self._encoding is None:
            return 1 / BYTES_PER_TOKEN, 0
        tokens = sum(len(self._encoding.encode_ordinary(piece.decode("utf-8", "replace"))) for piece in looked_at)
        return tokens / size, size


def _pieces(text: bytes, at_most: int) -> list[bytes]:
    if len(text) <= at_most:
        return [text]
    count = at_most // PIECE_BYTES
    if count < 2:
        return [text[:at_most]]
    ends = len(text) - PIECE_BYTES
    return [text[at : at + PIECE_BYTES] for at in (number * ends // (count - 1) for number in range(count))]


def ranks() -> tuple[str, dict[bytes, int]]:
    """The vocabulary: the expression that cuts a text into words, and the rank of each token."""
    packed = lzma.decompress((resources.files("arbiter.ledger") / "vocabulary" / f"{NAME}.xz").read_bytes())
    number, pattern, rest = packed.split(b"\n", 2)
    count = at = int(number)  # of tokens: first the length of each, then all of them
    found: dict[bytes, int] = {}
    for rank in range(count):
        found[rest[at : at + rest[rank]]] = rank
        at += rest[rank]
    return pattern.decode(), found


def _load() -> tiktoken.Encoding:
    import tiktoken

    pattern, found = ranks()
    return tiktoken.Encoding(NAME, pat_str=pattern, mergeable_ranks=found, special_tokens={})
