# cython: language_level=3
# One JSON value on its way into its canonical form (py/chain.py says what that is); for chain.
#
# Each value is copied into `out` as it is read. A function takes a position and the end, and returns the position behind
# what it read, or NULL where that is no JSON. A form grows over its text by a block's frame for each bare string alone,
# `"content":""` being the shortest: less than three times. So nobody asks for room in a buffer of four times the text.

from libc.stdlib cimport malloc, realloc
from libc.string cimport memcmp, memcpy

from arbiter._speedups.c.jsonscan cimport hex4

cdef enum:
    DEEP_LEVELS = 128
    MARKS_TOLD = 64
    PLACES_TOLD = 4
    LINK_BYTES = 32  # room before the form for the link that it is hashed onto
    SLACK_BYTES = 128  # behind the end of a buffer, for the frame and for what 64 bytes at once write too far


cdef extern from "wide.h":
    bint wide
    bint wide_copy(const unsigned char** at, const unsigned char* end, char** to) nogil


cdef extern from *:
    """
    /* Copy plain bytes up to a quote or a backslash, which is not copied; how many. May write sixteen too many. */
    #if defined(__SSE2__)
    #include <emmintrin.h>
    static size_t copy_plain(const unsigned char *at, const unsigned char *end, char *out) {
        const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\\\');
        const unsigned char *begin = at;
        for (; end - at >= 16; at += 16, out += 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)at);
            int found;
            _mm_storeu_si128((__m128i *)out, bytes);
            found = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash)));
            if (found) return at - begin + __builtin_ctz(found);
        }
        for (; at < end && *at != '"' && *at != '\\\\'; at++) *out++ = *at;
        return at - begin;
    }
    #else
    static size_t copy_plain(const unsigned char *at, const unsigned char *end, char *out) {
        const unsigned char *begin = at;
        for (; at < end && *at != '"' && *at != '\\\\'; at++) *out++ = *at;
        return at - begin;
    }
    #endif
    """
    size_t copy_plain(const unsigned char* at, const unsigned char* end, char* out) noexcept nogil


cdef struct Member:
    Py_ssize_t name  # where the name begins in the buffer, behind its quote
    Py_ssize_t name_size
    Py_ssize_t start  # of the whole member
    Py_ssize_t stop
    Py_ssize_t number  # among those of its object; -1: another one of its name follows


cdef struct Mark:
    Py_ssize_t[PLACES_TOLD] places
    int levels
    const unsigned char* at
    Py_ssize_t size


cdef struct Form:
    char* out
    Py_ssize_t size
    char* spare  # as large as `out`; made when members are first out of order
    Py_ssize_t room
    Member* members  # of all objects that are open, the innermost last
    Py_ssize_t count
    Py_ssize_t capacity
    Mark[MARKS_TOLD] marks
    Py_ssize_t marked
    Py_ssize_t[DEEP_LEVELS + 2] places
    Py_ssize_t arrays  # that are open
    bint is_produced
    bint has_role
    bint no_memory


cdef inline bint is_blank(unsigned char byte) noexcept nogil:
    return byte == c' ' or byte == c'\n' or byte == c'\r' or byte == c'\t'


cdef inline const unsigned char* blank(const unsigned char* p, const unsigned char* end) noexcept nogil:
    while p < end and is_blank(p[0]):
        p += 1
    return p


cdef inline void put(Form* f, const char* text, Py_ssize_t size) noexcept nogil:
    memcpy(f.out + f.size, text, size)
    f.size += size


cdef inline const unsigned char* unescaped(Form* f, const unsigned char* p, const unsigned char* end) noexcept nogil:
    """Copy one escape as short as it can be; `p` stands on its backslash, a `u` behind it."""
    cdef const char* digits = b"0123456789abcdef"
    cdef int code = hex4(<const char*>p + 2, <const char*>end)
    cdef int low
    cdef char* out = f.out + f.size
    if code < 0:
        put(f, <const char*>p, 2)
        return p + 2
    if 0xD800 <= code < 0xDC00 and end - p >= 12 and p[6] == c'\\' and p[7] == c'u':
        low = hex4(<const char*>p + 8, <const char*>end)
        if 0xDC00 <= low < 0xE000:
            code = 0x10000 + ((code & 0x3FF) << 10) + (low & 0x3FF)
            out[0] = <char>(0xF0 | code >> 18)
            out[1] = <char>(0x80 | (code >> 12 & 0x3F))
            out[2] = <char>(0x80 | (code >> 6 & 0x3F))
            out[3] = <char>(0x80 | (code & 0x3F))
            f.size += 4
            return p + 12
    if code < 0x20 or 0xD800 <= code < 0xE000:
        out[0] = c'\\'
        f.size += 2
        if code == 8:
            out[1] = c'b'
        elif code == 9:
            out[1] = c't'
        elif code == 10:
            out[1] = c'n'
        elif code == 12:
            out[1] = c'f'
        elif code == 13:
            out[1] = c'r'
        else:
            out[1] = c'u'
            out[2] = digits[code >> 12]
            out[3] = digits[code >> 8 & 15]
            out[4] = digits[code >> 4 & 15]
            out[5] = digits[code & 15]
            f.size += 4
    elif code < 0x80:
        if code == c'"' or code == c'\\':
            out[0] = c'\\'
            out += 1
            f.size += 1
        out[0] = <char>code
        f.size += 1
    elif code < 0x800:
        out[0] = <char>(0xC0 | code >> 6)
        out[1] = <char>(0x80 | (code & 0x3F))
        f.size += 2
    else:
        out[0] = <char>(0xE0 | code >> 12)
        out[1] = <char>(0x80 | (code >> 6 & 0x3F))
        out[2] = <char>(0x80 | (code & 0x3F))
        f.size += 3
    return p + 6


cdef inline const unsigned char* string(Form* f, const unsigned char* p, const unsigned char* end) noexcept nogil:
    """Copy a string; `p` stands on its quote. NULL where nothing ends it."""
    cdef size_t size
    cdef char* out
    cdef bint is_text = False  # with line breaks and quotes, which are copied as they are
    f.out[f.size] = c'"'
    f.size += 1
    p += 1
    while True:
        if is_text and wide and end - p >= 64:
            out = f.out + f.size
            wide_copy(&p, end, &out)
            f.size = out - f.out
        size = copy_plain(p, end, f.out + f.size)
        p += size
        f.size += size
        if p >= end:
            return NULL
        if p[0] == c'"':
            f.out[f.size] = c'"'
            f.size += 1
            return p + 1
        if end - p < 2:
            return NULL
        is_text = p[1] != c'u'
        if not is_text:
            p = unescaped(f, p, end)
        elif p[1] == c'/':
            f.out[f.size] = c'/'
            f.size += 1
            p += 2
        else:
            f.out[f.size] = c'\\'
            f.out[f.size + 1] = p[1]
            f.size += 2
            p += 2


cdef inline const unsigned char* as_spelled(Form* f, const unsigned char* p, const unsigned char* end) noexcept nogil:
    """Copy what stands too deep, up to the bracket that closes it."""
    cdef const unsigned char* begin = p
    cdef Py_ssize_t level = 0
    while p < end:
        if p[0] == c'"':
            p += 1
            while p < end and p[0] != c'"':
                p += 2 if p[0] == c'\\' else 1
            if p >= end:
                return NULL
        elif p[0] == c'{' or p[0] == c'[':
            level += 1
        elif p[0] == c'}' or p[0] == c']':
            level -= 1
            if level == 0:
                put(f, <const char*>begin, p + 1 - begin)
                return p + 1
        p += 1
    return NULL


cdef inline bint is_token(unsigned char byte) noexcept nogil:
    return not (is_blank(byte) or byte == c',' or byte == c'}' or byte == c']' or byte == c':' or byte == c'"'
                or byte == c'{' or byte == c'[')


cdef inline bint named(const char* name, Py_ssize_t size, const char* word, Py_ssize_t length) noexcept nogil:
    return size == length and memcmp(name, word, length) == 0


cdef inline bint is_opaque(const char* name, Py_ssize_t size) noexcept nogil:
    return (
        named(name, size, b"input", 5)
        or named(name, size, b"arguments", 9)
        or named(name, size, b"parameters", 10)
        or named(name, size, b"input_schema", 12)
        or named(name, size, b"output_schema", 13)
        or named(name, size, b"input_examples", 14)
        or named(name, size, b"schema", 6)
        or named(name, size, b"args", 4)
        or named(name, size, b"response", 8)
        or named(name, size, b"parametersJsonSchema", 20)
        or named(name, size, b"parameters_json_schema", 22)
        or named(name, size, b"responseJsonSchema", 18)
        or named(name, size, b"response_json_schema", 20)
    )


cdef inline bint is_mark(const char* name, Py_ssize_t size) noexcept nogil:
    return named(name, size, b"cache_control", 13) or named(name, size, b"prompt_cache_breakpoint", 23)


cdef inline const unsigned char* value(
    Form* f, const unsigned char* p, const unsigned char* end, int level, bint opaque, bint is_content
) noexcept nogil:
    """Copy one value's form; NULL where it is no JSON."""
    cdef const unsigned char* begin = p
    if p >= end:
        return NULL
    if p[0] == c'"':
        if not is_content or opaque:
            return string(f, p, end)
        put(f, b'[{"text":', 9)
        p = string(f, p, end)
        put(f, b',"type":"text"}]', 16)
        return p
    if p[0] == c'{':
        return as_spelled(f, p, end) if level >= DEEP_LEVELS else object_(f, p, end, level, opaque)
    if p[0] == c'[':
        return as_spelled(f, p, end) if level >= DEEP_LEVELS else array(f, p, end, level, opaque)
    while p < end and is_token(p[0]):
        p += 1
    if p == begin:
        return NULL
    put(f, <const char*>begin, p - begin)
    return p


cdef inline const unsigned char* array(
    Form* f, const unsigned char* p, const unsigned char* end, int level, bint opaque
) noexcept nogil:
    f.out[f.size] = c'['
    f.size += 1
    p = blank(p + 1, end)
    if p < end and p[0] == c']':
        f.out[f.size] = c']'
        f.size += 1
        return p + 1
    f.places[f.arrays] = 0
    f.arrays += 1
    while True:
        p = value(f, p, end, level + 1, opaque, False)
        if p == NULL:
            return NULL
        p = blank(p, end)
        if p >= end:
            return NULL
        if p[0] != c',':
            break
        f.out[f.size] = c','
        f.size += 1
        f.places[f.arrays - 1] += 1
        p = blank(p + 1, end)
    f.arrays -= 1
    if p[0] != c']':
        return NULL
    f.out[f.size] = c']'
    f.size += 1
    return p + 1


cdef inline int compared(Form* f, const Member* a, const Member* b) noexcept nogil:
    cdef Py_ssize_t size = a.name_size if a.name_size < b.name_size else b.name_size
    cdef int order = memcmp(f.out + a.name, f.out + b.name, size)
    if order:
        return order
    return -1 if a.name_size < b.name_size else 1 if a.name_size > b.name_size else 0


cdef inline bint grow(Form* f, Py_ssize_t count) noexcept nogil:
    """Make room for so many members more."""
    cdef Member* members
    cdef Py_ssize_t capacity
    if f.count + count <= f.capacity:
        return True
    capacity = 2 * (f.count + count) + 64
    members = <Member*>realloc(f.members, capacity * sizeof(Member))
    if members == NULL:
        f.no_memory = True
        return False
    f.members = members
    f.capacity = capacity
    return True


cdef inline const unsigned char* object_(
    Form* f, const unsigned char* p, const unsigned char* end, int level, bint opaque
) noexcept nogil:
    cdef Py_ssize_t first = f.count
    cdef Py_ssize_t start, name, name_size, was
    cdef const unsigned char* begin
    cdef bint in_order = True
    cdef Member* member
    f.out[f.size] = c'{'
    f.size += 1
    p = blank(p + 1, end)
    if p < end and p[0] == c'}':
        f.out[f.size] = c'}'
        f.size += 1
        return p + 1
    while True:
        if p >= end or p[0] != c'"':
            return NULL
        start = f.size
        if f.count > first:
            f.out[f.size] = c','
            f.size += 1
        name = f.size + 1
        p = string(f, p, end)
        if p == NULL:
            return NULL
        name_size = f.size - 1 - name
        p = blank(p, end)
        if p >= end or p[0] != c':':
            return NULL
        f.out[f.size] = c':'
        f.size += 1
        begin = p = blank(p + 1, end)
        if not opaque and is_mark(f.out + name, name_size):
            was = f.size
            p = value(f, p, end, level + 1, True, False)
            if p == NULL:
                return NULL
            if not named(f.out + was, f.size - was, b"null", 4) and f.marked < MARKS_TOLD:
                note_mark(f, begin, p - begin)
            f.size = start
        else:
            p = value(f, p, end, level + 1, opaque or is_opaque(f.out + name, name_size),
                      named(f.out + name, name_size, b"content", 7))
            if p == NULL or not grow(f, 1):
                return NULL
            member = f.members + f.count
            member.name = name
            member.name_size = name_size
            member.start = name - 1
            member.stop = f.size
            member.number = f.count - first
            f.count += 1
            if f.count - first > 1 and compared(f, member - 1, member) >= 0:
                in_order = False
        p = blank(p, end)
        if p >= end:
            return NULL
        if p[0] != c',':
            break
        p = blank(p + 1, end)
    if p[0] != c'}':
        return NULL
    if level == 0:
        judge(f, first)
    if not in_order and not arrange(f, first, opaque):
        return NULL
    f.count = first
    f.out[f.size] = c'}'
    f.size += 1
    return p + 1


cdef inline void note_mark(Form* f, const unsigned char* at, Py_ssize_t size) noexcept nogil:
    cdef Mark* mark = f.marks + f.marked
    cdef int i
    mark.levels = <int>(f.arrays if f.arrays < PLACES_TOLD else PLACES_TOLD)
    for i in range(mark.levels):
        mark.places[i] = f.places[i]
    mark.at = at
    mark.size = size
    f.marked += 1


cdef inline void judge(Form* f, Py_ssize_t first) noexcept nogil:
    """Whether the outermost object is what a model wrote."""
    cdef Py_ssize_t i, size
    cdef const char* text
    cdef const char* kind = NULL
    cdef Py_ssize_t kind_size = 0
    cdef Member* member
    f.has_role = f.is_produced = False
    for i in range(first, f.count):
        member = f.members + i
        text = f.out + member.name + member.name_size + 2
        size = member.stop - (text - f.out)
        if named(f.out + member.name, member.name_size, b"role", 4):
            f.has_role = True
            f.is_produced = named(text, size, b'"assistant"', 11) or named(text, size, b'"model"', 7)
        elif named(f.out + member.name, member.name_size, b"type", 4):
            kind, kind_size = text, size
    if not f.has_role and kind != NULL:
        f.is_produced = (
            (kind_size >= 6 and memcmp(kind + kind_size - 6, <const char*>b'_call"', 6) == 0)
            or named(kind, kind_size, b'"reasoning"', 11)
            or named(kind, kind_size, b'"compaction"', 12)
            or named(kind, kind_size, b'"item_reference"', 16)
            or named(kind, kind_size, b'"mcp_list_tools"', 16)
            or named(kind, kind_size, b'"mcp_approval_request"', 22)
        )


cdef inline bint arrange(Form* f, Py_ssize_t first, bint opaque) noexcept nogil:
    """Put an object's members in order, or, where that is not to be touched, take out those that come again."""
    cdef Py_ssize_t count = f.count - first
    cdef Py_ssize_t begin = f.members[first].start
    cdef Py_ssize_t i, size
    cdef bint repeated = False
    cdef Member* members
    cdef Member* ordered
    if not grow(f, 2 * count):
        return False
    members = f.members + first
    ordered = members + count
    memcpy(ordered, members, count * sizeof(Member))
    ordered = sorted_(f, ordered, ordered + count, count)
    for i in range(count - 1):
        if compared(f, ordered + i, ordered + i + 1) == 0:
            repeated = True
            members[ordered[i].number].number = -1
            ordered[i].number = -1
    if opaque:
        if not repeated:
            return True
        ordered = members
    if f.spare == NULL:
        f.spare = <char*>malloc(f.room)
        if f.spare == NULL:
            f.no_memory = True
            return False
    size = 0
    for i in range(count):
        if ordered[i].number < 0:
            continue
        if size:
            f.spare[size] = c','
            size += 1
        memcpy(f.spare + size, f.out + ordered[i].start, ordered[i].stop - ordered[i].start)
        size += ordered[i].stop - ordered[i].start
    memcpy(f.out + begin, f.spare, size)
    f.size = begin + size
    return True


cdef inline Member* sorted_(Form* f, Member* a, Member* b, Py_ssize_t count) noexcept nogil:
    """Sort `a` by name, equal ones in the order in which they came; `b` is as long. Returns where the result stands."""
    cdef Py_ssize_t i, j, width, left, right, middle, stop, at
    cdef Member one
    cdef Member* other
    if count <= 16:
        for i in range(1, count):
            one = a[i]
            j = i
            while j > 0 and compared(f, a + j - 1, &one) > 0:
                a[j] = a[j - 1]
                j -= 1
            a[j] = one
        return a
    width = 1
    while width < count:
        at = 0
        left = 0
        while left < count:
            middle = min(left + width, count)
            stop = min(left + 2 * width, count)
            i, j = left, middle
            for at in range(left, stop):
                if i < middle and (j >= stop or compared(f, a + i, a + j) <= 0):
                    b[at] = a[i]
                    i += 1
                else:
                    b[at] = a[j]
                    j += 1
            left = stop
        other = a
        a = b
        b = other
        width *= 2
    return a
