# What `exchange` needs of the reader of answers. Its rules: ../py/h1.py.


cdef class H1Core:
    cdef readonly int state
    cdef readonly int status
    cdef readonly int minor
    cdef readonly list headers
    cdef readonly long long length
    cdef readonly long long received
    cdef readonly bint answered
    cdef readonly str encoding
    cdef readonly bint keep_alive
    cdef readonly bint eof_delimited
    cdef readonly str fault
    cdef int _step
    cdef bint _bodyless
    cdef bint _chunked
    cdef bint _closing
    cdef int _fields
    cdef Py_ssize_t _head_bytes
    cdef long long _left
    cdef unsigned char *_tail
    cdef Py_ssize_t _tail_size
    cdef Py_ssize_t _tail_room

    cpdef begin(self, bint bodyless)
    cpdef bytes feed(self, data, Py_ssize_t size=*)
    cpdef bint eof(self)
    cdef bytes _feed(self, const unsigned char *read, Py_ssize_t end)
    cdef int _keep(self, const unsigned char *line, Py_ssize_t size) except -1
    cdef void _drop_tail(self) noexcept
    cdef bint _line(self, const unsigned char *line, Py_ssize_t size, bint complete) except -1
    cdef bint _status_line(self, const unsigned char *line, Py_ssize_t size) except -1
    cdef bint _field(self, const unsigned char *line, Py_ssize_t size) except -1
    cdef bint _size_line(self, const unsigned char *line, Py_ssize_t size) except -1
    cdef bint _head_done(self) except -1
    cdef bint _finish(self) except -1
    cdef bint _fail(self, str fault) except -1
