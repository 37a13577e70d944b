"""`arbiter check`: what it shows of a configuration, to people and to programs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from arbiter.cli import main
from arbiter.cli.departures import LEAST, SHOWN, SHOWN_SECTIONS, departures
from arbiter.config.load import parse
from arbiter.config.redacted import redacted

GROUPS = """\
providers:
  a: { type: anthropic, keys: [{ label: team-a, key: SECRET-1 }, { label: team-b, key: SECRET-2 }],
    models: [big, small], cache_ttl: 5m }
  o: { type: openai, key: SECRET-3, models: [gpt, { id: mini, upstream: mini-26 }], speechless: nudge,
    retry: { attempts: 4, budget: 5s, base: 10ms, cap: 1s, before_fallback: 3, accepted_timeout: 0 },
    limits: { requests_per_minute: 60, requests_per_day: 1000 } }
aliases:
  fast: { pin: a/small }
  inner: { group: [o/mini, fast], select: weighted, weights: { fast: 0.5 } }
  outer: { group: [o/gpt, inner], advertise_as: claude-outer }
  top: { pin: outer }
routing: { fallback: [big, fast] }
models: [{ model: o/mini, max_input_tokens: 100000, latency_ms_p50: 300, input_modalities: [text, image] }]
session_affinity: { ttl: 2h, no_pin: [title, keepwarm] }
sessions: { trust_user_agent: true, titles: { alias: fast } }
search: { embed: { alias: fast } }
"""


def shown(out: str, title: str) -> list[list[str]]:
    """The rows of a table, cell by cell; of a list, line by line."""
    lines = out.partition(f"\n{title}")[2].partition("\n\n")[0].splitlines()[1:]
    if len(lines) > 1 and set(lines[1]) <= {"-", " "}:
        lines = lines[2:]
    return [re.split(r" {2,}", line.strip()) for line in lines]


def test_check_shows_what_the_file_comes_to(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("arbiter.yaml is valid (epoch ")
    assert "auth.mode is require, with no clients." in out
    assert re.search(r"^asked for +provider +format +sent as +why$", out, re.MULTILINE)
    assert re.search(r"^gpt-5\.2 +openai +openai-chat +gpt-5\.2$", out, re.MULTILINE)
    assert re.search(r"^fast +openai +openai-chat +gpt-5\.2-mini-2026 +alias of openai/mini$", out, re.MULTILINE)
    assert re.search(r"^\(any other\) +openai +openai-chat", out, re.MULTILINE)
    assert re.search(r"^openai +openai +https://api\.openai\.com/v1 +yes +10s +250ms +60s +- +- +600s +-$", out, re.M)
    assert re.search(r"^openai +8 +10s +250ms +8s +2 +1 +- +- +25h$", out, re.MULTILINE)
    assert re.search(
        r"^model +input +cached input +cache write 5m +cache write 1h +output +USD per web search$", out, re.MULTILINE
    )
    assert re.search(r"^openai/mini +0\.25 +0\.025 +- +- +2 +-$", out, re.MULTILINE)
    assert re.search(r"^  input above 200,000 +0\.5 +- +- +- +0 +-$", out, re.MULTILINE)
    assert re.search(r"^body +32MiB$", out, re.MULTILINE)
    assert "auth.mode is require and there are no clients" in out
    assert "models[0].tiers[0]: without cached_input_usd_per_mtok;" in out
    assert "the defaults" not in out
    assert "SECRET" not in out


def test_check_explains_names_only_where_there_is_something_to_explain(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("providers: { e: { type: echo, models: [m] } }\nserver: { workers: 1 }\n")
    main(["check"])
    out = capsys.readouterr().out
    assert re.search(r"^asked for +provider +format +sent as$", out, re.MULTILINE)
    assert "with 1 worker." in out and "Prices" not in out


def test_check_shows_what_departs_from_the_defaults(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(
        "providers:\n"
        "  a: { type: anthropic, key: k, models: [{ id: big, max_output_tokens: 32000 }], prompt_cache: arbiter,\n"
        "    prompt_cache_ttl: 1h }\n"
        "  b: { type: openai, key: k, relay: rebuild, attribution: drop, prompt_cache_ttl: 1h }\n"
    )
    main(["check"])
    out = capsys.readouterr().out
    shown = out.partition("What differs from the defaults\n")[2].partition("\n\n")[0]
    assert [line.split() for line in shown.splitlines()[2:]] == [
        ["a", "prompt_cache", "arbiter"],
        ["a", "prompt_cache_ttl", "1h"],
        ["a/big", "max_output_tokens", "32000"],
        ["b", "relay", "rebuild"],
        ["b", "prompt_cache_ttl", "1h"],
        ["b", "attribution", "drop"],
    ]


def test_check_tells_of_a_provider_that_no_name_leads_to(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is asked for by an alias, by default or by its vendor's names is not one of them."""
    config.write_text(
        "providers:\n  lone: { type: openai, key: k }\n  named: { type: openai, key: k }\n"
        "  claude: { type: anthropic, auth: passthrough }\n  other: { type: openai, key: k }\n"
        "aliases: { a: { pin: named/x } }\nrouting: { default_provider: other }\n"
    )
    assert main(["check", "--json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning.startswith("providers.lone: without `models`") and "lone/MODEL" in warning


def test_check_speaks_json_too(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--config", str(config), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] and report["file"] == str(config) and len(report["warnings"]) == 2
    assert {"model": "mini", "provider": "openai", "upstream": "gpt-5.2-mini-2026"} in report["models"]
    fast = {"alias": "fast", "select": None, "members": ["openai/mini"], "targets": ["openai/mini"]}
    assert report["aliases"] == [fast]
    assert report["config"]["providers"]["openai"]["key"] == "***"


def test_what_check_calls_the_configuration_can_be_loaded_again(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The resolved form is in the file's own shape (JSON is YAML), but for what stands in for secrets."""
    main(["check", "--json"])
    resolved = json.loads(capsys.readouterr().out)["config"]
    again = parse(json.dumps(_without_empty(resolved)), "again", {})
    assert redacted(again) == resolved


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty(item) for key, item in value.items() if item not in (None, "")}
    return value


def test_check_shows_groups_as_trees_and_what_comes_after_them(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nested groups stand where they are listed; a pin to a group is one, a pin to a model is a model."""
    config.write_text(GROUPS)
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    tree = out.partition("\nGroups (")[2].partition("\n\n")[0].splitlines()[1:]
    inner = ["o/mini (weight 1)", "fast (weight 0.5): stands for", "  a/small"]
    outer = ["  o/gpt", "  inner: weighted of", *(f"    {line}" for line in inner)]
    assert tree == [
        "inner: weighted of",
        *(f"  {line}" for line in inner),
        "outer, also claude-outer: ordered of",
        *outer,
        "top: stands for",
        "  outer: ordered of",
        *(f"  {line}" for line in outer),
    ]
    assert "\nFallbacks, for aliases; not for a model that a client names\na/big → a/small\n" in out
    assert [row[0] for row in shown(out, "Models")] == ["big", "small", "gpt", "mini", "fast"]
    assert "SECRET" not in out


def test_check_says_whom_an_explicit_fallback_is_for(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(GROUPS.replace("fallback: [big, fast]", "fallback: [big, fast], explicit_fallback: true"))
    main(["check"])
    out = capsys.readouterr().out
    assert "\nFallbacks, for every model\n" in out
    rows = [row[:2] for row in shown(out, "Longest waits")]
    assert ["big, small, fast", "2"] in rows and ["gpt, mini, inner", "3"] in rows


def test_check_shows_accounts_by_label_retries_limits_and_pins(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(GROUPS)
    main(["check"])
    out = capsys.readouterr().out
    assert [row[3] for row in shown(out, "Providers and timeouts")] == ["team-a, team-b", "yes"]
    assert shown(out, "Retries, request limits") == [
        ["a", "8", "10s", "250ms", "8s", "2", "1", "-", "-", "300s"],
        ["o", "4", "5s", "10ms", "1s", "3", "0", "60", "1000", "2h"],
    ]
    assert shown(out, "What differs from the defaults") == [
        ["o", "speechless", "nudge"],
        ["session_affinity", "ttl", "2h"],
        ["session_affinity", "no_pin", "keepwarm, title"],
        ["sessions", "trust_user_agent", "true"],
        ["sessions", "titles", "alias fast, per_day 50"],
        ["search", "embed", "alias fast, per_day 1000"],
    ]
    assert shown(out, "What is known of models") == [["o/mini", "100000", "300", "text, image"]]


def test_check_shows_the_longest_wait_of_every_name_and_what_decides_it(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names that lead to the same providers share their rows; a stream without a limit has one until it is accepted."""
    config.write_text(GROUPS)
    main(["check"])
    out = capsys.readouterr().out
    rows = shown(out, "Longest waits")
    assert rows[:3] == [
        ["big, small", "1", "an answer that is not streamed", "2490s", "mostly a.timeouts.unary (4 × 600s)"],
        ["a stream's first event", "no limit", "a.timeouts.first_event is off"],
        ["while no headers come", "430s", "mostly a.timeouts.headers (3 × 120s)"],
    ]
    assert [row[:2] for row in rows[3::3]] == [
        ["gpt, mini", "1"],
        ["fast", "2"],
        ["inner", "3"],
        ["outer, top, claude-outer", "4"],
    ]
    config.write_text(GROUPS.replace("cache_ttl: 5m", "timeouts: { first_event: 100s }"))
    main(["check"])
    assert shown(capsys.readouterr().out, "Longest waits")[1] == [
        "a stream's first event",
        "490s",
        "mostly a.timeouts.first_event (4 × 100s)",
    ]


def test_what_decides_a_wait_is_told_whole_on_a_narrow_console(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting's name is what the table is for: beside the rest, or below it."""
    config.write_text(GROUPS)
    monkeypatch.setenv("COLUMNS", "80")
    main(["check"])
    table = capsys.readouterr().out.partition("Longest waits")[2].partition("\n\n")[0].splitlines()[1:]
    assert all(len(line) <= 80 for line in table) and "because" not in table[0]
    assert [line.split() for line in table[2:6]] == [
        ["big,", "small", "1", "an", "answer", "that", "is", "not", "streamed", "2490s"],
        ["mostly", "a.timeouts.unary", "(4", "×", "600s)"],
        ["a", "stream's", "first", "event", "no", "limit"],
        ["a.timeouts.first_event", "is", "off"],
    ]
    monkeypatch.setenv("COLUMNS", "200")
    main(["check"])
    assert "because" in capsys.readouterr().out


def test_many_names_of_one_provider_are_not_all_listed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("providers: { e: { type: echo, models: [a, b, c, d] } }")
    main(["check"])
    assert shown(capsys.readouterr().out, "Longest waits")[0][0] == "a, b and 2 more"


def test_a_test_runs_cap_shows_in_the_waits(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ARBITER_PROVIDER_TIMEOUT_MS` also bounds what is off, so nothing waits without limit."""
    monkeypatch.setenv("ARBITER_PROVIDER_TIMEOUT_MS", "1000")
    config.write_text(GROUPS)
    main(["check", "--json"])
    waits = json.loads(capsys.readouterr().out)["waits"]
    # `a` alone: four attempts of 3 s (to queue, to connect, and the rest), and the retry budget of 10 s.
    assert [wait["unary"]["seconds"] for wait in waits if wait["asked_for"] == "big"] == [22]
    assert all(wait[kind]["seconds"] for wait in waits for kind in ("unary", "stream", "unaccepted"))


def test_programs_get_aliases_and_waits_too(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(GROUPS)
    assert main(["check", "--json"]) == 0
    out = capsys.readouterr().out
    report = json.loads(out)
    outer = next(alias for alias in report["aliases"] if alias["alias"] == "outer")
    assert outer == {
        "alias": "outer",
        "select": "ordered",
        "members": ["o/gpt", "inner"],
        "targets": ["o/gpt", "o/mini", "a/small"],
    }
    big = next(wait for wait in report["waits"] if wait["asked_for"] == "big")
    assert big == {
        "asked_for": "big",
        "targets": ["a/big"],
        "unary": {"seconds": 2490, "reason": "a.timeouts.unary (4 × 600s)"},
        "stream": {"seconds": None, "reason": "a.timeouts.first_event is off"},
        "unaccepted": {"seconds": 430, "reason": "a.timeouts.headers (3 × 120s)"},
    }
    assert report["config"]["providers"]["a"]["keys"] == [
        {"label": "team-a", "key": "***"},
        {"label": "team-b", "key": "***"},
    ]
    assert "SECRET" not in out


def test_what_check_calls_groups_and_pools_can_be_loaded_again(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for the keys of a pool, which all look alike: they get something in their place."""
    config.write_text(GROUPS)
    main(["check", "--json"])
    resolved = json.loads(capsys.readouterr().out)["config"]
    again = _without_empty(json.loads(json.dumps(resolved)))
    for number, entry in enumerate(again["providers"]["a"]["keys"]):
        entry["key"] = f"other-{number}"
    assert redacted(parse(json.dumps(again), "again", {})) == resolved


def test_check_tells_of_every_setting_that_was_chosen(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the section, in any depth; a secret is told of and not shown."""
    config.write_text(
        "server: { drain: 5s, keepalive: 20s, stream_failure: event }\n"
        "providers:\n"
        "  a: { type: openai, key: k, models: [{ id: m, cache: { ttl: 1h } }], headers: { x-team: SECRET },\n"
        "    connections: { max: 7 }, cache: { floor: 2048 }, billing: subscription, priced_as: openai }\n"
        "storage: { journal_max: 2GiB, on_full: refuse, rows_ttl: 30d,\n"
        "  capture: { content: true, preview_chars: 10 } }\n"
        "admin: { token: SECRET-TOKEN-OF-SOME-LENGTH }\n"
        "prices: { refresh: 1h, overrides: [{ provider: a, model: m, discount_percent: 10 }] }\n"
        "telemetry: { log: { format: text }, metrics: false }\n"
        "plugins: [{ use: 'some.module:Plugin' }]\n"
    )
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert shown(out, "What differs from the defaults") == [
        ["a", "connections.max", "7"],
        ["a", "cache.floor", "2048"],
        ["a", "billing", "subscription"],
        ["a", "priced_as", "openai"],
        ["a", "headers", "x-team ***"],
        ["a/m", "cache", "ttl 1h"],
        ["prices", "overrides", "a/m"],
        ["server", "drain", "5s"],
        ["server", "keepalive", "20s"],
        ["server", "stream_failure", "event"],
        ["prices", "refresh", "1h"],
        ["storage", "journal_max", "2GiB"],
        ["storage", "on_full", "refuse"],
        ["storage", "capture.content", "true"],
        ["storage", "capture.preview_chars", "10"],
        ["storage", "rows_ttl", "30d"],
        ["admin", "token", "***"],
        ["telemetry", "log.format", "text"],
        ["telemetry", "metrics", "false"],
        ["plugins", "use some.module:Plugin, required true"],
    ]
    assert "SECRET" not in out


def test_every_key_of_the_file_is_told_of_somewhere() -> None:
    """A key that is added is looked at for differences, unless it stands in a table."""
    resolved = redacted(parse(LEAST, "least", {}))
    for section, keys in SHOWN.items():
        assert keys <= resolved[section].keys()
    assert resolved.keys() >= SHOWN_SECTIONS


@pytest.mark.parametrize(
    "providers",
    [
        LEAST,
        "providers: { claude: { type: anthropic, auth: passthrough } }",
        "providers: { codex: { type: openai, auth: passthrough } }",
        "providers: { b: { type: openai, endpoint: 'http://localhost/v1', key: k, models: [{ id: m, upstream: n }] } }",
    ],
)
def test_what_was_not_chosen_differs_from_nothing(providers: str) -> None:
    assert list(departures(parse(providers, "least", {}))) == []


def test_check_shows_the_longest_wait_of_names_that_are_taken_undeclared(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The quick start of the README, which says that it does."""
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    assert "arbiter check     # what this comes to: who serves which model, time-outs, the longest waits" in readme
    written = readme.partition("arbiter.yaml <<'EOF'\n")[2].partition("EOF\n")[0]
    assert "auto_models: on" in written
    config.write_text(written.replace("${ANTHROPIC_API_KEY}", "k"))
    assert main(["check"]) == 0
    rows = shown(capsys.readouterr().out, "Longest waits")
    assert rows[0][:3] == ["(claude-*)", "1", "an answer that is not streamed"]
    main(["check", "--json"])
    (wait,) = json.loads(capsys.readouterr().out)["waits"]
    assert (wait["asked_for"], wait["targets"]) == ("(claude-*)", ["anthropic/(the same name)"])
