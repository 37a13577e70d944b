"""What an attempt's row tells of its prompt, and when."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec import Raw

from arbiter import clock
from arbiter.accounting.facts import Facts
from arbiter.config.snapshot import Account
from arbiter.errors import ClientGone, Garbled, TimedOut, Unreachable
from arbiter.ledger import prefix, sample
from arbiter.ledger.book import Attempt, Book
from arbiter.ledger.prefix import AT_ONCE_BYTES, Prefixes, replaced
from arbiter.ledger.prompt import Prompt
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.metrics import Metrics
from arbiter.model import Usage
from arbiter.wire import bound, native
from tests.fakes.asks import rung
from tests.fakes.held import HeldPrefixes
from tests.fakes.rows import request_row

BODY = {
    "model": "m",
    "system": "Be kind.",
    "messages": [{"role": "user", "content": "hello"}],
    "reasoning_effort": "low",
}
LONG = {**BODY, "messages": [{"role": "user", "content": "x" * (2 * AT_ONCE_BYTES)}]}
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
    """One request's books, as the spine keeps them. What is long is not hashed before the test says so."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.prefixes = HeldPrefixes(self.loop)
        self.pen = Pen()
        self.ask(BODY)

    def ask(self, body: Mapping[str, Any]) -> None:
        """Another request comes."""
        row = request_row(client="ci", session="s", request_kind="main", attempts=0)
        self.book = Book(self.pen, Metrics(None), row, lambda text: text)
        self.book.prompt = Prompt(self.prefixes, members_of(body))
        self.book.conversation = "c" * 32

    def open(self, **how: Any) -> Attempt:
        return self.book.open(rung("openai-chat"), Account(), "openai-chat", "native", "verbatim", **how)

    def turn(self) -> None:
        """Let the loop do what waits."""
        self.loop.run_until_complete(asyncio.sleep(0))

    def hash(self) -> None:
        """The thread gets its turn, and the loop hears of it."""
        self.prefixes.go_on()
        self.turn()


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
    alone = Prompt(desk.prefixes, edited)._reading.read()
    assert alone is not None and nudged.projection_hash == alone.last and alone.inputs == 2


# --- an upstream that is faster than the hashing ----------------------------------------------------------------------


@pytest.mark.parametrize("turns", [0, 1], ids=["at-once", "a-turn-later"])
def test_a_row_whose_prompt_is_being_hashed_comes_later_and_nobody_waits_for_it(desk: Desk, turns: int) -> None:
    """Its request's row comes behind it; whatever else is asked meanwhile is written down as ever."""
    desk.ask(LONG)
    attempt = desk.open()
    attempt.sent()
    for _ in range(turns):
        desk.turn()
    attempt.close(None, Garbled("no JSON"))
    desk.book.settle()
    assert desk.pen.written == ["open 1"] and desk.prefixes.folded_bytes == 0
    desk.ask(BODY)
    other = desk.open()
    other.sent()
    other.close(METERED, None)
    desk.book.settle()
    assert desk.pen.written == ["open 1", "open 1", "close 1", "settle"]
    desk.hash()
    assert desk.pen.written[4:] == ["close 1", "settle"]
    late = desk.pen.closed[1]
    assert (late.outcome, late.inputs, late.effort) == ("error", 1, "low") and late.input_chain
    assert desk.prefixes.late_bytes == 0
    attempt.close(METERED, None)
    desk.turn()
    assert len(desk.pen.written) == 6


def test_what_is_long_and_never_went_out_is_hashed_elsewhere_too(desk: Desk) -> None:
    desk.ask(LONG)
    desk.open().close(None, Unreachable("refused"))
    desk.book.settle()
    assert desk.pen.written == ["open 1"]
    desk.hash()
    assert desk.pen.written == ["open 1", "close 1", "settle"] and desk.pen.closed[0].input_chain


def test_later_attempts_go_on_while_the_first_ones_row_is_late(desk: Desk) -> None:
    """They are written down in their order, and the request once, behind the last of them."""
    desk.ask(LONG)
    for _ in range(2):
        attempt = desk.open()
        attempt.sent()
        desk.turn()
        attempt.close(None, Garbled("no JSON"))
    assert desk.pen.written == ["open 1", "open 2"] and len(desk.prefixes.held) == 1
    last = desk.open()
    last.sent()
    desk.hash()
    assert desk.pen.written == ["open 1", "open 2", "open 3", "close 1", "close 2"]
    last.close(METERED, None)
    desk.book.settle()
    assert desk.pen.written[5:] == ["close 3", "settle"]
    assert len({tuple(row.input_chain or ()) for row in desk.pen.closed}) == 1


def test_a_row_waits_for_all_that_is_told_of_what_was_sent(desk: Desk) -> None:
    """The client's prompt, what became of it, and the marks in it: each of them is long."""
    desk.ask(LONG)
    edited = bound.nudged(members_of(LONG), "Say something.")
    marked = json.dumps({**LONG, "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]})
    attempt = desk.open(edited=edited, marked=marked.encode())
    attempt.sent()
    desk.turn()
    attempt.close(None, Garbled("no JSON"))
    desk.book.settle()
    assert len(desk.prefixes.held) == 3
    for _ in range(3):
        assert desk.pen.written == ["open 1"]
        later = desk.prefixes.held[1:]
        del desk.prefixes.held[1:]
        desk.hash()
        desk.prefixes.held += later
    assert desk.pen.written == ["open 1", "close 1", "settle"]
    (row,) = desk.pen.closed
    assert row.input_chain and row.replaced == 0 and row.projection_hash and row.cache_marks == ["system:0@5m"]


def test_prompts_that_wait_are_bounded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond that rows go without one, at once: a row is more than its prompt, and memory has an end."""
    monkeypatch.setattr(prefix, "LATE_BYTES", 5 * AT_ONCE_BYTES)
    for n in range(4):
        desk.ask({**LONG, "user": str(n)})
        attempt = desk.open()
        attempt.sent()
        desk.turn()
        attempt.close(METERED, None)
        desk.book.settle()
    assert desk.pen.written == ["open 1"] * 2 + ["open 1", "close 1", "settle"] * 2
    assert desk.prefixes.late_bytes < 5 * AT_ONCE_BYTES
    (said,) = caplog.records
    assert "more prompts wait" in said.getMessage()
    desk.hash()
    assert desk.pen.written[8:] == ["close 1", "settle"] * 2 and desk.prefixes.late_bytes == 0
    assert [row.input_chain is not None for row in desk.pen.closed] == [False, False, True, True]


def test_the_end_waits_for_rows_that_are_late(desk: Desk) -> None:
    """A worker that leaves writes them down before its journal closes (SPEC 7.6)."""

    class Slow(Prefixes):
        """A real thread, that waits."""

        go_on = threading.Event()

        def submit(self, work: Callable[[], None]) -> Future[None]:
            return super().submit(lambda: (self.go_on.wait(60), work())[1])

    async def main() -> None:
        prefixes = Slow(asyncio.get_running_loop())
        desk.book.prompt = Prompt(prefixes, members_of(LONG))
        attempt = desk.open(edited=bound.nudged(members_of(LONG), "Say something."))
        attempt.close(None, Unreachable("refused"))  # never sent: one reading is asked for after the other
        desk.book.settle()
        leaving = asyncio.create_task(prefixes.aclose())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not leaving.done() and desk.pen.written == ["open 1"]
        prefixes.go_on.set()
        await leaving
        assert desk.pen.written == ["open 1", "close 1", "settle"] and desk.pen.closed[0].projection_hash
        # Whoever comes later than the thread has ended is told all the same.
        desk.book = Book(desk.pen, Metrics(None), request_row(attempts=0), lambda text: text)
        desk.book.prompt = Prompt(prefixes, members_of({**LONG, "system": "Another."}))
        late = desk.open()
        late.sent()
        late.close(METERED, None)
        assert desk.pen.closed[1].input_chain

    desk.loop.run_until_complete(main())


# --- what was changed on the way --------------------------------------------------------------------------------------


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


def test_what_fails_with_every_request_is_said_once_a_minute(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker whose compiled modules are stale serves on; its log is for other things, too."""
    now = 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)

    def fail(*_: object) -> None:
        raise TypeError("fold() takes 4 positional arguments")

    monkeypatch.setattr(prefix.chain, "fold", fail)
    monkeypatch.setattr(prefix.chain, "told", fail)
    for at, body in ((0.0, BODY), (1.0, LONG), (59.9, BODY), (60.0, BODY), (61.0, LONG)):
        now = 1000.0 + at
        desk.ask(body)
        attempt = desk.open()
        attempt.sent()
        desk.turn()
        desk.hash()
        attempt.close(METERED, None)
        desk.book.settle()
    assert [row.input_chain for row in desk.pen.closed] == [None] * 5
    said = [record for record in caplog.records if "could not be told" in record.getMessage()]
    assert [vars(record)["fields"] for record in said] == [{"times": 1}, {"times": 3}]
    assert all(record.exc_info is not None and record.exc_info[0] is TypeError for record in said)


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


@pytest.mark.parametrize(
    "how", [{}, {"edited": members_of(BODY)}, {"marked": b"{}"}], ids=["as it came", "edited", "marked"]
)
def test_a_prompt_that_is_let_go_of_is_told_all_the_same(desk: Desk, how: Any) -> None:
    """A stream that goes on for long holds no request; should its client leave, the row has the same sample."""
    desk.ask(LONG)
    attempt = desk.open(**how)
    attempt.sent()
    desk.turn()
    prompt = desk.book.prompt
    assert prompt is not None
    prompt.let_go()
    attempt.answered_ns = attempt.sent_ns
    attempt.row.status = 200
    attempt.close(None, ClientGone("it left"))
    desk.hash()
    (row,) = desk.pen.closed
    assert (row.sample, row.sample_of_bytes) == sample.of(members_of(LONG))
    assert row.inputs == 1


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
