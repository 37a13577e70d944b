# cython: language_level=3, boundscheck=False, wraparound=False
"""How deep a JSON text goes: the compiled equal of `py/nesting.py`.

Most bytes of a request stand inside strings. There only quotes and backslashes matter, and sixteen bytes are looked at
at once where the processor can; the structure between strings is looked at byte by byte.
"""

cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>
    /* The first quote or backslash at or after `at`, or `end`. */
    static const unsigned char *quote_or_slash(const unsigned char *at, const unsigned char *end) {
        const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\\\');
        while (end - at >= 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)at);
            int found = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash)));
            if (found) return at + __builtin_ctz(found);
            at += 16;
        }
        while (at < end && *at != '"' && *at != '\\\\') at++;
        return at;
    }
    #else
    static const unsigned char *quote_or_slash(const unsigned char *at, const unsigned char *end) {
        while (at < end && *at != '"' && *at != '\\\\') at++;
        return at;
    }
    #endif
    """
    const unsigned char* quote_or_slash(const unsigned char* at, const unsigned char* end) noexcept nogil


def is_deeper(bytes data, Py_ssize_t limit):
    cdef const unsigned char* at = data
    cdef const unsigned char* end = at + len(data)
    cdef Py_ssize_t depth = 0
    cdef unsigned char byte
    if end - at <= limit:
        return False
    with nogil:
        while at < end:
            byte = at[0]
            at += 1
            if byte == c'"':
                while True:
                    at = quote_or_slash(at, end)
                    if at >= end:
                        break
                    if at[0] == c'"':
                        at += 1
                        break
                    at += 2
            elif byte == c'{' or byte == c'[':
                depth += 1
                if depth > limit:
                    break
            elif byte == c'}' or byte == c']':
                depth -= 1
    return depth > limit
