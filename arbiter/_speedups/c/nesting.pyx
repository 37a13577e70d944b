# cython: language_level=3, boundscheck=False, wraparound=False
"""What a JSON text is made of: the compiled equal of `py/nesting.py`.

Most bytes of a request stand inside strings. There only quotes and backslashes matter, and sixteen bytes are looked at
at once where the processor can; the structure between strings is looked at byte by byte.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memchr, memcpy

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c.utf8 cimport malformed

FINE = 0
DEEP = 1
WIDE = 2


cdef extern from *:
    """
    static const unsigned char *plain_string_end(const unsigned char *at, const unsigned char *end) {
        while (at < end && *at != '"') at += *at == '\\\\' ? 2 : 1;
        return at < end ? at + 1 : end;
    }
    #if defined(__SSE2__)
    #include <emmintrin.h>
    static const unsigned char *string_end(const unsigned char *at, const unsigned char *end) {
        const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\\\');
        int escaped = 0;  /* the first byte of the sixteen is */
        for (; end - at >= 16; at += 16) {
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
    /* Whether a backslash is followed by a `u` anywhere. */
    static int has_u_escape(const unsigned char *at, const unsigned char *end) {
        const __m128i slash = _mm_set1_epi8('\\\\'), u = _mm_set1_epi8('u');
        for (; end - at > 16; at += 16) {
            __m128i here = _mm_loadu_si128((const __m128i *)at), next = _mm_loadu_si128((const __m128i *)(at + 1));
            if (_mm_movemask_epi8(_mm_and_si128(_mm_cmpeq_epi8(here, slash), _mm_cmpeq_epi8(next, u)))) return 1;
        }
        for (; end - at > 1; at++) if (at[0] == '\\\\' && at[1] == 'u') return 1;
        return 0;
    }
    #else
    static const unsigned char *string_end(const unsigned char *at, const unsigned char *end) {
        return plain_string_end(at, end);
    }
    static int has_u_escape(const unsigned char *at, const unsigned char *end) {
        for (; end - at > 1; at++) if (at[0] == '\\\\' && at[1] == 'u') return 1;
        return 0;
    }
    #endif
    """
    # The position behind the string that begins before `at`; `end` where none ends it.
    const unsigned char* string_end(const unsigned char* at, const unsigned char* end) noexcept nogil
    bint has_u_escape(const unsigned char* at, const unsigned char* end) noexcept nogil


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


def commas(bytes data not None):
    cdef const unsigned char* at = data
    cdef const unsigned char* end = at + len(data)
    cdef Py_ssize_t count = 0
    cdef unsigned char byte
    with nogil:
        while at < end:
            byte = at[0]
            at += 1
            if byte == c'"':
                at = string_end(at, end)
            elif byte == c',':
                count += 1
    return count


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


def not_utf8(bytes data not None):
    cdef const unsigned char* begin = data
    cdef const unsigned char* found
    cdef Py_ssize_t size = len(data)
    with nogil:
        found = malformed(begin, begin + size)
    return -1 if found == NULL else found - begin


def whole(bytes data not None):
    cdef Py_ssize_t size = len(data)
    cdef bytes masked = None
    cdef const char* begin = PyBytes_AS_STRING(data)
    cdef const char* at = begin
    cdef const char* end = at + size
    cdef char* out = NULL
    cdef int code, low
    if not has_u_escape(<const unsigned char*>begin, <const unsigned char*>end):
        return data
    while at < end:
        at = <const char*>memchr(at, c'\\', end - at)
        if at == NULL or end - at < 2:
            break
        if at[1] != c'u':
            at += 2
            continue
        code = js.hex4(at + 2, end)
        if code < 0xD800 or code > 0xDFFF:
            at += 2
            continue
        if code < 0xDC00 and end - at >= 12 and at[6] == c'\\' and at[7] == c'u':
            low = js.hex4(at + 8, end)
            if 0xDC00 <= low <= 0xDFFF:
                at += 12
                continue
        if out == NULL:
            masked = PyBytes_FromStringAndSize(begin, size)
            out = PyBytes_AS_STRING(masked)
        memcpy(out + (at - begin), b"\\ufffd", 6)
        at += 6
    return data if masked is None else masked
