"""Vectors of what was said, by an alias (SPEC 8.5): in the background, bounded, and in nobody's way.

Theory of operation. What is to get vectors waits in the store (`ledger.meaning`), so nothing is lost or asked twice
over a restart, and several gateways on one store share the work. A thread claims some, the newest first, asks a worker
(`door`) as anybody would ask for embeddings, so that it is routed, tried, priced and recorded, as a request of the kind
`embedding`, and keeps what it got. Whatever fails is told once, and tried again later and later; what was claimed waits
for anybody then. A text that the model refuses, while it takes others, is done with and not found: one of them must not
keep the rest waiting for ever.

The words of a search take the same way, while whoever asks waits for it.
"""

from __future__ import annotations

import array
import base64
import binascii
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from arbiter import clock
from arbiter.chore import Chore
from arbiter.config.snapshot import Embed, Snapshot
from arbiter.control.day import Day
from arbiter.control.door import Answered, NoAnswer
from arbiter.ledger import meaning, search
from arbiter.ledger.audit import new_id
from arbiter.ledger.database import Database
from arbiter.ledger.meaning import Waiting
from arbiter.ledger.redaction import Redactor
from arbiter.ledger.store import Changer, Readable, StoreDown
from arbiter.log import Log
from arbiter.own import Own

KIND = "embedding"
"""`RequestRow.kind` of what is asked here."""
PATH = "/v1/embeddings"
MAX_PIECES = 32  # of one request; vendors take 96 and more, and 16,000 tokens
LOOK_EVERY_S = 2.0
WAIT_S, LONGEST_WAIT_S = 15.0, 900.0
ANSWER_S, SEARCH_ANSWER_S = 60.0, 15.0
ANSWER_BYTES = 16 << 20
STOP_S = 2.0
_REFUSED = frozenset((400, 413, 422))
"""What a model says to a text that it does not take; also what is said of much else."""
_HARMLESS = "hello"

_log = Log(__name__)


class NoVectors(Exception):
    """There are none; the text says why. `is_refusal`: another text may get one."""

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


class Asks(Protocol):
    """`control.door.Door`, as far as it is needed."""

    def post(
        self, path: str, body: bytes, what: Own, *, timeout_s: float, headers: dict[str, str], limit_bytes: int
    ) -> Answered: ...


class _Vector(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Vector]


_decode = msgspec.json.Decoder(_Answer).decode


class _Made(NamedTuple):
    """What goes to the model of one thing that waits."""

    one: Waiting
    pieces: list[str]


class Embedding:
    """The thread that asks, and what a search asks by. Call `start` once, `stop` at the end."""

    def __init__(self, snapshot: Callable[[], Snapshot], store: Readable, changer: Changer, door: Asks) -> None:
        self._snapshot = snapshot
        self._store = store
        self._changer = changer
        self._door = door
        self._who = new_id(clock.now_ms())
        self._day = Day(KIND, store)
        self._redact: tuple[Snapshot, Redactor] | None = None
        self._error: str | None = None
        self._kept = self._refused = 0
        self._wait_s, self._again_at = WAIT_S, 0.0
        self._failed_with: Snapshot | None = None
        self._is_over = False
        self._chore = Chore("embeddings", self.look, every_s=LOOK_EVERY_S, first_s=LOOK_EVERY_S)

    def start(self) -> None:
        self._chore.start()

    def stop(self) -> None:
        self._is_over = True
        self._chore.stop(STOP_S)

    def describe(self) -> dict[str, Any]:
        """What the state tells of vectors. `error` is why there are no more of them at the moment."""
        embed = self._snapshot().search.embed
        on = {"alias": None, "per_day": None} if embed is None else {"alias": embed.alias, "per_day": embed.per_day}
        return {**on, "kept": self._kept, "refused": self._refused, "error": self._error}

    # ------------------------------------------------------------------ for a search

    def asked(self, text: str) -> bytes:
        """The vector of what is looked for. Errors: NoVectors, StoreDown."""
        snapshot = self._snapshot()
        embed = snapshot.search.embed
        if embed is None:
            raise NoVectors("searching by meaning is off")
        words = self._redactor(snapshot)(text)[: meaning.PIECE_CHARS]
        return self._ask(embed, [words], timeout_s=SEARCH_ANSWER_S)[0]

    # ------------------------------------------------------------------ in the thread

    def look(self) -> None:
        """Get vectors for all that waits, or as far as it goes. `start` has a thread do it; tests call it."""
        snapshot = self._snapshot()
        if snapshot is not self._failed_with:
            self._wait_s, self._again_at = WAIT_S, 0.0  # whoever changed something wants to see what comes of it
        if snapshot.search.embed is None or clock.monotonic() < self._again_at:
            return
        told = self._error
        try:
            while not self._is_over and self._round():
                self._went_well()
            self._error = None  # also where what it failed at is gone
        except (NoVectors, StoreDown) as error:
            self._error, self._failed_with = str(error), snapshot
            self._again_at = clock.monotonic() + self._wait_s
            self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s)
            if told is None:
                _log.warn(f"what was said gets no vectors, and will be tried again: {self._error}")

    def _went_well(self) -> None:
        if self._error is not None:
            _log.warn("what was said gets vectors again")
        self._error, self._wait_s = None, WAIT_S

    def _round(self) -> bool:
        """Get vectors for some of what waits; whether there may be more of it. Errors: NoVectors, StoreDown."""
        snapshot = self._snapshot()
        embed, model = snapshot.search.embed, meaning.wanted(snapshot)
        state = self._store.read(meaning.state_of)
        if embed is None or state is None or not meaning.is_open(state, model) or not self._store.read(meaning.waits):
            return False
        if self._day.used() >= embed.per_day:
            raise NoVectors(f"today's {embed.per_day} questions were asked (search.embed.per_day)")
        claim = partial(meaning.claim, who=self._who, now_ms=clock.now_ms(), limit=MAX_PIECES)
        claimed = self._changer.change(claim)
        if not claimed:
            return False
        try:
            self._embed(embed, state, self._texts(snapshot, claimed))
        finally:
            self._changer.change(partial(meaning.release, who=self._who))
        return True

    def _texts(self, snapshot: Snapshot, claimed: Sequence[Waiting]) -> list[_Made]:
        """As many of what was claimed as fit into one request."""
        blocks = self._store.read(partial(meaning.blocks_of, found=claimed))
        redact = self._redactor(snapshot)
        made: list[_Made] = []
        count = 0
        for one in claimed:
            pieces = meaning.pieces(redact(meaning.text_of(one, blocks)))
            count += len(pieces)
            if count > MAX_PIECES:
                break
            made.append(_Made(one, pieces))
        return made

    def _embed(self, embed: Embed, state: dict[str, str], made: Sequence[_Made]) -> None:
        """Get and keep their vectors. Errors: NoVectors, StoreDown."""
        try:
            vectors = self._ask(embed, [piece for one in made for piece in one.pieces])
        except NoVectors as refusal:
            if not refusal.is_refusal:
                raise
            self._ask(embed, [_HARMLESS])  # refused too, it is not the texts'
            self._one_by_one(embed, state, made)
            return
        at = 0
        kept: list[tuple[Waiting, bytes]] = []
        for one, pieces in made:
            kept.append((one, b"".join(vectors[at : at + len(pieces)])))
            at += len(pieces)
        self._keep(state, kept, len(vectors[0]) if vectors else None)

    def _one_by_one(self, embed: Embed, state: dict[str, str], made: Sequence[_Made]) -> None:
        for one, pieces in made:
            try:
                vectors = self._ask(embed, pieces)
            except NoVectors as refusal:
                if not refusal.is_refusal:
                    raise
                self._refused += 1
                _log.warn("a text gets no vector: the model refuses it", what=one.id)
                vectors = []
            self._keep(state, [(one, b"".join(vectors))], len(vectors[0]) if vectors else None)

    def _keep(self, state: dict[str, str], kept: Sequence[tuple[Waiting, bytes]], size: int | None) -> None:
        """Keep vectors of `size` bytes each. Errors: NoVectors where those before them have another."""
        width = "" if size is None else str(size // 4)
        if width and state["width"] and width != state["width"]:
            # The model is another under its old name: no vector of the two can be compared.
            self._changer.change(lambda database: meaning.set_state(database, index=search.CLOSING))
            raise NoVectors(f"vectors have {width} numbers and had {state['width']}: all are made anew")
        state["width"] = state["width"] or width

        def keep(database: Database) -> None:
            if meaning.is_open(meaning.state_of(database), state["model"]):  # else it is no longer wanted
                meaning.keep(database, self._who, kept)
                meaning.set_state(database, width=state["width"])

        self._changer.change(keep)
        self._kept += len(kept)

    def _ask(self, embed: Embed, texts: Sequence[str], *, timeout_s: float = ANSWER_S) -> list[bytes]:
        """The vectors of texts, in their order, all of one size. Errors: NoVectors."""
        if not texts:
            return []
        question: dict[str, Any] = {"model": embed.alias, "input": texts}
        if embed.dimensions is not None:
            question["dimensions"] = embed.dimensions
        mark = self._day.mark("embed")
        try:
            answered = self._door.post(
                PATH,
                msgspec.json.encode(question),
                Own(KIND),
                timeout_s=timeout_s,
                headers={"x-trace-id": mark},
                limit_bytes=ANSWER_BYTES,
            )
        except NoAnswer as error:
            if not error.was_sent:
                self._day.undo(mark)
            raise NoVectors(str(error)) from error
        if answered.status != 200:
            raise NoVectors(
                f"the alias {embed.alias!r} was answered with status {answered.status}; its row says why",
                is_refusal=answered.status in _REFUSED,
            )
        try:
            return _vectors(answered.body, len(texts))
        except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
            raise NoVectors(f"the answer of the alias {embed.alias!r} holds no vectors: {error}") from error

    def _redactor(self, snapshot: Snapshot) -> Redactor:
        if self._redact is None or self._redact[0] is not snapshot:
            self._redact = snapshot, Redactor(snapshot.secrets(), snapshot.storage.capture.redact)
        return self._redact[1]


def _vectors(body: bytes, count: int) -> list[bytes]:
    """The vectors of an answer, of length 1. Errors: msgspec's, binascii's, ValueError."""
    data = _decode(body).data
    if len(data) != count:
        raise ValueError(f"{len(data)} for {count} texts")
    # One without a place of its own stands where it is.
    placed = {place if one.index is None else one.index: one for place, one in enumerate(data)}
    if placed.keys() != set(range(count)):
        raise ValueError(f"their places are not those of {count} texts")
    found = [meaning.packed(_numbers(placed[place].embedding)) for place in range(count)]
    if len({len(one) for one in found}) != 1:
        raise ValueError("they are of several widths")
    return found


def _numbers(written: list[float] | str) -> Sequence[float]:
    if isinstance(written, list):
        return written
    numbers = array.array("f", base64.b64decode(written, validate=True))
    if sys.byteorder == "big":
        numbers.byteswap()
    if not all(map(math.isfinite, numbers)):
        raise ValueError("some of it is no number")
    return numbers
