# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The side reducer, compiled. Twin of `arbiter/_speedups/py/reduce.py`, which says what every event means.

This side knows only plain deltas: events that change nothing but counters. `_plain` reads such an event in one exact
pass over its JSON, commits the counts at the end, and otherwise says no without having changed anything. Everything
it says no to (the first and the last events, new calls, errors, odd shapes, duplicate or escaped names) goes to the
reference's own state, so there is one definition and no guess.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c.jsonscan cimport Text, called
from arbiter._speedups.c.sse cimport Frame, Framer

from arbiter._speedups.c.nesting import commas
from arbiter._speedups.py.reduce import (
    AFTER_FINISH,
    CLASH,
    DONE,
    ERROR,
    EXCESS,
    FINISH,
    FOREIGN,
    MALFORMED,
    MAX_CALLS,
    MAX_KEPT_BYTES,
    MAX_VALUES,
    RESTART,
    START,
    USAGE_ONLY,
    ChatState,
    MessagesState,
    merge,
)
from arbiter._speedups.py.sse import LIMIT_BYTES

Mark = tuple

cdef Py_ssize_t VALUES = MAX_VALUES


cdef enum:  # members that were met: a second one of a name is for the full decoder, where the last one wins
    ID = 1
    MODEL = 2
    CHOICES = 4
    USAGE = 8
    OBJECT = 16
    INDEX = 32
    DELTA = 64
    FINISH_REASON = 128
    CONTENT = 256
    REASONING = 512
    REASONING_CONTENT = 1024
    REFUSAL = 2048
    TOOL_CALLS = 4096
    FUNCTION = 8192
    NAME = 16384
    ARGUMENTS = 32768
    TYPE = 65536
    TEXT = 131072
    THINKING = 262144
    PARTIAL_JSON = 524288


cdef enum:
    MAX_HEAD_BYTES = 2048


cdef struct Counts:
    Py_ssize_t text, reasoning, reasoning_content, arguments
    unsigned long long choices  # a bit for each choice met
    const char* usage  # the last usage object's bytes
    Py_ssize_t usage_size
    bint lone  # some string holds a lone surrogate


cdef struct Head:
    # The chunks of a stream begin alike: id, object, created, model. The last beginning, up to the value of `choices`,
    # is kept with what reading it found; a chunk with the same bytes need not be read there again.
    char* at
    Py_ssize_t size, room
    int met
    Py_ssize_t read  # of the chunk in hand, 0 where its beginning holds anything to count
    int read_met


cdef inline bint _is_vast(Frame* frame) except -1:
    """Whether the reference refuses to decode the event for its many values."""
    return frame.data_len > VALUES and commas(PyBytes_FromStringAndSize(frame.data, frame.data_len)) >= VALUES


cdef inline bint _once(int* met, int member) noexcept nogil:
    if met[0] & member:
        return False
    met[0] |= member
    return True


cdef inline const char* _size(const char* p, const char* end, Py_ssize_t* size, bint* lone) noexcept nogil:
    """Read a string or null, and add its size."""
    cdef Text text
    if p < end and p[0] == 110:
        return js.null(p, end)
    p = js.string(p, end, &text)
    if p == NULL:
        return NULL
    size[0] += text.size
    lone[0] = lone[0] or text.lone
    return p


cdef inline const char* _nothing(const char* p, const char* end) noexcept nogil:
    """Read null or an empty string."""
    if end - p >= 2 and p[0] == 34 and p[1] == 34:
        return p + 2
    return js.null(p, end)


cdef inline const char* _skip(const char* p, const char* end, bint* lone) noexcept nogil:
    cdef Text text
    text.lone = False
    p = js.skip(p, end, 0, &text)
    lone[0] = lone[0] or text.lone
    return p


cdef const char* _fragment(const char* p, const char* end, Counts* counts) noexcept nogil:
    """Read one tool-call fragment that only carries arguments on."""
    cdef bint more, inner
    cdef Text key
    cdef long long index
    cdef int met = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"index", 5):
            p = js.integer(p, end, &index) if _once(&met, INDEX) else NULL
        elif called(&key, b"id", 2):
            p = _nothing(p, end) if _once(&met, ID) else NULL
        elif called(&key, b"function", 8):
            p = js.object_start(p, end, &inner) if _once(&met, FUNCTION) else NULL
            while p != NULL and inner:
                p = js.key(p, end, &key)
                if p == NULL:
                    return NULL
                if called(&key, b"arguments", 9):
                    p = _size(p, end, &counts.arguments, &counts.lone) if _once(&met, ARGUMENTS) else NULL
                elif called(&key, b"name", 4):
                    p = _nothing(p, end) if _once(&met, NAME) else NULL
                else:
                    p = _skip(p, end, &counts.lone)
                if p == NULL:
                    return NULL
                p = js.member_end(p, end, &inner)
        else:
            p = _skip(p, end, &counts.lone)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    return p


cdef const char* _delta(const char* p, const char* end, Counts* counts, bint clashed) noexcept nogil:
    cdef bint more, inner
    cdef Text key
    cdef int met = 0
    cdef Py_ssize_t reasoning = 0
    cdef Py_ssize_t reasoning_content = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"content", 7):
            p = _size(p, end, &counts.text, &counts.lone) if _once(&met, CONTENT) else NULL
        elif called(&key, b"tool_calls", 10):
            if not _once(&met, TOOL_CALLS):
                return NULL
            if p < end and p[0] == 110:
                p = js.null(p, end)
            elif p < end and p[0] == 91:
                p = js.blank(p + 1, end)
                inner = not (p < end and p[0] == 93)
                if not inner:
                    p += 1
                elif clashed:
                    return NULL
                while inner:
                    p = _fragment(p, end, counts)
                    if p == NULL:
                        return NULL
                    p = js.item_end(p, end, &inner)
                    if p == NULL:
                        return NULL
            else:
                return NULL
        elif called(&key, b"reasoning_content", 17):
            p = _size(p, end, &reasoning_content, &counts.lone) if _once(&met, REASONING_CONTENT) else NULL
        elif called(&key, b"reasoning", 9):
            p = _size(p, end, &reasoning, &counts.lone) if _once(&met, REASONING) else NULL
        elif called(&key, b"refusal", 7):
            p = _size(p, end, &counts.text, &counts.lone) if _once(&met, REFUSAL) else NULL
        elif called(&key, b"function_call", 13):
            p = js.null(p, end)
        else:
            p = _skip(p, end, &counts.lone)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    counts.reasoning += reasoning if reasoning else reasoning_content
    return p


cdef const char* _choice(const char* p, const char* end, Counts* counts, bint clashed) noexcept nogil:
    cdef bint more
    cdef Text key
    cdef long long index = -1
    cdef int met = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"delta", 5):
            p = _delta(p, end, counts, clashed) if _once(&met, DELTA) else NULL
        elif called(&key, b"index", 5):
            p = js.integer(p, end, &index) if _once(&met, INDEX) else NULL
        elif called(&key, b"finish_reason", 13):
            p = _nothing(p, end) if _once(&met, FINISH_REASON) else NULL
        elif called(&key, b"usage", 5):
            p = js.null(p, end) if _once(&met, USAGE) else NULL
        else:
            p = _skip(p, end, &counts.lone)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    if index < 0 or index > 63:
        return NULL
    counts.choices |= (<unsigned long long>1) << index
    return p


cdef bint _chunk(
    const char* p, const char* end, Counts* counts, Head* head, bint known_id, bint known_model, bint clashed
) noexcept nogil:
    """Read a chunk that has choices, ends none of them and begins no call."""
    cdef const char* begin = p
    cdef bint more, inner
    cdef bint at_choices = False
    cdef Text key, text
    cdef int met = 0
    if head.size and end - p > head.size and memcmp(p, head.at, head.size) == 0:
        p += head.size
        met = head.met
        more = at_choices = True
    else:
        p = js.object_start(js.blank(p, end), end, &more)
    while p != NULL and more:
        if not at_choices:
            p = js.key(p, end, &key)
            if p == NULL:
                return False
            at_choices = called(&key, b"choices", 7)
            if at_choices and not counts.lone and counts.usage == NULL:
                head.read = p - begin
                head.read_met = met
        if at_choices:
            at_choices = False
            if not _once(&met, CHOICES) or p >= end or p[0] != 91:
                return False
            p = js.blank(p + 1, end)
            inner = True
            while inner:
                p = _choice(p, end, counts, clashed)
                if p == NULL:
                    return False
                p = js.item_end(p, end, &inner)
                if p == NULL:
                    return False
        elif called(&key, b"id", 2):
            if not _once(&met, ID):
                return False
            p = _skip(p, end, &counts.lone) if known_id else _nothing(p, end)
        elif called(&key, b"model", 5):
            if not _once(&met, MODEL):
                return False
            p = _skip(p, end, &counts.lone) if known_model else _nothing(p, end)
        elif called(&key, b"object", 6):
            p = js.string(p, end, &text) if _once(&met, OBJECT) else NULL
            if p == NULL or text.escaped or called(&text, b"error", 5):
                return False
        elif called(&key, b"usage", 5):
            if not _once(&met, USAGE) or p >= end:
                return False
            if p[0] == 110:
                p = js.null(p, end)
            elif p[0] == 123:
                counts.usage = p
                p = _skip(p, end, &counts.lone)
                if p == NULL:
                    return False
                counts.usage_size = p - counts.usage
                if js.blank(counts.usage + 1, p)[0] == 125:
                    return False  # empty
            else:
                return False
        elif called(&key, b"error", 5):
            p = js.null(p, end)
        elif called(&key, b"type", 4) or called(&key, b"x_groq", 6):
            return False
        else:
            p = _skip(p, end, &counts.lone)
        if p == NULL:
            return False
        p = js.member_end(p, end, &more)
    if p == NULL or not met & CHOICES or js.blank(p, end) != end:
        return False
    # The reference cannot reach the usage's own bytes then, and writes them anew.
    return not (counts.lone and counts.usage != NULL)


@cython.final
cdef class ChatTap:
    """Read one chat-completions stream on the side. See the twin for the contract."""

    cdef Framer _framer
    cdef object _state
    cdef long long _events, _text, _thinking, _arguments
    cdef unsigned long long _choices
    cdef Head _head
    cdef bint _is_plain, _known_id, _known_model, _clashed

    def __init__(self, long long limit=LIMIT_BYTES):
        self._framer = Framer(limit)
        self._state = ChatState()
        self._is_plain = True

    def __dealloc__(self):
        free(self._head.at)

    def feed(self, bytes data not None):
        """Read `data` on the side; return the marks of the events it completed, in order."""
        return self._read(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def end(self):
        """The stream's bytes end here: return the marks of a last event without its blank line."""
        self._framer.last = True
        return self._read(b"", 0)

    cdef list _read(self, const char* data, Py_ssize_t size):
        cdef Framer framer = self._framer
        cdef Frame frame
        cdef list marks = []
        framer.open(data, size)
        try:
            while framer.next(&frame):
                if not self._plain(&frame):
                    self._full(&frame, marks)
        finally:
            framer.close()
        if framer.fault is not None and not marks:
            raise framer.fault
        return marks

    cdef bint _plain(self, Frame* frame) except -1:
        cdef Counts counts
        if not self._is_plain or _is_vast(frame) or (frame.name_len == 5 and memcmp(frame.name, b"error", 5) == 0):
            return False
        counts.text = counts.reasoning = counts.arguments = 0
        counts.choices = 0
        counts.usage = NULL
        counts.lone = False
        self._head.read = 0
        if not _chunk(
            frame.data,
            frame.data + frame.data_len,
            &counts,
            &self._head,
            self._known_id,
            self._known_model,
            self._clashed,
        ):
            return False
        if self._head.read:
            self._remember(frame.data)
        self._events += 1
        self._text += counts.text
        self._thinking += counts.reasoning
        self._arguments += counts.arguments
        self._choices |= counts.choices
        if counts.usage != NULL:
            self._state.usage = PyBytes_FromStringAndSize(counts.usage, counts.usage_size)
        return True

    cdef int _remember(self, const char* data) except -1:
        cdef Head* head = &self._head
        cdef char* room
        if head.read > MAX_HEAD_BYTES:
            return 0
        if head.read > head.room:
            room = <char*>realloc(head.at, head.read)
            if room == NULL:
                raise MemoryError
            head.at, head.room = room, head.read
        memcpy(head.at, data, head.read)
        head.size, head.met = head.read, head.read_met
        return 0

    cdef int _full(self, Frame* frame, list marks) except -1:
        state = self._state
        state.take(
            PyBytes_FromStringAndSize(frame.name, frame.name_len),
            PyBytes_FromStringAndSize(frame.data, frame.data_len),
            frame.start,
            frame.end,
            marks,
        )
        self._is_plain = state.plain
        self._known_id = state.response_id is not None
        self._known_model = state.model is not None
        self._clashed = state.clashed
        return 0

    def calls(self, choice):
        """How many tool calls the choice has begun."""
        return self._state.calls(choice)

    def index_of(self, choice, ident):
        """The index of a call on the client's side; -1 where it has none."""
        return self._state.index_of(choice, ident)

    @property
    def boundary(self):
        return self._framer.boundary

    @property
    def offset(self):
        return self._framer.offset

    @property
    def events(self):
        return self._events + self._state.events

    @property
    def pings(self):
        return self._state.pings

    @property
    def text_bytes(self):
        return self._text + self._state.text_bytes

    @property
    def thinking_bytes(self):
        return self._thinking + self._state.thinking_bytes

    @property
    def argument_bytes(self):
        return self._arguments + self._state.argument_bytes

    @property
    def finish(self):
        return self._state.finish

    @property
    def finished(self):
        cdef int number
        for number in range(64):
            if self._choices >> number & 1:
                self._state.seen.add(number)
        return self._state.finished

    @property
    def done(self):
        return self._state.done

    @property
    def errored(self):
        return self._state.errored

    @property
    def tool_names(self):
        return self._state.tool_names

    @property
    def usage(self):
        return self._state.usage

    @property
    def response_id(self):
        return self._state.response_id

    @property
    def model(self):
        return self._state.model


cdef const char* _block_delta(const char* p, const char* end, Counts* counts) noexcept nogil:
    cdef bint more
    cdef Text key
    cdef int met = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"text", 4):
            p = _size(p, end, &counts.text, &counts.lone) if _once(&met, TEXT) else NULL
        elif called(&key, b"partial_json", 12):
            p = _size(p, end, &counts.arguments, &counts.lone) if _once(&met, PARTIAL_JSON) else NULL
        elif called(&key, b"thinking", 8):
            p = _size(p, end, &counts.reasoning, &counts.lone) if _once(&met, THINKING) else NULL
        else:
            p = _skip(p, end, &counts.lone)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    return p


cdef int _block_event(const char* p, const char* end, Counts* counts) noexcept nogil:
    """Read a content_block_delta (1), a content_block_stop (1) or a ping (2); 0 for anything else."""
    cdef bint more
    cdef Text key, kind
    cdef int met = 0
    kind.at = NULL
    kind.raw = 0
    p = js.object_start(js.blank(p, end), end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return 0
        if called(&key, b"type", 4):
            p = js.string(p, end, &kind) if _once(&met, TYPE) else NULL
            if p == NULL or kind.escaped:
                return 0
        elif called(&key, b"delta", 5):
            p = _block_delta(p, end, counts) if _once(&met, DELTA) else NULL
        else:
            p = _skip(p, end, &counts.lone)
        if p == NULL:
            return 0
        p = js.member_end(p, end, &more)
    if p == NULL or not met & TYPE or js.blank(p, end) != end:
        return 0
    if called(&kind, b"content_block_delta", 19):
        return 1
    # What is not a delta has nothing to count, whatever it carries under that name.
    counts.text = counts.reasoning = counts.arguments = 0
    if called(&kind, b"content_block_stop", 18):
        return 1
    if called(&kind, b"ping", 4):
        return 2
    return 0


@cython.final
cdef class MessagesTap:
    """Read one Anthropic messages stream on the side. See the twin for the contract."""

    cdef Framer _framer
    cdef object _state
    cdef long long _events, _pings, _text, _thinking, _arguments
    cdef bint _is_plain

    def __init__(self, long long limit=LIMIT_BYTES):
        self._framer = Framer(limit)
        self._state = MessagesState()
        self._is_plain = True

    def feed(self, bytes data not None):
        """Read `data` on the side; return the marks of the events it completed, in order."""
        return self._read(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def end(self):
        """The stream's bytes end here: return the marks of a last event without its blank line."""
        self._framer.last = True
        return self._read(b"", 0)

    cdef list _read(self, const char* data, Py_ssize_t size):
        cdef Framer framer = self._framer
        cdef Frame frame
        cdef list marks = []
        framer.open(data, size)
        try:
            while framer.next(&frame):
                if not self._plain(&frame):
                    self._full(&frame, marks)
        finally:
            framer.close()
        if framer.fault is not None and not marks:
            raise framer.fault
        return marks

    cdef bint _plain(self, Frame* frame) except -1:
        cdef Counts counts
        cdef int what
        if not self._is_plain or _is_vast(frame) or (frame.name_len == 5 and memcmp(frame.name, b"error", 5) == 0):
            return False
        counts.text = counts.reasoning = counts.arguments = 0
        counts.lone = False
        what = _block_event(frame.data, frame.data + frame.data_len, &counts)
        if what == 1:
            self._events += 1
            self._text += counts.text
            self._thinking += counts.reasoning
            self._arguments += counts.arguments
        elif what == 2:
            self._pings += 1
        return what != 0

    cdef int _full(self, Frame* frame, list marks) except -1:
        state = self._state
        state.take(
            PyBytes_FromStringAndSize(frame.name, frame.name_len),
            PyBytes_FromStringAndSize(frame.data, frame.data_len),
            frame.start,
            frame.end,
            marks,
        )
        self._is_plain = state.plain
        return 0

    @property
    def boundary(self):
        return self._framer.boundary

    @property
    def offset(self):
        return self._framer.offset

    @property
    def events(self):
        return self._events + self._state.events

    @property
    def pings(self):
        return self._pings + self._state.pings

    @property
    def text_bytes(self):
        return self._text + self._state.text_bytes

    @property
    def thinking_bytes(self):
        return self._thinking + self._state.thinking_bytes

    @property
    def argument_bytes(self):
        return self._arguments + self._state.argument_bytes

    @property
    def finish(self):
        return self._state.finish

    @property
    def finished(self):
        return self._state.finished

    @property
    def done(self):
        return self._state.done

    @property
    def errored(self):
        return self._state.errored

    @property
    def tool_names(self):
        return self._state.tool_names

    @property
    def usage_start(self):
        return self._state.usage_start

    @property
    def usage_delta(self):
        return self._state.usage_delta

    @property
    def response_id(self):
        return self._state.response_id

    @property
    def model(self):
        return self._state.model
