"""Gemini requests, outwards: `model.Request` -> the body for an upstream. The model and whether it streams are in the
path.

Members leave in a fixed order and nothing random enters, so that a conversation which only grew has the same bytes up
to its last turn (SPEC 2.4). What this format cannot say is either left out as docs/formats.md declares, or, where the
request would change its meaning, refused.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Raw

from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import OpaqueTool, OutputShape, Request, Target, Tool
from arbiter.wire import toolbox
from arbiter.wire.attribution import without_attribution
from arbiter.wire.disguises import as_functions
from arbiter.wire.gemini_models import abilities_of, thinking
from arbiter.wire.gemini_names import disguised, sent_name
from arbiter.wire.gemini_parse import tier_out
from arbiter.wire.gemini_parts import FORMAT
from arbiter.wire.gemini_turns import parts_of, turns_of
from arbiter.wire.instructions import apart
from arbiter.wire.json import encode_sliced

MAX_STOPS = 5

_NOBODY = Target()


def build_request(request: Request, target: Target = _NOBODY) -> bytes:
    """Return the body of an upstream request. The same request always gives the same bytes (SPEC 2.4).

    Shapes: Claude Code's attribution line never leaves, whatever `target` says of it; cache marks do not either.
    Errors: ProtocolUnsupported where a part or a tool has no place in this format, where several choices are asked for,
    or more stop sequences than it takes. BadRequest where a call is asked for and there are no tools.
    """
    if (request.choices or 1) > 1:
        raise ProtocolUnsupported("n: where a request is translated or rebuilt there is one choice", param="n")
    disguised(request)  # refuses what could not be told apart
    asked = request.tools
    request = as_functions(request.elsewhere(is_googles=True))
    stops = [one for one in request.stop if one]
    if len(stops) > MAX_STOPS:
        raise ProtocolUnsupported(f"Gemini takes at most {MAX_STOPS} stop sequences", param="stop")
    system, contents = _conversation(request)
    body: dict[str, Any] = {}
    if system:
        body["systemInstruction"] = {"parts": system}
    body["contents"] = contents
    tools = toolbox.encoded(asked, (FORMAT, _allowed(request)), partial(_tools, request)) if asked else b""
    if tools:
        body["tools"] = Raw(tools)
    calling = _calling(request, tools=bool(tools))
    if calling is not None:
        body["toolConfig"] = {"functionCallingConfig": calling}
    asked_most = [most for most in (request.max_output, target.max_output) if most is not None and most > 0]
    config: dict[str, Any] = {
        "temperature": request.temperature,
        "topP": request.top_p,
        "topK": request.top_k,
        "maxOutputTokens": min(asked_most) if request.max_output is not None and asked_most else None,
        "stopSequences": stops or None,
        "seed": request.seed,
        "presencePenalty": request.presence_penalty,
        "frequencyPenalty": request.frequency_penalty,
        "thinkingConfig": thinking(request.reasoning, request.model),
        **(_shape(request.output) if request.output is not None else {}),
    }
    config = {name: value for name, value in config.items() if value is not None}
    if config:
        body["generationConfig"] = config
    if request.cached is not None:
        body["cachedContent"] = request.cached
    tier = tier_out(request.service_tier)
    if tier is not None:
        body["serviceTier"] = tier
    return encode_sliced(body, "contents")


def _conversation(request: Request) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the instructions at the head, and the contents."""
    head, rest = apart(without_attribution(request.messages))
    system = parts_of(part for message in head for part in message.parts())
    return system, turns_of(rest, wants_signatures=abilities_of(request.model).wants_signatures)


def _allowed(request: Request) -> frozenset[str]:
    """Which tools may be called is only said of calls that must be made: else the others are left out."""
    choice = request.tool_choice
    return frozenset(choice.allowed) if choice is not None and choice.mode == "auto" else frozenset()


def _tools(request: Request) -> list[Any]:
    allowed = _allowed(request)
    declared: list[Any] = []
    own: list[Any] = []
    for i, tool in enumerate(request.tools):
        if isinstance(tool, Tool):
            if not allowed or tool.name in allowed:
                declared.append(_tool(tool))
        elif isinstance(tool, OpaqueTool) and tool.format == FORMAT:
            own.append(Raw(tool.raw))
        elif not tool.needless:
            raise ProtocolUnsupported(
                f"tools[{i}]: this tool is another vendor's own, and this upstream speaks Gemini",
                param=f"tools[{i}]",
            )
    return ([{"functionDeclarations": declared}] if declared else []) + own


def _tool(tool: Tool) -> dict[str, Any]:
    built: dict[str, Any] = {"name": sent_name(tool.name)}
    if tool.description is not None:
        built["description"] = tool.description
    if tool.parameters is not None:
        built["parametersJsonSchema"] = Raw(tool.parameters)
    return built


def _calling(request: Request, *, tools: bool) -> dict[str, Any] | None:
    choice = request.tool_choice
    if choice is None or choice.mode == "auto":
        return None
    if not tools:
        if choice.mode != "none":
            raise BadRequest("tool_choice asks for a call, but there are no tools", param="tool_choice")
        return None
    if choice.mode == "none":
        return {"mode": "NONE"}
    names = (choice.name or "",) if choice.mode == "tool" else choice.allowed
    return {"mode": "ANY", **({"allowedFunctionNames": [sent_name(name) for name in names]} if names else {})}


def _shape(output: OutputShape) -> dict[str, Any]:
    if output.kind == "text":
        return {}
    found: dict[str, Any] = {"responseMimeType": "application/json"}
    if output.kind == "json_schema" and output.schema is not None:
        found["responseJsonSchema"] = Raw(output.schema)
    return found
