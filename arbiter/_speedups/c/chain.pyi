"""The types of the reference (`py/chain.py`)."""

from arbiter._speedups.py.chain import DEEP as DEEP
from arbiter._speedups.py.chain import EVERY as EVERY
from arbiter._speedups.py.chain import LAST as LAST
from arbiter._speedups.py.chain import MARKS as MARKS
from arbiter._speedups.py.chain import MOST_MARKS as MOST_MARKS
from arbiter._speedups.py.chain import OPAQUE as OPAQUE
from arbiter._speedups.py.chain import PLACES as PLACES
from arbiter._speedups.py.chain import RUNS as RUNS
from arbiter._speedups.py.chain import Folded as Folded
from arbiter._speedups.py.chain import Led as Led
from arbiter._speedups.py.chain import Mark as Mark
from arbiter._speedups.py.chain import fold as fold
from arbiter._speedups.py.chain import form as form
from arbiter._speedups.py.chain import kept as kept
from arbiter._speedups.py.chain import lead as lead
