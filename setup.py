"""Compile `arbiter/_speedups/c/*.pyx`; everything else about the package stands in pyproject.toml."""

import os
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

extensions = [
    Extension(
        os.path.splitext(source)[0].replace(os.sep, "."),
        [source],
        # -g0: debug information doubled the wheel and told nobody anything.
        extra_compile_args=["-O3", "-g0"],
        extra_link_args=["-Wl,-s"],
    )
    for source in sorted(glob("arbiter/_speedups/c/*.pyx"))
]

setup(ext_modules=cythonize(extensions, build_dir="build/cython", compiler_directives={"language_level": "3"}))
