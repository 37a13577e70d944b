# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Server-sent events, compiled. Twin of `arbiter/_speedups/py/sse.py`, where the rules are written down.

A read that begins at a block's start is scanned where it lies; only an unfinished tail is copied, and scanning goes on
where it stopped. Lines are found with memchr, whose answers are remembered, so every byte is looked at a bounded number
of times however the stream is cut.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove

from arbiter._speedups.c.utf8 cimport malformed

from arbiter.errors import Garbled

LIMIT_BYTES = 16 << 20

cdef Py_ssize_t KEEP_BYTES = 64 << 10  # a larger buffer goes back once the large event has passed


cdef inline Py_ssize_t _find(const char* window, Py_ssize_t at, Py_ssize_t size, int byte) noexcept nogil:
    cdef const char* found
    if at >= size:
        return size
    found = <const char*>memchr(window + at, byte, size - at)
    return size if found == NULL else found - window


cdef tuple framed(Frame* frame):
    """The name and the data of an event, as bytes of their own."""
    return (
        PyBytes_FromStringAndSize(frame.name, frame.name_len) if frame.name_len else b"",
        PyBytes_FromStringAndSize(frame.data, frame.data_len),
    )


@cython.final
cdef class Framer:
    """Use: `open(bytes)`, then `next` until it gives 0, then `close()`, whatever happened in between.

    Lifetimes: the window is the caller's bytes or our buffer, and is gone with `close`.
    """

    def __cinit__(self, long long limit=LIMIT_BYTES):
        self.limit = limit
        self.start = -1
        self.at_start = True

    def __dealloc__(self):
        free(self.held)
        free(self.joined)

    cdef int open(self, const char* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t old = self.held_len
        cdef Py_ssize_t need = old + size
        cdef Py_ssize_t cap
        cdef char* grown
        if self.closed and size:
            raise ValueError("the stream was finished")
        self.offset += size
        if self.fault is not None:
            return 0
        if old == 0:
            # Nothing is open between two events, so all positions are fresh.
            self.window, self.size = data, size
            self.lf = self.cr = -1
            return 0
        if need > self.held_cap:
            cap = need if need > 2 * self.held_cap else 2 * self.held_cap
            grown = <char*>realloc(self.held, cap)
            if grown == NULL:
                raise MemoryError
            self.held, self.held_cap = grown, cap
        memcpy(self.held + old, data, size)
        self.held_len = need
        self.window, self.size = self.held, need
        # A search that had come to the end goes on from there.
        if self.lf == old:
            self.lf = _find(self.held, old, need, 10)
        if self.cr == old:
            self.cr = _find(self.held, old, need, 13)
        return 0

    cdef int next(self, Frame* frame) except -1:
        """Find the next event: 1 and the frame, or 0 when the window holds no other."""
        cdef const char* w = self.window
        cdef Py_ssize_t size = self.size
        cdef Py_ssize_t stop, after, line, value, length
        cdef bint is_cr, is_bare, blank, ended

        if self.fault is not None:
            return 0
        if self.at_start:
            if size < 3 and not self.last and memcmp(w, b"\xef\xbb\xbf", size) == 0:
                return 0
            self.at_start = False
            if size >= 3 and memcmp(w, b"\xef\xbb\xbf", 3) == 0:
                self._keep(3)
                self.at = 3

        while self.at < size:
            if self.skip_lf:
                self.skip_lf = False
                if w[self.at] == 10:
                    self.at += 1
                    self._keep(self.at)
                    continue
            line = self.at
            if self.lf < line:
                self.lf = _find(w, line, size, 10)
            if self.cr < line:
                self.cr = _find(w, line, size, 13)
            is_cr = self.cr < self.lf
            stop = self.cr if is_cr else self.lf
            blank = self.start >= 0 and stop == line
            ended = stop < size
            is_bare = False
            if ended:
                after = stop + 1
                if is_cr:
                    if after == size and not self.last:
                        if not (blank and self.bare):
                            break
                        self.skip_lf = True
                    elif after < size and w[after] == 10:
                        if blank and self.bare:
                            self.skip_lf = True
                        else:
                            after += 1
                    is_bare = after == stop + 1
            elif self.last:
                after = size
                blank = False
            else:
                break

            if after - self.keep > self.limit:
                break  # judged in close()
            self.at = after
            if blank:
                if self.data_lines > 1 or self.data_len > 0:
                    if self._dispatch(frame, after):
                        return 1
                    if self.fault is not None:
                        return 0
                self._shut(after)
            elif stop == line or (w[line] == 58 and self.start < 0):
                self._keep(after)
            else:
                length = stop - line
                if w[line] != 58:
                    if self.start < 0:
                        self.start = self.keep
                    if length >= 4 and memcmp(w + line, b"data", 4) == 0 and (length == 4 or w[line + 4] == 58):
                        value = line + 5
                        if value < stop and w[value] == 32:
                            value += 1
                        if self.data_lines == 0:
                            self.data_at = value
                            self.data_len = stop - value if value < stop else 0
                        self.data_lines += 1
                    elif length >= 5 and memcmp(w + line, b"event", 5) == 0 and (length == 5 or w[line + 5] == 58):
                        value = line + 6
                        if value < stop and w[value] == 32:
                            value += 1
                        self.name_at = value
                        self.name_len = stop - value if value < stop else 0
                self.bare = is_bare

        if self.last and self.start >= 0 and self.at >= size and size - self.keep <= self.limit:
            if self.data_lines > 1 or self.data_len > 0:
                if self._dispatch(frame, size):
                    return 1
                if self.fault is not None:
                    return 0
            self._shut(size)
        return 0

    cdef void _keep(self, Py_ssize_t at) noexcept:
        self.boundary += at - self.keep
        self.keep = at

    cdef void _shut(self, Py_ssize_t at) noexcept:
        self.start = -1
        self.name_len = self.data_len = self.data_lines = 0
        self.bare = False
        self._keep(at)

    cdef int _dispatch(self, Frame* frame, Py_ssize_t after) except -1:
        """Fill the frame and close the block: 1, or 0 with a fault or where the data is empty after all."""
        cdef const char* w = self.window
        if self.data_lines == 1:
            frame.data, frame.data_len = w + self.data_at, self.data_len
        else:
            self._join(frame, after)
        if malformed(<const unsigned char*>w + self.start, <const unsigned char*>w + after) != NULL:
            self.fault = Garbled("the upstream sent an event that is not UTF-8")
            return 0
        frame.name, frame.name_len = w + self.name_at, self.name_len
        frame.start = self.boundary + self.start - self.keep
        frame.end = frame.start + after - self.start
        self._shut(after)
        return 1

    cdef int _join(self, Frame* frame, Py_ssize_t stop) except -1:
        """Join the data lines of the block with LF. Rare, so it reads the block's lines once more."""
        cdef const char* w = self.window
        cdef Py_ssize_t need = stop - self.start
        cdef Py_ssize_t at = self.start
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t end, value
        cdef char* grown
        cdef bint first = True
        if need > self.joined_cap:
            grown = <char*>realloc(self.joined, need)
            if grown == NULL:
                raise MemoryError
            self.joined, self.joined_cap = grown, need
        while at < stop:
            end = at
            while end < stop and w[end] != 10 and w[end] != 13:
                end += 1
            if end - at >= 4 and memcmp(w + at, b"data", 4) == 0 and (end - at == 4 or w[at + 4] == 58):
                value = at + 5
                if value < end and w[value] == 32:
                    value += 1
                if not first:
                    self.joined[size] = 10
                    size += 1
                first = False
                if value < end:
                    memcpy(self.joined + size, w + value, end - value)
                    size += end - value
            # The LF of a CRLF gives an empty line here, which holds no data.
            at = end + 1
        frame.data, frame.data_len = self.joined, size
        return 0

    cdef int _too_long(self) except -1:
        self.fault = Garbled(f"the upstream sent an event of over {self.limit} bytes")
        return 0

    cdef int close(self) except -1:
        """Put the unfinished tail away and shift all positions to it."""
        cdef Py_ssize_t keep = self.keep
        cdef Py_ssize_t tail = self.size - keep
        cdef char* grown
        if self.fault is None and tail > self.limit:
            self._too_long()
        if self.fault is None and self.last:
            self._keep(self.size)
        if self.fault is not None or self.last:
            self.closed = self.last
            free(self.held)
            free(self.joined)
            self.held = self.joined = NULL
            self.held_len = self.held_cap = self.joined_cap = 0
            self.keep = self.at = self.size = 0
            self.start = -1
            return 0
        if self.joined_cap > KEEP_BYTES:
            free(self.joined)
            self.joined, self.joined_cap = NULL, 0
        if tail == 0 and self.held_cap <= KEEP_BYTES:
            self.held_len = 0
        elif self.window == self.held:
            if keep:
                memmove(self.held, self.held + keep, tail)
            # Only behind an event: while one grows by small pieces, its room must grow by more than they do.
            if keep and self.held_cap > KEEP_BYTES and tail <= KEEP_BYTES:
                grown = <char*>realloc(self.held, tail if tail else 1)
                if grown != NULL:
                    self.held, self.held_cap = grown, tail if tail else 1
            self.held_len = tail
        else:
            if tail > self.held_cap:
                grown = <char*>realloc(self.held, tail)
                if grown == NULL:
                    raise MemoryError
                self.held, self.held_cap = grown, tail
            memcpy(self.held, self.window + keep, tail)
            self.held_len = tail
        self.lf -= keep
        self.cr -= keep
        self.at -= keep
        self.data_at -= keep
        self.name_at -= keep
        if self.start >= 0:
            self.start -= keep
        self.keep = 0
        self.window = NULL
        return 0


cdef class SSEReader:
    """Read a stream of server-sent events, one by one. See the twin for the contract.

    Lifetimes: what was opened is held until its last event was asked for, or the next read is opened.
    """

    def __cinit__(self, long long limit=LIMIT_BYTES):
        self._framer = Framer(limit)

    def open(self, bytes data not None):
        """Take what a read brought. What was not asked for of the last one is passed over."""
        self._open(data)

    def end(self):
        """The stream's bytes end here: `next` gives the last event, if it came without its blank line."""
        self._framer.last = True
        self._open(b"")

    def next(self):
        """Return (event name or b"", joined data) of the next event; None where no other is complete."""
        cdef Frame frame
        return framed(&frame) if self._next(&frame) else None

    cdef int _open(self, bytes data) except -1:
        cdef Frame frame
        if self._data is not None:
            while self._framer.next(&frame):
                pass
            self._close()
        self._framer.open(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self._data = data
        return 0

    cdef int _close(self) except -1:
        self._framer.close()
        self._data = None
        return 0

    cdef int _next(self, Frame* frame) except -1:
        if self._data is not None:
            if self._framer.next(frame):
                return 1
            self._close()
        if self._framer.fault is not None:
            raise self._framer.fault
        return 0
