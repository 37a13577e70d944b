"""`python -m arbiter` is `arbiter`."""

import sys

from arbiter.cli import main

if __name__ == "__main__":
    sys.exit(main())
