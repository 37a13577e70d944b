"""How large a prompt is: bytes of text, and what images, documents and sound come to in tokens.

Theory of operation. The prompt's JSON is looked through as it came, for the few words that stand beside what is no
text, and nothing is decoded but the first bytes of an image, which say how large it is. What is left is text:
instructions, turns, thinking, tools, their calls and results, and the JSON around all of these. How many tokens a byte
of it is, is learned from what providers report (`attempt.amounts`), and takes in what the JSON costs.

Left out of the text are base64, what nobody reads (signatures, encrypted reasoning), and half of each `\\uXXXX`: six
bytes in place of a character's three.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.accounting import pictures
from arbiter.inputs import CONVERSATIONS, INSTRUCTIONS

_MEMBERS = ("tools", "functions", *INSTRUCTIONS, *CONVERSATIONS)
_AROUND = 256  # bytes beside a payload in which its media type stands
_ATTACHMENTS, _MARKS = 1_000, 10_000  # of a kind in one member that are looked at: no agent sends as many

_DATA_URL = re.compile(rb'"data:([^",;\\]{0,99})(?:;[^",;\\]{0,99}){0,4};base64,')
_BASE64 = re.compile(rb'"base64"')
_DATA = re.compile(rb'"data"\s*:\s*"')
_NAMED_DATA = re.compile(rb'"data"\s*:\s*"\Z')
_SOUND = re.compile(rb'"input_audio"\s*:\s*\{')
_UNREAD = (re.compile(rb'"signature"\s*:\s*"'), re.compile(rb'"encrypted_content"\s*:\s*"'))
_GOOGLES = re.compile(rb'"thought(?:S|_s)ignature"\s*:\s*"')
_REDACTED = re.compile(rb'"(?:redacted_thinking|reasoning\.encrypted)"')
_LINKED = (
    re.compile(rb'"image_url"\s*:\s*(?:\{\s*"url"\s*:\s*)?"http'),
    re.compile(rb'"type"\s*:\s*"url"\s*,\s*"url"\s*:'),
)

_Read = Callable[[bytes], tuple[int, int]]

PAGE_BYTES, PAGE_TOKENS = 50 << 10, 2_500
"""A page of a PDF, which is read as text and as an image both."""
SOUND_BYTES = 4_000
"""Of sound to a token, about: ten tokens a second, of anything between MP3 and WAV."""


class Size(NamedTuple):
    """`text` is in bytes, `attached` in tokens."""

    text: int
    attached: int


def size_of(members: Mapping[str, Raw]) -> Size:
    """The size of a request's prompt. Malformed attachments count as something, whatever it is."""
    text = attached = 0
    for name in _MEMBERS:
        raw = members.get(name)
        if raw is not None:
            size = _size(memoryview(raw), _READ_IN.get(name, _READ))
            text += size.text
            attached += size.attached
    return Size(text, attached)


def _size(view: memoryview, reads: Iterable[tuple[bytes, bytes, _Read]]) -> Size:
    unread, attached = nesting.units(view) * 3, 0
    # Most prompts hold little of all this, and a quick look for two words at once says what.
    held = [read for first, second, read in reads if nesting.begins(view, first, second)]
    raw = bytes(view) if held else b""
    for read in held:
        found = read(raw)
        unread += found[0]
        attached += found[1]
    return Size(max(0, len(view) - unread), attached)


def _of_base64(raw: bytes) -> tuple[int, int]:
    unread = attached = 0
    for found in _first(_ATTACHMENTS, _DATA_URL, raw):
        if raw[found.start() - 1 : found.start()] == b"\\":
            continue  # within a text, and so text
        start, end = found.end(), _end(raw, found.end())
        unread += end - start
        attached += _tokens(raw, start, end, found[1])
    for found in _first(_ATTACHMENTS, _BASE64, raw):
        start, end = _beside(raw, found.start())
        unread += end - start
        attached += _tokens(raw, start, end, raw[max(0, start - _AROUND) : start] + raw[end : end + _AROUND])
    return unread, attached


def _of_sound(raw: bytes) -> tuple[int, int]:
    unread = attached = 0
    for found in _first(_ATTACHMENTS, _SOUND, raw):
        start, end = _string(raw, _DATA, found.end())
        unread += end - start
        attached += _decoded_bytes(end - start) // SOUND_BYTES
    return unread, attached


def _of_unread(raw: bytes) -> tuple[int, int]:
    starts = [found.end() for pattern in _UNREAD for found in _first(_MARKS, pattern, raw)]
    return sum([_end(raw, start) - start for start in starts]), 0


def _of_googles(raw: bytes) -> tuple[int, int]:
    return sum([_end(raw, found.end()) - found.end() for found in _first(_MARKS, _GOOGLES, raw)]), 0


def _of_redacted(raw: bytes) -> tuple[int, int]:
    unread = 0
    for found in _first(_MARKS, _REDACTED, raw):
        start, end = _string(raw, _DATA, found.end())
        unread += end - start
    return unread, 0


def _of_linked(raw: bytes) -> tuple[int, int]:
    return 0, sum(pictures.UNKNOWN for pattern in _LINKED for _ in _first(_MARKS, pattern, raw))


_READ = (
    (b"data:", b'base64"', _of_base64),
    (b'input_audio"', b'input_audio"', _of_sound),
    (b'signature"', b'encrypted_content"', _of_unread),
    (b'redacted_thinking"', b'reasoning.encrypted"', _of_redacted),
    (b'image_url"', b'url"', _of_linked),
)
"""Which strings there are in a prompt that holds what is no text, and how much that is: in bytes, and in tokens."""
_READ_IN = {"contents": (*_READ, (b'thoughtSignature"', b'thought_signature"', _of_googles))}
"""What else is looked for in a member of its own format."""


def _first(most: int, pattern: re.Pattern[bytes], raw: bytes) -> Iterator[re.Match[bytes]]:
    return islice(pattern.finditer(raw), most)


def _beside(raw: bytes, at: int) -> tuple[int, int]:
    """Where the payload begins and ends that `"base64"` at `at` speaks of: `"data"` stands close behind, or before."""
    start, end = _string(raw, _DATA, at)
    if start < end:
        return start, end
    # From quote to quote, so that a string is only gone through where it is the long one.
    end = raw.rfind(b'"', 0, at)
    while end >= max(0, at - _AROUND):
        start = raw.rfind(b'"', 0, end) + 1
        if _NAMED_DATA.search(raw, max(0, start - _AROUND), start) is not None:
            return start, end
        end = start - 1
    return at, at


def _string(raw: bytes, before: re.Pattern[bytes], at: int) -> tuple[int, int]:
    """Where the string behind `before` begins and ends, close behind `at`; an empty one where there is none."""
    found = before.search(raw, at, at + _AROUND)
    return (found.end(), _end(raw, found.end())) if found is not None else (at, at)


def _end(raw: bytes, start: int) -> int:
    end = raw.find(b'"', start)
    return end if end >= 0 else len(raw)


def _tokens(raw: bytes, start: int, end: int, kind: bytes) -> int:
    if b"pdf" in kind:
        return PAGE_TOKENS * max(1, round(_decoded_bytes(end - start) / PAGE_BYTES))
    if b"text/" in kind:
        return _decoded_bytes(end - start) // 4
    return pictures.tokens(raw[start : min(end, start + pictures.HEAD)])


def _decoded_bytes(base64_bytes: int) -> int:
    return base64_bytes * 3 // 4
