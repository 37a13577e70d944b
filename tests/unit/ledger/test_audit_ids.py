"""Ids of audit rows, sessions and notes: in order, also within a millisecond."""

from __future__ import annotations

from arbiter.ledger.audit import new_id


def test_ids_of_one_millisecond_sort_as_they_were_made() -> None:
    """Rows are listed by time and id: what an operator did last stands first, however fast the clicks."""
    made = [new_id(1_796_092_970_000) for _ in range(300)]
    assert made == sorted(made) and len(set(made)) == 300
    assert {len(one) for one in made} == {32}
    assert new_id(1_796_092_970_001) > made[-1]
