"""What a soak calls a fault."""

from __future__ import annotations

import pytest

from bench.soak.__main__ import BREATHES_IN_SMOKE, MAY_OPEN, Found, Look, growth, judge, table

NAMES = ("control", "worker")
MB = 1 << 20


def found(*worker_mb: float, slice_requests: int = 10) -> Found:
    """A gateway whose worker had so much after each slice."""
    files = dict.fromkeys(NAMES, 30)
    looks = [
        Look((1 + number) * slice_requests, {"control": 100 * MB, "worker": int(mb * MB)}, files.copy(), 0, 0)
        for number, mb in enumerate(worker_mb)
    ]
    point = {"p50": 1000, "p99": 2000}
    reports = {"chat": [{"requests": 10, "first_us": point} for _ in looks]}
    return Found(looks, reports, trouble=4)


def faults(one: Found, books: dict[str, int], *breathes: int) -> list[str]:
    judge(one, books, *breathes)
    return one.faults


def twenty_minutes(worker_mb: list[float]) -> Found:
    return found(*worker_mb, slice_requests=3_600)


def test_what_breathes_is_no_fault_nor_is_what_fills_at_first() -> None:
    assert faults(found(40, 42, 41, 43), {"ok": 40, "error": 4}) == []
    breathing = [46 + number % 4 for number in range(40)]
    filling = [40 + min(number, 16) for number in range(40)]
    for course in (breathing, filling):
        assert faults(twenty_minutes(course), {"ok": 404}) == []


def test_what_is_kept_of_each_request_is_a_fault_however_slowly_it_adds_up() -> None:
    """The worker of a soak in which every stream stayed for the collector: 54.5 MB, 58.5, 60.3, and 64.5 at the end."""
    course = [45.6 + 0.9 * min(number, 10) + 0.33 * max(0, number - 10) for number in range(40)]
    (said,) = faults(twenty_minutes(course), {"ok": 404})
    assert said == "worker grew by 96 ± 34 bytes a request, to 67.3 MB"


def test_a_short_soak_allows_for_what_it_cannot_tell_apart() -> None:
    """The same growth over four minutes is less than what allocators keep or do not; twenty times of it is not."""
    assert faults(twenty_minutes([45 + 0.33 * number for number in range(8)]), {"ok": 84}) == []
    assert len(faults(twenty_minutes([45 + 6.6 * number for number in range(8)]), {"ok": 84})) == 1
    burst = [45, 45, 46, 66]
    assert faults(found(*burst, slice_requests=700), {"ok": 44}, BREATHES_IN_SMOKE) == []
    assert len(faults(found(45, 45, 46, 146), {"ok": 44}, BREATHES_IN_SMOKE)) == 1


def test_growth_is_told_by_request_and_surer_the_more_there_are() -> None:
    grows = [40 + number / 4 for number in range(40)]
    slope, give_or_take = growth(twenty_minutes(grows).looks, "worker", MB)
    assert slope == pytest.approx(MB / 4 / 3_600)
    assert give_or_take == pytest.approx(34, abs=1)
    assert growth(twenty_minutes(grows[:8]).looks, "worker", MB)[1] > 10 * give_or_take


def test_a_row_that_lacks_is_a_fault_and_one_too_many() -> None:
    assert faults(found(40, 40, 40, 40), {"ok": 43}) == ["44 requests were asked, 43 are in the books: {'ok': 43}"]
    assert len(faults(found(40, 40, 40, 40), {"ok": 45})) == 1


def test_files_left_open_and_what_is_unfinished_at_rest_are_faults() -> None:
    one = found(40, 40, 40, 40)
    one.looks[-1].files["control"] += MAY_OPEN + 1
    one.looks[1].in_flight = 2
    one.looks[2].waiting = 7
    assert faults(one, {"ok": 44}) == [
        f"control has {30 + MAY_OPEN + 1} files open, 30 after the first slice",
        "at rest 1: 2 in flight, 0 rows waiting",
        "at rest 2: 0 in flight, 7 rows waiting",
    ]


def test_the_table_says_how_it_began_and_how_it_ended() -> None:
    lines = table(found(40, 41, 42, 43, 44), {"ok": 50, "error": 4}).splitlines()
    assert "| chat | 50 | 1.00 | 1.00 | 2.00 | 2.00 |" in lines
    assert "| at rest after slice | 1 | 2 | 3 | 4 | 5 | bytes a request, later half |" in lines
    assert "| control, MB of its own | 104.9 | 104.9 | 104.9 | 104.9 | 104.9 | 0 ± 222,437 |" in lines
    assert "| worker, open files | 30 | 30 | 30 | 30 | 30 | |" in lines
    assert lines[-1] == "In the books: 54 requests (4 error, 50 ok); 4 were troublesome."
