"""What vendors' own servers of OpenAI's format take of earlier reasoning, told by the host (SPEC 4.7a).

A model's name says what its maker wants (`openai_models`). But one model is served by many, a conversation moves from
one to another with all that was thought in it, and several of them answer 400 to a member of an assistant's message
that they do not know. What they do know is in the last column:

    Groq        'messages.1' : … property 'reasoning_content' is unsupported       `reasoning` for models that think
    Cerebras    messages.1.assistant.reasoning_content: property … is unsupported  `reasoning`
    Fireworks   Extra inputs are not permitted, field: 'messages[1].reasoning'     `reasoning_content`
    Mistral     extra_forbidden, ["body","messages",1,"assistant",…], a 422        none
    OpenAI      (its reference has none)                                           none
    Google      Invalid JSON payload received. Unknown name …: Cannot find field.  none; signatures in `extra_content`

DeepSeek, Moonshot and Z.ai read `reasoning_content`, and the first two refuse turns with calls that have none. Gemini 3
refuses a call without a signature, but takes a word of Google's for that of a call which was made elsewhere. A server
that is none of these is sent what the client sent, as long as the conversation was always its own: vLLM reads only
`reasoning`, others only `reasoning_content`, and a client brings back what it got. Once it has been elsewhere, a model
whose maker takes none is sent none, and one whose maker must have it gets it.

Source: the vendors' references and the words of their 400s, as of 2026-11.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from arbiter.wire.openai_models import Dialect, dialect
from arbiter.wire.signatures import MADE_ELSEWHERE


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """`reasoning` is the one member for earlier reasoning, None where there is none; `of` the models that take it.
    `signs` and `unsigned` are those of `Dialect`, `wants` the models that must have a signature."""

    reasoning: str | None
    of: re.Pattern[str] = re.compile("")
    signs: bool = False
    unsigned: str | None = None
    wants: re.Pattern[str] = re.compile("")


_CONTENT = Server(reasoning="reasoning_content")
_NONE = Server(reasoning=None)
SERVERS: Mapping[str, Server] = {
    "api.cerebras.ai": Server(reasoning="reasoning"),
    "api.deepseek.com": _CONTENT,
    "api.fireworks.ai": _CONTENT,
    "api.groq.com": Server(reasoning="reasoning", of=re.compile(r"gpt-oss|qwen-?3")),
    "api.mistral.ai": _NONE,
    "api.moonshot.ai": _CONTENT,
    "api.moonshot.cn": _CONTENT,
    "api.openai.com": _NONE,
    "api.z.ai": _CONTENT,
    "codestral.mistral.ai": _NONE,
    "eu.api.openai.com": _NONE,
    "generativelanguage.googleapis.com": Server(
        reasoning=None,
        signs=True,
        unsigned=f'"extra_content":{{"google":{{"thought_signature":"{MADE_ELSEWHERE}"}}}}',
        wants=re.compile(r"gemini-(?![12]\b|2\.|exp)"),
    ),
    "open.bigmodel.cn": _CONTENT,
    "us.api.openai.com": _NONE,
}
TAKES_ALL = ("openrouter.ai",)
"""Who takes every spelling, and must have its own `reasoning_details` back, whichever model is behind it."""


@functools.lru_cache(maxsize=1024)
def taken(model: str, server: str, *, moved: bool = False) -> Dialect:
    """Return what `model` takes at the host `server`; `moved`: others have answered in the conversation, too."""
    found = dialect(model)
    vendor = SERVERS.get(server)
    if vendor is not None:
        name = model.lower().rpartition("/")[2]
        member = vendor.reasoning if vendor.of.match(name) else None
        return replace(
            found,
            reasoning=member,
            wants_reasoning=found.wants_reasoning and member == found.reasoning,
            spells="its own",
            signs=vendor.signs,
            unsigned=vendor.unsigned if vendor.wants.match(name) else None,
        )
    if moved and server not in TAKES_ALL:
        if found.reasoning is None:
            return replace(found, spells="its own")
        if found.wants_reasoning:
            return replace(found, spells="its own besides")
    return found
