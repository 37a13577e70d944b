# cython: language_level=3
# What reading a plain event finds; for the two formats' recognisers, of which reduce and carry are made.
#
# A plain event changes nothing but counters. It is read in one exact pass over its JSON; NULL (as in jsonscan) and 0
# say "not plain, ask who decodes": an end, an error, a new call, an odd shape, a name that is escaped or comes twice.

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c.jsonscan cimport Text


cdef enum:  # members that were met: a second one of a name is for the full decoder, where the last one wins
    ID = 1
    MODEL = 2
    CHOICES = 4
    USAGE = 8
    OBJECT = 16
    INDEX = 32
    DELTA = 64
    FINISH_REASON = 128
    CONTENT = 256
    REASONING = 512
    REASONING_CONTENT = 1024
    REFUSAL = 2048
    TOOL_CALLS = 4096
    FUNCTION = 8192
    NAME = 16384
    ARGUMENTS = 32768
    TYPE = 65536
    TEXT = 131072
    THINKING = 262144
    PARTIAL_JSON = 524288
    LOGPROBS = 1048576
    ERROR = 2097152
    FUNCTION_CALL = 4194304
    DETAILS = 8388608
    EXTRA = 16777216


cdef struct Plain:
    Py_ssize_t text, reasoning, arguments  # UTF-8 bytes after unescaping
    bint lone  # some string holds a lone surrogate
    # What was said: how many strings that are not empty, and of the last one its member, its raw characters, their number.
    int strings
    int said
    const char* at
    Py_ssize_t raw
    long long index  # of the call (chat) or the block (messages) it belongs to, -1 where none was stated
    # chat
    int entries  # choices
    unsigned long long choices  # a bit for the number of each
    int fragments  # of calls
    bint logprobs
    bint kept  # something that the upstream wants back stands beside what was said
    const char* usage  # the last usage object's bytes
    Py_ssize_t usage_size
    const char* aside  # the last string behind the choices that nobody looks at, with its quotes; NULL where none is
    Py_ssize_t aside_size
    # messages
    Text type  # of the delta


cdef inline void begin(Plain* plain) noexcept nogil:
    plain.text = plain.reasoning = plain.arguments = 0
    plain.lone = False
    plain.strings = plain.said = 0
    plain.index = -1
    plain.entries = plain.fragments = 0
    plain.choices = 0
    plain.logprobs = plain.kept = False
    plain.usage = plain.aside = NULL
    plain.type.raw = 0


cdef inline bint once(int* met, int member) noexcept nogil:
    if met[0] & member:
        return False
    met[0] |= member
    return True


cdef inline const char* spoken(
    const char* p, const char* end, int* met, int member, Py_ssize_t* size, Plain* plain
) noexcept nogil:
    """Read the member's string or null, and add its size."""
    cdef Text text
    if not once(met, member):
        return NULL
    if p < end and p[0] == 110:
        return js.null(p, end)
    p = js.string(p, end, &text)
    if p == NULL:
        return NULL
    if text.raw:
        size[0] += text.size
        plain.strings += 1
        plain.said = member
        plain.at = text.at
        plain.raw = text.raw
        plain.lone = plain.lone or text.lone
    return p


cdef inline const char* nothing(const char* p, const char* end) noexcept nogil:
    """Read null or an empty string."""
    if end - p >= 2 and p[0] == 34 and p[1] == 34:
        return p + 2
    return js.null(p, end)


cdef inline const char* skip(const char* p, const char* end, Plain* plain) noexcept nogil:
    cdef Text text
    text.lone = False
    p = js.skip(p, end, 0, &text)
    plain.lone = plain.lone or text.lone
    return p
