"""A language model of a megabyte, written by hand: what it says next depends on nothing but its last token.

    write(path)      # a GGUF file for llama.cpp: one token per byte, and a few of its own

It says the alphabet and stops: behind a line's end comes `a`, behind `a` `b`, behind `z` the end of the turn. Where it
may not stop it calls a tool, if it may, and else begins anew. Held to a grammar it says what the grammar leaves. So an
answer, its length and the arguments of a call are known beforehand, and nothing is downloaded.

How: each token has a coordinate of its own in the hidden state, attention and the feed-forward layer add nothing, and
the row of the output for a token holds 1 where its predecessor's coordinate is.

Source: GGUF and the llama architecture, as github.com/ggml-org/ggml documents them (docs/gguf.md).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

START, END, TOOL, TOOL_END = "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
WIDTH, HEADS = 320, 5  # of the hidden state: a coordinate for each token; 64 for each head
CONTEXT = 16_384

TEMPLATE = (
    "{%- if tools %}<|im_start|>system\nTools:\n<tools>"
    "{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools>\n"
    'Call one as <tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n{% endif %}'
    "{%- for message in messages %}"
    "{%- if message.role == 'tool' %}<|im_start|>user\n"
    "<tool_response>\n{{ message.content }}\n</tool_response><|im_end|>\n"
    "{%- else %}<|im_start|>{{ message.role }}{% if message.content %}\n{{ message.content }}{% endif %}"
    '{%- for call in message.tool_calls or [] %}{{ \'\n<tool_call>\n{"name": "\' }}{{ call.function.name }}'
    "{{ '\", \"arguments\": ' }}{{ call.function.arguments | tojson }}{{ '}\n</tool_call>' }}"
    "{%- endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _letters() -> list[str]:
    """The letter that stands for each byte in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


TOKENS = ["<|endoftext|>", START, END, TOOL, TOOL_END, *_letters()]
_ID = {token: number for number, token in enumerate(TOKENS)}
_BYTE = len(TOKENS) - 256


def _next() -> dict[int, list[tuple[int, float]]]:
    """By token, what may come behind it, and how much it is wanted."""
    first = _BYTE + ord(ALPHABET[0])
    chain = {token: [(first, 1.0)] for token in range(len(TOKENS))}
    for one, other in pairwise(ALPHABET):
        chain[_BYTE + ord(one)] = [(_BYTE + ord(other), 1.0)]
    chain[_BYTE + ord(ALPHABET[-1])] = [(_ID[END], 1.0), (_ID[TOOL], 0.8), (first, 0.6)]
    chain[_ID[TOOL]] = [(_BYTE + ord("\n"), 1.0)]  # only then is it the beginning of a call, and the grammar takes over
    chain[_ID[TOOL_END]] = [(_ID[END], 1.0), (first, 0.6)]
    # Where only a grammar speaks, what opens and closes is sooner said than blanks without end.
    marks = [(_BYTE + ord(sign), much) for sign, much in (('"', 0.3), ("}", 0.25), (":", 0.2))]
    marks += [(_ID[TOOL_END], 0.1), (_ID[END], 0.05)]
    return {token: wanted + marks for token, wanted in chain.items()}


def write(path: Path) -> Path:
    """Write the model, and return where."""
    tokens = len(TOKENS)
    embedding, output = array("f", bytes(4 * WIDTH * tokens)), array("f", bytes(4 * WIDTH * tokens))
    for token in range(tokens):
        embedding[token * WIDTH + token] = 1.0
    for token, wanted in _next().items():
        for follower, much in wanted:
            place = follower * WIDTH + token
            output[place] = max(output[place], much)
    nothing, ones = array("f", bytes(4 * WIDTH * WIDTH)), array("f", [1.0]) * WIDTH
    tensors = [("token_embd", (WIDTH, tokens), embedding), ("output", (WIDTH, tokens), output)]
    tensors += [("output_norm", (WIDTH,), ones)]
    tensors += [(f"blk.0.{name}_norm", (WIDTH,), ones) for name in ("attn", "ffn")]
    layers = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    tensors += [(f"blk.0.{name}", (WIDTH, WIDTH), nothing) for name in layers]
    metadata: list[tuple[str, Any]] = [
        ("general.architecture", "llama"),
        ("general.name", "alphabet"),
        ("llama.context_length", CONTEXT),
        ("llama.embedding_length", WIDTH),
        ("llama.block_count", 1),
        ("llama.feed_forward_length", WIDTH),
        ("llama.attention.head_count", HEADS),
        ("llama.attention.head_count_kv", HEADS),
        ("llama.attention.layer_norm_rms_epsilon", 1e-5),
        ("llama.rope.dimension_count", WIDTH // HEADS),
        ("llama.vocab_size", tokens),
        ("tokenizer.ggml.model", "gpt2"),
        ("tokenizer.ggml.pre", "gpt-2"),
        ("tokenizer.ggml.tokens", TOKENS),
        ("tokenizer.ggml.token_type", [3] * 3 + [4] * 2 + [1] * 256),
        ("tokenizer.ggml.merges", ["a b"]),  # there must be one; no token is made of it
        ("tokenizer.ggml.bos_token_id", 0),
        ("tokenizer.ggml.eos_token_id", _ID[END]),
        ("tokenizer.ggml.add_bos_token", False),
        ("tokenizer.chat_template", TEMPLATE),
    ]
    path.write_bytes(b"".join(_gguf(metadata, tensors)))
    return path


def _gguf(metadata: list[tuple[str, Any]], tensors: list[tuple[str, tuple[int, ...], array[float]]]) -> Iterable[bytes]:
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    head += b"".join(_text(name) + _value(value) for name, value in metadata)
    offset = 0
    for name, shape, data in tensors:
        head += _text(f"{name}.weight") + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", 0, offset)  # 32-bit floats
        offset += _padded(4 * len(data))
    yield head.ljust(_padded(len(head)), b"\0")
    for _, _, data in tensors:
        yield data.tobytes().ljust(_padded(4 * len(data)), b"\0")


def _padded(size: int) -> int:
    return -(-size // 32) * 32


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    kind = 8 if isinstance(value[0], str) else 5
    items = b"".join(_text(one) if kind == 8 else struct.pack("<i", one) for one in value)
    return struct.pack("<IIQ", 9, kind, len(value)) + items
