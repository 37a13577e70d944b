"""Which prompt an attempt sent, without a word of it: what its row says of the prefix that a provider may have cached.

SPEC 7.4. `Prefixes` is one worker's; a `Reading` is of one request, and is shared by its attempts. It begins once the
request was sent, and goes on while the upstream thinks: in the loop's next turn where there is little to hash, in a
thread where there is much. Whoever needs it sooner (an upstream that answered at once) waits for it, or does it then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
from msgspec import Raw

from arbiter._speedups import chain
from arbiter.ledger import asked
from arbiter.ledger.head import MAX_ENTRIES, SHORT, TOOLS, Heads, seed_of
from arbiter.ledger.trails import LEAST_BYTES, LINK, Chain, Found, Trail, Trails, trail_of
from arbiter.log import Log

TRAILS_BYTES = 16 << 20
SEEN_TOOLS = 1024
TOOLS_SAMPLE_BYTES = 256 << 10
AT_ONCE_BYTES = 128 << 10
"""Hashing that many takes a fifth of a millisecond; what is more goes to a thread."""

_MARK, _RETENTION = b'"cache_control"', b'"prompt_cache'
_NONE = memoryview(b"[]")
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


class Prefixes:
    """What one worker knows of the prompts that it sent. `folded_bytes` counts how much of inputs was hashed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, trails_bytes: int = TRAILS_BYTES) -> None:
        self.loop = loop
        self.heads = Heads()
        self.trails = Trails(trails_bytes)
        self.folded_bytes = 0
        self._seen_tools: dict[str, None] = {}
        self._threads: ThreadPoolExecutor | None = None

    def read(self, members: Mapping[str, Raw]) -> Reading:
        """The reading of a request with these members; nothing is done yet."""
        return Reading(self, members)

    def read_marks(self, body: bytes) -> Reading:
        """The reading of a body for the cache marks in it."""
        return Reading(self, None, body)

    def submit(self, work: Callable[[], None]) -> Future[None]:
        if self._threads is None:
            # One: it is there to keep the loop free, not to take the other workers' cores.
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="prefix")
        return self._threads.submit(work)

    def tools_sample(self, tools: str, raw: Raw) -> bytes | None:
        """The schemas behind a hash, where this worker sees it for the first time and they are not too long."""
        seen = self._seen_tools
        is_new = tools not in seen
        seen.pop(tools, None)
        seen[tools] = None
        if len(seen) > SEEN_TOOLS:
            del seen[next(iter(seen))]
        text = memoryview(raw)
        return bytes(text) if is_new and len(text) <= TOOLS_SAMPLE_BYTES else None

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()


class Reading:
    """One request's prompt, being read: once, whoever asks. A failure leaves None, and is logged."""

    __slots__ = ("_at", "_begun", "_body", "_found", "_future", "_inputs", "_is_over", "_members",
                 "_prefix", "_prefixes", "_seed", "_trail", "is_begun")  # fmt: skip

    def __init__(self, prefixes: Prefixes, members: Mapping[str, Raw] | None, body: bytes = b"") -> None:
        self._prefixes = prefixes
        self._members: Mapping[str, Raw] = members if members is not None else {}
        self._body = body  # still to be opened
        self.is_begun = self._is_over = False
        self._prefix: Prefix | None = None
        self._future: Future[None] | None = None
        self._inputs: memoryview | None = None
        self._begun: Chain | None = None  # as far as it is known
        self._found: Found | None = None
        self._trail: Trail | None = None

    def begin(self) -> None:
        """The request was sent: read it now, while the upstream thinks."""
        if not self.is_begun:
            self.is_begun = True
            self._prefixes.loop.call_soon(self._go)

    def prefix(self) -> Prefix | None:
        """What there is to say. Waits where it is still being read."""
        if self._is_over:
            return self._prefix
        self._is_over = True
        try:
            if self._future is not None:
                self._future.result()
            else:
                self._look()
                self.fold()
            self._remember()
        except Exception as bug:
            _log.error("a request's prefix could not be told", error=bug)
        self._members, self._body = {}, b""
        self._inputs = self._begun = self._found = self._trail = None
        return self._prefix

    def _go(self) -> None:
        if self._is_over:
            return
        try:
            is_much = self._look() > AT_ONCE_BYTES
        except Exception:
            is_much = False  # `prefix` finds out as well, and says so
        if is_much:
            self._future = self._prefixes.submit(self.fold)
            self._future.add_done_callback(self._folded_elsewhere)
        else:
            self.prefix()

    def _folded_elsewhere(self, _: Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._prefixes.loop.call_soon_threadsafe(self.prefix)

    def _look(self) -> int:
        """Find out what is known of it; how many bytes are not."""
        if self._inputs is None:
            if _MARK in self._body or _RETENTION in self._body:
                self._members = _decode_members(self._body)
            members, trails = self._members, self._prefixes.trails
            inputs = _inputs_of(members)
            self._seed = seed = seed_of(members)
            if len(inputs) >= LEAST_BYTES:
                self._found = trails.find(seed, inputs)
                self._begun = self._found.chain()
            self._inputs = inputs
        if self._begun is not None:
            return len(self._inputs) - self._begun.ends[-1]
        return len(self._inputs) + self._prefixes.heads.unread_bytes(self._members, self._seed)

    def fold(self) -> None:
        """Hash what is not known, and say what there is to say. In any thread."""
        begun, inputs, members = self._begun, self._inputs, self._members
        if inputs is None:
            return
        if begun is None:
            led = chain.lead(inputs)
            head = self._prefixes.heads.of(members, self._seed, led) if led is not None else None
            if led is None or head is None:
                return
            self._begun = begun = Chain.begun(head, led)
        self._at = begun.ends[-1] if begun.ends else 0
        folded = chain.fold(inputs, self._at, begun.link(len(begun.ends)), MAX_ENTRIES)
        if folded is None or not folded.is_over:
            return
        whole, head = begun.extended(folded), begun.head
        if self._found is not None:
            self._trail = trail_of(self._found, self._seed, inputs, whole)
        head_hash, system_hash, tools_hash = head.told
        self._prefix = Prefix(
            head_hash,
            system_hash,
            tools_hash,
            head.tools_offered,
            len(whole.produced),
            chain.kept(whole.links, whole.produced),
            [*head.marks, *[word for _, word in whole.marks], *asked.retention(members)],
            asked.effort(members),
            asked.settings(members),
            whole.links[-LINK : SHORT - LINK].hex(),
        )

    def _remember(self) -> None:
        """What the next requests of this worker need to know. On the loop."""
        prefix, begun, inputs, prefixes = self._prefix, self._begun, self._inputs, self._prefixes
        if prefix is None or begun is None or inputs is None:
            return
        prefixes.folded_bytes += len(inputs) - self._at
        if self._trail is not None:
            prefixes.trails.keep(self._trail)
        tools_hash = prefix.tools_hash
        if tools_hash is not None and not self._body:
            sample = prefixes.tools_sample(tools_hash, self._members[TOOLS])
            if sample is not None:
                self._prefix = msgspec.structs.replace(prefix, tools_sample=sample)


def _inputs_of(members: Mapping[str, Raw]) -> memoryview:
    raw = members["messages"] if "messages" in members else members.get("input")
    inputs = memoryview(raw) if raw is not None else _NONE
    # Responses: a bare string is one message of the user's.
    bare = len(inputs) > 0 and inputs[0] == _QUOTE
    return memoryview(b'[{"role":"user","content":%b}]' % bytes(inputs)) if bare else inputs
