"""What a climb needs of the books. The ledger's own are handed in by the spine (`ledger.book`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Raw

from arbiter.accounting.facts import Facts
from arbiter.config.snapshot import Account
from arbiter.errors import ArbiterError
from arbiter.routing.plan import Rung
from arbiter.upstream.exchange import Answering


class Attempt(Protocol):
    """One attempt, written down before it was sent. It is closed exactly once; closing it again does nothing."""

    def sent(self) -> None:
        """The request is on its way to the upstream: what has time until it answers may begin."""

    def answered(self, exchange: Answering) -> None:
        """The response head is here."""

    def whole(self) -> None:
        """The whole answer is here."""

    def waited_us(self, first_event_ns: int) -> int:
        """How long we waited for what the client gets first: the first event of a stream, or the whole answer."""

    def close(self, facts: Facts | None, error: ArbiterError | None) -> None:
        """The attempt ended: with an answer, or with `error` (and what was metered until then)."""


class Books(Protocol):
    """Where attempts are written down."""

    def serves(self, rung: Rung, fidelity: str) -> None:
        """It is `rung`'s answer that the client gets, whoever was tried after it."""

    def warn(self, what: str) -> None:
        """The caller should know this."""

    def explain(self, passed: Mapping[str, str]) -> None:
        """Why some targets or accounts were not asked, or not in their turn: the rationale goes on with it."""

    def open(
        self,
        rung: Rung,
        account: Account,
        wire: str,
        lane: str,
        fidelity: str,
        *,
        why: str = "first",
        wait_us: int | None = None,
        edited: Mapping[str, Raw] | None = None,
        marked: bytes | None = None,
    ) -> Attempt:
        """Write down that `rung` is about to be tried on `account` in the format `wire`, on the lane `native` or
        `translated`, and what that made of the request. `why` is what brought the climb here, `wait_us` how long it
        waited before; `edited` are the members of the request where they are not the client's any more, `marked` is the
        body that is sent, where its cache marks are not the client's."""
