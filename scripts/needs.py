"""Say plainly what is missing before the set-up begins; any Python can read this file."""

import os
import shutil
import sys

missing = []

if sys.version_info < (3, 11):
    missing.append(
        "Python 3.11 or newer; %s is %s (try: make PYTHON=python3.11)" % (sys.executable, sys.version.split()[0])
    )
else:
    import sysconfig

    try:
        import ensurepip  # noqa: F401
    except ImportError:
        missing.append("Python's venv module (Debian: apt-get install python3-venv)")
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        missing.append("Python's headers (Debian: apt-get install python3-dev)")
    compiler = os.environ.get("CC", "cc").split()[0]
    if not (shutil.which(compiler) or shutil.which("gcc")):
        missing.append("a C compiler (Debian: apt-get install gcc)")

for line in missing:
    sys.stderr.write("missing: %s\n" % line)
sys.exit(1 if missing else 0)
