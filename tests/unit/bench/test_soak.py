"""What a soak calls a fault."""

from __future__ import annotations

from bench.soak.__main__ import MAY_GROW_BYTES, MAY_OPEN, Found, Look, judge, table

NAMES = ("control", "worker")


def found(*worker_mb: float) -> Found:
    looks = [
        Look({"control": 100 << 20, "worker": int(mb * (1 << 20))}, dict.fromkeys(NAMES, 30), 0, 0) for mb in worker_mb
    ]
    point = {"p50": 1000, "p99": 2000}
    reports = {"chat": [{"requests": 10, "first_us": point} for _ in looks]}
    return Found(looks, reports, trouble=4)


def faults(one: Found, books: dict[str, int]) -> list[str]:
    judge(one, books)
    return one.faults


def test_what_breathes_is_no_fault() -> None:
    assert faults(found(40, 42, 41, 43), {"ok": 40, "error": 4}) == []


def test_memory_that_grows_is_one_as_is_a_row_that_lacks_and_one_too_many() -> None:
    grown = 41 + MAY_GROW_BYTES / (1 << 20) + 1
    assert faults(found(40, 41, 45, grown), {"ok": 44}) == ["worker grew from 43.0 to 52.4 MB"]
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
    assert "| at rest after slice | 1 | 2 | 3 | 4 | 5 |" in lines
    assert "| worker, open files | 30 | 30 | 30 | 30 | 30 |" in lines
    assert lines[-1] == "In the books: 54 requests (4 error, 50 ok); 4 were troublesome."
