# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What a whole answer says about itself, compiled. Twin of `arbiter/_speedups/py/answers.py`, which says what it means.

An answer of the usual shape is read in one pass over its JSON, and nothing is made of it but what is told. Anything
unusual (a member that comes twice or has another type than its own, an escape in a name, half an emoji, a kind of item
that is seldom, more bytes than are short) goes to the reference.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c.jsonscan cimport Text, called
from arbiter._speedups.c.plain cimport once
from arbiter._speedups.c.utf8 cimport malformed

from arbiter._speedups.py import answers as reference
from arbiter._speedups.py.answers import SHORT_BYTES, gemini, is_error, text, word

Said = tuple

cdef Py_ssize_t SHORT = SHORT_BYTES


cdef enum:
    CALLS = 32  # of one answer; more are seldom


cdef enum:  # members that were met
    ID = 1
    MODEL = 2
    USAGE = 4
    TIER = 8
    VERSION = 16
    FINISH = 32
    CONTENT = 64
    MANAGEMENT = 128
    INCOMPLETE = 256
    MESSAGE = 512
    REFUSAL = 1024
    REASONING_CONTENT = 2048
    REASONING = 4096
    TOOL_CALLS = 8192
    FUNCTION = 16384
    NAME = 32768
    ARGUMENTS = 65536
    TYPE = 131072
    TEXT = 262144
    THINKING = 524288
    INPUT = 1048576
    SUMMARY = 2097152
    CODE = 4194304


cdef struct Told:
    Text id, model, version, finish, tier  # `at` is NULL where none was told
    const char* usage  # its bytes; NULL where there is none
    Py_ssize_t usage_size
    Py_ssize_t thinking, output
    bint compacted
    int calls
    Text[CALLS] names  # of the tools that are called; `at` is NULL where a call has none


ctypedef const char* (*Read)(const char* p, const char* end, Told* told) noexcept nogil


cdef inline const char* named(const char* p, const char* end, Text* text) noexcept nogil:
    """Read a string without escapes, or null."""
    if p < end and p[0] == c'n':
        text.at = NULL
        return js.null(p, end)
    p = js.string(p, end, text)
    return NULL if p == NULL or text.escaped else p


cdef inline const char* sized(const char* p, const char* end, Py_ssize_t* size) noexcept nogil:
    """Read a string, and add its size."""
    cdef Text text
    p = js.string(p, end, &text)
    if p == NULL or text.lone:
        return NULL
    size[0] += text.size
    return p


cdef inline const char* spoken(const char* p, const char* end, Py_ssize_t* size) noexcept nogil:
    """The same, or null."""
    return js.null(p, end) if p < end and p[0] == c'n' else sized(p, end, size)


cdef inline const char* passed(const char* p, const char* end) noexcept nogil:
    """Pass over any value."""
    cdef Text text
    text.lone = False
    p = js.skip(p, end, 0, &text)
    return NULL if text.lone else p


cdef inline const char* array_start(const char* p, const char* end, bint* more) noexcept nogil:
    """Enter an array; `more` says whether it has entries."""
    if p >= end or p[0] != c'[':
        return NULL
    p = js.blank(p + 1, end)
    more[0] = not (p < end and p[0] == c']')
    return p if more[0] else p + 1


cdef inline const char* each(const char* p, const char* end, Told* told, Read read) noexcept nogil:
    """Read an array, each entry of it by `read`."""
    cdef bint more
    p = array_start(p, end, &more)
    while p != NULL and more:
        p = read(p, end, told)
        if p != NULL:
            p = js.item_end(p, end, &more)
    return p


cdef inline const char* beside(const char* p, const char* end, const Text* key, int* met, Told* told) noexcept nogil:
    """Read a member that all formats have, or pass over one that nobody looks at."""
    cdef const char* begin = p
    if called(key, b"id", 2):
        return named(p, end, &told.id) if once(met, ID) else NULL
    if called(key, b"model", 5):
        return named(p, end, &told.model) if once(met, MODEL) else NULL
    p = passed(p, end)
    if called(key, b"usage", 5):
        if not once(met, USAGE):
            return NULL
        told.usage = begin
        told.usage_size = p - begin
    return p


# --- OpenAI Chat -----------------------------------------------------------------------------------------------------


cdef const char* function(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Text key
    cdef bint more
    cdef int met = 0
    cdef Text* name
    if told.calls == CALLS:
        return NULL
    name = &told.names[told.calls]
    name.at = NULL
    told.calls += 1
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"name", 4):
            p = named(p, end, name) if once(&met, NAME) else NULL
        elif called(&key, b"arguments", 9):
            p = sized(p, end, &told.output) if once(&met, ARGUMENTS) else NULL
        else:
            p = passed(p, end)
        if p != NULL:
            p = js.member_end(p, end, &more)
    return p


cdef const char* call(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Text key
    cdef bint more
    cdef int met = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"function", 8):
            if not once(&met, FUNCTION):
                return NULL
            p = js.null(p, end) if p < end and p[0] == c'n' else function(p, end, told)
        else:
            p = passed(p, end)
        if p != NULL:
            p = js.member_end(p, end, &more)
    return p


cdef const char* message(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Text key
    cdef bint more
    cdef int met = 0
    cdef Py_ssize_t thought = 0
    cdef Py_ssize_t reasoned = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"content", 7):
            p = spoken(p, end, &told.output) if once(&met, CONTENT) else NULL
        elif called(&key, b"refusal", 7):
            p = spoken(p, end, &told.output) if once(&met, REFUSAL) else NULL
        elif called(&key, b"reasoning_content", 17):
            p = spoken(p, end, &thought) if once(&met, REASONING_CONTENT) else NULL
        elif called(&key, b"reasoning", 9):
            p = spoken(p, end, &reasoned) if once(&met, REASONING) else NULL
        elif called(&key, b"tool_calls", 10):
            if not once(&met, TOOL_CALLS):
                return NULL
            p = js.null(p, end) if p < end and p[0] == c'n' else each(p, end, told, call)
        else:
            p = passed(p, end)
        if p != NULL:
            p = js.member_end(p, end, &more)
    told.thinking += thought if thought else reasoned
    return p


cdef const char* choice(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Text key, finish
    cdef bint more
    cdef int met = 0
    finish.at = NULL
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"finish_reason", 13):
            p = named(p, end, &finish) if once(&met, FINISH) else NULL
        elif called(&key, b"message", 7):
            if not once(&met, MESSAGE):
                return NULL
            p = js.null(p, end) if p < end and p[0] == c'n' else message(p, end, told)
        else:
            p = passed(p, end)
        if p != NULL:
            p = js.member_end(p, end, &more)
    if told.finish.at == NULL or told.finish.raw == 0:
        told.finish = finish
    return p


cdef const char* chat_answer(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Text key
    cdef bint more
    cdef int met = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"choices", 7):
            p = each(p, end, told, choice) if once(&met, CONTENT) else NULL
        elif called(&key, b"system_fingerprint", 18):
            p = named(p, end, &told.version) if once(&met, VERSION) else NULL
        elif called(&key, b"service_tier", 12):
            p = named(p, end, &told.tier) if once(&met, TIER) else NULL
        else:
            p = beside(p, end, &key, &met, told)
        if p != NULL:
            p = js.member_end(p, end, &more)
    return p if met & CONTENT else NULL


# --- Anthropic -------------------------------------------------------------------------------------------------------


cdef const char* block(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Text key, kind, name
    cdef bint more
    cdef int met = 0
    cdef const char* begin
    cdef Py_ssize_t given = 0
    kind.at = name.at = NULL
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"type", 4):
            p = named(p, end, &kind) if once(&met, TYPE) else NULL
        elif called(&key, b"text", 4):
            p = spoken(p, end, &told.output) if once(&met, TEXT) else NULL
        elif called(&key, b"thinking", 8):
            p = spoken(p, end, &told.thinking) if once(&met, THINKING) else NULL
        elif called(&key, b"name", 4):
            p = named(p, end, &name) if once(&met, NAME) else NULL
        elif called(&key, b"input", 5):
            if not once(&met, INPUT):
                return NULL
            begin = p
            if p < end and p[0] == c'"':
                p = sized(p, end, &given)
            else:
                p = passed(p, end)
                given = p - begin
        else:
            p = passed(p, end)
        if p != NULL:
            p = js.member_end(p, end, &more)
    if p == NULL or kind.at == NULL:
        return NULL
    if called(&kind, b"tool_use", 8):
        if told.calls == CALLS:
            return NULL
        told.names[told.calls] = name
        told.calls += 1
        told.output += given
    elif called(&kind, b"compaction", 10):
        told.compacted = True
    return p


cdef const char* messages_answer(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Text key
    cdef bint more
    cdef int met = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"content", 7):
            p = each(p, end, told, block) if once(&met, CONTENT) else NULL
        elif called(&key, b"stop_reason", 11):
            p = named(p, end, &told.finish) if once(&met, FINISH) else NULL
        elif called(&key, b"context_management", 18):
            p = js.null(p, end) if once(&met, MANAGEMENT) else NULL
        else:
            p = beside(p, end, &key, &met, told)
        if p != NULL:
            p = js.member_end(p, end, &more)
    return p if met & CONTENT else NULL


# --- OpenAI Responses ------------------------------------------------------------------------------------------------


cdef const char* parts(const char* p, const char* end, Py_ssize_t* size) noexcept nogil:
    """Read the texts of an item, or null."""
    cdef Text key
    cdef bint more, more_of_it
    cdef int met
    if p < end and p[0] == c'n':
        return js.null(p, end)
    p = array_start(p, end, &more)
    while p != NULL and more:
        met = 0
        p = js.object_start(p, end, &more_of_it)
        while p != NULL and more_of_it:
            p = js.key(p, end, &key)
            if p == NULL:
                return NULL
            if called(&key, b"text", 4):
                p = spoken(p, end, size) if once(&met, TEXT) else NULL
            elif called(&key, b"refusal", 7):
                p = spoken(p, end, size) if once(&met, REFUSAL) else NULL
            else:
                p = passed(p, end)
            if p != NULL:
                p = js.member_end(p, end, &more_of_it)
        if p != NULL:
            p = js.item_end(p, end, &more)
    return p


cdef const char* item(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Text key, kind, name
    cdef bint more
    cdef int met = 0
    cdef Py_ssize_t summary = 0
    cdef Py_ssize_t content = 0
    cdef Py_ssize_t given = 0
    kind.at = name.at = NULL
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"type", 4):
            p = named(p, end, &kind) if once(&met, TYPE) else NULL
        elif called(&key, b"name", 4):
            p = named(p, end, &name) if once(&met, NAME) else NULL
        elif called(&key, b"summary", 7):
            p = parts(p, end, &summary) if once(&met, SUMMARY) else NULL
        elif called(&key, b"content", 7):
            p = parts(p, end, &content) if once(&met, CONTENT) else NULL
        elif called(&key, b"arguments", 9):
            p = spoken(p, end, &given) if once(&met, ARGUMENTS) else NULL
        elif called(&key, b"input", 5):
            p = spoken(p, end, &given) if once(&met, INPUT) else NULL
        elif called(&key, b"code", 4):
            p = spoken(p, end, &given) if once(&met, CODE) else NULL
        else:
            p = passed(p, end)
        if p != NULL:
            p = js.member_end(p, end, &more)
    if p == NULL or kind.at == NULL:
        return NULL
    if called(&kind, b"reasoning", 9):
        told.thinking += summary if summary else content
        return p
    if called(&kind, b"function_call", 13) or called(&kind, b"custom_tool_call", 16):
        if told.calls == CALLS or name.at == NULL or name.raw == 0:
            return NULL
        told.names[told.calls] = name
        told.calls += 1
    elif not called(&kind, b"message", 7):
        return NULL
    told.output += content + given
    return p


cdef const char* response(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Text key
    cdef bint more
    cdef int met = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL:
            return NULL
        if called(&key, b"output", 6):
            p = each(p, end, told, item) if once(&met, CONTENT) else NULL
        elif called(&key, b"status", 6):
            p = named(p, end, &told.finish) if once(&met, FINISH) else NULL
        elif called(&key, b"incomplete_details", 18):
            p = js.null(p, end) if once(&met, INCOMPLETE) else NULL
        elif called(&key, b"service_tier", 12):
            p = named(p, end, &told.tier) if once(&met, TIER) else NULL
        else:
            p = beside(p, end, &key, &met, told)
        if p != NULL:
            p = js.member_end(p, end, &more)
    if not met & CONTENT:
        return NULL
    # These are no answer, whatever there is of their output.
    if told.finish.at != NULL and (called(&told.finish, b"failed", 6) or called(&told.finish, b"cancelled", 9)):
        return NULL
    return p


# --- what is told ----------------------------------------------------------------------------------------------------


cdef bint is_read(bytes body, Read read, Told* told) noexcept:
    cdef const char* p = PyBytes_AS_STRING(body)
    cdef const char* end = p + PyBytes_GET_SIZE(body)
    # The scanner takes UTF-8 for granted.
    if end - p > SHORT or malformed(<const unsigned char*>p, <const unsigned char*>end) != NULL:
        return False
    told.id.at = told.model.at = told.version.at = told.finish.at = told.tier.at = told.usage = NULL
    told.thinking = told.output = 0
    told.calls = 0
    told.compacted = False
    p = read(js.blank(p, end), end, told)
    return p != NULL and js.blank(p, end) == end


cdef inline object told_word(const Text* text):
    return None if text.at == NULL else PyUnicode_DecodeUTF8(text.at, text.raw, NULL)


cdef tuple said(Told* told):
    cdef object usage = None
    cdef tuple names = ()
    if told.usage != NULL:
        usage = PyBytes_FromStringAndSize(told.usage, told.usage_size)
    if told.calls:
        names = tuple([told_word(&told.names[i]) or "" for i in range(told.calls)])
    return (
        told_word(&told.id), told_word(&told.model), told_word(&told.version), told_word(&told.finish),
        told_word(&told.tier), usage, told.thinking, told.output, names, False, None, told.compacted,
    )


def chat(bytes body not None):
    cdef Told told
    return said(&told) if is_read(body, chat_answer, &told) else reference.chat(body)


def messages(bytes body not None):
    cdef Told told
    return said(&told) if is_read(body, messages_answer, &told) else reference.messages(body)


def responses(bytes body not None):
    cdef Told told
    return said(&told) if is_read(body, response, &told) else reference.responses(body)
