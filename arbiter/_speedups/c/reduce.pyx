# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The side reducer, compiled. Twin of `arbiter/_speedups/py/reduce.py`, which says what every event means.

This side knows only plain deltas: events that change nothing but counters. `_plain` has such an event read by the
format's recogniser (plain_chat, plain_gemini, plain_messages, plain_responses), and commits the counts; otherwise it says no without having changed
anything. Everything it says no to (the first and the last events, new calls, errors, odd shapes, duplicate or escaped names) goes to the
reference's own state, so there is one definition and no guess.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcmp

from arbiter._speedups.c.plain cimport Plain, begin
from arbiter._speedups.c.plain_chat cimport Head, chunk, remember
from arbiter._speedups.c.plain_messages cimport PING, block_event
from arbiter._speedups.c.plain_responses cimport response_event
from arbiter._speedups.c.sse cimport Frame, Framer

from arbiter._speedups.c.nesting import commas
from arbiter._speedups.c.reduce_gemini import GeminiTap
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
    GeminiState,
    MessagesState,
    ResponsesState,
    called_by,
    cleared_tokens,
    is_compaction,
    merge,
    sizes_of,
    slim,
)
from arbiter._speedups.py.sse import LIMIT_BYTES

Mark = tuple

cdef Py_ssize_t VALUES = MAX_VALUES


cdef inline bint _is_vast(Frame* frame) except -1:
    """Whether the reference refuses to decode the event for its many values."""
    return frame.data_len > VALUES and commas(PyBytes_FromStringAndSize(frame.data, frame.data_len)) >= VALUES


@cython.final
cdef class ChatTap:
    """Read one chat-completions stream on the side. See the twin for the contract."""

    cdef Framer _framer
    cdef object _state
    cdef long long _events, _text, _thinking, _arguments
    cdef unsigned long long _choices
    cdef Head _head
    cdef bint _is_plain, _known_id, _known_model, _known_tier, _clashed

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
        cdef Plain plain
        if not self._is_plain or _is_vast(frame) or (frame.name_len == 5 and memcmp(frame.name, b"error", 5) == 0):
            return False
        begin(&plain)
        if not chunk(
            frame.data,
            frame.data + frame.data_len,
            &plain,
            &self._head,
            self._known_id,
            self._known_model,
            self._known_tier,
            self._clashed,
        ):
            return False
        if self._head.read:
            remember(&self._head, frame.data)
        self._events += 1
        self._text += plain.text
        self._thinking += plain.reasoning
        self._arguments += plain.arguments
        self._choices |= plain.choices
        if plain.usage != NULL:
            self._state.usage = PyBytes_FromStringAndSize(plain.usage, plain.usage_size)
        return True

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
        self._known_tier = state.service_tier is not None
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
    def fingerprint(self):
        return self._state.fingerprint

    @property
    def service_tier(self):
        return self._state.service_tier

    @property
    def response_id(self):
        return self._state.response_id

    @property
    def model(self):
        return self._state.model


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
        cdef Plain plain
        cdef int what
        if not self._is_plain or _is_vast(frame) or (frame.name_len == 5 and memcmp(frame.name, b"error", 5) == 0):
            return False
        begin(&plain)
        what = block_event(frame.data, frame.data + frame.data_len, &plain)
        if what == PING:
            self._pings += 1
        elif what:
            self._events += 1
            self._text += plain.text
            self._thinking += plain.reasoning
            self._arguments += plain.arguments
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
    def cleared_tokens(self):
        return self._state.cleared_tokens

    @property
    def compacted(self):
        return self._state.compacted

    @property
    def response_id(self):
        return self._state.response_id

    @property
    def model(self):
        return self._state.model


@cython.final
cdef class ResponsesTap:
    """Read one OpenAI Responses stream on the side. See the twin for the contract."""

    cdef Framer _framer
    cdef object _state
    cdef long long _events, _text, _thinking, _arguments
    cdef bint _is_plain

    def __init__(self, long long limit=LIMIT_BYTES):
        self._framer = Framer(limit)
        self._state = ResponsesState()
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
        cdef Plain plain
        if not self._is_plain or _is_vast(frame) or (frame.name_len == 5 and memcmp(frame.name, b"error", 5) == 0):
            return False
        begin(&plain)
        if not response_event(frame.data, frame.data + frame.data_len, &plain):
            return False
        self._events += 1
        self._text += plain.text
        self._thinking += plain.reasoning
        self._arguments += plain.arguments
        return True

    cdef int _full(self, Frame* frame, list marks) except -1:
        state = self._state
        # Whether anything was said is what it judges a whole answer by.
        state.text_bytes += self._text
        state.thinking_bytes += self._thinking
        state.argument_bytes += self._arguments
        self._text = self._thinking = self._arguments = 0
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
    def created_s(self):
        return self._state.created_s

    @property
    def usage(self):
        return self._state.usage

    @property
    def compacted(self):
        return self._state.compacted

    @property
    def service_tier(self):
        return self._state.service_tier

    @property
    def response_id(self):
        return self._state.response_id

    @property
    def model(self):
        return self._state.model
