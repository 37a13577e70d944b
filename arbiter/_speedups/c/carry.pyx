# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The carrier, compiled. Twin of `arbiter/_speedups/py/carry.py`, which says what is moved.

`next` stays in C from one handed-out event to the next: a plain delta is framed, recognised in one pass and copied
between the two halves of its mould; no object is made for it.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from arbiter._speedups.c cimport plain as pl
from arbiter._speedups.c.jsonscan cimport called
from arbiter._speedups.c.plain cimport Plain, begin
from arbiter._speedups.c.plain_chat cimport Head, chunk, remember
from arbiter._speedups.c.plain_messages cimport DELTA, block_event
from arbiter._speedups.c.sse cimport Frame, SSEReader, framed

from arbiter._speedups.py.carry import MAX_MOVED_BYTES, Mould, is_event
from arbiter._speedups.py.sse import LIMIT_BYTES

cdef Py_ssize_t MOVED_BYTES = MAX_MOVED_BYTES
cdef Py_ssize_t KEEP_BYTES = 64 << 10  # a larger buffer goes back once it was taken


cdef enum:  # kinds; the place of each one's mould
    TEXT
    REASONING_CONTENT
    REASONING
    ARGUMENTS
    KINDS
    NONE


cdef struct Halves:
    # Lifetimes: of the tuples in `_moulds`.
    const char* before
    Py_ssize_t before_len
    const char* behind
    Py_ssize_t behind_len


cdef struct Buffer:
    char* at
    Py_ssize_t size, room


cdef char* grow(Buffer* buffer, Py_ssize_t size) except NULL:
    """Where the next `size` bytes of it go."""
    cdef Py_ssize_t need = buffer.size + size
    cdef char* grown
    if need > buffer.room:
        if need < 2 * buffer.room:
            need = 2 * buffer.room
        grown = <char*>realloc(buffer.at, need)
        if grown == NULL:
            raise MemoryError
        buffer.at, buffer.room = grown, need
    return buffer.at + buffer.size


cdef bytes emptied(Buffer* buffer):
    if buffer.size == 0:
        return b""
    cdef bytes held = PyBytes_FromStringAndSize(buffer.at, buffer.size)
    buffer.size = 0
    if buffer.room > KEEP_BYTES:
        free(buffer.at)
        buffer.at, buffer.room = NULL, 0
    return held


cdef class _Carrier(SSEReader):
    """See the twin for the contract."""

    cdef readonly long long events, text_bytes, thinking_bytes, argument_bytes
    cdef Buffer _moved, _kept
    cdef tuple _moulds
    cdef Halves[<int>KINDS] _halves
    cdef bint _is_aimed, _keep
    cdef long long _place

    def __dealloc__(self):
        free(self._moved.at)
        free(self._kept.at)

    def aim(self, text, reasoning_content, reasoning, arguments, long long place, bint keep):
        """Say what is moved from here on: the kinds that have a mould."""
        cdef tuple moulds = (text, reasoning_content, reasoning, arguments)
        cdef Halves[<int>KINDS] all
        cdef bytes before, behind
        cdef bint is_aimed = False
        cdef int kind
        for kind in range(KINDS):
            all[kind].before = NULL
            if moulds[kind] is not None:
                before, behind = <tuple?>moulds[kind]
                all[kind].before, all[kind].before_len = PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before)
                all[kind].behind, all[kind].behind_len = PyBytes_AS_STRING(behind), PyBytes_GET_SIZE(behind)
                is_aimed = True
        self._moulds, self._halves, self._is_aimed, self._place, self._keep = moulds, all, is_aimed, place, keep

    def next(self):
        """Return the next event that is not moved, as (event name or b"", joined data); None where none is complete."""
        cdef Frame frame
        cdef tuple event
        while self._next(&frame):
            if not self._is_aimed or frame.data_len > MOVED_BYTES or not self._is_moved(&frame):
                event = framed(&frame)
                self.events += is_event(event[0], event[1])
                return event
            self.events += 1
        return None

    def take(self):
        """Return what was moved since the last take."""
        return emptied(&self._moved)

    def kept(self):
        """Return the arguments kept since the last call, joined: the inside of one JSON string."""
        return emptied(&self._kept)

    cdef bint _is_moved(self, Frame* frame) except -1:
        raise NotImplementedError

    cdef bint _move(self, int kind, Plain* plain) except -1:
        """Move the string that was said, if its kind has a mould."""
        cdef Halves* mould = &self._halves[kind]
        cdef Py_ssize_t quoted = plain.raw + 2
        cdef Py_ssize_t size = mould.before_len + quoted + mould.behind_len
        cdef char* to
        if mould.before == NULL or (kind == ARGUMENTS and plain.index != self._place):
            return False
        to = grow(&self._moved, size)
        memcpy(to, mould.before, mould.before_len)
        memcpy(to + mould.before_len, plain.at - 1, quoted)
        memcpy(to + mould.before_len + quoted, mould.behind, mould.behind_len)
        if kind == ARGUMENTS and self._keep:
            memcpy(grow(&self._kept, plain.raw), plain.at, plain.raw)
            self._kept.size += plain.raw
        self._moved.size += size
        self.text_bytes += plain.text
        self.thinking_bytes += plain.reasoning
        self.argument_bytes += plain.arguments
        return True


@cython.final
cdef class ChatCarrier(_Carrier):
    """Carry the deltas of a chat-completions stream. See the twin for the contract."""

    cdef Head _head

    def __dealloc__(self):
        free(self._head.at)

    cdef bint _is_moved(self, Frame* frame) except -1:
        cdef Plain plain
        cdef int kind
        if frame.name_len and not (frame.name_len == 7 and memcmp(frame.name, b"message", 7) == 0):
            return False
        begin(&plain)
        # No more than its strings matters of a chunk here: what its head says the reader knows from the first one.
        if not chunk(frame.data, frame.data + frame.data_len, &plain, &self._head, True, True, False):
            return False
        if self._head.read:
            remember(&self._head, frame.data)
        if plain.lone or plain.logprobs or plain.usage != NULL or plain.entries != 1 or plain.choices != 1:
            return False
        if plain.strings == 0:
            return plain.fragments == 0
        if plain.said == pl.CONTENT:
            kind = TEXT
        elif plain.said == pl.REASONING_CONTENT:
            kind = REASONING_CONTENT
        elif plain.said == pl.REASONING:
            kind = REASONING
        elif plain.said == pl.ARGUMENTS:
            kind = ARGUMENTS
        else:
            return False
        return plain.strings == 1 and plain.fragments == (kind == ARGUMENTS) and self._move(kind, &plain)


@cython.final
cdef class MessagesCarrier(_Carrier):
    """Carry the deltas of an Anthropic messages stream. See the twin for the contract."""

    cdef bint _is_moved(self, Frame* frame) except -1:
        cdef Plain plain
        cdef int kind
        if frame.name_len and not (frame.name_len == 19 and memcmp(frame.name, b"content_block_delta", 19) == 0):
            return False
        begin(&plain)
        if block_event(frame.data, frame.data + frame.data_len, &plain) != DELTA:
            return False
        if plain.lone or plain.strings != 1 or plain.index < 0:
            return False
        if plain.said == pl.TEXT and called(&plain.type, b"text_delta", 10):
            kind = TEXT
        elif plain.said == pl.THINKING and called(&plain.type, b"thinking_delta", 14):
            kind = REASONING_CONTENT
        elif plain.said == pl.PARTIAL_JSON and called(&plain.type, b"input_json_delta", 16):
            kind = ARGUMENTS
        else:
            return False
        return self._move(kind, &plain)
