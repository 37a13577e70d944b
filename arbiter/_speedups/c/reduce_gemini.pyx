# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of `GeminiTap` in `py/reduce.py`; `reduce` has it under its name.

See `reduce.pyx` for how the taps are made.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from arbiter._speedups.c.plain cimport Plain, begin
from arbiter._speedups.c.plain_gemini cimport gemini_chunk
from arbiter._speedups.c.sse cimport Frame, Framer

from arbiter._speedups.c.nesting import commas
from arbiter._speedups.py.reduce import MAX_VALUES, GeminiState
from arbiter._speedups.py.sse import LIMIT_BYTES

cdef Py_ssize_t VALUES = MAX_VALUES


cdef inline bint _is_vast(Frame* frame) except -1:
    """Whether the reference refuses to decode the event for its many values."""
    return frame.data_len > VALUES and commas(PyBytes_FromStringAndSize(frame.data, frame.data_len)) >= VALUES


@cython.final
cdef class GeminiTap:
    """Read one Gemini stream on the side. See the twin for the contract."""

    cdef Framer _framer
    cdef object _state
    cdef long long _events, _text, _thinking
    cdef bint _is_plain, _known_id, _known_model

    def __init__(self, long long limit=LIMIT_BYTES):
        self._framer = Framer(limit)
        self._state = GeminiState()
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
        if not self._is_plain or _is_vast(frame):
            return False
        begin(&plain)
        if not gemini_chunk(frame.data, frame.data + frame.data_len, &plain, self._known_id, self._known_model):
            return False
        self._events += 1
        self._text += plain.text
        self._thinking += plain.reasoning
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
        return self._state.argument_bytes

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
    def usage(self):
        return self._state.usage

    @property
    def response_id(self):
        return self._state.response_id

    @property
    def model(self):
        return self._state.model
