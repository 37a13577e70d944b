"""From text to Snapshot: what is accepted, what it comes to, and how each mistake is answered."""

from __future__ import annotations

import ipaddress
import json
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from arbiter.config.load import ConfigError, Flags, Source, demo_snapshot, load, parse
from arbiter.config.redacted import redacted
from arbiter.config.snapshot import (
    Account,
    Budgets,
    Embed,
    Model,
    Rate,
    RequestLimits,
    Retry,
    Routing,
    Search,
    SessionAffinity,
    Sessions,
    Snapshot,
    Titles,
    key_digest,
)

ONE = "providers: { up: { type: openai, key: k, models: [gpt] } }\n"
PRICED = "models:\n- {{ model: {}, input_usd_per_mtok: 1 }}\n"
HASH = "sha256:" + "ab" * 32


def read(text: str, env: Mapping[str, str] | None = None, flags: Flags | None = None) -> Snapshot:
    return parse(text, "arbiter.yaml", env or {}, flags or Flags())


def fault(text: str, env: Mapping[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(text, env)
    return caught.value


def provider(options: str) -> str:
    return f"providers:\n  up:\n    type: openai\n    {options}\n"


def oauth(option: str) -> str:
    told = {"token_url": "token_url: 'https://v.test/t'", "client_id": "client_id: c"}
    told[option.partition(":")[0] or "client_id"] = option or told["client_id"]
    return provider(f"auth: oauth\n    oauth: {{ {', '.join(told.values())} }}")


def bedrock(options: str) -> str:
    return f"providers: {{ up: {{ type: bedrock, region: us-east-1, {options} }} }}\n"


def titles(alias: str) -> str:
    return f"sessions: {{ titles: {{ alias: {alias} }} }}\n{ONE}aliases: {{ fast: {{ pin: up/gpt }} }}\n"


def embed(options: str) -> str:
    return f"search: {{ embed: {{ {options} }} }}\n{ONE}aliases: {{ near: {{ pin: up/gpt }} }}\n"


def anthropic(options: str) -> str:
    return f"providers: {{ up: {{ type: anthropic, key: k, {options} }} }}\n"


# --------------------------------------------------------------------------------------------- what it comes to


def test_an_alias_names_sessions_where_it_is_asked_to():
    """SPEC 8.4: opt-in."""
    snapshot = read(titles("fast"))
    assert snapshot.sessions.titles == Titles("fast", 50)
    assert redacted(snapshot)["sessions"]["titles"] == {"alias": "fast", "per_day": 50}
    assert read(ONE).sessions.titles is None and read("sessions: { titles: {} }\n" + ONE).sessions.titles is None


def test_an_alias_makes_vectors_where_it_is_asked_to() -> None:
    """SPEC 8.5: opt-in; beside the index of words, and without it."""
    snapshot = read(embed("alias: near, dimensions: 64"))
    assert snapshot.search == Search(index=False, embed=Embed("near", 64, 1000))
    assert redacted(snapshot)["search"]["embed"] == {"alias": "near", "dimensions": 64, "per_day": 1000}
    assert read(ONE).search.embed is None and read("search: { index: true, embed: {} }\n" + ONE).search.embed is None


def test_the_smallest_file_is_one_provider_with_a_key() -> None:
    """Everything else has a default, and the defaults are those of the target configuration."""
    snapshot = read("providers: { openai: { type: openai, key: '${K}' } }", {"K": "sk-1"})
    up = snapshot.providers["openai"]
    assert (
        up.accounts == (Account(None, "sk-1"),) and up.url == "https://api.openai.com/v1" and up.wire == "openai-chat"
    )
    assert up.budgets == Budgets(10, 10, 60, 0, 0, 600, 0)
    assert (up.max_connections, up.idle_connections, up.idle_for_s) == (1000, 64, 60)
    assert up.retry == Retry(8, 10.0, 0.25, 8.0, 2, 1) and up.request_limits == RequestLimits(0, 0)
    assert (up.pin_ttl_s, up.speechless) == (25 * 3600, "flag")
    assert snapshot.affinity == SessionAffinity("x-session-id", 25 * 3600, frozenset())
    assert snapshot.sessions == Sessions(False, False) and snapshot.routing == Routing(None, (), False)
    assert (snapshot.server.bind, snapshot.server.port, snapshot.server.socket) == ("127.0.0.1", 8080, None)
    assert snapshot.server.trusts("127.0.0.1") and not snapshot.server.trusts("127.0.0.2")
    assert (snapshot.limits.body, snapshot.limits.headers, snapshot.limits.json_depth) == (32 << 20, 64 << 10, 200)
    assert snapshot.auth.mode == "attribute" and snapshot.routing.default_provider is None
    assert snapshot.state_dir == Path("data/state").absolute()
    assert snapshot.storage.path == Path("data/arbiter.db").absolute()
    assert snapshot.warnings == ()


@pytest.mark.parametrize(
    ("type_", "url", "wire", "headers_s"),
    [
        ("openai", "https://api.openai.com/v1", "openai-chat", 60),
        ("anthropic", "https://api.anthropic.com", "anthropic-messages", 120),
        ("ollama", "http://localhost:11434/v1", "openai-chat", 60),
        ("openrouter", "https://openrouter.ai/api/v1", "openai-chat", 60),
        ("bedrock, region: eu-west-1", "https://bedrock-runtime.eu-west-1.amazonaws.com", "bedrock-converse", 120),
        ("bedrock, region: cn-north-1", "https://bedrock-runtime.cn-north-1.amazonaws.com.cn", "bedrock-converse", 120),
        ("echo", "echo:", "any", 60),
    ],
)
def test_a_type_brings_its_endpoint_its_wire_and_its_patience(
    type_: str, url: str, wire: str, headers_s: float
) -> None:
    up = read(f"providers: {{ up: {{ type: {type_} }} }}").providers["up"]
    assert (up.url, up.wire, up.budgets.headers_s) == (url, wire, headers_s)


AWS = {
    "AWS_REGION": "eu-west-3",
    "AWS_ACCESS_KEY_ID": "ID",
    "AWS_SECRET_ACCESS_KEY": "SECRET",
    "AWS_SESSION_TOKEN": "TOKEN",
}


@pytest.mark.parametrize(
    ("options", "env", "account"),
    [
        ("", AWS, Account(None, "SECRET", access_id="ID", session_token="TOKEN")),
        ("", AWS | {"AWS_BEARER_TOKEN_BEDROCK": "BEARER"}, Account(None, "BEARER")),
        (", key: mine", AWS | {"AWS_BEARER_TOKEN_BEDROCK": "BEARER"}, Account(None, "mine")),
        (", access_key_id: a, secret_access_key: b", AWS, Account(None, "b", access_id="a")),
        (
            ", access_key_id: a, secret_access_key: b, session_token: c",
            AWS,
            Account(None, "b", access_id="a", session_token="c"),
        ),
        ("", {"AWS_DEFAULT_REGION": "eu-west-3", "AWS_ACCESS_KEY_ID": "ID"}, Account()),
    ],
)
def test_bedrock_signs_with_what_stands_in_the_file_or_in_awss_own_variables(
    options: str, env: dict[str, str], account: Account
) -> None:
    """What is in the file wins whole: no half of a key comes from elsewhere. Nothing shows a secret."""
    snapshot = read(f"providers: {{ up: {{ type: bedrock, models: [m]{options} }} }}", env)
    up = snapshot.providers["up"]
    assert (up.region, up.accounts) == ("eu-west-3", (account,))
    shown = json.dumps(redacted(snapshot)) + repr(snapshot)
    assert not [one for one in ("SECRET", "TOKEN", "BEARER") if one in shown]
    assert {account.key, account.session_token} - {""} <= snapshot.secrets()


def test_models_are_names_or_pairs_of_id_and_upstream() -> None:
    up = read(provider("models: [gpt, { id: small, upstream: gpt-small-2026 }, { id: same }]")).providers["up"]
    assert up.models == (Model("gpt", "gpt"), Model("small", "gpt-small-2026"), Model("same", "same"))
    assert up.model("small") == up.models[1] and up.model("gpt-small-2026") is None


def test_prices_are_found_by_the_name_that_a_model_is_asked_for_by() -> None:
    """A row names a model as clients do; the ledger knows what was sent. Prices are picodollars per token."""
    snapshot = read(
        "providers:\n  up: { type: ollama, models: [big, { id: small, upstream: small-2026 }] }\n"
        "  open: { type: ollama }\n  other: { type: ollama, models: [big] }\nrouting: { default_provider: other }\n"
        "models:\n"
        "- { model: up/small, input_usd_per_mtok: 0.075, output_usd_per_mtok: '${OUT}', tiers: [\n"
        "    { above_input_tokens: 10, input_usd_per_mtok: 1 },\n"
        "    { above_input_tokens: 20, output_usd_per_mtok: 2 } ] }\n"
        "- { model: open/vendor/any, output_usd_per_mtok: 0 }\n"
        "- { model: other/undeclared, cached_input_usd_per_mtok: 1, cache_write_5m_usd_per_mtok: 2,\n"
        "    cache_write_1h_usd_per_mtok: 3 }\n",
        {"OUT": "0.3"},
    )
    small = Rate(input=75_000, output=300_000, tiers=((20, Rate(output=2_000_000)), (10, Rate(input=1_000_000))))
    assert snapshot.providers["up"].rates == {"small-2026": small}
    assert snapshot.providers["open"].rates == {"vendor/any": Rate(output=0)}
    written = Rate(cached_input=1_000_000, cache_write_5m=2_000_000, cache_write_1h=3_000_000)
    assert snapshot.providers["other"].rates == {"undeclared": written}
    assert snapshot.models["small"][0].rates == {"small-2026": small}
    assert [name for name, _ in snapshot.rates()] == ["up/small", "open/vendor/any", "other/undeclared"]


def test_two_names_of_one_model_have_one_price() -> None:
    text = provider("models: [a, { id: b, upstream: a }]") + PRICED.format("up/a")
    error = fault(text + "- { model: up/b, input_usd_per_mtok: 2 }\n")
    assert (error.path, error.message) == ("models[1].model", '"a" of up has a row already')


def test_a_changed_price_is_another_configuration() -> None:
    one, other = (read(ONE + f"models: [{{ model: up/gpt, input_usd_per_mtok: {usd} }}]\n") for usd in ("1", "1.5"))
    assert one.epoch != other.epoch


def test_a_model_at_two_providers_goes_to_the_first_with_a_warning() -> None:
    text = "providers:\n  b: { type: ollama, models: [m] }\n  a: { type: ollama, models: [m] }\n"
    snapshot = read(text)
    assert snapshot.models["m"][0].name == "b"
    assert any('"m"' in warning and "goes to b" in warning for warning in snapshot.warnings)


def test_flags_win_over_the_environment_which_wins_over_the_file() -> None:
    text = "server: { bind: 127.0.0.2, port: 1111, workers: 3, socket: /run/a.sock }\n" + ONE
    assert read(text).server.bind == "127.0.0.2"
    assert read(text).server.socket == "/run/a.sock"
    env = {"HOST": "0.0.0.0", "PORT": "2222"}
    assert (read(text, env).server.bind, read(text, env).server.port) == ("0.0.0.0", 2222)
    server = read(text, env, Flags(bind="::1", port=3333, workers=7)).server
    assert (server.bind, server.port, server.workers, server.socket) == ("::1", 3333, 7, None)
    assert read(text, env, Flags(socket="/run/b.sock")).server.socket == "/run/b.sock"


def test_a_port_beside_a_socket_is_ignored_with_a_warning() -> None:
    both = read(ONE, flags=Flags(socket="/run/b.sock", port=3333))
    assert both.server.socket == "/run/b.sock" and "--port are ignored" in both.warnings[0]
    assert read(ONE, flags=Flags(socket="/run/b.sock")).warnings == ()


def test_a_host_variable_that_is_no_address_is_ignored_with_a_warning() -> None:
    """Compiler environments export HOST=x86_64-linux-gnu; that must not keep a gateway from starting."""
    snapshot = read(ONE, {"HOST": "x86_64-linux-gnu"})
    assert snapshot.server.bind == "127.0.0.1" and "HOST" in snapshot.warnings[0]


@pytest.mark.parametrize("port", ["http", "0", "65536", "-1", "9" * 5000])
def test_a_port_variable_must_be_a_port(port: str) -> None:
    assert "PORT" in str(fault(ONE, {"PORT": port}))


def test_the_data_directory_holds_state_and_store() -> None:
    snapshot = read(ONE, {"ARBITER_DATA_DIR": "/data"})
    assert snapshot.state_dir == Path("/data/state") and snapshot.storage.path == Path("/data/arbiter.db")
    assert snapshot.storage.url == "sqlite:////data/arbiter.db"


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///a.db", Path("a.db").absolute()), ("sqlite:////v/a.db", Path("/v/a.db")), ("none", None)],
)
def test_the_store_is_a_relative_file_an_absolute_one_or_none(url: str, path: Path | None) -> None:
    assert read(f"storage: {{ url: '{url}' }}\n{ONE}").storage.path == path


@pytest.mark.parametrize(
    ("url", "shown", "secrets"),
    [
        ("postgresql://h/d", "postgresql://h/d", set()),
        ("postgres://u@h:5432/d?sslmode=require", "postgresql://u@h:5432/d?sslmode=require", set()),
        ("postgresql://u:${PW}@[::1]:5432/d", "postgresql://u:***@[::1]:5432/d", {"s%2Fcret-word", "s/cret-word"}),
        ("postgresql://u:plain-word@a:1,b:2/d", "postgresql://u:***@a:1,b:2/d", {"plain-word"}),
        ("postgresql:///d?host=%2Frun%2Fpg", "postgresql:///d?host=%2Frun%2Fpg", set()),
    ],
)
def test_the_store_may_be_a_server_whose_password_nobody_sees(url: str, shown: str, secrets: set[str]) -> None:
    """Not in what is shown, printed or hashed; the log knows it, to keep it out of its lines."""
    snapshot = read(f"storage: {{ url: '{url}' }}\n{ONE}", {"PW": "s%2Fcret-word"})
    assert snapshot.storage.path is None and redacted(snapshot)["storage"]["url"] == shown
    assert snapshot.storage.url == url.replace("${PW}", "s%2Fcret-word").replace("postgres://", "postgresql://")
    assert secrets <= snapshot.secrets()
    for secret in secrets:
        assert secret not in repr(snapshot.storage)
    assert snapshot.epoch == read(f"storage: {{ url: '{url}' }}\n{ONE}", {"PW": "another"}).epoch


@pytest.mark.parametrize(
    ("written", "seconds", "shown"),
    [("", None, "never"), ("rows_ttl: never", None, "never"), ("rows_ttl: 400d", 400 * 86400.0, "400d")],
)
def test_rows_are_kept_for_ever_unless_the_file_says_for_how_long(
    written: str, seconds: float | None, shown: str
) -> None:
    snapshot = read(f"storage: {{ {written} }}\n{ONE}")
    assert snapshot.storage.rows_ttl_s == seconds and redacted(snapshot)["storage"]["rows_ttl"] == shown


@pytest.mark.parametrize(
    ("url", "path"), [("lmdb:///v/s", Path("/v/s")), ("lmdb:s", Path("s").absolute()), ("lmdb:/v/s", Path("/v/s"))]
)
def test_the_state_is_a_directory(url: str, path: Path) -> None:
    assert read(f"state: '{url}'\n{ONE}").state_dir == path


def test_a_test_run_can_cap_every_budget_even_those_that_are_off() -> None:
    budgets = read(ONE, {"ARBITER_PROVIDER_TIMEOUT_MS": "2500"}).providers["up"].budgets
    assert budgets == Budgets(2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5)
    assert "ARBITER_PROVIDER_TIMEOUT_MS" in str(fault(ONE, {"ARBITER_PROVIDER_TIMEOUT_MS": "2s"}))


def test_the_cap_leaves_retries_alone_which_end_by_their_own_keys() -> None:
    text = provider("retry: { attempts: 3, budget: 20s }\n    timeouts: { connect: 1s }")
    up = read(text, {"ARBITER_PROVIDER_TIMEOUT_MS": "2500"}).providers["up"]
    assert (up.budgets.connect_s, up.budgets.unary_s, up.budgets.total_s) == (1, 2.5, 2.5)
    assert up.retry == Retry(attempts=3, budget_s=20)


def test_a_provider_says_how_it_is_tried_and_how_much_it_may_be_asked() -> None:
    text = provider(
        "retry: { attempts: 4, budget: 1s, base: 10ms, cap: 1s, before_fallback: 3, accepted_timeout: 0 }\n"
        "    limits: { requests_per_minute: 60, requests_per_day: 1000 }\n    speechless: nudge\n    cache_ttl: 5m"
    )
    up = read(text).providers["up"]
    assert up.retry == Retry(4, 1.0, 0.01, 1.0, 3, 0) and up.request_limits == RequestLimits(60, 1000)
    assert (up.speechless, up.pin_ttl_s) == ("nudge", 300)
    assert read(text).epoch != read(text.replace("attempts: 4", "attempts: 5")).epoch


def test_conversations_stay_as_long_with_every_provider_that_says_nothing_else() -> None:
    text = (
        "session_affinity: { ttl: 2h, header: X-Conversation, no_pin: [title, keepwarm] }\n"
        "sessions: { trust_user_agent: true, prompt_cache_key: true }\n"
        "providers: { a: { type: ollama }, b: { type: ollama, cache_ttl: 5m }, c: { type: ollama, cache_ttl: 0 } }\n"
    )
    snapshot = read(text)
    assert [up.pin_ttl_s for up in snapshot.providers.values()] == [7200, 300, 0]
    assert snapshot.affinity == SessionAffinity("x-conversation", 7200, frozenset({"title", "keepwarm"}))
    assert snapshot.sessions == Sessions(trust_user_agent=True, prompt_cache_key=True)
    assert snapshot.epoch != read(text.replace("2h", "3h")).epoch


def test_an_alias_reads_its_pin_as_a_request_would() -> None:
    """A declared model first, then provider/model, then another alias."""
    text = ONE + "aliases: { a: { pin: b }, b: { pin: up/gpt }, c: { pin: gpt, advertise_as: claude-c } }"
    snapshot = read(text)
    assert [alias.members[0].name for alias in snapshot.aliases.values()] == ["b", "up/gpt", "up/gpt", "up/gpt"]
    assert snapshot.aliases["claude-c"] is snapshot.aliases["c"]
    assert list(redacted(snapshot)["aliases"]) == ["a", "b", "c"]


def test_a_client_is_known_by_the_digest_of_its_key() -> None:
    text = (
        f"clients: [{{ name: ci, key_hash: 'sha256:{key_digest('arb-x')}', agent: codex, allow: ['gpt-*'] }}]\n" + ONE
    )
    (client,) = read(text).clients
    assert (client.key_sha256, client.agent, client.allow) == (key_digest("arb-x"), "codex", ("gpt-*",))


def test_a_client_may_end_belong_to_somebody_and_get_other_models() -> None:
    text = (
        f"clients: [{{ name: ci, key_hash: 'sha256:{key_digest('arb-x')}', expires: %s, group: build,"
        " overrides: { 'claude-*': gpt, big: up/gpt }, metadata: { mail: a@b } }]\n" + ONE
    )
    for moment in ("2027-01-01T00:00:00Z", "2027-01-01", "'2027-01-01 01:00 +01:00'"):
        (client,) = read(text % moment).clients
        assert (client.expires_ms, client.group) == (1798761600000, "build")
    assert client.overrides == (("claude-*", "gpt"), ("big", "up/gpt")) and client.metadata == (("mail", "a@b"),)


def test_the_admin_token_may_come_from_the_environment_alone() -> None:
    assert read(ONE, {"ARBITER_ADMIN_TOKEN": "t0k"}).admin.token == "t0k"
    assert read("admin: { token: mine }\n" + ONE, {"ARBITER_ADMIN_TOKEN": "t0k"}).admin.token == "mine"


def test_a_snapshot_survives_pickling() -> None:
    """Workers may be started as fresh processes."""
    snapshot = demo_snapshot()
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot


def test_the_demo_needs_nothing_and_serves_every_name() -> None:
    snapshot = demo_snapshot()
    assert snapshot.routing.default_provider == "echo" and snapshot.auth.mode == "none" and not snapshot.warnings
    assert {"claude-sonnet-4-5", "gpt-5.2"} <= set(snapshot.models)


# ------------------------------------------------------------------------------------------------ secrets, files


def test_a_secret_may_stand_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-from-file\n")
    config = tmp_path / "arbiter.yaml"
    config.write_text("providers: { up: { type: openai, key_file: key } }")
    assert load(config, {}).providers["up"].accounts[0].key == "sk-from-file"
    (tmp_path / "key").write_text(" \n")
    with pytest.raises(ConfigError, match=r"key_file: .*key is empty"):
        load(config, {})
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigError, match=r"providers\.up\.key_file: .*No such file"):
        load(config, {})


def test_every_variable_may_be_given_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sk-9\n")
    text = "providers: { up: { type: openai, key: '${OPENAI_API_KEY}' } }"
    assert read(text, {"OPENAI_API_KEY_FILE": str(tmp_path / "secret")}).providers["up"].accounts[0].key == "sk-9"
    assert "OPENAI_API_KEY_FILE" in str(fault(text, {"OPENAI_API_KEY_FILE": str(tmp_path / "missing")}))


@pytest.mark.parametrize(
    ("written", "env", "key"),
    [
        ("${A}", {"A": "x"}, "x"),
        ("${A:-d}", {}, "d"),
        ("${A:-d}", {"A": ""}, "d"),
        ("${A:-}", {}, ""),
        ("${A}", {"A": ""}, ""),
        ("a${A}b${B:-c}", {"A": "1"}, "a1bc"),
        ("$${A}", {}, "${A}"),
        ("$A$", {}, "$A$"),
        ("${A:-b:-c}", {}, "b:-c"),
        ("${A}", {"A": "${B}"}, "${B}"),
    ],
)
def test_variables_expand_once_as_in_a_shell(written: str, env: dict[str, str], key: str) -> None:
    assert read(provider(f"key: '{written}'"), env).providers["up"].accounts[0].key == key


def test_a_value_from_the_environment_cannot_add_keys() -> None:
    """Expansion happens after the YAML was read."""
    error = fault(provider("key: ${A}"), {"A": "x\nendpoint: http://evil"})
    assert error.path == "providers.up.key" and "evil" not in str(error)


def test_numbers_may_come_from_variables() -> None:
    text = "server: { port: '${P:-8081}', drain: '${D}' }\ntelemetry: { metrics: '${M}' }\n" + ONE
    snapshot = read(text, {"D": "5s", "M": "false"})
    assert (snapshot.server.port, snapshot.server.drain_s, snapshot.telemetry.metrics) == (8081, 5.0, False)


def test_no_secret_is_shown_logged_or_part_of_the_epoch() -> None:
    text = (
        "admin: { token: SECRET-a }\nproviders: { up: { type: openai, key: SECRET-b, headers: { X-K: SECRET-c },"
        " proxy: 'http://u:SECRET-d@proxy:3128' } }"
    )
    snapshot = read(text)
    assert "SECRET" not in repr(snapshot) and "SECRET" not in str(redacted(snapshot))
    assert redacted(snapshot)["providers"]["up"]["key"] == "***"
    assert len(snapshot.secrets()) == 4
    assert read(text.replace("SECRET", "OTHER")).epoch == snapshot.epoch
    assert read(text.replace("X-K", "X-L")).epoch != snapshot.epoch


@pytest.mark.parametrize(
    "text",
    [
        provider("key: [SECRET]"),
        provider("key: { SECRET-x: 1 }"),
        provider("key: SECRET with spaces"),
        provider("key: !SECRET x"),
        provider("key: *SECRET"),
        provider("key: @SECRET"),
        provider("key: 'SECRET"),
        provider('key: "SECRET\\q"'),
        provider("key: SECRET: x"),
        provider("headers: { X-A: [SECRET] }"),
        provider('headers: { X-A: "SECRET\\nX-B: 1" }'),
        provider("endpoint: https://user:SECRET@host/v1"),
        provider("endpoint: https://host/v1?key=SECRET"),
        provider("proxy: ftp://u:SECRET@host"),
        provider("timeouts: { idle: '${S}' }"),
        "server: { port: '${S}' }\n" + ONE,
        "auth: { mode: '${S}' }\n" + ONE,
        f"clients: [{{ name: a, key_hash: SECRET }}]\n{ONE}",
        "state: '${S}'\n" + ONE,
        "storage: { url: 'postgresql+psycopg://u:SECRET@h/db' }\n" + ONE,
        "storage: { url: 'postgresql://u:@SECRET@h/db' }\n" + ONE,
        "storage: { url: 'postgresql://u:/SECRET@h/db' }\n" + ONE,
        "storage: { url: 'postgresql://u:SECRET ?@h/db' }\n" + ONE,
        "storage: { url: 'postgresql://u@h/db?password=SECRET' }\n" + ONE,
        "storage: { url: 'postgresql://u@h/db?sslmode=SECRET#' }\n" + ONE,
    ],
)
def test_no_error_repeats_a_secret(text: str) -> None:
    assert "SECRET" not in str(fault(text, {"S": "SECRET"}))


# ---------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("text", "line", "path", "words"),
    [
        ("provider: {}\n", 1, "provider", 'unknown key; did you mean "providers"'),
        ("server:\n  prot: 1\n", 2, "server.prot", 'unknown key; did you mean "port"'),
        ("port: 1\n", 1, "port", 'it belongs under "server"'),
        (provider("timeout: 3s"), 4, "providers.up.timeout", 'did you mean "timeouts"'),
        (provider("timeouts: { idel: 3s }"), 4, "providers.up.timeouts.idel", 'did you mean "idle"'),
        (provider("zzz: 1"), 4, "providers.up.zzz", "unknown key"),
        ("server: { port: http }\n", 1, "server.port", 'expected a whole number, got "http"'),
        ("server: { port: 8_080 }\n", 1, "server.port", 'expected a whole number, got "8_080"'),
        ("server: { port: '80' }\n", 1, "server.port", "expected a whole number"),
        ("server: { port: 0 }\n", 1, "server.port", "must be at least 1"),
        ("server: { port: 65536 }\n", 1, "server.port", "must be at most 65535"),
        ("server: { port: }\n", 1, "server.port", "expected a whole number, got nothing"),
        ("server: { drain: 30 }\n", 1, "server.drain", 'expected a duration like 15s, 250ms, 5m or 0, got "30"'),
        ("server: { drain: 1:30 }\n", 1, "server.drain", "expected a duration"),
        ("server: { drain: -1s }\n", 1, "server.drain", "expected a duration"),
        ("server: { workers: many }\n", 1, "server.workers", 'expected "auto" or a whole number, got "many"'),
        ("server: { workers: 0 }\n", 1, "server.workers", "must be at least 1"),
        ("server: { stream_failure: bang }\n", 1, "server.stream_failure", 'expected "abort", "both" or "event"'),
        ("server: { trusted_proxies: 10.0.0.0/8 }\n", 1, "server.trusted_proxies", "expected a list, got a string"),
        ("server: { trusted_proxies: [10.0.0.1/8] }\n" + ONE, 1, "server.trusted_proxies[0]", "expected a network"),
        ("server: { bind: example.com }\n" + ONE, 1, "server.bind", "expected an IP address"),
        ("server: [1]\n", 1, "server", "expected a mapping, got a list"),
        ("limits: { body: 1 }\n", 1, "limits.body", "must be at least 1KiB"),
        ("limits: { body: 32 MiB }\n", 1, "limits.body", "expected a size like 64KiB"),
        ("telemetry: { metrics: yes }\n", 1, "telemetry.metrics", 'expected true or false, got "yes"'),
        ("- a\n", 1, "", "expected a mapping, got a list"),
        ("hello\n", 1, "", "expected a mapping, got a string"),
        ("providers: { }\n", 1, "providers", "at least one provider"),
        ("auth: { mode: none }\n", None, "providers", "at least one provider"),
        ("providers: { up: { key: x } }\n", 1, "providers.up", '"type" is missing'),
        ("providers: { up: }\n", 1, "providers.up", "expected a mapping, got nothing"),
        ("providers: { up: { type: openia } }\n", 1, "providers.up.type", 'got "openia"'),
        ("providers: { up: { type: decisions } }\n", 1, "providers.up.type", '"decisions" is not built yet'),
        ("providers: { a/b: { type: ollama } }\n", 1, 'providers."a/b"', "a name is"),
        ("providers: { up: { type: bedrock } }\n", 1, "providers.up.region", "AWS's region is missing; write it, or"),
        ("providers: { up: { type: bedrock, region: Mars } }\n", 1, "providers.up.region", "expected a region like us"),
        (provider("region: us-east-1"), 4, "providers.up.region", "only bedrock is AWS's; openai has none"),
        (provider("access_key_id: a"), 4, "providers.up.access_key_id", "only bedrock is AWS's"),
        (bedrock("access_key_id: a"), 1, "providers.up.secret_access_key", "an access key is an id and its secret"),
        (bedrock("secret_access_key: a"), 1, "providers.up.access_key_id", "an access key is an id and its secret"),
        (bedrock("session_token: a"), 1, "providers.up.access_key_id", "an access key is an id and its secret"),
        (bedrock("key: k, access_key_id: a"), 1, "providers.up.access_key_id", "give either a key"),
        (bedrock("access_key_id: a, secret_access_key: 'b c'"), 1, "providers.up", "visible ASCII without spaces"),
        (bedrock("models: [{ id: m, api: chat }]"), 1, "providers.up.models[0].api", "bedrock has no chat"),
        (
            bedrock("models: [{ id: m, api: chat }]").replace(
                "bedrock, region: us-east-1", "vertex, project: my-project"
            ),
            1,
            "providers.up.models[0].api",
            "vertex has no chat",
        ),
        (provider("models: [{ id: m, api: converse }]"), 4, "providers.up.models[0].api", "openai has no converse"),
        ("providers: { up: { type: vertex } }\n", 1, "providers.up", '"project" is missing'),
        ("providers: { up: { type: vertex, project: A_b } }\n", 1, "providers.up.project", "expected a project's id"),
        (
            "providers: { up: { type: vertex, project: p, location: 'x/y' } }\n",
            1,
            "providers.up.location",
            "expected a region",
        ),
        ("providers: { up: { type: openai, project: p } }\n", 1, "providers.up.project", "only vertex has this"),
        ("providers: { up: { type: azure } }\n", 1, "providers.up.endpoint", "an Azure resource needs one, as in"),
        (provider("api_version: '2024-10-21'"), 4, "providers.up.api_version", "only azure has versions; openai has"),
        (
            "providers: { up: { type: azure, endpoint: 'https://a.test', api_version: v1 } }\n",
            1,
            "providers.up.api_version",
            "expected a version like 2024-10-21",
        ),
        (provider("models: [on]"), 4, "providers.up.models[0]", "expected a string, got true/false; put quotes"),
        (provider("models: [4.1]"), 4, "providers.up.models[0]", "expected a string, got a number; put quotes"),
        (provider("models: [a, a]"), 4, "providers.up.models[1]", "listed twice"),
        (provider("models: ['']"), 4, "providers.up.models[0]", "a model name is"),
        (provider("models: [{ upstream: x }]"), 4, "providers.up.models[0]", '"id" is missing'),
        (provider("models: [[x]]"), 4, "providers.up.models[0]", "expected a name or a mapping, got a list"),
        (provider("key: a\n    key_file: b"), 5, "providers.up.key_file", "give either key or key_file"),
        (provider("key: a\n    key: b"), 5, "providers.up.key", "given twice (first on line 4)"),
        (provider("key: ${NOPE}"), 4, "providers.up.key", "NOPE is not set; set it, or write ${NOPE:-default}, or rem"),
        (provider("key: ${no-pe}"), 4, "providers.up.key", "neither ${NAME} nor"),
        (provider("key: ${A:-${B}}"), 4, "providers.up.key", "neither ${NAME} nor"),
        (provider("key: ${A"), 4, "providers.up.key", "neither ${NAME} nor"),
        (provider("endpoint: htps://x"), 4, "providers.up.endpoint", 'did you mean "https"'),
        (provider("endpoint: ftp://x"), 4, "providers.up.endpoint", "expected a URL with http, https or unix"),
        (provider("endpoint: https://"), 4, "providers.up.endpoint", "expected a host"),
        (provider("endpoint: https://h:99999"), 4, "providers.up.endpoint", "host or port"),
        (provider("endpoint: https://h:x"), 4, "providers.up.endpoint", "host or port"),
        (provider("endpoint: 'https://h/a b'"), 4, "providers.up.endpoint", "without spaces"),
        (provider("endpoint: https://h/v1?a=b"), 4, "providers.up.endpoint", "no query"),
        (provider("endpoint: https://h/v1#"), 4, "providers.up.endpoint", "no query"),
        (provider("endpoint: https://u@h/v1"), 4, "providers.up.endpoint", "no credentials"),
        (provider("endpoint: unix:rel.sock"), 4, "providers.up.endpoint", "unix:///absolute"),
        (provider("http: 3"), 4, "providers.up.http", 'expected "1.1" or "2"'),
        (provider("http: 2\n    endpoint: unix:///a.sock"), 4, "providers.up.http", "unix sockets"),
        ("providers:\n  up:\n    type: echo\n    http: 2\n", 4, "providers.up.http", "no connection"),
        (provider("host: 'a b'"), 4, "providers.up.host", "expected a host name"),
        (provider("proxy: ftp://x"), 4, "providers.up.proxy", "begins with http://"),
        (provider("proxy: http://x/path"), 4, "providers.up.proxy", "no path"),
        (provider("tls: { ca: missing.pem }"), 4, "providers.up.tls.ca", "cannot be read"),
        (provider("tls: { key: k.pem }"), 4, "providers.up.tls.key", "needs its certificate"),
        (provider("headers: { Host: x }"), 4, "providers.up.headers.Host", "use host:"),
        (provider("headers: { 'a b': x }"), 4, 'providers.up.headers."a b"', "not the name of a header"),
        (provider("forward_headers: [Authorization]"), 4, "providers.up.forward_headers[0]", "never forwarded"),
        (provider("endpoint: api.openai.com"), 4, "providers.up.endpoint", "write https:// (or http://) in front"),
        (provider("endpoint: localhost:8000/v1"), 4, "providers.up.endpoint", "write https:// (or http://) in front"),
        (provider("retry: { attempts: 0 }"), 4, "providers.up.retry.attempts", "must be at least 1"),
        (provider("retry: { attempts: 101 }"), 4, "providers.up.retry.attempts", "must be at most 100"),
        (provider("retry: { before_fallback: 0 }"), 4, "providers.up.retry.before_fallback", "must be at least 1"),
        (provider("retry: { accepted_timeout: 11 }"), 4, "providers.up.retry.accepted_timeout", "must be at most 10"),
        (provider("retry: { budget: 10 }"), 4, "providers.up.retry.budget", "expected a duration"),
        (provider("retry: { max_retries: 1 }"), 4, "providers.up.retry.max_retries", 'it is called "attempts" here'),
        (provider("retry: { base: 10s }"), 4, "providers.up.retry.base", "retry.cap (8s) is below retry.base (10s)"),
        (provider("retry: { base: 0 }"), 4, "providers.up.retry.base", "again at once; write 10ms or more"),
        (provider("retry: { cap: 0 }"), 4, "providers.up.retry.cap", "retry.cap (0) is below retry.base (250ms)"),
        (provider("retries: 3"), 4, "providers.up.retries", 'it is called "retry" here'),
        (provider("limits: { rpm: 3 }"), 4, "providers.up.limits.rpm", 'it is called "requests_per_minute" here'),
        (provider("limits: { requests_per_day: -1 }"), 4, "providers.up.limits.requests_per_day", "at least 0"),
        (provider("speechless: ask"), 4, "providers.up.speechless", 'expected "flag" or "nudge", got "ask"'),
        (provider("cache_ttl: 1"), 4, "providers.up.cache_ttl", "expected a duration"),
        ("session_affinity: { header: Host }\n" + ONE, 1, "session_affinity.header", "belongs to the connection"),
        ("session_affinity: { header: 'a b' }\n" + ONE, 1, "session_affinity.header", "not the name of a header"),
        (
            "session_affinity: { no_pin: [titel] }\n",
            1,
            "session_affinity.no_pin[0]",
            '"title" or "workflow", got "titel"',
        ),
        (titles("fats"), 1, "sessions.titles.alias", 'there is no alias "fats"; did you mean "fast"?'),
        (titles("gpt"), 1, "sessions.titles.alias", 'there is no alias "gpt"'),
        (titles("fast") + "storage: { url: none }\n", 1, "sessions.titles.alias", "nothing is kept"),
        ("sessions: { titles: { model: m } }\n" + ONE, 1, "sessions.titles.model", 'it is called "alias" here'),
        ("sessions: { titles: { per_day: 0 } }\n" + ONE, 1, "sessions.titles.per_day", "must be at least 1"),
        (
            "providers: { up: { type: ollama, auto_models: on } }\n",
            1,
            "providers.up.auto_models",
            "declare its models",
        ),
        (provider("auth: oauth"), 4, "providers.up.auth", "needs oauth.token_url"),
        (provider("auth: oauth\n    oauth: { token_url: 'https://v.test/t' }"), 5, "providers.up.oauth", "client_id"),
        (oauth("token_url: 'http://v.test/t'"), 5, "providers.up.oauth.token_url", "secrets go there"),
        (oauth("token_url: 'ftp://v.test/t'"), 5, "providers.up.oauth.token_url", "expected https://"),
        (oauth("token_url: 'https://u:p@v.test/t'"), 5, "providers.up.oauth.token_url", "no credentials"),
        (oauth("token_url: 'https://v.test/a b'"), 5, "providers.up.oauth.token_url", "without spaces"),
        (oauth("device_url: 'http://v.test/d'"), 5, "providers.up.oauth.device_url", "secrets go there"),
        (oauth("authorize_url: 'https://v.test/a'"), 5, "providers.up.oauth.authorize_url", "needs redirect_uri"),
        (oauth("token_endpoint: x"), 5, "providers.up.oauth.token_endpoint", "token_url"),
        (oauth("") + "    key: sk-1\n", 6, "providers.up.key", "the login is sent"),
        (
            "sessions: { titles: { alias: t } }\nproviders: { up: { type: anthropic, auth: passthrough } }\n"
            "aliases: { t: { pin: up/x } }\n",
            1,
            "sessions.titles.alias",
            "we have none of them",
        ),
        (provider("auth: subscription"), 4, "providers.up.auth", "passthrough"),
        (provider("auth: passthrough\n    key: sk-1"), 5, "providers.up.key", "the caller's own credential is sent"),
        (provider("auth: passthrough\n    relay: rebuild"), 5, "providers.up.relay", "as it is"),
        (provider("auth: passthrough\n    speechless: nudge"), 5, "providers.up.speechless", "as it is"),
        (provider("auth: passthrough\n    responses_api: transcode"), 5, "providers.up.responses_api", "as it is"),
        (
            provider("auth: passthrough\n    headers: { X-Api-Key: x }"),
            5,
            "providers.up.headers.X-Api-Key",
            "the caller's own to send",
        ),
        ("providers: { up: { type: ollama, auth: passthrough } }\n", 1, "providers.up.auth", "no logins"),
        (provider("forward_headers: [X-Arbiter-Label]"), 4, "providers.up.forward_headers[0]", "goes no further"),
        (provider('forward_headers: ["x-arbiter-*"]'), 4, "providers.up.forward_headers[0]", "goes no further"),
        (provider("forward_headers: [TE]"), 4, "providers.up.forward_headers[0]", "belongs to the connection"),
        (provider("forward_headers: [accept-encoding]"), 4, "providers.up.forward_headers[0]", "says this itself"),
        (embed("alias: nera"), 1, "search.embed.alias", 'there is no alias "nera"; did you mean "near"?'),
        (embed("alias: up/gpt"), 1, "search.embed.alias", 'there is no alias "up/gpt"'),
        (embed("alias: near") + "storage: { url: none }\n", 1, "search.embed.alias", "nothing is kept"),
        (embed("model: near"), 1, "search.embed.model", 'it is called "alias" here'),
        (embed("alias: near, per_day: 0"), 1, "search.embed.per_day", "must be at least 1"),
        (embed("alias: near, dimensions: 5000"), 1, "search.embed.dimensions", "at most 4096"),
        (provider("base_url: https://h/v1"), 4, "providers.up.base_url", 'it is called "endpoint" here'),
        (provider("url: https://h/v1"), 4, "providers.up.url", 'it is called "endpoint" here'),
        (provider("api_base: https://h/v1"), 4, "providers.up.api_base", 'it is called "endpoint" here'),
        (provider("api_key: x"), 4, "providers.up.api_key", 'it is called "key" here'),
        (provider("max_output_tokens: 1"), 4, "providers.up.max_output_tokens", "it stands with a model: `models: [{"),
        (provider("models: [{ name: x }]"), 4, "providers.up.models[0].name", 'it is called "id" here'),
        (provider("models: [{ model: x }]"), 4, "providers.up.models[0].model", 'it is called "id" here'),
        (
            provider("models: [{ id: x, output_usd_per_mtok: 1 }]"),
            4,
            "providers.up.models[0].output_usd_per_mtok",
            "prices stand at the top level: `models: [{ model: provider/model,",
        ),
        (provider("models: gpt"), 4, "providers.up.models", "expected a list, got a string; write [gpt]"),
        ("providers: { up: { type: claude } }\n", 1, "providers.up.type", 'got "claude"; did you mean "anthropic"?'),
        (provider("endpoint: https://h/v1/chat/completions"), 4, "providers.up.endpoint", "before /chat/completions,"),
        (provider("endpoint: https://h/v1/responses/"), 4, "providers.up.endpoint", "before /responses, which Arbiter"),
        (provider("endpoint: unix:///s.sock:/v1/messages"), 4, "providers.up.endpoint", "ends before /messages"),
        (ONE + "budgets: []\n", 2, "budgets", "not built yet"),
        (ONE + "models: [gpt]\n", 2, "models[0]", "expected a mapping, got a string"),
        (ONE + "models:\n- { input_usd_per_mtok: 1 }\n", 3, "models[0]", '"model" is missing'),
        (ONE + "models:\n- { model: up/gpt }\n", 3, "models[0]", "at least one …_usd_per_mtok is needed"),
        (ONE + PRICED.format("up/gtp"), 3, "models[0].model", 'up declares no model "gtp"; did you mean "up/gpt"?'),
        (ONE + PRICED.format("pu/gpt"), 3, "models[0].model", 'expected provider/model, and "pu/gpt" is none; did'),
        (ONE + PRICED.format("gpt"), 3, "models[0].model", 'and "gpt" is none; did you mean "up/gpt"?'),
        (ONE + PRICED.format("up/"), 3, "models[0].model", "expected provider/model"),
        (ONE + PRICED.format("up/gpt") + "- { model: up/gpt, output_usd_per_mtok: 1 }\n", 4, "models[1].model", "alr"),
        (ONE + PRICED.format("up/gpt, input_cost_per_mtok: 1"), 3, "models[0].input_cost_per_mtok", "unknown key; did"),
        (
            ONE + PRICED.format("up/gpt, cache_read_usd_per_mtok: 1"),
            3,
            "models[0].cache_read_usd_per_mtok",
            'did you mean "cached_input_usd_per_mtok"?',
        ),
        (ONE + PRICED.format("up/gpt, max_output_tokens: 1"), 3, "models[0].max_output_tokens", "the provider's model"),
        (ONE + PRICED.format("up/gpt, output_usd_per_mtok: -1"), 3, "models[0].output_usd_per_mtok", 'got "-1"'),
        (ONE + PRICED.format("up/gpt, output_usd_per_mtok: 1e-3"), 3, "models[0].output_usd_per_mtok", "expected USD"),
        (
            ONE + PRICED.format("up/gpt, output_usd_per_mtok: 0.0000001"),
            3,
            "models[0].output_usd_per_mtok",
            "expected USD per million tokens like 1.25 (at most six decimals)",
        ),
        (ONE + PRICED.format("up/gpt, output_usd_per_mtok: 100001"), 3, "models[0].output_usd_per_mtok", "most 100000"),
        (ONE + PRICED.format("up/gpt, tiers: [{ input_usd_per_mtok: 1 }]"), 3, "models[0].tiers[0]", '"above_input_to'),
        (ONE + PRICED.format("up/gpt, tiers: [{ above_input_tokens: 9 }]"), 3, "models[0].tiers[0]", "no price stands"),
        (
            ONE + PRICED.format("up/gpt, tiers: [&t { above_input_tokens: 9, input_usd_per_mtok: 1 }, *t]"),
            3,
            "models[0].tiers[1]",
            "there is a tier above 9 already",
        ),
        (ONE + "routing: { rules: [] }\n", 2, "routing.rules", "not built yet"),
        (
            ONE + "routing: { default_provider: pu }\n",
            2,
            "routing.default_provider",
            "no such provider; valid here: up",
        ),
        (ONE + "aliases: { a: { pin: gtp } }\n", 2, "aliases.a.pin", 'did you mean "gpt"'),
        (
            ONE + "aliases: { a: { pin: up/gtp } }\n",
            2,
            "aliases.a.pin",
            'up declares no model "gtp"; did you mean "gpt"',
        ),
        (ONE + "aliases: { a: { pin: b }, b: { pin: a } }\n", 2, "aliases.b.pin", "point at each other: a → b → a"),
        (ONE + "aliases: { a: { pin: a } }\n", 2, "aliases.a.pin", "point at each other: a → a"),
        (
            ONE
            + "aliases: { "
            + ", ".join(f"a{n}: {{ pin: a{n + 1} }}" for n in range(40))
            + ", a40: { pin: gpt } }\n",
            2,
            "aliases.a7.pin",
            "more than 8 aliases",
        ),
        (ONE + "aliases: { up: { pin: gpt } }\n", 2, "aliases.up", "name of a provider"),
        (ONE + "aliases: { up/x: { pin: gpt } }\n", 2, 'aliases."up/x"', "read as provider/model"),
        (ONE + "state: valkey://h:1/0\n", 2, "state", "valkey:// is not built yet"),
        (ONE + "state: lmdb://host/x\n", 2, "state", "expected lmdb:///"),
        (ONE + "storage: { url: 'postgresql+psycopg://h/d' }\n", 2, "storage.url", "without the name of a driver"),
        (ONE + "storage: { url: 'postgresql://u:p/w@h/d' }\n", 2, "storage.url", "percent-encoded"),
        (ONE + "storage: { url: 'postgresql://u@h/d?password=x' }\n", 2, "storage.url", "no password behind the ?"),
        (ONE + "storage: { url: 'postgresql://u@h/d?sslmod=x' }\n", 2, "storage.url", 'did you mean "sslmode"'),
        (ONE + "storage: { url: 'sqlite://' }\n", 2, "storage.url", "expected sqlite:///"),
        (ONE + "storage: { rows_ttl: 5m }\n", 2, "storage.rows_ttl", "must be at least 1h"),
        (ONE + "storage: { rows_ttl: 0 }\n", 2, "storage.rows_ttl", "must be at least 1h"),
        (ONE + "storage: { rows_ttl: forever }\n", 2, "storage.rows_ttl", 'expected "never" or a duration'),
        (ONE + "plugins: [{ use: nonsense }]\n", 2, "plugins[0].use", "expected module:Class"),
        (
            ONE + "clients: [{ name: a, key: arb-x }]\n",
            2,
            "clients[0].key",
            "`arbiter keys new NAME --print` makes the pair",
        ),
        (
            ONE + f"clients: [{{ name: a, key_hash: 'sha256:{HASH[7:]}', expires: soon }}]\n",
            2,
            "clients[0].expires",
            "a moment",
        ),
        (
            ONE + f"clients: [{{ name: a, key_hash: '{HASH}', overrides: {{ x: nothing }} }}]\n",
            2,
            "clients[0].overrides.x",
            "neither an alias nor a model",
        ),
        (ONE + "clients: [{ name: a, key_hash: arb-x }]\n", 2, "clients[0].key_hash", "never the key itself"),
        (ONE + f"clients: [{{ name: a, key_hash: '{HASH[:-1]}' }}]\n", 2, "clients[0].key_hash", "expected sha256:"),
        (
            ONE + f"clients:\n- {{ name: a, key_hash: '{HASH}' }}\n- {{ name: b, key_hash: '{HASH}' }}\n",
            4,
            "clients[1].key_hash",
            "the key of a",
        ),
        (ONE + "admin: { token: 'a b' }\n", 2, "admin.token", "visible ASCII"),
        (ONE + "admin: { forward_auth_header: 'x y' }\n", 2, "admin.forward_auth_header", "not the name of a header"),
        ("a: [\n", 2, "", "a [ of line 1 is not closed"),
        ('a: { b: [\n "${X}",\n', 3, "", "a [ of line 1 is not closed"),
        ("a:\n  b: { c: 1\n", 3, "", "a { of line 2 is not closed"),
        ("a:\n  b: { c: 1\n  d: 2\n", 3, "", "a { of line 2 is not closed, or a comma is missing"),
        ("a:\n  b: { c: 1, d: [x]\n\ne:\n  f: 1\n", 4, "", "a { of line 2 is not closed, or a comma is missing"),
        ("a: { b: ${X_1}, c: 1 }\n", 1, "", 'write quotes around a variable: "${X_1}"'),
        ("a: [Bearer ${X:-y}]\n", 1, "", 'write quotes around a variable: "${X}"'),
        ("a: { b: ${!} }\n", 1, "", 'write quotes around a variable: "${NAME}"'),
        ("a: b: c\n", 1, "", "a second ':' on the line"),
        ("a:\n\tb: 1\n", 2, "", "indent with spaces"),
        ("a: @x\n", 1, "", "put quotes around it"),
        ("a: *x\n", 1, "", "without its anchor"),
        ("a: 1\n---\nb: 1\n", 2, "", "a configuration is one document"),
        ("? [a]\n: b\n", 1, "", "a key that is not a plain word"),
        ("a: \x01\n", 1, "", "a character that YAML does not allow"),
        ("server: &s { <<: *s }\n", 1, "server", "<< takes a mapping"),
        ("[" * 100 + "]" * 100, 1, "", "nested more than 32 levels"),
        ("", None, "", "the file is empty"),
        ("# only a comment\n", None, "", "the file is empty"),
        ("---\n", None, "", "the file is empty"),
    ],
)
def test_a_mistake_is_named_with_its_line_its_path_and_a_way_out(
    text: str, line: int | None, path: str, words: str
) -> None:
    error = fault(text)
    assert words in error.message
    assert (error.path, error.line) == (path, line)
    assert str(error).startswith(f"arbiter.yaml:{line}: " if line else "arbiter.yaml: ")


def test_a_cyclic_file_is_an_error_and_not_the_end() -> None:
    assert fault("providers: &p { up: *p }").path
    assert fault("clients: &c [*c]").path


def test_anchors_cannot_blow_a_small_file_up() -> None:
    lists = "\n".join(f"    - &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 12))
    assert fault(f"providers:\n  up:\n    type: openai\n    models:\n    - &l0 [x]\n{lists}\n")
    maps = "".join(f"m{i}: &m{i} {{ <<: [{', '.join([f'*m{i - 1}'] * 9)}] }}\n" for i in range(1, 12))
    assert fault(f"m0: &m0 {{ a: 1 }}\n{maps}server: {{ <<: *m11 }}\n")


def test_what_two_providers_share_may_be_written_once() -> None:
    text = (
        "providers:\n  a: &a { type: ollama, timeouts: { idle: 9s }, models: [x] }\n"
        "  b: { <<: *a, endpoint: 'http://h:1/v1', models: [y] }\n"
    )
    up = read(text).providers["b"]
    assert (up.budgets.idle_s, up.models, up.url) == (9, (Model("y", "y"),), "http://h:1/v1")


def test_a_section_without_content_is_a_section_with_defaults() -> None:
    assert read("clients:\naliases:\nserver:\n  # port: 1\n" + ONE).server.port == 8080


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\xff\xfea\x00", "not UTF-8"),
        (b"a: 1\nb: \xe9\n", r":2: .*not UTF-8"),
        (b"#" * (1 << 20) + b"#", "over 1 MiB"),
    ],
)
def test_a_file_that_is_no_utf8_text_says_so(tmp_path: Path, raw: bytes, words: str) -> None:
    (tmp_path / "a.yaml").write_bytes(raw)
    with pytest.raises(ConfigError, match=words):
        load(tmp_path / "a.yaml", {})


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbf" + ONE.encode())
    assert load(tmp_path / "a.yaml", {}).models
    assert read("\N{BYTE ORDER MARK}" + ONE).models


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="arbiter demo"):
        load(None, {})
    with pytest.raises(ConfigError, match=r"nope\.yaml: cannot be read: No such file"):
        load(None, {"ARBITER_CONFIG": "nope.yaml"})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})
    (tmp_path / "arbiter.yaml").write_text(ONE)
    assert load(None, {}).models


def test_a_source_can_be_asked_again(tmp_path: Path) -> None:
    source = Source(tmp_path / "a.yaml", {}, Flags(port=9))
    assert source.stamp() is None
    (tmp_path / "a.yaml").write_text(ONE)
    first, stamp = source.load(), source.stamp()
    (tmp_path / "a.yaml").write_text(ONE.replace("gpt", "gpt-other"))
    assert source.stamp() != stamp
    assert source.load().epoch != first.epoch and source.load().server.port == 9


# --------------------------------------------------------------------------------------------- warnings, places


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("providers: { up: { type: anthropic } }", "no key"),
        (provider("endpoint: http://llm.example/v1\n    key: k"), "unencrypted"),
        (ONE + "aliases: { gpt: { pin: up/gpt } }", "declared model, which wins"),
        (ONE + "auth: { mode: require }", "every request will be refused"),
        (ONE + f"auth: {{ mode: none }}\nclients: [{{ name: a, key_hash: '{HASH}' }}]", "are ignored"),
        (provider("endpoint: http://localhost:8000"), "live under /v1, as in"),
        (provider("key: k\n    prompt_cache: off"), "providers.up.prompt_cache: has no effect"),
        (provider("key: k\n    prompt_cache_ttl: 1h"), "providers.up.prompt_cache_ttl: has no effect"),
        (provider("key: k\n    attribution: keep"), "the line never leaves for openai"),
        (provider("key: $OPENAI_API_KEY"), "providers.up.key: begins with $ and is taken as it stands; an environment"),
        (ONE + "admin: { token: $ADMIN }", "admin.token: begins with $"),
        (ONE + "server: { bind: 0.0.0.0 }", "server.bind is 0.0.0.0 and auth.mode is attribute: whoever reaches"),
        (ONE + "server: { bind: '::' }\nauth: { mode: none }", "server.bind is :: and auth.mode is none: whoever"),
        (anthropic("responses_api: native"), "only providers of OpenAI's format have a choice"),
        (anthropic("prompt_cache: off, prompt_cache_ttl: 1h"), "with prompt_cache: off Arbiter sets no marks"),
        (anthropic("prompt_cache: client, prompt_cache_ttl: 1h"), "with prompt_cache: client Arbiter sets no marks"),
        (
            ONE + PRICED.format("up/gpt"),
            "models[0]: without cached_input_usd_per_mtok, output_usd_per_mtok; what uses such tokens has no known",
        ),
        (
            anthropic("models: [m]") + PRICED.format("up/m, cached_input_usd_per_mtok: 1, output_usd_per_mtok: 1"),
            "models[0]: without cache_write_5m_usd_per_mtok;",
        ),
    ],
)
def test_what_loads_and_is_probably_wrong_is_a_warning(text: str, words: str) -> None:
    (warning,) = read(text).warnings
    assert words in warning


@pytest.mark.parametrize(
    "text",
    [
        provider("endpoint: http://localhost:8000/v1"),
        anthropic("endpoint: https://h"),
        anthropic("prompt_cache: arbiter, prompt_cache_ttl: 1h, attribution: keep"),
        provider("key: k\n    relay: rebuild\n    attribution: drop"),
        "providers: { up: { type: echo, prompt_cache: arbiter, attribution: keep } }",
        ONE + PRICED.format("up/gpt, cached_input_usd_per_mtok: 0, output_usd_per_mtok: 0"),
    ],
)
def test_what_has_an_effect_is_no_warning(text: str) -> None:
    assert read(text).warnings == ()


@pytest.mark.parametrize(
    ("written", "url", "path"),
    [
        ("https://api.example/v1/", "https://api.example/v1", "/v1"),
        ("https://api.example", "https://api.example", ""),
        ("https://API.example:443/", "https://api.example", ""),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1", "/v1"),
        ("http://bücher.example", "http://xn--bcher-kva.example", ""),
        ("unix:///run/llm.sock:/v1/", "unix:///run/llm.sock:/v1", "/v1"),
        ("unix:///run/llm.sock", "unix:///run/llm.sock", ""),
    ],
)
def test_an_endpoint_loses_its_trailing_slash_and_nothing_else(written: str, url: str, path: str) -> None:
    up = read(provider(f"endpoint: '{written}'")).providers["up"]
    assert (up.url, up.endpoint.path) == (url, path)
    assert (up.endpoint.uds is not None) == written.startswith("unix")


@pytest.mark.parametrize(
    ("endpoint", "env", "proxy"),
    [
        ("https://api.example", {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ("https://api.example", {"https_proxy": "p"}, "http://p:80"),
        ("https://api.example", {"HTTP_PROXY": "http://p:3128"}, None),
        ("http://api.example", {"HTTP_PROXY": "socks5h://u:w@p"}, "socks5h://u:w@p:1080"),
        ("https://api.example", {"HTTPS_PROXY": "http://p", "NO_PROXY": "other,.example"}, None),
        ("https://api.example", {"HTTPS_PROXY": "http://p", "NO_PROXY": "xample"}, "http://p:80"),
        ("https://api.example", {"HTTPS_PROXY": "http://p", "NO_PROXY": "*"}, None),
        ("https://api.example:8443", {"HTTPS_PROXY": "http://p", "NO_PROXY": "api.example:443"}, "http://p:80"),
        ("https://api.example:8443", {"HTTPS_PROXY": "http://p", "NO_PROXY": "api.example:8443"}, None),
        ("http://10.1.2.3", {"HTTP_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://[fd00::1]", {"HTTP_PROXY": "http://p", "NO_PROXY": "fd00::/8"}, None),
        ("http://127.0.0.1:1", {"HTTP_PROXY": "http://p"}, None),
        ("http://localhost:1", {"HTTP_PROXY": "http://p"}, None),
        ("unix:///a.sock", {"HTTP_PROXY": "http://p"}, None),
    ],
)
def test_the_environments_proxy_is_used_as_other_programs_use_it(
    endpoint: str, env: dict[str, str], proxy: str | None
) -> None:
    assert read(provider(f"endpoint: '{endpoint}'"), env).providers["up"].endpoint.proxy == proxy


def test_a_providers_own_proxy_wins_and_none_is_none() -> None:
    env = {"HTTPS_PROXY": "http://p"}
    assert read(provider("proxy: socks5://q:1"), env).providers["up"].endpoint.proxy == "socks5://q:1"
    assert read(provider("proxy: none"), env).providers["up"].endpoint.proxy is None


def test_the_version_of_http_is_part_of_where_requests_go() -> None:
    """A number will do; endpoints that differ in it share no connection, configurations no epoch."""
    text = provider("http: VERSION").replace
    one, two = read(text("VERSION", "1.1")), read(text("VERSION", "2"))
    assert not one.providers["up"].endpoint.http2 and two.providers["up"].endpoint.http2
    assert one.providers["up"].endpoint == read(ONE).providers["up"].endpoint != two.providers["up"].endpoint
    assert two == read(text("VERSION", '"2"')) and one.epoch != two.epoch
    assert redacted(two)["providers"]["up"]["http"] == "2"


def test_trusted_proxies_are_networks() -> None:
    server = read("server: { trusted_proxies: [10.0.0.0/8, '::1'] }\n" + ONE).server
    assert server.trusted_proxies == (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1/128"))
    assert server.trusts("10.9.9.9") and server.trusts("::ffff:10.1.1.1") and server.trusts("::1")
    assert not server.trusts("11.0.0.1") and not server.trusts("unknown")


def test_an_epoch_is_short_and_the_same_for_the_same_file() -> None:
    assert re.fullmatch(r"[0-9a-f]{12}", read(ONE).epoch)
    assert read(ONE).epoch == read("# a comment\n" + ONE).epoch


def test_where_it_listens_is_no_part_of_the_epoch() -> None:
    """`arbiter check` names the epoch that `arbiter serve --port …` records."""
    elsewhere = Flags(bind="::1", port=9, workers=3)
    assert read(ONE).epoch == read(ONE, flags=elsewhere).epoch == read(ONE, flags=Flags(socket="/run/a.sock")).epoch
    assert read("server: { drain: 1s }\n" + ONE).epoch != read(ONE).epoch


def test_half_a_character_is_refused_where_it_stands() -> None:
    with pytest.raises(ConfigError) as refused:
        parse('providers:\n  up: { type: echo, models: ["\\ud800"] }\n', "c.yaml", {})
    assert (refused.value.line, "half a character" in str(refused.value)) == (2, True)


def test_a_secret_is_read_from_a_file_and_not_waited_for(tmp_path: Path) -> None:
    """A pipe that nobody writes to would hold the start up for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is not a file"):
        parse(f"providers: {{ up: {{ type: openai, key_file: {tmp_path}/pipe }} }}\n", "c.yaml", {})


def test_a_headers_budget_beside_one_for_the_first_event_is_warned_of():
    """They share one clock (SPEC 3.3), so the smaller of the two would surprise either way."""
    text = ONE.replace("models:", "timeouts: { headers: 2s, first_event: 3s }, models:", 1)
    found = parse(text, "t.yaml", {})
    assert any("timeouts" in warning and "first_event is set" in warning for warning in found.warnings)
