# cython: language_level=3, boundscheck=False, wraparound=False
"""Rows as MessagePack, and values moved between objects: the compiled equal of `py/rows.py`.

A row that holds anything but None, truth values, numbers of 64 bits, floats, texts, bytes, and lists and dictionaries of
these is msgspec's to write.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

import msgspec

from arbiter._speedups.c.fields cimport ASCII_OF, ASCII_SIZE, IS_ASCII, field, place

__all__ = ["Moves", "Packer"]

cdef extern from "Python.h":
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False
    bint PyUnicode_CheckExact(PyObject*)
    bint PyLong_CheckExact(PyObject*)
    bint PyFloat_CheckExact(PyObject*)
    bint PyBytes_CheckExact(PyObject*)
    bint PyList_CheckExact(PyObject*)
    bint PyDict_CheckExact(PyObject*)
    const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*)
    long long PyLong_AsLongLongAndOverflow(PyObject*, int*)
    double PyFloat_AS_DOUBLE(PyObject*)
    char* _bytes_of "PyBytes_AS_STRING"(PyObject*)
    Py_ssize_t _bytes_size "PyBytes_GET_SIZE"(PyObject*)
    Py_ssize_t PyList_GET_SIZE(PyObject*)
    PyObject* PyList_GET_ITEM(PyObject*, Py_ssize_t)
    Py_ssize_t PyDict_Size(PyObject*)
    int PyDict_Next(PyObject*, Py_ssize_t*, PyObject**, PyObject**)
    void PyErr_Clear()

cdef enum:
    _DEEP = 16

_encode = msgspec.msgpack.Encoder().encode


cdef struct Out:
    unsigned char* data
    Py_ssize_t size
    Py_ssize_t room


cdef Out _out  # one for all: rows are written one after the other, and nothing of Python's runs meanwhile
_out.data = NULL
_out.size = _out.room = 0


cdef bint grown(Out* out, Py_ssize_t size) noexcept:
    cdef Py_ssize_t room = 2 * (out.size + size) + 4096
    cdef void* data = realloc(out.data, room)
    if data == NULL:
        return False
    out.data = <unsigned char*>data
    out.room = room
    return True


cdef inline unsigned char* more(Out* out, Py_ssize_t size) noexcept:
    """Where so many bytes may be written; NULL where there is no room for them."""
    if out.size + size > out.room and not grown(out, size):
        return NULL
    out.size += size
    return out.data + out.size - size


cdef inline bint head(Out* out, uint64_t value, int code, int bytes) noexcept:
    """A code, and behind it a number of so many bytes."""
    cdef unsigned char* at = more(out, 1 + bytes)
    cdef int i
    if at == NULL:
        return False
    at[0] = code
    for i in range(bytes):
        at[1 + i] = <unsigned char>(value >> 8 * (bytes - 1 - i))
    return True


cdef inline bint sized(Out* out, Py_ssize_t size, int fix, Py_ssize_t fixed, int code8, int code16) noexcept:
    """How something begins that has so many bytes or items; code16 + 1 is that of 32 bits."""
    if size < fixed:
        return head(out, 0, fix | <int>size, 0)
    if code8 and size < 256:
        return head(out, size, code8, 1)
    if size < 65536:
        return head(out, size, code16, 2)
    return size <= 0xFFFFFFFF and head(out, size, code16 + 1, 4)


cdef inline bint raw(Out* out, const char* data, Py_ssize_t size) noexcept:
    cdef unsigned char* at = more(out, size)
    if at == NULL:
        return False
    memcpy(at, data, size)
    return True


cdef bint number(Out* out, PyObject* value) noexcept:
    cdef int beyond = 0
    cdef long long n = PyLong_AsLongLongAndOverflow(value, &beyond)
    if beyond:
        return False
    if n >= 0:
        if n < 128:
            return head(out, 0, <int>n, 0)
        if n < 256:
            return head(out, n, 0xCC, 1)
        if n < 65536:
            return head(out, n, 0xCD, 2)
        if n <= 0xFFFFFFFF:
            return head(out, n, 0xCE, 4)
        return head(out, n, 0xCF, 8)
    if n >= -32:
        return head(out, 0, <int>(n & 0xFF), 0)
    if n >= -128:
        return head(out, <uint64_t>n, 0xD0, 1)
    if n >= -32768:
        return head(out, <uint64_t>n, 0xD1, 2)
    if n >= -2147483648LL:
        return head(out, <uint64_t>n, 0xD2, 4)
    return head(out, <uint64_t>n, 0xD3, 8)


cdef inline bint text(Out* out, PyObject* value) noexcept:
    cdef Py_ssize_t size
    cdef const char* data
    if IS_ASCII(value):
        data, size = ASCII_OF(value), ASCII_SIZE(value)
    else:
        data = PyUnicode_AsUTF8AndSize(value, &size)
        if data == NULL:
            PyErr_Clear()
            return False
    return sized(out, size, 0xA0, 32, 0xD9, 0xDA) and raw(out, data, size)


cdef bint pack(Out* out, PyObject* value, int level) noexcept:
    """Write one value; False where that is not for here."""
    cdef Py_ssize_t i, size
    cdef PyObject* key
    cdef PyObject* item
    cdef double real
    cdef uint64_t bits
    if PyUnicode_CheckExact(value):
        return text(out, value)
    if PyLong_CheckExact(value):
        return number(out, value)
    if value == Py_None:
        return head(out, 0, 0xC0, 0)
    if value == Py_False:
        return head(out, 0, 0xC2, 0)
    if value == Py_True:
        return head(out, 0, 0xC3, 0)
    if level == _DEEP:
        return False
    if PyList_CheckExact(value):
        size = PyList_GET_SIZE(value)
        if not sized(out, size, 0x90, 16, 0, 0xDC):
            return False
        for i in range(size):
            if not pack(out, PyList_GET_ITEM(value, i), level + 1):
                return False
        return True
    if PyDict_CheckExact(value):
        if not sized(out, PyDict_Size(value), 0x80, 16, 0, 0xDE):
            return False
        i = 0
        while PyDict_Next(value, &i, &key, &item):
            if not PyUnicode_CheckExact(key) or not text(out, key) or not pack(out, item, level + 1):
                return False
        return True
    if PyBytes_CheckExact(value):
        size = _bytes_size(value)
        return sized(out, size, 0, 0, 0xC4, 0xC5) and raw(out, _bytes_of(value), size)
    if PyFloat_CheckExact(value):
        real = PyFloat_AS_DOUBLE(value)
        memcpy(&bits, &real, 8)
        return head(out, bits, 0xCB, 8)
    return False


cdef class Packer:
    cdef readonly object kind
    cdef Py_ssize_t* places
    cdef Py_ssize_t count

    def __cinit__(self, kind):
        cdef Py_ssize_t i
        names = kind.__struct_fields__
        self.kind = kind
        self.count = len(names)
        self.places = <Py_ssize_t*>malloc((self.count + 1) * sizeof(Py_ssize_t))
        if self.places == NULL:
            raise MemoryError
        if not kind.__struct_config__.array_like or kind.__struct_config__.tag is not None:
            raise TypeError(f"a {kind.__name__} is no plain array")
        for i in range(self.count):
            self.places[i] = place(kind, names[i])

    def __dealloc__(self):
        free(self.places)

    def pack(self, row, bytes head not None=b""):
        cdef Py_ssize_t* at
        cdef Py_ssize_t* end = self.places + self.count
        cdef PyObject* value
        cdef PyObject* nothing = Py_None
        cdef Out* out = &_out
        if type(row) is not self.kind:
            return head + _encode(row)
        out.size = 0
        if not raw(out, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head)) or not sized(out, self.count, 0x90, 16, 0, 0xDC):
            return head + _encode(row)
        at = self.places
        while at < end:
            value = field(row, at[0])[0]
            at += 1
            if value == nothing and out.size < out.room:  # as most are
                out.data[out.size] = 0xC0
                out.size += 1
            elif value == NULL or not pack(out, value, 0):
                return head + _encode(row)
        return PyBytes_FromStringAndSize(<char*>out.data, out.size)


cdef class Moves:
    cdef object source, target
    cdef Py_ssize_t* places  # of source and target, in turns
    cdef Py_ssize_t count

    def __cinit__(self, source, target, fields):
        cdef Py_ssize_t i = 0
        self.source, self.target, self.count = source, target, len(fields)
        config = getattr(target, "__struct_config__", None)
        if config is not None and (config.gc or config.frozen):
            raise TypeError(f"a {target.__name__} is not to be changed from here")
        self.places = <Py_ssize_t*>malloc((2 * self.count + 1) * sizeof(Py_ssize_t))
        if self.places == NULL:
            raise MemoryError
        for name, into in fields.items():
            self.places[i], self.places[i + 1] = place(source, name), place(target, into)
            i += 2

    def __dealloc__(self):
        free(self.places)

    def __call__(self, source, target):
        cdef Py_ssize_t i
        cdef PyObject* value
        cdef PyObject** into
        cdef PyObject* before
        if type(source) is not self.source or type(target) is not self.target:
            raise TypeError("these are other classes")
        for i in range(0, 2 * self.count, 2):
            value = field(source, self.places[i])[0]
            if value == NULL:
                raise AttributeError("a field without a value")
            into = field(target, self.places[i + 1])
            before = into[0]
            Py_INCREF(<object>value)
            into[0] = value
            Py_XDECREF(before)
