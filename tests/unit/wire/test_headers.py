"""What of an upstream's headers reaches the client, and how much of it."""

from __future__ import annotations

from arbiter.wire.headers import TO_CLIENT_BYTES, TO_CLIENT_PAIRS, Pairs, to_client


def size_of(pairs: Pairs) -> int:
    return sum(len(name) + len(value) + 4 for name, value in pairs)


def test_what_few_headers_there_are_crosses_in_order() -> None:
    """Repeated ones too; what is not on the list stays behind."""
    pairs = [("x-request-id", "1"), ("server", "x"), ("openai-model", "m"), ("openai-model", "n"), ("retry-after", "2")]
    assert to_client(pairs) == [pairs[0], *pairs[2:]]


def test_of_countless_headers_the_known_names_and_the_limits_cross_first() -> None:
    """Tens of thousands of names end Granian's process; a hundred are more than any client reads."""
    noise = [(f"openai-{n}", "x") for n in range(26_000)]
    limits = [(f"x-ratelimit-{n}", "1") for n in range(50)]
    known = [("x-request-id", "1"), ("content-type", "application/json"), ("retry-after", "9")]
    crossed = to_client([*noise, *limits, *known])
    assert len(crossed) == TO_CLIENT_PAIRS
    assert crossed[-53:] == [*limits, *known]
    assert crossed[:47] == noise[:47]
    quotas = [(f"quota{n}", "1") for n in range(26_000)]
    assert to_client([*quotas, *known]) == [*quotas[:97], *known]
    assert to_client([("x-request-id", str(n)) for n in range(26_000)])[-1] == ("x-request-id", "99")


def test_a_header_that_is_too_long_stays_behind_and_the_others_cross() -> None:
    """64 KiB in all, in whole headers."""
    long = ("openai-long", "x" * TO_CLIENT_BYTES)
    others = [("x-request-id", "1"), ("x-ratelimit-limit", "2"), ("openai-model", "m")]
    assert to_client([long, *others]) == others
    many = [(f"openai-{n}", "x" * 3000) for n in range(90)]
    crossed = to_client([*many, *others])
    assert crossed[-3:] == others
    assert TO_CLIENT_BYTES - 3100 < size_of(crossed) <= TO_CLIENT_BYTES


def test_retry_after_is_whole_seconds_among_countless_others() -> None:
    """Its place does not matter."""
    assert ("retry-after", "2") in to_client([*[(f"quota{n}", "1") for n in range(1000)], ("retry-after", "1.5")])
