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
from arbiter._speedups.py.answers import SHORT_BYTES, is_error, text, word

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
    PARTS = 8388608
    THOUGHT = 16777216
    INDEX = 33554432


cdef struct Told:
    Text id, model, version, finish, tier  # `at` is NULL where none was told
    const char* usage  # its bytes; NULL where there is none
    Py_ssize_t usage_size
    Py_ssize_t thinking, output
    Py_ssize_t part  # of the item that is being read
    bint compacted
    int calls
    Text[CALLS] names  # of the tools that are called; `at` is NULL where a call has none


cdef struct Here:  # one object, until it is known what it is
    int met
    Text kind, name  # `at` is NULL where none was told
    Py_ssize_t text, thought, given


ctypedef const char* (*Read)(const char* p, const char* end, Told* told) noexcept nogil
ctypedef const char* (*Member)(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil


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


cdef inline const char* given(const char* p, const char* end, Told* told, Read read) noexcept nogil:
    """Read a value by `read`, or null."""
    return js.null(p, end) if p < end and p[0] == c'n' else read(p, end, told)


cdef inline const char* each(const char* p, const char* end, Told* told, Read read) noexcept nogil:
    """Read an array, each entry of it by `read`."""
    cdef bint more
    if p >= end or p[0] != c'[':
        return NULL
    p = js.blank(p + 1, end)
    if p < end and p[0] == c']':
        return p + 1
    more = True
    while p != NULL and more:
        p = read(p, end, told)
        if p != NULL:
            p = js.item_end(p, end, &more)
    return p


cdef inline const char* members(const char* p, const char* end, Here* here, Told* told, Member read) noexcept nogil:
    """Read an object, each member of it by `read`."""
    cdef Text key
    cdef bint more
    here.met = 0
    here.kind.at = here.name.at = NULL
    here.text = here.thought = here.given = 0
    p = js.object_start(p, end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p != NULL:
            p = read(p, end, &key, here, told)
        if p != NULL:
            p = js.member_end(p, end, &more)
    return p


cdef inline const char* beside(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    """Read a member that all formats have, or pass over one that nobody looks at."""
    cdef const char* begin = p
    if called(key, b"id", 2):
        return named(p, end, &told.id) if once(&here.met, ID) else NULL
    if called(key, b"model", 5):
        return named(p, end, &told.model) if once(&here.met, MODEL) else NULL
    p = passed(p, end)
    if called(key, b"usage", 5):
        if not once(&here.met, USAGE):
            return NULL
        told.usage = begin
        told.usage_size = p - begin
    return p


cdef inline bint calls(Told* told, const Text* name) noexcept nogil:
    """Write down that a tool is called; False where there is no room for it."""
    if told.calls == CALLS:
        return False
    told.names[told.calls] = name[0]
    told.calls += 1
    return True


# --- OpenAI Chat -----------------------------------------------------------------------------------------------------


cdef const char* of_function(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"name", 4):
        return named(p, end, &here.name) if once(&here.met, NAME) else NULL
    if called(key, b"arguments", 9):
        return sized(p, end, &told.output) if once(&here.met, ARGUMENTS) else NULL
    return passed(p, end)


cdef const char* function(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_function)
    return p if p != NULL and calls(told, &here.name) else NULL


cdef const char* of_call(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"function", 8):
        return given(p, end, told, function) if once(&here.met, FUNCTION) else NULL
    return passed(p, end)


cdef const char* call(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    return members(p, end, &here, told, of_call)


cdef const char* tool_calls(const char* p, const char* end, Told* told) noexcept nogil:
    return each(p, end, told, call)


cdef const char* of_message(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"content", 7):
        return spoken(p, end, &told.output) if once(&here.met, CONTENT) else NULL
    if called(key, b"refusal", 7):
        return spoken(p, end, &told.output) if once(&here.met, REFUSAL) else NULL
    if called(key, b"reasoning_content", 17):
        return spoken(p, end, &here.thought) if once(&here.met, REASONING_CONTENT) else NULL
    if called(key, b"reasoning", 9):
        return spoken(p, end, &here.text) if once(&here.met, REASONING) else NULL
    if called(key, b"tool_calls", 10):
        return given(p, end, told, tool_calls) if once(&here.met, TOOL_CALLS) else NULL
    return passed(p, end)


cdef const char* message(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_message)
    told.thinking += here.thought if here.thought else here.text
    return p


cdef const char* of_choice(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"finish_reason", 13):
        return named(p, end, &here.name) if once(&here.met, FINISH) else NULL
    if called(key, b"message", 7):
        return given(p, end, told, message) if once(&here.met, MESSAGE) else NULL
    return passed(p, end)


cdef const char* choice(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_choice)
    if told.finish.at == NULL or told.finish.raw == 0:
        told.finish = here.name
    return p


cdef const char* of_chat(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"choices", 7):
        return each(p, end, told, choice) if once(&here.met, CONTENT) else NULL
    if called(key, b"system_fingerprint", 18):
        return named(p, end, &told.version) if once(&here.met, VERSION) else NULL
    if called(key, b"service_tier", 12):
        return named(p, end, &told.tier) if once(&here.met, TIER) else NULL
    return beside(p, end, key, here, told)


cdef const char* chat_answer(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_chat)
    return p if here.met & CONTENT else NULL


# --- Anthropic -------------------------------------------------------------------------------------------------------


cdef const char* of_block(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    cdef const char* begin = p
    if called(key, b"type", 4):
        return named(p, end, &here.kind) if once(&here.met, TYPE) else NULL
    if called(key, b"text", 4):
        return spoken(p, end, &told.output) if once(&here.met, TEXT) else NULL
    if called(key, b"thinking", 8):
        return spoken(p, end, &told.thinking) if once(&here.met, THINKING) else NULL
    if called(key, b"name", 4):
        return named(p, end, &here.name) if once(&here.met, NAME) else NULL
    if not called(key, b"input", 5):
        return passed(p, end)
    if not once(&here.met, INPUT):
        return NULL
    if p < end and p[0] == c'"':
        return sized(p, end, &here.given)
    p = passed(p, end)
    here.given = p - begin
    return p


cdef const char* block(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_block)
    if p == NULL or here.kind.at == NULL:
        return NULL
    if called(&here.kind, b"tool_use", 8):
        told.output += here.given
        return p if calls(told, &here.name) else NULL
    told.compacted = told.compacted or called(&here.kind, b"compaction", 10)
    return p


cdef const char* of_messages(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"content", 7):
        return each(p, end, told, block) if once(&here.met, CONTENT) else NULL
    if called(key, b"stop_reason", 11):
        return named(p, end, &told.finish) if once(&here.met, FINISH) else NULL
    if called(key, b"context_management", 18):
        return js.null(p, end) if once(&here.met, MANAGEMENT) else NULL
    return beside(p, end, key, here, told)


cdef const char* messages_answer(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_messages)
    return p if here.met & CONTENT else NULL


# --- OpenAI Responses ------------------------------------------------------------------------------------------------


cdef const char* of_part(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"text", 4):
        return spoken(p, end, &told.part) if once(&here.met, TEXT) else NULL
    if called(key, b"refusal", 7):
        return spoken(p, end, &told.part) if once(&here.met, REFUSAL) else NULL
    return passed(p, end)


cdef const char* part(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    return members(p, end, &here, told, of_part)


cdef const char* some_parts(const char* p, const char* end, Told* told) noexcept nogil:
    return each(p, end, told, part)


cdef const char* parts(const char* p, const char* end, Py_ssize_t* size, Told* told) noexcept nogil:
    """Read the texts of an item, or null, and add their size."""
    told.part = 0
    p = given(p, end, told, some_parts)
    size[0] += told.part
    return p


cdef const char* of_item(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"type", 4):
        return named(p, end, &here.kind) if once(&here.met, TYPE) else NULL
    if called(key, b"name", 4):
        return named(p, end, &here.name) if once(&here.met, NAME) else NULL
    if called(key, b"summary", 7):
        return parts(p, end, &here.thought, told) if once(&here.met, SUMMARY) else NULL
    if called(key, b"content", 7):
        return parts(p, end, &here.text, told) if once(&here.met, CONTENT) else NULL
    if called(key, b"arguments", 9):
        return spoken(p, end, &here.given) if once(&here.met, ARGUMENTS) else NULL
    if called(key, b"input", 5):
        return spoken(p, end, &here.given) if once(&here.met, INPUT) else NULL
    if called(key, b"code", 4):
        return spoken(p, end, &here.given) if once(&here.met, CODE) else NULL
    return passed(p, end)


cdef const char* item(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_item)
    if p == NULL or here.kind.at == NULL:
        return NULL
    if called(&here.kind, b"reasoning", 9):
        told.thinking += here.thought if here.thought else here.text
        return p
    if called(&here.kind, b"function_call", 13) or called(&here.kind, b"custom_tool_call", 16):
        if here.name.at == NULL or here.name.raw == 0 or not calls(told, &here.name):
            return NULL
    elif not called(&here.kind, b"message", 7):
        return NULL
    told.output += here.text + here.given
    return p


cdef const char* of_response(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"output", 6):
        return each(p, end, told, item) if once(&here.met, CONTENT) else NULL
    if called(key, b"status", 6):
        return named(p, end, &told.finish) if once(&here.met, FINISH) else NULL
    if called(key, b"incomplete_details", 18):
        return js.null(p, end) if once(&here.met, INCOMPLETE) else NULL
    if called(key, b"service_tier", 12):
        return named(p, end, &told.tier) if once(&here.met, TIER) else NULL
    return beside(p, end, key, here, told)


cdef const char* response(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_response)
    if not here.met & CONTENT:
        return NULL
    # These are no answer, whatever there is of their output.
    if told.finish.at != NULL and (called(&told.finish, b"failed", 6) or called(&told.finish, b"cancelled", 9)):
        return NULL
    return p


# --- Gemini ----------------------------------------------------------------------------------------------------------


cdef const char* of_gemini_part(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"text", 4):
        return spoken(p, end, &here.text) if once(&here.met, TEXT) else NULL
    if called(key, b"thought", 7):
        if not once(&here.met, THOUGHT) or p >= end:
            return NULL
        here.given = p[0] == c't'
        return js.word(p, end, b"true", 4) if here.given else js.word(p, end, b"false", 5)
    # Arguments are an object here, whose size is that of a text which nobody wrote.
    return NULL if called(key, b"functionCall", 12) else passed(p, end)


cdef const char* gemini_part(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_gemini_part)
    if here.given:
        told.thinking += here.text
    else:
        told.output += here.text
    return p


cdef const char* gemini_parts(const char* p, const char* end, Told* told) noexcept nogil:
    return each(p, end, told, gemini_part)


cdef const char* of_content(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    if called(key, b"parts", 5):
        return given(p, end, told, gemini_parts) if once(&here.met, PARTS) else NULL
    return passed(p, end)


cdef const char* content(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    return members(p, end, &here, told, of_content)


cdef const char* of_candidate(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    cdef long long index
    if called(key, b"content", 7):
        return given(p, end, told, content) if once(&here.met, CONTENT) else NULL
    if called(key, b"finishReason", 12):
        return named(p, end, &here.name) if once(&here.met, FINISH) else NULL
    if not called(key, b"index", 5):
        return passed(p, end)
    if not once(&here.met, INDEX):
        return NULL
    p = js.integer(p, end, &index)
    return p if index == 0 else NULL  # the first one's reason is told


cdef const char* candidate(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_candidate)
    if told.finish.at == NULL or told.finish.raw == 0:
        told.finish = here.name
    return p


cdef const char* of_gemini(const char* p, const char* end, const Text* key, Here* here, Told* told) noexcept nogil:
    cdef const char* begin = p
    if called(key, b"candidates", 10):
        return each(p, end, told, candidate) if once(&here.met, CONTENT) else NULL
    if called(key, b"responseId", 10):
        return named(p, end, &told.id) if once(&here.met, ID) else NULL
    if called(key, b"modelVersion", 12):
        return named(p, end, &told.model) if once(&here.met, MODEL) else NULL
    if called(key, b"promptFeedback", 14) or called(key, b"error", 5):
        return NULL
    if called(key, b"object", 6) or called(key, b"type", 4):
        return NULL  # errors have these
    p = passed(p, end)
    if called(key, b"usageMetadata", 13):
        if not once(&here.met, USAGE) or p == NULL or begin[0] != c'{' or js.blank(begin + 1, end)[0] == c'}':
            return NULL  # one without members counts nothing
        told.usage = begin
        told.usage_size = p - begin
    return p


cdef inline void unless_empty(Text* text) noexcept nogil:
    """An empty word says nothing."""
    if text.at != NULL and text.raw == 0:
        text.at = NULL


cdef const char* gemini_answer(const char* p, const char* end, Told* told) noexcept nogil:
    cdef Here here
    p = members(p, end, &here, told, of_gemini)
    if not here.met & CONTENT:
        return NULL
    unless_empty(&told.id)
    unless_empty(&told.model)
    unless_empty(&told.finish)
    if told.finish.at != NULL and called(&told.finish, b"FINISH_REASON_UNSPECIFIED", 25):
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


def gemini(bytes body not None):
    cdef Told told
    return said(&told) if is_read(body, gemini_answer, &told) else reference.gemini(body)
