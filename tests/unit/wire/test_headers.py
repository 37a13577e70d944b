"""What of an upstream's headers reaches the client, and how much of it."""

from __future__ import annotations

import pytest

from arbiter.config.snapshot import Account, Endpoint, Provider
from arbiter.wire import headers
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


@pytest.mark.parametrize(
    ("asked", "wanted", "said"),
    [
        (None, [], None),
        ("a,b", [], "a,b"),
        (None, ["x"], "x"),
        ("a, b", ["b,c", "c", "a"], "a, b,c"),
        ("", ["x"], "x"),
        ("a,,b", ["", " ,z"], "a,,b,z"),
    ],
)
def test_what_a_list_lacks_comes_behind_it_and_nothing_is_lost(asked, wanted, said):
    assert headers.joined(asked, wanted) == said


def test_a_glob_covers_no_credential_and_no_word_to_us():
    """SPEC 2.13, 6.7: whatever the file says, these stay here; what is named itself, and is not refused, goes."""
    every = ("*",)
    for name in ("x-opencode-session", "user-agent", "x-codex-turn-state", "session_id", "chatgpt-account-id"):
        assert headers.is_forwarded(name, every) and headers.is_forwarded(name, (name,)), name
    for name in (*headers.NEVER_FORWARDED, *headers.PROTOCOL_HEADERS, "x-arbiter-label", "x-arbiter-anything"):
        assert not headers.is_forwarded(name, every) and not headers.is_forwarded(name, (name,)), name
    for name in ("x-auth-token", "x-amz-security-token", "x-secret", "proxy-password", "set-cookie2", "x-signature"):
        assert not headers.is_forwarded(name, every) and headers.is_forwarded(name, (name,)), name
    assert not headers.is_forwarded("x-opencode", ("x-opencode-*",))


def test_what_connection_names_is_of_that_connection_alone():
    provider = Provider(
        "up", "openai", "openai-chat", Endpoint("https", "h", 443), (Account(None, "k"),), forward_headers=("x-*",)
    )
    incoming = headers.Incoming([("connection", "keep-alive, X-One"), ("x-one", "1"), ("x-two", "2")])
    sent = dict(headers.to_upstream(provider, provider.accounts[0], "openai-chat", incoming, stream=False))
    assert "x-one" not in sent and sent["x-two"] == "2"
