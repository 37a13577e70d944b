"""Keys of a provider: one, a pool of them, or none; and none of them is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from arbiter.config.load import ConfigError, load, parse
from arbiter.config.redacted import redacted
from arbiter.config.snapshot import Account


def accounts(options: str, env: dict[str, str] | None = None) -> tuple[Account, ...]:
    text = f"providers:\n  up:\n    type: openai\n    {options}\n"
    return parse(text, "arbiter.yaml", env or {}).providers["up"].accounts


def test_a_provider_without_a_key_has_one_account_without_one() -> None:
    """So that nobody who walks the accounts has to ask whether there are any."""
    assert accounts("models: [m]") == (Account(None, ""),) == accounts("key: ''")


def test_one_key_is_an_account_without_a_label() -> None:
    assert accounts("key: a") == (Account(None, "a"),)


def test_a_pool_keeps_the_order_of_the_file_and_labels_by_place_what_has_no_label() -> None:
    pool = accounts("keys: [a, { label: team-b, key: b }, '${C}', { key: d }]", {"C": "c"})
    assert pool == (Account("key-1", "a"), Account("team-b", "b"), Account("key-3", "c"), Account("key-4", "d"))


def test_one_entry_is_a_pool_of_one_and_has_its_label() -> None:
    assert accounts("keys: [a]") == (Account("key-1", "a"),)


def test_a_pools_keys_may_stand_in_files(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("sk-1\n")
    config = tmp_path / "arbiter.yaml"
    config.write_text("providers: { up: { type: openai, keys: [{ label: one, key_file: one }, b] } }")
    assert load(config, {}).providers["up"].accounts == (Account("one", "sk-1"), Account("key-2", "b"))


@pytest.mark.parametrize(
    ("options", "line", "path", "words"),
    [
        ("key: SECRET\n    keys: [b]", 5, "providers.up.keys", "give either key or keys"),
        ("key_file: SECRET\n    keys: [b]", 5, "providers.up.keys", "give either key_file or keys"),
        ("keys: []", 4, "providers.up.keys", "an empty pool; list at least one key"),
        ("keys: SECRET", 4, "providers.up.keys", "expected a list, got a string"),
        ("keys: [[SECRET]]", 4, "providers.up.keys[0]", "expected a name or a mapping, got a list"),
        ("keys: [1234]", 4, "providers.up.keys[0]", "expected a string, got a value; put quotes around it"),
        ("keys: [a, SECRET x]", 4, "providers.up.keys[1].key", "visible ASCII"),
        ("keys: [{ label: a }]", 4, "providers.up.keys[0]", '"key" or "key_file" is missing'),
        ("keys: [{ name: a, key: SECRET }]", 4, "providers.up.keys[0].name", 'it is called "label" here'),
        (
            "keys:\n    - { key: SECRET, key_file: b }",
            5,
            "providers.up.keys[0].key_file",
            "give either key or key_file",
        ),
        ("keys: [{ label: 'a b', key: SECRET }]", 4, "providers.up.keys[0].label", "a name is 1 to 64 letters"),
        ("keys: [{ label: '', key: SECRET }]", 4, "providers.up.keys[0].label", "a name is 1 to 64 letters"),
        (
            "keys:\n    - { label: a, key: SECRET }\n    - { label: a, key: SECRET2 }",
            6,
            "providers.up.keys[1]",
            'the label "a" is used twice',
        ),
        ("keys: [{ label: key-2, key: SECRET }, b]", 4, "providers.up.keys[1]", 'the label "key-2" is used twice'),
        ("keys: [{ label: a, key: SECRET }, SECRET]", 4, "providers.up.keys[1]", 'the same key as "a"'),
        ("keys: [a, '${NOPE:-}']", 4, "providers.up.keys[1]", "this key is empty; set it, or remove it"),
        ("keys: [a, '${NOPE}']", 4, "providers.up.keys[1]", "or remove it from the pool"),
        ("api_keys: [SECRET]", 4, "providers.up.api_keys", 'it is called "keys" here'),
    ],
)
def test_a_mistake_in_a_pool_is_named_and_no_key_is_repeated(options: str, line: int, path: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        accounts(options)
    assert words in caught.value.message and (caught.value.path, caught.value.line) == (path, line)
    assert "SECRET" not in str(caught.value)


def test_the_embedded_provider_takes_no_pool() -> None:
    with pytest.raises(ConfigError, match=r"providers\.up\.keys: the echo provider is built in"):
        parse("providers: { up: { type: echo, keys: [a] } }", "a", {})


def test_a_pool_is_shown_by_its_labels_and_is_part_of_the_epoch_by_them() -> None:
    text = "providers: {{ up: {{ type: openai, keys: [{{ label: a, key: {0}1 }}, {{ label: {1}, key: {0}2 }}] }} }}"
    one, other, renamed = (parse(text.format(*words), "a", {}) for words in (("S", "b"), ("T", "b"), ("S", "c")))
    shown = redacted(one)["providers"]["up"]
    assert shown["keys"] == [{"label": "a", "key": "***"}, {"label": "b", "key": "***"}] and "key" not in shown
    assert "S1" not in repr(one) and one.secrets() == {"S1", "S2"}
    assert one.epoch == other.epoch != renamed.epoch


def test_a_pool_crosses_the_network_as_one_key_does() -> None:
    text = "providers: {{ up: {{ type: openai, endpoint: '{0}', {1} }} }}"
    (warning,) = parse(text.format("http://llm.example/v1", "keys: [a, b]"), "a", {}).warnings
    assert "unencrypted" in warning
    assert parse(text.format("https://api.openai.com/v1", "keys: [a, b]"), "a", {}).warnings == ()
