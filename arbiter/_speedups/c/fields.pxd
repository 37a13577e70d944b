# cython: language_level=3
# Where a field stands in an object: what its descriptor says, which CPython made of `__slots__` and msgspec of a Struct's
# fields (both are a `PyMemberDef` of one object).

from cpython.object cimport PyObject

cdef extern from *:
    """
    #include <structmember.h>
    /* Where the object is that a descriptor stands for; -1 where that is something else. */
    static Py_ssize_t offset_of(PyObject *descriptor) {
        PyMemberDef *member;
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
            return -1;
        member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : -1;
    }
    #define IS_ASCII(text) (PyUnicode_IS_READY(text) && PyUnicode_IS_COMPACT_ASCII(text))
    #define ASCII_OF(text) ((char *)PyUnicode_DATA(text))
    #define ASCII_SIZE(text) PyUnicode_GET_LENGTH(text)
    """
    Py_ssize_t offset_of(object descriptor)
    bint IS_ASCII(PyObject* text)
    char* ASCII_OF(PyObject* text)
    Py_ssize_t ASCII_SIZE(PyObject* text)


cdef inline Py_ssize_t place(object kind, str name) except -1:
    """Where a field stands in the instances of a class."""
    cdef Py_ssize_t found
    cdef object descriptor = None
    for base in kind.__mro__:
        descriptor = base.__dict__.get(name)
        if descriptor is not None:
            break
    found = offset_of(descriptor)
    if found < 0:
        raise TypeError(f"{kind.__name__}.{name} is no field of its instances")
    return found


cdef inline PyObject** field(object row, Py_ssize_t at) noexcept:
    """The field of an object that stands there."""
    return <PyObject**>(<char*><void*>row + at)
