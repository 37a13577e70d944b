"""The types of the reference (`py/vectors.py`)."""

from arbiter._speedups.py.vectors import nearest as nearest
