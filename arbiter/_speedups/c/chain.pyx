# cython: language_level=3, boundscheck=False, wraparound=False
"""The canonical form of inputs and the chain over them: the compiled equal of `py/chain.py`.

One pass: each value is copied into its form as it is read (canonical.pxd), up to 64 bytes of a string at once where the
processor can. An object's members are put in order behind its last one, where they were not. The buffer for that is
allocated once, at four times the text; only what is used of it costs memory. Hashing is OpenSSL's, by `hashlib`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from hashlib import sha256

from arbiter._speedups.c.canonical cimport (
    DEEP_LEVELS, LINK_BYTES, MARKS_TOLD, PLACES_TOLD, SLACK_BYTES, Form, Mark, blank, named, string, value
)
from arbiter._speedups.py.chain import DEEP, EVERY, LAST, MARKS, MOST_MARKS, OPAQUE, PLACES, RUNS, Folded, Led

__all__ = ["DEEP", "EVERY", "LAST", "MARKS", "MOST_MARKS", "OPAQUE", "PLACES", "RUNS", "Folded", "Led", "fold", "form",
           "kept", "lead"]

cdef enum:
    _EVERY = 16
    _LAST = 4
    _RUNS = 4
    _SHORT = 6  # bytes of a link that are kept

if (DEEP_LEVELS, MARKS_TOLD, PLACES_TOLD, _EVERY, _LAST, _RUNS) != (DEEP, MOST_MARKS, PLACES, EVERY, LAST, RUNS):
    raise ImportError("the twins' bounds differ")


cdef extern from "wide.h":
    int set_wide(bint on) nogil


def _look_wide(bint on):
    """Whether 64 bytes are looked at at once from now on: where the processor can, and a test does not say otherwise."""
    return bool(set_wide(on))


cdef int opened(Form* f, Py_ssize_t size) except -1:
    f.room = LINK_BYTES + 4 * size + SLACK_BYTES
    f.out = <char*>malloc(f.room)
    f.spare = NULL
    f.members = NULL
    f.capacity = f.count = f.marked = f.arrays = 0
    f.size = LINK_BYTES
    f.is_produced = f.has_role = f.no_memory = False
    if f.out == NULL:
        raise MemoryError
    return 0


cdef void closed(Form* f):
    free(f.out)
    free(f.spare)
    free(f.members)


cdef list told(Form* f):
    cdef Py_ssize_t i
    cdef int j
    cdef list marks = []
    cdef Mark* mark
    for i in range(f.marked):
        mark = f.marks + i
        marks.append((tuple([mark.places[j] for j in range(mark.levels)]),
                      PyBytes_FromStringAndSize(<const char*>mark.at, mark.size)))
    return marks


def form(raw, *, bint is_content=False):
    cdef Py_buffer text
    cdef const unsigned char* p
    cdef const unsigned char* end
    cdef Form f
    PyObject_GetBuffer(raw, &text, PyBUF_SIMPLE)
    try:
        p = <const unsigned char*>text.buf
        end = p + text.len
        opened(&f, text.len)
        with nogil:
            p = value(&f, blank(p, end), end, 0, False, is_content)
        if p == NULL:
            if f.no_memory:
                raise MemoryError
            return None
        return PyBytes_FromStringAndSize(f.out + LINK_BYTES, f.size - LINK_BYTES), told(&f)
    finally:
        closed(&f)
        PyBuffer_Release(&text)


cdef const unsigned char* next_(const unsigned char* p, const unsigned char* end, bint is_first, bint* is_over) noexcept nogil:
    """Where the next item of an array begins; `is_over` where none does, NULL where there should be one."""
    is_over[0] = False
    p = blank(p, end)
    if p >= end:
        return NULL
    if p[0] == (c'[' if is_first else c','):
        p = blank(p + 1, end)
        if is_first and p < end and p[0] == c']':
            is_over[0] = True
        return p
    if is_first or p[0] != c']':
        return NULL
    is_over[0] = True
    return p


cdef int is_instruction(Form* f, const unsigned char* p, const unsigned char* end) noexcept nogil:
    """Whether an item is an instruction, by the first `role` in it; -1 where it is no JSON as far as it is read."""
    cdef Py_ssize_t start = f.size
    cdef bint is_role
    cdef int found = 0
    if p >= end or p[0] != c'{':
        return 0
    p = blank(p + 1, end)
    while p < end and p[0] == c'"':
        f.size = start
        p = string(f, p, end)
        if p == NULL:
            found = -1
            break
        is_role = named(f.out + start, f.size - start, b'"role"', 6)
        p = blank(p, end)
        if p >= end or p[0] != c':':
            found = -1
            break
        f.size = start
        p = value(f, blank(p + 1, end), end, 1, True, False)
        if p == NULL:
            found = -1
            break
        if is_role:
            found = (
                named(f.out + start, f.size - start, b'"system"', 8)
                or named(f.out + start, f.size - start, b'"developer"', 11)
            )
            break
        p = blank(p, end)
        if p >= end or p[0] != c',':
            break
        p = blank(p + 1, end)
    f.size = start
    f.count = f.arrays = 0
    return found


def lead(entries):
    cdef Py_buffer text
    cdef const unsigned char* begin
    cdef const unsigned char* p
    cdef const unsigned char* end
    cdef Form f
    cdef bint is_over = False
    cdef int found
    cdef list ends = []
    cdef list forms = []
    PyObject_GetBuffer(entries, &text, PyBUF_SIMPLE)
    try:
        begin = p = <const unsigned char*>text.buf
        end = begin + text.len
        opened(&f, text.len)
        while True:
            p = next_(p, end, p == begin, &is_over)
            found = -1 if p == NULL else 0 if is_over else is_instruction(&f, p, end)
            if found == 0:
                return Led(ends, forms, told(&f))
            if found > 0:
                f.places[0] = len(ends)
                f.arrays = 1
                p = value(&f, p, end, 0, False, False)
            if found < 0 or p == NULL:
                if f.no_memory:
                    raise MemoryError
                return None
            ends.append(p - begin)
            forms.append(PyBytes_FromStringAndSize(f.out + LINK_BYTES, f.size - LINK_BYTES))
            f.size = LINK_BYTES
            f.count = f.arrays = 0
    finally:
        closed(&f)
        PyBuffer_Release(&text)


def fold(entries, Py_ssize_t at, bytes link not None, Py_ssize_t most):
    cdef Py_buffer text
    cdef const unsigned char* begin
    cdef const unsigned char* p
    cdef const unsigned char* end
    cdef Form f
    cdef bint is_first = at == 0
    cdef bint is_over = False
    cdef list ends = []
    cdef bytearray links = bytearray()
    cdef bytearray produced = bytearray()
    if len(link) != LINK_BYTES:
        raise ValueError("a link has 32 bytes")
    PyObject_GetBuffer(entries, &text, PyBUF_SIMPLE)
    try:
        begin = <const unsigned char*>text.buf
        end = begin + text.len
        p = begin + max(0, min(at, text.len))
        opened(&f, end - p)
        while True:
            p = next_(p, end, is_first, &is_over)
            if p == NULL:
                return None
            if is_over or len(ends) == most:
                return Folded(ends, bytes(links), bytes(produced), told(&f), is_over)
            is_first = False
            memcpy(f.out, PyBytes_AS_STRING(link), LINK_BYTES)
            f.size = LINK_BYTES
            f.count = 0
            f.places[0] = len(ends)
            f.arrays = 1
            f.is_produced = False
            with nogil:
                p = value(&f, p, end, 0, False, False)
            if p == NULL:
                if f.no_memory:
                    raise MemoryError
                return None
            link = sha256(PyMemoryView_FromMemory(f.out, f.size, 0x100)).digest()
            ends.append(p - begin)
            links += link
            produced.append(f.is_produced)
    finally:
        closed(&f)
        PyBuffer_Release(&text)


def kept(bytes links not None, bytes produced not None):
    cdef const char* digits = b"0123456789abcdef"
    cdef const unsigned char* link = links
    cdef const unsigned char* wrote = produced
    cdef Py_ssize_t count = len(produced)
    cdef Py_ssize_t[_RUNS] runs
    cdef Py_ssize_t end = count
    cdef Py_ssize_t at
    cdef int found = 0
    cdef int i
    cdef char[2 * _SHORT] word
    cdef list words = []
    if len(links) < LINK_BYTES * count:
        raise ValueError("a link for each input")
    while found < _RUNS:
        while end > 0 and not wrote[end - 1]:
            end -= 1
        if end == 0:
            break
        while end > 0 and wrote[end - 1]:
            end -= 1
        runs[found] = end
        found += 1
    for at in range(1, count + 1):
        while found and runs[found - 1] < at:  # the first of them came last
            found -= 1
        if at % _EVERY == 0 or at > count - _LAST or (found and runs[found - 1] == at):
            for i in range(_SHORT):
                word[2 * i] = digits[link[LINK_BYTES * (at - 1) + i] >> 4]
                word[2 * i + 1] = digits[link[LINK_BYTES * (at - 1) + i] & 15]
            words.append(f"{at}:{PyUnicode_DecodeASCII(word, 2 * _SHORT, NULL)}")
    return words
