"""Amazon Bedrock: AWS's addresses, signatures and streams around Anthropic's format or its own.

    /model/{model}/converse            /model/{model}/converse-stream               Bedrock's own format, for any model
    /model/{model}/invoke              /model/{model}/invoke-with-response-stream   the model's own: Anthropic's
    /model/{model}/count-tokens                                                     how many tokens either would read

A body of Anthropic's leaves without `model` and `stream`, which the path says, and with a version of Bedrock's own; the
client's beta features go into the body, as far as Bedrock knows them (one that it does not know is a 400 for the whole
request, and so is a member whose feature is not asked for: they stay behind together). Requests are signed (SigV4) with
an access key, or show a Bedrock API key as a bearer.

What is to be counted is the body that would be sent, in base64, and so has to say how much may be written. Only bare
names of models are counted: of a profile, that of its model is asked for.

Source: AWS, Amazon Bedrock API reference and user guide ("Anthropic Claude Messages API", "Use API keys",
"CountTokens"), 2026-11; what CountTokens says of profiles: Boise-State-Development/agentcore-public-stack#430,
pydantic/pydantic-ai#3367.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from arbiter.config.snapshot import Account, Provider
from arbiter.errors import Garbled
from arbiter.pieces import Body
from arbiter.wire.dialects.dialect import Changes, Dialect, Pairs
from arbiter.wire.dialects.sigv4 import authorization, quoted, stamp
from arbiter.wire.dialects.unframing import CONTENT_TYPE, Unframer
from arbiter.wire.native import MESSAGES

VERSION = Raw(b'"bedrock-2023-05-31"')
SERVICE = "bedrock"

BETAS = frozenset(
    (
        "computer-use-2024-10-22",
        "computer-use-2025-01-24",
        "computer-use-2025-11-24",
        "token-efficient-tools-2025-02-19",
        "interleaved-thinking-2025-05-14",
        "output-128k-2025-02-19",
        "dev-full-thinking-2025-05-14",
        "context-1m-2025-08-07",
        "context-management-2025-06-27",
        "effort-2025-11-24",
        "tool-search-tool-2025-10-19",
        "tool-examples-2025-10-29",
        "thinking-binding-controls-2026-08-01",
    )
)
"""The beta features of Anthropic's that Bedrock knows."""

_NEEDING = (("server-side-fallback-", "fallbacks"), ("cache-diagnosis-", "diagnostics"))
_NEEDING_INSIDE = (("task-budgets-", ("output_config", "task_budget")),)
"""Members of a feature that Bedrock does not know, by how the feature's name begins, of whatever date."""

_ELSEWHERE = ("model", "stream", "service_tier", "inference_geo", "speed")
"""Members of Anthropic's own API that Bedrock says otherwise, or has no choice of, and refuses."""
_PLAIN = Changes({"anthropic_version": VERSION}, _ELSEWHERE)


_PROFILED = re.compile(r"(?:arn:[^/]*:(?:inference-profile|foundation-model)/)?(?:[a-z-]+\.)?(anthropic\..+)")
"""The name of a model of Anthropic's in that of a profile of some region's, or in an ARN."""


class _Thinking(msgspec.Struct):
    budget_tokens: int = 0


class _Asked(msgspec.Struct):
    thinking: _Thinking | None = None


class _Counted(msgspec.Struct, rename="camel"):
    input_tokens: int


_decode_asked, _decode_counted = msgspec.json.Decoder(_Asked).decode, msgspec.json.Decoder(_Counted).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Bedrock(Dialect):
    counts_by_right = True  # bedrock:CountTokens
    names_its_own = True
    tells_errors = False
    seals = True

    def target(self, provider: Provider, wire: str, path: str, model: str, *, stream: bool, query: str = "") -> str:
        """The client's query is Anthropic's own (`?beta=true`), and stays behind."""
        if wire == MESSAGES and path.endswith("/count_tokens"):
            call = "count-tokens"
            model = found[1] if (found := _PROFILED.fullmatch(model)) is not None else model
        elif wire == MESSAGES:
            call = "invoke-with-response-stream" if stream else "invoke"
        else:
            call = "converse-stream" if stream else "converse"
        return f"{provider.endpoint.path}/model/{quoted(model)}/{call}"

    def credential(self, account: Account, wire: str) -> Pairs:
        """A key without an id is a Bedrock API key; what has one signs, and is never shown."""
        if not account.key or account.access_id:
            return []
        return [("authorization", f"Bearer {account.key}")]

    def counts(self, wire: str) -> bool:
        return wire == MESSAGES

    def to_count(self, wire: str, body: bytes) -> bytes:
        members = _decode_members(body)
        if "max_tokens" not in members:
            try:
                thinking = _decode_asked(body).thinking
            except msgspec.MsgspecError:
                thinking = None  # its provider says what is wrong with it
            members["max_tokens"] = Raw(b"%d" % ((thinking.budget_tokens if thinking is not None else 0) + 1))
            body = msgspec.json.encode(members)
        return msgspec.json.encode({"input": {"invokeModel": {"body": body}}})  # bytes are written in base64

    def counted(self, wire: str, answer: bytes) -> bytes:
        try:
            return msgspec.json.encode({"input_tokens": _decode_counted(answer).input_tokens})
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise Garbled("the upstream's answer holds no count") from None

    def changes(
        self, wire: str, fields: Mapping[str, str], betas: tuple[str, ...] = (), *, counts: bool = False
    ) -> Changes | None:
        if wire != MESSAGES:
            return None
        asked = [name.strip() for name in fields.get("anthropic-beta", "").split(",")]
        known = [name for name in dict.fromkeys((*asked, *betas)) if name in BETAS]
        unknown = [name for name in asked if name not in BETAS]
        without = tuple(member for beta, member in _NEEDING if any(name.startswith(beta) for name in unknown))
        inner = tuple(place for beta, place in _NEEDING_INSIDE if any(name.startswith(beta) for name in unknown))
        more = {"anthropic_beta": Raw(msgspec.json.encode(known))} if known else {}
        if not (more or without or inner):
            return _PLAIN
        return Changes({**_PLAIN.more, **more}, (*_PLAIN.without, *without), inner)

    def sealed(
        self,
        provider: Provider,
        account: Account,
        target: str,
        headers: Pairs,
        body: Body,
        *,
        now_ms: int,
        stream: bool,
    ) -> Pairs:
        out = [pair for pair in headers if not pair[0].startswith("anthropic-")]
        if stream:
            out = [("accept", CONTENT_TYPE) if pair[0] == "accept" else pair for pair in out]
        if not account.access_id:
            return out
        date = stamp(now_ms)
        signed = [("host", provider.endpoint.authority), ("x-amz-date", date)]
        signed += [pair for pair in out if pair[0] == "content-type"]
        if account.session_token:
            signed.append(("x-amz-security-token", account.session_token))
        shown = authorization(
            access_id=account.access_id,
            secret=account.key,
            region=provider.region or "",
            service=SERVICE,
            method="POST",
            target=target,
            headers=signed,
            body=bytes(body),
            date=date,
        )
        own = ("authorization", "x-amz-date", "x-amz-security-token")
        out = [pair for pair in out if pair[0].lower() not in own]
        out += [pair for pair in signed if pair[0] in own]
        return [*out, ("authorization", shown)]

    def unframer(self, kind: str, wire: str, limit: int) -> Unframer | None:
        return Unframer(wire, limit) if kind.startswith(CONTENT_TYPE) else None
