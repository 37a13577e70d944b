"""What it costs to hand reasoning along: to seal and open an item, and to watch a stream for what is to be sealed."""

from __future__ import annotations

from typing import Any

import pytest

from arbiter.model import Message, Request, SealedThinking, Text, ToolCall
from arbiter.wire import anthropic_messages, openai_chat
from arbiter.wire.course import Ending
from arbiter.wire.native import CHAT, MESSAGES
from arbiter.wire.restored import HandedAlong
from arbiter.wire.sealer import Sealer
from arbiter.wire.translated import TranslatedStream
from arbiter.wire.vault import Origin, Sealed, Thought, Vault, digest, home_of
from bench.micro import streams

SIZES = [1, 100]
VAULT = Vault((b"k" * 32,))
ORIGIN = Origin(CHAT, home_of("https://api.example/v1"), "", "deepseek-chat")


def sealed(kb: int) -> Sealed:
    thought = Thought(0, 0, "Why would it do that? Let me think. " * (kb * 28))
    return Sealed(ORIGIN, ("call_1",), 5, digest("Hello"), (thought,))


@pytest.mark.parametrize("kb", SIZES)
def test_seal(benchmark: Any, kb: int) -> None:
    item = benchmark(VAULT.seal, sealed(kb), "ann")
    assert VAULT.open(item, "ann") == sealed(kb)


@pytest.mark.parametrize("kb", SIZES)
def test_open(benchmark: Any, kb: int) -> None:
    item = VAULT.seal(sealed(kb), "ann")
    assert item is not None
    benchmark(VAULT.open, item, "ann")


@pytest.mark.parametrize("turns", [10, 100])
def test_a_conversation(benchmark: Any, turns: int) -> None:
    """All items of 1 KB of a conversation, opened, checked and put back for the upstream that wants them."""
    item = VAULT.seal(sealed(1), "ann")
    assert item is not None
    said = Message("assistant", (SealedThinking(item), Text("Hello"), ToolCall("call_1", "f", "{}")))
    request = Request(model="m", messages=(Message("user", "Hi"), said) * turns)

    def restore() -> Request:
        return HandedAlong(request, VAULT, "ann").told_to(ORIGIN).request

    assert sum(len(message.parts()) == 3 for message in restore().messages) == turns
    benchmark(restore)


@pytest.mark.parametrize("watched", [False, True], ids=["bare", "watched"])
@pytest.mark.parametrize("per_read", [1, 50])
@pytest.mark.parametrize("kind", ["CHAT", "CHAT_REASONING", "MESSAGES", "MESSAGES_REASONING"])
def test_stream(benchmark: Any, kind: str, per_read: int, watched: bool) -> None:
    """From the first event to the last; `watched` is what the gateway does."""
    is_chat = kind.startswith("CHAT")
    upstream, client = (openai_chat, anthropic_messages) if is_chat else (anthropic_messages, openai_chat)
    origin = ORIGIN if is_chat else Origin(MESSAGES, b"", "", "claude")
    reads = streams.whole(kind, per_read)

    def run() -> TranslatedStream:
        sealer = Sealer(VAULT, origin, "ann") if watched else None
        course = TranslatedStream(upstream.reader(), client.writer("trace", "m", 0), {}, sealer)
        for read in reads:
            course.feed(read)
        return course

    assert run().ending is Ending.COMPLETE
    benchmark(run)
