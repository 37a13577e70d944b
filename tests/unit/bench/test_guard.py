"""What the instruction counts are judged by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.guard import __main__ as guard


def test_a_case_over_the_bound_is_wrong_and_one_below_it_is_not() -> None:
    lines, wrong = guard.judged({"a": 1500, "b": 1501, "c": 10}, {"a": 1000, "b": 1000, "c": 1000})
    assert wrong == ["b: 1.50 times its baseline (bound 1.5)"]
    assert [line.split()[-1] for line in lines] == ["ratio", "1.50", "1.50", "0.01"]


def test_a_case_without_a_baseline_and_a_baseline_without_a_case_are_wrong() -> None:
    lines, wrong = guard.judged({"new": 5}, {"gone": 5})
    assert [one.partition(";")[0] for one in wrong] == ["gone: not counted any more", "new: no baseline"]
    assert [line.split()[1:] for line in lines[1:]] == [["5", "–", "–"], ["–", "5", "–"]]


def test_the_baseline_has_a_count_for_each_of_its_cases() -> None:
    known = json.loads(guard.BASELINE.read_text("utf-8"))
    assert known["python"].count(".") == 1 and type(known["avx2"]) is bool
    assert known.keys() == guard.circumstances().keys() | {"instructions"}
    assert known["instructions"] and all(count > 0 for count in known["instructions"].values())


def test_counts_of_another_python_or_processor_are_told_apart() -> None:
    """The compiled scanners take other ways without AVX2: their counts say nothing of the code then."""
    known = {"python": "3.11", "avx2": True, "instructions": {"a": 1}}
    assert guard.other({"python": "3.11", "avx2": True}, known) == []
    assert guard.other({"python": "3.11", "avx2": False}, known) == ["avx2 is False, in the baseline True"]
    assert len(guard.other({"python": "3.12", "avx2": False}, known)) == 2


def test_where_the_processor_differs_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same counts fail where it is the same."""
    monkeypatch.setattr("sys.argv", ["bench.guard"])
    monkeypatch.setattr(guard.shutil, "which", lambda name: name)
    monkeypatch.setattr(guard, "count", lambda folder, valgrind: {"a": 10})
    monkeypatch.setattr(guard, "BASELINE", tmp_path / "baseline.json")
    here = guard.circumstances()
    for avx2, code in ((here["avx2"], 1), (not here["avx2"], 0)):
        guard.BASELINE.write_text(json.dumps({**here, "avx2": avx2, "instructions": {"a": 1}}))
        assert guard.main() == code
    assert "nothing is asserted: avx2 is" in capsys.readouterr().out
