"""Vectors that mean something, as an embedding model's do: a text's words, hashed into a few numbers.

Words that share a stem come to the same number, and so do those that `SAME` says mean the same.

with Namer() as namer:
    namer.answer = embedded
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tests.fakes.namer import Reply

WIDTH = 1024
SAME = {"automobile": "car", "vehicle": "car", "feline": "cat", "kitten": "cat", "speedy": "fast", "quick": "fast"}


def vector(text: str, width: int = WIDTH) -> list[float]:
    numbers = [0.0] * width
    for word in re.findall(r"\w+", text.lower()):
        word = SAME.get(word, word)
        digest = hashlib.sha256(word[:5].encode()).digest()
        numbers[int.from_bytes(digest[:4], "big") % width] += 1.0
    return numbers if any(numbers) else [1.0, *numbers[1:]]


def embedded(asked: dict[str, Any]) -> Reply:
    """OpenAI's answer to a question for embeddings."""
    texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
    width = asked.get("dimensions", WIDTH)
    data = [
        {"object": "embedding", "index": number, "embedding": vector(text, width)} for number, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 10 * len(texts), "total_tokens": 10 * len(texts)}
    told = {"object": "list", "data": data, "model": asked["model"], "usage": usage}
    return Reply(200, json.dumps(told).encode())
