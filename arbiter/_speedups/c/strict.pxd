# cython: language_level=3
# A JSON object whose every byte is as RFC 8259 has it, opened one level deep in one pass; for nesting.
#
# Whoever is turned away here is not told why: a slower reader finds that out. So nothing passes that it would refuse.

from libc.string cimport memcmp

cdef enum:
    DEEPEST = 512
    WIDEST = 1024


cdef extern from "wide.h":
    pass


cdef extern from *:
    """
    static const unsigned char escapable[256] = {
        ['"'] = 1, ['\\\\'] = 1, ['/'] = 1, ['b'] = 1, ['f'] = 1, ['n'] = 1, ['r'] = 1, ['t'] = 1, ['u'] = 1
    };
    static int hex_4(const unsigned char *at, const unsigned char *end) {
        int code = 0;
        if (end - at < 4) return -1;
        for (int i = 0; i < 4; i++) {
            unsigned char c = at[i];
            int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
            if (digit < 0) return -1;
            code = code << 4 | digit;
        }
        return code;
    }
    /* Whether the escape at `at`, a backslash, may stand there. `second` is where a pair's second half has to begin. */
    static int is_escape(const unsigned char *at, const unsigned char *end, const unsigned char **second) {
        int code, low;
        if (end - at < 2 || !escapable[at[1]]) return 0;
        if (at[1] != 'u') return 1;
        code = hex_4(at + 2, end);
        if (code < 0) return 0;
        if (code < 0xD800 || code > 0xDFFF || at == *second) return 1;
        if (code > 0xDBFF || end - at < 12 || at[6] != '\\\\' || at[7] != 'u') return 0;
        low = hex_4(at + 8, end);
        *second = at + 6;
        return low >= 0xDC00 && low <= 0xDFFF;
    }
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif
    /* The position behind the string that begins before `at`; NULL where it has no end, or holds what no string may.
       What is not ASCII leaves a bit in `high`. */
    static const unsigned char *strict_string(const unsigned char *at, const unsigned char *end, int *high) {
        const unsigned char *second = NULL;
    #if defined(__SSE2__)
        const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\\\'), control = _mm_set1_epi8(0x1F);
        const unsigned char *begin = at;
        __m128i all = _mm_setzero_si128();
        int escaped = 0;  /* the first byte of the sixteen is */
        for (; end - at >= 16; at += 16) {
            if (at - begin == 64 && wide) {  /* most strings are over by then */
                int over;
                at += escaped;
                escaped = 0;
                over = wide_strict_end(&at, end, high, &second, is_escape);
                if (over < 0) return NULL;
                if (over) { *high |= _mm_movemask_epi8(all); return at + 1; }
                if (end - at < 16) break;
            }
            __m128i bytes = _mm_loadu_si128((const __m128i *)at);
            int found = _mm_movemask_epi8(_mm_or_si128(
                _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash)),
                _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes))) & ~escaped;
            all = _mm_or_si128(all, bytes);
            escaped = 0;
            while (found) {
                int first = __builtin_ctz(found);
                if (at[first] == '"') { *high |= _mm_movemask_epi8(all); return at + first + 1; }
                if (at[first] != '\\\\' || !is_escape(at + first, end, &second)) return NULL;
                escaped = first == 15;
                found &= ~(3 << first);
            }
        }
        *high |= _mm_movemask_epi8(all);
        at += escaped;
    #endif
        for (; at < end && *at != '"'; at++) {
            if (*at == '\\\\') {
                if (!is_escape(at, end, &second)) return NULL;
                at++;
            } else if (*at < 0x20) return NULL;
            else if (*at > 0x7F) *high |= 1;
        }
        return at < end ? at + 1 : NULL;
    }
    static const unsigned char *digits(const unsigned char *at, const unsigned char *end) {
        const unsigned char *begin = at;
        while (at < end && *at >= '0' && *at <= '9') at++;
        return at > begin ? at : NULL;
    }
    /* The position behind a number, a word or a blank; NULL where there is none. */
    static const unsigned char *strict_number(const unsigned char *at, const unsigned char *end) {
        if (at < end && *at == '-') at++;
        if (at < end && *at == '0') at++;
        else if (!(at = digits(at, end))) return NULL;
        if (at < end && *at == '.' && !(at = digits(at + 1, end))) return NULL;
        if (at < end && (*at == 'e' || *at == 'E')) {
            at++;
            if (at < end && (*at == '+' || *at == '-')) at++;
            if (!(at = digits(at, end))) return NULL;
        }
        return at;
    }
    static const unsigned char *strict_scalar(const unsigned char *at, const unsigned char *end) {
        if (end - at >= 4 && (!memcmp(at, "true", 4) || !memcmp(at, "null", 4))) return at + 4;
        if (end - at >= 5 && !memcmp(at, "false", 5)) return at + 5;
        return strict_number(at, end);
    }
    static const unsigned char *past_blanks(const unsigned char *at, const unsigned char *end) {
        while (at < end && (*at == ' ' || *at == '\\n' || *at == '\\r' || *at == '\\t')) at++;
        return at;
    }
    """
    const unsigned char* strict_string(const unsigned char* at, const unsigned char* end, int* high) noexcept nogil
    const unsigned char* strict_scalar(const unsigned char* at, const unsigned char* end) noexcept nogil
    const unsigned char* past_blanks(const unsigned char* at, const unsigned char* end) noexcept nogil


cdef struct Member:
    const unsigned char* name
    Py_ssize_t name_size
    const unsigned char* start
    const unsigned char* stop


cdef struct Scan:
    Member[WIDEST] members
    Py_ssize_t count
    bint has_high
    bint[DEEPEST + 1] is_object  # of each level that is open


cdef inline bint opened(
    Scan* scan, const unsigned char* p, const unsigned char* end, Py_ssize_t depth, Py_ssize_t width
) noexcept nogil:
    """Whether it is an object, nested and with members as much as is allowed; and what its members are."""
    cdef const unsigned char* name
    cdef Py_ssize_t level = 0
    cdef int high = 0
    cdef bint is_empty = False  # what was opened has nothing in it yet
    cdef unsigned char byte
    depth = min(depth, <Py_ssize_t>DEEPEST)
    width = min(width, <Py_ssize_t>WIDEST)
    scan.count = 0
    p = past_blanks(p, end)
    if p >= end or p[0] != c'{':
        return False
    while True:
        # Where a value has to be, and in an object its name before it; or the end of what has nothing in it.
        if p < end and is_empty and (p[0] == c'}' if scan.is_object[level] else p[0] == c']'):
            is_empty = False
            p += 1
            level -= 1
        else:
            if level and scan.is_object[level]:
                if p >= end or p[0] != c'"':
                    return False
                name = p + 1
                p = strict_string(name, end, &high)
                if p == NULL:
                    return False
                if level == 1:
                    if scan.count >= width:
                        return False
                    scan.members[scan.count].name = name
                    scan.members[scan.count].name_size = p - name - 1
                p = past_blanks(p, end)
                if p >= end or p[0] != c':':
                    return False
                p = past_blanks(p + 1, end)
                if level == 1:
                    scan.members[scan.count].start = p
            is_empty = False
            if p >= end:
                return False
            byte = p[0]
            if byte == c'"':
                p = strict_string(p + 1, end, &high)
                if p == NULL:
                    return False
            elif byte == c'{' or byte == c'[':
                level += 1
                if level > depth:
                    return False
                scan.is_object[level] = byte == c'{'
                is_empty = True
                p = past_blanks(p + 1, end)
                continue
            else:
                p = strict_scalar(p, end)
                if p == NULL:
                    return False
        # Behind a value: what it stands in goes on, or ends.
        while True:
            if level == 0:
                scan.has_high = high != 0
                return past_blanks(p, end) == end
            if level == 1:
                scan.members[scan.count].stop = p
            p = past_blanks(p, end)
            if p >= end:
                return False
            if p[0] == c',':
                if level == 1:
                    scan.count += 1
                p = past_blanks(p + 1, end)
                break
            if p[0] != (c'}' if scan.is_object[level] else c']'):
                return False
            if level == 1:
                scan.count += 1
            level -= 1
            p += 1
