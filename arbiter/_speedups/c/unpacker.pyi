"""The types of the reference (`py/unpacker.py`)."""

from arbiter._speedups.py.unpacker import Unpacker as Unpacker
