"""Vertex AI: Google's models and Anthropic's, of a project at a place.

    {endpoint}/v1/projects/{p}/locations/{l}/publishers/google/models/{m}:generateContent      as of the Gemini API
    {endpoint}/v1/projects/{p}/locations/{l}/publishers/anthropic/models/{m}:rawPredict        Messages, whole
    {endpoint}/v1/projects/{p}/locations/{l}/publishers/anthropic/models/{m}:streamRawPredict  and streamed
    {endpoint}/v1/projects/{p}/locations/{l}/publishers/anthropic/models/count-tokens:rawPredict  counted

A body of Messages says which version of the format it is, and not which model, but where it is counted. A count of
Gemini's has its request's members for its own here, some of them. A key is a bearer's: an access token.

Source: cloud.google.com/vertex-ai/generative-ai/docs (REST reference; Claude, "Count tokens"), 2026-11; anthropics'
SDK for Python, `lib/vertex`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from arbiter.config.snapshot import Account, Provider
from arbiter.wire.dialects.dialect import Changes, Dialect, Pairs, events_query
from arbiter.wire.gemini_names import path_of, quoted, to_count
from arbiter.wire.native import GEMINI, MESSAGES

VERSION = Changes({"anthropic_version": Raw(b'"vertex-2023-10-16"')}, without=("model",))
COUNTED = Changes(VERSION.more)
_COUNTED_MEMBERS = ("contents", "systemInstruction", "system_instruction", "tools", "generationConfig",
                    "generation_config")  # fmt: skip
"""Of a request of Gemini's, in both spellings: what a count takes here. Others are a 400."""


_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Vertex(Dialect):
    def target(self, provider: Provider, wire: str, path: str, model: str, *, stream: bool, query: str = "") -> str:
        place = provider.vertex
        assert place is not None, "the configuration has one for each provider of this type"
        base = provider.endpoint.path
        base += "" if base.endswith("/v1") else "/v1"
        base += f"/projects/{place.project}/locations/{place.location}/publishers"
        if wire == MESSAGES and path.endswith("/count_tokens"):
            return f"{base}/anthropic/models/count-tokens:rawPredict"
        if wire == MESSAGES:
            return f"{base}/anthropic/models/{quoted(model)}:{'streamRawPredict' if stream else 'rawPredict'}"
        return f"{base}/google{path_of(path, model, stream=stream)}{events_query(query, stream=stream)}"

    def credential(self, account: Account, wire: str) -> Pairs:
        return [("authorization", f"Bearer {account.key}")] if account.key else []

    def changes(
        self, wire: str, fields: Mapping[str, str], betas: tuple[str, ...] = (), *, counts: bool = False
    ) -> Changes | None:
        if wire != MESSAGES:
            return None
        return COUNTED if counts else VERSION

    def counts(self, wire: str) -> bool:
        return wire in (GEMINI, MESSAGES)

    def to_count(self, wire: str, body: bytes) -> bytes:
        if wire != GEMINI:
            return body
        members = _decode(body)
        inner = to_count(members)
        return body if inner is members else _encode({n: inner[n] for n in _COUNTED_MEMBERS if n in inner})
