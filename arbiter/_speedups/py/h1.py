"""Reading HTTP/1.1 responses from whatever slices the network hands over.

Theory of operation
-------------------
One `H1Core` reads the responses of one connection, one after the other; it never does I/O. `begin` readies it for
the answer to the next request; `feed` takes what one read of the socket gave and returns the body bytes in it;
`eof` says that no more will come. Between calls, `state` tells where we are:

    HEAD ──blank line──> BODY ──last byte──> DONE          HEAD ──> DONE for answers without a body
      └── 1xx: back to the status line                     any ──> FAILED, with `fault` saying why

Inside, `_step` is what the next byte belongs to. Everything except body data is read as lines: a line that a read
completes is looked at in place, only an unfinished one is kept (`_tail`). That is the whole incremental machinery:
any cut of a response gives the same result.

    STATUS ─> FIELD* ─> (blank) ─> DATA                                     a length, or the end of the connection
                                └> SIZE ─> DATA ─> CRLF ─> SIZE … ─> TRAILER* ─> (blank)                chunked

`feed` never raises: the bytes before a fault are returned first, whatever the cut, and `state` is then FAILED.
Body bytes are copied once, out of the read buffer; a read that holds several chunks gives one joined `bytes`.

Who frames the body is decided by RFC 9112 section 6.3, strictly. An upstream that leaves room for two readings gets no
third: obsolete line folding, any second Content-Length, a Content-Length that is not plain digits, a transfer
coding other than one `chunked`, whitespace before the colon, NUL or a bare CR, a chunk size line that does not end
in CRLF, framing fields among the trailers are all faults. Where both Transfer-Encoding and Content-Length came,
chunked wins and the connection is not kept. A bare LF may end a line of the head, as RFC 9112 section 2.2 allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

HEAD, BODY, DONE, FAILED = 0, 1, 2, 3

MAX_HEAD_BYTES = 256 << 10
"""All header blocks of one answer, interim ones included."""

MAX_SIZE_LINE_BYTES = 4 << 10
"""One chunk size line with its extensions."""

MAX_TRAILER_BYTES = 16 << 10

MAX_FIELDS = 256
"""Header lines of one answer, interim ones included, and again of its trailers. Providers send some thirty."""

_STATUS, _FIELD, _DATA, _SIZE, _CRLF, _TRAILER, _NOTHING = range(7)

_PREFIX = b"HTTP/1."
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([0-9]{3})(?: [^\x00\n\x0b\x0c\r]*)?")
_NAME = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_NOT_IN_VALUE = re.compile(rb"[\x00\n\x0b\x0c\r]")
_LENGTH = re.compile(rb"[0-9]{1,18}")  # below 2**63, so that both twins count alike
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\x00\n\r]*)?[ \t]*\r\n")


class H1Core:
    """An incremental reader of HTTP/1.1 responses, without I/O.

    `headers` are (lower-case name, value) as latin-1 text, in order. `length` is the announced body length, -1 where
    none was. `received` counts the bytes since `begin`. `answered`: the head is whole, also where the body then
    FAILED. `encoding` is the Content-Encoding, joined by commas, "" where none was. `keep_alive` means something once
    `state` is DONE: the connection may carry another request. `eof_delimited`: only the end of the connection ends the
    body, so a cut cannot be told from an end.
    """

    __slots__ = (
        "_bodyless",
        "_chunked",
        "_closing",
        "_fields",
        "_head_bytes",
        "_left",
        "_step",
        "_tail",
        "answered",
        "encoding",
        "eof_delimited",
        "fault",
        "headers",
        "keep_alive",
        "length",
        "minor",
        "received",
        "state",
        "status",
    )

    state: int
    status: int
    minor: int
    headers: list[tuple[str, str]]
    length: int
    received: int
    answered: bool
    encoding: str
    keep_alive: bool
    eof_delimited: bool
    fault: str

    def __init__(self) -> None:
        self.begin(False)

    def begin(self, bodyless: bool) -> None:
        """Ready for a new answer; `bodyless` if the request was a HEAD."""
        self.state = HEAD
        self.status = 0
        self.minor = 1
        self.headers = []
        self.length = -1
        self.received = 0
        self.answered = False
        self.encoding = ""
        self.keep_alive = False
        self.eof_delimited = False
        self.fault = ""
        self._bodyless = bodyless
        self._chunked = False
        self._closing = False
        self._fields = 0
        self._head_bytes = 0
        self._left = -1
        self._step = _STATUS
        self._tail = bytearray()

    def feed(self, data: bytes | bytearray | memoryview, size: int = -1) -> bytes:
        """Take the first `size` bytes of `data` (-1: all) and return the body bytes among them.

        Shapes: any cut of an answer gives the same bytes and the same end.
        Errors: none are raised; look at `state` and `fault`.
        """
        read = bytes(memoryview(data)[:size] if size >= 0 else data)
        self.received += len(read)
        out: list[bytes] = []
        at, end = 0, len(read)
        while at < end:
            step = self._step
            if step == _DATA:
                take = end - at if self._left < 0 else min(end - at, self._left)
                out.append(read[at : at + take])
                at += take
                if self._left > 0:
                    self._left -= take
                    if self._left == 0:
                        self._data_done()
            elif step == _CRLF:
                # `_left` counts down the two bytes that close a chunk.
                if read[at] != b"\n\r"[self._left - 1]:
                    self._fail("a chunk does not end where it said")
                    break
                at += 1
                self._left -= 1
                if self._left == 0:
                    self._step = _SIZE
            elif step == _NOTHING:
                # More than the answer we asked for: nothing that follows on this connection can be trusted.
                self.keep_alive = False
                break
            else:
                newline = read.find(b"\n", at)
                stop = end if newline < 0 else newline + 1
                self._tail += read[at:stop]
                at = stop
                if not self._line(newline >= 0):
                    break
        return out[0] if len(out) == 1 else b"".join(out)

    def eof(self) -> bool:
        """No more bytes will come. True if the answer is complete: it was before, or only this could end it."""
        if self._step == _DATA and self.eof_delimited and self.state == BODY:
            self._finish()
        elif self.state < DONE:
            self._fail("the connection closed before the answer was complete")
        self.keep_alive = False
        return self.state == DONE

    # ------------------------------------------------------------------------------------------------ one line

    def _line(self, complete: bool) -> bool:
        """Look at the line in `_tail`; False where reading ends."""
        line, step = self._tail, self._step
        if step == _SIZE:
            if len(line) + (not complete) > MAX_SIZE_LINE_BYTES:
                return self._fail("a chunk size line is too long")
        else:
            limit = MAX_TRAILER_BYTES if step == _TRAILER else MAX_HEAD_BYTES
            if self._head_bytes + len(line) + (not complete) > limit:
                return self._fail("the header block is too large")
        if step == _STATUS and line[:7] != _PREFIX[: len(line)]:
            return self._fail("this is not an HTTP/1 answer")
        if not complete:
            return True
        self._tail = bytearray()
        if step == _SIZE:
            return self._size_line(line)
        self._head_bytes += len(line)
        text = bytes(line[:-2] if line.endswith(b"\r\n") else line[:-1])
        if step == _STATUS:
            return self._status_line(text)
        if text:
            return self._field(text)
        return self._finish() if step == _TRAILER else self._head_done()

    def _status_line(self, line: bytes) -> bool:
        found = _STATUS_LINE.fullmatch(line)
        if found is None or found[2] < b"100":
            return self._fail("the status line is malformed")
        self.minor = int(found[1])
        self.status = int(found[2])
        self._step = _FIELD
        return True

    def _field(self, line: bytes) -> bool:
        if self._fields == MAX_FIELDS:
            return self._fail(f"it has more than {MAX_FIELDS} header lines")
        self._fields += 1
        name, colon, value = line.partition(b":")
        if not colon or _NAME.fullmatch(name) is None or _NOT_IN_VALUE.search(value):
            return self._fail("a header line is malformed")
        name = name.lower()
        value = value.strip(b" \t")
        if name == b"content-length":
            if self._step == _TRAILER or self.length >= 0 or _LENGTH.fullmatch(value) is None:
                return self._fail("the Content-Length is not one plain number")
            self.length = int(value)
        elif name == b"transfer-encoding":
            if self._step == _TRAILER or self._chunked or value.lower() != b"chunked":
                return self._fail("the Transfer-Encoding is not just chunked")
            self._chunked = True
        if self._step == _TRAILER:
            return True  # nobody asks for them
        if name == b"connection":
            self._closing = self._closing or b"close" in [token.strip(b" \t") for token in value.lower().split(b",")]
        elif name == b"content-encoding":
            text = value.decode("latin-1")
            self.encoding = f"{self.encoding},{text}" if self.encoding else text
        self.headers.append((name.decode("ascii"), value.decode("latin-1")))
        return True

    def _size_line(self, line: bytearray) -> bool:
        found = _SIZE_LINE.fullmatch(line)
        if found is None:
            return self._fail("a chunk size line is malformed")
        self._left = int(found[1], 16)
        if self._left:
            self._step = _DATA
        else:
            self._step = _TRAILER
            self._fields = 0
            self._head_bytes = 0
        return True

    # --------------------------------------------------------------------------------------------- turning points

    def _head_done(self) -> bool:
        status = self.status
        if status < 200:
            if status == 101:
                return self._fail("the upstream switched protocols unasked")
            # An interim answer: the real one follows. Its bytes still count towards the bound.
            self._step = _STATUS
            self.headers = []
            self.length = -1
            self.encoding = ""
            self._chunked = False
            self._closing = False
            return True
        self.keep_alive = self.minor > 0 and not self._closing and not (self._chunked and self.length >= 0)
        self.state = BODY
        self.answered = True
        if self._bodyless or status in (204, 304):
            if status == 204 and (self._chunked or self.length > 0):
                self.keep_alive = False  # it may mean to send one all the same
            return self._finish()
        if self._chunked:
            self._step = _SIZE
        elif self.length >= 0:
            self._left = self.length
            self._step = _DATA
            if self.length == 0:
                return self._finish()
        else:
            self._left = -1
            self._step = _DATA
            self.eof_delimited = True
            self.keep_alive = False
        return True

    def _data_done(self) -> None:
        if self._chunked:
            self._step = _CRLF
            self._left = 2
        else:
            self._finish()

    def _finish(self) -> bool:
        self.state = DONE
        self._step = _NOTHING
        return True

    def _fail(self, fault: str) -> bool:
        self.state = FAILED
        self.fault = fault
        self.keep_alive = False
        self._step = _NOTHING
        self._tail = bytearray()
        return False


def fields(items: Iterable[tuple[str, str]]) -> tuple[dict[str, str], int]:
    """Header fields by their names, repeated ones joined with a comma as HTTP allows, and how many bytes all of them
    take as RFC 9112 writes them."""
    found: dict[str, str] = {}
    size = 0
    for name, value in items:
        size += len(name) + len(value) + 4
        found[name] = value if name not in found else f"{found[name]}, {value}"
    return found, size


def chosen(
    pairs: Iterable[tuple[str, str]], decided: dict[str, bool], decide: Callable[[str], bool]
) -> tuple[list[tuple[str, str]], int]:
    """Those header fields whose names were `decided` for, and how many bytes these take as RFC 9112 writes them; of a
    name that is not among them `decide` is asked."""
    found = []
    size = 0
    for pair in pairs:
        name, value = pair
        is_chosen = decided.get(name)
        if decide(name) if is_chosen is None else is_chosen:
            found.append(pair)
            size += len(name) + len(value) + 4
    return found, size
