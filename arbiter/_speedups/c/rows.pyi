"""The types of the reference (`py/rows.py`)."""

from arbiter._speedups.py.rows import Moves as Moves
from arbiter._speedups.py.rows import Packer as Packer
