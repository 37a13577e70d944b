"""`storage.capture`: off unless somebody wants it, and no pattern that could keep a process busy for ever."""

from __future__ import annotations

from typing import Any

import pytest

from arbiter.config.load import ConfigError, parse
from arbiter.config.snapshot import Capture, Snapshot


def snapshot(capture: str, storage: str = "") -> Snapshot:
    return parse(f"providers: {{ a: {{ type: echo }} }}\nstorage: {{ {storage} capture: {{ {capture} }} }}", "t", {})


def test_by_default_nothing_is_kept() -> None:
    made = parse("providers: { a: { type: echo } }", "t", {}).storage.capture
    assert made == Capture() and not made.is_on
    assert (made.content, made.headers, made.ttl_s, made.max) == (False, False, 72 * 3600, 256 << 20)


def test_each_setting_arrives() -> None:
    text = "content: true, headers: true, ttl: 0, redact: ['\\d{3}'], preview_chars: 32768, max: 1MiB"
    capture = snapshot(text).storage.capture
    assert capture == Capture(True, True, 0, (r"\d{3}",), 32_768, 1 << 20)


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("preview_chars: 32769", "32768"),
        ("max: 1KiB", "1MiB"),
        ("redact: ['(']", "not a regular expression"),
        ("redact: ['a*']", "matches everywhere"),
        ("redact: ['(a+)+']", "can take for ever"),
        ("redact: ['(?:x[a-z]*)*y']", "can take for ever"),
        ("enabled: true", 'it is called "content" here'),
    ],
)
def test_what_cannot_work_is_an_error(setting: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        snapshot(setting)
    assert fault in str(refused.value)


@pytest.mark.parametrize("pattern", [r"\d{3}-\d{2}", "(?:abc)+", "(?:a++b)+", "[A-Z]{2,}", "(secret|token)=.+"])
def test_usual_patterns_are_let_through(pattern: str) -> None:
    written: dict[str, Any] = {"redact": [pattern]}
    assert snapshot(f"redact: ['{written['redact'][0]}']").storage.capture.redact == (pattern,)


def test_capture_without_a_store_is_a_warning() -> None:
    made = snapshot("content: true", "url: none,")
    assert any("nothing is captured" in warning for warning in made.warnings)


def test_search_is_off_by_default_and_has_one_switch() -> None:
    base = "providers: { a: { type: echo } }\n"
    assert not parse(base, "t", {}).search.index
    assert parse(base + "search: { index: true }", "t", {}).search.index
    for wrong in ("enabled: true", "embed: some-alias", "embed: { model: some-alias }"):
        with pytest.raises(ConfigError):
            parse(base + f"search: {{ {wrong} }}", "t", {})
