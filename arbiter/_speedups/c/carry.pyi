from arbiter._speedups.py.carry import MAX_MOVED_BYTES as MAX_MOVED_BYTES
from arbiter._speedups.py.carry import ChatCarrier as ChatCarrier
from arbiter._speedups.py.carry import MessagesCarrier as MessagesCarrier
from arbiter._speedups.py.carry import Mould as Mould
