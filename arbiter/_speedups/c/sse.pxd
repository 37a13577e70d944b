cimport cython

# The framer that sse, carry and reduce share. Its twin and its rules: ../py/sse.py.

cdef struct Frame:
    # Pointers are good until the next call of the framer.
    const char* name
    Py_ssize_t name_len
    const char* data
    Py_ssize_t data_len
    long long start  # absolute, of the block's first line
    long long end  # absolute, past its blank line


cdef tuple framed(Frame* frame)


@cython.final
cdef class Framer:
    cdef readonly long long limit, offset, boundary
    cdef readonly object fault  # a Garbled, or None
    # The window: the caller's bytes when nothing was left over, else our own buffer, which begins with the leftover.
    cdef const char* window
    cdef Py_ssize_t size
    cdef char* held
    cdef Py_ssize_t held_len, held_cap
    cdef char* joined
    cdef Py_ssize_t joined_cap
    # Positions below count from the window's start, whose absolute offset is `boundary - keep`.
    cdef Py_ssize_t keep, at, start
    cdef Py_ssize_t lf, cr  # the next of each at or after `at` (`size`: none here; -1: not looked yet)
    cdef Py_ssize_t name_at, name_len, data_at, data_len, data_lines
    cdef bint at_start, skip_lf, bare, last, closed

    cdef int open(self, const char* data, Py_ssize_t size) except -1
    cdef int next(self, Frame* frame) except -1
    cdef int close(self) except -1
    cdef int _join(self, Frame* frame, Py_ssize_t stop) except -1
    cdef int _dispatch(self, Frame* frame, Py_ssize_t after) except -1
    cdef void _keep(self, Py_ssize_t at) noexcept
    cdef void _shut(self, Py_ssize_t at) noexcept
    cdef int _too_long(self) except -1


cdef class SSEReader:
    cdef Framer _framer
    cdef bytes _data  # what is being read, None between two reads

    cdef int _open(self, bytes data) except -1
    cdef int _close(self) except -1
    cdef int _next(self, Frame* frame) except -1
