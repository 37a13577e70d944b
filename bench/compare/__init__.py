"""Arbiter beside other gateways, in one run and in turns: `python -m bench.compare`."""
