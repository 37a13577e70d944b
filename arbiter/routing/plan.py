"""Where a request may go, in order, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from arbiter.config.snapshot import APIS, Client, Provider
from arbiter.model import Target


@dataclass(frozen=True, slots=True)
class Login:
    """A credential that is not for us: the caller's own, for one provider. `sent` are the headers it came in, `mark` is
    its fingerprint, and `label` what rows, logs and state know it by."""

    mark: bytes
    sent: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def label(self) -> str:
        return f"login-{self.mark.hex()[:12]}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody else may read."""
        return tuple(
            [value.partition(" ")[2].strip() if name == "authorization" else value for name, value in self.sent]
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks us. `client` is None for a caller without a key that we know; `login` is what it brought for somebody
    else, where there is a provider that takes such things.

    `name` is the client's. `owner` is whose conversations these are: the client's, else the login's; None where nobody
    tells one from another.
    """

    client: Client | None = None
    login: Login | None = None
    name: str | None = field(init=False)
    owner: str | None = field(init=False)

    def __post_init__(self) -> None:
        name = self.client.name if self.client is not None else None
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "owner", name or (self.login.label if self.login is not None else None))


ANYONE = Caller()


@dataclass(frozen=True, slots=True)
class Rung:
    """One target of a climb: whom to ask, and under which name the model goes by there.

    `known_as` is what the operator calls the model, where that is another name: a provider's own (a deployment, an ARN)
    need not say which model it is. `api` is the API that the operator named for the model, `wire` the format that it is
    asked in: that API's, else the provider's. `max_output` is what the operator says that the model writes at most.
    `url` is the provider's, `target` what a builder of its requests is told of it, `name` "provider/model" as state and
    metrics know it; all worked out once. `ways` keeps what others worked out for all its requests of a kind.
    """

    provider: Provider
    model: str
    max_output: int | None = None
    api: str | None = None
    known_as: str | None = None
    wire: str = field(init=False)
    url: str = field(init=False)
    target: Target = field(init=False)
    name: str = field(init=False)
    ways: dict[tuple[str, str], object] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        provider = self.provider
        target = Target(
            prompt_cache=provider.prompt_cache,
            prompt_cache_ttl=provider.prompt_cache_ttl,
            max_output=self.max_output,
            drop_attribution=provider.drops_attribution,
            server=provider.endpoint.host,
        )
        object.__setattr__(self, "wire", APIS[self.api] if self.api is not None else provider.wire_of(self.model))
        object.__setattr__(self, "url", provider.url)
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "name", f"{provider.name}/{self.model}")
        object.__setattr__(self, "ways", {})

    @property
    def window(self) -> int | None:
        """How many tokens of input it takes; None where nobody said."""
        return self.provider.window(self.model)


class Pinned(msgspec.Struct, frozen=True, gc=False):
    """Who served the conversation so far. `account` is a label, "" where the account has none."""

    provider: str
    model: str
    account: str
    moved: bool = False


class Facts(Protocol):
    """What has been seen of targets, by the name "provider/model" (`Rung.name`)."""

    def busy(self, target: str) -> int:
        """Requests under way."""

    def speed(self, target: str) -> tuple[float, float] | None:
        """Medians of what was measured lately: (seconds to the first event, tokens per second)."""


class Amount(Protocol):
    """How large a prompt is, about: enough to choose by, not to bill by."""

    def tokens(self, target: str) -> int:
        """In tokens of the target "provider/model"."""


class Asked(msgspec.Struct, frozen=True):
    """What a plan is made for. All but the model only puts targets into order, or says who may ask.

    `slot` is the conversation's (`sessions.affinity`): with it a draw falls the same way in every process and on every
    turn. Without one `draw` is what falls: evenly from 0 up to but not including 1, new for each request.
    """

    model: str
    caller: Caller = ANYONE
    pinned: Pinned | None = None
    slot: bytes | None = None
    draw: float = 0.0
    facts: Facts | None = None
    amount: Amount | None = None
    """Of input; some prices depend on it. None: nobody asks for anything yet."""


class Plan(msgspec.Struct, frozen=True):
    """The rungs to try, first to last; the climb tries the accounts of each before it goes on to the next.

    `rationale` is one line for people, `alias` the alias that was named, if any, and `warning` what the caller should
    know about the name it used (SPEC 9.6). `is_explicit`: the caller named this very model, and gets no other.
    `pinned` is who served the conversation before, where it is still among the rungs; its rung then comes first.
    `window` is what the name asked for besides, as it stands in it (`[1m]`). `is_auto`: nobody declared the model, and
    its provider is to be asked whether there is one. `claims`: it is the first to send its caller's login anywhere.
    """

    rungs: tuple[Rung, ...]
    rationale: str
    alias: str | None = None
    warning: str | None = None
    is_explicit: bool = False
    pinned: Pinned | None = None
    window: str = ""
    is_auto: bool = False
    claims: bool = False


def explained(rationale: str, passed: Mapping[str, str]) -> str:
    """`rationale`, and behind it who was not asked, or not in its turn, each with the reason."""
    return f"{rationale}; {', '.join(f'{who} {why}' for who, why in passed.items())}" if passed else rationale
