"""What a request and its answer are kept as."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arbiter.ledger import blocks
from arbiter.ledger.blocks_answer import message_of
from arbiter.ledger.redaction import Redactor
from arbiter.wire import native
from tests.fakes.wires import CHAT, MESSAGES, RESPONSES, WIRES

ROOT = Path(__file__).parents[2]
KEY = "sk-ant-api03-Zm9vYmFyYmF6cXV4MDEyMzQ1Njc4OQ"
REDACT = Redactor()
PNG = b"\x89PNG not really" * 100
DATA = base64.b64encode(PNG).decode()


def whole(value: Any) -> blocks.Block:
    return blocks.made(json.dumps(value).encode(), REDACT)


def made(value: Any) -> Any:
    return json.loads(whole(value).text)


def split(body: dict[str, Any]) -> list[tuple[str, Any]]:
    members = native.open_body(json.dumps({"model": "m", **body}).encode()).members
    return [(kind, json.loads(raw)) for kind, raw in blocks.split(members)]


def test_a_request_is_taken_apart_in_the_order_of_reading():
    body = {
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        "system": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        "tools": [{"name": "t"}],
        "temperature": 1,
    }
    assert split(body) == [
        ("tools", [{"name": "t"}]),
        ("system", {"type": "text", "text": "one"}),
        ("system", {"type": "text", "text": "two"}),
        ("message", {"role": "user", "content": "a"}),
        ("message", {"role": "assistant", "content": "b"}),
        ("parameters", {"model": "m", "temperature": 1}),
    ]
    responses = {"instructions": "be brief", "input": [{"type": "message", "role": "user", "content": "a"}]}
    assert [kind for kind, _ in split(responses)] == ["system", "message", "parameters"]
    assert [kind for kind, _ in split({"input": "a bare string"})] == ["message", "parameters"]


def test_a_block_is_what_the_client_sent():
    value = {"role": "user", "z": 1, "a": [1.5, None, True, "é \U0001f600"], "nested": {"k": ["v"]}}
    block = blocks.made(json.dumps(value, indent=2).encode(), REDACT)
    assert json.loads(block.text) == value and list(json.loads(block.text)) == list(value)
    assert block.id == hashlib.sha256(block.text).hexdigest()
    assert blocks.made(json.dumps(value).encode(), REDACT) == block  # white space and escapes are no part of it


def test_moved_cache_marks_change_no_block_and_are_not_lost():
    bare = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    mark = {"type": "ephemeral", "ttl": "1h"}
    marked = {"role": "user", "content": [bare["content"][0], {**bare["content"][1], "cache_control": mark}]}
    one, other = (blocks.made(json.dumps(value).encode(), REDACT) for value in (bare, marked))
    assert one.id == other.id and one.marks is None
    assert other.marks == {"content.1": mark}


@pytest.mark.parametrize(
    ("part", "path", "media"),
    [
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
            ("source", "data"),
            "image/png",
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
            ("image_url", "url"),
            "image/png",
        ),
        ({"type": "input_image", "image_url": f"data:image/webp;base64,{DATA}"}, ("image_url",), "image/webp"),
        ({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}, ("input_audio", "data"), "audio/wav"),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{DATA}"}},
            ("file", "file_data"),
            "application/pdf",
        ),
        ({"type": "image", "data": DATA, "mimeType": "image/gif"}, ("data",), "image/gif"),
    ],
    ids=["anthropic", "chat", "responses", "audio", "file", "mcp"],
)
def test_attachments_are_kept_by_identity(part, path, media):
    """Also inside of a tool's result; the hash is that of the file which they were made of."""
    inside = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [part]}]}
    for value, base in ((part, ()), (inside, ("content", 0, "content", 0))):
        block = blocks.made(json.dumps(value).encode(), REDACT)
        assert DATA[:40].encode() not in block.text and block.media == (media,)
        found = json.loads(block.text)
        for step in (*base, *path):
            found = found[step]
        identity = found["attachment"]
        assert identity["media_type"] == media and identity["bytes"] == len(PNG)
        assert identity["sha256"] == hashlib.sha256(PNG).hexdigest()


@pytest.mark.parametrize("spell", [base64.b64encode, base64.encodebytes, base64.urlsafe_b64encode])
def test_an_attachment_is_known_by_its_file_however_its_base64_is_spelt(spell):
    """In lines of 76, as in mail, or with the letters of URLs; and larger than what is decoded at once."""
    file = random.Random(2).randbytes(600_000)
    source = {"type": "base64", "media_type": "image/png", "data": spell(file).decode()}
    block = blocks.made(json.dumps({"type": "image", "source": source}).encode(), REDACT)
    identity = json.loads(block.text)["source"]["data"]["attachment"]
    assert (identity["bytes"], identity["sha256"]) == (len(file), hashlib.sha256(file).hexdigest())


def test_secrets_are_masked_and_what_others_signed_is_not_touched():
    thinking = {"type": "thinking", "thinking": "plain thoughts", "signature": f"{KEY}+/=="}
    value = {
        "role": "assistant",
        "content": [
            thinking,
            {"type": "redacted_thinking", "data": KEY},
            {"type": "reasoning", "id": f"rs_{KEY}", "encrypted_content": KEY},
            {"type": "tool_use", "id": KEY, "name": "run", "input": {"command": f"curl -H 'x-api-key: {KEY}'"}},
            {"type": "text", "text": f"the key is {KEY}."},
        ],
        "tool_calls": [{"id": KEY, "type": "function", "function": {"name": "f", "arguments": f'{{"k":"{KEY}"}}'}}],
    }
    kept = made(value)
    assert kept["content"][:3] == value["content"][:3]
    assert kept["content"][3] == {**value["content"][3], "input": {"command": "curl -H 'x-api-key: ***'"}}
    assert kept["content"][4]["text"] == "the key is ***."
    assert kept["tool_calls"][0]["id"] == KEY
    assert kept["tool_calls"][0]["function"]["arguments"] == '{"k":"***"}'
    assert made({"role": "tool", "tool_call_id": KEY, "content": KEY}) == {
        "role": "tool",
        "tool_call_id": KEY,
        "content": "***",
    }
    assert made({"input": {"id": KEY}}) == {"input": {"id": "***"}}  # a member of that name in anybody's arguments


def test_signed_thinking_that_holds_a_secret_is_withheld_whole():
    """Altered it would be refused by whoever signed it, and look as if it were the original."""
    kept = made({"content": [{"type": "thinking", "thinking": f"the key is {KEY}", "signature": "sig"}]})
    (withheld,) = kept["content"]
    assert withheld["type"] == "withheld" and withheld["was"] == "thinking"
    assert "sig" not in withheld.values() and KEY not in json.dumps(kept)


def test_odd_texts_are_blocks_too():
    assert blocks.made(rb'{"a":"\ud800 half"}', REDACT).text == '{"a":"� half"}'.encode()
    assert json.loads(blocks.made(b'{"a":123456789012345678901234567890}', REDACT).text)["a"]
    with pytest.raises(msgspec.DecodeError):
        blocks.made(b"{", REDACT)


def test_of_a_cache_mark_only_what_it_means_is_kept():
    """A client may write anything into one, as much of it as it likes, and under any name."""
    secret = "sk-proj-Zm9vYmFyYmF6cXV4MDEyMzQ1Njc4OQ"
    odd = {"type": "ephemeral", "ttl": "1h", "note": secret, "long": "x" * 10_000}
    told = whole(
        {
            "role": "user",
            "content": [{"type": "text", "text": "a", "cache_control": odd}],
            secret: {"cache_control": odd},
        }
    )
    assert told.marks == {"content.0": {"type": "ephemeral", "ttl": "1h"}, "***": {"type": "ephemeral", "ttl": "1h"}}
    many = whole({"role": "user", "content": [{"type": "text", "text": "a", "cache_control": odd}] * 1000})
    assert many.marks is not None and len(many.marks) == blocks.MAX_MARKS
    assert whole({"x" * 1000: {"cache_control": odd}}).marks is None


def test_an_argument_called_as_a_mark_is_an_argument():
    call = {"type": "tool_use", "name": "set", "input": {"header": {"cache_control": {"max_age": 60}}}}
    schema = {"name": "set", "input_schema": {"properties": {"cache_control": {"type": "object"}}}}
    for value in (call, schema):
        block = whole(value)
        assert block.marks is None and json.loads(block.text) == value


def with_marks(value: Any, marks: dict[str, Any]) -> Any:
    for path, mark in marks.items():
        place = value
        for step in filter(None, path.split(".")):
            place = place[int(step)] if isinstance(place, list) else place[step]
        place["cache_control"] = mark
    return value


@pytest.mark.parametrize("agent", ["claude", "claude-interactive", "opencode-anthropic", "cline", "aider"])
def test_a_conversation_of_a_real_agent_is_stored_once_and_can_be_put_together_again(agent):
    """Each message costs one block however often it is sent, and with its marks it is what the agent sent."""
    requests = json.loads((ROOT / f"vectors/sessions/{agent}.json").read_text())["requests"]
    conversation = [request["body"] for request in requests if request["part"] == "main"]
    stored: dict[str, bytes] = {}
    references = 0
    for body in conversation:
        members = native.open_body(json.dumps(body).encode()).members
        messages = []
        for kind, raw in blocks.split(members):
            block = blocks.made(raw, REDACT)
            references += 1
            stored[block.id] = block.text
            if kind == "message":
                messages.append(with_marks(json.loads(stored[block.id]), block.marks or {}))
        assert messages == body["messages"]
    longest = max(len(body["messages"]) for body in conversation)
    if len(conversation) > 2:
        assert longest <= len(stored) < references
        # The messages of the longest request, and a handful beside them: prompts, parameters, reminders that changed.
        assert len(stored) <= longest + 4 * len(conversation)


NAMES = {CHAT: "openai-chat", MESSAGES: "anthropic-messages", RESPONSES: "openai-responses"}


def test_a_streamed_response_is_kept_as_its_last_event_repeats_it():
    """With what a translation would not know: what is encrypted, and the calls of built-in tools."""
    output = [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
        {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}},
    ]
    last = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output}}
    events = [*RESPONSES.events("hello")[:-1], f"data: {json.dumps(last)}\n\n".encode()]
    said = message_of("openai-responses", events, is_stream=True, limit=1 << 20)
    assert json.loads(said or b"") == output


@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_an_answer_is_one_message_whether_it_was_streamed_or_not(wire):
    name = NAMES[wire]
    events = b"".join(wire.events("hel", "lo"))
    pieces = [events[at : at + 7] for at in range(0, len(events), 7)]
    streamed = json.loads(message_of(name, pieces, is_stream=True, limit=1 << 20) or b"")
    whole = json.loads(message_of(name, [wire.answer("hello")], is_stream=False, limit=1 << 20) or b"")
    for said in (streamed, whole):
        assert said["role"] == "assistant"
        text = said["content"] if wire is CHAT else said["content"][0]["text"]
        assert text == "hello"


@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_of_a_stream_that_broke_off_is_kept_what_had_come(wire):
    name = NAMES[wire]
    for broken in (b"".join(wire.opening("as far as this")), b"".join(wire.opening("as far as this")) + b"data: {"):
        said = message_of(name, [broken], is_stream=True, limit=1 << 20)
        assert b"as far as this" in (said or b"")


def test_what_is_no_answer_is_none():
    for body in (b"", b"{}", b"[]", b"not json", b'{"error":{"message":"x"}}', b'{"choices":[]}'):
        assert message_of("openai-chat", [body], is_stream=False, limit=1 << 20) is None
    assert message_of("unknown-format", [MESSAGES.answer()], is_stream=False, limit=1 << 20) is None
    assert message_of("openai-chat", [b"\xff\xfe"], is_stream=True, limit=1 << 20) is None


@pytest.mark.parametrize(
    ("body", "vectors", "width"),
    [
        ({"data": [{"embedding": [0.5, 1, 2]}, {"embedding": [1]}]}, 2, 3),
        ({"data": [{"embedding": base64.b64encode(bytes(4 * 1536)).decode()}]}, 1, 1536),
        ({"data": [{"embedding": []}]}, 1, 0),
        ({"data": []}, 0, 0),
    ],
)
def test_of_embeddings_their_number_and_width_are_kept(body: dict[str, Any], vectors: int, width: int):
    body |= {"model": "m", "usage": {"prompt_tokens": 3}}
    whole = json.dumps(body).encode()
    found = message_of("embeddings", [whole[:9], whole[9:]], is_stream=False, limit=1 << 20)
    assert json.loads(found or b"") == {"model": "m", "usage": body["usage"], "vectors": vectors, "width": width}
    for other in (b'{"error":{}}', b"<html>", b'{"data":[{"embedding":"%%"}]}'):
        assert message_of("embeddings", [other], is_stream=False, limit=1 << 20) is None
