"""What an attempt's row tells of its prompt, and when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec import Raw

from arbiter.accounting.facts import Facts
from arbiter.config.snapshot import Account
from arbiter.errors import ClientGone, Garbled, TimedOut, Unreachable
from arbiter.ledger import sample
from arbiter.ledger.book import Attempt, Book
from arbiter.ledger.prefix import Prefixes
from arbiter.ledger.prompt import Prompt, replaced
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.metrics import Metrics
from arbiter.model import Usage
from arbiter.wire import bound, native
from tests.fakes.asks import rung
from tests.fakes.rows import request_row

BODY = {
    "model": "m",
    "system": "Be kind.",
    "messages": [{"role": "user", "content": "hello"}],
    "reasoning_effort": "low",
}
METERED = Facts(usage=Usage(input=10, output=5), usage_source="provider")


def members_of(body: Mapping[str, Any]) -> Mapping[str, Raw]:
    return native.open_body(json.dumps(body).encode()).members


class Pen:
    """Keeps what is written, in order."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.closed: list[AttemptRow] = []

    def open(self, request: RequestRow, attempt: AttemptRow) -> None:
        self.written.append(f"open {attempt.number}")

    def close(self, attempt: AttemptRow) -> None:
        self.written.append(f"close {attempt.number}")
        self.closed.append(attempt)

    def settle(self, request: RequestRow) -> None:
        self.written.append("settle")


class Desk:
    """One request's books, as the spine keeps them."""

    def __init__(self, body: Mapping[str, Any] = BODY) -> None:
        self.loop = asyncio.new_event_loop()
        self.prefixes = Prefixes(self.loop)
        self.pen = Pen()
        row = request_row(client="ci", session="s", request_kind="main", attempts=0)
        self.book = Book(self.pen, Metrics(None), row, lambda text: text)
        self.book.prompt = Prompt(self.prefixes, members_of(body))
        self.book.conversation = "c" * 32

    def open(self, **how: Any) -> Attempt:
        return self.book.open(rung("openai-chat"), Account(), "openai-chat", "native", "verbatim", **how)

    def turn(self) -> None:
        """Let the loop do what waits."""
        self.loop.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.loop.close()


def test_nothing_is_hashed_before_the_request_is_on_its_way(desk: Desk) -> None:
    """SPEC 7.4: while the upstream thinks, never before the send."""
    attempt = desk.open()
    desk.turn()
    assert desk.prefixes.folded_bytes == 0
    attempt.sent()
    assert desk.prefixes.folded_bytes == 0
    desk.turn()
    hashed = desk.prefixes.folded_bytes
    assert hashed > 0
    attempt.sent()
    desk.turn()
    attempt.close(METERED, None)
    assert desk.prefixes.folded_bytes == hashed
    (row,) = desk.pen.closed
    assert (row.inputs, row.effort, row.tools_offered, row.cache_marks) == (1, "low", 0, [])
    assert (row.client, row.session, row.request_kind, row.conversation) == ("ci", "s", "main", "c" * 32)


def test_an_upstream_that_answers_at_once_finds_it_told_all_the_same(desk: Desk) -> None:
    attempt = desk.open()
    attempt.sent()
    attempt.close(METERED, None)
    desk.turn()
    assert desk.pen.closed[0].input_chain and desk.pen.written == ["open 1", "close 1"]


def test_the_attempts_of_a_request_are_hashed_once(desk: Desk) -> None:
    for number in (1, 2, 3):
        attempt = desk.open()
        attempt.sent()
        desk.turn()
        attempt.close(None, Garbled("no JSON"))
        if number == 1:
            hashed = desk.prefixes.folded_bytes
    assert desk.prefixes.folded_bytes == hashed
    assert len({tuple(row.input_chain or ()) for row in desk.pen.closed}) == 1


def test_what_never_went_out_waits_until_the_request_is_over(desk: Desk) -> None:
    """The next attempt is not sent later for it."""
    desk.open().close(None, Unreachable("refused"))
    desk.open().close(None, Unreachable("refused"))
    assert desk.prefixes.folded_bytes == 0 and desk.pen.written == ["open 1", "open 2"]
    desk.book.settle()
    assert desk.pen.written == ["open 1", "open 2", "close 1", "close 2", "settle"]
    assert all(row.outcome == "error" and row.input_chain for row in desk.pen.closed)


def test_what_was_changed_on_the_way_has_a_hash_of_its_own(desk: Desk) -> None:
    """Rows tell the client's history, and that something else was sent."""
    edited = bound.nudged(members_of(BODY), "Say something.")
    for how in ({}, {"edited": edited}, {"edited": edited}):
        attempt = desk.open(**how)
        attempt.sent()
        attempt.close(METERED, None)
    asked, nudged, again = desk.pen.closed
    assert (asked.replaced, asked.projection_hash) == (None, None)
    assert asked.input_chain == nudged.input_chain and nudged.replaced == 0
    assert nudged.projection_hash == again.projection_hash and nudged.projection_hash
    alone = Prompt(desk.prefixes, edited)._reading.prefix()
    assert alone is not None and nudged.projection_hash == alone.last and alone.inputs == 2


def test_how_many_inputs_were_changed_is_counted() -> None:
    """One that lost a part of it, and one that went as a whole."""
    turns = [{"role": "user", "content": str(n)} for n in (1, 2, 3, 2)]
    before = members_of({"model": "m", "messages": turns})
    after = members_of({"model": "m", "messages": [turns[0], {"role": "user", "content": "!"}, turns[3]]})
    assert replaced(before, after) == 2
    assert replaced(before, before) == replaced(before, members_of({"model": "m", "messages": [*turns, turns[0]]})) == 0
    assert replaced(before, members_of({"model": "m", "messages": []})) == 4
    assert replaced({}, {}) == replaced({"messages": Raw(b"5")}, {"messages": Raw(b"6")}) == 0


def test_marks_are_those_of_the_body_that_was_sent(desk: Desk) -> None:
    marked = json.dumps({"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}).encode()
    kept = b'{"prompt_cache_retention":"24h"}'
    for body in (None, marked, kept, b'{"model":"m"}', b'not JSON "cache_control"'):
        attempt = desk.open(marked=body)
        attempt.sent()
        attempt.close(METERED, None)
    assert [row.cache_marks for row in desk.pen.closed] == [[], ["system:0@5m"], ["request@24h"], [], None]
    assert all(row.input_chain for row in desk.pen.closed)


class Broken(dict[str, Raw]):
    """Members that nobody can read."""

    def get(self, *_: Any) -> Any:
        raise RuntimeError("broken")


def test_a_failure_to_tell_costs_the_row_nothing_else(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """A request never fails for it, and its row is there."""
    desk.book.prompt = Prompt(desk.prefixes, Broken())
    attempt = desk.open()
    attempt.sent()
    desk.turn()
    attempt.close(METERED, None)
    (row,) = desk.pen.closed
    assert (row.outcome, row.input_tokens, row.input_chain, row.head_hash) == ("ok", 10, None, None)
    assert "could not be told" in caplog.text


@pytest.mark.parametrize(
    ("facts", "error", "status", "is_sampled"),
    [
        (METERED, None, 200, False),
        (Facts(), None, 200, True),
        (Facts(usage=Usage(input=10), usage_source="partial"), ClientGone("left"), 200, True),
        (None, ClientGone("left"), None, True),
        (None, TimedOut("unary", 1.0), None, True),
        (None, TimedOut("connect", 1.0), None, False),
        (None, Unreachable("refused"), None, False),
        (None, Garbled("no JSON"), 529, False),
    ],
)
def test_text_is_sampled_where_tokens_were_used_and_not_counted(
    desk: Desk, facts: Any, error: Any, status: int | None, is_sampled: bool
) -> None:
    """What an upstream refused, or never got, costs nothing."""
    attempt = desk.open()
    attempt.sent()
    attempt.row.status = status
    attempt.close(facts, error)
    (row,) = desk.pen.closed
    assert (row.sample is not None) == is_sampled
    if is_sampled:
        assert row.sample is not None and b"hello" in row.sample and row.sample_of_bytes > 30


# --- samples ----------------------------------------------------------------------------------------------------------


def test_a_short_prompt_is_its_own_sample() -> None:
    members = members_of({"model": "m", "tools": [{"name": "a"}], "messages": [{"role": "user", "content": "b"}]})
    assert sample.of(members) == (b'[{"name": "a"}]\n[{"role": "user", "content": "b"}]', 49)
    assert sample.of(members_of({"model": "m"})) == (None, 0)


def test_a_long_prompt_is_sampled_evenly() -> None:
    """Beginning, middle and end: what agents send is not the same text all over."""
    words = [f"word-{n} " for n in range(100_000)]
    members = members_of({"model": "m", "system": "".join(words[:50_000]), "messages": "".join(words[50_000:])})
    found, of_bytes = sample.of(members)
    total = sum(len(memoryview(members[name])) for name in ("system", "messages"))
    assert found is not None and sample.MAX_BYTES - 2048 <= len(found) <= sample.MAX_BYTES and of_bytes == total
    for tenth in range(10):
        assert any(b"word-%d " % n in found for n in range(tenth * 10_000, (tenth + 1) * 10_000))


def test_pictures_are_no_text() -> None:
    """They are priced by their size, and a tokenizer would make a million tokens of one."""
    picture = "iVBORw0KGgo" * 50_000
    members = members_of(
        {"model": "m", "messages": [{"content": [{"data": picture}, {"text": "so it is, " * 40_000}]}]}
    )
    found, of_bytes = sample.of(members)
    assert found is not None and 350_000 < of_bytes < 450_000
    assert found.count(b"so it is") > 2000 and len(found) < 0.55 * sample.MAX_BYTES
