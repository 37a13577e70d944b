# cython: language_level=3, boundscheck=False, wraparound=False
"""Rows read from MessagePack, one after the other: the compiled equal of `py/unpacker.py`.

Theory of operation. Most of what a row says, the row before it said too. A row is begun as a copy of that one, field by
field the bytes are compared with what stands there, and only what differs is made anew: so the same text is one object
in all rows of a batch, which is also soon found to be the same. A list or a dictionary is nobody else's; the texts in
it may be.

Bytes are read here where they are what the fields' types say, written in any of MessagePack's ways. All else (a row
with more or fewer fields, another type, what is cut or malformed) is msgspec's to read, or to refuse.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

import types
import typing

import msgspec

from arbiter._speedups.c.fields cimport ASCII_OF, ASCII_SIZE, IS_ASCII, field, place

__all__ = ["Unpacker"]

cdef extern from "Python.h":
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False
    bint PyUnicode_CheckExact(PyObject*)
    bint PyLong_CheckExact(PyObject*)
    bint PyList_CheckExact(PyObject*)
    bint PyDict_CheckExact(PyObject*)
    PyObject* PyUnicode_New(Py_ssize_t, Py_UCS4)
    PyObject* PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)
    PyObject* PyLong_FromLongLong(long long)
    long long PyLong_AsLongLongAndOverflow(PyObject*, int*)
    PyObject* PyList_New(Py_ssize_t)
    void PyList_SET_ITEM(PyObject*, Py_ssize_t, PyObject*)
    Py_ssize_t PyList_GET_SIZE(PyObject*)
    PyObject* PyList_GET_ITEM(PyObject*, Py_ssize_t)
    PyObject* PyDict_New()
    int PyDict_SetItem(PyObject*, PyObject*, PyObject*)
    int PyDict_Next(PyObject*, Py_ssize_t*, PyObject**, PyObject**)
    void PyErr_Clear()
    PyObject* _bytes "PyBytes_FromStringAndSize"(const char*, Py_ssize_t)
    void _more "Py_INCREF"(PyObject*)
    void _less "Py_DECREF"(PyObject*)

cdef enum:
    _NOTHING = 1
    _TRUTH = 2
    _NUMBER = 4
    _TEXT = 8
    _BYTES = 16
    _TEXTS = 32
    _PAIRS = 64

_KINDS = {
    type(None): _NOTHING, bool: _TRUTH, int: _NUMBER, str: _TEXT, bytes: _BYTES, list[str]: _TEXTS,
    dict[str, str]: _PAIRS,
}  # fmt: skip


cdef int kinds(object hint) except -1:
    """What a field may hold of what is read here; the rest is msgspec's."""
    if typing.get_origin(hint) is typing.Annotated:
        hint, *told = typing.get_args(hint)
        if any(one != msgspec.Meta(extra=getattr(one, "extra", None)) for one in told):
            return 0
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        found = 0
        for part in typing.get_args(hint):
            found |= kinds(part)
        return found
    return _KINDS.get(hint, 0)


cdef struct In:
    const unsigned char* at
    const unsigned char* end


cdef inline bint sized(In* src, int bytes, Py_ssize_t* size) noexcept:
    """Take a number of so many bytes; False where they are not there."""
    cdef uint64_t value = 0
    cdef int i
    if src.end - src.at < bytes:
        return False
    for i in range(bytes):
        value = value << 8 | src.at[i]
    src.at += bytes
    size[0] = <Py_ssize_t>value
    return True


cdef inline bint text_size(In* src, Py_ssize_t* size) noexcept:
    """Take the head of a text; False where there is none, or not all of the text behind it."""
    cdef int code
    if src.at == src.end:
        return False
    code = src.at[0]
    src.at += 1
    if code & 0xE0 == 0xA0:
        size[0] = code & 0x1F
    elif code == 0xD9:
        if not sized(src, 1, size):
            return False
    elif code == 0xDA:
        if not sized(src, 2, size):
            return False
    elif code != 0xDB or not sized(src, 4, size):
        return False
    return src.end - src.at >= size[0]


cdef inline bint is_ascii(const unsigned char* p, Py_ssize_t size) noexcept:
    cdef uint64_t eight
    while size >= 8:
        memcpy(&eight, p, 8)
        if eight & <uint64_t>0x8080808080808080:
            return False
        p += 8
        size -= 8
    while size:
        if p[0] & 0x80:
            return False
        p += 1
        size -= 1
    return True


cdef PyObject* text(In* src, PyObject* before) noexcept:
    """A new reference to the text that comes; `before` itself (which may be NULL) where it is that. NULL: not for here."""
    cdef Py_ssize_t size
    cdef const unsigned char* data
    cdef PyObject* made
    if not text_size(src, &size):
        return NULL
    data = src.at
    src.at += size
    if (
        before != NULL and PyUnicode_CheckExact(before) and IS_ASCII(before) and ASCII_SIZE(before) == size
        and memcmp(ASCII_OF(before), data, size) == 0
    ):
        _more(before)
        return before
    if is_ascii(data, size):
        made = PyUnicode_New(size, 127)
        if made != NULL:
            memcpy(ASCII_OF(made), data, size)
    else:
        made = PyUnicode_DecodeUTF8(<const char*>data, size, NULL)
    if made == NULL:
        PyErr_Clear()
    return made


cdef PyObject* number(In* src, PyObject* before) noexcept:
    """As `text`, of a whole number of 64 bits."""
    cdef Py_ssize_t found = 0
    cdef int code = src.at[0], beyond = 0
    cdef PyObject* made
    src.at += 1
    if code < 0x80:
        found = code
    elif code >= 0xE0:
        found = code - 256
    elif 0xCC <= code <= 0xCF:
        if not sized(src, 1 << (code - 0xCC), &found) or found < 0:  # beyond 63 bits
            return NULL
    elif 0xD0 <= code <= 0xD3:
        if not sized(src, 1 << (code - 0xD0), &found):
            return NULL
        if code == 0xD0:
            found = <int8_t>found
        elif code == 0xD1:
            found = <int16_t>found
        elif code == 0xD2:
            found = <int32_t>found
    else:
        return NULL
    if PyLong_CheckExact(before) and PyLong_AsLongLongAndOverflow(before, &beyond) == found and not beyond:
        _more(before)
        return before
    made = PyLong_FromLongLong(found)
    if made == NULL:
        PyErr_Clear()
    return made


cdef PyObject* texts(In* src, PyObject* before) noexcept:
    """A new list of the texts that come, those of `before` where they are the same. NULL: not for here."""
    cdef Py_ssize_t size, i
    cdef int code = src.at[0]
    cdef bint is_known = PyList_CheckExact(before)
    cdef PyObject* made
    cdef PyObject* item
    src.at += 1
    if code & 0xF0 == 0x90:
        size = code & 0x0F
    elif code != 0xDC or not sized(src, 2, &size) or size > src.end - src.at:
        return NULL
    made = PyList_New(size)
    if made == NULL:
        PyErr_Clear()
        return NULL
    for i in range(size):
        # Looked at again each time: `before` is a receiver's too, and a list made anew may have garbage collected first.
        item = text(src, PyList_GET_ITEM(before, i) if is_known and i < PyList_GET_SIZE(before) else NULL)
        if item == NULL:
            _less(made)
            return NULL
        PyList_SET_ITEM(made, i, item)
    return made


cdef PyObject* pairs(In* src, PyObject* before) noexcept:
    """A new dictionary of the texts that come, those of `before` where they are the same. NULL: not for here."""
    cdef Py_ssize_t size, i, next_of_before = 0
    cdef int code = src.at[0]
    cdef bint is_known = PyDict_CheckExact(before), is_set
    cdef PyObject* made
    cdef PyObject* key
    cdef PyObject* value
    cdef PyObject* old_key
    cdef PyObject* old_value
    src.at += 1
    if code & 0xF0 == 0x80:
        size = code & 0x0F
    elif code != 0xDE or not sized(src, 2, &size) or size > src.end - src.at:
        return NULL
    made = PyDict_New()
    if made == NULL:
        PyErr_Clear()
        return NULL
    for i in range(size):
        old_key = old_value = NULL
        if is_known and not PyDict_Next(before, &next_of_before, &old_key, &old_value):
            is_known = False
        key = text(src, old_key)
        value = text(src, old_value) if key != NULL else NULL
        is_set = value != NULL and PyDict_SetItem(made, key, value) == 0
        Py_XDECREF(key)
        Py_XDECREF(value)
        if not is_set:
            PyErr_Clear()
            _less(made)
            return NULL
    return made


cdef PyObject* raw(In* src) noexcept:
    """The bytes that come. NULL: not for here."""
    cdef Py_ssize_t size = 0
    cdef int code = src.at[0]
    cdef PyObject* made
    src.at += 1
    if not 0xC4 <= code <= 0xC6 or not sized(src, 1 << (code - 0xC4), &size) or src.end - src.at < size:
        return NULL
    made = _bytes(<const char*>src.at, size)
    src.at += size
    if made == NULL:
        PyErr_Clear()
    return made


cdef class Unpacker:
    cdef readonly object kind
    cdef object decode
    cdef object last  # the row before, which is given to nobody
    cdef Py_ssize_t* places
    cdef unsigned char* may  # be of these kinds
    cdef Py_ssize_t count

    def __cinit__(self, kind):
        cdef Py_ssize_t i
        names = kind.__struct_fields__
        self.kind = kind
        self.decode = msgspec.msgpack.Decoder(kind).decode
        self.count = len(names)
        self.places = <Py_ssize_t*>malloc((self.count + 1) * sizeof(Py_ssize_t))
        self.may = <unsigned char*>malloc(self.count + 1)
        if self.places == NULL or self.may == NULL:
            raise MemoryError
        config = kind.__struct_config__
        if not config.array_like or config.tag is not None or config.gc or config.frozen:
            raise TypeError(f"a {kind.__name__} is no plain array")
        if hasattr(kind, "__post_init__"):
            raise TypeError(f"a {kind.__name__} has something to do once it is made")
        hints = typing.get_type_hints(kind, include_extras=True)
        for i in range(self.count):
            self.places[i] = place(kind, names[i])
            self.may[i] = kinds(hints[names[i]])
        self.last = kind(**dict.fromkeys(names))

    def __dealloc__(self):
        free(self.places)
        free(self.may)

    def unpack(self, bytes data not None, Py_ssize_t at=0):
        if 0 <= at <= PyBytes_GET_SIZE(data):
            row = self.last.__copy__()
            if self._read(data, at, row):
                return row
        return self.decode(memoryview(data)[at:])

    cdef bint _read(self, bytes data, Py_ssize_t at, object row) noexcept:
        """Whether everything is in the row, which is a copy of the last one, and in the last one too."""
        cdef In src
        cdef Py_ssize_t i, size = 0
        cdef int code, may
        cdef PyObject* value
        cdef PyObject* before
        cdef PyObject** into
        src.at = <const unsigned char*>PyBytes_AS_STRING(data) + at
        src.end = <const unsigned char*>PyBytes_AS_STRING(data) + PyBytes_GET_SIZE(data)
        if src.end - src.at < 3:
            return False
        code = src.at[0]
        src.at += 1
        if code & 0xF0 == 0x90:
            size = code & 0x0F
        elif code != 0xDC or not sized(&src, 2, &size):
            return False
        if size != self.count:
            return False
        for i in range(size):
            if src.at == src.end:
                return False
            code, may = src.at[0], self.may[i]
            into = field(row, self.places[i])
            before = into[0]
            if code == 0xC0:
                if not may & _NOTHING:
                    return False
                src.at += 1
                if before == Py_None:
                    continue
                value = Py_None
                _more(value)
            elif code == 0xC2 or code == 0xC3:
                if not may & _TRUTH:
                    return False
                src.at += 1
                value = Py_True if code == 0xC3 else Py_False
                if before == value:
                    continue
                _more(value)
            elif code & 0xE0 == 0xA0 or 0xD9 <= code <= 0xDB:
                value = text(&src, before) if may & _TEXT else NULL
            elif code & 0xF0 == 0x90 or code == 0xDC:
                value = texts(&src, before) if may & _TEXTS else NULL
            elif code & 0xF0 == 0x80 or code == 0xDE:
                value = pairs(&src, before) if may & _PAIRS else NULL
            elif 0xC4 <= code <= 0xC6:
                value = raw(&src) if may & _BYTES else NULL
            else:
                value = number(&src, before) if may & _NUMBER else NULL
            if value == NULL:
                return False
            if value == before:
                _less(value)
                continue
            into[0] = value
            _less(before)
            into = field(self.last, self.places[i])
            before = into[0]
            _more(value)
            into[0] = value
            _less(before)
        return src.at == src.end
