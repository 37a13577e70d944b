"""What is said in a bench: requests with a mark, and the answers that must come back with it.

Both formats that are spoken, Chat and Messages, each with one JSON answer and with a stream of events. The upstream
writes them, the client knows what it has to get, byte for byte where that matters: the text of every event carries the
request's mark and its own number.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from arbiter.cli.benching.copied import CLIENT_KEY, MODEL, PACED

REQUEST_BYTES = 1024
EVENTS = 20  # of a stream that is not paced
PACE_S = 0.02
WORDS = "the quick brown fox jumps over a lazy dog. " * 18

_MARK = re.compile(rb"mark=(\d{8})")
_PIECE = re.compile(rb'"(?:content|text)":"(\d{8})-(\d+) "')


class Asked(NamedTuple):
    """What the upstream reads of a request."""

    mark: str
    streams: bool
    is_paced: bool


def head(path: str, length: int, *, is_messages: bool) -> bytes:
    key = (
        f"x-api-key: {CLIENT_KEY}\r\nanthropic-version: 2023-06-01"
        if is_messages
        else f"authorization: Bearer {CLIENT_KEY}"
    )
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: arbiter-bench\r\n{key}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


def path(is_messages: bool) -> str:
    return "/v1/messages" if is_messages else "/v1/chat/completions"


def request(mark: str, *, is_messages: bool, streams: bool = False, is_paced: bool = False) -> bytes:
    """A request of about REQUEST_BYTES, whole as it is sent."""
    body: dict[str, object] = {"model": PACED if is_paced else MODEL, "max_tokens": 1024}
    if streams:
        body["stream"] = True
        if not is_messages:
            body["stream_options"] = {"include_usage": True}
    body["messages"] = [{"role": "user", "content": f"mark={mark} {WORDS}"[: REQUEST_BYTES - 150]}]
    payload = json.dumps(body, separators=(",", ":")).encode()
    return head(path(is_messages), len(payload), is_messages=is_messages) + payload


def asked(body: bytes) -> Asked:
    found = _MARK.search(body)
    return Asked(found.group(1).decode() if found else "", b'"stream":true' in body, f'"{PACED}"'.encode() in body)


# ---------------------------------------------------------------------------------------------------- answers


def answer(mark: str, *, is_messages: bool) -> bytes:
    """One JSON answer of about a kilobyte."""
    text = f"{mark} {WORDS}"
    value: dict[str, object]
    if is_messages:
        value = {
            "id": f"msg_{mark}", "type": "message", "role": "assistant", "model": MODEL,
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": 250, "output_tokens": 180},
        }  # fmt: skip
    else:
        message = {"role": "assistant", "content": text}
        value = {
            "id": f"chatcmpl-{mark}", "object": "chat.completion", "created": 1_700_000_000, "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 250, "completion_tokens": 180, "total_tokens": 430},
        }  # fmt: skip
    return json.dumps(value, separators=(",", ":")).encode()


def events(mark: str, count: int, *, is_messages: bool) -> list[bytes]:
    """A stream with `count` events that carry text, each as it stands on the wire."""
    if is_messages:
        started: dict[str, object] = {
            "id": f"msg_{mark}", "type": "message", "role": "assistant", "model": MODEL, "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 250, "output_tokens": 1},
        }  # fmt: skip
        block: dict[str, object] = {"type": "text", "text": ""}
        values: list[dict[str, object]] = [
            {"type": "message_start", "message": started},
            {"type": "content_block_start", "index": 0, "content_block": block},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"{mark}-{at} "}}
                for at in range(count)
            ),
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": count},
            },
            {"type": "message_stop"},
        ]
        return [f"event: {value['type']}\ndata: {_tight(value)}\n\n".encode() for value in values]

    def chunk(choices: list[dict[str, object]], **more: object) -> bytes:
        value = {"id": f"chatcmpl-{mark}", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": MODEL}
        return f"data: {_tight({**value, 'choices': choices, **more})}\n\n".encode()

    def choice(delta: dict[str, object], finish: str | None = None) -> list[dict[str, object]]:
        return [{"index": 0, "delta": delta, "finish_reason": finish}]

    usage = {"prompt_tokens": 250, "completion_tokens": count, "total_tokens": count + 250}
    return [
        chunk(choice({"role": "assistant", "content": ""})),
        *(chunk(choice({"content": f"{mark}-{at} "})) for at in range(count)),
        chunk(choice({}, "stop")),
        chunk([], usage=usage),
        b"data: [DONE]\n\n",
    ]


def _tight(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


# ------------------------------------------------------------------------------------------------------ checks


def fault_of_answer(body: bytes, mark: str, *, is_messages: bool) -> str | None:
    """What is wrong with a JSON answer; None: nothing."""
    try:
        value = json.loads(body)
        text = value["content"][0]["text"] if is_messages else value["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        return "an answer of another shape"
    return None if text == f"{mark} {WORDS}" else "another text than was sent"


def fault_of_stream(body: bytes, mark: str, count: int, *, is_messages: bool) -> str | None:
    """What is wrong with a stream that ended; None: nothing."""
    found = _PIECE.findall(body)
    if found != [(mark.encode(), b"%d" % at) for at in range(count)]:
        if any(whose != mark.encode() for whose, _ in found):
            return "another request's events"
        return f"{len(found)} of {count} events, or not in order"
    end = b'"type":"message_stop"' if is_messages else b"data: [DONE]"
    return None if end in body[-200:] else "no proper end"
