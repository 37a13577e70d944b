"""Ids: unlike each other, and in an order that indexes of them can live with."""

from __future__ import annotations

import pytest

from arbiter import ids

AT_MS = 1_790_000_000_000


@pytest.fixture
def clock(monkeypatch):
    now = [AT_MS]
    monkeypatch.setattr(ids, "now_ms", lambda: now[0])
    return now


def test_ids_of_a_later_millisecond_sort_after_those_of_an_earlier(clock):
    earlier = [ids.new_id() for _ in range(100)]
    clock[0] += 1
    later = [ids.new_id() for _ in range(100)]
    assert max(earlier) < min(later)
    assert len({*earlier, *later}) == 200


def test_a_requests_own_id_is_as_every_id_and_unlike_its_trace_id(clock):
    found = [ids.of_request(AT_MS) for _ in range(100)]
    clock[0] = AT_MS + 1
    assert max(id for id, _ in found) < ids.new_id()
    assert {len(id) for id, _ in found} == {32} and all(int(id, 16) for id, _ in found)
    assert len({text[12:] for pair in found for text in pair}) == 200


def test_trace_ids_of_one_second_stand_side_by_side():
    """An index of them grows in one place at a time, and the eight digits that stand for an id tell them apart."""
    found, at_ms = [], AT_MS
    for _ in range(3):
        found.append([ids.of_request(at_ms)[1] for _ in range(300)])
        at_ms += 1024
    assert [len({id[:3] for id in of_one}) for of_one in found] == [1, 1, 1]
    assert len({id[:3] for of_one in found for id in of_one}) == 3
    all_of_them = {id for of_one in found for id in of_one}
    assert len(all_of_them) == 900 and len({id[:8] for id in all_of_them}) > 890
    assert {len(id) for id in all_of_them} == {32} and all(int(id, 16) for id in all_of_them)
