"""Vertex AI: Google's models and Anthropic's, of a project at a place.

    {endpoint}/v1/projects/{p}/locations/{l}/publishers/google/models/{m}:generateContent      as of the Gemini API
    {endpoint}/v1/projects/{p}/locations/{l}/publishers/anthropic/models/{m}:rawPredict        Messages, whole
    {endpoint}/v1/projects/{p}/locations/{l}/publishers/anthropic/models/{m}:streamRawPredict  and streamed

A body of Messages says which version of the format it is, and not which model. A key is a bearer's: an access token.

Source: cloud.google.com/vertex-ai/generative-ai/docs (REST reference; Claude), 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from arbiter.config.snapshot import Account, Provider
from arbiter.wire.dialects.dialect import Changes, Dialect, Pairs, events_query
from arbiter.wire.gemini_names import path_of, quoted
from arbiter.wire.native import GEMINI, MESSAGES

VERSION = Changes({"anthropic_version": Raw(b'"vertex-2023-10-16"')}, without=("model",))


class Vertex(Dialect):
    def target(self, provider: Provider, wire: str, path: str, model: str, *, stream: bool, query: str = "") -> str:
        place = provider.vertex
        assert place is not None, "the configuration has one for each provider of this type"
        base = provider.endpoint.path
        base += "" if base.endswith("/v1") else "/v1"
        base += f"/projects/{place.project}/locations/{place.location}/publishers"
        if wire == MESSAGES:
            return f"{base}/anthropic/models/{quoted(model)}:{'streamRawPredict' if stream else 'rawPredict'}"
        return f"{base}/google{path_of(path, model, stream=stream)}{events_query(query, stream=stream)}"

    def credential(self, account: Account, wire: str) -> Pairs:
        return [("authorization", f"Bearer {account.key}")] if account.key else []

    def changes(self, wire: str, fields: Mapping[str, str], betas: tuple[str, ...] = ()) -> Changes | None:
        return VERSION if wire == MESSAGES else None

    def counts(self, wire: str) -> bool:
        return wire == GEMINI
