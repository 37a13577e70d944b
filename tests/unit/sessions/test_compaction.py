"""What an agent says of its compactions, and what anybody could write in its place."""

from __future__ import annotations

import pytest

from arbiter.sessions.compaction import compaction


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (None, False)),
        ({"x-claude-code-compaction": "auto"}, ("auto", False)),
        ({"x-claude-code-context-compacted": "1"}, (None, True)),
        ({"x-claude-code-context-compacted": "true", "x-claude-code-compaction": "manual"}, ("manual", True)),
        ({"x-claude-code-context-compacted": "False"}, (None, False)),
        ({"x-claude-code-context-compacted": "0"}, (None, False)),
        ({"x-claude-code-context-compacted": ""}, (None, False)),
        ({"x-claude-code-compaction": ""}, (None, False)),
        ({"x-claude-code-compaction": "x" * 33}, (None, False)),
        ({"x-claude-code-compaction": "a\x07b"}, (None, False)),
        ({"x-claude-code-compaction": "caf\xe9"}, (None, False)),
    ],
)
def test_a_row_takes_words_and_nothing_else(fields: dict[str, str], expected: tuple[str | None, bool]) -> None:
    """Headers are anybody's to write, and rows are shown on pages."""
    assert compaction(fields) == expected
