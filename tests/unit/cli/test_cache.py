"""`arbiter cache`: the console's view of what prompt caches saved and lost."""

from __future__ import annotations

import json

import pytest

from tests.fakes.rows import attempt_row, request_row


@pytest.fixture
def db(stored):
    calm = request_row(1, session="s1")
    rows = [calm, attempt_row(calm, cached_tokens=99_000, input_tokens=1_000)]
    for number, (cause, tokens, pd, where) in enumerate(
        [
            ("drift", 110_312, 380_576_400_000, "messages 17-32"),
            ("miss", 34_012, None, None),
            ("tools", 9_000, 0, "tools"),
        ]
    ):
        request = request_row(number + 2, session="s2")
        verdict = {"cache_verdict": cause, "cache_lost_tokens": tokens, "cache_lost_pd": pd, "cache_lost_in": where}
        rows += [request, attempt_row(request, cached_tokens=0, input_tokens=0, **verdict)]
    return stored(rows)


def test_numbers_are_told_as_people_read_them(db, arbiter):
    """What needs looking into comes first, by its size; then why the rest was lost, then the largest by themselves."""
    code, out, _ = arbiter("cache", "--db", db, "--since", "2026-01-01")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("Hit rate 99.0%: 99k of 100k input tokens came from a cache, in 4 calls since")
    assert lines[1] == "110k drift, 34k miss ($0.3806 + ?); 9k lost for a reason ($0.00)."
    assert [line.split()[0] for line in lines[5:8]] == ["drift", "miss", "tools"]
    assert "messages 17-32" in lines[12] and lines[12].endswith("$0.3806") and lines[13].endswith("unpriced")


def test_a_session_is_told_from_its_beginning(db, arbiter):
    _, out, _ = arbiter("cache", "--db", db, "--session", "s1")
    assert out == "Hit rate 99.0%: 99k of 100k input tokens came from a cache, in 1 call.\nNothing was lost.\n"
    _, out, _ = arbiter("cache", "--db", db, "--session", "s2", "--by", "session", "--limit", "1")
    assert "s2" in out and "3   0       0    -  144k            9k  $0.3806 + ?" in out
    assert out.count("requests --trace") == 1


def test_json_is_what_the_administration_gives(db, arbiter):
    _, out, _ = arbiter("cache", "--db", db, "--session", "s2", "--json", "--limit", "1", "--cause", "miss")
    found = json.loads(out)
    assert [cause["cause"] for cause in found["causes"]] == ["drift", "miss", "tools"]
    assert found["causes"][0]["lost_usd"] == 0.3805764 and found["largest"][0]["lost_usd"] is None
    assert found["hit_rate"] is None and "groups" not in found


def test_nothing_is_said_of_nothing(db, arbiter):
    _, out, _ = arbiter("cache", "--db", db, "--session", "nobody")
    assert out == "No call told what it read from a cache.\n"


@pytest.mark.parametrize(
    ("words", "expected", "said"),
    [
        (("--limit", "0"), 2, "arbiter: --limit: a whole number from 1 to 500\n"),
        (("--since", "soon"), 2, "arbiter: --since: 'soon' is no duration"),
        (("--db", "/nowhere/arbiter.db"), 1, "arbiter: there is no store at /nowhere/arbiter.db"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(db, arbiter, words, expected, said):
    code, _, err = arbiter("cache", "--db", db, *words)
    assert code == expected and err.startswith(said)
