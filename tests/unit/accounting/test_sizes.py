"""How large a prompt is: its text in bytes, and what is attached in tokens."""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from typing import Any

import pytest
from msgspec import Raw

from arbiter.accounting import pictures
from arbiter.accounting.sizes import PAGE_TOKENS, Size, size_of


def members(**values: Any) -> dict[str, Raw]:
    return {name: Raw(json.dumps(value).encode()) for name, value in values.items()}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(width: int, height: int) -> bytes:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    header = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + header + os.urandom(9000)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + os.urandom(500)


def jpeg(width: int, height: int, metadata: int = 5000) -> bytes:
    """With its size behind some metadata and a table of Huffman codes."""
    exif = b"\xff\xe1" + struct.pack(">H", metadata + 2) + os.urandom(metadata)
    table = b"\xff\xc4" + struct.pack(">H", 20) + bytes(18)
    return b"\xff\xd8" + exif + table + b"\xff\xc0" + struct.pack(">HBHH", 17, 8, height, width) + os.urandom(900)


def webp(kind: bytes, width: int, height: int) -> bytes:
    if kind == b"VP8X":
        body = bytes(8) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        body = bytes(4) + b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little")
    else:
        body = bytes(10) + struct.pack("<HH", width | 1 << 14, height)
    return b"RIFF" + bytes(4) + b"WEBP" + kind + body + os.urandom(400)


IMAGES = [png, gif, jpeg, *(lambda w, h, kind=kind: webp(kind, w, h) for kind in (b"VP8X", b"VP8L", b"VP8 "))]


def anthropic(data: bytes, media_type: str, kind: str = "image") -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": b64(data)}}


def openai(data: bytes, media_type: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{b64(data)}", "detail": "high"}}


def turn(*parts: Any) -> dict[str, Raw]:
    return members(messages=[{"role": "user", "content": list(parts)}])


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize(("width", "height", "tokens"), [(750, 10, 10), (1000, 750, 1000), (1, 1, 1)])
def test_an_image_costs_by_its_pixels(image: Any, width: int, height: int, tokens: int):
    for part in (anthropic(image(width, height), "image/x"), openai(image(width, height), "image/x")):
        assert size_of(turn(part)).attached == tokens


def test_a_large_image_is_made_smaller_first():
    assert size_of(turn(openai(png(15680, 7840), "image/png"))).attached == -(-1568 * 784 // 750)


def test_what_is_no_image_we_know_costs_as_much_as_a_large_one():
    broken = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "%%%"}}
    for part in (anthropic(b"\x89PNG\r\n\x1a\n", "image/png"), anthropic(os.urandom(9000), "image/heic"), broken):
        assert size_of(turn(part)).attached == pictures.UNKNOWN


@pytest.mark.parametrize("separators", [None, (",", ":")])
def test_base64_is_no_text_wherever_it_stands(separators: Any):
    """In every shape and order: what is left is the JSON around it, a few hundred bytes."""
    data = b64(os.urandom(300_000))
    shapes = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "image", "source": {"data": data, "media_type": "image/png", "type": "base64"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "input_image", "image_url": f"data:image/png;charset=x;base64,{data}"},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"type": "thinking", "thinking": "hm", "signature": data},
        {"type": "redacted_thinking", "data": data},
        {"type": "reasoning", "summary": [], "encrypted_content": data},
    ]
    for shape in shapes:
        raw = json.dumps([shape], separators=separators).encode()
        assert size_of({"messages": Raw(raw)}).text == len(raw) - len(data), shape
    raw = json.dumps(shapes, separators=separators).encode()
    assert size_of({"input": Raw(raw)}).text == len(raw) - len(shapes) * len(data)
    parts = [{"text": "", "thoughtSignature": data}, {"functionCall": {}, "thought_signature": data}]
    raw = json.dumps([{"role": "model", "parts": parts}], separators=separators).encode()
    assert size_of({"contents": Raw(raw)}).text == len(raw) - 2 * len(data)


def test_documents_and_sound_and_links_cost_something_each():
    pdf = anthropic(bytes(200 << 10), "application/pdf", "document")
    assert size_of(turn(pdf)).attached == 4 * PAGE_TOKENS
    assert size_of(turn(anthropic(b"short", "application/pdf", "document"))).attached == PAGE_TOKENS
    assert size_of(turn(anthropic(b"x" * 4000, "text/plain", "document"))).attached == pytest.approx(1000, abs=2)
    sound = {"type": "input_audio", "input_audio": {"data": b64(bytes(400_000)), "format": "wav"}}
    assert size_of(turn(sound)).attached == 100
    links = [
        {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}},
        {"type": "input_image", "image_url": "https://a.test/b.png"},
        {"type": "image", "source": {"type": "url", "url": "https://a.test/b.png"}},
    ]
    assert size_of(turn(*links)).attached == 3 * pictures.UNKNOWN


def test_everything_that_a_model_reads_is_text():
    """Tools, their calls and results, thinking and instructions; parameters are none of it."""
    body = {
        "tools": [{"name": "fetch", "input_schema": {"type": "object", "properties": {"url": {"type": "string"}}}}],
        "system": "be brief",
        "messages": [
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}]},
            {"role": "assistant", "content": [{"type": "tool_use", "input": {"url": "https://a.test", "data": "x"}}]},
            {"role": "user", "content": [{"type": "tool_result", "content": 'a "data:image/png;base64,AAAA" in text'}]},
        ],
    }
    found = size_of(members(**body, metadata={"user_id": "x" * 500}, model="m"))
    assert found == Size(sum(len(json.dumps(value)) for value in body.values()), 0)


def test_an_escaped_character_is_as_long_as_the_character():
    text = "漢字かな" * 50
    plain = {"messages": Raw(json.dumps(text, ensure_ascii=False).encode())}
    assert size_of({"messages": Raw(json.dumps(text).encode())}) == size_of(plain)


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b'"data:image/png;base64,', b'[{"type":"base64"}]', b'{"signature":"', b'{"input_audio":{"data":"AA'],
)
def test_odd_json_is_some_size(raw: bytes):
    assert 0 <= size_of({"messages": Raw(raw)}).text <= len(raw)


def test_many_attachments_are_looked_at_only_so_far():
    """Each costs a look at its first bytes; an agent sends dozens at most."""
    raw = json.dumps(["data:image/png;base64,AAAA"] * 3000).encode()
    assert size_of({"messages": Raw(raw)}).attached == 1000 * pictures.UNKNOWN
