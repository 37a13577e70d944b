"""What most tests of the ledger begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from arbiter.ledger.sqlstore import SqlStore
from tests.fakes.stores import Place


@pytest.fixture
def store(place: Place) -> Iterator[SqlStore]:
    """An empty store, open: each test runs once with every kind of it."""
    one = place.open()
    yield one
    one.close()
