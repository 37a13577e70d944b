"""`arbiter route`: where a request would go, without asking anybody."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arbiter.cli import main
from arbiter.config.load import parse
from arbiter.config.snapshot import key_digest

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs/examples/session-affinity.yaml"

CONFIG = f"""\
providers:
  openai:
    type: openai
    keys: [{{ label: a, key: SECRET-1 }}, {{ label: b, key: SECRET-2 }}]
    models: [gpt-5.2, {{ id: mini, upstream: mini-2026 }}]
  anthropic: {{ type: anthropic, key: SECRET-3, models: [claude] }}
aliases:
  cheap: {{ group: [openai/mini, anthropic/claude], select: random }}
routing: {{ fallback: [openai/gpt-5.2] }}
session_affinity: {{ no_pin: [compaction] }}
clients:
  - {{ name: ci, key_hash: "sha256:{key_digest("k")}", agent: codex, allow: [cheap] }}
"""


@pytest.fixture
def config(config: Path) -> Path:
    """The working directory's file, with a pool, a group and a client."""
    config.write_text(CONFIG)
    return config


def body(model: str, **more: Any) -> str:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "Please repair the build."}], **more})


def routed(
    capsys: pytest.CaptureFixture[str], model: str, *flags: str, config: Path, expected: int = 0, **more: Any
) -> dict[str, Any]:
    (config.parent / "request.json").write_text(body(model, **more))
    assert main(["route", "request.json", "--json", *flags]) == expected
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_named_model_has_one_target(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = routed(capsys, "mini", config=config)
    assert found["ok"] and found["is_explicit"] and found["alias"] is None
    assert found["rationale"] == "model mini -> openai/mini-2026"
    assert found["targets"] == [
        {
            "provider": "openai",
            "model": "mini-2026",
            "format": "openai-chat",
            "lane": "native",
            "endpoint": "https://api.openai.com/v1",
            "accounts": ["a", "b"],
        }
    ]


def test_an_alias_shows_who_comes_behind_whom_and_how_each_is_asked(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = routed(capsys, "cheap", config=config, system="You are careful.")
    targets = {(one["provider"], one["model"]): (one["format"], one["lane"]) for one in found["targets"]}
    assert found["format"] == "anthropic-messages"  # a body with `system` is one of Messages
    assert targets == {
        ("openai", "mini-2026"): ("openai-chat", "translated"),
        ("anthropic", "claude"): ("anthropic-messages", "native"),
        ("openai", "gpt-5.2"): ("openai-chat", "translated"),
    }
    assert found["targets"][-1]["model"] == "gpt-5.2"
    assert found["rationale"].startswith("alias cheap (random) -> ")
    assert found["rationale"].endswith("; fallback openai/gpt-5.2")


VIDEO = [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "https://x.test/v.mp4"}}]}]


def test_who_cannot_be_told_the_request_is_left_out_and_named(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a climb would: the others serve it."""
    config.write_text(
        CONFIG.replace("[openai/mini, anthropic/claude], select: random", "[anthropic/claude, openai/mini]")
    )
    found = routed(capsys, "cheap", config=config, messages=VIDEO)
    assert [one["model"] for one in found["targets"]] == ["mini-2026", "gpt-5.2"]
    assert "; anthropic/claude cannot be told it (messages[0].content[0]: " in found["rationale"]


def test_what_nobody_can_be_told_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = routed(capsys, "claude", config=config, expected=1, messages=VIDEO)
    assert (found["error"]["status"], found["error"]["class"]) == (400, "protocol_unsupported")


def test_a_request_that_is_no_good_for_a_fallback_says_where_it_would_end(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Relayed as it is, its provider judges it; translated, we have to read it."""
    config.write_text(CONFIG.replace("select: random", "select: ordered"))
    found = routed(capsys, "cheap", config=config, temperature="warm")
    assert [one["lane"] for one in found["targets"]] == ["native"]
    assert found["warnings"][0].startswith("where it comes to anthropic/claude, it ends: 400 bad_request: ")


def written(body: dict[str, Any]) -> None:
    Path("request.json").write_text(json.dumps(body))


def test_embeddings_go_to_who_has_them(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(
        CONFIG.replace("[openai/mini, anthropic/claude], select: random", "[anthropic/claude, openai/mini]")
    )
    written({"model": "cheap", "input": ["a text"], "dimensions": 256})
    assert main(["route", "request.json", "--json", "--format", "embeddings"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == "embeddings"
    assert [(one["provider"], one["format"], one["lane"]) for one in found["targets"]] == [
        ("openai", "embeddings", "native"),
        ("openai", "embeddings", "native"),
    ]
    assert "anthropic/claude cannot be told it (the provider 'anthropic' has no embeddings)" in found["rationale"]
    assert found["affinity"] == {"key": None, "source": None, "pins": False}


def test_a_request_of_geminis_has_its_model_in_its_path(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(
        CONFIG.replace("aliases:", "  google: { type: gemini, key: SECRET-4, models: [flash] }\naliases:")
    )
    written({"contents": [{"role": "user", "parts": [{"text": "Please repair the build."}]}]})
    for model, target in (("models/flash", ("google", "google-gemini", "native")),
                          ("gpt-5.2", ("openai", "openai-chat", "translated"))):  # fmt: skip
        assert main(["route", "request.json", "--json", "--model", model]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["format"] == "google-gemini"
        assert [(one["provider"], one["format"], one["lane"]) for one in found["targets"]] == [target]
        assert found["affinity"]["pins"]


def test_googles_embeddings_go_to_who_has_them(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As they are to Google, in OpenAI's words to others."""
    config.write_text(
        CONFIG.replace("aliases:", "  google: { type: gemini, key: SECRET-4, models: [flash] }\naliases:")
    )
    for body in ({"content": {"parts": [{"text": "a"}]}}, {"requests": [{"content": {"parts": [{"text": "a"}]}}] * 2}):
        written(body)
        for model, target in (("flash", ("google", "google-embeddings", "native")),
                              ("gpt-5.2", ("openai", "embeddings", "translated"))):  # fmt: skip
            assert main(["route", "request.json", "--json", "--model", model]) == 0
            found = json.loads(capsys.readouterr().out)
            assert found["format"] == "google-embeddings"
            assert [(one["provider"], one["format"], one["lane"]) for one in found["targets"]] == [target]


def test_a_conversation_that_this_gateway_may_keep_is_not_judged(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is kept was not looked at."""
    written({"model": "claude", "input": "and now?", "previous_response_id": "resp_1"})
    assert main(["route", "request.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["lane"] for one in found["targets"]] == ["translated"]
    assert "It goes on from an earlier answer" in found["notes"][0]


def test_the_draw_is_the_one_that_the_gateway_makes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It hangs on the conversation, and with a header that names one on nothing else."""
    drawn = set()
    for n in range(20):
        flags = ["--header", f"X-Session-Id: s{n}"]
        once, again = (routed(capsys, "cheap", *flags, config=config, top_p=top_p) for top_p in (0, 1))
        assert once["targets"] == again["targets"]
        drawn.add(once["targets"][0]["provider"])
    assert drawn == {"openai", "anthropic"}


def test_headers_and_the_client_tell_the_session(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--header", "Session-Id: s1", "--header", "x-openai-subagent: review"]
    found = routed(capsys, "cheap", *flags, "--client", "ci", config=config)
    assert found["session"] == {"id": "s1", "parent": None, "source": "session-id"}
    assert (found["client"], found["agent"], found["kind"]) == ("ci", "codex", "subagent")
    assert (found["affinity"]["source"], found["affinity"]["pins"]) == ("session", True)
    stranger = routed(capsys, "cheap", *flags, config=config)
    assert stranger["session"]["id"] is None
    assert stranger["affinity"]["source"] == "header session-id"


def test_a_kind_that_pins_nothing_says_so(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "request.json").write_text(body("cheap"))
    assert main(["route", "request.json", "--header", "x-openai-subagent: compact"]) == 0
    out = capsys.readouterr().out
    assert "none: `session_affinity.no_pin` lists compaction" in out
    assert "it draws anew for each of them" in out


def test_people_get_a_table(config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(body("gpt-5.2").encode())))
    assert main(["route", "-"]) == 0
    out = capsys.readouterr().out
    assert "no other target: the model was named itself" in out
    assert "(from: opener)" in out
    assert "a caller that is not known" in out
    assert "The state of a running gateway was not looked at" in out
    assert "SECRET" not in out


@pytest.mark.parametrize(
    ("model", "flags", "status", "words"),
    [
        ("chaep", (), 404, "did you mean 'cheap'"),
        ("mini", ("--client", "ci"), 403, "may not use"),
        ("", (), 400, "`model` is empty"),
    ],
)
def test_a_request_that_is_refused_shows_what_its_client_would_get(
    model: str, flags: tuple[str, ...], status: int, words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = routed(capsys, model, *flags, config=config, expected=1)
    assert found["ok"] is False and found["error"]["status"] == status
    assert words in found["error"]["message"]
    assert main(["route", "request.json", *flags]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and words in printed.err and f"arbiter: {status} " in printed.err


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["missing.json"], 1, "missing.json cannot be read: No such file"),
        (["request.json", "--client", "nobody"], 1, "no client is called 'nobody'; clients: ci"),
        (["request.json", "--header", "no colon"], 2, "expected 'Name: value'"),
        (["request.json", "--model", "x"], 2, "only a request of Gemini's names its model in its path"),
        (["request.json", "--format", "gemini"], 2, "names its model in its path, and so there must be one"),
    ],
)
def test_a_command_that_cannot_be_followed_says_why(
    flags: list[str], code: int, words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config.parent / "request.json").write_text(body("cheap"))
    assert main(["route", *flags]) == code
    assert words in capsys.readouterr().err


def test_a_body_over_the_limit_is_refused_as_by_the_gateway(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(CONFIG + "limits: { body: 1KiB }\n")
    found = routed(capsys, "cheap", config=config, expected=1, more="x" * 2000)
    assert found["error"]["class"] == "too_large"


def test_who_has_no_key_where_one_is_required_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As by the gateway; a client's name, or its key in a header, opens it."""
    config.write_text(CONFIG + "auth: { mode: require }\n")
    for flags in ((), ("--header", "x-api-key: another")):
        refused = routed(capsys, "cheap", *flags, config=config, expected=1)
        assert (refused["error"]["status"], refused["error"]["class"]) == (401, "unauthorized")
    assert main(["route", "request.json"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and "arbiter: 401 unauthorized: " in printed.err and "--client NAME" in printed.err
    for flags in (("--client", "ci"), ("--header", "Authorization: Bearer k")):
        found = routed(capsys, "cheap", *flags, config=config)
        assert (found["client"], found["warnings"]) == ("ci", [])


def test_what_a_weighted_group_draws_by_is_shown(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the groups within it as well."""
    config.write_text(
        CONFIG.replace("select: random }", "select: weighted, weights: { openai/mini: 2.5 } }").replace(
            "aliases:\n",
            "aliases:\n  any: { group: [cheap, openai/gpt-5.2], select: weighted, weights: { cheap: 3 } }\n",
        )
    )
    inner = {"openai/mini": 2.5, "anthropic/claude": 1.0}
    assert routed(capsys, "cheap", config=config)["weights"] == {"cheap": inner}
    assert routed(capsys, "any", config=config)["weights"] == {
        "any": {"cheap": 3.0, "openai/gpt-5.2": 1.0},
        "cheap": inner,
    }
    assert routed(capsys, "mini", config=config)["weights"] == {}
    (config.parent / "request.json").write_text(body("any"))
    assert main(["route", "request.json"]) == 0
    out = capsys.readouterr().out
    assert "weights     any: cheap 3, openai/gpt-5.2 1\nweights     cheap: openai/mini 2.5, anthropic/claude 1\n" in out


def test_the_example_of_session_affinity_loads_without_a_warning() -> None:
    """What people copy has to work, and to say all that there is to say."""
    text = EXAMPLE.read_text("utf-8")
    snapshot = parse(text, str(EXAMPLE), {"ANTHROPIC_KEY_A": "a", "ANTHROPIC_KEY_B": "b"})
    assert snapshot.warnings == ()
    assert snapshot.affinity.header == "x-conversation-id"
    assert snapshot.affinity.no_pin == {"title", "auxiliary"}
    assert {name: one.pin_ttl_s for name, one in snapshot.providers.items()} == {
        "anthropic": 3600.0,
        "local": snapshot.affinity.ttl_s,
    }
    assert [account.label for account in snapshot.providers["anthropic"].accounts] == ["team-a", "team-b"]
    for option in ("header", "ttl", "no_pin", "cache_ttl", "prompt_cache_key", "trust_user_agent"):
        assert f" {option}:" in text, option
