from arbiter._speedups.py.sock import acked as acked
from arbiter._speedups.py.sock import find as find
from arbiter._speedups.py.sock import peer_matches as peer_matches
from arbiter._speedups.py.sock import queued as queued
from arbiter._speedups.py.sock import shutdown as shutdown
