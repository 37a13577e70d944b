from arbiter._speedups.py.exchange import HOLD_BYTES as HOLD_BYTES
from arbiter._speedups.py.exchange import JOIN_BYTES as JOIN_BYTES
from arbiter._speedups.py.exchange import LAST_STATUS as LAST_STATUS
from arbiter._speedups.py.exchange import ExchangeCore as ExchangeCore
from arbiter._speedups.py.exchange import LinkCore as LinkCore
from arbiter._speedups.py.exchange import OriginCore as OriginCore
