# cython: language_level=3
# A small exact JSON scanner over bytes that are known to be UTF-8; for reduce and usage.
#
# Every function takes a position and the end, and returns the position after what it read, or NULL when it is not
# exactly what was asked for: bad JSON, something rare (a huge number, deep nesting), or just another type. NULL is
# never an answer, only "ask the full decoder". So what is accepted here must be valid JSON; what is not may be anything.

from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    /* Which of eight loaded bytes is the first one marked with its high bit. */
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define FIRST_MARKED(mask) (__builtin_clzll(mask) >> 3)
    /* A borrow may mark bytes beyond the real one, which on this side would come first: look again, one by one. */
    #define MARKS_ARE_EXACT 0
    #else
    #define FIRST_MARKED(mask) (__builtin_ctzll(mask) >> 3)
    #define MARKS_ARE_EXACT 1
    #endif
    /* Go on, sixteen at a time, to the first quote, backslash or control character, or as far as sixteens go. */
    #if defined(__SSE2__)
    #include <emmintrin.h>
    static inline const char *by_sixteen(const char *at, const char *end, int *is_there) {
        const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\\\'), control = _mm_set1_epi8(0x1F);
        for (; end - at >= 16; at += 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)at);
            int found = _mm_movemask_epi8(_mm_or_si128(
                _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash)),
                _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes)));
            if (found) { *is_there = 1; return at + __builtin_ctz(found); }
        }
        return at;
    }
    #else
    static inline const char *by_sixteen(const char *at, const char *end, int *is_there) { return at; }
    #endif
    """
    int FIRST_MARKED(uint64_t mask) nogil
    bint MARKS_ARE_EXACT
    const char* by_sixteen(const char* at, const char* end, int* is_there) nogil


cdef enum:
    MAX_NESTING = 32


cdef struct Text:
    const char* at  # the raw characters, between the quotes
    Py_ssize_t raw  # their number
    Py_ssize_t size  # UTF-8 bytes after unescaping; a lone surrogate counts three
    bint escaped
    bint lone  # holds a lone surrogate


cdef inline const char* blank(const char* p, const char* end) noexcept nogil:
    while p < end and (p[0] == 32 or p[0] == 10 or p[0] == 13 or p[0] == 9):
        p += 1
    return p


cdef inline int hex4(const char* p, const char* end) noexcept nogil:
    """The value of four hex digits, or -1."""
    cdef int value = 0
    cdef int i
    cdef char c
    if end - p < 4:
        return -1
    for i in range(4):
        c = p[i]
        if 48 <= c <= 57:
            value = value * 16 + c - 48
        elif 97 <= c <= 102:
            value = value * 16 + c - 87
        elif 65 <= c <= 70:
            value = value * 16 + c - 55
        else:
            return -1
    return value


cdef inline const char* escape(const char* p, const char* end, Text* text) noexcept nogil:
    """Read one escape; `p` stands on its backslash."""
    cdef int code, low
    if end - p < 2:
        return NULL
    text.escaped = True
    if p[1] != 117:
        # One of "\/bfnrt: two raw characters make one byte.
        if (p[1] == 34 or p[1] == 92 or p[1] == 47 or p[1] == 98 or p[1] == 102 or p[1] == 110 or p[1] == 114
                or p[1] == 116):
            text.size -= 1
            return p + 2
        return NULL
    code = hex4(p + 2, end)
    if code < 0:
        return NULL
    if code < 0x80:
        text.size -= 5
    elif code < 0x800:
        text.size -= 4
    elif 0xD800 <= code < 0xDC00:
        if end - p >= 12 and p[6] == 92 and p[7] == 117:
            low = hex4(p + 8, end)
            if 0xDC00 <= low < 0xE000:
                text.size -= 8
                return p + 12
        text.lone = True
        text.size -= 3
    else:
        if 0xDC00 <= code < 0xE000:
            text.lone = True
        text.size -= 3
    return p + 6


cdef inline const char* plain(const char* p, const char* end) noexcept nogil:
    """Go on to the first quote, backslash or control character, or as far as eights go."""
    cdef uint64_t word, quote, slash
    cdef int is_there = False
    p = by_sixteen(p, end, &is_there)
    if is_there:
        return p
    while end - p >= 8:
        memcpy(&word, p, 8)
        quote = word ^ <uint64_t>0x2222222222222222
        slash = word ^ <uint64_t>0x5C5C5C5C5C5C5C5C
        word = (((quote - <uint64_t>0x0101010101010101) & ~quote)
                | ((slash - <uint64_t>0x0101010101010101) & ~slash)
                | ((word - <uint64_t>0x2020202020202020) & ~word)) & <uint64_t>0x8080808080808080
        if word:
            return p + FIRST_MARKED(word) if MARKS_ARE_EXACT else p
        p += 8
    return p


cdef inline const char* string(const char* p, const char* end, Text* text) noexcept nogil:
    """Read a string; `p` stands on its opening quote."""
    cdef const char* begin
    cdef unsigned char c
    if p >= end or p[0] != 34:
        return NULL
    p += 1
    begin = p
    text.at = begin
    text.size = 0
    text.escaped = text.lone = False
    while True:
        p = plain(p, end)
        while p < end:
            c = p[0]
            if c == 34:
                text.raw = p - begin
                text.size += text.raw
                return p + 1
            if c == 92:
                p = escape(p, end, text)
                if p == NULL:
                    return NULL
                break
            if c < 32:
                return NULL
            p += 1
        else:
            return NULL


cdef inline const char* key(const char* p, const char* end, Text* text) noexcept nogil:
    """Read a member's name and the colon, up to its value; one with escapes is rare, and not ours to judge."""
    cdef const char* begin
    p = blank(p, end)
    if p >= end or p[0] != 34:
        return NULL
    p += 1
    begin = p
    p = plain(p, end)
    while p < end and p[0] != 34:
        if p[0] == 92 or <unsigned char>p[0] < 32:
            return NULL
        p += 1
    text.at = begin
    text.raw = p - begin
    if p >= end:
        return NULL
    p = blank(p + 1, end)
    if p >= end or p[0] != 58:
        return NULL
    return blank(p + 1, end)


cdef inline bint called(const Text* text, const char* name, Py_ssize_t size) noexcept nogil:
    return text.raw == size and memcmp(text.at, name, size) == 0


cdef inline const char* word(const char* p, const char* end, const char* text, Py_ssize_t size) noexcept nogil:
    """Read one of null, true, false."""
    if end - p >= size and memcmp(p, text, size) == 0:
        return p + size
    return NULL


cdef inline const char* null(const char* p, const char* end) noexcept nogil:
    return word(p, end, b"null", 4)


cdef inline const char* integer(const char* p, const char* end, long long* value) noexcept nogil:
    """Read a whole number from 0 on, of at most 15 digits; one that goes on as a fraction is none."""
    cdef const char* begin = p
    value[0] = 0
    while p < end and 48 <= p[0] <= 57:
        value[0] = value[0] * 10 + p[0] - 48
        p += 1
        if p - begin > 15:
            return NULL
    if p == begin or (begin[0] == 48 and p - begin > 1):
        return NULL
    if p < end and (p[0] == 46 or p[0] == 101 or p[0] == 69):
        return NULL
    return p


cdef inline const char* number(const char* p, const char* end) noexcept nogil:
    """Pass over a number: the plain kinds, with at most 17 digits on either side and an exponent of at most two."""
    cdef const char* begin
    if p < end and p[0] == 45:
        p += 1
    begin = p
    while p < end and 48 <= p[0] <= 57:
        p += 1
    if p == begin or p - begin > 17 or (begin[0] == 48 and p - begin > 1):
        return NULL
    if p < end and p[0] == 46:
        p += 1
        begin = p
        while p < end and 48 <= p[0] <= 57:
            p += 1
        if p == begin or p - begin > 17:
            return NULL
    if p < end and (p[0] == 101 or p[0] == 69):
        p += 1
        if p < end and (p[0] == 43 or p[0] == 45):
            p += 1
        begin = p
        while p < end and 48 <= p[0] <= 57:
            p += 1
        if p == begin or p - begin > 2:
            return NULL
    return p


cdef inline const char* member_end(const char* p, const char* end, bint* more) noexcept nogil:
    """After a member's value: pass the comma (more) or the closing brace (no more)."""
    p = blank(p, end)
    if p >= end:
        return NULL
    if p[0] == 44:
        more[0] = True
        return p + 1
    if p[0] == 125:
        more[0] = False
        return p + 1
    return NULL


cdef inline const char* item_end(const char* p, const char* end, bint* more) noexcept nogil:
    """The same in an array."""
    p = blank(p, end)
    if p >= end:
        return NULL
    if p[0] == 44:
        more[0] = True
        return blank(p + 1, end)
    if p[0] == 93:
        more[0] = False
        return p + 1
    return NULL


cdef inline const char* object_start(const char* p, const char* end, bint* more) noexcept nogil:
    """Enter an object; `more` says whether it has members."""
    if p >= end or p[0] != 123:
        return NULL
    p = blank(p + 1, end)
    more[0] = not (p < end and p[0] == 125)
    return p if more[0] else p + 1


cdef inline const char* skip(const char* p, const char* end, int depth, Text* text) noexcept nogil:
    """Pass over any value. `text` is scratch, but its `lone` stays set once a lone surrogate was met."""
    cdef bint more
    cdef bint lone
    if p >= end:
        return NULL
    if p[0] == 34:
        lone = text.lone
        p = string(p, end, text)
        text.lone = text.lone or lone
        return p
    if p[0] == 110:
        return null(p, end)
    if p[0] == 116:
        return word(p, end, b"true", 4)
    if p[0] == 102:
        return word(p, end, b"false", 5)
    if p[0] == 123:
        if depth >= MAX_NESTING:
            return NULL
        p = object_start(p, end, &more)
        while p != NULL and more:
            p = key(p, end, text)
            if p == NULL:
                return NULL
            p = skip(p, end, depth + 1, text)
            if p == NULL:
                return NULL
            p = member_end(p, end, &more)
        return p
    if p[0] == 91:
        if depth >= MAX_NESTING:
            return NULL
        p = blank(p + 1, end)
        if p < end and p[0] == 93:
            return p + 1
        while True:
            p = skip(p, end, depth + 1, text)
            if p == NULL:
                return NULL
            p = item_end(p, end, &more)
            if p == NULL or not more:
                return p
    return number(p, end)
