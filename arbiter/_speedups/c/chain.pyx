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
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from hashlib import sha256

from arbiter._speedups.c.canonical cimport (
    DEEP_LEVELS, LINK_BYTES, MARKS_TOLD, PLACES_TOLD, SLACK_BYTES, Form, Mark, blank, named, string, value
)
from arbiter._speedups.py.chain import DEEP, EVERY, LAST, MARKS, MOST_MARKS, OPAQUE, PLACES, RUNS, Folded, Led, Told

__all__ = ["DEEP", "EVERY", "LAST", "MARKS", "MOST_MARKS", "OPAQUE", "PLACES", "RUNS", "Folded", "Led", "Told", "fold",
           "form", "kept", "lead", "told"]

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


cdef list marks_of(Form* f, Py_ssize_t before=0):
    """Its marks; so many inputs came before those that they are in."""
    cdef Py_ssize_t i
    cdef int j
    cdef list marks = []
    cdef Mark* mark
    for i in range(f.marked):
        mark = f.marks + i
        if before and mark.levels:
            mark.places[0] += before
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
        return PyBytes_FromStringAndSize(f.out + LINK_BYTES, f.size - LINK_BYTES), marks_of(&f)
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
                return Led(ends, forms, marks_of(&f))
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
                return Folded(ends, bytes(links), bytes(produced), marks_of(&f), is_over)
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
    cdef Py_ssize_t count = len(produced)
    if len(links) < LINK_BYTES * count:
        raise ValueError("a link for each input")
    return words_of(links, LINK_BYTES, produced, count)


cdef inline str digits_of(const unsigned char* link):
    """What rows keep of a link."""
    cdef const char* digits = b"0123456789abcdef"
    cdef char[2 * _SHORT] word
    cdef int i
    for i in range(_SHORT):
        word[2 * i] = digits[link[i] >> 4]
        word[2 * i + 1] = digits[link[i] & 15]
    return PyUnicode_DecodeASCII(word, 2 * _SHORT, NULL)


cdef list words_of(const unsigned char* link, Py_ssize_t stride, const unsigned char* wrote, Py_ssize_t count):
    """What is kept of a chain whose links stand `stride` bytes apart."""
    cdef Py_ssize_t[_RUNS] runs
    cdef Py_ssize_t end = count
    cdef Py_ssize_t at
    cdef int found = 0
    cdef list words = []
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
            words.append(f"{at}:{digits_of(link + stride * (at - 1))}")
    return words


cdef struct Links:
    unsigned char* short  # the first bytes of each
    unsigned char* produced  # a byte for each
    Py_ssize_t room
    Py_ssize_t count


cdef int add(Links* links, const char* link, bint is_produced) except -1:
    cdef Py_ssize_t room
    cdef void* more
    if links.count == links.room:
        room = 2 * links.room + 64
        more = realloc(links.short, room * _SHORT)
        if more == NULL:
            raise MemoryError
        links.short = <unsigned char*>more
        more = realloc(links.produced, room)
        if more == NULL:
            raise MemoryError
        links.produced = <unsigned char*>more
        links.room = room
    memcpy(links.short + _SHORT * links.count, link, _SHORT)
    links.produced[links.count] = is_produced
    links.count += 1
    return 0


def told(entries, Py_ssize_t led, Py_ssize_t at, bytes link not None, Py_ssize_t most):
    cdef Py_buffer text
    cdef const unsigned char* begin
    cdef const unsigned char* p
    cdef const unsigned char* end
    cdef Form f
    cdef Links links
    cdef Py_ssize_t folded = 0
    cdef bint is_first = at == 0
    cdef bint is_over = False
    if len(link) != LINK_BYTES:
        raise ValueError("a link has 32 bytes")
    PyObject_GetBuffer(entries, &text, PyBUF_SIMPLE)
    links.short = links.produced = NULL
    links.room = links.count = 0
    try:
        begin = <const unsigned char*>text.buf
        end = begin + text.len
        p = begin + max(0, min(at, text.len))
        opened(&f, end - p)
        while links.count < led:
            add(&links, PyBytes_AS_STRING(link), False)
        while True:
            p = next_(p, end, is_first, &is_over)
            if p == NULL or (folded == most and not is_over):
                return None
            if is_over:
                return (links.count, words_of(links.short, _SHORT, links.produced, links.count), marks_of(&f, led),
                        digits_of(links.short + _SHORT * (links.count - 1)) if links.count else "")
            is_first = False
            memcpy(f.out, PyBytes_AS_STRING(link), LINK_BYTES)
            f.size = LINK_BYTES
            f.count = 0
            f.places[0] = folded
            f.arrays = 1
            f.is_produced = False
            p = value(&f, p, end, 0, False, False)
            if p == NULL:
                if f.no_memory:
                    raise MemoryError
                return None
            link = sha256(PyBytes_FromStringAndSize(f.out, f.size)).digest()
            add(&links, PyBytes_AS_STRING(link), f.is_produced)
            folded += 1
    finally:
        closed(&f)
        free(links.short)
        free(links.produced)
        PyBuffer_Release(&text)
