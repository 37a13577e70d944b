"""What can be configured, called or go wrong stands in `docs/`, and the example shows it."""

from __future__ import annotations

import argparse
import datetime
import json
import re
from bisect import bisect_right
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from arbiter.accounting.genai import packaged
from arbiter.cli import parser
from arbiter.config import reasoning, reference, spoken
from arbiter.config.decode import Decoder
from arbiter.config.demo import DEMO
from arbiter.config.load import parse
from arbiter.config.rates import DAY_MS
from arbiter.config.redacted import redacted
from arbiter.config.reference import Key, keys
from arbiter.config.schema import Config
from arbiter.errors import ArbiterError, ErrorClass
from arbiter.wire import messages_errors, openai_errors

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / "arbiter.example.yaml").read_text("utf-8")
CONFIG_DOC = (ROOT / "docs/config.md").read_text("utf-8")
CLI_DOC = (ROOT / "docs/cli.md").read_text("utf-8")
ERRORS_DOC = (ROOT / "docs/errors.md").read_text("utf-8")
ENV = {"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-b"}


# ------------------------------------------------------------------------------------------------- docs/config.md


def test_the_tables_are_those_of_the_schema() -> None:
    """`python -m arbiter.config.reference docs/config.md` writes them anew."""
    assert reference.filled(CONFIG_DOC) == CONFIG_DOC


@pytest.mark.parametrize("key", list(keys()), ids=lambda key: key.path)
def test_every_key_is_documented_with_its_default(key: Key) -> None:
    row = next((line for line in CONFIG_DOC.splitlines() if line.startswith(f"| `{key.path}` |")), "")
    assert key.text and row.endswith(f"| {key.default or '–'} | {key.text} |")


def test_a_table_holds_its_own_section_only() -> None:
    rows = reference.table("storage").splitlines()[2:]
    names = [row.split("`")[1].removeprefix("storage.") for row in rows]
    assert names == ["url", "journal_max", "on_full", "capture", "rows_ttl"]


def test_every_environment_variable_is_documented() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "arbiter").rglob("*.py"))
    read = set(re.findall(r'(?:env\.get\(|environ\.get\(|environ\[|getenv\(|variable\()"([A-Z_]+)"', sources))
    assert {"ARBITER_CONFIG", "ARBITER_DATA_DIR", "HOST", "PORT"} <= read
    assert {name for name in read if f"`{name}`" not in CONFIG_DOC} == set()


# ------------------------------------------------------------------------------------------- arbiter.example.yaml


def test_the_example_loads_without_a_warning() -> None:
    snapshot = parse(EXAMPLE, str(ROOT / "arbiter.example.yaml"), ENV)
    assert snapshot.warnings == () and set(snapshot.providers) == {"anthropic", "openai", "local", "echo"}


def test_the_prices_of_the_example_are_those_of_the_release() -> None:
    """Whoever takes the file as it is pays by the list, and not by what a model cost once.

    By the list of the day on which it was last looked at: changes of days to come are a later release's.
    """
    as_of = datetime.datetime.combine(spoken.AS_OF, datetime.time(), datetime.UTC)
    as_of_ms = round(as_of.timestamp() * 1000)
    snapshot = parse(EXAMPLE, str(ROOT / "arbiter.example.yaml"), ENV)
    declared = dict(snapshot.rates())
    assert set(declared) == {"anthropic/claude-sonnet-4-5", "openai/gpt-5.2"}
    for name, rate in declared.items():
        vendor, _, model = name.partition("/")
        listed = packaged().find(vendor, model, "", as_of_ms // DAY_MS)
        assert listed is not None and rate == listed.rates[bisect_right(listed.begins, as_of_ms % DAY_MS) - 1], name


def written(text: str) -> set[str]:
    """The keys that stand in `text`, with `<name>` and `[]` where the schema has them."""
    decoder = Decoder("example", ENV)
    decoder.read(text, Config)
    found = set()
    for path in decoder.lines:
        path = re.sub(r"\[\d+\]", "[]", path)
        path = re.sub(r"^(providers|aliases)\.[^.]+", r"\1.<name>", path)
        found.add(path)
    return found


def test_every_key_stands_in_the_example() -> None:
    """In place, or commented out in its place where it would exclude another or need a file."""
    missing = {key.path for key in keys()} - written(EXAMPLE)
    commented = set(re.findall(r"^ +# +(\w+):", EXAMPLE, re.MULTILINE))
    commented |= {f"plugins[].{name}" for name in ("use", "required")} if "use:" in EXAMPLE else set()
    left = {path for path in missing if path.rpartition(".")[2] not in commented and path not in commented}
    assert left == set()


def rsa_key() -> str:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def test_what_is_commented_out_in_the_example_is_valid_too(tmp_path: Path) -> None:
    for name in ("private-ca.pem", "client.pem", "client.key"):
        (tmp_path / name).write_text("-----BEGIN")
    (tmp_path / "reasoning.keys").write_text(f"{reasoning.spelled(reasoning.new())}\n")
    account = {"type": "service_account", "client_email": "a@b", "private_key": rsa_key()}
    (tmp_path / "service-account.json").write_text(json.dumps(account))
    text = re.sub(r"^( +)# ( *\w+:)", r"\1\2", EXAMPLE, flags=re.MULTILINE)
    text = text.replace('key: "${ANTHROPIC_API_KEY}"', "").replace("/run/secrets/anthropic", "client.key")
    text = text.replace("/run/secrets/reasoning", "reasoning.keys")
    snapshot = parse(text, str(tmp_path / "arbiter.yaml"), ENV)
    assert snapshot.server.socket and snapshot.admin.forward_auth_header
    assert snapshot.providers["anthropic"].endpoint.tls_ca == str(tmp_path / "private-ca.pem")
    elsewhere = {"providers.<name>.key", "providers.<name>.keys[].key_file", "plugins[].use", "plugins[].required"}
    assert written(text) | elsewhere >= {key.path for key in keys()}


def test_the_defaults_that_the_example_shows_are_the_defaults() -> None:
    """Sections whose comments do not say otherwise resolve to the same as when they are left out."""
    shown = redacted(parse(EXAMPLE, "a", ENV))
    bare = redacted(parse("providers: { anthropic: { type: anthropic, key: x } }", "a", ENV))
    for section in (
        "server",
        "limits",
        "auth",
        "storage",
        "state",
        "admin",
        "telemetry",
        "plugins",
        "session_affinity",
        "sessions",
    ):
        assert shown[section] == bare[section]
    kept = (
        "endpoint",
        "attribution",
        "timeouts",
        "retry",
        "speechless",
        "cache_ttl",
        "limits",
        "connections",
        "headers",
    )
    for key in (*kept, "forward_headers"):
        assert shown["providers"]["anthropic"][key] == bare["providers"]["anthropic"][key]


# -------------------------------------------------------------------------------------------------- JSON Schema


def plain(text: str) -> Any:
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def schema() -> Any:
    made = reference.json_schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


@pytest.mark.parametrize(
    "text",
    [
        EXAMPLE,
        DEMO,
        "providers: { a: { type: echo } }",
        "providers: { a: { type: openai, keys: ['${K}', { label: b, key_file: c }], cache_ttl: 0 } }",
        "providers: { a: { type: openai, retry: { base: 10ms, attempts: '${A}' }, limits: { requests_per_day: 9 } } }",
        "models: [{ model: a/b, latency_ms_p50: 4.5, input_modalities: [text] }]",
        "aliases: { a: { group: [b], select: weighted, weights: { b: 0.5, c: '2', d: '${W}' } } }",
        "server: { port: '${PORT}', drain: '${D:-5s}', workers: 3, keepalive: 0 }\nlimits: { body: 4096 }",
    ],
)
def test_the_json_schema_accepts_what_loads(schema: Any, text: str) -> None:
    assert [error.message for error in schema.iter_errors(plain(text))] == []


@pytest.mark.parametrize(
    "text",
    [
        "prividers: {}",
        "server: { port: http }",
        "server: { drain: 30 }",
        "server: { drain: 30 s }",
        "limits: { body: 32 MiB }",
        "auth: { mode: maybe }",
        "providers: { a: { type: decisions } }",
        "providers: { a: { key: x } }",
        "providers: { a: { type: openai, models: [{ upstream: x }] } }",
        "models: [{ model: a/b, input_usd_per_mtok: -1 }]",
        "models: [{ model: a/b, input_usd_per_mtok: cheap }]",
        "telemetry: { metrics: sometimes }",
        "providers: { a: { type: openai, keys: [{ secret: x }] } }",
        "providers: { a: { type: openai, retry: { attempts: 0 } } }",
        "aliases: { a: { group: [x], select: best } }",
        "aliases: { a: { group: [x], select: weighted, weights: { x: 0 } } }",
        "models: [{ model: a/b, input_modalities: [smell] }]",
        "session_affinity: { no_pin: [everything] }",
    ],
)
def test_the_json_schema_refuses_what_does_not(schema: Any, text: str) -> None:
    assert not schema.is_valid(plain(text))
    with pytest.raises(Exception, match="t:"):
        parse(text, "t", {})


def test_the_json_schema_shows_defaults_as_they_are_written(schema: Any) -> None:
    definitions = schema.schema["$defs"]
    assert definitions["Server"]["properties"]["drain"]["default"] == "30s"
    assert definitions["Limits"]["properties"]["body"]["default"] == "32MiB"
    assert all("x-unit" not in str(definition) for definition in definitions.values())


# ---------------------------------------------------------------------------------------------------- docs/cli.md


def commands(top: argparse.ArgumentParser, name: str) -> dict[str, argparse.ArgumentParser]:
    found = {name: top}
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, below in action.choices.items():
                found |= commands(below, f"{name} {verb}")
    return found


def test_every_command_and_every_flag_is_documented() -> None:
    sections = re.split(r"^## ", CLI_DOC, flags=re.MULTILINE)
    for name, command in commands(parser(), "arbiter").items():
        if any(isinstance(action, argparse._SubParsersAction) for action in command._actions):
            section = CLI_DOC
        else:
            section = next((text for text in sections if text.startswith(f"`{name}")), "")
            assert section, f"{name} has no section in docs/cli.md"
        for action in command._actions:
            for flag in action.option_strings:
                if flag.startswith("--") and flag != "--help":
                    assert re.search(rf"`(arbiter )?{flag}\b", section), f"{name} {flag} is not in docs/cli.md"


# ------------------------------------------------------------------------------------------------- docs/errors.md


def rows() -> dict[str, list[str]]:
    lines = [line for line in ERRORS_DOC.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells for cells in ([c.strip() for c in line.strip("|").split("|")] for line in lines)}


def test_every_error_class_is_documented_once_and_no_other() -> None:
    listed = re.findall(r"^\| `(\w+)`", ERRORS_DOC, re.MULTILINE)
    assert sorted(listed) == sorted(ErrorClass)


@pytest.mark.parametrize("code", list(ErrorClass))
def test_an_error_is_documented_as_each_format_spells_it(code: ErrorClass) -> None:
    _, _, chat, messages, meaning = rows()[code]
    assert chat == f"`{openai_errors.ERROR_TYPES[code]}`"
    assert messages == f"`{messages_errors.ERROR_TYPES[code]}`"
    assert meaning


def kinds(base: type[ArbiterError]) -> list[type[ArbiterError]]:
    return [base, *(kind for below in base.__subclasses__() for kind in kinds(below))]


@pytest.mark.parametrize("kind", kinds(ArbiterError), ids=lambda kind: kind.__name__)
def test_an_errors_status_is_documented(kind: type[ArbiterError]) -> None:
    if kind.__name__ == "TimedOut":  # its class depends on the phase
        assert all("504" in cells[1] for code, cells in rows().items() if code.startswith("timeout_"))
    else:
        assert str(kind.status) in rows()[kind.code][1]
