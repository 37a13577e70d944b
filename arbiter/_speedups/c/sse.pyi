from arbiter._speedups.py.sse import LIMIT_BYTES as LIMIT_BYTES
from arbiter._speedups.py.sse import Event as Event
from arbiter._speedups.py.sse import SSEReader as SSEReader
