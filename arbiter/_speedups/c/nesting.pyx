# cython: language_level=3, boundscheck=False, wraparound=False
"""How deep a JSON text goes: the compiled equal of `py/nesting.py`.

Most bytes of a request stand inside strings, and `memchr` passes those; only the structure between them is looked at
byte by byte.
"""

from libc.string cimport memchr


def is_deeper(bytes data, Py_ssize_t limit):
    cdef const unsigned char *at = data
    cdef const unsigned char *end = at + len(data)
    cdef const unsigned char *quote
    cdef const unsigned char *slash
    cdef Py_ssize_t depth = 0
    cdef unsigned char byte
    if end - at <= limit:
        return False
    with nogil:
        while at < end:
            byte = at[0]
            at += 1
            if byte == c'"':
                quote = at
                while True:
                    quote = <const unsigned char *>memchr(quote, c'"', end - quote)
                    if quote == NULL:
                        at = end
                        break
                    # An odd number of backslashes in front escapes the quote.
                    slash = quote
                    while slash > at and (slash - 1)[0] == c'\\':
                        slash -= 1
                    if (quote - slash) & 1:
                        quote += 1
                        continue
                    at = quote + 1
                    break
            elif byte == c'{' or byte == c'[':
                depth += 1
                if depth > limit:
                    break
            elif byte == c'}' or byte == c']':
                depth -= 1
    return depth > limit
