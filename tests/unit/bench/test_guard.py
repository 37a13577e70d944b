"""What the instruction counts are judged by."""

from __future__ import annotations

import json

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
    assert known["python"].count(".") == 1
    assert known["instructions"] and all(count > 0 for count in known["instructions"].values())
