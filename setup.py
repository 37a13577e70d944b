"""Compile `arbiter/_speedups/c/*.pyx`; everything else about the package stands in pyproject.toml."""

import os
import sys
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

extensions = [
    Extension(
        os.path.splitext(source)[0].replace(os.sep, "."),
        [source],
        include_dirs=["arbiter/_speedups/c"],
        # -g0: debug information doubled the wheel and told nobody anything.
        extra_compile_args=["-O3", "-g0"],
        extra_link_args=["-Wl,-s"],
    )
    for source in sorted(glob("arbiter/_speedups/c/*.pyx"))
]

# `make build` compiles in place, where only what changed is compiled again, and then registers the package without its
# extensions. Nobody else should: an install without them does not start.
if os.environ.get("ARBITER_COMPILED_IN_PLACE") == "1" and "build_ext" not in sys.argv:
    extensions = []

setup(
    ext_modules=cythonize(extensions, build_dir="build/cython", compiler_directives={"language_level": "3"}),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
