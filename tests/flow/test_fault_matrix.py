"""The fault matrix: each way that an upstream fails, what a request then goes through, and what its client gets.

What is expected is derived from the SPEC (3.3, 4.1 to 4.6, 4.8) and written below as two tables: `THEN` says which
attempts a kind of failure leads to, `FAULTS_MEAN` which kind each fault is. All cells run at the same time against one
gateway, each with providers of its own, so that no cooldown and no breaker of one touches another.

    python -m tests.flow.test_fault_matrix        # writes docs/faults.md from the tables
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import Answer, Caller, Ending, request
from tests.fakes.faulty import FAULTS, HALF, SAID, WAIT_S, Fault, Meets, Upstream, events, upstream_of
from tests.fakes.gateway import ROOT, Gateway, Row
from tests.fakes.wires import CHAT, MESSAGES, RESPONSES, WIRES, Wire

PAGE = ROOT / "docs" / "faults.md"

TRIES = 3  # retry.attempts
BUDGETS = {"connect": "1s", "first_event": "3s", "idle": "3s", "unary": "3s"}
LONG = "60s"
RETRY = {"attempts": TRIES, "base": "10ms", "cap": "50ms", "before_fallback": 2, "accepted_timeout": 1}
CAP_MS = 80_000  # ARBITER_PROVIDER_TIMEOUT_MS, which no budget here comes near
AT_ONCE = 40


class Setup(Enum):
    """What stands behind the model that is asked for."""

    ONE = "one target"
    PASSING = "one target, and only the first request fails"
    POOL = "two keys, and the other one works"
    FALLBACK = "another provider behind it, which works"


class Then(Enum):
    """What a failure leads to."""

    AGAIN = (
        "the same target again, as long as tries are left; two of them while there are fallbacks; no other key (4.1)"
    )
    ONCE = "accepted, and billed already: once more, on the next target first (4.2)"
    KEY = "the next key, then the fallbacks (4.4)"
    OURS = "the next key; without one it is our configuration's fault, and told at once (4.5, 4.8)"
    NEXT = "not the same target: the fallbacks (4.1)"
    NEVER = "nothing helps: the request itself is refused (4.6)"
    OVER = "the client has output: never again (4.3)"
    FINE = "none: it is no failure"


ATTEMPTS = {
    Then.AGAIN: ("first! retry! retry!", "first! retry", "first! retry! retry!", "first! retry! fallback"),
    Then.ONCE: ("first! retry!", "first! retry", "first! retry!", "first! fallback"),
    Then.KEY: ("first!", "first!", "first! key", "first! fallback"),
    Then.OURS: ("first!", "first!", "first! key", "first!"),
    Then.NEXT: ("first!", "first!", "first!", "first! fallback"),
    Then.NEVER: ("first!",) * 4,
    Then.OVER: ("first!",) * 4,
    Then.FINE: ("first",) * 4,
}
"""The attempts in each setup, by why they were made; `!` marks those that failed."""


@dataclass(frozen=True)
class Meaning:
    """What one fault is: its class (4.8), what it leads to, and the status that a client is left with.

    `is_theirs`: the client gets the upstream's own body, byte for byte. `anthropic_status`: where it differs there.
    """

    error_class: str | None
    then: Then
    status: int
    is_theirs: bool = False
    anthropic_status: int = 0

    def status_for(self, wire: Wire) -> int:
        return self.anthropic_status if self.anthropic_status and wire is MESSAGES else self.status


TRANSPORT = Meaning("transport", Then.AGAIN, 502)
CUT = Meaning("transport", Then.OVER, 200)
GARBLED = Meaning("upstream_protocol", Then.NEXT, 502)
OVERLOADED = Meaning("overloaded", Then.AGAIN, 503, anthropic_status=529)
LIMITED = Meaning("rate_limited_transient", Then.KEY, 429, is_theirs=True)
OUR_KEY = Meaning("config", Then.OURS, 502)
UNARY = Meaning("timeout_unary", Then.ONCE, 504)
FINE = Meaning(None, Then.FINE, 200)


def passing(status: int, error_class: str = "upstream_error") -> Meaning:
    return Meaning(error_class, Then.AGAIN, status, is_theirs=True)


def timed_out(phase: str, then: Then, status: int = 504) -> Meaning:
    return Meaning(f"timeout_{phase}", then, status)


def both(meaning: Meaning) -> tuple[Meaning, Meaning]:
    return meaning, meaning


MEANINGS: dict[str, tuple[Meaning, Meaning | None]] = {
    # fault: (in a stream, in a unary answer)
    "refuses the connection": both(TRANSPORT),
    "hangs at connect": both(timed_out("connect", Then.AGAIN)),
    "reset at connect": both(TRANSPORT),
    # A unary answer is silent until it is whole, so its one budget does not tell whether it was accepted (3.3).
    "hangs before headers": (timed_out("headers", Then.AGAIN), UNARY),
    "reset before headers": both(TRANSPORT),
    "end before headers": both(TRANSPORT),
    "half-close before headers": both(TRANSPORT),
    "end inside of the headers": both(TRANSPORT),
    "hangs after headers": (timed_out("first_event", Then.ONCE), UNARY),
    "reset after headers": both(TRANSPORT),
    "end after headers": both(TRANSPORT),
    # What a stream opens with says nothing: the client has seen nothing of it.
    "hangs behind the opening": (timed_out("idle", Then.ONCE), None),
    "reset behind the opening": (TRANSPORT, None),
    "end behind the opening": (TRANSPORT, None),
    "hangs midway": (timed_out("idle", Then.OVER, 200), UNARY),
    # Half of a unary answer has shown the client nothing.
    "reset midway": (CUT, TRANSPORT),
    "end midway": (CUT, TRANSPORT),
    "truncated chunk": (CUT, TRANSPORT),
    **{name: both(LIMITED) for name in FAULTS if name.startswith("429")},
    "429 whose body is cut short": both(replace(LIMITED, is_theirs=False)),
    "429, quota used up": both(Meaning("quota_exhausted", Then.KEY, 429, is_theirs=True)),
    "401": both(OUR_KEY),
    "403": both(OUR_KEY),
    "400": both(Meaning("bad_request", Then.NEVER, 400, is_theirs=True)),
    "500": both(Meaning("upstream_error", Then.NEXT, 500, is_theirs=True)),
    "501": both(Meaning("upstream_error", Then.NEXT, 501, is_theirs=True)),
    "502": both(passing(502)),
    "503": both(passing(503, "overloaded")),
    # The status is known, whatever becomes of the words.
    "503 whose body is cut short": both(Meaning("overloaded", Then.AGAIN, 503, anthropic_status=529)),
    "504": both(passing(504)),
    "524": both(passing(524)),
    "529": both(passing(529, "overloaded")),
    # A page never reaches the client (1.2).
    "502 with a web page": both(Meaning("upstream_error", Then.AGAIN, 502)),
    "200 with a web page": both(GARBLED),
    "overloaded inside of a 200": both(OVERLOADED),
    "overloaded behind the opening": (OVERLOADED, None),
    "overloaded midway": (Meaning("overloaded", Then.OVER, 200), None),
    "garbage in place of HTTP": both(GARBLED),
    "garbage in place of the body": both(GARBLED),
    "slow drip": both(FINE),
    "half-close behind the answer": both(FINE),
}

NO_PASSING = ("refuses the connection", "hangs at connect")  # a place where nobody listens cannot begin to in between


@dataclass(frozen=True)
class Cell:
    """One request of the matrix. `name` is its model, and the beginning of its providers' names."""

    fault: Fault
    wire: Wire
    stream: bool
    setup: Setup
    meaning: Meaning

    @property
    def name(self) -> str:
        slug = re.sub("[^a-z0-9]+", "-", self.fault.name.lower())[:24]
        way = "stream" if self.stream else "unary"
        number = list(FAULTS).index(self.fault.name)
        return f"{number}.{slug}.{self.wire.name}.{way}.{self.setup.name.lower()}"

    @property
    def attempts(self) -> list[tuple[str, bool]]:
        """Why each attempt was made, and whether it succeeded."""
        said = ATTEMPTS[self.meaning.then][list(Setup).index(self.setup)].split()
        return [(why.rstrip("!"), not why.endswith("!")) for why in said]

    @property
    def is_limited(self) -> bool:
        return self.fault.name.startswith("429")

    @property
    def is_about_quota(self) -> bool:
        return self.meaning.error_class == "quota_exhausted"

    @property
    def is_told(self) -> bool:
        """Whether the upstream says for how long to stay away."""
        return self.is_limited and not self.is_about_quota and self.fault.name != "429 that does not say when"

    @property
    def is_asked_again(self) -> bool:
        """Whether another request follows, to see whether the key rests."""
        return self.is_limited and self.setup is Setup.ONE

    @property
    def is_served(self) -> bool:
        return self.attempts[-1][1]


@dataclass
class Seen:
    """What became of a cell."""

    answer: Answer
    reached: list[int]
    again: Answer | None = None  # to another request
    reached_again: list[int] = field(default_factory=list)
    row: Row = field(default_factory=dict)
    attempts: list[Row] = field(default_factory=list)


def cells() -> Iterator[Cell]:
    for name, fault in FAULTS.items():
        for stream, meaning in zip((True, False), MEANINGS[name], strict=True):
            for setup in Setup:
                for wire in WIRES:
                    if meaning is not None and not (setup is Setup.PASSING and name in NO_PASSING):
                        yield Cell(fault, wire, stream, setup, meaning)


# --- running it -------------------------------------------------------------------------------------------------------


def budgets(cell: Cell) -> dict[str, str]:
    """So long that no machine exceeds them, but for the one that must end what hangs."""
    hangs = cell.fault.hangs
    phase = "unary" if hangs and hangs != "connect" and not cell.stream else hangs
    return {one: budget if one == phase else LONG for one, budget in BUDGETS.items()}


def provider(cell: Cell, upstream: Upstream) -> dict[str, Any]:
    at = f"http://{upstream.host}:{upstream.port}"
    key = f"sk-{cell.name}"
    keys: dict[str, Any] = {"key": key}
    if cell.setup is Setup.POOL:
        keys = {"keys": [{"label": label, "key": f"{key}-{label}"} for label in "ab"]}
    return {
        "type": "anthropic" if cell.wire is MESSAGES else "openai",
        "endpoint": at if cell.wire is MESSAGES else f"{at}/v1",
        "models": [{"id": cell.name, "api": APIS[cell.wire]}],
        "timeouts": budgets(cell),
        "retry": RETRY,
        **keys,
    }


APIS = {CHAT: "chat", MESSAGES: "messages", RESPONSES: "responses"}
MEETS = {Setup.PASSING: Meets.FIRST, Setup.POOL: Meets.ONE_KEY}


async def run_all(folder: Path) -> dict[str, Seen]:
    """Run every cell, and return what was seen of each by its name."""
    providers: dict[str, Any] = {}
    aliases: dict[str, Any] = {}
    upstreams: dict[str, list[Upstream]] = {}
    async with AsyncExitStack() as stack:
        for cell in cells():
            meets = [MEETS.get(cell.setup, Meets.EVERY)]
            if cell.setup is Setup.FALLBACK:
                meets.append(Meets.NONE)
                aliases[f"{cell.name}.group"] = {"group": [f"{cell.name}.{n}/{cell.name}" for n in range(2)]}
            upstreams[cell.name] = [
                await stack.enter_async_context(upstream_of(cell.fault, cell.wire, stream=cell.stream, meets=one))
                for one in meets
            ]
            for number, upstream in enumerate(upstreams[cell.name]):
                providers[f"{cell.name}.{number}"] = provider(cell, upstream)
        config = {"providers": providers, "aliases": aliases, "telemetry": {"log": {"level": "warn"}}}
        gateway = Gateway(config, folder, env={"ARBITER_PROVIDER_TIMEOUT_MS": str(CAP_MS)})
        await asyncio.to_thread(gateway.start)
        try:
            turns = asyncio.Semaphore(AT_ONCE)
            tasks = [asyncio.create_task(run_one(cell, gateway.port, upstreams[cell.name], turns)) for cell in cells()]
            seen = dict(zip(upstreams, await asyncio.gather(*tasks), strict=True))
            count = len(seen) + sum(cell.is_asked_again for cell in cells())
            rows = {row["trace_id"]: row for row in await asyncio.to_thread(gateway.until_settled, count)}
            tried = {key: list(rows) for key, rows in groupby(stored_attempts(gateway), lambda row: row["request_id"])}
        finally:
            await asyncio.to_thread(gateway.stop)
    for one in seen.values():
        one.row = rows.get(one.answer.trace_id or "", {})
        one.attempts = tried.get(one.row.get("id", ""), [])
    return seen


def stored_attempts(gateway: Gateway) -> list[Row]:
    return gateway.select("SELECT * FROM attempts ORDER BY request_id, number")


async def run_one(cell: Cell, port: int, upstreams: list[Upstream], turns: asyncio.Semaphore) -> Seen:
    model = f"{cell.name}.group" if cell.setup is Setup.FALLBACK else cell.name
    # So little is said that the conversation is never pinned (5.7).
    asked = request(cell.wire.path, cell.wire.ask("hi", stream=cell.stream, model=model))
    # Who waits for a budget's end keeps nobody else waiting.
    async with nullcontext() if cell.fault.hangs else turns, await Caller.connect(port) as caller:
        seen = Seen(await caller.exchange(asked), [upstream.reached for upstream in upstreams])
        if cell.is_asked_again:
            async with await Caller.connect(port) as another:
                seen.again = await another.exchange(asked)
            seen.reached_again = [upstream.reached for upstream in upstreams]
    return seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Every cell, run once for all tests of this module."""
    began = time.monotonic()
    found = asyncio.run(run_all(tmp_path_factory.mktemp("matrix")))
    wrong = {cell.name for cell in cells() if disagreements(cell, found[cell.name])}
    print(f"\n{len(found)} cells in {time.monotonic() - began:.0f} s, {len(wrong)} of them as nobody expects\n")
    print(table(wrong))
    return found


# --- what is expected of a cell ---------------------------------------------------------------------------------------


def disagreements(cell: Cell, seen: Seen) -> list[str]:
    """Where what was seen differs from what the tables say."""
    found: list[str] = []

    def expect(what: str, is_so: object, expected: object) -> None:
        if is_so != expected:
            found.append(f"{cell.name}: {what} is {is_so!r}, not {expected!r}")

    _expect_rows(cell, seen, expect)
    _expect_upstreams(cell, seen, expect)
    if cell.is_served:
        _expect_whole(cell, seen.answer, expect)
    elif cell.meaning.then is Then.OVER:
        _expect_cut(cell, seen.answer, expect)
    else:
        _expect_error(cell, seen.answer, expect)
    if not (cell.meaning.then is Then.OVER or cell.is_served):
        expect("x-arbiter-error-source", seen.answer.header("x-arbiter-error-source") is not None, True)
    if seen.again is not None:
        # Who was told a wait is not asked before its end; who was not is, where nobody else is left (4.4).
        expect("what reached the upstream of two requests", seen.reached_again, [1 if cell.is_told else 2])
        expect("the status of the second", seen.again.status, 429)
        wait = seen.again.header("retry-after") or ""
        expect(f"its retry-after ({wait})", wait.isdecimal() and _is_near(int(wait)), cell.is_told)
    expect("x-arbiter-attempts", seen.answer.header("x-arbiter-attempts"), str(len(cell.attempts)))
    return found


def _expect_rows(cell: Cell, seen: Seen, expect: Any) -> None:
    meaning, row = cell.meaning, seen.row
    status = 200 if cell.is_served else meaning.status_for(cell.wire)
    ended = ("ok", status, None) if cell.is_served else ("error", status, meaning.error_class)
    expect("the request row", (row.get("outcome"), row.get("status"), row.get("error_class")), ended)
    expect("its count of attempts", row.get("attempts"), len(cell.attempts))
    tried = [(one["why"], one["outcome"], one["error_class"]) for one in seen.attempts]
    wanted = [(why, "ok", None) if well else (why, "error", meaning.error_class) for why, well in cell.attempts]
    expect("the attempts", tried, wanted)
    places = [(one["provider"], one["account"]) for one in seen.attempts]
    wanted_places: list[Any] = []
    first = places[0][1] if places else None
    for why, _ in cell.attempts:
        account = {"a": "b", "b": "a"}.get(first or "") if why == "key" else first
        wanted_places.append((f"{cell.name}.{int(why == 'fallback')}", account))
    expect("where they went", places, wanted_places)
    if cell.setup is Setup.POOL:
        expect("the first account", first in ("a", "b"), True)
    for one in seen.attempts:
        if one["why"] == "retry" and meaning.then is Then.AGAIN:
            expect("a wait before the retry", one["wait_us"] is not None and one["wait_us"] >= 4_000, True)
    told = seen.attempts[0]["retry_after_ms"] if seen.attempts else None
    expect(f"the wait it was told ({told})", told is not None and _is_near(told / 1000), cell.is_told)


def _is_near(wait_s: float) -> bool:
    # What was told is long, so that a busy machine's own seconds do not matter.
    return WAIT_S - 200 < wait_s <= WAIT_S


def _expect_upstreams(cell: Cell, seen: Seen, expect: Any) -> None:
    count = sum(why != "fallback" for why, _ in cell.attempts)
    wanted = [0 if cell.fault.name in NO_PASSING else count]
    if cell.setup is Setup.FALLBACK:
        wanted.append(len(cell.attempts) - count)
    expect("what reached the upstreams", seen.reached, wanted)


def _expect_whole(cell: Cell, answer: Answer, expect: Any) -> None:
    whole = b"".join(events(cell.wire)) if cell.stream else cell.wire.answer(SAID)
    expect("the status", answer.status, 200)
    expect("the ending", answer.ending, Ending.CLEAN)
    expect("the body", answer.body, whole)
    server = int(cell.attempts[-1][0] == "fallback")
    expect("x-arbiter-provider", answer.header("x-arbiter-provider"), f"{cell.name}.{server}")


def _expect_cut(cell: Cell, answer: Answer, expect: Any) -> None:
    """The output so far, once; then an error event, and no end that could be taken for one."""
    expect("the status", answer.status, 200)
    expect("a clean ending", answer.ending is Ending.CLEAN, False)
    said = b"".join(cell.wire.opening(HALF))
    expect("the output so far", answer.body[: len(said)], said)
    expect("the text", HALF.encode() in answer.body[len(said) :], False)
    expect("an error event at the end", bool(cell.wire.told(answer)), True)
    expect("a terminal event", cell.wire.terminal in answer.body, False)


def _expect_error(cell: Cell, answer: Answer, expect: Any) -> None:
    meaning = cell.meaning
    expect("the status", answer.status, meaning.status_for(cell.wire))
    expect("the ending", answer.ending, Ending.CLEAN)
    try:
        message = cell.wire.complaint(answer)
    except (AssertionError, KeyError, ValueError, TypeError) as error:
        expect(f"the error ({error})", answer.body, "an error of the client's own format")
        return
    expect("the message", bool(message) and "<" not in message, True)
    if meaning.is_theirs:
        steps = cell.fault.steps
        assert steps is not None
        theirs = steps(cell.wire, cell.stream)
        assert isinstance(theirs, bytes)
        expect("the upstream's body", answer.body, theirs.partition(b"\r\n\r\n")[2])
    # A 429 never leaves bare, nor a 503 of our own (2.7); a quota that is used up is no matter of seconds.
    if (answer.status == 429 or (answer.status == 503 and not meaning.is_theirs)) and not cell.is_about_quota:
        wait = answer.header("retry-after") or ""
        expect(f"retry-after ({wait})", wait.isdecimal() and (not cell.is_told or _is_near(int(wait))), True)
    if meaning.then is Then.OURS:
        expect("x-should-retry", answer.header("x-should-retry"), "false")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_fares_as_the_tables_say(seen: dict[str, Seen], fault: str) -> None:
    """Attempts, rows, what reached the upstreams, and the client's status and bytes, in every setup and format."""
    found = [line for cell in cells() if cell.fault.name == fault for line in disagreements(cell, seen[cell.name])]
    assert not found, "\n".join(found)


def test_every_fault_has_a_meaning() -> None:
    """And every kind of failure its attempts, in each setup."""
    assert set(MEANINGS) == set(FAULTS)
    assert set(ATTEMPTS) == set(Then) and all(len(one) == len(Setup) for one in ATTEMPTS.values())
    assert len({cell.name for cell in cells()}) == len(list(cells()))
    for cell in cells():
        assert len(cell.attempts) <= TRIES, cell.name


def test_the_page_says_what_the_tables_say() -> None:
    """`python -m tests.flow.test_fault_matrix` writes it anew."""
    assert PAGE.read_text() == page()


# --- the page ---------------------------------------------------------------------------------------------------------


def table(wrong: set[str] | frozenset[str] = frozenset()) -> str:
    """The matrix for people. A cell that is in `wrong` is marked."""
    lines = ["| the upstream | answer | class | " + " | ".join(setup.value for setup in Setup) + " |"]
    lines.append("| --- | --- | --- |" + " --- |" * len(Setup))
    for name in FAULTS:
        streamed, unary = MEANINGS[name]
        ways = [("any", (True, False))] if streamed == unary else [("stream", (True,)), ("unary", (False,))]
        for way, streams in ways:
            of_way = [cell for cell in cells() if cell.fault.name == name and cell.stream in streams]
            if of_way:
                kind = of_way[0].meaning.error_class
                told = [_told([cell for cell in of_way if cell.setup is setup], wrong) for setup in Setup]
                lines.append(f"| {name} | {way} | {f'`{kind}`' if kind else '–'} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def _told(of_setup: list[Cell], wrong: set[str] | frozenset[str]) -> str:
    if not of_setup:
        return "–"
    cell = of_setup[0]
    tried = ", ".join(why for why, _ in cell.attempts)
    end = "ok" if cell.is_served else "cut" if cell.meaning.then is Then.OVER else str(cell.meaning.status)
    if cell.meaning.anthropic_status and not cell.is_served:
        end += f" ({cell.meaning.anthropic_status} for Anthropic clients)"
    return f"{tried} → {end}" + (" ✗" if any(cell.name in wrong for cell in of_setup) else "")


def page() -> str:
    said = [then.value.partition(" (")[0] for then in Then if then is not Then.FINE]  # without the SPEC's numbers
    rules = "\n".join(f"- {one[0].upper()}{one[1:]}." for one in said)
    return f"""# What becomes of a request when its upstream fails

Each line is a way to fail, each column what stands behind the model that was asked for. A cell names the attempts by
why they were made (the row's `why`), and how the client's request ended: `ok` with the whole answer, once; a status,
with an error in the client's own format, or with the upstream's own body where it sent one in that format; or `cut`:
the output so far, an error event, and no clean end. Tests run every cell over real sockets, in every format, with
`retry.attempts: {TRIES}` and `retry.before_fallback: {RETRY["before_fallback"]}`, and write the page from what they
expect: `python -m tests.flow.test_fault_matrix`.

After a failure comes one of these:

{rules}

{table()}
An error "inside of a 200" is told in place of an answer, one "midway" after output. A 429 lets its key rest for as long
as the provider says, in any of these spellings; one that does not say when lets it rest for five seconds, and it is
asked all the same where nobody else is left. Where nobody listens, "only the first request fails" cannot be.
"""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(table())
