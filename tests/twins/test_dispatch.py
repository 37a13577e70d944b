"""One side per process, chosen by the environment; a side that is missing is said aloud."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOW = """
import sys
import arbiter._speedups as speedups
assert not [name for name in sys.modules if name.startswith(("arbiter._speedups.c.", "arbiter._speedups.py."))]
names = [name for name in speedups.__all__ if name != "SIDE"]
print(speedups.SIDE, {getattr(speedups, name).__name__.rpartition(".")[0] for name in names})
"""
BREAK = """
import sys
sys.modules["arbiter._speedups.c.sse"] = None
from arbiter._speedups import sse
"""


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    base = {name: value for name, value in os.environ.items() if name != "ARBITER_PURE"}
    return subprocess.run(
        [sys.executable, "-c", code], env=base | environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("environment", "side"), [({}, "c"), ({"ARBITER_PURE": "1"}, "py"), ({"ARBITER_PURE": "0"}, "c")]
)
def test_the_environment_chooses_the_side_for_all_modules(environment: dict[str, str], side: str) -> None:
    """Every name comes from the chosen side, and none is loaded before someone asks."""
    result = python(SHOW, **environment)
    assert result.stdout.split() == [side, f"{{'arbiter._speedups.{side}'}}"], result.stderr


def test_a_missing_compiled_module_is_an_error_that_says_what_to_do() -> None:
    """It never falls back in silence: a server on the reference would be fifty times slower and nobody would know."""
    result = python(BREAK)
    assert result.returncode != 0
    assert "pip install -e ." in result.stderr
    assert "ARBITER_PURE=1" in result.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    result = python("import arbiter._speedups as s; s.nothing")
    assert "AttributeError: module 'arbiter._speedups' has no attribute 'nothing'" in result.stderr
