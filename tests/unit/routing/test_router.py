"""Which target a model name means, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arbiter.config.load import parse
from arbiter.config.snapshot import Client, Member, Routing, key_digest
from arbiter.errors import Forbidden, NoRoute
from arbiter.routing.plan import ANYONE, Asked, Caller, Pinned, Plan
from arbiter.routing.router import MOST_MET, Router

TEXT = f"""
providers:
  first: {{ type: openai, key: k, models: [shared, {{ id: mini, upstream: mini-2026 }}] }}
  second: {{ type: openai, key: k, models: [shared, own] }}
  open: {{ type: ollama }}
aliases:
  fast: {{ pin: first/mini }}
clients:
  - {{ name: ci, key_hash: "sha256:{key_digest("k")}", allow: [fast, "sh*"] }}
"""


def target(router: Router, model: str, caller: Caller = ANYONE) -> tuple[str, str, str | None]:
    plan = router.plan(Asked(model, caller))
    (rung,) = plan.rungs
    return rung.provider.name, rung.model, plan.alias


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("shared", ("first", "shared", None)),  # two providers declare it: the first listed
        ("second/shared", ("second", "shared", None)),
        ("mini", ("first", "mini-2026", None)),
        ("first/mini", ("first", "mini-2026", None)),
        ("own", ("second", "own", None)),
        ("fast", ("first", "mini-2026", "fast")),
        ("open/qwen3:8b", ("open", "qwen3:8b", None)),  # it lists no models, so it serves any by its own name
        ("open/a/b", ("open", "a/b", None)),
    ],
)
def test_a_model_name_means_one_target(model, expected):
    assert target(Router(parse(TEXT, "t.yaml", {})), model) == expected


@pytest.mark.parametrize("model", ["nobody", "first/unlisted", "nobody/x", "open/", "/x"])
def test_a_name_that_nobody_serves_is_no_route(model):
    with pytest.raises(NoRoute) as refused:
        Router(parse(TEXT, "t.yaml", {})).plan(Asked(model))
    assert refused.value.param == "model"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("shard", "did you mean 'shared'? GET /v1/models lists what there is"),
        ("frist/mini", "did you mean 'first/mini'?"),
        ("lokal/qwen3", "there is no provider 'lokal', but first, second, open; GET /v1/models lists"),
        ("first/zzz", "no provider serves the model 'first/zzz'; GET /v1/models lists what there is"),
    ],
)
def test_a_name_that_nobody_serves_comes_with_a_way_out(model, words):
    with pytest.raises(NoRoute) as refused:
        Router(parse(TEXT, "t.yaml", {})).plan(Asked(model))
    assert words in str(refused.value)


def test_no_key_is_told_a_name_that_it_may_not_use():
    snapshot = parse(TEXT.replace('"sh*"', '"sh*", "mimi"'), "t.yaml", {})
    with pytest.raises(NoRoute) as refused:
        Router(snapshot).plan(Asked("mimi", Caller(snapshot.clients[0])))
    assert "did you mean" not in str(refused.value)
    with pytest.raises(NoRoute, match="did you mean 'mini'"):
        Router(snapshot).plan(Asked("mimi"))


def test_the_default_provider_takes_what_nobody_declared():
    router = Router(parse(TEXT + "routing: { default_provider: second }\n", "t.yaml", {}))
    assert target(router, "unheard-of") == ("second", "unheard-of", None)


def test_a_key_reaches_only_what_it_may():
    snapshot = parse(TEXT, "t.yaml", {})
    router, caller = Router(snapshot), Caller(snapshot.clients[0])
    assert target(router, "fast", caller)[2] == "fast"
    assert target(router, "shared", caller)[0] == "first"
    for model in ("mini", "second/shared", "own"):
        with pytest.raises(Forbidden, match="ci"):
            router.plan(Asked(model, caller))


def test_a_name_that_means_two_things_is_served_with_a_warning():
    """SPEC 9.6: the caller may not know that another provider, or an alias, goes by the same name."""
    router = Router(parse(TEXT.replace("aliases:", "aliases:\n  own: { pin: first/mini }"), "t.yaml", {}))
    assert "also means second" in (router.plan(Asked("shared")).warning or "")
    assert "an alias" in (router.plan(Asked("own")).warning or "")
    assert router.plan(Asked("second/shared")).warning is None
    assert router.plan(Asked("mini")).warning is None


def test_an_alias_answers_to_the_name_it_is_advertised_as():
    text = TEXT.replace("{ pin: first/mini }", "{ pin: first/mini, advertise_as: claude-fast }")
    router = Router(parse(text, "t.yaml", {}))
    assert target(router, "claude-fast") == target(router, "fast") == ("first", "mini-2026", "fast")


def test_names_that_share_an_upstream_keep_what_is_said_of_each() -> None:
    """One upstream model may stand under several names, each with a limit of its own (SPEC 5.1a)."""
    both = "{ id: small, upstream: up, max_output_tokens: 1000 }, { id: large, upstream: up, max_output_tokens: 9000 }"
    text = f"providers: {{ p: {{ type: openai, key: k, models: [{both}] }} }}\naliases: {{ big: {{ pin: p/large }} }}"
    router = Router(parse(text, "arbiter.yaml", {}))
    for name, limit in {"small": 1000, "large": 9000, "p/small": 1000, "p/large": 9000, "big": 9000}.items():
        (rung,) = router.plan(Asked(name)).rungs
        assert (rung.model, rung.max_output, rung.target.max_output) == ("up", limit, limit)


# What comes behind a model, and what a pin may do -------------------------------------------------------------------


def falling_back(text: str = TEXT, *, explicit: bool = False) -> Router:
    snapshot = parse(text, "t.yaml", {})
    fallback = (Member("second", "own"), Member(alias="fast"))
    return Router(replace(snapshot, routing=Routing("first", fallback, explicit_fallback=explicit)))


def names(plan: Plan) -> list[str]:
    return [rung.name for rung in plan.rungs]


@pytest.mark.parametrize("model", ["shared", "second/shared", "open/any", "unheard-of"])
def test_a_model_that_was_named_is_never_swapped(model):
    """SPEC 4.6, 5.1: whoever names a model gets that one or an error; an alias is no name of a model."""
    plan = falling_back().plan(Asked(model))
    assert len(plan.rungs) == 1
    assert plan.is_explicit


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("shared", ["first/shared", "second/own", "first/mini-2026"]),
        ("own", ["second/own", "first/mini-2026"]),
        ("open/any", ["open/any", "second/own", "first/mini-2026"]),
        ("unheard-of", ["first/unheard-of", "second/own", "first/mini-2026"]),
    ],
)
def test_the_operator_may_put_others_behind_a_named_model(model, expected):
    plan = falling_back(explicit=True).plan(Asked(model))
    assert names(plan) == expected
    assert not plan.is_explicit
    assert f"; fallback {', '.join(expected[1:])}" in plan.rationale


def test_behind_an_alias_comes_the_fallback_without_what_was_there_already():
    plan = falling_back().plan(Asked("fast"))
    assert names(plan) == ["first/mini-2026", "second/own"]
    assert not plan.is_explicit
    assert plan.rationale == "alias fast -> first/mini-2026; fallback second/own"


def test_a_pin_puts_its_target_first_and_changes_nothing_else():
    """It reorders, and never adds: what the operator took out of an alias serves nobody any more."""
    router = falling_back()
    pinned = Pinned("second", "own", "team-b")
    plan = router.plan(Asked("fast", pinned=pinned))
    assert names(plan) == ["second/own", "first/mini-2026"]
    assert plan.pinned is pinned
    assert plan.rationale == ("pin -> second/own on team-b (alias fast -> first/mini-2026; fallback second/own)")
    gone = router.plan(Asked("fast", pinned=Pinned("second", "shared", "")))
    assert names(gone) == ["first/mini-2026", "second/own"]
    assert gone.pinned is None
    assert gone.rationale.endswith("; the pin to second/shared does not fit")


def test_a_pin_to_a_named_model_chooses_its_account():
    """SPEC 5.1: also in case 1 the account is the pin's."""
    pinned = Pinned("first", "mini-2026", "team-b", moved=True)
    plan = Router(parse(TEXT, "t.yaml", {})).plan(Asked("mini", pinned=pinned))
    assert plan.pinned is pinned
    assert plan.is_explicit
    assert names(plan) == ["first/mini-2026"]


def test_a_pin_to_a_fallback_never_outranks_the_model_that_was_named():
    """SPEC 5.1: a declared model is case 1, a pin case 2."""
    plan = falling_back(explicit=True).plan(Asked("shared", pinned=Pinned("second", "own", "")))
    assert names(plan)[0] == "first/shared"
    assert plan.pinned is None


def test_a_warning_survives_a_pin():
    plan = falling_back().plan(Asked("shared", pinned=Pinned("first", "shared", "")))
    assert "also means second" in (plan.warning or "")


def test_a_name_is_planned_for_once():
    """What nobody's request can change is the same object for all of them."""
    router = falling_back()
    assert router.plan(Asked("fast")) is router.plan(Asked("fast", draw=0.5, slot=b"x" * 16))


def test_a_client_gets_what_its_override_names_and_is_judged_by_what_it_asked_for():
    """SPEC 8.1: a name beats a glob, `allow` is about the name asked for, and an override is not looked up again."""
    client = Client(
        "dev",
        "0" * 64,
        allow=("claude-*", "fast"),
        overrides=(("claude-*", "fast"), ("claude-x", "own"), ("fast", "own")),
    )
    router = Router(parse(TEXT, "t.yaml", {}))
    assert target(router, "claude-opus", Caller(client)) == ("first", "mini-2026", "fast")
    assert target(router, "claude-x", Caller(client)) == ("second", "own", None)
    assert (
        router.plan(Asked("claude-x", Caller(client))).rationale == "override claude-x -> own; model own -> second/own"
    )
    with pytest.raises(Forbidden):
        router.plan(Asked("own", Caller(client)))
    with pytest.raises(NoRoute):
        router.plan(Asked("claude-opus"))


@pytest.mark.parametrize("model", ["shared", "second/shared", "fast", "open/qwen3:8b", "nobody"])
@pytest.mark.parametrize("pinned", [None, Pinned("first", "shared", ""), Pinned("first", "mini-2026", "")])
def test_a_settled_plan_is_the_one_that_would_be_made(model, pinned):
    """It is told only where nothing of the request could change it, and never to who is bound to some models."""
    snapshot = parse(TEXT, "t.yaml", {})
    router, bound = Router(snapshot), Caller(snapshot.callers[0])
    known = router.settled(model, None, pinned)
    if model != "nobody":
        made = router.plan(Asked(model, pinned=pinned))
        assert known in (made, None)
        assert router.settled(model, None, pinned) is made
    else:
        assert known is None
    assert router.settled(model, bound.client, pinned) is None
    forced = replace(snapshot.callers[0], allow=(), overrides=(("shared", "own"),))
    assert router.settled(model, forced, pinned) is None


def test_a_name_that_nobody_declared_has_one_rung_for_all_its_requests():
    """What was worked out for it is kept with the rung, and would be worked out anew for another."""
    router = Router(parse(TEXT, "t.yaml", {}))
    first = router.plan(Asked("open/qwen3:8b"))
    assert router.plan(Asked("open/qwen3:8b")) is router.settled("open/qwen3:8b", None, None) is first
    assert router.plan(Asked("open/other")).rungs[0] is not first.rungs[0]
    # The window that a name asks for is the request's, the rung is the name's.
    windowed = router.plan(Asked("open/qwen3:8b[1m]"))
    assert windowed.window == "[1m]" and windowed.rungs[0] is first.rungs[0] and first.window == ""
    assert router.settled("open/qwen3:8b[1m]", None, None) is None


def test_who_may_not_name_it_is_refused_a_name_that_others_asked_for():
    snapshot = parse(TEXT, "t.yaml", {})
    router, bound = Router(snapshot), Caller(snapshot.callers[0])
    router.plan(Asked("open/qwen3:8b"))
    assert router.settled("open/qwen3:8b", bound.client, None) is None
    with pytest.raises(Forbidden):
        router.plan(Asked("open/qwen3:8b", bound))


def test_what_nobody_serves_is_refused_each_time():
    router = Router(parse(TEXT, "t.yaml", {}))
    for _ in range(2):
        with pytest.raises(NoRoute):
            router.plan(Asked("nobody"))


def test_names_that_callers_make_up_fill_no_memory():
    router = Router(parse(TEXT, "t.yaml", {}))
    first = router.plan(Asked("open/0"))
    for number in range(1, 3 * MOST_MET):
        router.plan(Asked(f"open/{number}"))
    assert len(router._met) <= MOST_MET
    again = router.plan(Asked("open/0"))
    assert again == first and again is not first


def test_another_configuration_means_its_own_by_a_name():
    """A reload makes another router; one that is still in use goes on with what it knew."""
    elsewhere = TEXT.replace("type: ollama", "type: ollama, endpoint: 'http://elsewhere:1/v1'")
    old, new = Router(parse(TEXT, "t.yaml", {})), Router(parse(elsewhere, "t.yaml", {}))
    was = old.plan(Asked("open/x")).rungs[0].provider
    assert new.plan(Asked("open/x")).rungs[0].provider != was
    assert old.plan(Asked("open/x")).rungs[0].provider is was


def test_an_override_that_names_a_window_changes_the_name_for_nobody_else():
    snapshot = parse(TEXT, "t.yaml", {})
    router = Router(snapshot)
    forced = replace(snapshot.callers[0], allow=(), overrides=(("shared", "open/qwen3:8b[1m]"),))
    assert router.plan(Asked("shared", Caller(forced))).rungs[0].model == "qwen3:8b[1m]"
    assert router.settled("open/qwen3:8b[1m]", None, None) is None
    assert router.plan(Asked("open/qwen3:8b[1m]")).rungs[0].model == "qwen3:8b"
