# cython: language_level=3
# Recognises a plain chat-completions chunk: one that has choices, ends none of them and begins no call.

from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c cimport plain as pl
from arbiter._speedups.c.jsonscan cimport Text, called
from arbiter._speedups.c.plain cimport Plain, once, spoken


cdef enum:
    MAX_HEAD_BYTES = 2048


cdef struct Head:
    # The chunks of a stream begin alike: id, object, created, model. The last beginning, up to the value of `choices`,
    # is kept with what reading it found; a chunk with the same bytes need not be read there again.
    char* at
    Py_ssize_t size, room
    int met
    Py_ssize_t read  # of the chunk in hand, 0 where its beginning holds anything to count
    int read_met


cdef inline int remember(Head* head, const char* data) except -1:
    """Keep the beginning of the chunk that was just read."""
    cdef char* room
    if head.read > MAX_HEAD_BYTES:
        return 0
    if head.read > head.room:
        room = <char*>realloc(head.at, head.read)
        if room == NULL:
            raise MemoryError
        head.at, head.room = room, head.read
    memcpy(head.at, data, head.read)
    head.size, head.met = head.read, head.read_met
    return 0


cdef inline bint keeps(const char* p, const char* end) noexcept nogil:
    """Whether a member that the upstream wants back says anything: it is neither null nor an empty array."""
    if p < end and p[0] == 91:
        p = js.blank(p + 1, end)
        return not (p < end and p[0] == 93)
    return not (p < end and p[0] == 110)


cdef inline const char* fragment(const char* p, const char* end, Plain* plain) noexcept nogil:
    """Read one tool-call fragment that only carries arguments on."""
    cdef bint more, inner
    cdef Text key
    cdef int met = 0
    plain.fragments += 1
    plain.index = -1
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"index", 5):
            p = js.integer(p, end, &plain.index) if once(&met, pl.INDEX) else NULL
        elif called(&key, b"id", 2):
            p = pl.nothing(p, end) if once(&met, pl.ID) else NULL
        elif called(&key, b"function", 8):
            p = js.object_start(p, end, &inner) if once(&met, pl.FUNCTION) else NULL
            while p != NULL and inner:
                p = js.key(p, end, &key)
                if p == NULL:
                    return NULL
                if called(&key, b"arguments", 9):
                    p = spoken(p, end, &met, pl.ARGUMENTS, &plain.arguments, plain)
                elif called(&key, b"name", 4):
                    p = pl.nothing(p, end) if once(&met, pl.NAME) else NULL
                else:
                    p = pl.skip(p, end, plain)
                if p == NULL:
                    return NULL
                p = js.member_end(p, end, &inner)
        elif called(&key, b"reasoning_details", 17) or called(&key, b"extra_content", 13):
            if not once(&met, pl.DETAILS if key.raw == 17 else pl.EXTRA):
                return NULL
            plain.kept = plain.kept or keeps(p, end)
            p = pl.skip(p, end, plain)
        else:
            p = pl.skip(p, end, plain)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    return p


cdef inline const char* delta(const char* p, const char* end, Plain* plain, bint clashed) noexcept nogil:
    cdef bint more, inner
    cdef Text key
    cdef int met = 0
    cdef Py_ssize_t reasoning = 0
    cdef Py_ssize_t reasoning_content = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"content", 7):
            p = spoken(p, end, &met, pl.CONTENT, &plain.text, plain)
        elif called(&key, b"tool_calls", 10):
            if not once(&met, pl.TOOL_CALLS):
                return NULL
            if p < end and p[0] == 110:
                p = js.null(p, end)
            elif p < end and p[0] == 91:
                p = js.blank(p + 1, end)
                inner = not (p < end and p[0] == 93)
                if not inner:
                    p += 1
                elif clashed:
                    return NULL
                while inner:
                    p = fragment(p, end, plain)
                    if p == NULL:
                        return NULL
                    p = js.item_end(p, end, &inner)
                    if p == NULL:
                        return NULL
            else:
                return NULL
        elif called(&key, b"reasoning_content", 17):
            p = spoken(p, end, &met, pl.REASONING_CONTENT, &reasoning_content, plain)
        elif called(&key, b"reasoning", 9):
            p = spoken(p, end, &met, pl.REASONING, &reasoning, plain)
        elif called(&key, b"refusal", 7):
            p = spoken(p, end, &met, pl.REFUSAL, &plain.text, plain)
        elif called(&key, b"function_call", 13):
            p = js.null(p, end) if once(&met, pl.FUNCTION_CALL) else NULL
        elif called(&key, b"reasoning_details", 17) or called(&key, b"extra_content", 13):
            if not once(&met, pl.DETAILS if key.raw == 17 else pl.EXTRA):
                return NULL
            plain.kept = plain.kept or keeps(p, end)
            p = pl.skip(p, end, plain)
        else:
            p = pl.skip(p, end, plain)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    plain.reasoning += reasoning if reasoning else reasoning_content
    return p


cdef inline const char* choice(const char* p, const char* end, Plain* plain, bint clashed) noexcept nogil:
    cdef bint more
    cdef Text key
    cdef long long index = -1
    cdef int met = 0
    plain.entries += 1
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"delta", 5):
            p = delta(p, end, plain, clashed) if once(&met, pl.DELTA) else NULL
        elif called(&key, b"index", 5):
            p = js.integer(p, end, &index) if once(&met, pl.INDEX) else NULL
        elif called(&key, b"finish_reason", 13):
            p = pl.nothing(p, end) if once(&met, pl.FINISH_REASON) else NULL
        elif called(&key, b"usage", 5):
            p = js.null(p, end) if once(&met, pl.USAGE) else NULL
        elif called(&key, b"logprobs", 8):
            if not once(&met, pl.LOGPROBS):
                return NULL
            plain.logprobs = plain.logprobs or not (p < end and p[0] == 110)
            p = pl.skip(p, end, plain)
        else:
            p = pl.skip(p, end, plain)
        if p == NULL:
            return NULL
        p = js.member_end(p, end, &more)
    if index < 0 or index > 63:
        return NULL
    plain.choices |= (<unsigned long long>1) << index
    return p


cdef inline bint chunk(
    const char* p,
    const char* end,
    Plain* plain,
    Head* head,
    bint known_id,
    bint known_model,
    bint known_tier,
    bint clashed,
) noexcept nogil:
    """Read a whole chunk. `known`: whether the stream's id, model and service tier need no more be looked for."""
    cdef const char* begin = p
    cdef const char* aside
    cdef bint more, inner
    cdef bint at_choices = False
    cdef Text key, text
    cdef int met = 0
    head.read = 0
    if head.size and end - p > head.size and memcmp(p, head.at, head.size) == 0:
        p += head.size
        met = head.met
        more = at_choices = True
    else:
        p = js.object_start(js.blank(p, end), end, &more)
    while p != NULL and more:
        if not at_choices:
            p = js.key(p, end, &key)
            if p == NULL:
                return False
            at_choices = called(&key, b"choices", 7)
            if at_choices and not plain.lone and plain.usage == NULL:
                head.read = p - begin
                head.read_met = met
        if at_choices:
            at_choices = False
            if not once(&met, pl.CHOICES) or p >= end or p[0] != 91:
                return False
            p = js.blank(p + 1, end)
            inner = True
            while inner:
                p = choice(p, end, plain, clashed)
                if p == NULL:
                    return False
                p = js.item_end(p, end, &inner)
                if p == NULL:
                    return False
        elif called(&key, b"id", 2):
            if not once(&met, pl.ID):
                return False
            p = pl.skip(p, end, plain) if known_id else pl.nothing(p, end)
        elif called(&key, b"model", 5):
            if not once(&met, pl.MODEL):
                return False
            p = pl.skip(p, end, plain) if known_model else pl.nothing(p, end)
        elif not known_tier and called(&key, b"service_tier", 12):
            p = pl.nothing(p, end)
        elif called(&key, b"object", 6):
            p = js.string(p, end, &text) if once(&met, pl.OBJECT) else NULL
            if p == NULL or text.escaped or called(&text, b"error", 5):
                return False
        elif called(&key, b"usage", 5):
            if not once(&met, pl.USAGE) or p >= end:
                return False
            if p[0] == 110:
                p = js.null(p, end)
            elif p[0] == 123:
                plain.usage = p
                p = pl.skip(p, end, plain)
                if p == NULL:
                    return False
                plain.usage_size = p - plain.usage
                if js.blank(plain.usage + 1, p)[0] == 125:
                    return False  # empty
            else:
                return False
        elif called(&key, b"error", 5):
            p = js.null(p, end) if once(&met, pl.ERROR) else NULL
        elif called(&key, b"type", 4) or called(&key, b"x_groq", 6):
            return False
        else:
            aside = p
            p = pl.skip(p, end, plain)
            if p != NULL and met & pl.CHOICES and aside[0] == 34:
                plain.aside, plain.aside_size = aside, p - aside
        if p == NULL:
            return False
        p = js.member_end(p, end, &more)
    if p == NULL or not met & pl.CHOICES or js.blank(p, end) != end:
        return False
    # The reference cannot reach the usage's own bytes then, and writes them anew.
    return not (plain.lone and plain.usage != NULL)
