# cython: language_level=3, boundscheck=False, wraparound=False
"""How near vectors are to one another: the compiled equal of `py/vectors.py`.

Eight sums side by side, since each addition would wait for the one before it; in double precision, as the reference
adds. Others have their turn while it counts.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy

__all__ = ["nearest"]


cdef double product(const char* one, const char* other, Py_ssize_t width) noexcept nogil:
    cdef double[8] sums
    cdef float[8] a
    cdef float[8] b
    cdef float x, y
    cdef double whole = 0
    cdef Py_ssize_t at = 0
    cdef int lane
    for lane in range(8):
        sums[lane] = 0
    while at + 8 <= width:
        # Nobody says that bytes begin where a float may; the compiler makes loads of these.
        memcpy(a, one + 4 * at, 32)
        memcpy(b, other + 4 * at, 32)
        for lane in range(8):
            sums[lane] += <double>a[lane] * <double>b[lane]
        at += 8
    while at < width:
        memcpy(&x, one + 4 * at, 4)
        memcpy(&y, other + 4 * at, 4)
        whole += <double>x * <double>y
        at += 1
    for lane in range(8):
        whole += sums[lane]
    return whole


def nearest(bytes asked not None, bytes vectors not None):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(asked), total = PyBytes_GET_SIZE(vectors)
    if not size or size % 4 or not total or total % size:
        raise ValueError(f"{total} bytes of vectors for one of {size}")
    cdef const char* wanted = PyBytes_AS_STRING(asked)
    cdef const char* numbers = PyBytes_AS_STRING(vectors)
    cdef Py_ssize_t start, best = 0
    cdef double found = 0, one
    with nogil:
        start = 0
        while start < total:
            one = product(wanted, numbers + start, size // 4)
            if not start or one > found:
                best, found = start // size, one
            start += size
    return best, found
