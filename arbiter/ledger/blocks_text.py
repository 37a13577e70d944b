"""What a block says, for people and for a search: a few labelled texts, whatever format it came in.

Nothing here is lost on purpose but structure: what has no words of its own is shown as its JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec


class Said(NamedTuple):
    """One text. `label` says what it is: "user", "assistant", "thinking", "call NAME", "result", "tool", ..."""

    label: str
    text: str


_LABELS = {"tool": "result", "function": "result", "model": "assistant"}


def said(kind: str, value: Any) -> list[Said]:
    """What a block of this kind says; `value` is its JSON."""
    match kind:
        case "tools":
            if not isinstance(value, list):
                return [_as_json("tools", value)]
            return [_tool(tool) for one in value for tool in _declared(one)]
        case "system":
            parts = value.get("parts") if isinstance(value, dict) else None
            return list(_content("system", parts if isinstance(parts, list) else value))
        case "parameters":
            return [_as_json("parameters", value)]
    if isinstance(value, list):  # the messages of an answer of several choices
        return [one for choice in value for one in _message(choice)]
    return list(_message(value))


def _message(value: Any) -> Iterator[Said]:
    if isinstance(value, str):
        yield Said("user", value)
        return
    if not isinstance(value, dict):
        yield _as_json("message", value)
        return
    role = value.get("role")
    if not isinstance(role, str):
        yield from _part("item", value)
        return
    label = _LABELS.get(role, role)
    for name in ("reasoning_content", "reasoning"):
        if isinstance(value.get(name), str):
            yield Said("thinking", value[name])
    for name in ("content", "parts"):
        if value.get(name) is not None:
            yield from _content(label, value[name])
    if isinstance(value.get("refusal"), str):
        yield Said("refusal", value["refusal"])
    calls = value.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        yield from _part(label, call)


def _content(label: str, content: Any) -> Iterator[Said]:
    if isinstance(content, str):
        if content or label == "result":  # that a tool said nothing is said
            yield Said(label, content)
    elif isinstance(content, list):
        for part in content:
            yield from _content(label, part) if isinstance(part, str) else _part(label, part)
    else:
        yield from _part(label, content)


def _part(label: str, part: Any) -> Iterator[Said]:
    if not isinstance(part, dict):
        yield _as_json(label, part)
        return
    kind = part.get("type")
    kind = kind if isinstance(kind, str) else ""
    if isinstance(part.get("text"), str):
        yield Said("thinking" if part.get("thought") is True else label, part["text"])
    elif isinstance(called := part.get("functionCall"), dict):
        yield Said(f"call {called.get('name')}", _text_of(called.get("args")))
    elif isinstance(result := part.get("functionResponse"), dict):
        yield Said("result", _text_of(_said_in(result.get("response"))))
    elif kind == "thinking":
        yield Said("thinking", str(part.get("thinking", "")))
    elif kind == "redacted_thinking":
        yield Said("thinking", "[redacted thinking]")
    elif kind == "withheld":
        yield Said(str(part.get("was")), f"[withheld: {part.get('why')}]")
    elif kind == "reasoning":
        yield from _content("thinking", part.get("summary") or part.get("content") or "[only its provider can read it]")
    elif isinstance(function := part.get("function"), dict):
        yield Said(f"call {function.get('name')}", _text_of(function.get("arguments")))
    elif kind.endswith(("tool_use", "_call")):
        asked = next((part[name] for name in ("input", "arguments", "action") if name in part), None)
        yield Said(f"call {part.get('name') or kind}", _text_of(asked))
    elif kind.endswith(("tool_result", "_call_output")):
        yield from _content("result", part.get("content") if "content" in part else part.get("output"))
    elif (attached := _attachment(part)) is not None:
        yield Said(label, attached)
    elif isinstance(part.get("refusal"), str):
        yield Said("refusal", part["refusal"])
    elif part:
        yield _as_json(kind or label, part)


def _said_in(response: Any) -> Any:
    """What a function of Gemini's gave back, without the one name around it that its SDKs put there."""
    if isinstance(response, dict) and len(response) == 1:
        return next(iter(response.values()))
    return response


def _attachment(value: Any) -> str | None:
    """The attachment that stands somewhere in a part, in words."""
    if not isinstance(value, dict):
        return None
    found = value.get("attachment")
    if isinstance(found, dict) and "sha256" in found:
        name = f"{found['name']}, " if "name" in found else ""
        return f"[{name}{found.get('media_type')}, {found.get('bytes')} bytes, sha256 {str(found['sha256'])[:12]}]"
    return next((text for item in value.values() if (text := _attachment(item)) is not None), None)


def _declared(tool: Any) -> list[Any]:
    """The functions that one entry of a list of tools declares: of Gemini's several."""
    declared = tool.get("functionDeclarations") if isinstance(tool, dict) else None
    return declared if isinstance(declared, list) else [tool]


def _tool(tool: Any) -> Said:
    named = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(named, dict) or not isinstance(named.get("name"), str):
        return _as_json("tool", tool)
    return Said(f"tool {named['name']}", str(named.get("description") or ""))


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else _json(value)


def _as_json(label: str, value: Any) -> Said:
    return Said(label, _json(value))


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
