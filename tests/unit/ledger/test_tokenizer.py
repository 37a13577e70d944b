"""Counting tokens with the vocabulary that comes with the package."""

from __future__ import annotations

import base64
import builtins
import hashlib
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.ledger import tokenizer
from arbiter.ledger.tokenizer import BYTES_PER_TOKEN, Tokenizer

ROOT = Path(__file__).resolve().parents[3]
OPENAIS = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"  # tiktoken checks its download against it
TEXT = "The quick brown fox jumps over the lazy dog. Grüße! 你好，世界。 def f(x): return {'a': x[0]}\n".encode()

one = Tokenizer()


def test_the_vocabulary_is_openais_to_the_byte() -> None:
    """Written as OpenAI publishes it, it has the checksum that tiktoken knows."""
    _, ranks = tokenizer.ranks()
    lines = [base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()]
    assert len(ranks) == 199_998 and hashlib.sha256(b"".join(lines)).hexdigest() == OPENAIS


def test_the_packed_vocabulary_is_small_and_has_its_licence() -> None:
    folder = ROOT / "arbiter" / "ledger" / "vocabulary"
    assert (folder / f"{tokenizer.NAME}.xz").stat().st_size < 1 << 20
    assert "MIT License" in (folder / "LICENSE").read_text()


@pytest.mark.parametrize(
    ("text", "tokens"),
    # as OpenAI's cookbook counts them with o200k_base
    [("hello world", 2), ("tiktoken is great!", 6), ("antidisestablishmentarianism", 6), ("2 + 2 = 4", 7),
     ("お誕生日おめでとう", 8), ("<|endoftext|>", 7)],
)  # fmt: skip
def test_tokens_are_counted_as_openai_counts_them(text: str, tokens: int) -> None:
    """A special token in somebody's text is text."""
    data = text.encode()
    rate, looked_at = one.rate(data, 1 << 20)
    assert (round(rate * len(data)), looked_at) == (tokens, len(data))


def test_a_long_text_is_looked_at_all_over() -> None:
    """Half of it dense, half of it not: the pieces find the middle."""
    dense, thin = "你好，世界。".encode() * 20_000, b"hello world and all of it " * 15_000
    rate, looked_at = one.rate(dense + thin, 8192)
    assert looked_at == 8192
    parts = [one.rate(text, 8192)[0] * len(text) for text in (dense, thin)]
    assert rate * len(dense + thin) == pytest.approx(sum(parts), rel=0.1)


@pytest.mark.parametrize("text", [b"a" * 32768, b" " * 32768, b"\n" * 32768, b"\xff" * 32768, b"aB3$" * 8192])
def test_no_text_takes_long(text: bytes) -> None:
    """Runs of one letter are where tokenizers have had their quadratic moments. The bound is generous."""
    began = time.monotonic()
    rate, looked_at = one.rate(text, 32768)
    assert time.monotonic() - began < 20 and looked_at == len(text) and 0 < rate <= 2


@settings(deadline=None, max_examples=50)
@given(text=st.binary(max_size=300), at_most=st.integers(0, 200))
def test_no_more_is_looked_at_than_allowed(text: bytes, at_most: int) -> None:
    rate, looked_at = one.rate(text, at_most)
    assert looked_at <= at_most and rate >= 0


def test_without_a_tokenizer_four_bytes_are_a_token(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SPEC 9.2: it falls back, and says so once."""
    real = builtins.__import__

    def no_tiktoken(name: str, *more: Any, **named: Any) -> Any:
        if name == "tiktoken":
            raise ImportError("no build for this platform")
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", no_tiktoken)
    without = Tokenizer()
    with caplog.at_level(logging.WARNING):
        assert without.rate(TEXT, 100) == without.rate(TEXT, 100) == (1 / BYTES_PER_TOKEN, 0)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_worker_never_loads_it() -> None:
    """It would cost each of them 60 MB; and the control process pays when it first estimates, not at its start."""
    code = (
        "import sys, arbiter.app.worker, arbiter.gateway, arbiter.control.main, arbiter.ledger.estimates as e\n"
        "e.Estimates()\n"
        "print([name for name in sys.modules if 'tiktoken' in name])\n"
        "import arbiter.app.rsgi"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
    code = "import sys, arbiter.app.worker; print('arbiter.ledger.tokenizer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
