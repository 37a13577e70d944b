# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reading HTTP/1.1 responses: the compiled equal of `py/h1.py`, which has the theory of operation.

Lifetimes: `feed` reads the caller's buffer only while it runs. What it returns or keeps (`_tail`, header texts) are
copies, so the caller may hand the same buffer to the next connection at once.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.dict cimport PyDict_Size
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeLatin1
from libc.string cimport memchr, memcmp, memcpy

cdef extern from "Python.h":
    PyObject *PyDict_SetDefault(dict found, object key, object value) except NULL
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t newsize) except -1
    PyObject *PyDict_GetItemWithError(dict found, object key) except? NULL
    PyObject *PyList_GET_ITEM(list items, Py_ssize_t at)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    const void *PyUnicode_DATA(object text)
    PyObject *Py_True
    PyObject *PyBytes_FromStringAndSizeRaw "PyBytes_FromStringAndSize"(const char *v, Py_ssize_t len) except NULL

HEAD, BODY, DONE, FAILED = 0, 1, 2, 3

MAX_HEAD_BYTES = 256 << 10
MAX_SIZE_LINE_BYTES = 4 << 10
MAX_TRAILER_BYTES = 16 << 10
MAX_FIELDS = 256

cdef enum:
    IN_HEAD = 0
    IN_BODY = 1
    IS_DONE = 2
    HAS_FAILED = 3

cdef enum:
    STATUS = 0
    FIELD = 1
    DATA = 2
    SIZE = 3
    CRLF = 4
    TRAILER = 5
    NOTHING = 6

cdef enum:
    NAMES = 256

cdef list _names = [""] * NAMES  # of headers that were met, each in the place that its letters say: the last one there


cdef str known_name(const unsigned char *small, Py_ssize_t size, unsigned int place):
    """A header's name as the text that it was when it was met before: made once, and hashed once."""
    cdef str name = <str>PyList_GET_ITEM(_names, place % NAMES)
    if PyUnicode_GET_LENGTH(name) != size or memcmp(PyUnicode_DATA(name), small, size) != 0:
        name = PyUnicode_DecodeASCII(<char *>small, size, NULL)
        _names[place % NAMES] = name
    return name


cdef enum:
    HEAD_LIMIT = 256 << 10
    SIZE_LINE_LIMIT = 4 << 10
    TRAILER_LIMIT = 16 << 10
    FIELD_LIMIT = 256
    NAME_LIMIT = 256  # longer names take the slower way to lower case

# Per byte: TOKEN = may stand in a field name, BAD = may not stand in a value or a reason.
cdef enum:
    TOKEN = 1
    BAD = 2

cdef unsigned char KIND[256]
cdef unsigned char LOWER[256]
cdef signed char HEX[256]


cdef void _fill_tables() noexcept:
    cdef int c
    cdef const char *others = b"!#$%&'*+-.^_`|~"
    for c in range(256):
        KIND[c] = 0
        LOWER[c] = c
        HEX[c] = -1
        if c'0' <= c <= c'9':
            KIND[c] = TOKEN
            HEX[c] = c - c'0'
        elif c'a' <= c <= c'z':
            KIND[c] = TOKEN
        elif c'A' <= c <= c'Z':
            KIND[c] = TOKEN
            LOWER[c] = c + 32
    for c in range(6):
        HEX[c'a' + c] = 10 + c
        HEX[c'A' + c] = 10 + c
    for c in range(15):
        KIND[<unsigned char>others[c]] = TOKEN
    KIND[0] = KIND[10] = KIND[11] = KIND[12] = KIND[13] = BAD


_fill_tables()


cdef class H1Core:
    def __cinit__(self, *args, **kwargs):
        self._tail = NULL
        self._tail_size = 0
        self._tail_room = 0

    def __init__(self):
        self.begin(False)

    def __dealloc__(self):
        PyMem_Free(self._tail)

    cpdef begin(self, bint bodyless):
        self.state = IN_HEAD
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
        self._step = STATUS
        self._bodyless = bodyless
        self._chunked = False
        self._closing = False
        self._fields = 0
        self._head_bytes = 0
        self._left = -1
        self._drop_tail()

    cpdef bytes feed(self, data, Py_ssize_t size=-1):
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if size < 0 or size > view.len:
                size = view.len
            return self._feed(<const unsigned char *>view.buf, size)
        finally:
            PyBuffer_Release(&view)

    cpdef bint eof(self):
        if self._step == DATA and self.eof_delimited and self.state == IN_BODY:
            self._finish()
        elif self.state < IS_DONE:
            self._fail("the connection closed before the answer was complete")
        self.keep_alive = False
        return self.state == IS_DONE

    # -------------------------------------------------------------------------------------------- bytes to steps

    cdef bytes _feed(self, const unsigned char *read, Py_ssize_t end):
        cdef:
            Py_ssize_t at = 0, take, line_size
            const unsigned char *newline
            # One piece is copied straight out of the read; from the second on they are gathered in `out`.
            const unsigned char *first = NULL
            Py_ssize_t first_size = 0, gathered = 0
            PyObject *out = NULL
            bytes joined
            bint more
        self.received += end
        try:
            while at < end:
                if self._step == DATA:
                    take = end - at
                    if 0 <= self._left < take:
                        take = <Py_ssize_t>self._left
                    if first == NULL:
                        first = read + at
                        first_size = take
                    else:
                        if out == NULL:
                            out = PyBytes_FromStringAndSizeRaw(NULL, first_size + end - at)
                            memcpy(PyBytes_AS_STRING(<object>out), first, first_size)
                            gathered = first_size
                        memcpy(PyBytes_AS_STRING(<object>out) + gathered, read + at, take)
                        gathered += take
                    at += take
                    if self._left > 0:
                        self._left -= take
                        if self._left == 0:
                            if self._chunked:
                                self._step = CRLF
                                self._left = 2
                            else:
                                self._finish()
                elif self._step == CRLF:
                    if read[at] != (c'\r' if self._left == 2 else c'\n'):
                        self._fail("a chunk does not end where it said")
                        break
                    at += 1
                    self._left -= 1
                    if self._left == 0:
                        self._step = SIZE
                elif self._step == NOTHING:
                    self.keep_alive = False
                    break
                else:
                    newline = <const unsigned char *>memchr(read + at, c'\n', end - at)
                    if newline == NULL:
                        self._keep(read + at, end - at)
                        self._line(self._tail, self._tail_size, False)
                        break
                    line_size = (newline + 1) - (read + at)
                    if self._tail_size:
                        self._keep(read + at, line_size)
                        more = self._line(self._tail, self._tail_size, True)
                        self._tail_size = 0
                    else:
                        more = self._line(read + at, line_size, True)
                    at += line_size
                    if not more:
                        break
            if out != NULL:
                _PyBytes_Resize(&out, gathered)
                joined = <bytes>out
                return joined
            if first != NULL:
                return PyBytes_FromStringAndSize(<const char *>first, first_size)
            return b""
        finally:
            if out != NULL:
                _decref(out)

    cdef int _keep(self, const unsigned char *line, Py_ssize_t size) except -1:
        cdef Py_ssize_t room = self._tail_room
        cdef void *grown
        if self._tail_size + size > room:
            room = max(2 * room, self._tail_size + size, 256)
            grown = PyMem_Realloc(self._tail, room)
            if grown == NULL:
                raise MemoryError
            self._tail = <unsigned char *>grown
            self._tail_room = room
        memcpy(self._tail + self._tail_size, line, size)
        self._tail_size += size
        return 0

    cdef void _drop_tail(self) noexcept:
        PyMem_Free(self._tail)
        self._tail = NULL
        self._tail_size = 0
        self._tail_room = 0

    # -------------------------------------------------------------------------------------------------- one line

    cdef bint _line(self, const unsigned char *line, Py_ssize_t size, bint complete) except -1:
        cdef int step = self._step
        cdef Py_ssize_t limit
        if step == SIZE:
            if size + (not complete) > SIZE_LINE_LIMIT:
                return self._fail("a chunk size line is too long")
        else:
            limit = TRAILER_LIMIT if step == TRAILER else HEAD_LIMIT
            if self._head_bytes + size + (not complete) > limit:
                return self._fail("the header block is too large")
        if step == STATUS and memcmp(line, b"HTTP/1.", size if size < 7 else 7) != 0:
            return self._fail("this is not an HTTP/1 answer")
        if not complete:
            return True
        if step == SIZE:
            return self._size_line(line, size)
        self._head_bytes += size
        size -= 1
        if size and line[size - 1] == c'\r':
            size -= 1
        if step == STATUS:
            return self._status_line(line, size)
        if size:
            return self._field(line, size)
        return self._finish() if step == TRAILER else self._head_done()

    cdef bint _status_line(self, const unsigned char *line, Py_ssize_t size) except -1:
        cdef Py_ssize_t i
        cdef int status = 0
        if size < 12 or not c'0' <= line[7] <= c'9' or line[8] != c' ':
            return self._fail("the status line is malformed")
        for i in range(9, 12):
            if not c'0' <= line[i] <= c'9':
                return self._fail("the status line is malformed")
            status = status * 10 + (line[i] - c'0')
        if status < 100 or (size > 12 and line[12] != c' '):
            return self._fail("the status line is malformed")
        for i in range(12, size):
            if KIND[line[i]] & BAD:
                return self._fail("the status line is malformed")
        self.minor = line[7] - c'0'
        self.status = status
        self._step = FIELD
        return True

    cdef bint _field(self, const unsigned char *line, Py_ssize_t size) except -1:
        cdef:
            Py_ssize_t i, colon = 0, start, stop
            unsigned char small[NAME_LIMIT]
            unsigned int letters = 0
            long long length
            str name, value
        if self._fields == FIELD_LIMIT:
            return self._fail(f"it has more than {FIELD_LIMIT} header lines")
        self._fields += 1
        while colon < size and KIND[line[colon]] & TOKEN:
            colon += 1
        if colon == 0 or colon == size or line[colon] != c':':
            return self._fail("a header line is malformed")
        start = colon + 1
        for i in range(start, size):
            if KIND[line[i]] & BAD:
                return self._fail("a header line is malformed")
        stop = size
        while start < stop and (line[start] == c' ' or line[start] == c'\t'):
            start += 1
        while start < stop and (line[stop - 1] == c' ' or line[stop - 1] == c'\t'):
            stop -= 1
        if colon <= NAME_LIMIT:
            for i in range(colon):
                small[i] = LOWER[line[i]]
                letters = letters * 31 + small[i]
            if colon == 14 and memcmp(small, b"content-length", 14) == 0:
                if self._step == TRAILER or self.length >= 0 or not 1 <= stop - start <= 18:
                    return self._fail("the Content-Length is not one plain number")
                length = 0
                for i in range(start, stop):
                    if not c'0' <= line[i] <= c'9':
                        return self._fail("the Content-Length is not one plain number")
                    length = length * 10 + (line[i] - c'0')
                self.length = length
            elif colon == 17 and memcmp(small, b"transfer-encoding", 17) == 0:
                if self._step == TRAILER or self._chunked or not _is_chunked(line + start, stop - start):
                    return self._fail("the Transfer-Encoding is not just chunked")
                self._chunked = True
            if self._step == TRAILER:
                return True
            name = known_name(small, colon, letters ^ letters >> 8)
        elif self._step == TRAILER:
            return True
        else:
            name = PyUnicode_DecodeASCII(<char *>line, colon, NULL).lower()
        value = PyUnicode_DecodeLatin1(<char *>line + start, stop - start, NULL)
        if colon == 10 and memcmp(small, b"connection", 10) == 0:
            if "close" in [token.strip(" \t") for token in value.lower().split(",")]:
                self._closing = True
        elif colon == 16 and memcmp(small, b"content-encoding", 16) == 0:
            self.encoding = f"{self.encoding},{value}" if self.encoding else value
        self.headers.append((name, value))
        return True

    cdef bint _size_line(self, const unsigned char *line, Py_ssize_t size) except -1:
        cdef Py_ssize_t at = 0, stop = size - 2
        cdef long long left = 0
        if stop < 1 or line[stop] != c'\r':
            return self._fail("a chunk size line is malformed")
        while at < stop and HEX[line[at]] >= 0:
            left = (left << 4) | HEX[line[at]]
            at += 1
            if at > 15:
                return self._fail("a chunk size line is malformed")
        if at == 0:
            return self._fail("a chunk size line is malformed")
        if at < stop and line[at] == c';':
            while at < stop:
                if line[at] == 0 or line[at] == c'\r':
                    return self._fail("a chunk size line is malformed")
                at += 1
        while at < stop:
            if line[at] != c' ' and line[at] != c'\t':
                return self._fail("a chunk size line is malformed")
            at += 1
        self._left = left
        if left:
            self._step = DATA
        else:
            self._step = TRAILER
            self._fields = 0
            self._head_bytes = 0
        return True

    # --------------------------------------------------------------------------------------------- turning points

    cdef bint _head_done(self) except -1:
        cdef int status = self.status
        if status < 200:
            if status == 101:
                return self._fail("the upstream switched protocols unasked")
            self._step = STATUS
            self.headers = []
            self.length = -1
            self.encoding = ""
            self._chunked = False
            self._closing = False
            return True
        self.keep_alive = self.minor > 0 and not self._closing and not (self._chunked and self.length >= 0)
        self.state = IN_BODY
        self.answered = True
        if self._bodyless or status == 204 or status == 304:
            if status == 204 and (self._chunked or self.length > 0):
                self.keep_alive = False
            return self._finish()
        if self._chunked:
            self._step = SIZE
        elif self.length >= 0:
            self._left = self.length
            self._step = DATA
            if self.length == 0:
                return self._finish()
        else:
            self._left = -1
            self._step = DATA
            self.eof_delimited = True
            self.keep_alive = False
        return True

    cdef bint _finish(self) except -1:
        self.state = IS_DONE
        self._step = NOTHING
        return True

    cdef bint _fail(self, str fault) except -1:
        self.state = HAS_FAILED
        self.fault = fault
        self.keep_alive = False
        self._step = NOTHING
        return False


cdef bint _is_chunked(const unsigned char *value, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    cdef const char *chunked = b"chunked"
    if size != 7:
        return False
    for i in range(7):
        if LOWER[value[i]] != <unsigned char>chunked[i]:
            return False
    return True


cdef extern from "Python.h":
    void _decref "Py_DECREF"(PyObject *o)


def fields(items):
    cdef dict found = {}
    cdef str name
    cdef str value
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t count = 0
    cdef PyObject* known
    for name, value in items:
        if name is None or value is None:
            raise TypeError("a header field is text")
        size += len(name) + len(value) + 4
        known = PyDict_SetDefault(found, name, value)
        if PyDict_Size(found) == count:
            found[name] = f"{<str>known}, {value}"
        else:
            count += 1
    return found, size


def chosen(pairs, dict decided not None, decide):
    cdef list found = []
    cdef Py_ssize_t size = 0
    cdef PyObject* known
    cdef str name
    cdef str value
    cdef tuple pair
    cdef bint is_chosen
    for pair in pairs:
        if pair is None or len(pair) != 2:
            raise TypeError("a header is a name and a value")
        name, value = <object>pair[0], <object>pair[1]
        if name is None or value is None:
            raise TypeError("a header field is text")
        known = PyDict_GetItemWithError(decided, name)
        if known != NULL:
            is_chosen = known == Py_True
        else:
            is_chosen = decide(name)
        if is_chosen:
            found.append(pair)
            size += len(name) + len(value) + 4
    return found, size
