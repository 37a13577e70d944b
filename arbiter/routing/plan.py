"""Where a request may go, in order, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from arbiter.config.snapshot import Client, Provider
from arbiter.model import Target


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

    `max_output` is what the operator says that the model writes at most. `url` is the provider's, `target` what a
    builder of its requests is told of it; both are worked out once.
    """

    provider: Provider
    model: str
    max_output: int | None = None
    url: str = field(init=False)
    target: Target = field(init=False)

    def __post_init__(self) -> None:
        provider = self.provider
        target = Target(
            prompt_cache=provider.prompt_cache,
            prompt_cache_ttl=provider.prompt_cache_ttl,
            max_output=self.max_output,
            drop_attribution=provider.drops_attribution,
        )
        object.__setattr__(self, "url", provider.url)
        object.__setattr__(self, "target", target)


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
