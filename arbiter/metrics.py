"""Counters, gauges and histograms, kept per worker and added up when somebody looks.

Each worker keeps plain numbers in dictionaries and writes them to a small file of its own once a second; whoever
answers `/metrics` adds all files up. A worker that takes over a dead one's slot goes on from the dead one's file, so
that counters never fall; what a killed worker counted in its last second is lost.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

Labels = tuple[str, ...]

COUNTERS: dict[str, tuple[str, Labels]] = {
    "arbiter_requests_total": ("Requests settled.", ("endpoint", "format", "outcome", "status")),
    "arbiter_upstream_attempts_total": ("Upstream attempts ended.", ("provider", "outcome", "error_class", "phase")),
    "arbiter_tokens_total": ("Tokens as reported by upstreams.", ("provider", "type")),
    "arbiter_repairs_total": ("Declared repairs made to native streams.", ("provider", "repair")),
    "arbiter_affinity_total": ("Answers of pinned conversations, by what became of the pin.", ("outcome",)),
    "arbiter_empty_completions_total": ("Answers that ended well without text or call.", ("provider",)),
    "arbiter_cache_loss_tokens_total": ("Tokens lost of what was left in prompt caches.", ("cause",)),
    "arbiter_cost_usd_total": ("US dollars of attempts with a known cost, stored.", ("cost_source",)),
    "arbiter_share_attempts_total": ("Upstream attempts stored.", ("client", "provider", "model", "outcome")),
    "arbiter_share_tokens_total": ("Tokens of attempts that are stored.", ("client", "provider", "model", "type")),
    "arbiter_share_cost_usd_total": ("US dollars of attempts with a known cost.", ("client", "provider", "model")),
    "arbiter_ledger_dropped_total": ("Rows that could not be kept.", ()),
    "arbiter_ledger_stage_failures_total": ("Rows stored without what a stage should have added.", ("stage",)),
    "arbiter_capture_dropped_total": ("Requests whose content could not be kept.", ()),
    "arbiter_capture_cut_total": ("Requests whose answer was kept in part, or not at all, because of its size.", ()),
    "arbiter_config_reloads_total": ("Reloads of the configuration.", ("result",)),
}
HISTOGRAMS: dict[str, tuple[str, Labels]] = {
    "arbiter_request_duration_seconds": ("Arrival to settled.", ("endpoint",)),
    "arbiter_time_to_first_token_seconds": ("Arrival to the first upstream event of a stream.", ("provider",)),
    "arbiter_overhead_seconds": ("The gateway's own share of the time to the first byte.", ("endpoint",)),
    "arbiter_upstream_attempt_duration_seconds": ("One upstream attempt, send to end.", ("provider",)),
}
GAUGES: dict[str, str] = {
    "arbiter_open_streams": "Streams open to clients.",
    "arbiter_requests_in_flight": "Requests not yet settled.",
    "arbiter_journal_depth": "Rows waiting in the journal.",
    "arbiter_upstream_connections": "Connections open to upstreams.",
    "arbiter_cooldown_active": "Accounts that rest after a 429.",
    "arbiter_breakers_open": "Providers whose breaker is open.",
    "arbiter_pauses_active": "Pauses that an operator has set.",
    "arbiter_keys_refused": "Keys that their provider refused; they are left alone until a reload.",
}
BUCKETS_S = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip


TOKENS = ("input", "cached", "cache_write", "output")
"""Kinds of tokens, as `arbiter_tokens_total` names them."""


class _Attempts(msgspec.Struct, gc=False):
    """Attempts that ended alike: where they are counted, and what of them is not counted there yet."""

    labels: Labels
    provider: str
    took: list[float]
    ended: int = 0
    tokens: list[int] = msgspec.field(default_factory=lambda: [0] * len(TOKENS))


class _Requests(msgspec.Struct, gc=False):
    """The same of requests; `own` is there once one of them told its overhead."""

    labels: Labels
    took: list[float]
    own: list[float] | None = None
    ended: int = 0


class _Numbers(msgspec.Struct, array_like=True):
    """One worker's numbers, as written to its file."""

    pid: int = 0
    counters: dict[str, dict[Labels, float]] = msgspec.field(default_factory=dict)
    # per label set: one count per bucket, one above the last, then the sum in seconds
    histograms: dict[str, dict[Labels, list[float]]] = msgspec.field(default_factory=dict)
    gauges: dict[str, float] = msgspec.field(default_factory=dict)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Numbers).decode


class Metrics:
    """The numbers of one worker. `file` None keeps them in memory only (tests, the console)."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._written = b""
        self._numbers = _read(file) if file is not None else _Numbers()
        self._numbers.pid = os.getpid()
        self._numbers.gauges = {}
        # Floats, as Prometheus has them: whole numbers of an upstream that jokes (a quadrillion tokens an answer) would
        # come to be more than the file's 64 bits.
        self._counters = {name: defaultdict(float, self._numbers.counters.get(name, {})) for name in COUNTERS}
        self._numbers.counters.update(self._counters)
        self._histograms = {name: self._numbers.histograms.setdefault(name, {}) for name in HISTOGRAMS}
        self._attempts_total = self._counters["arbiter_upstream_attempts_total"]
        self._tokens_total = self._counters["arbiter_tokens_total"]
        self._requests_total = self._counters["arbiter_requests_total"]
        self._attempts: dict[tuple[str, str, str | None, str | None], _Attempts] = {}
        self._requests: dict[tuple[str, str, str, int | None], _Requests] = {}

    def count(self, name: str, labels: Labels = (), by: float = 1.0) -> None:
        """Add `by` to a counter of `COUNTERS`; `labels` are values in its declared order."""
        self._counters[name][labels] += by

    def observe(self, name: str, labels: Labels, seconds: float) -> None:
        """Add one duration to a histogram of `HISTOGRAMS`."""
        row = self._row(name, labels)
        row[bisect_left(BUCKETS_S, seconds)] += 1
        row[-1] += seconds

    def attempted(
        self,
        ended: tuple[str, str, str | None, str | None],
        total_us: int | None,
        tokens: tuple[int | None, int | None, int | None, int | None],
    ) -> None:
        """Count one attempt that `ended` so (provider, outcome, error class, phase of a time-out). `tokens`: as in
        `TOKENS`. Whoever counts the same again has the labels from the last time."""
        known = self._attempts.get(ended)
        if known is None:
            known = self._attempts[ended] = self._of_attempts(*ended)
        known.ended += 1
        if total_us is not None:
            seconds, took = total_us / 1e6, known.took
            took[bisect_left(BUCKETS_S, seconds)] += 1
            took[-1] += seconds
        sums = known.tokens
        input, cached, written, output = tokens
        if input:
            sums[0] += input
        if cached:
            sums[1] += cached
        if written:
            sums[2] += written
        if output:
            sums[3] += output

    def settled(self, ended: tuple[str, str, str, int | None], total_us: int, overhead_us: int | None) -> None:
        """Count one request that `ended` so (endpoint, format, outcome, status)."""
        known = self._requests.get(ended)
        if known is None:
            known = self._requests[ended] = self._of_requests(*ended)
        known.ended += 1
        seconds, took = total_us / 1e6, known.took
        took[bisect_left(BUCKETS_S, seconds)] += 1
        took[-1] += seconds
        if overhead_us is not None:
            own = known.own
            if own is None:
                own = known.own = self._row("arbiter_overhead_seconds", known.labels[:1])
            seconds = overhead_us / 1e6
            own[bisect_left(BUCKETS_S, seconds)] += 1
            own[-1] += seconds

    def _of_attempts(self, provider: str, outcome: str, error_class: str | None, phase: str | None) -> _Attempts:
        took = self._row("arbiter_upstream_attempt_duration_seconds", (provider,))
        return _Attempts((provider, outcome, error_class or "", phase or ""), provider, took)

    def _of_requests(self, endpoint: str, format_in: str, outcome: str, status: int | None) -> _Requests:
        labels = endpoint, format_in, outcome, str(status or "")
        return _Requests(labels, self._row("arbiter_request_duration_seconds", (endpoint,)))

    def _add_up(self) -> None:
        """Count what ended since the last time: to find a counter takes longer than to add to a number at hand."""
        for attempts in self._attempts.values():
            if attempts.ended:
                self._attempts_total[attempts.labels] += attempts.ended
                attempts.ended = 0
                for at, (kind, tokens) in enumerate(zip(TOKENS, attempts.tokens, strict=True)):
                    if tokens:
                        self._tokens_total[attempts.provider, kind] += tokens
                        attempts.tokens[at] = 0
        for requests in self._requests.values():
            if requests.ended:
                self._requests_total[requests.labels] += requests.ended
                requests.ended = 0

    def _row(self, name: str, labels: Labels) -> list[float]:
        series = self._histograms[name]
        row = series.get(labels)
        if row is None:
            row = series[labels] = [0.0] * (len(BUCKETS_S) + 2)
        return row

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge of `GAUGES`; the workers' values are added up."""
        self._numbers.gauges[name] = value

    def flush(self) -> None:
        """Write the numbers to the file if they changed. A full disk costs freshness, nothing else."""
        if self._file is None:
            return
        self._add_up()
        numbers = _encode(self._numbers)
        if numbers == self._written:
            return
        spare = self._file.with_suffix(".new")
        try:
            spare.write_bytes(numbers)
            spare.replace(self._file)
            self._written = numbers
        except OSError:
            return


def render(files: Iterable[Path], version: str) -> str:
    """Prometheus text (format 0.0.4) of all workers' files added up."""
    total = _Numbers()
    for file in files:
        _add(total, _read(file))
    lines = ["# HELP arbiter_build_info The running version.", "# TYPE arbiter_build_info gauge"]
    lines.append(f'arbiter_build_info{{version="{_escape(version)}"}} 1')
    for name, (text, names) in COUNTERS.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
        series = total.counters.get(name, {})
        if not names and not series:
            series = {(): 0.0}
        lines += [f"{name}{_labels(names, labels)} {_number(value)}" for labels, value in sorted(series.items())]
    for name, text in GAUGES.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {_number(total.gauges.get(name, 0))}"]
    for name, (text, names) in HISTOGRAMS.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
        for labels, row in sorted(total.histograms.get(name, {}).items()):
            below = 0.0
            for bound, value in zip((*map(str, BUCKETS_S), "+Inf"), row, strict=False):
                below += value
                lines.append(f"{name}_bucket{_labels((*names, 'le'), (*labels, bound))} {_number(below)}")
            lines.append(f"{name}_sum{_labels(names, labels)} {_number(row[-1])}")
            lines.append(f"{name}_count{_labels(names, labels)} {_number(below)}")
    return "\n".join(lines) + "\n"


def _read(file: Path) -> _Numbers:
    try:
        numbers = _decode(file.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return _Numbers()
    # A file of another version may hold other buckets.
    for series in numbers.histograms.values():
        for labels in [labels for labels, row in series.items() if len(row) != len(BUCKETS_S) + 2]:
            del series[labels]
    return numbers


def _add(total: _Numbers, one: _Numbers) -> None:
    for name, series in one.counters.items():
        into = total.counters.setdefault(name, {})
        for labels, value in series.items():
            into[labels] = into.get(labels, 0) + value
    for name, rows in one.histograms.items():
        into_rows = total.histograms.setdefault(name, {})
        for labels, row in rows.items():
            old = into_rows.get(labels)
            into_rows[labels] = row if old is None else [a + b for a, b in zip(old, row, strict=True)]
    # A dead worker's gauges are history, not load.
    if one.pid and _alive(one.pid):
        for name, value in one.gauges.items():
            total.gauges[name] = total.gauges.get(name, 0) + value


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _labels(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{n}="{_escape(v)}"' for n, v in zip(names, values, strict=True)) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
