"""The running gateway beside nginx: same mock upstream, same client, same run (`python -m bench.path`)."""
