# cython: language_level=3
# Recognises a plain event of an OpenAI Responses stream: a delta, or the end of something whose deltas were counted.

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c cimport plain as pl
from arbiter._speedups.c.jsonscan cimport Text, called
from arbiter._speedups.c.plain cimport Plain, once, spoken

from libc.string cimport memcmp


cdef inline bint ends(const Text* text, const char* tail, Py_ssize_t size) noexcept nogil:
    return text.raw >= size and memcmp(text.at + text.raw - size, tail, size) == 0


cdef inline bint begins(const Text* text, const char* head, Py_ssize_t size) noexcept nogil:
    return text.raw >= size and memcmp(text.at, head, size) == 0


cdef inline bint response_event(const char* p, const char* end, Plain* plain) noexcept nogil:
    """Read a whole event; False where it is none of these."""
    cdef bint more
    cdef Text key, kind
    cdef int met = 0
    cdef Py_ssize_t size = 0
    kind.at = NULL
    kind.raw = 0
    p = js.object_start(js.blank(p, end), end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return False
        if called(&key, b"type", 4):
            p = js.string(p, end, &kind) if once(&met, pl.TYPE) else NULL
            if p == NULL or kind.escaped:
                return False
        elif called(&key, b"delta", 5):
            p = spoken(p, end, &met, pl.DELTA, &size, plain)
        else:
            p = pl.skip(p, end, plain)
        if p == NULL:
            return False
        p = js.member_end(p, end, &more)
    if p == NULL or not met & pl.TYPE or js.blank(p, end) != end or not begins(&kind, b"response.", 9):
        return False
    if ends(&kind, b".delta", 6):
        if called(&kind, b"response.output_text.delta", 26) or called(&kind, b"response.refusal.delta", 22):
            plain.text = size
        elif (called(&kind, b"response.reasoning_text.delta", 29)
                or called(&kind, b"response.reasoning_summary_text.delta", 37)):
            plain.reasoning = size
        elif (called(&kind, b"response.function_call_arguments.delta", 38)
                or called(&kind, b"response.custom_tool_call_input.delta", 37)
                or called(&kind, b"response.mcp_call_arguments.delta", 33)
                or called(&kind, b"response.code_interpreter_call_code.delta", 41)):
            plain.arguments = size
        return True
    if begins(&kind, b"response.content_part.", 22):
        return True
    return ends(&kind, b".done", 5) and not called(&kind, b"response.output_item.done", 25)
