"""Pack a tokenizer's vocabulary for arbiter/ledger/vocabulary.

    python scripts/vocabulary.py o200k_base.tiktoken PATTERN_FILE

The first file is OpenAI's, a line for each token: its bytes in base64, its rank. The second holds the expression that
cuts a text into words. What is written: the number of tokens and the expression, a line each, the length of each token
as one byte, and all tokens.
"""

from __future__ import annotations

import base64
import hashlib
import lzma
import sys
from pathlib import Path

SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
TARGET = Path(__file__).parents[1] / "arbiter" / "ledger" / "vocabulary" / "o200k_base.xz"


def main() -> None:
    ranks, pattern = (Path(name).read_bytes() for name in sys.argv[1:3])
    if hashlib.sha256(ranks).hexdigest() != SHA256:
        sys.exit("this is not OpenAI's o200k_base.tiktoken")
    lines = [line.split() for line in ranks.splitlines()]
    tokens = [base64.b64decode(token) for token, _ in lines]
    assert [int(rank) for _, rank in lines] == list(range(len(tokens)))
    packed = b"%d\n%b\n" % (len(tokens), pattern.strip()) + bytes(map(len, tokens)) + b"".join(tokens)
    TARGET.write_bytes(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME))
    print(f"{TARGET}: {len(tokens)} tokens, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
