"""What serves a conversation becomes its pin."""

from __future__ import annotations

from arbiter.attempt.conversation import Conversation
from arbiter.config.snapshot import Account
from arbiter.routing.plan import Pinned, Rung
from arbiter.state.base import Pin
from arbiter.state.memory import Memory
from tests.fakes.asks import rung

SLOT = b"0123456789abcdef"
HOME, AWAY = rung("openai-chat", "home"), rung("openai-chat", "away")
ONE, TWO = Account("one"), Account("two")


def turn(state: Memory, target: Rung, account: Account, asked: str = "alias", *, keeps: bool = True) -> str | None:
    conversation = Conversation(state, SLOT, asked, keeps=keeps)
    conversation.dispatched(target, account)
    return conversation.served(target, account)


def test_the_first_turn_pins_and_the_next_ones_keep():
    """SPEC 5.7: provider, model and account."""
    state = Memory()
    assert turn(state, HOME, ONE) == "new"
    assert state.pin(SLOT) == Pin("alias", "up", "home", "one")
    assert turn(state, HOME, ONE) == "kept"
    assert Conversation(state, SLOT, "alias", keeps=True).pinned == Pinned("up", "home", "one")


def test_a_pin_follows_what_served():
    """SPEC 5.7: it follows a fallback. A conversation that another model served is marked for the continuity guard."""
    state = Memory()
    turn(state, HOME, ONE)
    assert turn(state, AWAY, ONE) == "moved"
    assert state.pin(SLOT) == Pin("alias", "up", "away", "one", moved=True)
    assert turn(state, HOME, ONE) == "moved"
    assert state.pin(SLOT) == Pin("alias", "up", "home", "one", moved=True)


def test_another_account_moves_the_pin_but_nothing_that_it_would_refuse():
    state = Memory()
    turn(state, HOME, ONE)
    assert turn(state, HOME, TWO) == "moved"
    assert state.pin(SLOT) == Pin("alias", "up", "home", "two")


def test_another_requested_model_discards_the_pin():
    """SPEC 5.7."""
    state = Memory()
    turn(state, HOME, ONE)
    assert Conversation(state, SLOT, "other", keeps=True).pinned is None
    assert turn(state, AWAY, ONE, "other") == "new"
    assert state.pin(SLOT) == Pin("other", "up", "away", "one", moved=True)


def test_a_request_that_keeps_nothing_follows_the_pin_and_leaves_it():
    """Counting tokens goes where the conversation is, and neither pins nor moves it."""
    state = Memory()
    assert turn(state, HOME, ONE, keeps=False) is None and state.pin(SLOT) is None
    turn(state, HOME, ONE)
    assert turn(state, AWAY, ONE, keeps=False) is None
    assert state.pin(SLOT) == Pin("alias", "up", "home", "one")


def test_without_a_slot_nothing_is_pinned():
    state = Memory()
    conversation = Conversation(state, None, "alias", keeps=True)
    conversation.dispatched(HOME, ONE)
    assert conversation.pinned is None and conversation.served(HOME, ONE) is None
    assert state.counts().pins == 0


def test_a_pin_lives_on_with_each_dispatch_to_its_target():
    """SPEC 5.8: sliding, and refreshed at dispatch, not only where the answer comes."""
    now = [1_000_000]
    state = Memory(now_ms=lambda: now[0])
    target = rung("openai-chat", "home", pin_ttl_s=300.0)
    turn(state, target, ONE)
    for _ in range(10):
        now[0] += 200_000
        Conversation(state, SLOT, "alias", keeps=True).dispatched(target, ONE)
    assert state.pin(SLOT) is not None
    now[0] += 301_000
    assert state.pin(SLOT) is None


def test_who_else_has_answered_is_known_while_there_is_a_pin():
    """A failover under way, the way back from one, and a model that the client asks for anew."""
    state = Memory()
    assert not Conversation(state, SLOT, "alias", keeps=True).has_been_elsewhere(HOME)
    turn(state, HOME, ONE)
    served = Conversation(state, SLOT, "alias", keeps=True)
    assert not served.has_been_elsewhere(HOME) and served.has_been_elsewhere(AWAY)
    assert Conversation(state, SLOT, "other", keeps=True).has_been_elsewhere(AWAY)
    turn(state, AWAY, ONE)
    moved = Conversation(state, SLOT, "alias", keeps=True)
    assert moved.has_been_elsewhere(HOME) and moved.has_been_elsewhere(AWAY)
