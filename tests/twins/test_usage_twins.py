"""Usage in every shape that providers report it, read into one convention; on both sides."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import usage as c_usage
from arbiter._speedups.py import usage as py_usage
from arbiter.model import Usage

VECTORS = sorted((Path(__file__).parents[1] / "vectors" / "usage").glob("*.json"))
FIELDS = Usage.__struct_fields__
READ = {
    "openai-chat": "chat",
    "anthropic-messages": "messages",
    "openai-responses": "responses",
    "google-gemini": "gemini",
}


def counts(**stated: int | str) -> tuple[int | str | None, ...]:
    return tuple(stated.get(field) for field in FIELDS)


class Vector(msgspec.Struct, forbid_unknown_fields=True):
    """A shape, byte for byte, and what it states; what is not named there is unknown."""

    source: str
    format: str
    counts: dict[str, int | str] | None
    usage: msgspec.Raw = msgspec.Raw()
    events: msgspec.Raw = msgspec.Raw()
    answer: msgspec.Raw = msgspec.Raw()


SHAPES = [path for path in VECTORS if "usage" in json.loads(path.read_bytes())]


def test_there_are_vectors() -> None:
    """An empty directory would pass every test below."""
    assert len(SHAPES) >= 50


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: path.stem)
def test_a_providers_shape_is_read(usage: ModuleType, path: Path) -> None:
    """Each vector says where its shape comes from, and what it states; compact or indented, it states the same."""
    vector = msgspec.json.decode(path.read_bytes(), type=Vector)
    read = getattr(usage, READ[vector.format])
    expected = counts(**vector.counts) if vector.counts is not None else None
    raw = bytes(vector.usage)
    assert read(raw) == expected
    assert read(msgspec.json.format(raw, indent=-1)) == expected
    assert read(raw.replace(b"{", '{"nöte":"ü",'.encode(), 1) if raw != b"{}" else raw) == expected


def test_googles_sound_and_tier_are_found_whatever_stands_around_them(usage: ModuleType) -> None:
    """An escape spells the same word; of a name that is there twice the last counts."""
    assert usage.gemini(b'{"promptTokensDetails":[{"modality":"\\u0041UDIO","tokenCount":5}]}') == counts(audio_input=5)
    assert usage.gemini(b'{"promptTokenCount":1,"promptTokenCount":2}') == counts(input=2)
    assert usage.gemini(b'{"promptTokenCount":2,"serviceTier":"STANDARD"}') == counts(input=2, service_tier="standard")
    assert usage.gemini(b'{"promptTokenCount":2,"cachedContentTokenCount":3}') == counts(cache_read=3)


def test_both_conventions_give_the_same_input(usage: ModuleType) -> None:
    """OpenAI counts cached tokens inside its prompt, Anthropic beside its input: one request, one truth (SPEC 9.1)."""
    inside = usage.chat(b'{"prompt_tokens":2006,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":1920}}')
    beside = usage.messages(b'{"input_tokens":86,"cache_read_input_tokens":1920,"output_tokens":3}')
    response = usage.responses(b'{"input_tokens":2006,"input_tokens_details":{"cached_tokens":1920},"output_tokens":3}')
    assert inside == beside == response == counts(input=86, cache_read=1920, output=3)


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"7", b'"x"', b"{", b'{"prompt_tokens":1', b'{"prompt_tokens":1}}', b"\xff", b'{"a":"\xff"}',
     b'{"a":' + b"[" * 100_000, b'{"prompt_tokens":12345678901234567890}', b'{"input_tokens":1e400}'],
)  # fmt: skip
def test_what_is_no_usage_is_none(usage: ModuleType, raw: bytes) -> None:
    """Nonsense in a usage costs the counts, never the answer."""
    assert usage.chat(raw) is None
    assert usage.messages(raw) is None
    assert usage.responses(raw) is None
    assert usage.gemini(raw) is None


def test_of_two_members_of_one_name_the_last_counts(usage: ModuleType) -> None:
    assert usage.chat(b'{"prompt_tokens":1,"prompt_tokens":2}') == counts(input=2)
    assert usage.messages(b'{"output_tokens":1,"\\u006futput_tokens":2}') == counts(output=2)


def test_later_counts_replace_earlier_ones_and_add_nothing(usage: ModuleType) -> None:
    """message_delta is cumulative; what it leaves out stays as message_start said it."""
    start = usage.messages(b'{"input_tokens":25,"cache_read_input_tokens":7,"output_tokens":1}')
    delta = usage.messages(b'{"output_tokens":15}')
    assert usage.merge_messages(start, delta) == counts(input=25, cache_read=7, output=15)
    assert usage.merge_messages(start, counts(input=0, output=2)) == counts(input=0, cache_read=7, output=2)
    assert usage.merge_messages(start, None) == start
    assert usage.merge_messages(None, delta) == delta
    assert usage.merge_messages(None, None) is None


@pytest.mark.parametrize(
    ("written", "pd"),
    [("0", 0), ("0.0", 0), ("-0.0", 0), ("0E+999999", 0), ("1", 10**12), ("0.1", 10**11), ("0.000000000001", 1),
     ("0.0000000000004", 0), ("0.0000000000006", 1), ("1e-400000", 0), ("1.5E-3", 1_500_000_000),
     ("123456.789012345678", 123456789012345678), ("9223372.036854775807", 2**63 - 1), ("9223372.036854775808", None),
     ("1e7", None), ("1e400000", None), ("1e99999999999999999999", None), ("-1", None), ("-0.5", None),
     ("true", None), ('"1"', None), ("null", None), ("[]", None)],
)  # fmt: skip
def test_a_cost_is_exact_and_a_stated_zero_is_a_cost(usage: ModuleType, written: str, pd: int | None) -> None:
    """SPEC 9.3: money is an integer, and no float stands between its text and it."""
    for read in (usage.chat, usage.messages, usage.responses):
        found = read(b'{"input_tokens":1,"output_tokens":1,"cost":%b}' % written.encode())
        assert found == counts(input=1, output=1) if pd is None else found == counts(input=1, output=1, cost_pd=pd)


@pytest.mark.parametrize("digits", [4000, 5000])
def test_a_number_of_any_length_costs_no_answer(usage: ModuleType, digits: int) -> None:
    """Python refuses to read integers of more than 4300 digits."""
    for name in ("cost", "total_tokens", "cost_in_usd_ticks"):
        found = usage.chat(b'{"prompt_tokens":1,"completion_tokens":1,"%b":%b}' % (name.encode(), b"9" * digits))
        assert found in (None, counts(input=1, output=1))


NUMBERS = st.sampled_from([0, 1, 2, 3, 10, 10**15 - 1, 10**15, -1, 1.0, 1.5, None, True, "1", [], {}, "\ud83c", 1e300])
MONEY = NUMBERS | st.sampled_from([0.1, 0.000123, 1e-7, 1234567.25, 12345678.5, 0.1234567890123456789, -0.5])
WRITES = st.dictionaries(st.sampled_from(["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens", "x"]), NUMBERS)
DETAILS = st.dictionaries(
    st.sampled_from(
        [
            "cached_tokens",
            "cache_write_tokens",
            "cache_creation_tokens",
            "cache_creation_input_tokens",
            "reasoning_tokens",
            "thinking_tokens",
            "audio_tokens",
            "total_cost",
            "upstream_inference_cost",
            "x",
        ]
    ),
    NUMBERS,
    max_size=4,
)
USAGES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "reasoning_tokens",
             "cache_read_input_tokens", "cache_creation_input_tokens", "prompt_cache_hit_tokens", "cached_tokens", "x"),
            NUMBERS,
        ),
        "prompt_tokens_details": st.fixed_dictionaries({}, optional={"cache_creation": WRITES}) | DETAILS | NUMBERS,
        "completion_tokens_details": DETAILS | NUMBERS,
        "input_tokens_details": st.fixed_dictionaries({}, optional={"cache_creation": WRITES}) | DETAILS | NUMBERS,
        "output_tokens_details": DETAILS | NUMBERS,
        "cache_creation": WRITES | NUMBERS,
        "cost": DETAILS | MONEY,
        "cost_details": DETAILS | MONEY,
        "estimated_cost": MONEY,
        "cost_in_usd_ticks": NUMBERS,
        "is_byok": st.booleans() | NUMBERS,
        "service_tier": st.sampled_from(["standard", "", "x" * 64, "x" * 65, "ü", 'a"b', None, 1]),
    },
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(value=USAGES, indent=st.sampled_from([None, 1]), escape=st.booleans())
def test_the_twins_agree_on_any_object(value: dict[str, Any], indent: int | None, escape: bool) -> None:
    """Likely names with unlikely values; no count is ever negative or a bool."""
    raw = json.dumps(value, indent=indent, ensure_ascii=escape).encode("utf-8", "replace")
    for read in ("chat", "messages", "responses"):
        result = getattr(c_usage, read)(raw)
        assert result == getattr(py_usage, read)(raw)
        assert result is None or all(count is None or (type(count) is int and count >= 0) for count in result[:-1])


@settings(deadline=None, max_examples=200)
@given(raw=st.binary(max_size=60) | st.text('{}[]:,"\\0123456789.eE+- prompt_tokens', max_size=60).map(str.encode))
def test_the_twins_agree_on_noise(raw: bytes) -> None:
    for data in (raw, b'{"prompt_tokens":' + raw + b"}", b'{"prompt_tokens":1,"a":' + raw + b"}"):
        assert c_usage.chat(data) == py_usage.chat(data)
        assert c_usage.messages(data) == py_usage.messages(data)
        assert c_usage.responses(data) == py_usage.responses(data)
        assert c_usage.gemini(data) == py_usage.gemini(data)


STATED = st.none() | st.integers(0, 9)
COUNTS = st.none() | st.tuples(*[STATED] * 11, st.none() | st.just("standard"))


@settings(deadline=None, max_examples=100)
@given(start=COUNTS, delta=COUNTS)
def test_the_twins_merge_alike(start: Any, delta: Any) -> None:
    assert c_usage.merge_messages(start, delta) == py_usage.merge_messages(start, delta)
