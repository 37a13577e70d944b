"""Server-sent events, incrementally: bytes in, events out, whatever the cuts.

A *block* is a run of lines up to a blank line; a block with data is an event. Comment lines between blocks belong to no
block. All that is kept from one read to the next is the unfinished tail: the open block, or the unfinished line.

A CR may be the first half of a CRLF, so one at the very end of a read ends its line only when the next byte is known,
and both halves belong to the same line end. One case must not wait, or a stream of bare CRs would run one event late:
a blank line after a line that ended in a bare CR is over at its CR. Should an LF follow after all, it belongs to no
event.

Source: WHATWG HTML, section 9.2.6; SPEC 2.10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from arbiter.errors import Garbled

LIMIT_BYTES = 16 << 20  # SPEC 2.10: real agents send one-line events of several MB (images in tool results)

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")

Event = tuple[bytes, bytes]
"""(name or b"", joined data)."""


class Frame(NamedTuple):
    """One event and where its block stands in the stream: `start` of its first line, `end` past its blank line."""

    name: bytes
    data: bytes
    start: int
    end: int


class Framer:
    """The incremental framer that the reader and the taps share.

    `feed` and `finish` never raise: a fault stays in `fault`, after the frames that came before it, and nothing is read
    from then on.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self.limit = limit
        self.offset = 0  # bytes fed
        self.boundary = 0  # everything before it is complete
        self.fault: Garbled | None = None
        self._held = bytearray()  # the bytes from `boundary` on
        # Where reading stands, counted from `boundary`: what was read of an open block is not read again.
        self._at = 0  # the line in hand
        self._searched = 0  # it does not end before here
        self._is_open = False  # a block; it begins at `boundary`
        self._name = b""
        self._data: list[bytes] = []
        self._bare = False  # the open block's last line ended in a bare CR
        self._at_start = True
        self._skip_lf = False
        self._closed = False

    def feed(self, data: bytes) -> list[Frame]:
        """Return the events completed by `data`, in order."""
        if self._closed and data:
            raise ValueError("the stream was finished")
        self.offset += len(data)
        self._held += data
        return self._scan(last=False)

    def finish(self) -> list[Frame]:
        """Return the last event, if the stream ended without its blank line."""
        self._closed = True
        return self._scan(last=True)

    def _scan(self, *, last: bool) -> list[Frame]:
        frames: list[Frame] = []
        if self.fault is not None:
            return frames
        held, base, size = self._held, self.boundary, len(self._held)
        keep, at = 0, self._at  # the open block or line begins at `keep`

        if self._at_start and (last or size >= 3 or not _BOM.startswith(held)):
            self._at_start = False
            if held.startswith(_BOM):
                keep = at = 3

        while at < size and not self._at_start:
            if self._skip_lf:
                self._skip_lf = False
                if held[at] == 10:
                    keep = at = at + 1
                    continue
            ended = _LINE_END.search(held, max(at, self._searched))
            if ended is not None:
                stop, after = ended.span()
                blank = self._is_open and stop == at
                if after == size and ended[0] == b"\r" and not last:
                    if not (blank and self._bare):
                        break
                    self._skip_lf = True
                elif blank and self._bare and ended[0] == b"\r\n":
                    after, self._skip_lf = stop + 1, True
            elif last:
                stop = after = size
                blank = False
            else:
                self._searched = size
                break

            if after - keep > self.limit:
                break  # judged below
            line = bytes(held[at:stop])
            at = after
            if blank:
                if not self._dispatch(frames, keep, at):
                    break
                keep = at
            elif not line or (line[:1] == b":" and not self._is_open):
                keep = at
            else:
                if line[:1] != b":":
                    self._is_open = True
                    field, _, value = line.partition(b":")
                    if field == b"data":
                        self._data.append(value.removeprefix(b" "))
                    elif field == b"event":
                        self._name = value.removeprefix(b" ")
                self._bare = ended is not None and ended[0] == b"\r"

        if self.fault is None and size - keep > self.limit:
            self.fault = Garbled(f"the upstream sent an event of over {self.limit} bytes")
        if last and self.fault is None:
            if self._is_open:
                self._dispatch(frames, keep, size)
            if self.fault is None:
                keep = size
        self.boundary = base + keep
        if self.fault is not None:
            held.clear()
        elif keep:
            del held[:keep]
        self._at, self._searched = at - keep, max(0, self._searched - keep)
        return frames

    def _dispatch(self, frames: list[Frame], start: int, end: int) -> bool:
        """Close the open block, and report it if it is an event; False where it is none of text."""
        name, joined = self._name, b"\n".join(self._data)
        self._is_open, self._name, self._data, self._bare = False, b"", [], False
        if joined:
            try:
                self._held[start:end].decode()
            except UnicodeDecodeError:
                self.fault = Garbled("the upstream sent an event that is not UTF-8")
                return False
            frames.append(Frame(name, joined, self.boundary + start, self.boundary + end))
        return True


class SSEReader:
    """Read a stream of server-sent events, one by one: `open` what a read brought, then `next` until it gives None.

    Errors: Garbled for an event over `limit` bytes or one that is not UTF-8. Events that came before it are handed out
    first; then `next` raises, and every `next` after that.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._framer = Framer(limit)
        self._frames: Iterator[Frame] = iter(())

    def open(self, data: bytes) -> None:
        """Take what a read brought. What was not asked for of the last one is passed over.

        Shapes: any cut of the stream gives the same events; only an unfinished tail is kept.
        """
        self._frames = iter(self._framer.feed(data))

    def end(self) -> None:
        """The stream's bytes end here: `next` gives the last event, if it came without its blank line."""
        self._frames = iter(self._framer.finish())

    def next(self) -> Event | None:
        """Return (event name or b"", joined data) of the next event; None where no other is complete."""
        for frame in self._frames:
            return frame.name, frame.data
        if self._framer.fault is not None:
            raise self._framer.fault
        return None
