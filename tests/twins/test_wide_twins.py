"""Strings looked at 64 bytes at a time, where the processor can: the answers are those of sixteen, and of the twins."""

from __future__ import annotations

import ctypes
import json
import mmap
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from arbiter._speedups.c import chain as compiled_chain
from arbiter._speedups.c import nesting as compiled
from arbiter._speedups.py import chain as reference_chain
from arbiter._speedups.py import nesting as reference

LINK = bytes(32)
WORDS = (b"arbiter", b"gem")

SOUND = [
    b'\\"', b"\\\\", b"\\n", b"\\/", b"\\u0041", b"\\u000a", b"\\ud83d\\ude00", b"x", b"u", b"/", b"a" * 15, b"b" * 31,
    b"c" * 63, b"d" * 64, "ä".encode(), "…".encode(), "🌍".encode(), b"{", b"]", b",",
]  # fmt: skip
UNSOUND = [
    b'"', b"\\", b"\\q", b"\\ud83d", b"\\ude00", b"\\u12g4", b"\n", b"\x1f", b"\x7f", b"\x80", b"\xff", b"\xc0\x80",
    b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x8c", b'"arbiter', b'"gem',
]  # fmt: skip
FRAMES = (b'{"a":"%b"}', b'["%b"]', b'{"content":"%b","a":["%b"]}', b"%b%b")

pytestmark = pytest.mark.skipif(not compiled._look_wide(True), reason="this processor has no AVX2")


@pytest.fixture(autouse=True)
def wide_again() -> Iterator[None]:
    yield
    compiled._look_wide(True)
    compiled_chain._look_wide(True)


def read(nesting: Any, chain: Any, text: bytes) -> list[object]:
    """All that is found out about a text."""
    return [
        nesting.members(text, 200, 1024),
        nesting.not_utf8(text),
        nesting.fault(text, 3, 2),
        nesting.cuts(text, 50),
        nesting.underscored(text),
        nesting.half(text),
        nesting.whole(text),
        nesting.path(text, len(text)),
        *in_any_buffer(nesting, chain, text),
    ]


def in_any_buffer(nesting: Any, chain: Any, text: bytes | memoryview) -> list[object]:
    return [
        nesting.begins(text, *WORDS),
        nesting.units(text),
        nesting.commas(text),
        chain.form(text),
        chain.form(text, is_content=True),
        chain.fold(text, 0, LINK, 100),
    ]


def agreed(text: bytes, *, with_reference: bool = True) -> list[object]:
    compiled._look_wide(True)
    compiled_chain._look_wide(True)
    wide = read(compiled, compiled_chain, text)
    compiled._look_wide(False)
    compiled_chain._look_wide(False)
    assert read(compiled, compiled_chain, text) == wide
    if with_reference:
        assert read(reference, reference_chain, text) == wide
    return wide


@pytest.mark.parametrize("what", [*SOUND, *UNSOUND])
def test_a_string_is_read_alike_wherever_64_bytes_end(what: bytes) -> None:
    """What is looked for may be the first or the last of a block, or lie across two; so may the text's end."""
    for before in (*range(55, 70), *range(118, 134), *range(190, 200)):
        for behind in (0, 1, 70):
            text = b'["%b%b%b"]' % (b"x" * before, what, b"y" * behind)
            agreed(text, with_reference=behind != 1)
            agreed(text[: before + 2 + len(what)], with_reference=False)


@pytest.mark.parametrize("run", range(1, 7))
def test_runs_of_backslashes_escape_alike_across_blocks(run: int) -> None:
    for before in range(50, 140):
        for behind in (b'"]', b'n"]', b'","/"]', b'u0041"]', b'/"]', b""):
            agreed(b'["' + b"x" * before + b"\\" * run + behind + b"z" * 70)


@pytest.mark.parametrize("seed", range(4))
def test_bodies_at_random_are_read_alike(seed: int) -> None:
    rng = random.Random(seed)
    opened = 0
    for n in range(1500):
        pieces = SOUND + UNSOUND if rng.random() < 0.3 else SOUND
        inside = b"x" * rng.randrange(140) + b"".join(rng.choices(pieces, k=rng.choice((1, 8, 30, 90))))
        if rng.random() < 0.3:
            at = rng.randrange(len(inside))
            inside = inside[:at] + bytes([rng.choice(b'"\\\n\x80\xffu{}/')]) + inside[at + 1 :]
        frame = rng.choice(FRAMES)
        text = frame % ((inside,) * frame.count(b"%b"))
        opened += agreed(text, with_reference=n % 5 == 0)[0] is not None
    assert opened > 150


def test_malformed_utf8_is_found_where_python_finds_it_among_much() -> None:
    rng = random.Random(5)
    for _ in range(3000):
        text = bytearray("".join(rng.choices(["a", "é", "…", "🌍", "語", "b" * 40], k=rng.randrange(90))).encode())
        for _ in range(rng.choice((0, 1, 1, 2))):
            if text:
                text[rng.randrange(len(text))] = rng.choice(
                    (0x41, 0x80, 0xBF, 0xC1, 0xE0, 0xED, 0xF0, 0xF4, 0xF5, 0xFF)
                )
        try:
            bytes(text).decode()
            expected = -1
        except UnicodeDecodeError as error:
            expected = error.start
        assert compiled.not_utf8(bytes(text)) == expected


@pytest.fixture
def at_the_end() -> Iterator[Callable[[bytes], memoryview]]:
    """Puts a text at the end of a page that nobody may read beyond."""
    page, libc = mmap.PAGESIZE, ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(-1, 9 * page) as area:
        held = ctypes.c_char.from_buffer(area)
        beyond = ctypes.c_void_p(ctypes.addressof(held) + 8 * page)
        if libc.mprotect(beyond, page, 0):
            pytest.skip("pages cannot be closed here")
        view = memoryview(area)

        def place(text: bytes) -> memoryview:
            view[8 * page - len(text) : 8 * page] = text
            return view[8 * page - len(text) : 8 * page]

        yield place
        libc.mprotect(beyond, page, 3)
        view.release()
        del held


def test_nothing_is_read_beyond_a_texts_end(at_the_end: Callable[[bytes], memoryview]) -> None:
    for size in (*range(1, 200), 1000, 4095, 4096, 4097):
        for text in (b"x" * size, b"\\" * size, b'"' * size, b'["' + b'\\n"' * size, json.dumps(["ä" * size]).encode()):
            view = at_the_end(text)
            found = in_any_buffer(compiled, compiled_chain, view)
            view.release()
            assert found == in_any_buffer(compiled, compiled_chain, text)
