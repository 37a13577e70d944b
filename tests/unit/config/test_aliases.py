"""Pins, groups and fallback lists: what the operator's names come to, and how each mistake is answered."""

from __future__ import annotations

import json

import pytest

from arbiter.config.aliases import targets
from arbiter.config.load import ConfigError, parse
from arbiter.config.redacted import redacted
from arbiter.config.snapshot import Alias, Member, Snapshot

UP = """\
providers:
  up: { type: openai, key: k, models: [gpt, { id: mini, upstream: mini-2026 }, shared] }
  other: { type: openai, key: l, models: [big, shared] }
  open: { type: ollama }
"""


def read(text: str) -> Snapshot:
    return parse(UP + text, "arbiter.yaml", {})


def fault(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return caught.value


def names(snapshot: Snapshot, alias: str) -> list[str]:
    return [member.name for member in targets(snapshot.aliases[alias].members, snapshot.aliases)]


def test_a_pin_is_one_model_and_no_group() -> None:
    snapshot = read("aliases: { a: { pin: mini, display_name: A } }")
    assert snapshot.aliases == {"a": Alias("a", (Member("up", "mini"),), display_name="A")}


def test_a_group_keeps_its_order_and_its_select() -> None:
    """A member is a bare name, a provider's, a name that an open provider takes, or another alias."""
    snapshot = read("aliases: { a: { group: [other/big, mini, open/vendor/x, b], select: random }, b: { pin: gpt } }")
    members = (Member("other", "big"), Member("up", "mini"), Member("open", "vendor/x"), Member(alias="b"))
    assert snapshot.aliases["a"] == Alias("a", members, is_group=True, select="random")


def test_the_default_is_the_listed_order() -> None:
    assert read("aliases: { a: { group: [gpt] } }").aliases["a"] == Alias("a", (Member("up", "gpt"),), is_group=True)


def test_a_bare_name_is_the_first_providers_and_wins_over_an_alias_of_that_name() -> None:
    snapshot = read("aliases: { a: { group: [shared, gpt] }, gpt: { pin: big } }")
    assert snapshot.aliases["a"].members == (Member("up", "shared"), Member("up", "gpt"))
    assert any("aliases.gpt" in warning and "wins over the alias" in warning for warning in snapshot.warnings)


def test_weights_are_written_by_the_members_names_and_the_rest_weighs_one() -> None:
    text = (
        "aliases: { a: { group: [up/gpt, big, b], select: weighted, weights: { up/gpt: 2.5, b: 3 } },"
        " b: { pin: mini } }"
    )
    assert [member.weight for member in read(text).aliases["a"].members] == [2.5, 1.0, 3.0]


def test_groups_nest_and_a_pin_may_point_to_one() -> None:
    snapshot = read(
        "aliases:\n  outer: { group: [big, inner, up/gpt] }\n  inner: { group: [mini, gpt], select: random }\n"
        "  pinned: { pin: outer, advertise_as: claude-p }\n"
    )
    assert names(snapshot, "outer") == ["other/big", "up/mini", "up/gpt"]
    assert names(snapshot, "pinned") == names(snapshot, "outer")
    assert snapshot.aliases["claude-p"] is snapshot.aliases["pinned"]


def test_a_fallback_list_is_resolved_as_a_group_is() -> None:
    routing = read("aliases: { a: { pin: gpt } }\nrouting: { fallback: [a, shared, open/x], explicit_fallback: true }")
    members = (Member(alias="a"), Member("up", "shared"), Member("open", "x"))
    assert routing.routing.fallback == members and routing.routing.explicit_fallback


def test_what_names_come_to_can_be_loaded_again() -> None:
    text = (
        "aliases: { a: { group: [gpt, b], select: weighted, weights: { gpt: 0.5 } }, b: { group: [big, mini] },"
        " c: { pin: a } }\nrouting: { fallback: [shared], default_provider: other }\n"
    )
    shown = redacted(read(text))
    again = parse(UP + "\n".join(f"{name}: {json.dumps(shown[name])}" for name in ("aliases", "routing")), "a", {})
    assert redacted(again)["aliases"] == shown["aliases"] and again.routing == read(text).routing
    assert shown["aliases"]["a"]["weights"] == {"up/gpt": 0.5} and "weights" not in shown["aliases"]["b"]


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("aliases: { a: {} }", "aliases.a", "say what it stands for: pin: for one model, group: for several"),
        ("aliases: { a: { pin: gpt, group: [big] } }", "aliases.a.group", "give either pin or group"),
        ("aliases: { a: { pin: gpt, select: random } }", "aliases.a.select", "is for a group"),
        ("aliases: { a: { pin: gpt, weights: { gpt: 1 } } }", "aliases.a.weights", "is for a group"),
        ("aliases: { a: { group: [] } }", "aliases.a.group", "an empty group"),
        ("aliases: { a: { group: gpt } }", "aliases.a.group", "write [gpt]"),
        ("aliases: { a: { group: [gpt, up/gpt] } }", "aliases.a.group[1]", 'listed twice; it is the same as "gpt"'),
        ("aliases: { a: { group: [gpt, gpt] } }", "aliases.a.group[1]", '"gpt" is listed twice'),
        ("aliases: { a: { group: [b, b] }, b: { pin: gpt } }", "aliases.a.group[1]", '"b" is listed twice'),
        ("aliases: { a: { group: [gtp] } }", "aliases.a.group[0]", 'is called "gtp"; did you mean "gpt"?'),
        ("aliases: { a: { group: [up/gtp] } }", "aliases.a.group[0]", 'up declares no model "gtp"'),
        ("aliases: { a: { group: [gpt], select: cheapest } }", "aliases.a.select", 'did you mean "cheapest_output"?'),
        ("aliases: { a: { group: [gpt], select: round_robin } }", "aliases.a.select", 'did you mean "random"?'),
        ("aliases: { a: { group: [gpt], select: wieghted } }", "aliases.a.select", 'did you mean "weighted"?'),
        ("aliases: { a: { group: [gpt], strategy: random } }", "aliases.a.strategy", 'it is called "select" here'),
        ("aliases: { a: { models: [gpt] } }", "aliases.a.models", 'it is called "group" here'),
        ("aliases: { a: { pin: gpt, fallback: [big] } }", "aliases.a.fallback", "`routing.fallback` is for all"),
        ("aliases: { a: { force: {} } }", "aliases.a.force", "not built yet"),
        ("aliases: { a: { pin: gpt, request_kind: title } }", "aliases.a.request_kind", "not built yet"),
        (
            "aliases: { a: { group: [gpt], weights: { gpt: 1 } } }",
            "aliases.a.weights",
            "are for select: weighted, and select is ordered",
        ),
        (
            "aliases: { a: { group: [gpt, big], select: weighted, weights: { gtp: 1 } } }",
            "aliases.a.weights.gtp",
            'no member of the group; did you mean "gpt"?',
        ),
        (
            "aliases: { a: { group: [up/gpt], select: weighted, weights: { gpt: 1 } } }",
            "aliases.a.weights.gpt",
            'did you mean "up/gpt"?',
        ),
        (
            "aliases: { a: { group: [gpt], select: weighted, weights: { gpt: 0 } } }",
            "aliases.a.weights.gpt",
            'expected a number above 0 like 2 or 0.5, got "0"',
        ),
        (
            "aliases: { a: { group: [gpt], select: weighted, weights: { gpt: -1 } } }",
            "aliases.a.weights.gpt",
            "expected a number above 0",
        ),
        ("aliases: { a: { group: [gpt, a] } }", "aliases.a.group[1]", "aliases point at each other: a → a"),
        (
            "aliases: { c: { pin: a }, a: { group: [gpt, b] }, b: { group: [a, big] } }",
            "aliases.b.group[0]",
            "aliases point at each other: a → b → a",
        ),
        ("routing: { fallback: [gpt, up/gpt] }", "routing.fallback[1]", 'it is the same as "gpt"'),
        ("routing: { fallback: [gtp] }", "routing.fallback[0]", 'did you mean "gpt"?'),
        ("routing: { fallback: gpt }", "routing.fallback", "write [gpt]"),
        ("routing: { fallbacks: [gpt] }", "routing.fallbacks", 'it is called "fallback" here'),
        ("routing: { explicit_fallback: maybe }", "routing.explicit_fallback", "expected true or false"),
        ("routing: { rules: [] }", "routing.rules", "not built yet"),
    ],
)
def test_a_mistake_is_named_with_its_path_and_a_way_out(text: str, path: str, words: str) -> None:
    error = fault(text)
    assert words in error.message and error.path == path and error.line == 5


def test_a_long_chain_is_refused_wherever_it_is_met_first() -> None:
    """Also where its end was followed before, from another alias."""
    chain = [f"a{n}: {{ pin: {f'a{n + 1}' if n < 8 else 'gpt'} }}" for n in range(9)]
    assert "more than 8 aliases" in fault("aliases: { " + ", ".join(chain) + " }").message
    assert "more than 8 aliases" in fault("aliases: { " + ", ".join(reversed(chain)) + " }").message
    assert read("aliases: { " + ", ".join(chain[1:]) + " }").aliases["a1"]


def test_layers_of_groups_cannot_multiply_without_bound() -> None:
    layers = [
        f"l{n}x{i}: {{ group: [{', '.join(f'l{n + 1}x{j}' for j in range(6))}] }}" for n in range(5) for i in range(6)
    ]
    ends = [f"l5x{i}: {{ pin: gpt }}" for i in range(6)]
    error = fault("aliases: { " + ", ".join(layers + ends) + " }")
    assert "targets, more than 256" in error.message and error.path.startswith("aliases.l")


PRICE = "models: [{ model: open/x, input_usd_per_mtok: 1, latency_ms_p50: 400 }]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("aliases: { a: { group: [gpt, big], select: cheapest_input } }", "no member has a row in models with input_"),
        ("aliases: { a: { group: [gpt, big], select: fastest } }", "row in models with latency_ms_p50"),
        (
            "models: [{ model: up/gpt, max_input_tokens: 9 }]\n"
            "aliases: { a: { group: [gpt], select: cheapest_output } }",
            "cheapest_output has nothing to go by, so the first listed is used",
        ),
        ("routing: { fallback: [gpt] }", "routing.fallback: is never used"),
        ("aliases: { a: { pin: gpt } }\nrouting: { explicit_fallback: true }", "no effect without routing.fallback"),
    ],
)
def test_what_can_never_take_effect_is_a_warning(text: str, words: str) -> None:
    warnings = [warning for warning in read(text).warnings if '"shared" is declared by' not in warning]
    assert len(warnings) == 1 and words in warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        "aliases: { a: { group: [gpt, big], select: least_busy } }",
        "aliases: { a: { group: [gpt, big], select: fastest_measured } }",
        "aliases: { a: { pin: gpt } }\nrouting: { fallback: [gpt] }",
        "routing: { fallback: [gpt], explicit_fallback: true }",
    ],
)
def test_what_can_take_effect_is_none(text: str) -> None:
    assert [warning for warning in read(text).warnings if '"shared" is declared by' not in warning] == []


@pytest.mark.parametrize("select", ["cheapest_input", "fastest"])
def test_one_known_member_is_enough_to_select_by_also_a_nested_one(select: str) -> None:
    text = PRICE + f"aliases: {{ a: {{ group: [gpt, b], select: {select} }}, b: {{ group: [big, open/x] }} }}\n"
    assert not [warning for warning in read(text).warnings if "nothing to go by" in warning]
