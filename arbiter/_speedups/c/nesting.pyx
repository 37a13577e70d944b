# cython: language_level=3, boundscheck=False, wraparound=False
"""What a JSON text is made of: the compiled equal of `py/nesting.py`.

Most bytes of a request stand inside strings. There only quotes and backslashes matter, and sixteen bytes are looked at
at once where the processor can, 64 of a long one (wide.h); the structure between strings is looked at byte by byte.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy

from msgspec import Raw as _Raw

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c.strict cimport DEEPEST as _DEEPEST
from arbiter._speedups.c.strict cimport WIDEST as _WIDEST
from arbiter._speedups.c.strict cimport Member, Scan, opened, past_blanks
from arbiter._speedups.c.utf8 cimport malformed

FINE = 0
DEEP = 1
WIDE = 2

cdef enum:
    NAMED = 256
    NAME_BYTES = 256
    COPIED = 4096  # bytes; to copy more takes longer than to make a view of it

MAX_NAMED = NAMED
MAX_NAME_BYTES = NAME_BYTES
DEEPEST = _DEEPEST
WIDEST = _WIDEST


cdef extern from "wide.h":
    int set_wide(bint on) nogil


cdef extern from *:
    """
    static const unsigned char *plain_string_end(const unsigned char *at, const unsigned char *end) {
        while (at < end && *at != '"') at += *at == '\\\\' ? 2 : 1;
        return at < end ? at + 1 : end;
    }
    static const char *plain_quoted(const char *begin, const char *at, const char *end, char a, char b) {
        for (; end - at > 1; at++)
            if (at[0] == '"' && (at[1] == a || at[1] == b) && (at == begin || at[-1] != '\\\\')) return at;
        return NULL;
    }
    #if defined(__SSE2__)
    #include <emmintrin.h>
    static const unsigned char *string_end(const unsigned char *at, const unsigned char *end) {
        const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\\\');
        const unsigned char *begin = at;
        int escaped = 0;  /* the first byte of the sixteen is */
        for (; end - at >= 16; at += 16) {
            if (at - begin == 64 && wide) {  /* most strings are over by then */
                at += escaped;
                escaped = 0;
                if (wide_string_end(&at, end)) return at + 1;
                if (end - at < 16) break;
            }
            __m128i bytes = _mm_loadu_si128((const __m128i *)at);
            int found = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash))) & ~escaped;
            escaped = 0;
            while (found) {
                int first = __builtin_ctz(found);
                if (at[first] == '"') return at + first + 1;
                escaped = first == 15;
                found &= ~(3 << first);
            }
        }
        return plain_string_end(at + escaped, end);
    }
    /* The next backslash that a `u` follows; NULL where there is none. */
    static const char *backslash_u(const char *at, const char *end) {
        const __m128i slash = _mm_set1_epi8('\\\\'), u = _mm_set1_epi8('u');
        const char *begin = at;
        for (; end - at > 16; at += 16) {
            if (at - begin == 256 && wide) {  /* where there are many of them, the next one is near */
                if (wide_backslash_u(&at, end)) return at;
                if (end - at <= 16) break;
            }
            __m128i here = _mm_loadu_si128((const __m128i *)at), next = _mm_loadu_si128((const __m128i *)(at + 1));
            int found = _mm_movemask_epi8(_mm_and_si128(_mm_cmpeq_epi8(here, slash), _mm_cmpeq_epi8(next, u)));
            if (found) return at + __builtin_ctz(found);
        }
        for (; end - at > 1; at++) if (at[0] == '\\\\' && at[1] == 'u') return at;
        return NULL;
    }
    /* From `at` on the next quote, not escaped, that one of two letters follows; NULL where there is none. */
    static const char *quoted(const char *begin, const char *at, const char *end, char a, char b) {
        const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\\\');
        const __m128i as = _mm_set1_epi8(a), bs = _mm_set1_epi8(b);
        if (at == begin && end > at) {  /* no byte is before it */
            if (end - at > 1 && at[0] == '"' && (at[1] == a || at[1] == b)) return at;
            at++;
        }
        if (wide) return wide_quoted(&at, end, a, b) ? at : plain_quoted(begin, at, end, a, b);
        #define AT(n) _mm_loadu_si128((const __m128i *)(at + (n)))
        #define FOUND(n) _mm_andnot_si128(_mm_cmpeq_epi8(AT((n) - 1), slash), _mm_and_si128( \\
            _mm_cmpeq_epi8(AT(n), quote), _mm_or_si128(_mm_cmpeq_epi8(AT((n) + 1), as), _mm_cmpeq_epi8(AT((n) + 1), bs))))
        for (; end - at > 64; at += 64) {
            __m128i one = FOUND(0), two = FOUND(16), three = FOUND(32), four = FOUND(48);
            if (_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(one, two), _mm_or_si128(three, four)))) {
                unsigned long long found = (unsigned long long)_mm_movemask_epi8(one)
                    | (unsigned long long)_mm_movemask_epi8(two) << 16
                    | (unsigned long long)_mm_movemask_epi8(three) << 32
                    | (unsigned long long)_mm_movemask_epi8(four) << 48;
                return at + __builtin_ctzll(found);
            }
        }
        #undef AT
        #undef FOUND
        return plain_quoted(begin, at, end, a, b);
    }
    #else
    static const char *quoted(const char *begin, const char *at, const char *end, char a, char b) {
        return plain_quoted(begin, at, end, a, b);
    }
    static const unsigned char *string_end(const unsigned char *at, const unsigned char *end) {
        return plain_string_end(at, end);
    }
    static const char *backslash_u(const char *at, const char *end) {
        for (; end - at > 1; at++) if (at[0] == '\\\\' && at[1] == 'u') return at;
        return NULL;
    }
    #endif
    """
    # The position behind the string that begins before `at`; `end` where none ends it.
    const unsigned char* string_end(const unsigned char* at, const unsigned char* end) noexcept nogil
    const char* backslash_u(const char* at, const char* end) noexcept nogil
    const char* quoted(const char* begin, const char* at, const char* end, char a, char b) noexcept nogil


def fault(bytes data not None, Py_ssize_t depth, Py_ssize_t width):
    cdef const unsigned char* at = data
    cdef const unsigned char* end = at + len(data)
    cdef Py_ssize_t level = 0
    cdef Py_ssize_t commas = 0
    cdef unsigned char byte
    if end - at <= depth and end - at < width:
        return 0
    with nogil:
        while at < end:
            byte = at[0]
            at += 1
            if byte == c'"':
                at = string_end(at, end)
            elif byte == c'{' or byte == c'[':
                level += 1
                if level > depth:
                    break
            elif byte == c'}' or byte == c']':
                level -= 1
            elif byte == c',' and level == 1:
                commas += 1
                if commas >= width:
                    break
    if level > depth:
        return 1
    return 2 if commas and commas >= width else 0


cdef bint is_opened(bytes data, Py_ssize_t depth, Py_ssize_t width, Scan* scan) noexcept:
    """Whether `members` tells of it; what they are is in `scan`."""
    cdef const unsigned char* begin = data
    cdef const unsigned char* end = begin + len(data)
    cdef Py_ssize_t i
    with nogil:
        if not opened(scan, begin, end, depth, width) or (scan.has_high and malformed(begin, end) != NULL):
            return False
        for i in range(scan.count):
            if memchr(scan.members[i].name, c'\\', scan.members[i].name_size) != NULL:
                return False
    return True


def members(bytes data not None, Py_ssize_t depth, Py_ssize_t width):
    cdef const unsigned char* begin = data
    cdef Scan scan
    cdef Py_ssize_t i
    cdef Member* one
    cdef list found = []
    if not is_opened(data, depth, width, &scan):
        return None
    for i in range(scan.count):
        one = scan.members + i
        name = PyUnicode_DecodeUTF8(<const char*>one.name, one.name_size, NULL)
        found.append((name, one.start - begin, one.stop - begin))
    return found


def raws(bytes data not None, Py_ssize_t depth, Py_ssize_t width):
    cdef const unsigned char* begin = data
    cdef Scan scan
    cdef Py_ssize_t i
    cdef Member* one
    cdef object name, raw
    cdef object view = None
    cdef dict found = {}
    if not is_opened(data, depth, width, &scan):
        return None
    for i in range(scan.count):
        one = scan.members + i
        name = PyUnicode_DecodeUTF8(<const char*>one.name, one.name_size, NULL)
        if one.stop - one.start <= COPIED:
            raw = PyBytes_FromStringAndSize(<const char*>one.start, one.stop - one.start)
        else:
            if view is None:
                view = memoryview(data)
            raw = view[one.start - begin:one.stop - begin]
        found[name] = _Raw(raw)
    return found


def length(dict members not None):
    cdef Py_ssize_t found = 1
    cdef Py_ssize_t size
    cdef Py_buffer view
    for name, raw in members.items():
        PyUnicode_AsUTF8AndSize(name, &size)
        PyObject_GetBuffer(raw, &view, PyBUF_SIMPLE)
        found += size + view.len + 4
        PyBuffer_Release(&view)
    return found


def beginning(data, Py_ssize_t turns, Py_ssize_t most):
    cdef Py_buffer text
    cdef const unsigned char* begin
    cdef const unsigned char* at
    cdef const unsigned char* end
    cdef Py_ssize_t level = 0
    cdef unsigned char byte
    PyObject_GetBuffer(data, &text, PyBUF_SIMPLE)
    try:
        begin = at = <const unsigned char*>text.buf
        end = begin + min(text.len, most)
        if at >= end or at[0] != c'[':
            return None
        while at < end and turns > 0:
            byte = at[0]
            at += 1
            if byte == c'"':
                at = string_end(at, end)
            elif byte == c'{' or byte == c'[':
                level += 1
            elif byte == c'}' or byte == c']':
                level -= 1
                if level == 0:
                    turns -= 1
                    break
            elif byte == c',' and level == 1:
                turns -= 1
                if turns == 0:
                    break
        else:
            return None
        return PyBytes_FromStringAndSize(<const char*>begin, at - 1 - begin) if turns == 0 else None
    finally:
        PyBuffer_Release(&text)


def begins(data, bytes first not None, bytes second not None):
    cdef Py_buffer text
    cdef const char* begin
    cdef const char* at
    cdef const char* end
    cdef const char* one = first
    cdef const char* two = second
    cdef Py_ssize_t one_size = len(first)
    cdef Py_ssize_t two_size = len(second)
    cdef bint is_found = False
    if not one_size or not two_size:
        raise ValueError("a word has letters")
    PyObject_GetBuffer(data, &text, PyBUF_SIMPLE)
    try:
        begin = at = <const char*>text.buf
        end = begin + text.len
        with nogil:
            while True:
                at = quoted(begin, at, end, one[0], two[0])
                if at == NULL:
                    break
                at += 1
                if (end - at >= one_size and memcmp(at, one, one_size) == 0) or (
                    end - at >= two_size and memcmp(at, two, two_size) == 0
                ):
                    is_found = True
                    break
        return is_found
    finally:
        PyBuffer_Release(&text)


def units(data):
    cdef Py_buffer text
    cdef const char* at
    cdef const char* end
    cdef Py_ssize_t count = 0
    PyObject_GetBuffer(data, &text, PyBUF_SIMPLE)
    try:
        at = <const char*>text.buf
        end = at + text.len
        with nogil:
            while True:
                at = backslash_u(at, end)
                if at == NULL:
                    break
                count += 1
                at += 2
        return count
    finally:
        PyBuffer_Release(&text)


def commas(data):
    cdef Py_buffer text
    cdef const unsigned char* at
    cdef const unsigned char* end
    cdef Py_ssize_t count = 0
    cdef unsigned char byte
    PyObject_GetBuffer(data, &text, PyBUF_SIMPLE)
    try:
        at = <const unsigned char*>text.buf
        end = at + text.len
        with nogil:
            while at < end:
                byte = at[0]
                at += 1
                if byte == c'"':
                    at = string_end(at, end)
                elif byte == c',':
                    count += 1
        return count
    finally:
        PyBuffer_Release(&text)


cdef bint is_underscored(const unsigned char* at, const unsigned char* end) noexcept nogil:
    cdef const unsigned char* begin = at
    while at < end and c'a' <= at[0] <= c'z':
        at += 1
    if at == begin or end - at < 2 or at[0] != c'_':
        return False
    while at < end and (c'a' <= at[0] <= c'z' or at[0] == c'_'):
        at += 1
    return at == end


def underscored(bytes data not None):
    cdef const unsigned char* at = data
    cdef const unsigned char* end = at + len(data)
    cdef const unsigned char* name
    cdef const unsigned char* name_end
    cdef bint is_found = False
    with nogil:
        while at < end and not is_found:
            at += 1
            if at[-1] != c'"':
                continue
            name = at
            at = string_end(at, end)
            name_end = at - 1
            at = past_blanks(at, end)
            is_found = at < end and at[0] == c':' and is_underscored(name, name_end)
    return is_found


def cuts(bytes data not None, Py_ssize_t limit):
    cdef const unsigned char* begin = data
    cdef const unsigned char* at = begin
    cdef const unsigned char* end = at + len(data)
    cdef Py_ssize_t level = 0
    cdef unsigned char byte
    cdef list ends = []
    while at < end and len(ends) < limit:
        byte = at[0]
        at += 1
        if byte == c'"':
            at = string_end(at, end)
        elif byte == c'{' or byte == c'[':
            level += 1
        elif byte == c'}' or byte == c']':
            level -= 1
            if level == 0:
                ends.append(at - 1 - begin)
                break
        elif byte == c',' and level == 1:
            ends.append(at - 1 - begin)
    return ends


def follow(bytes data not None, long long state):
    cdef const unsigned char* begin = data
    cdef const unsigned char* at = begin
    cdef const unsigned char* end = at + len(data)
    cdef long long level = state >> 2
    cdef bint is_escaped = state & 2
    cdef bint is_inside = state & 1
    cdef bint is_over = False
    cdef unsigned char byte
    with nogil:
        while at < end and not is_over:
            byte = at[0]
            at += 1
            if is_escaped:
                is_escaped = False
            elif is_inside:
                is_escaped = byte == c'\\'
                is_inside = byte != c'"'
                is_over = not is_inside and level <= 0
            elif byte == c'"':
                is_inside = True
            elif byte == c'{' or byte == c'[':
                level += 1
            elif byte == c'}' or byte == c']':
                level -= 1
                is_over = level <= 0
    if is_over:
        return at - begin, 0
    return -1, level << 2 | (2 if is_escaped else 0) | (1 if is_inside else 0)


def not_utf8(bytes data not None):
    cdef const unsigned char* begin = data
    cdef const unsigned char* found
    cdef Py_ssize_t size = len(data)
    with nogil:
        found = malformed(begin, begin + size)
    return -1 if found == NULL else found - begin


def _look_wide(bint on):
    """Whether 64 bytes are looked at at once from now on: where the processor can, and a test does not say otherwise."""
    return bool(set_wide(on))


cdef struct Place:
    Py_ssize_t entry  # of an array; -1 for an object
    const char* name  # of an object's member, NULL before there is one
    Py_ssize_t size


def path(bytes data not None, Py_ssize_t at):
    cdef const unsigned char* begin = data
    cdef const unsigned char* p = begin
    cdef const unsigned char* end = begin + max(0, min(at, len(data)))
    cdef const unsigned char* name = NULL
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t level = 0
    cdef Place[NAMED] around
    cdef Place* place
    cdef unsigned char byte
    with nogil:
        while p < end:
            byte = p[0]
            p += 1
            if byte == c'"':
                name = p
                p = string_end(p, end)
                size = p - name - 1
            elif byte == c'{' or byte == c'[':
                level += 1
                if level <= NAMED:
                    around[level - 1] = Place(-1 if byte == c'{' else 0, NULL, 0)
            elif byte == c'}' or byte == c']':
                if level:
                    level -= 1
            elif (byte == c',' or byte == c':') and 0 < level <= NAMED:
                place = &around[level - 1]
                if byte == c',':
                    if place.entry >= 0:
                        place.entry += 1
                    place.name = NULL
                elif place.entry < 0:
                    place.name = <const char*>name
                    place.size = min(size, <Py_ssize_t>NAME_BYTES)
    cdef Py_ssize_t i
    cdef list found = []
    for i in range(min(level, <Py_ssize_t>NAMED)):
        if around[i].entry >= 0:
            found.append(around[i].entry)
        elif around[i].name != NULL:
            found.append(around[i].name[:around[i].size])
    return found


cdef const char* half_pair(const char* begin, const char* at, const char* end) noexcept nogil:
    """The next escape of half a surrogate pair, or NULL. `at` is no escaped byte."""
    cdef const char* run
    cdef int code, low
    while True:
        at = backslash_u(at, end)
        if at == NULL:
            return NULL
        run = at
        while run > begin and (run - 1)[0] == c'\\':
            run -= 1
        code = js.hex4(at + 2, end)
        if (at - run) % 2 or code < 0xD800 or code > 0xDFFF:
            at += 2
            continue
        if code < 0xDC00 and end - at >= 12 and at[6] == c'\\' and at[7] == c'u':
            low = js.hex4(at + 8, end)
            if 0xDC00 <= low <= 0xDFFF:
                at += 12
                continue
        return at


def half(bytes data not None):
    cdef const char* begin = PyBytes_AS_STRING(data)
    cdef const char* found
    cdef Py_ssize_t size = len(data)
    with nogil:
        found = half_pair(begin, begin, begin + size)
    return -1 if found == NULL else found - begin


def whole(bytes data not None):
    cdef const char* begin = PyBytes_AS_STRING(data)
    cdef const char* end = begin + len(data)
    cdef const char* at
    with nogil:
        at = half_pair(begin, begin, end)
    if at == NULL:
        return data
    cdef bytes masked = PyBytes_FromStringAndSize(begin, end - begin)
    cdef char* out = PyBytes_AS_STRING(masked)
    while at != NULL:
        memcpy(out + (at - begin), b"\\ufffd", 6)
        at = half_pair(begin, at + 6, end)
    return masked
