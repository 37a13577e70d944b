from arbiter._speedups.py.nesting import is_deeper as is_deeper
