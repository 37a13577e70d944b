"""OpenAI Chat requests, outwards: `model.Request` -> the body for an upstream.

Members leave in a fixed order and nothing random enters, so that a conversation which only grew has the same bytes up
to its last turn (SPEC 2.4). What this format cannot say is either left out as docs/formats.md declares, or, where the
request would change its meaning, refused. What a server of this format takes differs; `openai_models` tells.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Raw

from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import OutputShape, Request, Target, Tool
from arbiter.wire import toolbox
from arbiter.wire.attribution import without_attribution
from arbiter.wire.chat_messages import build_messages
from arbiter.wire.chat_parse import FORMAT
from arbiter.wire.disguises import Disguises, as_functions
from arbiter.wire.json import encode_sliced, type_of
from arbiter.wire.openai_models import Dialect, dialect, effort
from arbiter.wire.openai_names import renamed, sent_name, sent_user
from arbiter.wire.openai_schema import is_strict, whole_schema
from arbiter.wire.openai_servers import taken

_NOBODY = Target()


def build_request(request: Request, target: Target = _NOBODY) -> bytes:
    """Return the body of an upstream request. The same request always gives the same bytes (SPEC 2.4).

    Shapes: Claude Code's attribution line never leaves, whatever `target` says of it; cache marks do not either.
    Errors: ProtocolUnsupported where a part or a tool has no place in this format, where several choices are asked
    for, or more stop sequences than the upstream takes. BadRequest where a call is asked for and there are no tools.
    """
    if (request.choices or 1) > 1:
        raise ProtocolUnsupported("n: where a request is translated or rebuilt there is one choice", param="n")
    request = request.elsewhere()
    asked = request.tools
    takes = taken(request.model, target.server, moved=target.moved)
    if not takes.free_text:
        request = as_functions(request)
    if takes.stops is not None and len(request.stop) > takes.stops:
        raise ProtocolUnsupported(f"{request.model} takes at most {takes.stops} stop sequences", param="stop")
    messages = without_attribution(request.messages)
    body: dict[str, Any] = {"model": request.model, "messages": build_messages(messages, takes)}
    tools = toolbox.encoded(asked, (FORMAT, takes.free_text), partial(_build_tools, request)) if asked else b""
    if tools:
        body["tools"] = Raw(tools)
    body.update(_build_choice(request, takes, tools=bool(tools)))
    if request.max_output is not None:
        body[takes.limit] = _limit(request.max_output, target.max_output or takes.cap)
    word = effort(request.reasoning, takes, tools=bool(tools))
    _add_sampling(body, request, takes, idles=word == "none")
    _add_rest(body, request, takes, word)
    if request.stream:
        body["stream"] = True
        if request.include_usage:  # OpenAI refuses it beside a unary answer, which always has its usage
            body["stream_options"] = {"include_usage": True}
    return encode_sliced(body, "messages")


def disguised(request: Request) -> Disguises:
    """Return the tools that are sent under another name, or as functions although they take free text."""
    if not request.tools:
        return {}
    free_text = dialect(request.model).free_text
    return toolbox.made(request.tools, ("disguised", free_text), partial(_disguised, request, free_text=free_text))


def _disguised(request: Request, *, free_text: bool) -> Disguises:
    shortened = renamed(request)
    if free_text:
        return shortened
    free = {sent_name(tool.name): tool for tool in request.tools if isinstance(tool, Tool) and tool.is_free}
    return {**shortened, **free}


def _limit(asked: int, most: int | None) -> int:
    """Return how much the model may write: agents ask for 64,000 tokens, and a model that cannot refuses."""
    return asked if most is None else min(asked, most)


# Member by member, since nearly all of them are not there.


def _add_sampling(body: dict[str, Any], request: Request, takes: Dialect, *, idles: bool) -> None:
    if takes.sampling or idles:
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.top_p is not None:
            body["top_p"] = request.top_p
    if takes.top_k and request.top_k is not None:
        body["top_k"] = request.top_k
    if request.stop:
        body["stop"] = list(request.stop)
    if request.seed is not None:
        body["seed"] = request.seed
    if request.frequency_penalty is not None:
        body["frequency_penalty"] = request.frequency_penalty
    if request.presence_penalty is not None:
        body["presence_penalty"] = request.presence_penalty
    if request.logit_bias is not None:
        body["logit_bias"] = Raw(request.logit_bias)
    if request.logprobs is not None:
        body["logprobs"] = request.logprobs
    if request.top_logprobs is not None:
        body["top_logprobs"] = request.top_logprobs
    if request.choices is not None:
        body["n"] = request.choices


def _add_rest(body: dict[str, Any], request: Request, takes: Dialect, effort: str | None) -> None:
    if effort is not None:
        body["reasoning_effort"] = effort
    if takes.toggle and request.reasoning is not None and request.reasoning.mode == "disabled":
        body["thinking"] = {"type": "disabled"}
    if request.output is not None:
        body["response_format"] = _build_shape(request.output)
    if takes.verbosity and request.verbosity is not None:
        body["verbosity"] = request.verbosity
    if takes.user and request.user is not None:
        body["user"] = sent_user(request.user)
    if request.metadata:
        body["metadata"] = dict(request.metadata)
    if request.service_tier is not None and request.service_tier != "standard_only":
        body["service_tier"] = request.service_tier
    if request.cache_key is not None:
        body["prompt_cache_key"] = request.cache_key


def _build_tools(request: Request) -> list[Any]:
    built: list[Any] = []
    renamed(request)  # refuses what could not be told apart
    for i, tool in enumerate(request.tools):
        if isinstance(tool, Tool):
            built.append(_build_tool(tool))
        elif tool.format == FORMAT:
            built.append(Raw(tool.raw))
        elif not tool.needless:
            what = type_of(tool.raw) or "unknown"
            raise ProtocolUnsupported(
                f"tools[{i}]: a tool of type {what} cannot be told to this upstream, which speaks OpenAI Chat",
                param=f"tools[{i}]",
            )
    return built


def _build_choice(request: Request, takes: Dialect, *, tools: bool) -> dict[str, Any]:
    """Return `tool_choice` and `parallel_tool_calls`, which OpenAI takes only beside tools."""
    choice = request.tool_choice
    if not tools:
        if choice is not None and choice.mode in ("required", "tool"):
            raise BadRequest("tool_choice asks for a call, but there are no tools", param="tool_choice")
        return {}
    built: dict[str, Any] = {}
    if choice is not None and choice.mode == "tool":
        built["tool_choice"] = _named(choice.name or "", _free(request))
    elif choice is not None and choice.allowed:
        free = _free(request)
        allowed = {"mode": choice.mode, "tools": [_named(name, free) for name in choice.allowed]}
        built["tool_choice"] = {"type": "allowed_tools", "allowed_tools": allowed}
    elif choice is not None:
        built["tool_choice"] = choice.mode
    if request.parallel_tools is not None and takes.parallel:
        built["parallel_tool_calls"] = request.parallel_tools
    return built


def _free(request: Request) -> set[str]:
    return {tool.name for tool in request.tools if isinstance(tool, Tool) and tool.is_free}


def _named(name: str, free: set[str]) -> dict[str, Any]:
    kind = "custom" if name in free else "function"
    return {"type": kind, kind: {"name": sent_name(name)}}


def _build_tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": sent_name(tool.name)}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.is_free:
        if tool.grammar is not None:
            grammar = {"syntax": tool.grammar.syntax, "definition": tool.grammar.definition}
            function["format"] = {"type": "grammar", "grammar": grammar}
        return {"type": "custom", "custom": function}
    if tool.parameters is not None:
        function["parameters"] = Raw(whole_schema(tool.parameters))
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _build_shape(output: OutputShape) -> dict[str, Any]:
    if output.kind != "json_schema":
        return {"type": output.kind}
    schema: dict[str, Any] = {"name": output.name or "answer"}
    if output.description is not None:
        schema["description"] = output.description
    if output.schema is not None:
        schema["schema"] = Raw(output.schema)
    strict = output.strict
    if strict is None and output.name is None and output.schema is not None and is_strict(output.schema):
        strict = True  # a format without names always keeps to the schema; here that is asked for
    if strict is not None:
        schema["strict"] = strict
    return {"type": "json_schema", "json_schema": schema}
