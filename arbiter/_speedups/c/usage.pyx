# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""A provider's usage object, compiled. Twin of `arbiter/_speedups/py/usage.py`, which says what the counts mean.

Usage objects are flat, with one level of details: one pass over the JSON puts the counts that matter into slots. Anything
unusual (a fraction, a name met twice, an object where a count should be) goes to the reference.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c.jsonscan cimport Text, called

from arbiter._speedups.py import usage as reference

Counts = tuple


cdef enum:  # slots: first where the counts of the object itself stand, then those of its details
    PROMPT, COMPLETION, TOTAL, HIT, CACHED, CACHE_READ, CACHE_CREATION, REASONING, INPUT, OUTPUT
    DETAIL_CACHED, DETAIL_WRITE, DETAIL_CREATION, DETAIL_CREATION_INPUT
    FIVE, HOUR, DETAIL_REASONING, DETAIL_THINKING
    SLOTS


cdef enum Part:
    WHOLE, PROMPT_DETAILS, COMPLETION_DETAILS, OUTPUT_DETAILS, WRITES


cdef struct Read:
    long long slots[SLOTS]  # -1: not stated
    unsigned int met  # parts, one bit each


cdef inline int _slot(Part part, const Text* key) noexcept nogil:
    """Where a count belongs, or -1 for a member nobody asks for."""
    if part == WHOLE:
        if called(key, b"prompt_tokens", 13):
            return PROMPT
        if called(key, b"completion_tokens", 17):
            return COMPLETION
        if called(key, b"total_tokens", 12):
            return TOTAL
        if called(key, b"input_tokens", 12):
            return INPUT
        if called(key, b"output_tokens", 13):
            return OUTPUT
        if called(key, b"cache_read_input_tokens", 23):
            return CACHE_READ
        if called(key, b"cache_creation_input_tokens", 27):
            return CACHE_CREATION
        if called(key, b"prompt_cache_hit_tokens", 23):
            return HIT
        if called(key, b"cached_tokens", 13):
            return CACHED
        if called(key, b"reasoning_tokens", 16):
            return REASONING
    elif part == PROMPT_DETAILS:
        if called(key, b"cached_tokens", 13):
            return DETAIL_CACHED
        if called(key, b"cache_write_tokens", 18):
            return DETAIL_WRITE
        if called(key, b"cache_creation_tokens", 21):
            return DETAIL_CREATION
        if called(key, b"cache_creation_input_tokens", 27):
            return DETAIL_CREATION_INPUT
    elif part == WRITES:
        if called(key, b"ephemeral_5m_input_tokens", 25):
            return FIVE
        if called(key, b"ephemeral_1h_input_tokens", 25):
            return HOUR
    elif part == COMPLETION_DETAILS:
        if called(key, b"reasoning_tokens", 16):
            return DETAIL_REASONING
    elif called(key, b"thinking_tokens", 15):
        return DETAIL_THINKING
    return -1


cdef inline Part _part(Part part, const Text* key) noexcept nogil:
    """Which part of the usage a member opens, WHOLE for none."""
    if part == WHOLE:
        if called(key, b"prompt_tokens_details", 21):
            return PROMPT_DETAILS
        if called(key, b"completion_tokens_details", 25):
            return COMPLETION_DETAILS
        if called(key, b"output_tokens_details", 21):
            return OUTPUT_DETAILS
    if (part == WHOLE or part == PROMPT_DETAILS) and called(key, b"cache_creation", 14):
        return WRITES
    return WHOLE


cdef const char* _object(const char* p, const char* end, Part part, Read* read) noexcept nogil:
    cdef bint more
    cdef Text key, text
    cdef int slot
    cdef Part inner
    text.lone = False
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL or p >= end:
            return NULL
        slot = _slot(part, &key)
        inner = _part(part, &key)
        if inner != WHOLE:
            if read.met & (1 << inner):
                return NULL
            read.met |= 1 << inner
            p = js.null(p, end) if p[0] == 110 else _object(p, end, inner, read)
        elif slot >= 0:
            if read.slots[slot] != -1:
                return NULL
            if p[0] == 110:
                p = js.null(p, end)
                read.slots[slot] = -2
            else:
                p = js.integer(p, end, &read.slots[slot])
        else:
            p = js.skip(p, end, 0, &text)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    return p


cdef inline bint _read(bytes raw, Read* read) noexcept:
    cdef const char* p = PyBytes_AS_STRING(raw)
    cdef const char* end = p + PyBytes_GET_SIZE(raw)
    cdef int slot
    # The scanner takes UTF-8 for granted, and this object may come from anywhere.
    while p < end:
        if <unsigned char>p[0] >= 0x80:
            return False
        p += 1
    for slot in range(SLOTS):
        read.slots[slot] = -1
    read.met = 0
    p = _object(js.blank(PyBytes_AS_STRING(raw), end), end, WHOLE, read)
    return p != NULL and js.blank(p, end) == end


cdef inline long long _first(long long a, long long b, long long c=-1, long long d=-1) noexcept nogil:
    return a if a >= 0 else b if b >= 0 else c if c >= 0 else d


cdef inline object _count(long long value):
    return value if value >= 0 else None


cdef tuple _messages(Read* read):
    cdef long long* s = read.slots
    cdef long long write = s[CACHE_CREATION]
    if write < 0 and (s[FIVE] >= 0 or s[HOUR] >= 0):
        write = max(s[FIVE], 0) + max(s[HOUR], 0)
    if (s[INPUT] < 0 and s[CACHE_READ] < 0 and write < 0 and s[OUTPUT] < 0 and s[DETAIL_THINKING] < 0
            and s[TOTAL] < 0):
        return None
    return (
        _count(s[INPUT]), _count(s[CACHE_READ]), _count(write), _count(s[FIVE]), _count(s[HOUR]), _count(s[OUTPUT]),
        _count(s[DETAIL_THINKING]), _count(s[TOTAL]),
    )


def chat(bytes raw not None):
    """Read the `usage` of a chat answer or chunk. See the twin for the contract."""
    cdef Read read
    cdef long long rest, cache_read, cache_write, output, reasoning
    if not _read(raw, &read):
        return reference.chat(raw)
    cdef long long* s = read.slots
    if s[PROMPT] < 0 and s[COMPLETION] < 0:
        return messages(raw)
    cache_read = _first(s[DETAIL_CACHED], s[HIT], s[CACHED], s[CACHE_READ])
    cache_write = _first(s[DETAIL_WRITE], s[DETAIL_CREATION], s[DETAIL_CREATION_INPUT], s[CACHE_CREATION])
    rest = s[PROMPT]
    if rest >= 0:
        rest -= max(cache_read, 0) + max(cache_write, 0)
    output = s[COMPLETION]
    reasoning = _first(s[DETAIL_REASONING], s[REASONING])
    if s[PROMPT] >= 0 and output >= 0 and reasoning > 0 and s[TOTAL] == s[PROMPT] + output + reasoning:
        output += reasoning
    return (
        _count(rest), _count(cache_read), _count(cache_write), _count(s[FIVE]), _count(s[HOUR]), _count(output),
        _count(reasoning), _count(s[TOTAL]),
    )


def messages(bytes raw not None):
    """Read the `usage` of an Anthropic answer, of `message_start` or of `message_delta`. See the twin."""
    cdef Read read
    if not _read(raw, &read) or read.met & (1 << PROMPT_DETAILS):
        return reference.messages(raw)
    return _messages(&read)


def merge_messages(start, delta):
    """One answer's usage from both of its reports: what `message_delta` states wins."""
    if start is None or delta is None:
        return start if delta is None else delta
    return tuple([old if new is None else new for old, new in zip(start, delta)])
