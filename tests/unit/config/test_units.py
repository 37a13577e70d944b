"""Durations, sizes and prices: what they come to, and what is none."""

from __future__ import annotations

import pytest

from arbiter.config import units
from arbiter.config.load import ConfigError, parse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("15s", 15),
        ("5m", 300),
        ("25h", 90000),
        ("2d", 172800),
        ("0.0001ms", 0.000001),  # never rounded to 0, which would mean "no limit"
    ],
)
def test_a_duration_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert units.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "00", "-1s", "1 s", "1S", "s", "1.s", ".5s", "1e3s", "1h30m", "15s\n", "١s"])
def test_anything_else_is_no_duration(text: str) -> None:
    assert units.duration_s(text) is None


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1B", 1),
        ("64KiB", 65536),
        ("32MiB", 32 << 20),
        ("1GiB", 1 << 30),
        ("1.5MiB", 1572864),
        ("10KB", 10_000),
        ("10MB", 10**7),
        ("1GB", 10**9),
    ],
)
def test_a_size_is_bytes_or_has_its_unit(text: str, count: int) -> None:
    assert units.size_bytes(text) == count


@pytest.mark.parametrize("text", ["", "-1", "1K", "1M", "1 MiB", "1mib", "1.5", "0x10", "1_000", "64KiB\n", "٣"])
def test_anything_else_is_no_size(text: str) -> None:
    assert units.size_bytes(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0"), (0.25, "250ms"), (1.5, "1500ms"), (120, "120s"), (3600, "1h"), (90000, "25h")]
)
def test_a_duration_is_written_as_people_write_it(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text and units.duration_s(text) == seconds


@pytest.mark.parametrize(
    ("option", "most"), [("server: { drain: 400d }", "366d"), ("limits: { body: 999999999999999 }", "4096GiB")]
)
def test_what_no_timer_and_no_memory_could_hold_is_refused(option: str, most: str) -> None:
    with pytest.raises(ConfigError, match=f"must be at most {most}"):
        parse(f"{option}\nproviders: {{ e: {{ type: echo }} }}", "t", {})


@pytest.mark.parametrize(
    ("text", "pd"),
    [
        ("0", 0),
        ("3", 3_000_000),
        ("0.075", 75_000),
        ("0.30", 300_000),
        ("1.1", 1_100_000),  # in binary it is a little more
        ("0.000001", 1),
        ("100000", units.HIGHEST_PD),
    ],
)
def test_a_price_in_dollars_per_million_tokens_is_whole_picodollars_per_token(text: str, pd: int) -> None:
    assert units.price_pd(text) == pd
    assert units.price_pd(units.price(pd)) == pd


@pytest.mark.parametrize("text", ["", "-1", "1.", ".5", "1e-3", "$3", "1,5", "1_000", "0.0000001", "3\n", "٣", "inf"])
def test_anything_else_is_no_price(text: str) -> None:
    """A seventh decimal is not rounded away."""
    assert units.price_pd(text) is None


@pytest.mark.parametrize(("pd", "text"), [(0, "0"), (10_000_000, "10"), (300_000, "0.3"), (1, "0.000001")])
def test_a_price_is_written_as_it_would_be_in_the_file(pd: int, text: str) -> None:
    assert units.price(pd) == text


@pytest.mark.parametrize(("text", "number"), [("1", 1.0), ("2.5", 2.5), ("0.000001", 0.000001), ("007", 7.0)])
def test_a_number_is_above_nothing(text: str, number: float) -> None:
    assert units.number(text) == number and units.number(units.written(number)) == number


@pytest.mark.parametrize("text", ["", "0", "0.0", "-1", "1e3", ".5", "1.", "inf", "nan", "1\n", "1234567890", "١"])
def test_anything_else_is_no_number(text: str) -> None:
    assert units.number(text) is None
