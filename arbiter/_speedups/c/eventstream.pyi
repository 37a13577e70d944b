from arbiter._speedups.py.eventstream import LIMIT_BYTES as LIMIT_BYTES
from arbiter._speedups.py.eventstream import MAX_HEADER_BYTES as MAX_HEADER_BYTES
from arbiter._speedups.py.eventstream import Message as Message
from arbiter._speedups.py.eventstream import MessageReader as MessageReader
