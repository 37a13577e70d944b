# cython: language_level=3
# Recognises a plain chunk of a Gemini stream: candidates that say text or think, and none that calls or ends.

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c cimport plain as pl
from arbiter._speedups.c.jsonscan cimport Text, called
from arbiter._speedups.c.plain cimport Plain, once


cdef enum:  # beside those of `plain`
    CONTENT_OF = 1
    PARTS = 2
    FINISH = 4
    CANDIDATES = 8
    USAGE_OF = 16
    TEXT_OF = 32
    THOUGHT = 64


cdef inline const char* part(const char* p, const char* end, Plain* plain) noexcept nogil:
    cdef bint more
    cdef bint is_thought = False
    cdef Text key, text
    cdef int met = 0
    text.size = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL or p >= end:
            return NULL
        if called(&key, b"text", 4):
            p = js.string(p, end, &text) if once(&met, TEXT_OF) else NULL
            if p == NULL:
                return NULL
            plain.lone = plain.lone or text.lone
        elif called(&key, b"thought", 7):
            if not once(&met, THOUGHT):
                return NULL
            is_thought = p[0] == 116
            p = js.word(p, end, b"true", 4) if is_thought else js.word(p, end, b"false", 5)
        elif called(&key, b"functionCall", 12):
            return NULL
        else:
            p = pl.skip(p, end, plain)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    if is_thought:
        plain.reasoning += text.size
    else:
        plain.text += text.size
    return p


cdef inline const char* content(const char* p, const char* end, Plain* plain) noexcept nogil:
    cdef bint more, inner
    cdef Text key
    cdef int met = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL or p >= end:
            return NULL
        if called(&key, b"parts", 5):
            if not once(&met, PARTS) or p[0] != 91:
                return NULL
            p = js.blank(p + 1, end)
            inner = not (p < end and p[0] == 93)
            if not inner:
                p += 1
            while inner:
                p = part(p, end, plain)
                if p == NULL:
                    return NULL
                p = js.item_end(p, end, &inner)
                if p == NULL:
                    return NULL
        else:
            p = pl.skip(p, end, plain)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    return p


cdef inline const char* candidate(const char* p, const char* end, Plain* plain) noexcept nogil:
    cdef bint more
    cdef Text key
    cdef int met = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"content", 7):
            p = content(p, end, plain) if once(&met, CONTENT_OF) else NULL
        elif called(&key, b"finishReason", 12):
            p = pl.nothing(p, end) if once(&met, FINISH) else NULL
        else:
            p = pl.skip(p, end, plain)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    return p


cdef inline bint gemini_chunk(
    const char* p, const char* end, Plain* plain, bint known_id, bint known_model
) noexcept nogil:
    """Read a whole chunk. `known`: whether the stream's id and model need no more be looked for."""
    cdef bint more, inner
    cdef Text key
    cdef int met = 0
    p = js.object_start(js.blank(p, end), end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL or p >= end:
            return False
        if called(&key, b"candidates", 10):
            if not once(&met, CANDIDATES) or p[0] != 91:
                return False
            p = js.blank(p + 1, end)
            inner = not (p < end and p[0] == 93)
            if not inner:
                p += 1
            while inner:
                p = candidate(p, end, plain)
                if p == NULL:
                    return False
                p = js.item_end(p, end, &inner)
                if p == NULL:
                    return False
        elif called(&key, b"usageMetadata", 13):
            if not once(&met, USAGE_OF) or p[0] != 123:
                return False
            plain.usage = p
            p = pl.skip(p, end, plain)
            if p == NULL:
                return False
            plain.usage_size = p - plain.usage
            if js.blank(plain.usage + 1, p)[0] == 125:
                return False  # empty
        elif called(&key, b"modelVersion", 12):
            p = pl.skip(p, end, plain) if known_model else pl.nothing(p, end)
        elif called(&key, b"responseId", 10):
            p = pl.skip(p, end, plain) if known_id else pl.nothing(p, end)
        elif called(&key, b"promptFeedback", 14):
            return False
        else:
            p = pl.skip(p, end, plain)
        if p == NULL:
            return False
        p = js.member_end(p, end, &more)
    if p == NULL or not met & CANDIDATES or js.blank(p, end) != end:
        return False
    # The reference cannot reach the usage's own bytes then, and writes them anew.
    return not (plain.lone and plain.usage != NULL)
