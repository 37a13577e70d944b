"""`GET /models`: what a caller may name, models and aliases of every kind."""

from __future__ import annotations

from typing import Any

import anthropic.types
import openai.types
import pytest

from arbiter.app import model_list
from arbiter.config.load import parse
from arbiter.config.rates import Known
from arbiter.config.snapshot import key_digest
from arbiter.errors import BadRequest, NoRoute
from arbiter.routing.plan import ANYONE, Caller
from arbiter.routing.router import Router

TEXT = f"""
providers:
  p:
    type: openai
    key: k
    models: [{{ id: big, upstream: big-2026, max_output_tokens: 64000 }}, {{ id: small, max_output_tokens: 8000 }}, odd]
  q: {{ type: anthropic, key: k, models: [big, org/deep] }}
models:
  - {{ model: p/big, max_input_tokens: 400000, input_modalities: [text, image, file], metadata: {{ family: x }} }}
  - {{ model: p/small, max_input_tokens: 128000, input_modalities: [text, image] }}
aliases:
  fast: {{ pin: p/small, advertise_as: claude-fast }}
  cheap: {{ group: [p/big, fast], select: random, display_name: Cheap and cheerful }}
  vague: {{ group: [p/big, p/odd] }}
  odd: {{ pin: p/big }}
clients:
  - {{ name: ci, key_hash: "sha256:{key_digest("k")}", allow: [cheap, "b*", "q/*"] }}
"""
SNAPSHOT = parse(TEXT, "t.yaml", {})
ROUTER = Router(SNAPSHOT)
CI = Caller(SNAPSHOT.clients[0])
STARTED = "2026-01-02T03:04:05Z"


def listed(caller: Caller = ANYONE) -> dict[str, dict[str, Any]]:
    told = model_list.union_list(model_list.entries(SNAPSHOT, caller), 1, STARTED)
    assert (told["object"], told["has_more"]) == ("list", False)
    assert (told["first_id"], told["last_id"]) == (told["data"][0]["id"], told["data"][-1]["id"])
    return {one["id"]: one for one in told["data"]}


def page(query: str, caller: Caller = ANYONE) -> tuple[list[str], bool]:
    told = model_list.anthropic_page(model_list.entries(SNAPSHOT, caller), query, STARTED)
    ids = [one["id"] for one in told["data"]]
    assert (told["first_id"], told["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))
    return ids, told["has_more"]


def test_groups_and_pinned_aliases_are_listed_with_the_models():
    """Under the name that is advertised; a declared model wins over an alias of its name, as it does when asked for."""
    assert {name: (one["owned_by"], one["display_name"]) for name, one in listed().items()} == {
        "claude-fast": ("alias", "fast"),
        "cheap": ("alias", "Cheap and cheerful"),
        "vague": ("alias", "vague"),
        "odd": ("p", "odd"),
        "big": ("p", "big"),
        "small": ("p", "small"),
        "org/deep": ("q", "org/deep"),
    }


def test_a_key_is_shown_what_it_may_name_and_not_what_is_behind_it():
    assert list(listed(CI)) == ["cheap", "big"]
    for hidden in ("small", "fast", "p/big", "nothing"):
        with pytest.raises(NoRoute):
            model_list.entry(SNAPSHOT, ROUTER, CI, hidden)
    assert model_list.entry(SNAPSHOT, ROUTER, CI, "q/big").owner == "q"


def test_what_is_known_of_a_model_is_told_and_nothing_is_guessed():
    """Of a group what holds whichever member serves: the smallest window, and what all of them take in."""
    able = {
        name: (one.get("max_input_tokens"), one.get("max_tokens"), one.get("architecture", {}).get("input_modalities"))
        for name, one in listed().items()
    }
    assert able == {
        "claude-fast": (128000, 8000, ("text", "image")),
        "cheap": (128000, 8000, ("text", "image")),
        "vague": (None, None, None),
        "odd": (None, None, None),
        "big": (400000, 64000, ("text", "image", "file")),
        "small": (128000, 8000, ("text", "image")),
        "org/deep": (None, None, None),
    }
    assert listed()["big"]["context_length"] == 400000
    assert {name for name, one in listed().items() if one.get("metadata") == {"family": "x"}} == {"big"}


@pytest.mark.parametrize(
    ("name", "owner", "max_input"),
    [
        ("fast", "alias", 128000),
        ("claude-fast", "alias", 128000),
        ("big", "p", 400000),
        ("q/big", "q", None),
        ("q/org/deep", "q", None),
        ("org/deep", "q", None),
        ("odd", "p", None),
        ("claude-fast[1m]", "alias", 1_000_000),
        ("big[200K]", "p", 200_000),
    ],
)
def test_one_model_is_found_by_every_name_it_may_be_asked_by(name: str, owner: str, max_input: int | None):
    found = model_list.entry(SNAPSHOT, ROUTER, ANYONE, name)
    assert (found.id, found.owner, found.able.max_input) == (name, owner, max_input)


def test_a_name_is_there_that_nobody_declared_but_somebody_is_asked_for():
    """A family of its vendor's, with a window or none; what its provider takes by its own name; and whatever goes to
    the default provider."""
    snapshot = parse(
        "providers:\n  claude: { type: anthropic, auth: passthrough }\n  any: { type: openai, key: k }\n"
        f'clients: [{{ name: ci, key_hash: "sha256:{key_digest("k")}", allow: ["claude-opus-*"] }}]\n',
        "t.yaml",
        {},
    )
    router, client = Router(snapshot), Caller(snapshot.clients[0])
    for name, owner, is_unsure in (
        ("claude-opus-9", "claude", True),
        ("claude-opus-9[1m]", "claude", True),
        ("any/thing", "any", False),
    ):
        found = model_list.entry(snapshot, router, ANYONE, name)
        assert (found.id, found.owner, found.unsure is not None) == (name, owner, is_unsure)
        assert found.able.max_input == (1_000_000 if name.endswith("]") else None)
    assert model_list.entry(snapshot, router, client, "claude-opus-9[1m]").owner == "claude"
    for name in ("any/" + "m" * 253, "any/a/../b"):
        with pytest.raises(NoRoute):
            model_list.entry(snapshot, router, ANYONE, name)
    for caller, name in ((ANYONE, "gpt-9"), (ANYONE, "gpt-9[1m]"), (client, "claude-sonnet-9"), (client, "any/thing")):
        with pytest.raises(NoRoute):
            model_list.entry(snapshot, router, caller, name)


def test_the_vendors_own_types_accept_every_shape():
    """The union satisfies both; what Anthropic's clients get is Anthropic's, member by member."""
    for one in model_list.entries(SNAPSHOT, ANYONE):
        union = model_list.union(one, 1, STARTED)
        openai.types.Model.model_validate(union, strict=True)
        anthropic.types.ModelInfo.model_validate(union)
        theirs = model_list.anthropic(one, STARTED)
        anthropic.types.ModelInfo.model_validate(theirs)
        assert set(theirs) == set(anthropic.types.ModelInfo.model_fields)


def test_of_capabilities_all_are_told_or_none():
    """Anthropic's shape has a yes or no for each; we know of two, and a guessed no keeps clients away."""
    needed = {name for name, one in anthropic.types.ModelCapabilities.model_fields.items() if one.is_required()}
    assert {"batch", "citations", "image_input", "pdf_input", "server_tools"} <= needed
    assert {model_list.anthropic(one, STARTED)["capabilities"] for one in model_list.entries(SNAPSHOT, ANYONE)} == {
        None
    }


def test_a_window_that_a_price_list_knows_is_told_in_every_shape():
    """SPEC 5.6: a row of the file wins, and of an alias all members must be known."""
    known = {"p": {"odd": Known(max_input=9000), "small": Known(max_input=7)}}
    snapshot = parse(TEXT, "t.yaml", {}, look_up=lambda pricing, providers: known)
    odd, small, vague = (
        model_list.entry(snapshot, Router(snapshot), ANYONE, name) for name in ("odd", "small", "vague")
    )
    assert [one.able.max_input for one in (odd, small, vague)] == [9000, 128000, 9000]
    assert model_list.anthropic(odd, STARTED)["max_input_tokens"] == 9000
    assert model_list.union(odd, 1, STARTED)["context_length"] == 9000
    assert model_list.googles(odd)["inputTokenLimit"] == 9000


def test_anthropics_pages_go_forth_and_back():
    everything = list(listed())
    assert page("") == (everything, False)
    assert page("limit=1000&beta=true") == (everything, False)
    assert page("limit=3") == (everything[:3], True)
    assert page(f"limit=3&after_id={everything[2]}") == (everything[3:6], True)
    assert page(f"limit=3&after_id={everything[5]}") == (everything[6:], False)
    assert page(f"after_id={everything[-1]}") == ([], False)
    assert page(f"limit=2&before_id={everything[5]}") == (everything[3:5], True)
    assert page("limit=9&before_id=org%2Fdeep") == (everything[:-1], False)
    assert page("limit=1", CI) == (["cheap"], True)


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=-1", "limit=", "limit=1.5", "limit=99999", "after_id=nobody", "before_id=",
     "after_id=big&before_id=big"],
)  # fmt: skip
def test_a_query_that_cannot_be_meant_is_refused(query: str):
    with pytest.raises(BadRequest):
        page(query)


def test_a_list_of_nothing_is_a_list():
    empty = model_list.union_list([], 1, STARTED)
    assert (empty["data"], empty["first_id"], empty["last_id"]) == ([], None, None)
