"""Real agents' conversations, as their rows come in: which call is compared with which.

The upstream of these rows forgets everything after each call, so that whatever is compared is a loss. What is compared
with nothing here would be no false alarm on the worst of days either.
"""

from __future__ import annotations

import asyncio

import pytest

from arbiter.config.load import demo_snapshot
from arbiter.config.snapshot import SessionAffinity, Sessions
from arbiter.ledger.comparison import Comparison
from arbiter.ledger.prefix import Prefixes
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import AttemptRow
from arbiter.sessions.affinity import Affinity
from arbiter.sessions.identity import identify
from tests.fakes.histories import BEGAN_MS, MINUTE_MS
from tests.unit.sessions.captures import Captured, conversations, opened

CONVERSATIONS = {
    name: requests
    for name, requests in conversations().items()
    if len(requests) > 1 and requests[0].format != "openai-responses"  # those were kept without their input
}
TOOLS = {
    "title": [],
    "main": [{"name": name, "input_schema": {}} for name in ("read", "write", "task")],
    "subagent": [{"name": name, "input_schema": {}} for name in ("read", "write")],
}
"""These captures were kept without their tools: a title has none, a sub-agent fewer than the main thread."""


def rows_of(requests: list[Captured]) -> list[AttemptRow]:
    """One row for each request, a minute apart, as a worker and its affinity make them."""
    loop = asyncio.new_event_loop()
    prefixes, affinity = Prefixes(loop), Affinity(SessionAffinity())
    rows = []
    for number, one in enumerate(requests):
        tools = TOOLS.get(one.part, TOOLS["main"])
        members = opened({**one.body, "tools": tools} if tools else one.body)
        identity = identify(one.fields, members, one.client, Sessions())
        caller = one.client.name if one.client is not None else None
        slot = affinity.slot(one.format, members, one.fields, identity.session, caller)
        prefix = prefixes.reading(members).read()
        assert prefix is not None
        began = BEGAN_MS + number * MINUTE_MS
        row = AttemptRow(
            id=f"{number}",
            request_id=f"r{number}",
            trace_id=f"t{number}",
            number=1,
            provider="anthropic",
            endpoint="anthropic-messages:http://127.0.0.1:9",
            model_asked="claude-sonnet-4-5",
            format_out="anthropic-messages",
            started_ms=began,
            finished_ms=began + 5000,
            outcome="ok",
            input_tokens=100,
            cached_tokens=0,
            cache_write_tokens=50_000,
            output_tokens=100,
            usage_source="provider",
            client=caller,
            session=identity.session,
            request_kind=identity.kind,
            conversation=slot.key.hex() if slot is not None else None,
        )
        for name in ("head_hash", "system_hash", "tools_hash", "inputs", "input_chain", "cache_marks", "effort"):
            setattr(row, name, getattr(prefix, name))
        rows.append(row)
    loop.run_until_complete(prefixes.aclose())
    loop.close()
    return rows


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_each_call_is_compared_with_its_own_last_one(name, place):
    """A turn with the turn before it, a sub-agent's with its own; a title, and whatever begins, with nothing."""
    requests = CONVERSATIONS[name]
    rows = rows_of(requests)
    store = place.open()
    Comparison(demo_snapshot, lambda row: None).take(Batch([], rows), store)
    store.close()
    last: dict[str, str] = {}
    for one, row in zip(requests, rows, strict=True):
        assert row.cache_against == last.get(one.part), f"{one.part} {row.id}: {row.cache_verdict}"
        last[one.part] = row.id
    compared = [row for row in rows if row.cache_against is not None]
    # Claude Code compacts, and asks again, by adding to its last message.
    assert {row.cache_verdict for row in compared} <= {"miss", "rewind"}
