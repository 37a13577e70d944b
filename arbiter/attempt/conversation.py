"""One conversation, as far as a request belongs to one: who served it before, and who serves it now (SPEC 5.7)."""

from __future__ import annotations

from arbiter.clock import now_ms
from arbiter.config.snapshot import Account
from arbiter.routing.plan import Pinned, Rung
from arbiter.state import rules
from arbiter.state.base import Origin, Pin, State


class Conversation:
    """The pin of one request's conversation. `slot` None: it is never pinned, and nothing here does anything.

    `pinned` is who serves it, `wanted` who should be asked: the same, but where the request goes on from what somebody
    else made. `standing` is what its first step is judged by. `keeps` is False for a request that may follow the pin
    and leaves no trace of its own (count_tokens).
    """

    __slots__ = ("_asked", "_expires_ms", "_keeps", "_pin", "_state", "pinned", "slot", "standing", "wanted")

    def __init__(self, state: State, slot: bytes | None, asked: str, *, keeps: bool) -> None:
        self._state = state
        self._asked = asked
        self._keeps = keeps
        self.slot = slot
        self.standing, pin, self._expires_ms = state.glance(slot) if slot is not None else (state.standing(), None, 0)
        self._pin: Pin | None = pin
        # Another model was asked for: the pin is no longer wanted, and what serves now takes its place.
        self.pinned = Pinned(pin.provider, pin.model, pin.account, pin.moved) if pin and pin.asked == asked else None
        self.wanted = self.pinned

    def goes_on_from(self, origin: Origin | None) -> None:
        """What the request goes on from was made there: that is who accepts it, whatever the pin says."""
        if origin is not None:
            moved = self.pinned is not None and self.pinned.moved
            self.wanted = Pinned(origin.provider, origin.model, origin.account, moved)

    def has_been_elsewhere(self, rung: Rung) -> bool:
        """Whether somebody else than `rung` is known to have answered in it."""
        pin = self._pin
        return pin is not None and (pin.moved or (pin.provider, pin.model) != (rung.provider.name, rung.model))

    def dispatched(self, rung: Rung, account: Account) -> None:
        """A request goes out; where that is to the pin's target, the pin lives on."""
        if self.slot is not None and self._keeps and self._is_pinned_to(rung, account):
            ttl_s = rung.provider.pin_ttl_s
            if rules.is_due(self._expires_ms, now_ms(), ttl_s):
                self._state.refresh_pin(self.slot, ttl_s)

    def served(self, rung: Rung, account: Account) -> str | None:
        """The first output is here: what served becomes the pin. Returns what became of it: new, kept or moved."""
        if self.slot is None or not self._keeps:
            return None
        if self._is_pinned_to(rung, account):
            return "kept"
        made = Pin(self._asked, rung.provider.name, rung.model, account.label or "", self.has_been_elsewhere(rung))
        self._state.set_pin(self.slot, made, rung.provider.pin_ttl_s)
        return "new" if self.pinned is None else "moved"

    def _is_pinned_to(self, rung: Rung, account: Account) -> bool:
        pinned = self.pinned
        return (
            pinned is not None
            and pinned.model == rung.model
            and pinned.provider == rung.provider.name
            and pinned.account == (account.label or "")
        )
