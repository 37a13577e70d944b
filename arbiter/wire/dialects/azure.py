"""Azure OpenAI and Foundry: OpenAI's formats at addresses of their own, with the key in a header of its own.

    {endpoint}/openai/v1/chat/completions                                       since 2025-08; the deployment is `model`
    {endpoint}/openai/deployments/{deployment}/chat/completions?api-version=…   before; where `api_version` is set
    {endpoint}/anthropic/v1/messages                                            Claude in Foundry (`api: messages`)

What it says of its content filter (`prompt_filter_results`, a first chunk without choices, `innererror` in a refusal)
is read where everybody's answers and errors are.

Source: Microsoft's reference of Azure OpenAI in Foundry (API version lifecycle, REST API), 2026-11.
"""

from __future__ import annotations

from arbiter.config.snapshot import Account, Provider
from arbiter.wire.dialects.dialect import Dialect, Pairs
from arbiter.wire.dialects.sigv4 import quoted
from arbiter.wire.native import MESSAGES, RESPONSES

V1 = "/openai/v1"


class Azure(Dialect):
    names_its_own = True

    def target(self, provider: Provider, wire: str, path: str, model: str, *, stream: bool, query: str = "") -> str:
        base, version = provider.endpoint.path, provider.api_version
        if version is not None:  # what a client says of it is for a deployment of its own
            query = "&".join(pair for pair in query.split("&") if pair.partition("=")[0] != "api-version")
        tail = f"?{query}" if query else ""
        if wire == MESSAGES:
            base = base if base.endswith("/anthropic") else base.removesuffix(V1) + "/anthropic"
            return f"{base}/v1{path}{tail}"
        if base.endswith(V1):
            return base + path + tail
        base = base.removesuffix("/openai")
        if version is None:
            return base + V1 + path + tail
        # The Responses had no deployment in their path even then.
        place = "/openai" if wire == RESPONSES else f"/openai/deployments/{quoted(model)}"
        return f"{base}{place}{path}?api-version={quoted(version)}{f'&{query}' if query else ''}"

    def credential(self, account: Account, wire: str) -> Pairs:
        return [("x-api-key" if wire == MESSAGES else "api-key", account.key)] if account.key else []
