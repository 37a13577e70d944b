"""What a climb is asked to get: one understood request, ready to be put to any rung."""

from __future__ import annotations

import msgspec

from arbiter.config.snapshot import Limits, Provider
from arbiter.errors import ProtocolUnsupported
from arbiter.wire import native
from arbiter.wire.format import Format
from arbiter.wire.headers import Incoming


class Ask(msgspec.Struct, frozen=True):
    """One request, opened one level deep. `path` is the endpoint's path below the format's base."""

    format: Format
    path: str
    opened: native.Opened
    incoming: Incoming
    stream: bool
    limits: Limits

    def target(self, provider: Provider) -> str:
        """The request target at `provider`, query string included.

        Vendors differ in what a base URL ends with: OpenAI's holds `/v1`, Anthropic's does not; people write either.
        """
        base = provider.endpoint.path
        path = self.path
        if self.format.name == native.MESSAGES and not base.endswith("/v1"):
            path = "/v1" + path
        query = self.incoming.query
        return f"{base}{path}?{query}" if query else base + path

    def splice(self, provider: Provider, model: str) -> native.Spliced:
        """The body for `provider`.

        Errors: ProtocolUnsupported where the provider speaks another format.
        """
        if provider.wire not in (self.format.name, "any"):
            raise ProtocolUnsupported(
                f"the provider {provider.name!r} speaks {provider.wire} and this request came as {self.format.name}; "
                "translation between the two is not built yet"
            )
        wire = self.format.name
        drop_attribution = wire == native.MESSAGES and drops_attribution(provider)
        return native.splice(self.opened, wire, model, stream=self.stream, drop_attribution=drop_attribution)


def drops_attribution(provider: Provider) -> bool:
    """Whether Claude Code's attribution line is taken out for `provider` (SPEC 2.2a). Anthropic removes it itself."""
    if provider.attribution != "auto":
        return provider.attribution == "drop"
    host = provider.endpoint.host
    return host != "anthropic.com" and not host.endswith(".anthropic.com")
