# cython: language_level=3
# Recognises a plain event of an Anthropic messages stream: a delta of a block, a block's end, a ping.

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c cimport plain as pl
from arbiter._speedups.c.jsonscan cimport Text, called
from arbiter._speedups.c.plain cimport Plain, once, spoken


cdef enum:
    DELTA = 1
    STOP = 2
    PING = 3


cdef inline const char* block_delta(const char* p, const char* end, Plain* plain) noexcept nogil:
    cdef bint more
    cdef Text key
    cdef int met = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"type", 4):
            p = js.string(p, end, &plain.type) if once(&met, pl.TYPE) else NULL
        elif called(&key, b"text", 4):
            p = spoken(p, end, &met, pl.TEXT, &plain.text, plain)
        elif called(&key, b"partial_json", 12):
            p = spoken(p, end, &met, pl.PARTIAL_JSON, &plain.arguments, plain)
        elif called(&key, b"thinking", 8):
            p = spoken(p, end, &met, pl.THINKING, &plain.reasoning, plain)
        else:
            p = pl.skip(p, end, plain)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    return p


cdef inline int block_event(const char* p, const char* end, Plain* plain) noexcept nogil:
    """Read a whole event; 0 where it is none of these."""
    cdef bint more
    cdef Text key, kind
    cdef int met = 0
    kind.at = NULL
    kind.raw = 0
    p = js.object_start(js.blank(p, end), end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return 0
        if called(&key, b"type", 4):
            p = js.string(p, end, &kind) if once(&met, pl.TYPE) else NULL
            if p == NULL or kind.escaped:
                return 0
        elif called(&key, b"index", 5):
            p = js.integer(p, end, &plain.index) if once(&met, pl.INDEX) else NULL
        elif called(&key, b"delta", 5):
            p = block_delta(p, end, plain) if once(&met, pl.DELTA) else NULL
        else:
            p = pl.skip(p, end, plain)
        if p == NULL:
            return 0
        p = js.member_end(p, end, &more)
    if p == NULL or not met & pl.TYPE or js.blank(p, end) != end:
        return 0
    if called(&kind, b"content_block_delta", 19):
        return DELTA
    # What is not a delta has nothing to count, whatever it carries under that name.
    plain.text = plain.reasoning = plain.arguments = 0
    plain.strings = 0
    if called(&kind, b"content_block_stop", 18):
        return STOP
    if called(&kind, b"ping", 4):
        return PING
    return 0
