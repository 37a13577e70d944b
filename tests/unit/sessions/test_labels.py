"""Labels: what a caller may say of its requests, and how much of it."""

from __future__ import annotations

import pytest

from arbiter.sessions.labels import HEADER, MOST, labels_of


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("issue=12", {"issue": "12"}),
        ("issue=12, team=a b ,x.y-z_1==", {"issue": "12", "team": "a b", "x.y-z_1": "="}),
        ("issue=1,issue=2", {"issue": "2"}),
        ("", None),
        ("issue", None),
        ("=12", None),
        ("issue=", None),
        ("is sue=1, ok=1", {"ok": "1"}),
        ("issue=na\u00efve", None),
        ("a=" + "x" * 256, {"a": "x" * 256}),
        ("a=" + "x" * 257, None),
        ("n" * 64 + "=1", {"n" * 64: "1"}),
        ("n" * 65 + "=1", None),
        ("a=1\n", {"a": "1"}),
        ("a=1\x00", None),
    ],
)
def test_what_is_malformed_is_passed_over(told, found):
    assert labels_of({HEADER: told}) == found


def test_there_are_no_more_than_so_many():
    """A header of 64 KiB becomes no row of 64 KiB."""
    told = ",".join(f"l{n}={n}" for n in range(10_000))
    assert labels_of({HEADER: told}) == {f"l{n}": str(n) for n in range(MOST)}


def test_a_request_without_any_has_none():
    assert labels_of({"x-other": "issue=12"}) is None
