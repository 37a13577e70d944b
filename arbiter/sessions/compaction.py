"""What Claude Code says of its compactions: this request makes one, or follows one (FEATURES D.3)."""

from __future__ import annotations

from arbiter.sessions.signals import COMPACTION, CONTEXT_COMPACTED, Fields

COMPACTIONS = frozenset((COMPACTION, CONTEXT_COMPACTED))
"""Without any of these headers, nothing is said."""

_MAX_CHARS = 32
_NO = ("", "0", "false")


def compaction(fields: Fields) -> tuple[str | None, bool]:
    """(what made the agent compact, in its own word; whether its context was compacted just before)."""
    trigger = fields.get(COMPACTION)
    if trigger is None and CONTEXT_COMPACTED not in fields:
        return None, False
    if trigger is not None and not (trigger.isascii() and trigger.isprintable() and 0 < len(trigger) <= _MAX_CHARS):
        trigger = None
    return trigger, fields.get(CONTEXT_COMPACTED, "").lower() not in _NO
