"""Requests of Messages clients are read in one go, or block by block: which of the two shows in nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.errors import BadRequest
from arbiter.model import Opaque, Request
from arbiter.wire import anthropic_messages, native

MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
KNOWN: list[dict[str, Any]] = [
    {"type": "text", "text": 'hällo\n"you" 🌍', **MARK},
    {"type": "text", "text": "", "citations": None},
    {"type": "text", "text": "with what other blocks have", "content": "no result", "source": PICTURE["source"]},
    {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"b": 1.0, "a": [None, "é"]}},
    {"type": "tool_use", "id": "toolu_2", "name": "run", "input": None},
    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a\tresult", "is_error": False, **MARK},
    {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "seen"}, PICTURE]},
    {"type": "tool_result", "tool_use_id": "toolu_3", "content": None},
    {"type": "tool_result", "tool_use_id": "toolu_4"},
    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
    PICTURE,
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}, "title": "notes"},
    {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
]
STRANGE: list[dict[str, Any]] = [
    {"type": "mystery", "text": 5, "content": {"any": "thing"}},
    {"type": "search_result", "content": [{"type": "text", "text": "found"}], "source": "https://example.com"},
    {"type": "text"},
    {"type": "image"},
    {"type": "tool_use", "id": "toolu_9"},
]


def read(*turns: list[dict[str, Any]]) -> Request:
    messages = [{"role": "assistant" if n % 2 else "user", "content": blocks} for n, blocks in enumerate(turns)]
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": messages}, ensure_ascii=False).encode()
    return anthropic_messages.parse_request(native.open_body(body).members)


@pytest.mark.parametrize("strange", STRANGE, ids=json.dumps)
def test_a_strange_block_changes_nothing_of_how_the_others_are_read(strange):
    """It costs the whole request the fast way, and that must not be seen in any part of it."""
    together = read(KNOWN, [strange])
    assert together.messages[:-1] == read(KNOWN).messages
    (part,) = together.messages[-1].parts()
    assert isinstance(part, Opaque)
    assert json.loads(part.raw) == strange


def test_a_strange_part_of_a_result_stays_what_it_is():
    """The fast way stops inside of results, too."""
    strange = {"type": "tool_reference", "tool_name": "x"}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a"}, strange]}
    (message,) = read([result]).messages
    (found,) = message.parts()
    assert [type(part).__name__ for part in found.content] == ["Text", "Opaque"]


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ({"type": "text", "text": 5}, "text"),
        ({"type": "tool_result", "tool_use_id": "t", "content": 5}, "content"),
        ({"type": "tool_result", "tool_use_id": "t", "content": [PICTURE, {"type": "text", "text": 5}]},
         "content[1].text"),
        ({"type": "thinking", "thinking": "t", "signature": []}, "signature"),
    ],
)  # fmt: skip
def test_a_fault_is_blamed_on_its_block(block, place):
    """The fast way could not tell the number of the block."""
    with pytest.raises(BadRequest) as caught:
        read(KNOWN, [*KNOWN[:2], block])
    assert caught.value.param == f"messages[1].content[2].{place}"
