"""The section `prices`: what it comes to, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from arbiter.config.load import ConfigError, parse
from arbiter.config.rates import DAY_MS, Known, Override, Prepaid, Pricing, Rate
from arbiter.config.redacted import redacted
from arbiter.config.snapshot import Snapshot

ONE = "providers: { up: { type: openai, key: k }, two: { type: openai, keys: [{ label: a, key: k }] } }\n"


def read(prices: str) -> Snapshot:
    return parse(f"{ONE}prices: {{ {prices} }}\n", "/etc/arbiter.yaml", {"ARBITER_DATA_DIR": "/data"})


def test_nothing_is_fetched_by_default() -> None:
    pricing = read("").pricing
    assert pricing == Pricing(
        stored=Path("/data/prices.json"), refresh_url=pricing.refresh_url, max_age_s=60 * 86400.0, refresh_s=0.0
    )
    assert pricing.refresh_url.startswith("https://")
    assert read("refresh: off").pricing == read("refresh: 0").pricing == pricing


def test_a_source_and_a_refresh() -> None:
    pricing = read("source: my/prices.json, refresh: 6h, refresh_url: 'http://127.0.0.1:8/x', max_age: 1d").pricing
    assert (pricing.source, pricing.refresh_s, pricing.max_age_s) == (Path("/etc/my/prices.json"), 21600.0, 86400.0)


def test_what_is_asked_for_in_the_query_of_an_address_is_a_secret() -> None:
    """It is sent, and neither shown nor hashed; the log knows it, to keep it out of its lines."""
    snapshot = read("refresh_url: 'https://h.example/x?token=s3cret%2Fword&bare-t0ken'")
    assert snapshot.pricing.refresh_url.endswith("?token=s3cret%2Fword&bare-t0ken")
    assert redacted(snapshot)["prices"]["refresh_url"] == "https://h.example/x"
    assert {"s3cret%2Fword", "s3cret/word", "bare-t0ken"} <= snapshot.secrets()
    assert "s3cret" not in repr(snapshot) and "bare-t0ken" not in repr(snapshot)
    assert "" not in snapshot.secrets() and read("").pricing.refresh_url not in snapshot.secrets()


def test_an_override_is_read_in_usd() -> None:
    """Days begin in UTC, foreign money is exchanged, and what is left of a discount is in millionths."""
    snapshot = read(
        "overrides: [{ provider: u*, model: gpt, service_tier: flex, from: 1970-01-02, until: 1970-01-04, "
        "currency: EUR, fx_rate_to_usd: 1.1, input_per_mtok: 0.000005, output_per_mtok: 2, request_fee: 0.01, "
        "discount_percent: 12.5 }]"
    )
    assert snapshot.pricing.overrides == (
        Override(
            number=1,
            provider="u*",
            model="gpt",
            service_tier="flex",
            from_ms=DAY_MS,
            until_ms=3 * DAY_MS,
            prices=Rate(input=6, output=2_200_000, request=11 * 10**9),
            keep=875_000,
        ),
    )
    shown = redacted(snapshot)["prices"]["overrides"][0]
    assert (shown["discount_percent"], shown["output_usd_per_mtok"], shown["request_usd"]) == ("12.5", "2.2", "0.011")


def test_money_paid_in_advance() -> None:
    pricing = read("prepaid: [{ provider: two, account: a, balance_usd: 12.5, since: 1970-01-02 }]").pricing
    assert pricing.prepaid == (Prepaid("two", "a", 12_500_000_000_000, DAY_MS),)


@pytest.mark.parametrize(
    ("prices", "path", "message"),
    [
        ("source: ''", "prices.source", "a file"),
        ("refresh: 1s", "prices.refresh", "60s is the least"),
        ("refresh: never", "prices.refresh", '"off" or a duration'),
        ("refresh_url: 'http://h.example/x'", "prices.refresh_url", "expected https://"),
        ("refresh_url: 'ftp://127.0.0.1/x'", "prices.refresh_url", "expected https://"),
        ("refresh_url: 'https://user:S3CRET@h.example/x'", "prices.refresh_url", "a user and a password are not sent"),
        ("refresh_url: 'https://token@h.example/x'", "prices.refresh_url", "a user and a password are not sent"),
        ("refresh_url: 'https://[h/x'", "prices.refresh_url", "no address"),
        ("refresh_url: 'https://h.example:99999/x'", "prices.refresh_url", "no address"),
        ("refresh_url: 'https:///x'", "prices.refresh_url", "no address"),
        ("overrides: [{ model: x }]", "prices.overrides[0]", "overrides nothing"),
        ("overrides: [{ input_per_mtok: 1, currency: EUR }]", "prices.overrides[0]", "how many USD one EUR is"),
        ("overrides: [{ input_per_mtok: 1, fx_rate_to_usd: 2 }]", "prices.overrides[0].fx_rate_to_usd", "USD to USD"),
        ("overrides: [{ discount_percent: 101 }]", "prices.overrides[0].discount_percent", "more than everything"),
        ("overrides: [{ discount_percent: 1, from: soon }]", "prices.overrides[0].from", "a moment like"),
        ("overrides: [{ discount_percent: 1, from: 2026-02-30 }]", "prices.overrides[0].from", "a moment like"),
        (
            "overrides: [{ discount_percent: 1, from: 2026-02-02, until: 2026-02-01 }]",
            "prices.overrides[0].until",
            "ends before it begins",
        ),
        ("overrides: [{ input_usd_per_mtok: 1 }]", "prices.overrides[0].input_usd_per_mtok", "input_per_mtok"),
        (
            "prepaid: [{ provider: ux, balance_usd: 1, since: 2026-01-01 }]",
            "prices.prepaid[0].provider",
            "valid here: two, up",
        ),
        (
            "prepaid: [{ provider: two, account: b, balance_usd: 1, since: 2026-01-01 }]",
            "prices.prepaid[0].account",
            'two has no key "b"',
        ),
    ],
)
def test_a_mistake_is_named(prices: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(prices)
    assert caught.value.path == path and message in caught.value.message
    assert caught.value.line == 2


def test_what_a_look_up_finds_is_what_a_model_costs() -> None:
    """Routing goes by it, and a row of the file stays what it was."""
    text = (
        "providers: { up: { type: openai, key: k, models: [{ id: a, upstream: b }, c] } }\n"
        "models: [{ model: up/c, input_usd_per_mtok: 1 }]\n"
        "aliases: { cheap: { group: [c, a], select: cheapest_output } }\n"
    )
    bare = parse(text, "f", {})
    asked: list[str] = []

    def look_up(pricing: Pricing, providers: object) -> dict[str, dict[str, Known]]:
        asked.append(str(providers))
        return {"up": {"b": Known(Rate(output=7), 100), "c": Known(max_input=200)}}

    found = parse(text, "f", {}, look_up=look_up)
    up = found.providers["up"]
    assert (up.rate("b"), up.rate("c"), up.rate("a")) == (Rate(output=7), Rate(input=10**6), None)
    assert (up.window("b"), up.window("c"), up.window("a")) == (100, 200, None)
    assert dict(found.rates()) == {"up/a": Rate(output=7), "up/c": Rate(input=10**6)}
    own = parse(text.replace("input_usd_per_mtok: 1", "max_input_tokens: 50"), "f", {}, look_up=look_up)
    assert own.providers["up"].window("c") == 50  # the file's own word wins
    asked.pop()
    assert len(asked) == 1
    # A configuration is the same one wherever prices stand today; the alias is no longer blind.
    assert found.epoch == bare.epoch
    assert len(found.warnings) == len(bare.warnings) - 1
