# cython: language_level=3, boundscheck=False, wraparound=False
"""One exchange over one connection of its origin, compiled. Twin of `../py/exchange.py`, which has the theory.

What happens with every request is here; what happens with few is a method of the classes above (`arbiter.upstream`).
"""

from cpython.buffer cimport Py_buffer
from cpython.bytes cimport PyBytes_GET_SIZE

from arbiter._speedups.c.h1 cimport H1Core

from collections import deque

from arbiter.clock import monotonic, monotonic_ns
from arbiter.errors import ArbiterError, Cut, Garbled

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef enum:
    IN_HEAD = 0
    IN_BODY = 1
    IS_DONE = 2
    HAS_FAILED = 3

    HELD = 128 << 10
    JOINED = 32 << 10
    LAST = 599  # status

HOLD_BYTES = HELD
JOIN_BYTES = JOINED
LAST_STATUS = LAST


cdef class ExchangeCore:
    cdef public int status
    cdef public list headers
    cdef public bint reused, eof_delimited, had_event, connecting
    cdef public object queue_us, connect_us, headers_us
    cdef public long long length, started_at_ns, sent_at_ns
    cdef public double interval, last_activity
    cdef public object head, on_sent
    cdef public object _budgets, _carrier, _decoder, _sink, _waiter, _backlog, _error
    cdef public set _active
    cdef public long long _limit
    cdef public Py_ssize_t _backlog_bytes
    cdef public bint _streaming, _paused, _pouring, _over, _told

    def __init__(self, budgets, bint streaming, double interval, set active):
        self.interval = interval
        self.headers = []
        self.length = -1
        self.started_at_ns = self.sent_at_ns = monotonic_ns()
        self._budgets = budgets
        self._streaming = streaming
        self._active = active
        self._limit = -1

    def header(self, str name not None, default=None):
        cdef tuple pair
        cdef Py_ssize_t size = PyUnicode_GET_LENGTH(name)
        for pair in self.headers:
            if PyUnicode_GET_LENGTH(pair[0]) == size and <str>pair[0] == name:
                return pair[1]
        return default

    def here(self, Py_ssize_t limit):
        if not self._over or self._error is not None or self._decoder is not None or self._backlog_bytes > limit:
            return None
        self._told = True
        if self._backlog is None:
            return b""
        return self._backlog[0] if len(self._backlog) == 1 else b"".join(self._backlog)

    def stream(self, sink):
        self._sink = sink
        if self._backlog or self._over:
            self._pour()
        if self._carrier is not None and not self._paused:
            self._carrier.resume()

    def saw_event(self):
        self.had_event = True

    def finish(self):
        self._let_go()
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.release()

    def abort(self):
        self._let_go()
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.abort()

    # -------------------------------------------------------------------------------------- the connection's side

    def begin(self, carrier, head, *, bint reused):
        self._carrier = carrier
        self.head = head
        self.reused = reused
        self.sent_at_ns = monotonic_ns()
        self._active.add(self)

    def on_head(self, int status, list headers, long long length, bint eof_delimited, str encoding=""):
        self._on_head(status, headers, length, eof_delimited, encoding)

    cdef int _on_head(self, int status, list headers, long long length, bint eof_delimited, str encoding) except -1:
        cdef long long now_ns
        if status > LAST:
            raise Garbled(f"the upstream answered with the status {status}, which HTTP does not have")
        if encoding:
            headers = self._unlabelled(headers, encoding)
        self.status = status
        self.headers = headers
        self.length = length
        self.eof_delimited = eof_delimited
        now_ns = monotonic_ns()
        self.headers_us = (now_ns - self.sent_at_ns) // 1000
        self.last_activity = now_ns / 1e9
        head, self.head = self.head, None
        if head is not None and not head.done():
            head.set_result(None)
        return 0

    def push(self, bytes data):
        self._push(data)

    cdef int _push(self, bytes data) except -1:
        if self._sink is not None and not self._paused and self._decoder is None and not self._backlog:
            try:
                self._sink.on_data(data)
            except Exception as bug:
                self._break_off(bug)
            return 0
        if self._told:
            return 0
        if self._backlog is None:
            self._backlog = deque()
        self._backlog.append(data)
        self._backlog_bytes += PyBytes_GET_SIZE(data)
        if self._sink is not None:
            if not self._paused and not self._pouring:
                self._pour()
        elif self._limit >= 0:
            if self._backlog_bytes > self._limit:
                self._wake()
            return 0
        if self._backlog_bytes > HELD and self._carrier is not None:
            self._carrier.pause()
        return 0

    def part(self):
        self._part()

    cdef int _part(self) except -1:
        self._carrier = None
        self._active.discard(self)
        return 0

    def end(self, error):
        self._end(error)

    cdef int _end(self, error) except -1:
        if self._over:
            return 0
        self._over = True
        self._error = error
        self._carrier = None
        self._active.discard(self)
        if self._sink is None:
            self._wake()
        elif not self._pouring:
            self._pour()
        return 0

    def fail(self, error):
        self._active.discard(self)
        head, self.head = self.head, None
        if head is not None and not head.done():
            head.set_exception(error)

    # ------------------------------------------------------------------------------------------------------ inside

    cpdef _wake(self):
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    cpdef _drop(self):
        self._backlog = None
        self._backlog_bytes = 0

    cpdef _let_go(self):
        self._told = True
        self._sink = None
        self._backlog = None
        self._backlog_bytes = 0
        self._active.discard(self)
        if not self._over:
            self._over = True
            self._error = Cut("the answer was given up")
            self._wake()


cdef class OriginCore:
    cdef public object _pool, waiters, hopers
    cdef public Py_ssize_t max_connections, max_idle, open
    cdef public double idle_for_s
    cdef public dict idle, draining

    def __init__(self, pool, waiters, hopers):
        self._pool = pool
        self.waiters = waiters
        self.hopers = hopers
        self.max_connections = 1
        self.idle = {}
        self.draining = {}

    def limit(self, Py_ssize_t max_connections, Py_ssize_t max_idle, double idle_for_s):
        self.max_idle = max_idle
        self.idle_for_s = idle_for_s
        if max_connections != self.max_connections:
            self.max_connections = max_connections
            self._let_in()

    def try_acquire(self):
        return None if self.waiters else self._pop()

    cpdef _pop(self):
        while self.idle:
            connection = self.idle.popitem()[0]
            if connection.is_usable():
                return connection
            connection.dismiss()
            self.free()
        return None

    cpdef keep(self, connection):
        if self.draining:
            self.draining.pop(connection, None)
        if self.waiters or self.hopers or len(self.idle) >= self.max_idle or self.open > self.max_connections:
            self._pass_or_close(connection)
            return
        self.idle[connection] = monotonic()
        if not self._pool.watching:
            self._pool.watch()


cdef class LinkCore(H1Core):
    cdef public object transport
    cdef public long served
    cdef public OriginCore _origin
    cdef public ExchangeCore _exchange
    cdef public long long _allowance
    cdef public bint _reading, _slot
    cdef readonly object _arena
    cdef const unsigned char *_read  # of the arena, which nobody lets go of before us
    cdef Py_ssize_t _room

    def __init__(self, OriginCore origin, arena):
        cdef Py_buffer *view
        H1Core.__init__(self)
        self._origin = origin
        self._arena = arena = memoryview(arena)
        view = PyMemoryView_GET_BUFFER(arena)
        self._read = <const unsigned char *>view.buf
        self._room = view.len
        self._reading = True
        self._slot = True

    def start(self, ExchangeCore exchange, bytes head, body, bint bodyless):
        self.begin(bodyless)
        self.served += 1
        self._exchange = exchange
        transport = self.transport
        if transport is None:
            self._lost(None)
        elif type(body) is not bytes:
            transport.writelines((head, *body.pieces))
        elif PyBytes_GET_SIZE(body) <= JOINED:
            transport.write(head + <bytes>body)
        else:
            transport.writelines((head, body))

    def give_slot(self):
        had, self._slot = self._slot, False
        return had

    def take_slot(self):
        self._slot = True

    def is_usable(self):
        return self.transport is not None and not self.transport.is_closing()

    def get_buffer(self, sizehint):
        return self._arena

    def buffer_updated(self, Py_ssize_t nbytes):
        cdef ExchangeCore exchange = self._exchange
        cdef int was = self.state
        cdef bytes body
        if exchange is None:
            self._unasked(nbytes)
            return
        body = self._feed(self._read, min(nbytes, self._room))
        if was != self.state:
            self._turn(exchange, was, body)
        elif was == IN_BODY:
            exchange.last_activity = monotonic()
            if body:
                exchange._push(body)

    cdef int _turn(self, ExchangeCore exchange, int was, bytes body) except -1:
        """A read that brought the head, the end, or a fault: tell the exchange, in this order."""
        if was == IN_HEAD and self.answered:
            try:
                exchange._on_head(self.status, self.headers, self.length, self.eof_delimited, self.encoding)
            except ArbiterError as error:
                self._break(exchange, b"", error)
                return 0
        if self.state == HAS_FAILED:
            self._break(exchange, body, Garbled(f"the upstream's answer is not proper HTTP: {self.fault}"))
        elif self.state == IS_DONE:
            # Kept before the last bytes are given out: what the reader does with them cannot concern us any more.
            self._exchange = None
            exchange._part()
            self._keep_or_close()
            if body:
                exchange._push(body)
            exchange._end(None)
        elif body:
            exchange._push(body)
        return 0

    cdef int _keep_or_close(self) except -1:
        """The answer is complete and the exchange is gone: keep the connection if it may carry another."""
        transport = self.transport
        # A request that is still being written was answered too early for the next one to follow it.
        if transport is None or not self.keep_alive or transport.is_closing() or transport.get_write_buffer_size():
            self.abort()
            return 0
        if not self._reading:
            self.resume()
        self._slot = False
        self._origin.keep(self)
        return 0
