# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""A provider's usage object, compiled. Twin of `arbiter/_speedups/py/usage.py`, which says what the counts mean.

Usage objects are flat, with one level of details: one pass over the JSON puts the counts that matter into slots. Anything
unusual (a fraction, a name met twice, an object where a count should be) goes to the reference.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

cdef extern from "<string.h>" nogil:
    void* memmem(const void* within, size_t size, const void* what, size_t length)

from arbiter._speedups.c cimport jsonscan as js
from arbiter._speedups.c.jsonscan cimport Text, called

from arbiter._speedups.py import usage as reference

Counts = tuple


cdef enum:  # slots: first where the counts of the object itself stand, then those of its details
    PROMPT, COMPLETION, TOTAL, HIT, CACHED, CACHE_READ, CACHE_CREATION, REASONING, INPUT, OUTPUT
    DETAIL_CACHED, DETAIL_WRITE, DETAIL_CREATION, DETAIL_CREATION_INPUT
    FIVE, HOUR, DETAIL_REASONING, DETAIL_THINKING
    AUDIO_INPUT, AUDIO_OUTPUT
    COST, COST_TOTAL, COST_INFERENCE, COST_TICKS, COST_ESTIMATED, OWN_KEY
    IN_CACHED, IN_WRITE, IN_CREATION, IN_CREATION_INPUT, IN_AUDIO, OUT_REASONING, OUT_AUDIO  # a Responses answer's
    SEARCHES, QUERIES
    SLOTS


cdef enum Part:
    WHOLE, PROMPT_DETAILS, COMPLETION_DETAILS, INPUT_DETAILS, OUTPUT_DETAILS, WRITES, COSTS, COST_DETAILS
    SERVER_TOOLS


cdef struct Read:
    long long slots[SLOTS]  # -1: not stated; -2: null
    unsigned int met  # parts, one bit each
    Text tier  # of no characters where it was not stated


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
        if called(key, b"cost", 4):
            return COST
        if called(key, b"cost_in_usd_ticks", 17):
            return COST_TICKS
        if called(key, b"estimated_cost", 14):
            return COST_ESTIMATED
        if called(key, b"is_byok", 7):
            return OWN_KEY
        if called(key, b"num_search_queries", 18):
            return QUERIES
    elif part == PROMPT_DETAILS:
        if called(key, b"cached_tokens", 13):
            return DETAIL_CACHED
        if called(key, b"cache_write_tokens", 18):
            return DETAIL_WRITE
        if called(key, b"cache_creation_tokens", 21):
            return DETAIL_CREATION
        if called(key, b"cache_creation_input_tokens", 27):
            return DETAIL_CREATION_INPUT
        if called(key, b"audio_tokens", 12):
            return AUDIO_INPUT
    elif part == WRITES:
        if called(key, b"ephemeral_5m_input_tokens", 25):
            return FIVE
        if called(key, b"ephemeral_1h_input_tokens", 25):
            return HOUR
    elif part == COMPLETION_DETAILS:
        if called(key, b"reasoning_tokens", 16):
            return DETAIL_REASONING
        if called(key, b"audio_tokens", 12):
            return AUDIO_OUTPUT
    elif part == COSTS:
        if called(key, b"total_cost", 10):
            return COST_TOTAL
    elif part == SERVER_TOOLS:
        if called(key, b"web_search_requests", 19):
            return SEARCHES
    elif part == COST_DETAILS:
        if called(key, b"upstream_inference_cost", 23):
            return COST_INFERENCE
    elif part == INPUT_DETAILS:
        if called(key, b"cached_tokens", 13):
            return IN_CACHED
        if called(key, b"cache_write_tokens", 18):
            return IN_WRITE
        if called(key, b"cache_creation_tokens", 21):
            return IN_CREATION
        if called(key, b"cache_creation_input_tokens", 27):
            return IN_CREATION_INPUT
        if called(key, b"audio_tokens", 12):
            return IN_AUDIO
    elif called(key, b"thinking_tokens", 15):
        return DETAIL_THINKING
    elif called(key, b"reasoning_tokens", 16):
        return OUT_REASONING
    elif called(key, b"audio_tokens", 12):
        return OUT_AUDIO
    return -1


cdef inline Part _part(Part part, const Text* key, bint is_object) noexcept nogil:
    """Which part of the usage a member opens, WHOLE for none."""
    if part == WHOLE:
        if is_object and called(key, b"cost", 4):
            return COSTS
        if called(key, b"cost_details", 12):
            return COST_DETAILS
        if called(key, b"prompt_tokens_details", 21):
            return PROMPT_DETAILS
        if called(key, b"completion_tokens_details", 25):
            return COMPLETION_DETAILS
        if called(key, b"input_tokens_details", 20):
            return INPUT_DETAILS
        if called(key, b"output_tokens_details", 21):
            return OUTPUT_DETAILS
        if called(key, b"server_tool_use", 15):
            return SERVER_TOOLS
    if (part == WHOLE or part == PROMPT_DETAILS or part == INPUT_DETAILS) and called(key, b"cache_creation", 14):
        return WRITES
    return WHOLE


cdef const char* _dollars(const char* p, const char* end, long long* value) noexcept nogil:
    """Read an amount as picodollars: at most six digits, a point, and at most twelve."""
    cdef const char* begin = p
    cdef int left = 12
    value[0] = 0
    while p < end and 48 <= p[0] <= 57:
        value[0] = value[0] * 10 + p[0] - 48
        p += 1
    if p == begin or p - begin > 6 or (begin[0] == 48 and p - begin > 1):
        return NULL
    if p < end and p[0] == 46:
        p += 1
        begin = p
        while p < end and 48 <= p[0] <= 57:
            if left == 0:
                return NULL
            value[0] = value[0] * 10 + p[0] - 48
            left -= 1
            p += 1
        if p == begin:
            return NULL
    if p < end and (p[0] == 101 or p[0] == 69):
        return NULL
    while left:
        value[0] *= 10
        left -= 1
    return p


cdef inline const char* _value(const char* p, const char* end, int slot, long long* value) noexcept nogil:
    if p[0] == 110:
        value[0] = -2
        return js.null(p, end)
    if slot == OWN_KEY:
        value[0] = p[0] == 116
        return js.word(p, end, b"true", 4) if p[0] == 116 else js.word(p, end, b"false", 5)
    if slot == COST or slot == COST_TOTAL or slot == COST_INFERENCE or slot == COST_ESTIMATED:
        return _dollars(p, end, value)
    return js.integer(p, end, value)


cdef inline const char* _tier(const char* p, const char* end, Read* read) noexcept nogil:
    if read.tier.raw or p[0] == 110:
        return NULL
    p = js.string(p, end, &read.tier)
    return NULL if p == NULL or read.tier.escaped or not 0 < read.tier.raw <= 64 else p


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
        inner = _part(part, &key, p[0] == 123)
        if inner != WHOLE:
            if read.met & (1 << inner):
                return NULL
            read.met |= 1 << inner
            p = js.null(p, end) if p[0] == 110 else _object(p, end, inner, read)
        elif slot >= 0:
            if read.slots[slot] != -1:
                return NULL
            p = _value(p, end, slot, &read.slots[slot])
        elif part == WHOLE and called(&key, b"service_tier", 12):
            p = _tier(p, end, read)
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
    read.tier.raw = 0
    p = _object(js.blank(PyBytes_AS_STRING(raw), end), end, WHOLE, read)
    return p != NULL and js.blank(p, end) == end


cdef inline long long _first(long long a, long long b, long long c=-1, long long d=-1) noexcept nogil:
    return a if a >= 0 else b if b >= 0 else c if c >= 0 else d


cdef inline object _count(long long value):
    return value if value >= 0 else None


cdef inline long long _cost(Read* read) noexcept nogil:
    """What the provider says it cost, in picodollars; -1 where it does not."""
    cdef long long* s = read.slots
    cdef long long cost = s[COST] if s[COST] >= 0 else s[COST_TOTAL]
    if cost < 0:
        cost = s[COST_INFERENCE]
    elif s[COST_INFERENCE] >= 0 and s[OWN_KEY] == 1:
        cost += s[COST_INFERENCE]
    if cost >= 0:
        return cost
    return s[COST_TICKS] * 100 if s[COST_TICKS] >= 0 else s[COST_ESTIMATED]


cdef inline long long _searches(const long long* s) noexcept nogil:
    return _first(s[SEARCHES], s[QUERIES])


cdef inline object _word(Read* read):
    return read.tier.at[:read.tier.raw].decode("ascii") if read.tier.raw else None


cdef tuple _messages(Read* read):
    cdef long long* s = read.slots
    cdef long long write = s[CACHE_CREATION]
    cdef long long cost = _cost(read)
    if write < 0 and (s[FIVE] >= 0 or s[HOUR] >= 0):
        write = max(s[FIVE], 0) + max(s[HOUR], 0)
    if (s[INPUT] < 0 and s[CACHE_READ] < 0 and write < 0 and s[OUTPUT] < 0 and s[DETAIL_THINKING] < 0
            and s[TOTAL] < 0 and _searches(s) < 0 and cost < 0 and not read.tier.raw):
        return None
    return (
        _count(s[INPUT]), _count(s[CACHE_READ]), _count(write), _count(s[FIVE]), _count(s[HOUR]), _count(s[OUTPUT]),
        _count(s[DETAIL_THINKING]), _count(s[TOTAL]), None, None, _count(_searches(s)), _count(cost), _word(read),
    )


cdef tuple _inclusive(
    Read* read, int prompt, int completion, long long detail_cached, long long cache_write, long long detail_reasoning,
    int audio_input, int audio_output,
):
    cdef long long* s = read.slots
    cdef long long cache_read = _first(detail_cached, s[HIT], s[CACHED], s[CACHE_READ])
    cdef long long cached = max(cache_read, 0) + max(cache_write, 0)
    cdef long long rest = s[prompt]
    cdef long long output = s[completion]
    cdef long long reasoning = _first(detail_reasoning, s[REASONING])
    cdef long long beyond
    if rest >= 0:
        rest -= cached
    if output >= 0 and reasoning > output:
        output += reasoning
    elif s[prompt] >= 0 and output >= 0 and s[TOTAL] > s[prompt] + output:
        beyond = s[TOTAL] - s[prompt] - output
        if beyond == reasoning:
            output += beyond
        elif beyond == cached:
            rest = s[prompt]
        elif reasoning < 0:
            output += beyond
    return (
        _count(rest), _count(cache_read), _count(cache_write), _count(s[FIVE]), _count(s[HOUR]), _count(output),
        _count(reasoning), _count(s[TOTAL]), _count(s[audio_input]), _count(s[audio_output]),
        _count(_searches(s)), _count(_cost(read)), _word(read),
    )


def chat(bytes raw not None):
    """Read the `usage` of a chat answer or chunk. See the twin for the contract."""
    cdef Read read
    if not _read(raw, &read) or read.met & (1 << INPUT_DETAILS):
        return reference.chat(raw)
    cdef long long* s = read.slots
    if s[PROMPT] < 0 and s[COMPLETION] < 0:
        return messages(raw)
    cdef long long write = _first(s[DETAIL_WRITE], s[DETAIL_CREATION], s[DETAIL_CREATION_INPUT], s[CACHE_CREATION])
    return _inclusive(
        &read, PROMPT, COMPLETION, s[DETAIL_CACHED], write, s[DETAIL_REASONING], AUDIO_INPUT, AUDIO_OUTPUT
    )


def responses(bytes raw not None):
    """Read the `usage` of a Responses answer. See the twin for the contract."""
    cdef Read read
    if not _read(raw, &read) or read.met & (1 << PROMPT_DETAILS):
        return reference.responses(raw)
    cdef long long* s = read.slots
    if s[INPUT] < 0 and s[OUTPUT] < 0:
        return chat(raw)
    cdef long long write = _first(s[IN_WRITE], s[IN_CREATION], s[IN_CREATION_INPUT], s[CACHE_CREATION])
    return _inclusive(&read, INPUT, OUTPUT, s[IN_CACHED], write, s[OUT_REASONING], IN_AUDIO, OUT_AUDIO)


def messages(bytes raw not None):
    """Read the `usage` of an Anthropic answer, of `message_start` or of `message_delta`. See the twin."""
    cdef Read read
    if not _read(raw, &read) or read.met & (1 << PROMPT_DETAILS | 1 << INPUT_DETAILS):
        return reference.messages(raw)
    return _messages(&read)


def merge_messages(start, delta):
    """One answer's usage from both of its reports: what `message_delta` states wins."""
    if start is None or delta is None:
        return start if delta is None else delta
    return tuple([old if new is None else new for old, new in zip(start, delta)])


cdef enum:  # slots of a Gemini answer
    G_PROMPT, G_SAID, G_CACHED, G_FED_BACK, G_THOUGHTS, G_TOTAL
    G_SLOTS


cdef inline int _gemini_slot(const Text* key) noexcept nogil:
    if called(key, b"promptTokenCount", 16):
        return G_PROMPT
    if called(key, b"candidatesTokenCount", 20):
        return G_SAID
    if called(key, b"totalTokenCount", 15):
        return G_TOTAL
    if called(key, b"thoughtsTokenCount", 18):
        return G_THOUGHTS
    if called(key, b"cachedContentTokenCount", 23):
        return G_CACHED
    if called(key, b"toolUsePromptTokenCount", 23):
        return G_FED_BACK
    return -1


cdef bint _gemini(const char* p, const char* end, long long* slots) noexcept nogil:
    """Read the counts; False for what the reference must read: sound, a tier, anything odd."""
    cdef bint more
    cdef Text key, text
    cdef const char* from_
    cdef int slot
    text.lone = False
    p = js.object_start(js.blank(p, end), end, &more)
    while p != NULL and more:
        p = js.key(p, end, &key)
        if p == NULL or p >= end:
            return False
        slot = _gemini_slot(&key)
        if slot >= 0:
            if slots[slot] != -1:
                return False
            p = _value(p, end, -1, &slots[slot])
        else:
            if called(&key, b"serviceTier", 11) or called(&key, b"trafficType", 11):
                return False
            from_ = p
            p = js.skip(p, end, 0, &text)
            if p != NULL and memmem(from_, p - from_, b"AUDIO", 5) != NULL:
                return False
        if p == NULL:
            return False
        p = js.member_end(p, end, &more)
    return p != NULL and js.blank(p, end) == end


def gemini(bytes raw not None):
    """Read the `usageMetadata` of a Gemini answer or chunk. See the twin for the contract."""
    cdef const char* p = PyBytes_AS_STRING(raw)
    cdef const char* end = p + PyBytes_GET_SIZE(raw)
    cdef const char* at = p
    cdef long long[<int>G_SLOTS] s
    cdef long long fed_back, rest, output, reasoning
    cdef int slot
    # The scanner takes UTF-8 for granted; an escape could spell what is looked for.
    while at < end:
        if <unsigned char>at[0] >= 0x80 or at[0] == 92:
            return reference.gemini(raw)
        at += 1
    for slot in range(G_SLOTS):
        s[slot] = -1
    if not _gemini(p, end, s):
        return reference.gemini(raw)
    fed_back = max(s[G_FED_BACK], 0)
    rest = s[G_PROMPT] + fed_back - max(s[G_CACHED], 0) if s[G_PROMPT] >= 0 else -1
    output, reasoning = s[G_SAID], s[G_THOUGHTS]
    if reasoning >= 0 and not (
        reasoning and output >= reasoning and s[G_TOTAL] == max(s[G_PROMPT], 0) + fed_back + output
    ):
        output = max(output, 0) + reasoning
    if rest < 0 and s[G_CACHED] < 0 and output < 0 and reasoning < 0 and s[G_TOTAL] < 0:
        return None
    return (
        _count(rest), _count(s[G_CACHED]), None, None, None, _count(output), _count(reasoning), _count(s[G_TOTAL]),
        None, None, None, None, None,
    )
