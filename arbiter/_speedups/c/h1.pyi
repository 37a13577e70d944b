from arbiter._speedups.py.h1 import BODY as BODY
from arbiter._speedups.py.h1 import DONE as DONE
from arbiter._speedups.py.h1 import FAILED as FAILED
from arbiter._speedups.py.h1 import HEAD as HEAD
from arbiter._speedups.py.h1 import MAX_HEAD_BYTES as MAX_HEAD_BYTES
from arbiter._speedups.py.h1 import MAX_SIZE_LINE_BYTES as MAX_SIZE_LINE_BYTES
from arbiter._speedups.py.h1 import MAX_TRAILER_BYTES as MAX_TRAILER_BYTES
from arbiter._speedups.py.h1 import H1Core as H1Core
