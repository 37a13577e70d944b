"""The hot inner loops, twice under the same names: `py/` is the reference, `c/` its compiled equal.

`from arbiter._speedups import sse` gives the compiled module, or the reference where the environment says
`ARBITER_PURE=1`. One choice per process, and no fallback: a module that is not built is an error, not a slow server.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arbiter._speedups.py import (
        answers,
        carry,
        chain,
        columns,
        eventstream,
        exchange,
        h1,
        nesting,
        reduce,
        rows,
        sock,
        sse,
        unpacker,
        usage,
        vectors,
    )

__all__ = ["SIDE", "answers", "carry", "chain", "columns", "eventstream", "exchange", "h1", "nesting", "reduce", "rows",
           "sock", "sse", "unpacker", "usage", "vectors"]  # fmt: skip

SIDE = "py" if os.environ.get("ARBITER_PURE") == "1" else "c"
"""Which side this process runs on: "c", or "py" under `ARBITER_PURE=1`."""

_NAMES = frozenset(__all__) - {"SIDE"}


def __getattr__(name: str) -> ModuleType:
    """Import the chosen twin at its first use.

    Errors: ImportError that says how to build it.
    """
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{SIDE}.{name}")
    except ImportError as error:
        raise ImportError(
            f"{__name__}.{SIDE}.{name} cannot be loaded ({error}). Build it with `pip install -e .` "
            "(or `python setup.py build_ext --inplace`), or set ARBITER_PURE=1 to run on the slow reference."
        ) from error
    globals()[name] = module
    return module
