"""Whether a client is still there while its answer is on the way."""

from __future__ import annotations

from arbiter.attempt.client_end import ClientEnd
from arbiter.attempt.live import StreamRelay
from arbiter.call import Call
from arbiter.own_headers import STREAM_HEADERS
from arbiter.watch import Alarm

_UNARY_GRACE_S = 0.25  # SPEC 3.4: most unary answers are there before watching for a hang-up would have paid


class Presence:
    """Whether the client is still there, and whether it still waits for its first byte.

    A client that leaves before the answer flows cancels the call; one that leaves a flowing stream tells the relay.
    """

    __slots__ = ("_alarm", "_call", "_out", "_stream", "_task")

    def __init__(self, call: Call, out: ClientEnd) -> None:
        self._call = call
        self._out = out
        self._stream: StreamRelay | None = None
        self._task = call.task
        watch = call.doors.watch
        self._alarm: Alarm
        if call.row.stream:
            out.watch(self._left)
            self._alarm = watch.after(call.snapshot.server.commit_after_s, self._commit)
        else:
            self._alarm = watch.after(_UNARY_GRACE_S, self._look)

    def _look(self) -> None:
        self._out.watch(self._left)

    def _left(self) -> None:
        if self._stream is not None:
            self._stream.client_left()
        elif self._task is not None:
            self._task.cancel()

    def _commit(self) -> None:
        """The client has waited long enough for a head. What served it is not known yet; the row will know."""
        row = self._call.row
        own = [
            ("content-type", "text/event-stream"),
            ("x-arbiter-trace-id", row.trace_id),
            ("x-arbiter-request-id", row.id),
        ]
        self._out.start(200, own + STREAM_HEADERS, self._call.format.keepalive)

    def flowing(self, stream: StreamRelay) -> None:
        """The answer flows from here on."""
        self._alarm.off()
        self._stream = stream
        if self._out.gone:
            stream.client_left()

    def close(self) -> None:
        self._alarm.off()
        self._stream = None
        self._task = None
