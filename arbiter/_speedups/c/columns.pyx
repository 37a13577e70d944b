# cython: language_level=3, boundscheck=False, wraparound=False
"""Rows taken apart into columns, and columns put together: the compiled equal of `py/columns.py`."""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdlib cimport free, malloc

from arbiter._speedups.c.fields cimport field, place

__all__ = ["Taker", "together", "varies"]

cdef extern from "Python.h":
    PyObject* Py_None


cdef class Taker:
    cdef object kind
    cdef tuple names
    cdef Py_ssize_t* places

    def __cinit__(self, kind, fields):
        cdef Py_ssize_t i
        self.kind, self.names = kind, tuple(fields)
        self.places = <Py_ssize_t*>malloc((len(self.names) + 1) * sizeof(Py_ssize_t))
        if self.places == NULL:
            raise MemoryError
        for i in range(len(self.names)):
            self.places[i] = place(kind, self.names[i])

    def __dealloc__(self):
        free(self.places)

    def take(self, rows):
        cdef list given = list(rows), column, columns = []
        cdef Py_ssize_t count = PyList_GET_SIZE(given), i, at, row_at
        cdef PyObject* value
        for row in given:
            if type(row) is not self.kind:
                raise TypeError(f"a {type(row).__name__} is no {self.kind.__name__}")
        for i in range(len(self.names)):
            at = self.places[i]
            row_at = 0
            while row_at < count and field(<object>PyList_GET_ITEM(given, row_at), at)[0] == Py_None:
                row_at += 1
            if row_at == count:
                columns.append(None)
                continue
            column = PyList_New(count)
            for row_at in range(count):
                value = field(<object>PyList_GET_ITEM(given, row_at), at)[0]
                if value == NULL:
                    raise AttributeError(self.names[i])
                Py_INCREF(<object>value)
                PyList_SET_ITEM(column, row_at, <object>value)
            columns.append(column)
        return columns


def varies(list column not None):
    cdef PyObject* first
    cdef PyObject* value
    cdef Py_ssize_t i
    if not column:
        raise IndexError("there is nothing in it")
    first = <PyObject*>PyList_GET_ITEM(column, 0)
    for i in range(1, PyList_GET_SIZE(column)):
        value = <PyObject*>PyList_GET_ITEM(column, i)
        if value != first and not PyObject_RichCompareBool(<object>value, <object>first, Py_EQ):
            return True
    return False


def together(columns, varying, Py_ssize_t rows, Py_ssize_t at_once):
    cdef list every = list(columns), some = [one for one, is_one in zip(columns, varying, strict=True) if is_one]
    cdef list made = []
    cdef Py_ssize_t all_count = PyList_GET_SIZE(every), some_count = PyList_GET_SIZE(some), at, row, i, to
    cdef tuple values
    cdef list column
    cdef object value
    if at_once < 1 or rows % at_once:
        raise ValueError("these rows do not fill their statements")
    for column in every:
        if PyList_GET_SIZE(column) < rows:
            raise ValueError("a column is shorter than that")
    for at in range(0, rows, at_once):
        values = PyTuple_New(all_count + (at_once - 1) * some_count)
        to = 0
        for i in range(all_count):
            value = <object>PyList_GET_ITEM(<list>PyList_GET_ITEM(every, i), at)
            Py_INCREF(value)
            PyTuple_SET_ITEM(values, to, value)
            to += 1
        for row in range(at + 1, at + at_once):
            for i in range(some_count):
                value = <object>PyList_GET_ITEM(<list>PyList_GET_ITEM(some, i), row)
                Py_INCREF(value)
                PyTuple_SET_ITEM(values, to, value)
                to += 1
        made.append(values)
    return made
