r"""The canonical form of a request's inputs, and the chain of hashes over them (SPEC 7.4).

A provider's cache compares prompts, not JSON. So two spellings of one prompt have one form, and the form of each input
is hashed onto the link before it: `link = SHA-256(link before + form)`. The form is JSON again:

- no white space; of two members of one name the last;
- the members of an object in the order of their names (as the form spells them, byte by byte), but for what stands
  inside of `OPAQUE` members: there the order is the model's own, or is shown to it;
- strings with the shortest escapes: ``\u0041`` is `A`, ``\/`` is `/`, ``\u000a`` is ``\n``; half a surrogate pair stays
  an escape;
- numbers as they are spelled;
- no cache marks (`MARKS`), which are handed out instead;
- a member `content` that is a bare string is one block of text.

What lies deeper than `DEEP` levels stands as it is spelled. What is no JSON has no form; nothing here raises for it.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

DEEP = 128
OPAQUE = (
    *(b"arguments", b"input", b"input_examples", b"input_schema", b"output_schema", b"parameters", b"schema"),
    *(b"args", b"response", b"parametersJsonSchema", b"parameters_json_schema"),  # Gemini's
    *(b"responseJsonSchema", b"response_json_schema"),
)
MARKS = (b"cache_control", b"prompt_cache_breakpoint")
MOST_MARKS = 64
"""Of one call; those behind them are left out all the same, and not told of. Anthropic takes four in a request."""
EVERY, LAST, RUNS = 16, 4, 4
"""Which positions of a chain are kept (`kept`)."""
PLACES = 4
"""How many array indexes of a mark's place are told."""

Mark = tuple[tuple[int, ...], bytes]
"""Where a mark stands (the index in each array around it, the outermost first), and its value as it is spelled."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TOKEN = re.compile(rb'[^\[\]{}",: \t\r\n]++')
_BLANK = re.compile(rb"[ \t\r\n]*+")
_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}"]', re.DOTALL)
_ESCAPE = re.compile(
    rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL
)
_SHORT = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_PRODUCED = (b'"reasoning"', b'"compaction"', b'"item_reference"', b'"mcp_list_tools"', b'"mcp_approval_request"')


class Folded(NamedTuple):
    """What became of a row of inputs."""

    ends: list[int]
    """Where each ends."""
    links: bytes
    """The link behind each, 32 bytes, one after the other."""
    produced: bytes
    """A byte for each: 1 where the model wrote it."""
    marks: list[Mark]
    """The first index is that of the input among these."""
    is_over: bool
    """Whether the array ended with them."""


class Led(NamedTuple):
    """The instructions that a row of inputs begins with."""

    ends: list[int]
    forms: list[bytes]
    marks: list[Mark]


Told = tuple[int, list[str], list[Mark], str]
"""How many inputs, what is kept of their chain (`kept`), their marks, and 12 digits of the last link; "" of none."""


class _Malformed(Exception):
    pass


class _Form:
    """One value on its way into its form."""

    def __init__(self, text: bytes, marks: list[Mark]) -> None:
        self.text = text
        self.marks = marks
        self.places: list[int] = []
        self.role = self.kind = b""  # of the outermost object

    def blank(self, at: int) -> int:
        return _BLANK.match(self.text, at).end()  # type: ignore[union-attr]

    def byte(self, at: int) -> bytes:
        return self.text[at : at + 1]

    def value(self, at: int, level: int, *, opaque: bool, is_content: bool = False) -> tuple[bytes, int]:
        first = self.byte(at)
        if first == b'"':
            string, at = self.string(at)
            return (b'[{"text":%b,"type":"text"}]' % string if is_content and not opaque else string), at
        if first in (b"{", b"["):
            if level >= DEEP:
                return self.as_spelled(at)
            return self.object(at, level, opaque) if first == b"{" else self.array(at, level, opaque)
        token = _TOKEN.match(self.text, at)
        if token is None:
            raise _Malformed
        return token[0], token.end()

    def string(self, at: int) -> tuple[bytes, int]:
        found = _STRING.match(self.text, at)
        if found is None:
            raise _Malformed
        string = found[0]
        return (_ESCAPE.sub(_unescaped, string) if b"\\" in string else string), found.end()

    def as_spelled(self, start: int) -> tuple[bytes, int]:
        level, at = 0, start
        while (found := _BRACKET.search(self.text, at)) is not None and found[0] != b'"':
            at = found.end()
            level += 1 if found[0] in (b"{", b"[") else -1 if found[0] in (b"}", b"]") else 0
            if level == 0:
                return self.text[start:at], at
        raise _Malformed

    def object(self, at: int, level: int, opaque: bool) -> tuple[bytes, int]:
        members: dict[bytes, bytes] = {}
        at = self.blank(at + 1)
        if self.byte(at) == b"}":
            return b"{}", at + 1
        while True:
            quoted, at = self.string(at)
            name = quoted[1:-1]
            at = self.blank(at)
            if self.byte(at) != b":":
                raise _Malformed
            at = self.blank(at + 1)
            is_mark = not opaque and name in MARKS
            known = len(self.marks)
            form, end = self.value(
                at, level + 1, opaque=opaque or is_mark or name in OPAQUE, is_content=name == b"content"
            )
            if is_mark:
                if form != b"null" and known < MOST_MARKS:
                    self.marks.append((tuple(self.places[:PLACES]), self.text[at:end]))
            else:
                members.pop(name, None)
                members[name] = form
            at = self.blank(end)
            if self.byte(at) != b",":
                break
            at = self.blank(at + 1)
        if self.byte(at) != b"}":
            raise _Malformed
        if level == 0:
            self.role, self.kind = members.get(b"role", b""), members.get(b"type", b"")
        names = members if opaque else sorted(members)
        return b"{%b}" % b",".join([b'"%b":%b' % (name, members[name]) for name in names]), at + 1

    def array(self, at: int, level: int, opaque: bool) -> tuple[bytes, int]:
        items: list[bytes] = []
        at = self.blank(at + 1)
        if self.byte(at) == b"]":
            return b"[]", at + 1
        self.places.append(0)
        while True:
            item, at = self.value(at, level + 1, opaque=opaque)
            items.append(item)
            at = self.blank(at)
            if self.byte(at) != b",":
                break
            self.places[-1] += 1
            at = self.blank(at + 1)
        self.places.pop()
        if self.byte(at) != b"]":
            raise _Malformed
        return b"[%b]" % b",".join(items), at + 1


def _unescaped(escape: re.Match[bytes]) -> bytes:
    high, low, code, other = escape.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF)).encode()
    if code is None:
        return b"/" if other == b"/" else escape[0]
    point = int(code, 16)
    if point in _SHORT:
        return _SHORT[point]
    if point < 32 or 0xD800 <= point < 0xE000:
        return b"\\u%04x" % point
    return chr(point).encode()


def _is_produced(form: _Form) -> bool:
    if form.role:
        return form.role in (b'"assistant"', b'"model"')
    return form.kind in _PRODUCED or form.kind.endswith(b'_call"')


def form(raw: bytes | memoryview, *, is_content: bool = False) -> tuple[bytes, list[Mark]] | None:
    """The form of one value, and its marks; None where it is no JSON. `is_content`: a bare string is a block."""
    marks: list[Mark] = []
    one = _Form(bytes(raw), marks)
    try:
        return one.value(one.blank(0), 0, opaque=False, is_content=is_content)[0], marks
    except _Malformed:
        return None


def lead(entries: bytes | memoryview) -> Led | None:
    """The instructions (system and developer messages) that an array of inputs begins with.

    Shapes: whether an input is one is told by the first `role` in it. None where the array is no JSON as far as it is
    read.
    """
    text = bytes(entries)
    led = Led([], [], [])
    at = 0
    try:
        while True:
            one = _Form(text, led.marks)
            start = _next(one, at)
            if start < 0 or not _is_instruction(one, start):
                return led
            one.places.append(len(led.ends))
            form, at = one.value(start, 0, opaque=False)
            led.ends.append(at)
            led.forms.append(form)
    except _Malformed:
        return None


def _is_instruction(one: _Form, at: int) -> bool:
    if one.byte(at) != b"{":
        return False
    at = one.blank(at + 1)
    while one.byte(at) == b'"':
        name, at = one.string(at)
        at = one.blank(at)
        if one.byte(at) != b":":
            raise _Malformed
        form, at = one.value(one.blank(at + 1), 1, opaque=True)
        if name == b'"role"':
            return form in (b'"system"', b'"developer"')
        at = one.blank(at)
        if one.byte(at) != b",":
            return False
        at = one.blank(at + 1)
    return False


def fold(entries: bytes | memoryview, at: int, link: bytes, most: int) -> Folded | None:
    """Hash the inputs of an array onto `link`, from the one behind `at` (0, or where one ended); at most so many.

    None where the array is no JSON as far as it is read.
    """
    text = bytes(entries)
    ends: list[int] = []
    links = bytearray()
    produced = bytearray()
    marks: list[Mark] = []
    try:
        while True:
            one = _Form(text, marks)
            start = _next(one, at)
            if start < 0 or len(ends) == most:
                return Folded(ends, bytes(links), bytes(produced), marks, start < 0)
            one.places.append(len(ends))
            form, at = one.value(start, 0, opaque=False)
            link = sha256(link + form).digest()
            ends.append(at)
            links += link
            produced.append(_is_produced(one))
    except _Malformed:
        return None


def kept(links: bytes, produced: bytes) -> list[str]:
    """What is kept of a chain: `position:hash`, by which of its inputs a model wrote; a position counts inputs.

    Shapes: behind every 16th input, behind each of the last four, and just before each of the last four runs that a
    model wrote. Behind no input there is the head, which is told elsewhere.
    """
    count = len(produced)
    positions = {*range(EVERY, count + 1, EVERY), *range(max(1, count - LAST + 1), count + 1)}
    end = count
    for _ in range(RUNS):
        end = produced.rfind(1, 0, end) + 1
        if not end:
            break
        end = produced.rfind(0, 0, end) + 1
        positions.add(end)
    return [f"{at}:{links[32 * at - 32 : 32 * at - 26].hex()}" for at in sorted(positions - {0})]


def told(entries: bytes | memoryview, led: int, at: int, link: bytes, most: int) -> Told | None:
    """What there is to say of a whole array of inputs, of which `led` are instructions that end at `at`.

    `link` stands for these, behind each of them. None where the array is no JSON, or has more than `most` inputs.
    """
    folded = fold(entries, at, link, most)
    if folded is None or not folded.is_over:
        return None
    links = link * led + folded.links
    marks = [((led + places[0], *places[1:]), value) for places, value in folded.marks]
    words = kept(links, bytes(led) + folded.produced)
    return len(links) // 32, words, marks, links[-32:-26].hex()


def _next(one: _Form, at: int) -> int:
    """Where the next item of an array begins, behind the one that ends at `at` (0: the first); -1 where none does."""
    start = one.blank(at)
    if one.byte(start) == (b"," if at else b"["):
        start = one.blank(start + 1)
        if at or one.byte(start) != b"]":
            return start
    elif not at or one.byte(start) != b"]":
        raise _Malformed
    return -1
