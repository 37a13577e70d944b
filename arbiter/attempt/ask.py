"""What a climb is asked to get: one understood request, ready to be put to any rung."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from arbiter import inputs
from arbiter._speedups import nesting
from arbiter.attempt.amounts import Amount
from arbiter.config.snapshot import Limits
from arbiter.errors import BadRequest, InvalidReasoning, TooLarge
from arbiter.model import Request
from arbiter.wire import native, unsealed
from arbiter.wire.format import FORMATS, Wire
from arbiter.wire.headers import Incoming
from arbiter.wire.json import LONG_BYTES
from arbiter.wire.places import place_of
from arbiter.wire.restored import HandedAlong
from arbiter.wire.vault import Vault

# Each value becomes an object or two, at some 3 us, while everybody else waits. Agents send one for every 250 bytes of
# conversation and 25 for a tool: a million tokens and a thousand tools are less than half of this.
MAX_VALUES = 100_000

_COUNTS = ("/count_tokens", "/input_tokens", ":countTokens")


class Ask(msgspec.Struct, eq=False):
    """One request, opened one level deep. `path` is the endpoint's path below the format's base."""

    format: Wire
    path: str
    opened: native.Opened
    incoming: Incoming
    limits: Limits
    stream: bool
    trace_id: str
    amount: Amount | None = None  # of input
    owner: str | None = None  # the client that asks; None where it is unattributed
    client: str | None = None  # its name; unlike an owner, it is the same when a login was refreshed
    vault: Vault | None = None  # of reasoning that clients hand along; None where there is no key for it
    method: str = "POST"
    is_of_stored: bool = False  # it is about an answer that a provider keeps, and has no body
    claim: Callable[[], bool] = lambda: False  # whether a stored answer's tokens are yet to be counted; they are then
    edits: tuple[str, ...] = ()  # JSON paths that were changed since the client sent it
    window: str = ""  # that the model's name asks for, as it stands there (`routing.undeclared`)
    counts_tokens: bool = False
    _request: Request | None = None
    _handed: HandedAlong | None = None
    _seems_sealed: bool | None = None
    _is_long: bool | None = None

    def __post_init__(self) -> None:
        self.counts_tokens = self.path.endswith(_COUNTS)

    @property
    def is_background(self) -> bool:
        """Whether the answer is made also where nobody waits for it."""
        return self.format.name == native.RESPONSES and bytes(self.opened.members.get("background", b"")) == b"true"

    @property
    def is_long(self) -> bool:
        """Whether to read all of it would hold up others."""
        if self._is_long is None:
            self._is_long = self._exceeds(LONG_BYTES)
        return self._is_long

    def _exceeds(self, size: int) -> bool:
        """Whether its members' values have more than so many bytes."""
        opened, written = self.opened, self.opened.written
        if written is not None and written.members is opened.members and len(written.body) <= size:
            return False
        return sum([len(memoryview(raw)) for raw in opened.members.values()]) > size

    @property
    def is_bound_to_format(self) -> bool:
        """Whether only an upstream of the client's own format can answer it."""
        return self.path != self.format.path

    def edited(self, members: Mapping[str, msgspec.Raw], changed: tuple[str, ...]) -> Ask:
        """The same request with other `members`; `changed` are the JSON paths at which they differ."""
        return msgspec.structs.replace(
            self,
            opened=msgspec.structs.replace(self.opened, members=dict(members)),
            edits=tuple(dict.fromkeys(self.edits + changed)),
            _request=None,
            _handed=None,
            _seems_sealed=None,
            _is_long=None,
        )

    def let_go(self) -> None:
        """It is put to nobody again: hold no more of it than its answer may repeat, which is Responses' way."""
        self._request = self._handed = None
        told = inputs.beside(self.opened.told) if self.format.name == native.RESPONSES else {}
        self.opened = native.Opened(told, self.opened.model, self.opened.stream)

    def request(self) -> Request:
        """The request in neutral words, read once, when a rung first needs it.

        Errors: BadRequest naming the path of the fault; TooLarge where it has too many values to be read in one go.
        """
        if self._request is None:
            if self._exceeds(MAX_VALUES) and self._commas() > MAX_VALUES:
                raise TooLarge(f"the request body has more than {MAX_VALUES:,} values, too many to translate")
            request = FORMATS[self.format.name].parse_request(self.opened.members)
            if not request.messages:
                name = inputs.name_in(self.opened.members) or "input"
                raise BadRequest(f"{name}: there must be at least one", param=name)
            self._request = request
        return self._request

    def _commas(self) -> int:
        return sum([nesting.commas(memoryview(raw)) for raw in self.opened.members.values()])

    @property
    def seems_sealed(self) -> bool:
        """Whether there could be sealed reasoning in it. False is certain."""
        if self._seems_sealed is None:
            self._seems_sealed = unsealed.may_hold(self.format.name, self.opened.members)
        return self._seems_sealed

    def handed_along(self) -> HandedAlong:
        """The sealed reasoning in it, opened once. Errors: those of `request`; InvalidReasoning naming its place."""
        if self._handed is None:
            try:
                self._handed = HandedAlong(self.request(), self.vault, self.client)
            except InvalidReasoning as error:
                parse = FORMATS[self.format.name].parse_request
                # A chat's stands beside the content, where nobody looks; but its messages are the neutral ones.
                place = place_of(error.part, self.opened.members, parse) or error.param
                raise InvalidReasoning(f"{place}: {error}", param=place, part=error.part) from None
        return self._handed
