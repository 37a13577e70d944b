"""The worker's end of content capture: what was asked and answered, on its way to the store (SPEC 7.8).

Theory of operation. While a request runs nothing is done but to hold on to what passes: the opened body, and the
pieces that the client is sent (`attempt.client_end`). After its last byte all that goes into a queue, and a thread
makes blocks of it, takes the secrets out, compresses what is new, and writes one record to LMDB, from where control
stores it. What this worker wrote lately it knows by a hash of the raw bytes: of a conversation that goes on, only the
new messages are decoded at all.

Capture never costs a request anything but that: at the bound of the queue, at that of the environment, and when LMDB
cannot be written, the content is dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import lmdb
import msgspec
import zstandard
from xxhash import xxh3_128_digest

from arbiter import clock
from arbiter.config.snapshot import Capture as Settings
from arbiter.ledger import blocks
from arbiter.ledger.blocks import LEFT_OUT, Block, Members
from arbiter.ledger.blocks_answer import message_of
from arbiter.ledger.capture_file import Captured, CaptureFile, Full, New, Use
from arbiter.ledger.redaction import Redactor
from arbiter.wire.headers import Pairs

QUEUE_BYTES, QUEUE_REQUESTS = 64 << 20, 512
KNOWN = 50_000  # blocks a worker remembers to have written: some 10 MiB
KNOWN_S = 3600.0  # and for how long: a store that was replaced has everything again after this
LEVEL = 3  # zstd's own default
STOP_S = 5.0
RETRY_S = 1.0
TOO_LONG = b'{"type":"withheld","was":"answer","why":"too long"}'

log = logging.getLogger("arbiter.capture")


class Heard(msgspec.Struct):
    """What passed of one request."""

    request_id: str
    at_ms: int
    format: str
    members: Members | None  # of the request as the client sent it; None where none of them is to be kept
    pieces: list[bytes]  # of the answer as the client got it
    is_stream: bool
    headers_in: Mapping[str, str]
    headers_out: Pairs
    size: int  # of all this, about
    left_out: int = 0  # bytes of the answer that were not held, behind its pieces
    secrets: tuple[str, ...] = ()  # the caller's own


class Capture:
    """One worker's capture, as one configuration wants it. Create it in the process that uses it.

    `dropped` counts the requests whose content could not be kept.
    """

    def __init__(self, state_dir: Path, settings: Settings, secrets: frozenset[str], event_bytes: int) -> None:
        self.settings = settings
        self._state_dir = state_dir
        self._event_bytes = event_bytes
        self._secrets = secrets
        self._redact = self._redact_all = Redactor(secrets, settings.redact)
        self._known = Known(settings.ttl_s)
        self._queue: queue.SimpleQueue[Heard | None] = queue.SimpleQueue()
        self._put_bytes = self._refused = 0  # written on the loop only
        self._done_bytes = self._lost = 0  # in the thread only
        self._file: CaptureFile | None = None
        self._retry_at = 0.0
        self._is_broken = False
        self._compress = zstandard.ZstdCompressor(level=LEVEL).compress
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._refused + self._lost

    def take(self, heard: Heard) -> None:
        """A request is over. Never waits, never raises."""
        waiting = self._put_bytes - self._done_bytes
        if self._queue.qsize() >= QUEUE_REQUESTS or (waiting and waiting + heard.size > QUEUE_BYTES):
            self._refused += 1
            return
        self._put_bytes += heard.size
        self._queue.put(heard)

    def finish(self) -> None:
        """Nothing more comes: the thread writes what waits, and ends. Does not wait for it."""
        self._queue.put(None)

    def close(self) -> None:
        """Finish, and wait for that as long as STOP_S."""
        self.finish()
        self._thread.join(STOP_S)

    # ------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while (heard := self._queue.get()) is not None:
            try:
                self._write(heard)
            except Full:
                self._lost += 1
            except (lmdb.Error, OSError) as error:
                self._lost += 1
                self._broken(error)
            except Exception as bug:  # a thread that ends is a capture that ends, and nobody would notice
                self._lost += 1
                log.error("content could not be captured: %s: %s", type(bug).__name__, bug)
            finally:
                self._done_bytes += heard.size
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, heard: Heard) -> None:
        if self._file is None:
            if clock.monotonic() < self._retry_at:
                raise Full
            self._file = CaptureFile(self._state_dir, self.settings.max)
        captured = Captured(heard.request_id, heard.at_ms)
        self._redact = self._redact_all
        if heard.secrets:
            self._redact = Redactor(self._secrets.union(heard.secrets), self.settings.redact)
        fresh: dict[bytes, Block] = {}
        if self.settings.content and heard.members is not None:
            self._take_request(captured, heard.members, fresh)
            self._take_answer(captured, heard, fresh)
        if self.settings.headers:
            captured.headers["in"] = self._redact.headers(heard.headers_in)
            if heard.headers_out:
                captured.headers["out"] = self._redact.headers(dict(heard.headers_out))
        if captured.uses or captured.headers:
            self._file.put(captured)
            self._known.add(fresh)
        if self._is_broken:
            self._is_broken = False
            log.warning("content can be written again")

    def _take_request(self, captured: Captured, members: Members, fresh: dict[bytes, Block]) -> None:
        for position, (kind, raw) in enumerate(blocks.split(members)):
            with contextlib.suppress(msgspec.MsgspecError, RecursionError):
                self._add(captured, "in", position, kind, raw, fresh)

    def _take_answer(self, captured: Captured, heard: Heard, fresh: dict[bytes, Block]) -> None:
        said = message_of(heard.format, heard.pieces, is_stream=heard.is_stream, limit=self._event_bytes)
        if said is None and heard.left_out:
            said = TOO_LONG
        if said is not None:
            self._add(captured, "out", 0, "answer", said, fresh)
            if heard.left_out:
                answer = captured.uses[-1]
                answer.marks = {**(answer.marks or {}), LEFT_OUT: heard.left_out}

    def _add(
        self, captured: Captured, direction: str, position: int, kind: str, raw: bytes, fresh: dict[bytes, Block]
    ) -> None:
        key = xxh3_128_digest(raw)
        known = self._known.get(key) or fresh.get(key)
        if known is None:
            known = blocks.made(raw, self._redact)
            if not any(new.id == known.id for new in captured.blocks):
                media = list(known.media) or None
                text = self._compress(known.text)
                captured.blocks.append(New(known.id, kind, media, len(known.text), text))
            known = fresh[key] = Block(known.id, b"", (), known.marks)
        captured.uses.append(Use(direction, position, kind, known.id, known.marks))

    def _broken(self, error: Exception) -> None:
        if not self._is_broken:
            log.error("content cannot be written, and is dropped: %s", error)
        self._is_broken = True
        self._retry_at = clock.monotonic() + RETRY_S
        if self._file is not None:
            self._file.close()
            self._file = None


class Known:
    """The blocks that were written lately, by a hash of the raw bytes they were made of.

    They are written anew long before control could sweep them: what control has seen used it keeps for `ttl_s` more,
    or, where rows are let go sooner, for twice `KNOWN_S` at least.
    """

    def __init__(self, ttl_s: float) -> None:
        self._age_s = min(KNOWN_S, ttl_s / 2) if ttl_s else KNOWN_S
        self._blocks: OrderedDict[bytes, tuple[float, Block]] = OrderedDict()

    def get(self, key: bytes) -> Block | None:
        found = self._blocks.get(key)
        if found is None or clock.monotonic() - found[0] > self._age_s:
            return None
        self._blocks.move_to_end(key)
        return found[1]

    def add(self, fresh: Mapping[bytes, Block]) -> None:
        now = clock.monotonic()
        for key, block in fresh.items():
            self._blocks[key] = (now, block)
            self._blocks.move_to_end(key)
        while len(self._blocks) > KNOWN:
            self._blocks.popitem(last=False)
