"""The types of the reference (`py/columns.py`)."""

from arbiter._speedups.py.columns import Taker as Taker
from arbiter._speedups.py.columns import together as together
from arbiter._speedups.py.columns import varies as varies
