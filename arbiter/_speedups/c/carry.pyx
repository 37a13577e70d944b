# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The carrier, compiled. Twin of `arbiter/_speedups/py/carry.py`, which says what is moved.

`next` stays in C from one handed-out event to the next: a plain delta is framed, recognised in one pass and copied
between the two halves of its mould; no object is made for it. And mostly that pass need not be run: the deltas of a
stream differ only in their strings. An event with the very bytes of the last recognised one around them says the same.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, strlen

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c cimport plain as pl
from arbiter._speedups.c.jsonscan cimport Text, called
from arbiter._speedups.c.plain cimport Plain, begin
from arbiter._speedups.c.plain_chat cimport Head, chunk, remember
from arbiter._speedups.c.plain_messages cimport DELTA, block_event
from arbiter._speedups.c.sse cimport Frame, SSEReader, framed

from arbiter._speedups.py.carry import MAX_MOVED_BYTES, Mould, is_event

cdef Py_ssize_t MOVED_BYTES = MAX_MOVED_BYTES
cdef Py_ssize_t KEEP_BYTES = 64 << 10  # a larger buffer goes back once it was taken


cdef enum:
    MAX_SHAPE_BYTES = 2048


cdef enum:  # kinds, each the place of its mould
    TEXT
    REASONING_CONTENT
    REASONING
    ARGUMENTS
    KINDS
    NOT_PLAIN
    SILENT


cdef struct Halves:
    # Lifetimes: of the tuples in `_moulds`.
    const char* before
    Py_ssize_t before_len
    const char* behind
    Py_ssize_t behind_len


cdef struct Buffer:
    char* at
    Py_ssize_t size, room


cdef struct Shape:
    # The last recognised event without the string that was said and the one aside (OpenAI pads its chunks with noise):
    # what stands before, between and behind the two, and what it was recognised as.
    Buffer around
    Py_ssize_t before_len, between_len, behind_len
    bint has_aside
    int kind
    long long index


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


cdef bint may_end(const Text* text) noexcept:
    """Whether a string holds a closing brace."""
    cdef const char* at = text.at
    cdef const char* end = at + text.raw
    if memchr(at, c'}', end - at) != NULL:
        return True
    while True:
        at = <const char*>memchr(at, c'\\', end - at)
        if at == NULL:
            return False
        if end - at >= 6 and memcmp(at + 1, b"u007", 4) == 0 and (at[5] == c'd' or at[5] == c'D'):
            return True
        at += 2


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
    cdef const char* _name  # of a plain event, where it has one
    cdef Buffer _moved, _kept
    cdef Shape _shape
    cdef tuple _moulds
    cdef Halves[<int>KINDS] _halves
    cdef bint _is_aimed, _keep
    cdef long long _place

    def __cinit__(self):
        self._name = b""

    def __dealloc__(self):
        free(self._moved.at)
        free(self._kept.at)
        free(self._shape.around.at)

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
            if not self._is_aimed or not self._is_moved(&frame):
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
        cdef Plain plain
        cdef Text text
        cdef int kind
        if frame.data_len > MOVED_BYTES:
            return False
        if frame.name_len and (
            frame.name_len != <Py_ssize_t>strlen(self._name) or memcmp(frame.name, self._name, frame.name_len) != 0
        ):
            return False
        if self._is_alike(frame, &text):
            return self._move(self._shape.kind, self._shape.index, &text)
        begin(&plain)
        kind = self._recognise(frame, &plain)
        if kind == SILENT:
            return True
        if kind == NOT_PLAIN:
            return False
        text.at, text.raw = plain.at, plain.raw
        text.size = plain.text + plain.reasoning + plain.arguments
        self._learn(frame, &plain, kind)
        return self._move(kind, plain.index, &text)

    cdef int _recognise(self, Frame* frame, Plain* plain) except -1:
        """The kind of the one string that an event says."""
        raise NotImplementedError

    cdef bint _is_alike(self, Frame* frame, Text* text) noexcept:
        """Whether the event is the last recognised one with other strings; what it says is in `text` then."""
        cdef Shape* shape = &self._shape
        cdef const char* around = shape.around.at
        cdef const char* p = frame.data
        cdef const char* end = p + frame.data_len
        cdef Text aside
        if shape.around.size == 0 or frame.data_len <= shape.around.size or memcmp(p, around, shape.before_len) != 0:
            return False
        around += shape.before_len
        p = js.string(p + shape.before_len, end, text)
        if p == NULL or text.raw == 0 or text.lone or end - p < shape.between_len:
            return False
        if memcmp(p, around, shape.between_len) != 0:
            return False
        around += shape.between_len
        p += shape.between_len
        if shape.has_aside:
            p = js.string(p, end, &aside)
            if p == NULL or aside.lone:
                return False
        return end - p == shape.behind_len and memcmp(p, around, shape.behind_len) == 0

    cdef int _learn(self, Frame* frame, Plain* plain, int kind) except -1:
        cdef Shape* shape = &self._shape
        cdef const char* end = frame.data + frame.data_len
        cdef const char* between = plain.at + plain.raw + 1
        cdef const char* aside = plain.aside if plain.aside != NULL else end
        cdef Py_ssize_t size
        cdef char* to
        shape.around.size = 0
        shape.has_aside = plain.aside != NULL
        shape.before_len = plain.at - 1 - frame.data
        shape.between_len = aside - between
        shape.behind_len = end - aside - plain.aside_size if shape.has_aside else 0
        size = shape.before_len + shape.between_len + shape.behind_len
        if size <= MAX_SHAPE_BYTES:
            to = grow(&shape.around, size)
            memcpy(to, frame.data, shape.before_len)
            memcpy(to + shape.before_len, between, shape.between_len)
            memcpy(to + shape.before_len + shape.between_len, end - shape.behind_len, shape.behind_len)
            shape.around.size = size
            shape.kind, shape.index = kind, plain.index
        return 0

    cdef bint _move(self, int kind, long long index, Text* text) except -1:
        """Move the string that was said, if its kind has a mould."""
        cdef Halves* mould = &self._halves[kind]
        cdef Py_ssize_t quoted = text.raw + 2
        cdef Py_ssize_t size = mould.before_len + quoted + mould.behind_len
        cdef char* to
        if mould.before == NULL:
            return False
        if kind == ARGUMENTS and (index != self._place or (self._keep and may_end(text))):
            return False
        to = grow(&self._moved, size)
        memcpy(to, mould.before, mould.before_len)
        memcpy(to + mould.before_len, text.at - 1, quoted)
        memcpy(to + mould.before_len + quoted, mould.behind, mould.behind_len)
        if kind == TEXT:
            self.text_bytes += text.size
        elif kind != ARGUMENTS:
            self.thinking_bytes += text.size
        else:
            if self._keep:
                memcpy(grow(&self._kept, text.raw), text.at, text.raw)
                self._kept.size += text.raw
            self.argument_bytes += text.size
        self._moved.size += size
        return True


@cython.final
cdef class ChatCarrier(_Carrier):
    """Carry the deltas of a chat-completions stream. See the twin for the contract."""

    cdef Head _head

    def __cinit__(self):
        self._name = b"message"

    def __dealloc__(self):
        free(self._head.at)

    cdef int _recognise(self, Frame* frame, Plain* plain) except -1:
        # Its id and its model are for the reader of the stream's first chunk, which is not moved.
        if not chunk(frame.data, frame.data + frame.data_len, plain, &self._head, True, True, True, False):
            return NOT_PLAIN
        if self._head.read:
            remember(&self._head, frame.data)
        if plain.lone or plain.logprobs or plain.kept or plain.usage != NULL:
            return NOT_PLAIN
        if plain.entries != 1 or plain.choices != 1:
            return NOT_PLAIN
        if plain.strings == 0 and plain.fragments == 0:
            return SILENT
        if plain.strings != 1 or plain.fragments != (plain.said == pl.ARGUMENTS):
            return NOT_PLAIN
        if plain.said == pl.CONTENT:
            return TEXT
        if plain.said == pl.REASONING_CONTENT:
            return REASONING_CONTENT
        if plain.said == pl.REASONING:
            return REASONING
        if plain.said == pl.ARGUMENTS and plain.index >= 0:
            return ARGUMENTS
        return NOT_PLAIN


@cython.final
cdef class MessagesCarrier(_Carrier):
    """Carry the deltas of an Anthropic messages stream. See the twin for the contract."""

    def __cinit__(self):
        self._name = b"content_block_delta"

    cdef int _recognise(self, Frame* frame, Plain* plain) except -1:
        if block_event(frame.data, frame.data + frame.data_len, plain) != DELTA:
            return NOT_PLAIN
        if plain.lone or plain.strings != 1 or plain.index < 0:
            return NOT_PLAIN
        if plain.said == pl.TEXT and called(&plain.type, b"text_delta", 10):
            return TEXT
        if plain.said == pl.THINKING and called(&plain.type, b"thinking_delta", 14):
            return REASONING_CONTENT
        if plain.said == pl.PARTIAL_JSON and called(&plain.type, b"input_json_delta", 16):
            return ARGUMENTS
        return NOT_PLAIN
