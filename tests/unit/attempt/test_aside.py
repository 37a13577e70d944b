"""What is done beside the loop, and the lanes that are made there."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from arbiter.attempt import lanes
from arbiter.attempt.aside import Aside
from arbiter.attempt.ask import Ask
from arbiter.attempt.conversation import Conversation
from arbiter.attempt.lane import Lane
from arbiter.attempt.made_lanes import MadeLanes
from arbiter.config.snapshot import Account
from arbiter.errors import ProtocolUnsupported
from arbiter.state.memory import Memory
from arbiter.wire.json import LONG_BYTES
from tests.fakes.asks import ask, rung

CHAT, MESSAGES = "openai-chat", "anthropic-messages"
PATIENCE_S = 10


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **more: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **more), 2 * PATIENCE_S))

    return run


def made_lanes(aside: Aside) -> MadeLanes:
    state = Memory()
    return MadeLanes(state, Conversation(state, None, "m", keeps=False), aside)


def long_ask(**more: Any) -> Ask:
    words = "some words " * 40
    turns = [{"role": ("user", "assistant")[n % 2], "content": words} for n in range(2 * LONG_BYTES // len(words))]
    return ask(CHAT, {"model": "m", "messages": [*turns, {"role": "user", "content": "?"}], **more})


@on_a_loop
async def test_the_loop_goes_on_while_something_is_done():
    """The work waits for what only the loop can do."""
    aside, told = Aside(), threading.Event()
    running = asyncio.ensure_future(aside.run(lambda: (told.wait(PATIENCE_S), threading.current_thread())))
    await asyncio.sleep(0)
    told.set()
    was_told, where = await running
    assert was_told and where is not threading.current_thread()
    aside.close()


@on_a_loop
async def test_one_thing_is_done_after_the_other():
    aside, order = Aside(), list[int]()
    await asyncio.gather(*(aside.run(lambda n=n: order.append(n)) for n in range(20)))
    assert order == list(range(20))
    aside.close()


@on_a_loop
async def test_what_fails_beside_the_loop_fails_here():
    aside = Aside()
    with pytest.raises(ZeroDivisionError):
        await aside.run(lambda: 1 // 0)
    aside.close()


@on_a_loop
async def test_who_is_cancelled_waits_for_nothing():
    """Also not for what others asked before, and that is not begun for nobody."""
    aside, told, done = Aside(), threading.Event(), list[int]()
    before = asyncio.ensure_future(aside.run(lambda: told.wait(PATIENCE_S)))
    behind = asyncio.ensure_future(aside.run(lambda: done.append(1)))
    await asyncio.sleep(0)
    behind.cancel()
    with pytest.raises(asyncio.CancelledError):
        await behind
    told.set()
    assert await before
    await aside.run(lambda: None)
    assert not done
    aside.close()


def test_only_long_requests_that_are_read_hold_others_up():
    long, short = long_ask(), ask(CHAT, {"model": "m", "messages": [{"role": "user", "content": "?"}]})
    assert lanes.holds_up(long, rung(MESSAGES)) and lanes.holds_up(long, rung(CHAT, relay="rebuild"))
    assert not lanes.holds_up(long, rung(CHAT)) and not lanes.holds_up(long, rung("any"))
    assert not lanes.holds_up(short, rung(MESSAGES))


def test_a_long_request_with_sealed_reasoning_is_read_on_the_native_lane_too():
    details = [{"type": "reasoning.encrypted", "data": "arbiter-reasoning.1.abc"}]
    turn = {"role": "assistant", "content": "x", "reasoning_details": details}
    long = long_ask()
    sealed = ask(CHAT, {"model": "m", "messages": [turn, {"role": "user", "content": "x" * LONG_BYTES}]})
    assert lanes.holds_up(sealed, rung(CHAT)) and not lanes.holds_up(long, rung(CHAT))


def test_so_is_one_whose_thoughts_are_spelt_anew_or_whose_marks_are_set():
    turn = {"role": "assistant", "content": "x" * LONG_BYTES}
    thought = ask(CHAT, {"model": "m", "messages": [{**turn, "reasoning_content": "why"}]})
    plain, marked = (ask(wire, {"model": "m", "messages": [turn]}) for wire in (CHAT, MESSAGES))
    assert lanes.holds_up(thought, rung(CHAT)) and not lanes.holds_up(plain, rung(CHAT))
    assert lanes.holds_up(plain, rung(CHAT), moved=True)
    ours = rung(MESSAGES, prompt_cache="arbiter")
    assert lanes.holds_up(marked, ours) and not lanes.holds_up(marked, rung(MESSAGES))


@pytest.mark.parametrize("theirs", [MESSAGES, CHAT])
@on_a_loop
async def test_a_lane_is_the_same_wherever_it_was_made(theirs: str):
    aside, account, target = Aside(), Account(), rung(theirs)
    there, here = made_lanes(aside), made_lanes(aside)
    await there.prepare(target, account, one := long_ask())
    prepared, made = there.of(target, account, one), here.of(target, account, long_ask())
    assert bytes(prepared.body) == bytes(made.body) and prepared.name == made.name
    assert there.of(target, account, one) is prepared
    aside.close()


@on_a_loop
async def test_it_is_prepared_in_the_thread_and_made_once(monkeypatch: pytest.MonkeyPatch):
    where: list[threading.Thread] = []
    choose = lanes.choose

    def watched(*args: Any, **more: Any) -> Lane:
        where.append(threading.current_thread())
        return choose(*args, **more)

    monkeypatch.setattr(lanes, "choose", watched)
    aside, account, target, one = Aside(), Account(), rung(MESSAGES), long_ask()
    made = made_lanes(aside)
    await made.prepare(target, account, one)
    await made.prepare(target, account, one)
    made.of(target, account, one)
    assert len(where) == 1 and where[0] is not threading.current_thread()
    await made.prepare(rung(CHAT), account, one)
    assert len(where) == 1, "what is only sent is made when it is asked for"
    aside.close()


@on_a_loop
async def test_what_cannot_be_told_is_found_out_beside_the_loop_and_said_when_asked():
    aside, account, target, one = Aside(), Account(), rung(MESSAGES), long_ask(n=2)
    made = made_lanes(aside)
    await made.prepare(target, account, one)
    for _ in range(2):
        with pytest.raises(ProtocolUnsupported):
            made.of(target, account, one)
    aside.close()
