"""Results of calls on their way to any upstream, and what is said in the place of those that are not there.

A server refuses a call without its result, and a result without its call. An agent whose call was interrupted, or whose
history was cut, sends such a conversation again and again: so the words that mend it are the same in every format.
"""

from __future__ import annotations

from arbiter.errors import ProtocolUnsupported
from arbiter.model import Part, Text, ToolResult

UNANSWERED = "There is no result: the call was interrupted."
ORPHANED = "The result of a tool call that is no longer part of this conversation:"


def result_of(part: Part | None) -> ToolResult:
    """Return what a message of role tool holds. Errors: ProtocolUnsupported where that is something else."""
    if type(part) is not ToolResult:
        raise ProtocolUnsupported("a message of role tool without a tool result")
    return part


def contents(result: ToolResult) -> tuple[Part, ...]:
    """Return what a result says as parts, whichever way it was written."""
    return (Text(result.content),) if isinstance(result.content, str) else result.content


def orphaned(result: ToolResult) -> tuple[Part, ...]:
    """Return what is told in place of a result whose call is not there, or has one: it would be refused as a result."""
    return (Text(ORPHANED), *contents(result))


def missing(call_id: str) -> ToolResult:
    """Return what stands in the place of a result that never came, where a result says itself that it failed."""
    return ToolResult(call_id, UNANSWERED, is_error=True)
