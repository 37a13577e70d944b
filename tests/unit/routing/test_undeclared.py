"""Names that nobody declares: families, and windows behind a name."""

from __future__ import annotations

import pytest

from arbiter.config.load import parse
from arbiter.errors import Forbidden, NoRoute
from arbiter.routing import undeclared
from arbiter.routing.plan import Asked, Caller
from arbiter.routing.router import Router

TEXT = """
providers:
  claude: { type: anthropic, auth: passthrough, models: [claude-a] }
  codex: { type: openai, auth: passthrough }
  off: { type: anthropic, auth: passthrough, auto_models: off, models: [claude-b] }
  keyed: { type: openai, key: k, models: [gpt-x, "odd[1m]"] }
aliases: { wide: { pin: "claude/claude-a" } }
clients:
  - { name: ann, key_hash: "sha256:%s", allow: [claude-a, wide], overrides: { "wide": "claude/claude-a" } }
""" % ("0" * 64)
SNAPSHOT = parse(TEXT, "arbiter.yaml", {})
ROUTER = Router(SNAPSHOT)
ANN = Caller(SNAPSHOT.clients[0])


@pytest.mark.parametrize(
    ("asked", "name", "window", "is_auto"),
    [
        ("claude-a", "claude/claude-a", "", False),
        ("claude-new", "claude/claude-new", "", True),
        ("claude/claude-new", "claude/claude-new", "", True),
        ("claude-a[1m]", "claude/claude-a", "[1m]", False),
        ("claude-new[1m]", "claude/claude-new", "[1m]", True),
        ("claude/claude-a[200k]", "claude/claude-a", "[200k]", False),
        ("wide[1M]", "claude/claude-a", "[1M]", False),
        ("odd[1m]", "keyed/odd[1m]", "", False),
        ("gpt-9", "codex/gpt-9", "", True),
        ("o9-mini", "codex/o9-mini", "", True),
        ("chatgpt-next", "codex/chatgpt-next", "", True),
        ("gpt-x", "keyed/gpt-x", "", False),
        ("codex/anything", "codex/anything", "", False),
    ],
)
def test_where_a_name_leads(asked, name, window, is_auto):
    plan = ROUTER.plan(Asked(asked))
    assert (plan.rungs[0].name, plan.window, plan.is_auto) == (name, window, is_auto)


@pytest.mark.parametrize("asked", ["off/claude-new", "claude/gpt-9", "opus", "ollama", "x[1m]", "x[]", "[1m]"])
def test_what_leads_nowhere(asked):
    with pytest.raises(NoRoute):
        ROUTER.plan(Asked(asked))


def test_an_allow_list_and_overrides_mean_the_model_and_not_its_window():
    assert ROUTER.plan(Asked("claude-a[1m]", ANN)).window == "[1m]"
    plan = ROUTER.plan(Asked("wide[1m]", ANN))
    assert plan.window == "[1m]" and plan.rationale.startswith("override wide -> claude/claude-a")
    for asked in ("claude-new", "claude-new[1m]"):
        with pytest.raises(Forbidden):
            ROUTER.plan(Asked(asked, ANN))


def test_only_what_anthropic_knows_is_a_beta():
    assert undeclared.betas_of("[1m]") == undeclared.betas_of("[1M]") == ("context-1m-2025-08-07",)
    assert undeclared.betas_of("[200k]") == undeclared.betas_of("") == ()
