"""Groups: who goes first, who comes behind, and what a request may change about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from arbiter.config.load import parse
from arbiter.config.rates import Card, Rate
from arbiter.config.snapshot import Alias, Member, Routing, Select, Snapshot
from arbiter.routing.groups import lot
from arbiter.routing.plan import Asked, Pinned, Plan
from arbiter.routing.router import Router

MODELS = ("a", "b", "c", "d")
TEXT = "providers:\n" + "".join(f"  {name}: {{ type: openai, key: k, models: [m] }}\n" for name in MODELS)


@dataclass
class Seen:
    """What was seen of targets, as a test says."""

    under_way: Mapping[str, int] = field(default_factory=dict)
    speeds: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def busy(self, target: str) -> int:
        return self.under_way.get(target, 0)

    def speed(self, target: str) -> tuple[float, float] | None:
        return self.speeds.get(target)


def snapshot(*aliases: Alias, rates: Mapping[str, Rate] | None = None, cards: Mapping[str, Card] | None = None,
             routing: Routing | None = None) -> Snapshot:  # fmt: skip
    """Providers a to d with one model `m` each, and these aliases."""
    base = parse(TEXT, "t.yaml", {})
    providers = {
        name: replace(
            provider,
            rates={"m": rates[name]} if rates and name in rates else {},
            cards={"m": cards[name]} if cards and name in cards else {},
        )
        for name, provider in base.providers.items()
    }
    return replace(
        base,
        providers=providers,
        aliases={alias.name: alias for alias in aliases},
        routing=routing or Routing(),
    )


def group(select: Select, *members: str | Member, name: str = "g") -> Alias:
    """A group of providers' models `m` (one letter), other aliases (longer words), or members as given."""
    found = tuple(
        one if isinstance(one, Member) else Member(one, "m") if len(one) == 1 else Member(alias=one) for one in members
    )
    return Alias(name, found, is_group=True, select=select)


def order(plan: Plan) -> str:
    return "".join(rung.provider.name for rung in plan.rungs)


def slots(count: int) -> list[bytes]:
    return [n.to_bytes(16, "big") for n in range(count)]


def test_ordered_is_the_order_of_the_file():
    plan = Router(snapshot(group("ordered", "c", "a", "b"))).plan(Asked("g"))
    assert order(plan) == "cab"
    assert plan.alias == "g"
    assert not plan.is_explicit
    assert plan.rationale == "alias g (ordered) -> c/m; then a/m, b/m"


@pytest.mark.parametrize(
    ("select", "expected"),
    [("cheapest_input", "cbad"), ("cheapest_output", "bcad")],
)
def test_the_cheapest_goes_first_and_the_unpriced_last(select, expected):
    """A price of nothing is a price; no price is none. What is unknown keeps the order of the file (SPEC 5.2)."""
    rates = {"b": Rate(input=2_000_000, output=0), "c": Rate(input=1_000_000, output=5_000_000)}
    plan = Router(snapshot(group(select, *MODELS), rates=rates)).plan(Asked("g"))
    assert order(plan) == expected
    assert "USD per million tokens" in plan.rationale


@pytest.mark.parametrize("select", ["cheapest_input", "cheapest_output", "fastest", "fastest_measured"])
def test_without_any_data_the_first_listed_goes_first(select):
    plan = Router(snapshot(group(select, "d", "a", "b"))).plan(Asked("g"))
    assert order(plan) == "dab"
    assert "known" in plan.rationale or "nothing measured" in plan.rationale


class Exactly:
    """An amount that is the same for everybody."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def tokens(self, target: str) -> int:
        return self._tokens


def test_the_price_is_that_of_so_much_input():
    """A model may cost more per token once there are many of them: then another is the cheapest."""
    rates = {
        "a": Rate(input=1_000_000, tiers=((200_000, Rate(input=4_000_000)),)),
        "b": Rate(input=2_000_000),
    }
    router = Router(snapshot(group("cheapest_input", "a", "b"), rates=rates))
    assert order(router.plan(Asked("g", amount=Exactly(200_000)))) == "ab"
    assert order(router.plan(Asked("g", amount=Exactly(200_001)))) == "ba"


def test_the_fastest_is_the_one_that_the_catalog_says():
    cards = {"a": Card(latency_ms_p50=900.0), "c": Card(latency_ms_p50=120.5), "d": Card(max_input=5)}
    plan = Router(snapshot(group("fastest", "d", "a", "b", "c"), cards=cards)).plan(Asked("g"))
    assert order(plan) == "cadb"
    assert plan.rationale.startswith("alias g (fastest), 120.5 ms -> c/m")


def test_the_fastest_measured_is_the_one_that_was_seen():
    router = Router(snapshot(group("fastest_measured", *MODELS)))
    seen = Seen(speeds={"c/m": (0.5, 10.0), "d/m": (0.25, 1.0)})
    plan = router.plan(Asked("g", facts=seen))
    assert order(plan) == "dcab"
    assert "first event after 0.250 s" in plan.rationale
    seen.speeds = {"a/m": (0.1, 1.0)}  # what is seen later counts from then on
    assert order(router.plan(Asked("g", facts=seen))) == "abcd"


def test_the_least_busy_goes_first_and_equals_draw():
    router = Router(snapshot(group("least_busy", *MODELS)))
    seen = Seen(under_way={"a/m": 3, "b/m": 1, "c/m": 2, "d/m": 1})
    drawn = Counter(order(router.plan(Asked("g", facts=seen, slot=slot))) for slot in slots(200))
    assert set(drawn) == {"bdca", "dbca"}
    assert min(drawn.values()) > 60
    assert "1 under way" in router.plan(Asked("g", facts=seen)).rationale


def test_a_random_group_shares_its_conversations_evenly():
    router = Router(snapshot(group("random", *MODELS)))
    first = Counter(order(router.plan(Asked("g", slot=slot)))[0] for slot in slots(4000))
    assert all(850 < count < 1150 for count in first.values())
    every = Counter(order(router.plan(Asked("g", slot=slot))) for slot in slots(4000))
    assert len(every) == 24


def test_a_weighted_group_shares_by_weight():
    members = [Member("a", "m", weight=3.0), Member("b", "m", weight=1.0), Member("c", "m", weight=0.0)]
    router = Router(snapshot(group("weighted", *members)))
    first = Counter(order(router.plan(Asked("g", slot=slot)))[0] for slot in slots(4000))
    assert set(first) == {"a", "b"}
    assert 2850 < first["a"] < 3150


def test_a_conversation_draws_the_same_in_every_process():
    """Two first requests at once, or one after its pin was lost, meet at one target."""
    for slot in slots(50):
        one = Router(snapshot(group("random", *MODELS))).plan(Asked("g", slot=slot, draw=0.1))
        other = Router(snapshot(group("random", *MODELS))).plan(Asked("g", slot=slot, draw=0.9))
        assert order(one) == order(other)


def test_without_a_conversation_every_request_draws_anew():
    router = Router(snapshot(group("random", "a", "b")))
    first = Counter(order(router.plan(Asked("g", draw=n / 1000)))[0] for n in range(1000))
    assert 400 < first["a"] < 600


def test_a_member_that_leaves_moves_no_conversation_but_its_own():
    before = Router(snapshot(group("random", *MODELS)))
    after = Router(snapshot(group("random", "a", "b", "c")))
    for slot in slots(300):
        drawn = order(before.plan(Asked("g", slot=slot)))
        assert order(after.plan(Asked("g", slot=slot))) == drawn.replace("d", "")


def test_a_group_in_a_group_keeps_its_own_order_at_its_place():
    rates = {"b": Rate(input=9_000_000), "c": Rate(input=1_000_000)}
    inner = group("cheapest_input", "b", "c", name="inner")
    plan = Router(snapshot(group("ordered", "a", "inner", "d"), inner, rates=rates)).plan(Asked("g"))
    assert order(plan) == "acbd"


def test_a_group_stands_in_another_for_the_target_it_would_choose():
    rates = {"a": Rate(input=3_000_000), "b": Rate(input=2_000_000), "c": Rate(input=1_000_000)}
    inner = group("ordered", "b", "c", name="inner")
    plan = Router(snapshot(group("cheapest_input", "a", "inner"), inner, rates=rates)).plan(Asked("g"))
    assert order(plan) == "bca"
    assert plan.rationale == (
        "alias g (cheapest_input), 2 USD per million tokens -> alias inner (ordered) -> b/m; then c/m, a/m"
    )


def test_a_random_group_inside_of_an_ordered_one_still_draws():
    router = Router(snapshot(group("ordered", "a", "inner"), group("random", "b", "c", name="inner")))
    assert {order(router.plan(Asked("g", slot=slot))) for slot in slots(40)} == {"abc", "acb"}


def test_a_target_that_is_reached_twice_is_tried_once():
    inner = group("ordered", "b", "a", name="inner")
    assert order(Router(snapshot(group("ordered", "a", "inner", "b"), inner)).plan(Asked("g"))) == "ab"


def test_a_pinned_alias_may_point_at_a_group_and_says_so():
    quick = Alias("quick", (Member(alias="g"),))
    plan = Router(snapshot(quick, group("ordered", "a", "b"))).plan(Asked("quick"))
    assert order(plan) == "ab"
    assert plan.alias == "quick"
    assert plan.rationale == "alias quick -> alias g (ordered) -> a/m; then b/m"


def test_the_fallback_comes_behind_the_group():
    routing = Routing(fallback=(Member("b", "m"), Member(alias="spare")))
    aliases = group("ordered", "a", "b"), group("random", "c", "d", name="spare")
    router = Router(snapshot(*aliases, routing=routing))
    plans = [router.plan(Asked("g", slot=slot)) for slot in slots(40)]
    assert {order(plan) for plan in plans} == {"abcd", "abdc"}
    assert "; then b/m; fallback " in plans[0].rationale


def test_a_pin_goes_first_whatever_is_selected():
    router = Router(snapshot(group("random", *MODELS)))
    pinned = Pinned("c", "m", "")
    for slot in slots(40):
        drawn = order(router.plan(Asked("g", slot=slot)))
        assert order(router.plan(Asked("g", slot=slot, pinned=pinned))) == "c" + drawn.replace("c", "")


def test_lots_fall_evenly_whatever_they_are_drawn_for():
    """Names are short and alike, and seeds are counters in the worst case: the hash has to be good enough."""
    wins = Counter(min("xyz", key=lambda name: lot(slot, name.encode())) for slot in slots(3000))
    assert all(850 < count < 1150 for count in wins.values())
