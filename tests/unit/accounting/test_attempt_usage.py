"""The usage of an attempt, from what a tap kept of its answer."""

from __future__ import annotations

from arbiter.accounting import usage
from arbiter.model import Usage


def test_a_chat_prompt_counts_what_was_cached_and_ours_does_not() -> None:
    """SPEC 9.1: `input` excludes cache reads and writes everywhere inside."""
    details = b'"prompt_tokens_details":{"cached_tokens":1920}'
    raw = b'{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,' + details + b"}"
    assert usage.chat(raw) == Usage(input=86, cache_read=1920, output=300, total=2306)


def test_the_two_reports_of_a_message_stream_are_merged_not_added() -> None:
    start = b'{"input_tokens":13,"cache_read_input_tokens":7,"output_tokens":1}'
    delta = b'{"output_tokens":5}'
    assert usage.messages(start, delta) == Usage(input=13, cache_read=7, output=5)
    assert usage.messages(start) == Usage(input=13, cache_read=7, output=1)
    assert usage.messages(None, delta) == Usage(output=5)


def test_a_compaction_is_billed_and_an_adviser_is_another_models() -> None:
    """Anthropic leaves both out of its counts; the first one costs what the model costs."""
    compaction = b'{"type":"compaction","input_tokens":180000,"cache_read_input_tokens":7,"output_tokens":3500}'
    adviser = b'{"type":"advisor_message","model":"x","input_tokens":5,"output_tokens":5}'
    raw = b'{"input_tokens":23000,"output_tokens":1000,"iterations":[%b,%b,{"type":"message","input_tokens":23000}]}'
    whole = raw % (compaction, adviser)
    expected = Usage(input=203000, cache_read=7, output=4500)
    assert usage.messages(whole) == expected
    assert usage.messages(b'{"input_tokens":1,"output_tokens":1}', whole) == expected
    for odd in (b'{"type":"compaction"}', b'{"type":"compaction","input_tokens":-1}', b'7,"compaction"', b'{"type":7}'):
        assert usage.messages(raw % (odd, adviser)) == Usage(input=23000, output=1000)


def test_nothing_reported_is_nothing_known() -> None:
    """Unknown is NULL, never 0."""
    assert usage.chat(None) is None and usage.messages(None, None) is None
    assert usage.chat(b"[]") is None and usage.chat(b'"x"') is None


def test_the_source_says_how_far_the_counts_go() -> None:
    """SPEC 9.2: a stream that died told its input at most."""
    whole = Usage(input=13, output=5)
    assert usage.source(whole, finished=True) == "provider"
    assert usage.source(whole, finished=False) == "partial"
    assert usage.source(Usage(output=5), finished=True) == "partial"
    assert usage.source(None, finished=True) == usage.source(Usage(), finished=True) == "missing"
