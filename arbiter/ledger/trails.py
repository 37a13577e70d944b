"""Where conversations were before, so that the next turn of one hashes only what is new in it.

Theory of operation. A *trail* is what the chain of one request was: where each input ended, the link behind it, and at
some of them a *stone*, an xxh3-128 over every byte up to there. Whoever comes with the same bytes up to a stone has the
same chain up to it. Stones lie behind every 16th input and behind each of the last 8, since agents move their cache
marks from turn to turn, so that the newest inputs of the last turn come back in other bytes.

A trail is found without looking for where inputs end, which would cost half of what hashing them does: it is known by
hashes over its first 8 KiB, its first 16 KiB and so on, its *rungs*. The highest rung that is known leads to a trail
that has at least half of its bytes in common; then its stones are tried in order, in the same pass over the bytes.

Of two trails that share a rung the later one is found by it. A trail that no rung leads to is forgotten, and once there
is more than `limit_bytes` of them, those that were left the longest ago. Trails are kept on one loop, and found in any
thread.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

import msgspec
from xxhash import xxh3_128

from arbiter._speedups.py.chain import Folded, Led
from arbiter.ledger.head import Head, in_words

LEAST_BYTES = 8 << 10
"""A shorter conversation is hashed sooner than it is found."""
EVERY, NEWEST = 16, 8
LINK = 32  # bytes of a link
_OWN_BYTES = 1024  # of a trail, whatever it holds
_STONE_BYTES = 128

_NO_ENDS = array("Q")
_SELF_DELIMITING = b'}]"'


class Chain(msgspec.Struct, frozen=True):
    """The chain of one request over its `head`: of each input where it ends, its link, and whether a model wrote it."""

    head: Head
    led: int
    """How many inputs are instructions. They are the head's: each takes its place, and its link is the head's."""
    ends: array[int]
    links: bytes
    produced: bytes
    marks: list[tuple[int, str]]
    """In words, and in which input, from 0."""

    @staticmethod
    def begun(head: Head, led: Led) -> Chain:
        """A chain of instructions alone."""
        count = len(led.ends)
        if not count:
            return Chain(head, 0, _NO_ENDS, b"", b"", [])
        marks = [(places[0], in_words("message", places, value)) for places, value in led.marks]
        return Chain(head, count, array("Q", led.ends), head.digest * count, bytes(count), marks)

    def link(self, inputs: int) -> bytes:
        """The link behind so many inputs; behind none it is the head's."""
        return self.links[LINK * (inputs - 1) : LINK * inputs] if inputs else self.head.digest

    def upto(self, inputs: int) -> Chain:
        """The beginning of it."""
        return Chain(
            self.head,
            self.led,
            self.ends[:inputs],
            self.links[: LINK * inputs],
            self.produced[:inputs],
            [mark for mark in self.marks if mark[0] < inputs],
        )

    def extended(self, by: Folded) -> Chain:
        """With the inputs that follow."""
        before = len(self.ends)
        marks = self.marks
        if by.marks:
            marks = marks + [
                (before + places[0], in_words("message", (before + places[0], *places[1:]), value))
                for places, value in by.marks
            ]
        ends = self.ends + array("Q", by.ends)
        return Chain(self.head, self.led, ends, self.links + by.links, self.produced + by.produced, marks)


class Trail:
    """Where one request was. `rungs` lead here."""

    __slots__ = ("chain", "known_by", "placed", "reached", "rungs", "size", "stones")

    def __init__(
        self, chain: Chain, placed: array[int], reached: array[int], stones: list[bytes], rungs: list[bytes]
    ) -> None:
        self.chain = chain
        self.placed = placed  # how many inputs lie before each stone
        self.reached = reached  # and how many bytes
        self.stones = stones
        self.rungs = rungs
        self.known_by = 0  # of the rungs, as others come to lead elsewhere
        self.size = _OWN_BYTES + (LINK + 9) * len(chain.ends) + _STONE_BYTES * (len(stones) + len(chain.marks))


class Found(NamedTuple):
    """How much of a conversation is known: the first `inputs` inputs of `trail`."""

    trail: Trail | None
    inputs: int
    rungs: list[bytes]
    done: int
    """As many bytes went into `stream`: all that is known, or more."""
    stream: xxh3_128

    def chain(self) -> Chain | None:
        """The chain as far as it is known."""
        trail = self.trail
        # What follows on instructions alone may be another instruction, which would be the head's.
        return trail.chain.upto(self.inputs) if trail is not None and self.inputs > trail.chain.led else None


class Trails:
    """The trails of one worker."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size = 0
        self._by_rung: dict[bytes, Trail] = {}

    def find(self, seed: bytes, text: memoryview) -> Found:
        """Follow the longest trail that begins as `text` does. `seed` stands for what comes before it."""
        stream, done, rungs = xxh3_128(seed), 0, []
        trail: Trail | None = None
        reach, size = LEAST_BYTES, len(text)
        while reach <= size:
            ahead = stream.copy()
            ahead.update(text[done:reach])
            rung = ahead.digest()
            if (known := self._by_rung.get(rung)) is None:
                break
            trail, stream, done = known, ahead, reach
            rungs.append(rung)
            reach *= 2
        if trail is None:
            return Found(None, 0, rungs, done, stream)
        # Who has the bytes up to a stone has them up to each one before it: the last such one is looked for by halves.
        reached, stones = trail.reached, trail.stones
        low, high = bisect_right(reached, done), bisect_right(reached, size)
        while low < high:
            at = (low + high) // 2
            ahead = stream.copy()
            ahead.update(text[done : reached[at]])
            if ahead.digest() == stones[at]:
                stream, done, low = ahead, reached[at], at + 1
            else:
                high = at
        return Found(trail, trail.placed[low - 1] if low else 0, rungs, done, stream)

    def keep(self, trail: Trail) -> None:
        """Remember a trail; of those that share a rung with it, it is the one that is found by that."""
        if trail.size > self.limit_bytes // 4:
            return
        by_rung = self._by_rung
        self.size += trail.size
        trail.known_by = len(trail.rungs)
        for rung in trail.rungs:
            if (before := by_rung.pop(rung, None)) is not None:
                self._let_go(before)
            by_rung[rung] = trail
        while self.size > self.limit_bytes:
            self._let_go(by_rung.pop(next(iter(by_rung))))

    def _let_go(self, trail: Trail) -> None:
        trail.known_by -= 1
        if not trail.known_by:
            self.size -= trail.size


def trail_of(found: Found, seed: bytes, text: memoryview, chain: Chain) -> Trail | None:
    """The trail of `text`, of which `found` was known; None where it is not worth one. In any thread."""
    ends, count = chain.ends, len(chain.ends)
    if not count or ends[-1] < LEAST_BYTES:
        return None
    placed, reached, stones = _still(found, count)
    newest = range(max(1, count - NEWEST + 1), count + 1)
    wanted = [*range(found.inputs // EVERY * EVERY + EVERY, newest.start, EVERY)]
    wanted += [inputs for inputs in newest if inputs not in placed[-NEWEST:]]
    places = [(ends[inputs - 1], inputs) for inputs in wanted if text[ends[inputs - 1] - 1] in _SELF_DELIMITING]
    rungs = found.rungs[:]
    reach = LEAST_BYTES << len(rungs)
    while reach <= ends[-1]:
        places.append((reach, 0))
        reach *= 2
    places.sort()
    stream, done = found.stream, found.done
    if places and places[0][0] < done:
        stream, done = xxh3_128(seed), 0
    for end, inputs in places:
        stream.update(text[done:end])
        done = end
        if not inputs:
            rungs.append(stream.digest())
            continue
        at = bisect_right(placed, inputs)
        placed.insert(at, inputs)
        reached.insert(at, end)
        stones.insert(at, stream.digest())
    return Trail(chain, placed, reached, stones, rungs)


def _still(found: Found, count: int) -> tuple[array[int], array[int], list[bytes]]:
    """The stones in what was found that stay where they are: each 16th, and who still is among the newest."""
    trail = found.trail
    if trail is None:
        return array("Q"), array("Q"), []
    known = bisect_right(trail.placed, found.inputs)
    placed, reached, stones = trail.placed[:known], trail.reached[:known], trail.stones[:known]
    for at in range(known - 1, max(known - NEWEST, 0) - 1, -1):  # before them all are 16ths
        if placed[at] <= count - NEWEST and placed[at] % EVERY:
            del placed[at], reached[at], stones[at]
    return placed, reached, stones
