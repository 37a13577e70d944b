"""OpenAI Responses requests, outwards: `model.Request` -> the body for an upstream.

Members leave in a fixed order and nothing random enters, so that a conversation which only grew has the same bytes up
to its last turn (SPEC 2.4). What this format cannot say is either left out as docs/formats.md declares, or, where the
request would change its meaning, refused. What a model takes differs; `openai_models` tells.

Some things that elsewhere do not happen unless they are asked for happen here unless they are not: answers are kept,
and arguments are held to their schema. So both are always said.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import Any

from msgspec import Raw

from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import OpaqueTool, OutputShape, Request, Target, Tool
from arbiter.wire import toolbox
from arbiter.wire.attribution import without_attribution
from arbiter.wire.disguises import Disguises
from arbiter.wire.json import encode_sliced, type_of
from arbiter.wire.openai_models import Dialect, dialect, effort
from arbiter.wire.openai_names import renamed, sent_name, sent_user
from arbiter.wire.openai_schema import is_strict, whole_schema
from arbiter.wire.responses_parse import ENCRYPTED, FORMAT, LOGPROBS, short_name
from arbiter.wire.responses_turns import Conversation

_NOBODY = Target()


def build_request(request: Request, target: Target = _NOBODY) -> bytes:
    """Return the body of an upstream request. The same request always gives the same bytes (SPEC 2.4).

    Shapes: Claude Code's attribution line never leaves, whatever `target` says of it; cache marks do not either.
    Errors: ProtocolUnsupported where a part or a tool has no place in this format, where several choices are asked for,
    or stop sequences, which it does not have. BadRequest where a call is asked for and there are no tools.
    """
    if (request.choices or 1) > 1:
        raise ProtocolUnsupported("n: where a request is translated or rebuilt there is one choice", param="n")
    if any(one.strip() for one in request.stop):
        raise ProtocolUnsupported("stop: OpenAI Responses has no stop sequences", param="stop")
    takes = dialect(request.model)
    conversation = Conversation(request.tools, is_whole=request.previous_id is None)
    instructions, items = conversation.build(without_attribution(request.messages))
    body: dict[str, Any] = {"model": request.model}
    if instructions:
        body["instructions"] = instructions
    body["input"] = items
    tools = toolbox.encoded(request.tools, FORMAT, partial(_tools, request)) if request.tools else b""
    if tools:
        body["tools"] = Raw(tools)
    body.update(_choice(request, takes, tools=bool(tools)))
    word = effort(request.reasoning, takes, tools=False)
    sampling = takes.sampling or word == "none"
    asked_most = [most for most in (request.max_output, target.max_output or takes.cap) if most is not None]
    optional: dict[str, Any] = {
        "max_output_tokens": min(asked_most) if request.max_output is not None else None,
        "temperature": request.temperature if sampling else None,
        "top_p": request.top_p if sampling else None,
        "top_logprobs": request.top_logprobs if request.logprobs else None,
        "include": _include(request, takes) or None,
        "reasoning": _reasoning(request, word),
        "text": _text(request),
        "user": sent_user(request.user) if request.user is not None else None,
        "metadata": dict(request.metadata) or None,
        "service_tier": request.service_tier if request.service_tier != "standard_only" else None,
        "prompt_cache_key": request.cache_key,
        "previous_response_id": request.previous_id,
    }
    body.update((name, value) for name, value in optional.items() if value is not None)
    body["store"] = bool(request.store)
    if request.stream:
        body["stream"] = True
    return encode_sliced(body, "input")


def disguised(request: Request) -> Disguises:
    """Return the tools that are sent under another name."""
    return toolbox.made(request.tools, "renamed", partial(renamed, request)) if request.tools else {}


def _tools(request: Request) -> list[Any]:
    renamed(request)  # refuses what could not be told apart
    built: list[Any] = []
    for namespace, tools in groupby(enumerate(request.tools), key=lambda one: getattr(one[1], "namespace", None)):
        inner = [one for i, tool in tools for one in _tool(tool, i)]
        if namespace is not None:
            members = {"name": namespace.name, "description": namespace.description}
            built.append({"type": "namespace", **members, "tools": inner})
        else:
            built += inner
    return built


def _tool(tool: Tool | OpaqueTool, place: int) -> list[Any]:
    if isinstance(tool, OpaqueTool):
        if tool.format == FORMAT:
            return [Raw(tool.raw)]
        if tool.needless:
            return []
        raise ProtocolUnsupported(
            f"tools[{place}]: a tool of type {type_of(tool.raw) or 'unknown'} cannot be told to this upstream, which "
            "speaks OpenAI Responses",
            param=f"tools[{place}]",
        )
    name = short_name(tool) if tool.namespace is not None else sent_name(tool.name)
    built: dict[str, Any] = {"type": "custom" if tool.is_free else "function", "name": name}
    if tool.description is not None:
        built["description"] = tool.description
    if tool.grammar is not None:
        grammar = {"syntax": tool.grammar.syntax, "definition": tool.grammar.definition}
        built["format"] = {"type": "grammar", **grammar}
    if not tool.is_free:
        # OpenAI wants a schema of an object, and both members.
        built["parameters"] = Raw(whole_schema(tool.parameters)) if tool.parameters is not None else None
        built["strict"] = bool(tool.strict)
    return [built]


def _choice(request: Request, takes: Dialect, *, tools: bool) -> dict[str, Any]:
    """Return `tool_choice` and `parallel_tool_calls`, which OpenAI takes only beside tools."""
    choice = request.tool_choice
    if not tools:
        if choice is not None and choice.mode in ("required", "tool"):
            raise BadRequest("tool_choice asks for a call, but there are no tools", param="tool_choice")
        return {}
    built: dict[str, Any] = {}
    is_named = choice is not None and (choice.mode == "tool" or bool(choice.allowed))
    known = {tool.name: tool for tool in request.tools if isinstance(tool, Tool)} if is_named else {}

    def named(name: str) -> dict[str, str]:
        tool = known.get(name)
        kind = "custom" if tool is not None and tool.is_free else "function"
        return {"type": kind, "name": sent_name(name) if tool is None or tool.namespace is None else short_name(tool)}

    if choice is not None and choice.mode == "tool":
        built["tool_choice"] = named(choice.name or "")
    elif choice is not None and (choice.allowed or choice.opaque):
        allowed = [*map(named, choice.allowed), *map(Raw, choice.opaque)]
        built["tool_choice"] = {"type": "allowed_tools", "mode": choice.mode, "tools": allowed}
    elif choice is not None:
        built["tool_choice"] = choice.mode
    if request.parallel_tools is not None and takes.parallel:
        built["parallel_tool_calls"] = request.parallel_tools
    return built


def _include(request: Request, takes: Dialect) -> list[Any]:
    """Return what is told only where it is asked for: reasoning to hand along, since the conversation is not kept."""
    wanted: list[Any] = [Raw(ENCRYPTED)] if takes.encrypts else []
    return [*wanted, LOGPROBS] if request.logprobs else wanted


def _reasoning(request: Request, word: str | None) -> dict[str, str] | None:
    built = {}
    if word is not None:
        built["effort"] = word
    if request.reasoning is not None and request.reasoning.summary is not None:
        built["summary"] = request.reasoning.summary
    return built or None


def _text(request: Request) -> dict[str, Any] | None:
    built: dict[str, Any] = {}
    if request.output is not None:
        built["format"] = _shape(request.output)
    if request.verbosity is not None:
        built["verbosity"] = request.verbosity
    return built or None


def _shape(output: OutputShape) -> dict[str, Any]:
    if output.kind != "json_schema":
        return {"type": output.kind}
    built: dict[str, Any] = {"type": "json_schema", "name": output.name or "answer"}
    if output.description is not None:
        built["description"] = output.description
    built["schema"] = Raw(output.schema) if output.schema is not None else {}
    strict = output.strict
    if strict is None and output.name is None and output.schema is not None and is_strict(output.schema):
        strict = True  # a format without names always keeps to the schema; here that is asked for
    if strict is not None:
        built["strict"] = strict
    return built
