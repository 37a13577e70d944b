"""What the gateway says of itself in an answer's headers."""

from __future__ import annotations

import pytest

from arbiter.own_headers import timing


@pytest.mark.parametrize("us", [0, 1, 9, 10, 999, 1000, 1001, 123456, 86_400_000_000])
def test_times_are_told_in_milliseconds_to_the_microsecond(us):
    name, value = timing(us, us + 1)
    assert name == "server-timing"
    assert value == f"gateway;dur={us / 1000:.3f}, upstream;dur={(us + 1) / 1000:.3f}"
