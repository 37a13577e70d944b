"""Which prompt an attempt sent, without a word of it: what its row says of the prefix that a provider may have cached.

SPEC 7.4. `Prefixes` is one worker's; a `Reading` is of one request, and is shared by its attempts. It begins once the
request was sent, and goes on while the upstream thinks: in the loop's next turn where there is little to hash, in a
thread where there is much. The loop never waits for that thread: whoever needs a reading sooner, because the upstream
answered at once, is called back once it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
from msgspec import Raw

from arbiter import clock
from arbiter._speedups import chain, nesting
from arbiter._speedups.py.chain import Led
from arbiter.inputs import CONVERSATIONS, conversation_of
from arbiter.ledger import asked
from arbiter.ledger.head import BESIDE, MAX_ENTRIES, NOTHING_BESIDE, SHORT, TOOLS, Head, Heads, in_words, seed_of
from arbiter.ledger.seldom import Seldom
from arbiter.ledger.toolsets import USED_EVERY_S
from arbiter.ledger.trails import LEAST_BYTES, LINK, Chain, Found, Trail, Trails, trail_of
from arbiter.log import Log

TRAILS_BYTES = 16 << 20
SEEN_TOOLS = 1024
TOOLS_SAMPLE_BYTES = 256 << 10
SHORT_BYTES = 16 << 10
"""What is no longer is looked through for cache marks in a microsecond, and so before it is sent."""
AT_ONCE_BYTES = 128 << 10
"""Hashing that many takes a fifth of a millisecond; what is more goes to a thread."""
LATE_BYTES = 128 << 20
"""Of prompts whose requests may be over, and their rows still wait: what comes on top goes without being hashed."""

_MARK, _RETENTION = b'cache_control"', b"prompt_cache"
_NONE = memoryview(b"[]")
_NO_MARKS: list[str] = []
_QUOTE = ord('"')

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_log = Log(__name__)


class Prefix(msgspec.Struct, frozen=True):
    """What rows say of one request's prompt (`ledger.row.AttemptRow`)."""

    head_hash: str
    system_hash: str | None
    tools_hash: str | None
    tools_offered: int
    inputs: int
    input_chain: list[str]
    cache_marks: list[str]
    effort: str | None
    settings_hash: str | None
    last: str
    """The hash behind the last input: of the whole."""
    tools_sample: bytes | None = None
    replaced: int | None = None
    """Inputs of the client's request that do not stand in this one, where this one was made of it."""


class Prefixes:
    """What one worker knows of the prompts that it sent.

    `folded_bytes` counts how much of inputs was hashed, `late_bytes` is what there is of prompts that rows wait for.
    `untold` is for whoever fails to tell of one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, trails_bytes: int = TRAILS_BYTES) -> None:
        self.loop = loop
        self.heads = Heads()
        self.trails = Trails(trails_bytes)
        self.folded_bytes = self.late_bytes = 0
        self.untold = Seldom(_log, "a request's prefix could not be told")
        self.too_many = Seldom(_log, "more prompts wait to be hashed than there is room for; their rows go without")
        self._seen_tools: dict[str, float] = {}  # when, on the monotonic clock
        self._threads: ThreadPoolExecutor | None = None
        self._begun: list[Reading] = []

    def begin(self, reading: Reading) -> None:
        """Read it in the loop's next turn: all that begin until then, one behind the other."""
        if not self._begun:
            self.loop.call_soon(self._read_begun)
        self._begun.append(reading)

    def _read_begun(self) -> None:
        begun, self._begun = self._begun, []
        for reading in begun:
            reading.go()

    def reading(self, members: Mapping[str, Raw], before: Mapping[str, Raw] | None = None) -> Reading:
        """The reading of a request with these members, made of those `before`; nothing is done yet."""
        return Reading(self, members, before=before)

    def reading_of_marks(self, body: bytes) -> Reading | None:
        """The reading of a body for the cache marks in it; None where it is short and has none."""
        if len(body) <= SHORT_BYTES and not nesting.begins(body, _MARK, _RETENTION):
            return None
        return Reading(self, {}, body)

    def submit(self, work: Callable[[], None]) -> Future[None]:
        if self._threads is None:
            # One: it is there to keep the loop free, not to take the other workers' cores.
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="prefix")
        return self._threads.submit(work)

    def tools_sample(self, tools: str, raw: Raw) -> bytes | None:
        """The schemas behind a hash, where this worker has not seen it lately and they are not too long."""
        seen, now = self._seen_tools, clock.monotonic()
        seen_at = seen.pop(tools, None)
        is_new = seen_at is None or now - seen_at >= USED_EVERY_S  # control may have let go of it since
        seen[tools] = now
        if len(seen) > SEEN_TOOLS:
            del seen[next(iter(seen))]
        text = memoryview(raw)
        return bytes(text) if is_new and len(text) <= TOOLS_SAMPLE_BYTES else None

    async def aclose(self) -> None:
        """End, once nothing is read any more that a row waits for."""
        while self.late_bytes:
            # Behind all that was begun. Who is called back may ask for another reading.
            await asyncio.wrap_future(self.submit(lambda: None))
        if self._threads is not None:
            self._threads.shutdown()


class Reading:
    """One request's prompt, being read: once, whoever asks. `prefix` is what there is to say, once it `is_over`.

    A failure leaves None, and is logged.
    """

    __slots__ = ("_at", "_before", "_begun", "_body", "_found", "_future", "_inputs", "_late_bytes", "_members",
                 "_prefixes", "_seed", "_trail", "_waiting", "is_begun", "is_over", "prefix")  # fmt: skip

    def __init__(
        self,
        prefixes: Prefixes,
        members: Mapping[str, Raw],
        body: bytes = b"",
        before: Mapping[str, Raw] | None = None,
    ) -> None:
        self._prefixes = prefixes
        self._members = members
        self._body = body  # still to be opened
        self._before = before
        self.is_begun = self.is_over = False
        self.prefix: Prefix | None = None
        self._waiting: list[Callable[[], None]] = []
        self._late_bytes = 0
        self._future: Future[None] | None = None
        self._inputs: memoryview | None = None
        self._begun: Chain | None = None  # as far as it is known
        self._found: Found | None = None
        self._trail: Trail | None = None

    def begin(self) -> None:
        """The request was sent: read it now, while the upstream thinks."""
        if not self.is_begun:
            self.is_begun = True
            self._prefixes.begin(self)

    def is_ready(self, then: Callable[[], None]) -> bool:
        """Whether it is over. Where that takes longer than the loop can wait, `then` is called on the loop after it."""
        self.go()
        if self.is_over:
            return True
        prefixes = self._prefixes
        if not self._late_bytes:
            size = max(len(self._body), len(self._inputs or b""), 1)
            if prefixes.late_bytes and prefixes.late_bytes + size > LATE_BYTES:
                prefixes.too_many.warn()
                if self._future is not None:
                    self._future.cancel()
                self._end()
                return True
            self._late_bytes = size
            prefixes.late_bytes += size
        self._waiting.append(then)
        return False

    def read(self) -> Prefix | None:
        """Read it here and now, however long that takes."""
        self._finish(self.fold)
        return self.prefix

    def go(self) -> None:
        """Read it now, or in a thread where it is long."""
        if self.is_over or self._future is not None:
            return
        try:
            if not self._is_short() and (len(self._body) or self._look()) > AT_ONCE_BYTES:
                self._future = self._prefixes.submit(self.fold)
                self._future.add_done_callback(self._folded_elsewhere)
                return
        except Exception:
            # What is wrong with it, `read` finds out as well, and says so. Nor is there a thread once the worker has
            # ended.
            pass
        self._finish(self.fold)

    def _folded_elsewhere(self, future: Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._prefixes.loop.call_soon_threadsafe(self._finish, future.result)

    def _finish(self, fold: Callable[[], None]) -> None:
        """Whatever `fold` finds is what there is to say. On the loop."""
        if self.is_over:
            return
        try:
            fold()
            self._remember()
        except Exception as bug:
            self._prefixes.untold.error(bug)
        self._end()

    def _end(self) -> None:
        self.is_over = True
        self._members, self._before, self._body = {}, None, b""
        self._inputs = self._begun = self._found = self._trail = None
        self._prefixes.late_bytes -= self._late_bytes
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _is_short(self) -> bool:
        """Whether it is a short conversation with nothing beside it: of those there is nothing to find out."""
        members = self._members
        raw = members.get("messages")
        if raw is None or self._before is not None or not BESIDE.isdisjoint(members):
            return False
        inputs = memoryview(raw)
        if not 0 < len(inputs) < LEAST_BYTES or inputs[0] == _QUOTE:
            return False
        self._inputs, self._seed = inputs, NOTHING_BESIDE
        return True

    def _look(self) -> int:
        """Find out what is known of it; how many bytes are not."""
        if self._inputs is None:
            if nesting.begins(self._body, _MARK, _RETENTION):
                self._members = _decode_members(self._body)
            members, trails = self._members, self._prefixes.trails
            inputs = _inputs_of(members)
            self._seed = seed = seed_of(members)
            if len(inputs) >= LEAST_BYTES:
                self._found = trails.find(seed, inputs)
                self._begun = self._found.chain()
            self._inputs = inputs
        size = len(self._inputs)
        if self._before is not None:
            return size  # to be compared, whatever is known
        if self._begun is not None:
            return size - self._begun.ends[-1]
        if self._seed is NOTHING_BESIDE:
            return size
        return size + self._prefixes.heads.unread_bytes(self._members, self._seed)

    def fold(self) -> None:
        """Hash what is not known, and say what there is to say. In any thread."""
        if self._inputs is None:
            self._look()
        begun, inputs, members = self._begun, self._inputs, self._members
        assert inputs is not None
        if begun is None:
            led = chain.lead(inputs)
            head = self._prefixes.heads.of(members, self._seed, led) if led is not None else None
            if led is None or head is None:
                return
            if self._found is None:
                self.prefix = self._short(led, head)
                return
            self._begun = begun = Chain.begun(head, led)
        self._at = begun.ends[-1] if begun.ends else 0
        folded = chain.fold(inputs, self._at, begun.link(len(begun.ends)), MAX_ENTRIES)
        if folded is None or not folded.is_over:
            return
        whole, head = begun.extended(folded), begun.head
        if self._found is not None:
            self._trail = trail_of(self._found, self._seed, inputs, whole)
        words = [word for _, word in whole.marks]
        kept = chain.kept(whole.links, whole.produced)
        self.prefix = self._said(head, len(whole.produced), kept, words, whole.links[-LINK : SHORT - LINK].hex())

    def _short(self, led: Led, head: Head) -> Prefix | None:
        """Hash a conversation that is too short to be looked for again."""
        self._at = at = led.ends[-1] if led.ends else 0
        assert self._inputs is not None
        found = chain.told(self._inputs, len(led.ends), at, head.digest, MAX_ENTRIES)
        if found is None:
            return None
        count, kept, marks, last = found
        words = [in_words("message", places, value) for places, value in [*led.marks, *marks]]
        return self._said(head, count, kept, words, last)

    def _said(self, head: Head, inputs: int, kept: list[str], marks: list[str], last: str) -> Prefix:
        members, before = self._members, self._before
        if asked.says_nothing(members):
            retention, effort, settings = _NO_MARKS, None, None
        else:
            retention, effort, settings = asked.retention(members), asked.effort(members), asked.settings(members)
        head_hash, system_hash, tools_hash = head.told
        return Prefix(
            head_hash,
            system_hash,
            tools_hash,
            head.tools_offered,
            inputs,
            kept,
            [*head.marks, *marks, *retention],
            effort,
            settings,
            last,
            None,
            replaced(before, members) if before is not None else None,
        )

    def _remember(self) -> None:
        """What the next requests of this worker need to know. On the loop."""
        prefix, inputs, prefixes = self.prefix, self._inputs, self._prefixes
        if prefix is None or inputs is None:
            return
        prefixes.folded_bytes += len(inputs) - self._at
        if self._trail is not None:
            prefixes.trails.keep(self._trail)
        tools_hash = prefix.tools_hash
        if tools_hash is not None and not self._body:
            sample = prefixes.tools_sample(tools_hash, self._members[TOOLS])
            if sample is not None:
                self.prefix = msgspec.structs.replace(prefix, tools_sample=sample)


def _inputs_of(members: Mapping[str, Raw]) -> memoryview:
    raw = conversation_of(members)
    inputs = memoryview(raw) if raw is not None else _NONE
    # Responses: a bare string is one message of the user's.
    bare = len(inputs) > 0 and inputs[0] == _QUOTE
    return memoryview(b'[{"role":"user","content":%b}]' % bytes(inputs)) if bare else inputs


def replaced(before: Mapping[str, Raw], after: Mapping[str, Raw]) -> int:
    """How many inputs of `before` do not stand in `after`, as they are spelled."""
    if all(before.get(name) == after.get(name) for name in CONVERSATIONS):
        return 0
    return (Counter(_spelled(before)) - Counter(_spelled(after))).total()


def _spelled(members: Mapping[str, Raw]) -> list[bytes]:
    raw = bytes(_inputs_of(members))
    start, found = 1, []
    for end in nesting.cuts(raw, len(raw)):
        found.append(raw[start:end].strip())
        start = end + 1
    return found
