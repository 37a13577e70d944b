"""Whatever stands in a configuration file: a Snapshot or a ConfigError, and never anything else."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arbiter.config import units
from arbiter.config.aliases import targets
from arbiter.config.load import ConfigError, parse
from arbiter.config.reference import keys

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "arbiter.example.yaml").read_text("utf-8")
ENV = {"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-b"}

NAMES = sorted({key.name.removesuffix("[]") for key in keys()} | {"<<", "gpt", "up", "é", "", "a/b", "a b", "models"})
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=True),
    st.text(max_size=12),
    st.sampled_from(
        [
            "openai",
            "echo",
            "15s",
            "32MiB",
            "0",
            "${A}",
            "${A:-x}",
            "$${A}",
            "${",
            "lmdb:x",
            "none",
            "up/gpt",
            "gpt",
            "auto",
        ]
    ),
    st.sampled_from(["https://h/v1", "unix:///a:/b", "http://[::1", "http://h:x", "//", "sqlite:///a", "\ud83d\ude00"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)),
    max_leaves=20,
)
# Sections shaped nearly right reach further than noise does.
NEARLY = st.fixed_dictionaries(
    {"providers": st.dictionaries(st.sampled_from(["up", "b", "x/y"]), st.one_of(VALUES, st.just({"type": "echo"})))},
    optional=dict.fromkeys(
        (
            "server",
            "limits",
            "clients",
            "models",
            "aliases",
            "routing",
            "session_affinity",
            "storage",
            "state",
            "admin",
        ),
        VALUES,
    ),
)


def judged(text: str) -> None:
    with contextlib.suppress(ConfigError):
        snapshot = parse(text, "fuzz.yaml", ENV)
        assert snapshot.providers and len(snapshot.epoch) == 12
        for alias in snapshot.aliases.values():
            assert list(targets(alias.members, snapshot.aliases))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    judged(text)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab: -[]{}&*!|>'\"%@#?,<\n\t$0~", max_size=80))
def test_any_yaml_like_text(text: str) -> None:
    judged(text)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(VALUES, NEARLY))
def test_any_tree_of_values(value: Any) -> None:
    judged(yaml.safe_dump(value, allow_unicode=True))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_any_damage_to_the_example(seed: int, times: int) -> None:
    """A character or a line of a real file lost, doubled or moved."""
    choose = random.Random(seed)
    lines = EXAMPLE.splitlines(keepends=True)
    for _ in range(times):
        at = choose.randrange(len(lines))
        match choose.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[choose.randrange(len(lines))])
            case 2:
                line, cut = lines[at], choose.randrange(len(lines[at]) + 1)
                lines[at] = line[:cut] + choose.choice(":-#&*{}[]\t '\"$\x00é") + line[cut:]
            case _:
                lines[at] = " " * choose.randrange(6) + lines[at].lstrip(" ")
    judged("".join(lines))


TARGETS = st.sampled_from(["gpt", "up/gpt", "up/x", "a", "b", "c", "d", "e/x"])
ALIAS = st.fixed_dictionaries(
    {},
    optional={
        "pin": TARGETS,
        "group": st.lists(TARGETS, max_size=4),
        "select": st.sampled_from(["ordered", "weighted", "fastest", "cheapest_input"]),
        "weights": st.dictionaries(TARGETS, st.integers(0, 3), max_size=2),
    },
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), ALIAS, max_size=4), st.lists(TARGETS, max_size=3))
def test_any_tangle_of_aliases(aliases: Any, fallback: list[str]) -> None:
    """Whatever loads can be followed to its end."""
    providers = {"up": {"type": "echo", "models": ["gpt"]}, "e": {"type": "echo"}}
    judged(yaml.safe_dump({"providers": providers, "aliases": aliases, "routing": {"fallback": fallback}}))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=20))
def test_any_unit(text: str) -> None:
    for read in (units.duration_s, units.size_bytes):
        number = read(text)
        assert number is None or number >= 0


@given(st.integers(0, 10**9))
def test_what_is_written_is_read_back(number: int) -> None:
    assert units.duration_s(units.duration(number / 1000)) == number / 1000
    assert units.size_bytes(units.size(number)) == number
    assert units.size_bytes(units.size(number << 20)) == number << 20
