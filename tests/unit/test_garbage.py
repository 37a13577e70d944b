"""What a process that serves tells the collector of cycles."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import gc
from arbiter import garbage

class Knot:
    pass

before = gc.get_threshold()
garbage.rarely()
assert gc.isenabled() and gc.get_freeze_count() > 1000 and gc.get_threshold() > before
knot = Knot()
knot.itself = knot
del knot
assert gc.collect() >= 1
"""


def test_what_is_there_is_not_looked_through_again_and_later_cycles_still_go() -> None:
    """In a process of its own, since it is for good."""
    subprocess.run([sys.executable, "-c", LOOK], check=True, timeout=30)
