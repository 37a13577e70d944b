"""Where a request may go, in order, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from arbiter.config.snapshot import Client, Provider


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks us. `client` is None for a caller without a key that we know."""

    client: Client | None = None

    @property
    def name(self) -> str | None:
        return self.client.name if self.client is not None else None


ANYONE = Caller()


@dataclass(frozen=True, slots=True)
class Rung:
    """One target of a climb: whom to ask, and under which name the model goes by there.

    `url` is the provider's, worked out once.
    """

    provider: Provider
    model: str
    url: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.provider.url)


@dataclass(frozen=True, slots=True)
class Plan:
    """The rungs to try, first to last.

    `rationale` is one line for people, `alias` the alias that was named, if any, and `warning` what the caller should
    know about the name it used (SPEC 9.6).
    """

    rungs: tuple[Rung, ...]
    rationale: str
    alias: str | None = None
    warning: str | None = None
