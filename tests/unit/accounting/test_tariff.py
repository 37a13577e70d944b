"""Which price holds, and where it comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from arbiter.accounting.listed import FlatList
from arbiter.accounting.tariff import Metered, Tariff, charged_pd
from arbiter.config.load import parse
from arbiter.config.rates import Known, Rate
from arbiter.model import Usage

JULY, AUGUST = 1_783_000_000_000, 1_786_500_000_000  # 2026-07-02, 2026-08-12
LISTED = Rate(input=100, cached_input=10, output=200, tiers=((1000, Rate(input=300, cached_input=30, output=600)),))
LIST = FlatList(
    "list 7",
    {
        ("vendor", "big"): {"": LISTED, "flex": Rate(input=50, output=100)},
        ("vendor", "small"): {"": Rate(input=1, output=2)},
        ("openrouter", "a/b"): {"": Rate(input=9, output=9)},
    },
)
USED = Usage(input=10, output=5)


def tariff(prices: str = "", models: str = "", provider: str = "") -> Tariff:
    """A provider `up` whose prices `LIST` knows, and `lan`, which nobody knows."""
    snapshot = parse(
        "providers:\n"
        f"  up: {{ type: openai, endpoint: 'https://up.example/v1', key: k{provider} }}\n"
        "  lan: { type: openai, endpoint: 'http://10.1.2.3/v1' }\n"
        "  router: { type: openai, endpoint: 'https://router.example/v1', key: k, priced_as: openrouter }\n"
        f"models: [{models}]\nprices: {{ {prices} }}\n",
        "test",
        {},
    )
    known = {"https://up.example/v1": "vendor", "http://10.1.2.3/v1": "vendor"}
    return Tariff(snapshot.pricing, snapshot.providers, [LIST], known.get)


def priced(found: Tariff, provider: str = "up", model: str = "big", **more: Any) -> tuple[Any, ...]:
    metered = {"provider": provider, "models": (model,), "at_ms": AUGUST, "usage": USED, **more}
    answer = found.price(Metered(**metered))
    return answer.cost_pd, answer.source, answer.label


def test_the_catalog_prices_what_nothing_else_does() -> None:
    assert priced(tariff()) == (2000, "catalog", "list 7 vendor/big")
    assert priced(tariff(), model="big-2026-08-07") == (2000, "catalog", "list 7 vendor/big")
    assert priced(tariff(), service_tier="flex") == (1000, "catalog", "list 7 vendor/big (flex)")
    assert priced(tariff(), service_tier="default") == (2000, "catalog", "list 7 vendor/big")


def test_the_built_in_echo_costs_exactly_nothing() -> None:
    """Under any name, whatever was counted, and not by a list; what the file says still goes over it."""

    def echo(more: str) -> Tariff:
        providers = "providers: { e: { type: echo, models: [big] } }\n"
        snapshot = parse(f"{providers}{more}", "test", {})
        return Tariff(snapshot.pricing, snapshot.providers, [LIST], lambda _: "vendor")

    free = (0, "echo", "the built-in echo provider")
    assert priced(echo(""), "e") == free
    assert priced(echo(""), "e", "whatever", usage=Usage(output=7, web_searches=2), service_tier="flex") == free
    own = "models: [{ model: e/big, input_usd_per_mtok: 1, output_usd_per_mtok: 1 }]"
    assert priced(echo(own), "e")[1] == "model_config"


def test_what_nobody_knows_is_unpriced_and_not_free() -> None:
    """SPEC 9.3. An address of one's own is nobody's: the model may run on the machine next door."""
    assert priced(tariff(), model="other") == (None, "unpriced", None)
    assert priced(tariff(), provider="lan") == (None, "unpriced", None)
    assert priced(tariff(), provider="gone") == (None, "unpriced", None)
    assert priced(tariff(), service_tier="priority") == (None, "unpriced", None)
    # The model has a price; what was used of it has none, and the label says whose price that is.
    assert priced(tariff(), model="small", usage=Usage(input=1, cache_read=1, output=1)) == (
        None,
        "unpriced",
        "list 7 vendor/small",
    )


def test_the_providers_own_figure_goes_over_the_catalog_and_an_explicit_zero_counts() -> None:
    own = "the provider's own figure"
    assert priced(tariff(), provider_cost_pd=77) == (77, "provider", own)
    assert priced(tariff(), provider_cost_pd=0) == (0, "provider", own)
    assert priced(tariff(), model="other", usage=Usage(), provider_cost_pd=5) == (5, "provider", own)
    assert priced(tariff(), provider_cost_pd=-1)[:2] == (2000, "catalog")
    assert priced(tariff(), provider_cost_pd=2**63)[:2] == (2000, "catalog")


def test_a_row_in_models_goes_over_the_providers_figure_and_takes_the_place_of_the_list_whole() -> None:
    row = "{ model: up/big, input_usd_per_mtok: 1, output_usd_per_mtok: 1 }"
    found = tariff(models=row)
    assert priced(found, provider_cost_pd=77) == (15_000_000, "model_config", "models")
    # No price is taken from the list for what the row leaves out; what the provider says is better than nothing.
    cached = Usage(input=1, cache_read=1, output=1)
    assert priced(found, usage=cached) == (None, "unpriced", "models")
    assert priced(found, usage=cached, provider_cost_pd=77)[:2] == (77, "provider")


def test_an_override_goes_over_everything_and_leaves_what_it_does_not_name() -> None:
    """Per token type, with a fee and a discount on the rest, in every tier."""
    found = tariff("overrides: [{ model: 'b*', output_per_mtok: 0.001, discount_percent: 20, request_fee: 0.000001 }]")
    assert priced(found, provider_cost_pd=1) == (
        10 * 80 + 5 * 1000 + 10**6,
        "override",
        "override #1 on list 7 vendor/big",
    )
    long = Usage(input=2000, output=1)
    assert priced(found, usage=long)[0] == 2000 * 240 + 1000 + 10**6
    assert priced(found, model="small")[1] == "catalog"


def test_a_fee_for_searches_is_the_operators_like_any_other() -> None:
    searched = Usage(input=10, output=5, web_searches=2)
    found = tariff("overrides: [{ model: 'b*', web_search_fee: 0.01, currency: EUR, fx_rate_to_usd: 1.1 }]")
    assert priced(found, usage=searched)[0] == 10 * 100 + 5 * 200 + 2 * 11_000_000_000
    row = "{ model: up/big, input_usd_per_mtok: 1, output_usd_per_mtok: 1, web_search_usd: 0.005 }"
    assert priced(tariff(models=row), usage=searched)[0] == 15_000_000 + 2 * 5_000_000_000


def test_an_override_holds_from_its_first_moment_to_its_last() -> None:
    found = tariff("overrides: [{ from: 2026-07-02, until: 2026-07-03, input_per_mtok: 0, output_per_mtok: 0 }]")
    day_ms = 86_400_000
    begins = JULY - JULY % day_ms
    for at_ms, cost in ((begins - 1, 2000), (begins, 0), (begins + day_ms - 1, 0), (begins + day_ms, 2000)):
        assert priced(found, at_ms=at_ms)[0] == cost


def test_the_first_override_that_fits_is_used_alone() -> None:
    found = tariff(
        "overrides: [{ provider: lan, input_per_mtok: 2, output_per_mtok: 0 }, { provider: '*', model: big, "
        "service_tier: flex, discount_percent: 50 }, { discount_percent: 100 }]"
    )
    assert priced(found, provider="lan") == (20_000_000, "override", "override #1")
    assert priced(found, service_tier="flex")[0] == 500
    assert priced(found) == (0, "override", "override #3 on list 7 vendor/big")
    # A discount of a price that nobody knows is no price.
    assert priced(found, model="other") == (None, "unpriced", None)


def test_a_foreign_currency_is_exchanged_at_the_rate_that_was_written() -> None:
    found = tariff("overrides: [{ currency: EUR, fx_rate_to_usd: 1.085, input_per_mtok: 2, output_per_mtok: 4 }]")
    assert priced(found)[0] == 10 * 2_170_000 + 5 * 4_340_000


def test_a_subscription_costs_nothing_and_keeps_what_it_would_have_been() -> None:
    found = tariff(provider=", billing: subscription")
    answer = found.price(Metered(provider="up", models=("big",), at_ms=AUGUST, usage=USED, provider_cost_pd=3))
    assert (answer.cost_pd, answer.source, answer.equivalent_pd) == (0, "subscription", 2000)
    unknown = found.price(Metered(provider="up", models=("other",), at_ms=AUGUST, usage=USED))
    assert (unknown.cost_pd, unknown.source, unknown.equivalent_pd) == (0, "subscription", None)


def test_openrouters_free_models_cost_nothing_and_its_ways_to_choose_change_no_price() -> None:
    assert priced(tariff(), provider="router", model="a/b:nitro")[:2] == (90 + 45, "catalog")
    assert priced(tariff(), provider="router", model="a/b:free")[:2] == (0, "catalog")
    assert priced(tariff(), model="big:free") == (None, "unpriced", None)


def test_the_model_that_served_is_priced_where_the_one_that_was_asked_for_has_no_price() -> None:
    assert priced(tariff(), models=("auto", "small")) == (20, "catalog", "list 7 vendor/small")
    assert priced(tariff(), models=("big", "small"))[0] == 2000


def test_a_look_up_answers_for_a_model_at_a_moment() -> None:
    """What cache losses are priced with: the usual tier, whatever the source."""
    found = tariff("overrides: [{ until: 2026-08-01, output_per_mtok: 1 }]")
    assert found.rate("up", "big", AUGUST) == LISTED
    july = found.rate("up", "big", JULY)
    assert july is not None and july.output == 10**6 and july.input == 100
    assert found.rate("lan", "big", AUGUST) is None


def test_a_flood_of_names_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose names where a provider takes any; a look-up that is forgotten is made again."""
    monkeypatch.setattr("arbiter.accounting.tariff._MOST_KNOWN", 10)
    found = tariff()
    for number in range(50):
        assert priced(found, model=f"no-{number}")[1] == "unpriced"
        assert priced(found)[0] == 2000
    assert len(found._days) <= 10


@pytest.mark.parametrize(
    ("prices", "more", "usage", "told"),
    [
        ("", "", USED, 2000),
        ("", "", Usage(input=10, output=5, cost_pd=77), 77),
        ("overrides: [{ discount_percent: 50 }]", "", Usage(input=10, output=5, cost_pd=77), 1000),
        ("overrides: [{ discount_percent: 50, until: 2026-12-31 }]", "", USED, None),
        ("overrides: [{ discount_percent: 50, service_tier: flex }]", "", USED, None),
        ("overrides: [{ discount_percent: 50, provider: lan }]", "", USED, 2000),
        ("", "", Usage(input=10, output=5, service_tier="default"), 2000),
        ("", "", Usage(input=10, output=5, service_tier="flex"), None),
        ("", "", Usage(input=10, output=5, service_tier="flex", cost_pd=0), 0),
        ("", "", Usage(output=5), None),
        ("", "", Usage(cost_pd=-1, input=10, output=5), 2000),
        ("", ", billing: subscription", USED, 0),
    ],
)
def test_who_has_no_lists_says_the_same_or_nothing(prices: str, more: str, usage: Usage, told: int | None) -> None:
    """What a worker tells the client is what the row will say."""
    found = tariff(prices, provider=f", models: [big]{more}")
    known = {"big": Known(rate)} if (rate := found.rate("up", "big", AUGUST)) is not None else {}
    provider = replace(found._providers["up"], known=known)
    assert charged_pd(usage, provider, "big", found._overrides) == told
    if told is not None:
        row = Metered(
            provider="up",
            models=("big",),
            at_ms=AUGUST,
            usage=usage,
            service_tier=usage.service_tier,
            provider_cost_pd=usage.cost_pd,
        )
        assert found.price(row).cost_pd == told
