"""Amazon Bedrock's runtime on a real socket, as strict as AWS: whoever signs wrongly is refused, and so is an odd body.

    async with Bedrock(stream(...), port=port) as bedrock:       # what a call is answered with
        ...
    bedrock.calls[0].model, .operation, .body

It checks each request as AWS does: the path's encoding, the date (within five minutes of `now`), the scope, that `host`
and `x-amz-date` are among the signed headers, that a session token is signed, the body's hash and the signature itself,
worked out here from the description of the algorithm and with none of the gateway's code. A bearer must be `bearer`.

Source: AWS Identity and Access Management, "Create a signed AWS API request"; Bedrock API reference.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from tests.fakes.origin import Origin, Peer, Request, Steps, answer

ACCESS_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN, BEARER = "tok/en==", "bedrock-api-key"
REGION = "eu-central-1"
STREAM_TYPE = ("content-type", "application/vnd.amazon.eventstream")

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([a-z0-9;-]+), "
    r"Signature=([0-9a-f]{64})"
)
_PATH = re.compile(
    r"/model/([A-Za-z0-9._~%-]+)/(converse|converse-stream|invoke|invoke-with-response-stream|count-tokens)"
)


@dataclass
class Call:
    """One call that was let in."""

    model: str
    operation: str
    body: Any
    request: Request


class Refused(Exception):
    """What AWS says to a request that it does not take."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class Bedrock(Origin):
    """See the module's docstring. `script` answers each call that was let in."""

    def __init__(self, script: Steps, *, port: int = 0, token: str | None = TOKEN, access_id: str = ACCESS_ID) -> None:
        self.calls: list[Call] = []
        self.refusals: list[str] = []
        self._script, self._token, self._access_id = script, token, access_id
        super().__init__(self._take, port=port)

    async def _take(self, peer: Peer, request: Request) -> None:
        try:
            call = self._let_in(request)
        except Refused as refused:
            self.refusals.append(f"{refused.kind}: {refused}")
            body = json.dumps({"message": str(refused)}).encode()
            kind = f"{refused.kind}:http://internal.amazon.com/coral/com.amazon.coral.service/"
            headers = [("content-type", "application/json"), ("x-amzn-errortype", kind)]
            await peer.send(answer(body, status=refused.status, headers=headers))
            return
        self.calls.append(call)
        await self._play(peer, request, self._script)

    def _let_in(self, request: Request) -> Call:
        path, _, query = request.target.partition("?")
        found = _PATH.fullmatch(path)
        if request.method != "POST" or found is None or query:
            raise Refused(404, "UnknownOperationException", f"no such operation: {request.method} {request.target}")
        self._authenticate(request, path)
        if request.header("content-type") != "application/json":
            raise Refused(400, "ValidationException", "content-type must be application/json")
        model, operation = unquote(found[1]), found[2]
        body = json.loads(request.body)
        if operation == "count-tokens":
            # Of a profile, or an ARN, it knows no model; and what it counts is a body that could be sent.
            if not model.startswith("anthropic."):
                raise invalid("The provided model doesn't support counting tokens.")
            body = json.loads(base64.b64decode(body["input"]["invokeModel"]["body"], validate=True))
        check = check_anthropic if operation.startswith(("invoke", "count")) else check_converse
        check(body, model)
        return Call(model, operation, body, request)

    def _authenticate(self, request: Request, path: str) -> None:
        shown = request.header("authorization") or ""
        if shown.startswith("Bearer "):
            if shown != f"Bearer {BEARER}":
                raise Refused(403, "AccessDeniedException", "Bearer Token is invalid")
            return
        found = _AUTHORIZATION.fullmatch(shown)
        if found is None:
            raise Refused(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
        access_id, day, region, service, names, signature = found.groups()
        date = request.header("x-amz-date") or ""
        signed = names.split(";")
        if access_id != self._access_id:
            raise Refused(403, "UnrecognizedClientException", "The security token included in the request is invalid.")
        if (region, service) != (REGION, "bedrock") or not date.startswith(day):
            raise Refused(403, "InvalidSignatureException", "Credential should be scoped to a valid region.")
        if abs(time.time() - time.mktime(time.strptime(date, "%Y%m%dT%H%M%SZ")) + time.timezone) > 300:
            raise Refused(403, "InvalidSignatureException", "Signature expired")
        if signed != sorted(signed) or not {"host", "x-amz-date"} <= set(signed):
            raise Refused(403, "IncompleteSignatureException", "'Host' or 'X-Amz-Date' must be a 'SignedHeader'")
        amazon = {name.lower() for name, _ in request.headers if name.lower().startswith("x-amz-")}
        if not amazon <= set(signed):
            raise Refused(403, "InvalidSignatureException", f"not signed: {amazon - set(signed)}")
        if request.header("x-amz-security-token") != self._token:
            raise Refused(403, "UnrecognizedClientException", "The security token included in the request is invalid.")
        lines = [request.method, quote(path, safe="/-_.~"), ""]
        lines += [f"{name}:{' '.join((request.header(name) or '').split())}" for name in signed]
        lines += ["", names, hashlib.sha256(request.body).hexdigest()]
        scope = f"{day}/{region}/{service}/aws4_request"
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        key = f"AWS4{SECRET}".encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), "sha256").digest()
        expected = hmac.new(key, f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}".encode(), "sha256").hexdigest()
        if not hmac.compare_digest(expected, signature):
            raise Refused(403, "InvalidSignatureException", "The request signature we calculated does not match")


def invalid(message: str) -> Refused:
    return Refused(400, "ValidationException", message)


def check_anthropic(body: Any, model: str) -> None:
    """What Bedrock's Claude wants of a body of Anthropic's."""
    if body.get("anthropic_version") != "bedrock-2023-05-31":
        raise invalid("anthropic_version: Field required")
    for name in ("model", "stream", "service_tier", "inference_geo", "speed"):
        if name in body:
            raise invalid(f"{name}: Extra inputs are not permitted")
    binding = (body.get("thinking") or {}).get("block_binding")
    if binding is not None and "thinking-binding-controls-2026-08-01" not in body.get("anthropic_beta", ()):
        raise invalid(f"thinking.{body['thinking']['type']}.block_binding: Extra inputs are not permitted")
    for name, inner in (("fallbacks", body), ("diagnostics", body), ("task_budget", body.get("output_config") or {})):
        if name in inner:
            raise invalid(f"{name}: Extra inputs are not permitted")
    for beta in body.get("anthropic_beta", ()):
        if beta.startswith(
            ("claude-code", "oauth", "prompt-caching-scope", "server-side", "cache-diag", "task-budgets")
        ):
            raise invalid("invalid beta flag")
    if not isinstance(body.get("max_tokens"), int) or not body.get("messages"):
        raise invalid("max_tokens: Field required")


_MEMBERS = frozenset(
    ("messages", "system", "inferenceConfig", "toolConfig", "guardrailConfig", "additionalModelRequestFields",
     "promptVariables", "additionalModelResponseFieldPaths", "requestMetadata", "performanceConfig", "serviceTier",
     "outputConfig")
)  # fmt: skip
_BLOCKS = frozenset(
    ("text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent", "cachePoint",
     "reasoningContent")
)  # fmt: skip
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_converse(body: Any, model: str) -> None:
    """What Converse wants of a body: known members, turns that alternate, tools that are there, results for calls."""
    if not body.keys() <= _MEMBERS:
        raise invalid(f"unknown members: {body.keys() - _MEMBERS}")
    calls: list[str] = []
    role = "assistant"
    documents: list[str] = []
    for turn in body["messages"]:
        if turn["role"] == role or not turn["content"]:
            raise invalid("A conversation must alternate between user and assistant roles.")
        role = turn["role"]
        results = [block["toolResult"]["toolUseId"] for block in turn["content"] if "toolResult" in block]
        if sorted(results) != sorted(calls):
            raise invalid("the number of toolResult blocks exceeds the number of toolUse blocks of previous turn")
        calls = [block["toolUse"]["toolUseId"] for block in turn["content"] if "toolUse" in block]
        for block in turn["content"]:
            if len(block) != 1 or not block.keys() <= _BLOCKS:
                raise invalid(f"unknown block: {block}")
            if "text" in block and not block["text"].strip():
                raise invalid("The text field in the ContentBlock object is blank")
            if "toolUse" in block and not isinstance(block["toolUse"]["input"], dict):
                raise invalid("toolUse.input must be an object")
            if "toolUse" in block and not _NAME.fullmatch(block["toolUse"]["toolUseId"]):
                raise invalid("toolUse.toolUseId failed to satisfy constraint")
            if "toolUse" in block and not _NAME.fullmatch(block["toolUse"]["name"]):
                raise invalid("toolUse.name failed to satisfy constraint")
            if "toolResult" in block and not block["toolResult"]["content"]:
                raise invalid("toolResult.content is empty")
            if "document" in block:
                documents.append(block["document"]["name"])
    if len(set(documents)) < len(documents):
        raise invalid("Your messages contain duplicate document names")
    used = any("toolUse" in block or "toolResult" in block for turn in body["messages"] for block in turn["content"])
    config = body.get("toolConfig")
    if used and config is None:
        raise invalid("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
    for tool in config["tools"] if config is not None else ():
        if "toolSpec" in tool and not _NAME.fullmatch(tool["toolSpec"]["name"]):
            raise invalid(f"Value {tool['toolSpec']['name']} at toolConfig.tools failed to satisfy constraint")
    is_cached = "claude" in model or "nova" in model
    if not is_cached and "cachePoint" in json.dumps(body):
        raise invalid("You invoked an unsupported model or your request did not allow prompt caching.")
