"""Numbers of several workers are one set of numbers."""

from __future__ import annotations

import pytest

from arbiter.metrics import Metrics, render


def line(text: str, start: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith(start)]
    return found.rpartition(" ")[2]


def test_all_workers_are_added_up(tmp_path):
    for number in (1, 2):
        metrics = Metrics(tmp_path / f"metrics-{number}.bin")
        metrics.count("arbiter_requests_total", ("chat", "openai-chat", "ok", "200"), number)
        metrics.observe("arbiter_request_duration_seconds", ("chat",), 0.003)
        metrics.gauge("arbiter_open_streams", 5)
        metrics.flush()
    text = render(sorted(tmp_path.glob("*.bin")), "9")
    assert line(text, "arbiter_requests_total{") == "3"
    assert line(text, "arbiter_open_streams ") == "10"
    assert line(text, 'arbiter_request_duration_seconds_bucket{endpoint="chat",le="0.0025"}') == "0"
    assert line(text, 'arbiter_request_duration_seconds_bucket{endpoint="chat",le="0.005"}') == "2"
    assert line(text, "arbiter_request_duration_seconds_count{") == "2"


def test_a_worker_that_replaces_a_dead_one_goes_on_counting(tmp_path):
    """Counters never fall: Prometheus would read that as a restart of everything."""
    file = tmp_path / "metrics-1.bin"
    for _ in range(2):
        metrics = Metrics(file)
        metrics.count("arbiter_ledger_dropped_total")
        metrics.flush()
    assert line(render([file], "9"), "arbiter_ledger_dropped_total ") == "2"


def test_a_dead_workers_gauges_are_history(tmp_path):
    metrics = Metrics(tmp_path / "metrics-1.bin")
    metrics.gauge("arbiter_open_streams", 7)
    metrics._numbers.pid = 2**22 + 1  # beyond any pid
    metrics.flush()
    assert line(render([tmp_path / "metrics-1.bin"], "9"), "arbiter_open_streams ") == "0"


def test_hostile_label_values_stay_inside_their_quotes(tmp_path):
    metrics = Metrics(tmp_path / "metrics-1.bin")
    metrics.count("arbiter_repairs_total", ('a"b\\c\nd', "done"))
    metrics.flush()
    assert 'provider="a\\"b\\\\c\\nd"' in render([tmp_path / "metrics-1.bin"], "9")


def test_a_broken_file_counts_nothing_and_harms_nobody(tmp_path):
    (tmp_path / "metrics-1.bin").write_bytes(b"\xc1garbage")
    assert "arbiter_build_info" in render(tmp_path.glob("*.bin"), "9")


def test_attempts_and_requests_are_counted_in_all_their_series(tmp_path):
    """In one go, and as if each were counted for itself; also behind what a worker before had counted."""
    for _ in range(2):
        metrics = Metrics(tmp_path / "metrics-1.bin")
        metrics.attempted(("p", "ok", None, None), 3_000, (5, None, 0, 7))
        metrics.attempted(("p", "error", "timeout", "idle"), None, (None, 2, 3, None))
        metrics.settled(("chat", "openai-chat", "ok", 200), 3_000, None)
        metrics.settled(("chat", "openai-chat", "ok", 200), 3_000, 70)
        metrics.settled(("chat", "openai-chat", "cancelled", None), 1_000, 70)
        metrics.flush()
    text = render([tmp_path / "metrics-1.bin"], "9")
    series = {name: line(text, name) for name in ALL}
    assert series == ALL


def test_counts_beyond_64_bits_are_written_and_told(tmp_path):
    """An upstream may say that each of its answers took a quadrillion tokens: what others did is counted beside it."""
    files = [tmp_path / f"metrics-{number}.bin" for number in (1, 2)]
    for file in files:
        metrics = Metrics(file)
        metrics.attempted(("joker", "ok", None, None), None, (2**63, None, None, 2**64 - 1))
        metrics.attempted(("joker", "ok", None, None), None, (2**63, None, None, 2**64 - 1))
        metrics.count("arbiter_share_tokens_total", ("c", "joker", "m", "input"), 2**64)
        metrics.attempted(("p", "ok", None, None), None, (5, None, None, 7))
        metrics.flush()
    text = render(files, "9")
    assert line(text, 'arbiter_tokens_total{provider="p",type="output"}') == "14"
    assert int(line(text, 'arbiter_tokens_total{provider="joker",type="input"}')) == 2**65
    assert int(line(text, 'arbiter_tokens_total{provider="joker",type="output"}')) == pytest.approx(2**66)


ALL = {
    'arbiter_upstream_attempts_total{provider="p",outcome="ok",error_class="",phase=""}': "2",
    'arbiter_upstream_attempts_total{provider="p",outcome="error",error_class="timeout",phase="idle"}': "2",
    'arbiter_upstream_attempt_duration_seconds_count{provider="p"}': "2",
    'arbiter_tokens_total{provider="p",type="input"}': "10",
    'arbiter_tokens_total{provider="p",type="cached"}': "4",
    'arbiter_tokens_total{provider="p",type="cache_write"}': "6",
    'arbiter_tokens_total{provider="p",type="output"}': "14",
    'arbiter_requests_total{endpoint="chat",format="openai-chat",outcome="ok",status="200"}': "4",
    'arbiter_requests_total{endpoint="chat",format="openai-chat",outcome="cancelled",status=""}': "2",
    'arbiter_request_duration_seconds_count{endpoint="chat"}': "6",
    'arbiter_overhead_seconds_count{endpoint="chat"}': "4",
    'arbiter_overhead_seconds_bucket{endpoint="chat",le="0.0001"}': "4",
}
