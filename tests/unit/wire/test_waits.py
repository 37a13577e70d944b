"""How long a provider asked us to stay away: every spelling that providers have, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arbiter.wire.waits import MAX_WAIT_S, retry_after_s, wait_s

NOW_MS = 1_770_000_000_500  # 2026-02-02T02:40:00.5Z
NOW_S = NOW_MS / 1000


def asked(*headers: tuple[str, str], status: int = 429, body: bytes = b"") -> float | None:
    found = wait_s(status, headers, body, NOW_MS)
    return None if found is None else round(found, 6)


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("3", 3), ("0", 0), ("2.5", 2.5), ("+7", 7), (" 12 ", 12), (".5", 0.5), ("1.", 1),
        ("-5", 0), ("1s", 1), ("6m0s", 360), ("20ms", 0.02),
        ("Mon, 02 Feb 2026 02:40:30 GMT", 29.5),
        ("mon, 02 feb 2026 02:40:30 utc", 29.5),
        ("Monday, 02-Feb-26 02:40:30 GMT", 29.5),
        ("Mon Feb  2 02:40:30 2026", 29.5),
        ("Mon, 02 Feb 2026 02:40:60 GMT", 58.5),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
    ],
)  # fmt: skip
def test_a_retry_after_is_seconds_or_a_date_in_any_form(value: str, wait: float) -> None:
    """Negative and past waits are over; two digits of a year mean the century that is nearer (RFC 9110)."""
    assert asked(("Retry-After", value)) == wait
    assert asked(("retry-after", value), status=503) == wait


@pytest.mark.parametrize(
    "value",
    [
        "", "soon", "nan", "inf", "1e3", "1_000", "0x10", "--1", "1,5", "1 2", "٣", "5 parsecs", "1ſ", "1μs", "1m2x",
        "Mon, 32 Feb 2026 02:40:30 GMT", "Mon, 02 Foo 2026 02:40:30 GMT", "Mon, 02 Feb 0000 02:40:30 GMT",
        "Mon, 02 Feb 2026 25:40:30 GMT", "Mon, 02 Feb 2026 02:40:30 PST", "9" * 100, "1" * 64,
        "604801", "1770000030", "Mon, 02 Feb 2036 02:40:30 GMT", "8d",
    ],
)  # fmt: skip
def test_what_is_no_wait_is_no_hint(value: str) -> None:
    """Neither garbage nor a wait of over seven days: nobody may lose an account for weeks by a slip of units."""
    assert asked(("retry-after", value)) is None
    assert asked(("retry-after", value), ("x-ratelimit-reset", "3")) == 3


def test_the_parts_of_a_retry_after_are_one_parser() -> None:
    """What the client is told and what an account waits for cannot differ; only the bound is the cooldown's."""
    assert retry_after_s("2.5", NOW_MS) == 2.5
    assert retry_after_s("Mon, 02 Feb 2026 02:40:30 GMT", NOW_MS) == pytest.approx(29.5)
    assert retry_after_s("604801", NOW_MS) == 604_801
    assert retry_after_s("9999999999", NOW_MS) is None


def test_milliseconds_are_more_exact_than_seconds() -> None:
    """OpenAI and Azure send both; the second is rounded up."""
    assert asked(("retry-after-ms", "1250"), ("retry-after", "2")) == 1.25
    assert asked(("retry-after-ms", "-1"), ("retry-after", "2")) == 0
    assert asked(("retry-after-ms", "soon"), ("retry-after", "2")) == 2
    assert asked(("retry-after-ms", "1s"), ("retry-after", "2")) == 2


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("1s", 1), ("6m0s", 360), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("1d", 86_400), ("15µs", 0.000015), ("7", 7),
        ("0.25", 0.25), ("1770000030", 29.5), ("1770000030500", 30), ("1000000000", 0), ("2026-02-02T02:40:30Z", 29.5),
        ("2026-02-02T03:40:30.5+01:00", 30), ("Mon, 02 Feb 2026 02:40:30 GMT", 29.5), ("23h59m45s", 86_385),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("reset", "remaining"),
    [
        ("x-ratelimit-reset-requests", "x-ratelimit-remaining-requests"),
        ("x-ratelimit-reset-tokens_usage_based", "x-ratelimit-remaining-tokens_usage_based"),
        ("X-RateLimit-Reset", "X-RateLimit-Remaining"),
        ("ratelimit-reset", "ratelimit-remaining"),
        ("anthropic-ratelimit-input-tokens-reset", "anthropic-ratelimit-input-tokens-remaining"),
    ],
)
def test_a_window_of_which_nothing_remains_says_when_it_opens(
    reset: str, remaining: str, value: str, wait: float
) -> None:
    """Vendors write a span in two ways and a moment in four."""
    assert asked((reset, value), (remaining, "0")) == wait
    assert asked((reset, value)) == wait, "a 429 without a `remaining`: this window must be it"
    assert asked((reset, value), (remaining, "17")) is None
    assert asked((reset, value), (remaining, "0"), status=503) == wait
    assert asked((reset, value), status=503) is None, "it stands on every answer"
    assert asked((reset, value), (remaining, "0"), status=200) is None, "who answers asks nobody to stay away"


def test_of_spent_windows_the_last_to_open_counts_and_of_unknown_ones_the_first() -> None:
    """Each spent one refuses us until then; of the unknown ones only one does, and a told wait is never cut short."""
    spent = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-remaining-tokens", "0")]
    resets = [("x-ratelimit-reset-requests", "2s"), ("x-ratelimit-reset-tokens", "1m")]
    assert asked(*resets, *spent) == 60
    assert asked(*resets, spent[0]) == 2
    assert asked(*resets) == 2
    assert asked(*resets, spent[0], ("x-ratelimit-remaining-tokens", "5")) == 2


def test_a_login_waits_for_the_window_that_is_used_up() -> None:
    """Anthropic's and Codex's subscriptions, as their own clients read them."""
    unified = [("anthropic-ratelimit-unified-status", "rejected"), ("anthropic-ratelimit-unified-reset", "1770003600")]
    assert asked(*unified) == 3599.5
    assert asked(("anthropic-ratelimit-unified-status", "allowed_warning"), unified[1]) is None
    assert asked(unified[1]) is None
    codex = [("x-codex-primary-used-percent", "100"), ("x-codex-primary-reset-after-seconds", "18000")]
    assert asked(*codex) == 18_000
    assert asked(codex[0], ("x-codex-primary-reset-at", "1770000600")) == 599.5
    assert asked(("x-codex-primary-used-percent", "99.9"), codex[1]) is None
    assert asked(codex[0]) is None
    weekly = [("x-codex-secondary-used-percent", "100.0"), ("x-codex-secondary-reset-after-seconds", "486400")]
    assert asked(*codex, *weekly) == 486_400
    assert asked(*codex, ("x-ratelimit-reset", "1"), ("x-ratelimit-remaining", "0")) == 18_000
    assert asked(*codex, ("retry-after", "30")) == 30, "said of exactly this request"


def google(delay: object) -> bytes:
    details = [{"@type": "type.googleapis.com/google.rpc.Help"}, {"@type": "x.RetryInfo", "retryDelay": delay}, 3]
    return json.dumps({"error": {"code": 429, "message": "Please retry in 99s", "details": details}}).encode()


def test_googles_retry_info_is_read_from_its_body() -> None:
    """As an object, and as the array that a call which streams is answered with; any status may bear it."""
    assert asked(body=google("34s")) == 34
    assert asked(body=google("1.203608125s"), status=503) == 1.203608
    assert asked(body=b"[" + google("34s") + b"]") == 34
    assert asked(body=google(7)) == 99, "no duration: the prose is all that is left"
    assert asked(body=google("34s"), status=200) is None


def test_bodies_of_other_vendors_tell_it_too() -> None:
    """Codex's backend says it in two members; OpenRouter repeats there the headers of whom it asked."""
    assert asked(body=b'{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}') == 3600
    assert asked(body=b'{"error":{"type":"usage_limit_reached","resets_at":1770000600}}') == 599.5
    assert asked(body=b'{"error":{"resets_in_seconds":1e300,"resets_at":%b}}' % (b"9" * 4000)) is None
    told = {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1770000600500", "n": 3}
    body = json.dumps({"error": {"code": 429, "metadata": {"headers": told}}}).encode()
    assert asked(body=body) == 600
    assert asked(("retry-after", "2"), body=body) == 2


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("Limit 18000, Requested ~36313. Please try again in 1m1.043333333s. Visit https://x", 61.043333),
        ("Please try again in 6.2s.", 6.2), ("please TRY AGAIN in 950ms", 0.95), ("Please retry in 34.9s.", 34.9),
        ("Please retry after 6 seconds.", 6), ("Try again in 20 minutes", 1200), ("Try again in 2h3m.", 7380),
        ("try again in 1 hour", 3600), ("try again in a while", None), ("try again in 3 sheep", None),
        ("try again in 30 days", None), ("Try again later.", None),
    ],
)  # fmt: skip
def test_prose_is_the_last_to_be_asked_and_only_on_a_429(text: str, wait: float | None) -> None:
    """Groq's limit per minute stands in no header."""
    for body in (json.dumps({"error": {"message": text}}).encode(), text.encode()):
        assert asked(body=body) == wait
        assert asked(body=body, status=500) is None
        assert asked(("retry-after", "1"), body=body) == 1


def test_a_body_that_is_too_long_is_not_searched() -> None:
    """An error may be of any size, and everybody waits for whoever looks through it."""
    assert asked(body=b" " * 70_000 + b"try again in 6s") is None


@pytest.mark.parametrize(
    "body", [b"[" * 5000, b'{"error":' * 5000, b'{"error":"\\ud800"}', b"\xff\xfe", b"null", b"[]", b'{"error":null}']
)
def test_no_body_is_an_error(body: bytes) -> None:
    """Deep nesting, halves of characters, no JSON at all."""
    assert asked(body=body) is None
    assert asked(body=body + b" try again in 3s") == 3


def test_half_a_character_costs_no_wait() -> None:
    """The message of an error may quote a prompt that was cut in the middle of an emoji."""
    assert asked(body=b'{"error":{"message":"\\ud83d","resets_in_seconds":4}}') == 4


NAMES = st.sampled_from(
    ["retry-after", "retry-after-ms", "x-ratelimit-reset", "x-ratelimit-remaining", "x-ratelimit-reset-tokens",
     "x-ratelimit-remaining-tokens", "anthropic-ratelimit-tokens-reset", "anthropic-ratelimit-tokens-remaining",
     "anthropic-ratelimit-unified-status", "anthropic-ratelimit-unified-reset", "x-codex-primary-used-percent",
     "x-codex-primary-reset-at", "x-codex-secondary-reset-after-seconds", "ratelimit-reset"]
)  # fmt: skip
NEARLY = st.text("0123456789.:-+ ehmsµdayTZGMTonFbrjct,", max_size=80)
VALUES = st.text() | NEARLY | st.sampled_from(["0", "100", "rejected"]) | st.integers().map(str) | st.floats().map(str)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | NEARLY,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "details", "retryDelay", "metadata", "headers", "resets_at", "resets_in_seconds"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(
    st.integers(0, 999),
    st.lists(st.tuples(NAMES | st.text(), VALUES)),
    st.binary() | st.text().map(str.encode) | JSON.map(json.dumps).map(str.encode),
    st.integers(0, 1 << 45),
)
@example(429, [("retry-after", "Mon, 02 Feb 9999 23:59:59 GMT")], b"", 0)
@example(429, [("x-ratelimit-reset", "0001-01-01T00:00:00+23:59")], b"", 0)
def test_nothing_that_is_sent_raises(status: int, headers: list[tuple[str, str]], body: bytes, now_ms: int) -> None:
    """Headers and bodies are theirs; the answer is ours: nothing, or a wait within its bounds."""
    found = wait_s(status, headers, body, now_ms)
    assert found is None or 0 <= found <= MAX_WAIT_S


@given(st.integers(0, 604_800), st.integers(0, 1 << 41))
def test_every_spelling_of_one_wait_is_the_same(seconds: int, now_ms: int) -> None:
    """A span, a Go duration, seconds and milliseconds since 1970, RFC 3339 and HTTP's date."""
    now_ms += 1_000_000_000_000
    now_ms -= now_ms % 1000
    then = now_ms // 1000 + seconds
    moment = datetime.fromtimestamp(then, UTC)
    go = f"{seconds // 3600}h{seconds // 60 % 60}m{seconds % 60}s"
    date = moment.strftime("%a, %d %b %Y %H:%M:%S GMT")
    for value in (str(seconds), go, str(then), str(then * 1000), moment.isoformat(), date):
        assert wait_s(429, [("x-ratelimit-reset", value)], b"", now_ms) == pytest.approx(seconds), value
    for value in (str(seconds), go, date):
        assert wait_s(503, [("retry-after", value)], b"", now_ms) == pytest.approx(seconds), value
    assert wait_s(503, [("retry-after-ms", str(seconds * 1000))], b"", now_ms) == seconds
