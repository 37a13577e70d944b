from arbiter._speedups.py.nesting import DEEP as DEEP
from arbiter._speedups.py.nesting import FINE as FINE
from arbiter._speedups.py.nesting import WIDE as WIDE
from arbiter._speedups.py.nesting import commas as commas
from arbiter._speedups.py.nesting import cuts as cuts
from arbiter._speedups.py.nesting import fault as fault
from arbiter._speedups.py.nesting import not_utf8 as not_utf8
from arbiter._speedups.py.nesting import whole as whole
