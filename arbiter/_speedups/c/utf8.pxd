# cython: language_level=3
# Well-formed UTF-8 as Python decodes it: nothing overlong, no surrogates, nothing above U+10FFFF.

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef extern from "wide.h":
    bint wide
    const unsigned char* wide_well_formed(const unsigned char* begin, const unsigned char* end) noexcept nogil


cdef inline const unsigned char* malformed(const unsigned char* p, const unsigned char* end) noexcept nogil:
    """The first sequence that is not well-formed, or NULL. Text that is ASCII is looked at 32 bytes at a time, any other
    64 where the processor can."""
    cdef uint64_t a, b, c, d
    cdef unsigned char first, low, high
    cdef int more
    if wide and end - p >= 64:
        p = wide_well_formed(p, end)
    while True:
        while end - p >= 32:
            memcpy(&a, p, 8)
            memcpy(&b, p + 8, 8)
            memcpy(&c, p + 16, 8)
            memcpy(&d, p + 24, 8)
            if (a | b | c | d) & <uint64_t>0x8080808080808080:
                break
            p += 32
        while end - p >= 8:
            memcpy(&a, p, 8)
            if a & <uint64_t>0x8080808080808080:
                break
            p += 8
        while p < end and p[0] < 0x80:
            p += 1
        if p == end:
            return NULL
        while p < end and p[0] >= 0x80:
            first = p[0]
            low, high = 0x80, 0xBF
            if first < 0xC2 or first > 0xF4:
                return p
            if first < 0xE0:
                more = 1
            elif first < 0xF0:
                more = 2
                if first == 0xE0:
                    low = 0xA0
                elif first == 0xED:
                    high = 0x9F
            else:
                more = 3
                if first == 0xF0:
                    low = 0x90
                elif first == 0xF4:
                    high = 0x8F
            if end - p <= more or p[1] < low or p[1] > high:
                return p
            if more > 1 and (p[2] & 0xC0) != 0x80:
                return p
            if more > 2 and (p[3] & 0xC0) != 0x80:
                return p
            p += more + 1
