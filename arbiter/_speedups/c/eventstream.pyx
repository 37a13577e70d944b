# cython: language_level=3, boundscheck=False, wraparound=False
"""AWS event streams: the compiled equal of `py/eventstream.py`, which says what a message is.

Messages are read where they lie in the bytes of one read; only one that a cut went through is put together first.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp

from zlib import crc32

from arbiter.errors import Garbled

LIMIT_BYTES = 16 << 20
MAX_HEADER_BYTES = 128 << 10

cdef enum:
    PRELUDE = 12
    LEAST = 16
    MOST_HEADERS = 131072

cdef object _ODD = "the upstream sent a message whose headers cannot be read"
cdef bytes _EVENT = b"event", _EXCEPTION = b"exception", _ERROR = b"error", _NOTHING = b""


cdef struct Text:
    const unsigned char* at
    Py_ssize_t size


cdef inline unsigned int _number(const unsigned char* at) noexcept:
    return (<unsigned int>at[0] << 24) | (<unsigned int>at[1] << 16) | (<unsigned int>at[2] << 8) | at[3]


cdef inline bint _is(const unsigned char* at, Py_ssize_t size, const char* word, Py_ssize_t length) noexcept:
    return size == length and memcmp(at, word, length) == 0


cdef inline bytes _bytes(Text text):
    return PyBytes_FromStringAndSize(<const char*>text.at, text.size) if text.at != NULL else _NOTHING


cdef class MessageReader:
    """Splits a stream into messages. See the twin for the contract."""

    cdef readonly long long limit
    cdef readonly object fault
    cdef bytearray _held
    cdef Py_ssize_t _need

    def __init__(self, long long limit=LIMIT_BYTES):
        self.limit = limit
        self.fault = None
        self._held = bytearray()
        self._need = PRELUDE

    @property
    def held(self):
        """Bytes of the message that is not whole yet."""
        return len(self._held)

    def feed(self, bytes data not None):
        """Return the messages completed by `data`, in order."""
        cdef list messages = []
        cdef Py_ssize_t size, at = 0
        cdef const unsigned char* start
        if self.fault is not None:
            return messages
        if len(self._held):
            self._held += data
            if <Py_ssize_t>len(self._held) < self._need:
                return messages
            data = bytes(self._held)
            self._held = bytearray()
        start = <const unsigned char*>PyBytes_AS_STRING(data)
        size = PyBytes_GET_SIZE(data)
        try:
            while size - at >= self._need:
                if self._need == PRELUDE:
                    self._need = self._length(start + at)
                    continue
                messages.append(_message(start + at, self._need))
                at += self._need
                self._need = PRELUDE
        except Garbled as fault:
            self.fault = fault
            at = size
        if at < size:
            self._held += data[at:]
        return messages

    cdef Py_ssize_t _length(self, const unsigned char* prelude) except -1:
        cdef unsigned int total = _number(prelude), headers = _number(prelude + 4)
        if crc32(PyBytes_FromStringAndSize(<const char*>prelude, 8)) != _number(prelude + 8):
            raise Garbled("the upstream sent a message whose beginning does not match its checksum")
        if total < LEAST or headers > total - LEAST or headers > MOST_HEADERS:
            raise Garbled("the upstream sent a message of an impossible length")
        if total > self.limit:
            raise Garbled(f"the upstream sent a message over the limit of {self.limit} bytes (`limits.event`)")
        return total


cdef tuple _message(const unsigned char* raw, Py_ssize_t total):
    cdef const unsigned char* at = raw + PRELUDE
    cdef const unsigned char* end = at + _number(raw + 4)
    cdef const unsigned char* last = raw + total - 4
    cdef const unsigned char* name
    cdef Py_ssize_t length, size
    cdef unsigned char kind
    cdef Text sort, event, exception, code, words
    sort.at = event.at = exception.at = code.at = words.at = NULL
    sort.size = event.size = exception.size = code.size = words.size = 0
    if crc32(PyBytes_FromStringAndSize(<const char*>raw, total - 4)) != _number(last):
        raise Garbled("the upstream sent a message that does not match its checksum")
    while at < end:
        length, name = at[0], at + 1
        if length == 0 or name + length >= end:
            raise Garbled(_ODD)
        kind = name[length]
        at = name + length + 1
        if kind == 6 or kind == 7:
            if end - at < 2:
                raise Garbled(_ODD)
            size = (<Py_ssize_t>at[0] << 8) | at[1]
            at += 2
        elif kind == 0 or kind == 1:
            size = 0
        elif kind == 2:
            size = 1
        elif kind == 3:
            size = 2
        elif kind == 4:
            size = 4
        elif kind == 5 or kind == 8:
            size = 8
        elif kind == 9:
            size = 16
        else:
            raise Garbled(_ODD)
        if size > end - at:
            raise Garbled(_ODD)
        if kind == 7 and name[0] == b":":
            if _is(name, length, b":message-type", 13):
                sort.at, sort.size = at, size
            elif _is(name, length, b":event-type", 11):
                event.at, event.size = at, size
            elif _is(name, length, b":exception-type", 15):
                exception.at, exception.size = at, size
            elif _is(name, length, b":error-code", 11):
                code.at, code.size = at, size
            elif _is(name, length, b":error-message", 14):
                words.at, words.size = at, size
        at += size
    if sort.at == NULL or _is(sort.at, sort.size, b"event", 5):
        return _EVENT, _bytes(event), PyBytes_FromStringAndSize(<const char*>end, last - end)
    if _is(sort.at, sort.size, b"exception", 9):
        return _EXCEPTION, _bytes(exception), PyBytes_FromStringAndSize(<const char*>end, last - end)
    if _is(sort.at, sort.size, b"error", 5):
        return _ERROR, _bytes(code), _bytes(words)
    raise Garbled("the upstream sent a message of an unknown type")
