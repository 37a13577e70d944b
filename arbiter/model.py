"""The neutral values in which the wire formats meet. Frozen, no I/O.

A format module parses its JSON into these and builds its JSON from them; nothing else knows how a format spells a
thing. What is declared here is exactly what the translated lane carries; docs/formats.md holds the table.

No value has subclasses, so a format asks for the type of parts and events, of which there are many: `isinstance` takes
a detour, five times as long, at each class of msgspec's that a value is not an instance of.

JSON that only passes through (schemas, call arguments, log probabilities) stays JSON text, so that its bytes and key
order survive (SPEC 2.4).
"""

from __future__ import annotations

import enum
from typing import Any, Final, Literal

import msgspec

from arbiter.errors import ArbiterError, ProtocolUnsupported

# --- Requests ---------------------------------------------------------------------------------------------------------

Role = Literal["system", "developer", "user", "assistant", "tool"]
Place = Literal["block", "message", "call"]


class CacheMark(msgspec.Struct, frozen=True):
    """The client's own prompt-cache mark on a part or a tool. `ttl` is None where the client named none."""

    ttl: str | None = None


class Text(msgspec.Struct, frozen=True):
    text: str
    cache: CacheMark | None = None


class Image(msgspec.Struct, frozen=True):
    """A picture by URL, or by `media_type` and base64 `data`; exactly one of the two. Nobody here fetches a URL."""

    url: str | None = None
    media_type: str | None = None
    data: str | None = None
    detail: str | None = None
    cache: CacheMark | None = None


class File(msgspec.Struct, frozen=True):
    """A document: base64 `data` with its media type, plain text in `text`, a `url`, or the provider's `file_id`."""

    media_type: str | None = None
    data: str | None = None
    text: str | None = None
    url: str | None = None
    file_id: str | None = None
    filename: str | None = None
    cache: CacheMark | None = None


class Audio(msgspec.Struct, frozen=True):
    """Sound as base64 `data` in `format` (`wav`, `mp3`)."""

    data: str
    format: str


class Thinking(msgspec.Struct, frozen=True):
    """Reasoning text. `signature` proves it to Anthropic; `spelling` is the member an OpenAI-like server used.

    `item` is the whole of it as raw JSON where it is from OpenAI's Responses, to go back there as it is.
    """

    text: str
    signature: str | None = None
    spelling: str | None = None
    item: bytes | None = None


class RedactedThinking(msgspec.Struct, frozen=True):
    """Reasoning that only its provider can read, or what proves some to it.

    `place` is where that provider has it: in a `block` of its own (Anthropic, Bedrock); or, with `data` an object of
    JSON, among the members of a `message`, or of the `call` right behind it (`wire.chat_proofs`). Formats that lack the
    place leave it out.
    """

    data: str
    place: Place = "block"


class SealedThinking(msgspec.Struct, frozen=True):
    """Reasoning that only this gateway can read (`wire.vault`): what a client of another format hands along.

    `call_id` is the call that it stands in front of, where there is one.
    """

    item: str
    call_id: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    text: str


class ToolCall(msgspec.Struct, frozen=True):
    """One call. `arguments` is JSON text as the model wrote it, and so perhaps invalid; `{}` where it wrote none.

    A call of a tool that `is_free` has its input there, which is any text.
    """

    id: str
    name: str
    arguments: str
    cache: CacheMark | None = None
    is_free: bool = False


class ToolResult(msgspec.Struct, frozen=True):
    """What a tool gave back. `is_error` is None where nobody said."""

    call_id: str
    content: str | tuple[Part, ...]
    is_error: bool | None = None
    cache: CacheMark | None = None


class Opaque(msgspec.Struct, frozen=True):
    """A part that only `format` knows, as its raw JSON, which goes back to that format.

    Another format says `text` instead; empty text leaves the part out, and None means that it must be refused.
    """

    format: str
    raw: bytes
    text: str | None = None


Part = (
    Text
    | Image
    | File
    | Audio
    | Thinking
    | RedactedThinking
    | SealedThinking
    | Refusal
    | ToolCall
    | ToolResult
    | Opaque
)


class Message(msgspec.Struct, frozen=True):
    """One turn's worth of one role. A bare string stays a bare string (SPEC 2.4).

    Shapes: a message of role `tool` holds exactly one ToolResult, and no other role holds any.
    """

    role: Role
    content: str | tuple[Part, ...]
    name: str | None = None

    def parts(self) -> tuple[Part, ...]:
        """Return the content as parts, whichever way it was written."""
        if isinstance(self.content, str):
            return (Text(self.content),) if self.content else ()
        return self.content


class Grammar(msgspec.Struct, frozen=True):
    """What free text is held to: a `definition` in the language `syntax` (`lark`, `regex`)."""

    syntax: str
    definition: str


class Namespace(msgspec.Struct, frozen=True):
    """A group of tools, in a format that has groups. Everywhere else its name is the beginning of theirs."""

    name: str
    description: str


class Tool(msgspec.Struct, frozen=True):
    """A function the model may call. `parameters` is its JSON Schema as raw JSON, None where it has none.

    One that `is_free` takes any text in place of arguments, or only what its `grammar` allows. `name` is whole also for
    a tool of a `namespace`.
    """

    name: str
    description: str | None = None
    parameters: bytes | None = None
    strict: bool | None = None
    cache: CacheMark | None = None
    is_free: bool = False
    grammar: Grammar | None = None
    namespace: Namespace | None = None


class OpaqueTool(msgspec.Struct, frozen=True):
    """A tool that only `format` knows (a built-in, a namespace), as its raw JSON.

    Another format refuses it, or leaves it out where that is `needless`: the request asks for the same without it.
    """

    format: str
    raw: bytes
    needless: bool = False


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the model calls: `auto`, `none`, `required`, or `tool` with its `name`.

    `allowed` names the tools it may call where that is not all of them; `opaque` are those among them that only one
    format knows, as raw JSON.
    """

    mode: Literal["auto", "none", "required", "tool"]
    name: str | None = None
    allowed: tuple[str, ...] = ()
    opaque: tuple[bytes, ...] = ()

    def elsewhere(self) -> ToolChoice:
        """Return what is left of it where its `opaque` tools are not to be had.

        Errors: ProtocolUnsupported where it is one of them that must be called.
        """
        if not self.opaque:
            return self
        if self.allowed:
            return ToolChoice(self.mode, self.name, self.allowed)
        if self.mode == "required":
            what = "tool_choice: only tools are allowed that this upstream does not have"
            raise ProtocolUnsupported(what, param="tool_choice")
        return ToolChoice("none")


class Reasoning(msgspec.Struct, frozen=True):
    """How much the model should think, in the words of whoever asked.

    `effort` is a level (`low`, `high`, ...); `mode` is Anthropic's switch, with `budget` in tokens; `summary` is how
    much of its thoughts OpenAI shall tell.
    """

    effort: str | None = None
    mode: Literal["enabled", "disabled", "adaptive"] | None = None
    budget: int | None = None
    summary: str | None = None


class OutputShape(msgspec.Struct, frozen=True):
    """Structured output: any JSON object, or one that follows `schema` (raw JSON)."""

    kind: Literal["text", "json_object", "json_schema"]
    schema: bytes | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


NOT_KEPT = (
    "previous_response_id: this model is asked in another API, which keeps no answers, and nor did this gateway; send "
    "the whole conversation in `input`, ask for a model whose provider has Responses (`responses_api: native`, or "
    "`api: responses`), or let the gateway keep what is said (`storage.capture.content: true`)"
)

NOT_KEPT_ITEM = (
    "an item that is only named (`item_reference`): this model is asked in another API, which keeps none, and nor did "
    "this gateway; send it whole (with the AI SDK `store: false`), or let the gateway keep what is said "
    "(`storage.capture.content: true`)"
)

NOT_CACHED = (
    "cachedContent: what is cached there is Google's, and this model is another provider's; send the whole "
    "conversation in `contents`"
)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request for an answer, without the spelling of any format. None means: not said.

    `previous_id` names an answer of the provider's whose conversation this one goes on with, `cached` what Google keeps
    of the beginning of this one.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool | OpaqueTool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tools: bool | None = None
    max_output: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: bytes | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    choices: int | None = None
    reasoning: Reasoning | None = None
    output: OutputShape | None = None
    verbosity: str | None = None
    user: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    service_tier: str | None = None
    cache_key: str | None = None
    store: bool | None = None
    previous_id: str | None = None
    cached: str | None = None
    stream: bool = False
    include_usage: bool = False

    def elsewhere(self, *, is_googles: bool = False) -> Request:
        """Return it for another format: without the tools that only its client's knows, as far as one of them may be
        chosen. What Google cached is in `is_googles` only.

        Errors: ProtocolUnsupported where one of them must be called, and where the conversation is not in it.
        """
        if self.previous_id is not None:
            raise ProtocolUnsupported(NOT_KEPT, param="previous_response_id")
        if self.cached is not None and not is_googles:
            raise ProtocolUnsupported(NOT_CACHED, param="cachedContent")
        choice = self.tool_choice
        if choice is None or not choice.opaque:
            return self
        return msgspec.structs.replace(self, tool_choice=choice.elsewhere())


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a builder is told of the upstream beside the request: who sets cache marks, and what the model can.

    `max_output` is what the catalog says the model writes at most, in tokens; None where nobody knows.
    `drop_attribution` takes out Claude Code's attribution line (SPEC 2.2a). `server` is the host; `moved` says that
    others have answered in the conversation, too.
    """

    prompt_cache: Literal["auto", "client", "arbiter", "off"] = "auto"
    prompt_cache_ttl: Literal["5m", "1h"] = "5m"
    max_output: int | None = None
    drop_attribution: bool = False
    server: str = ""
    moved: bool = False


# --- Answers ----------------------------------------------------------------------------------------------------------


class Usage(msgspec.Struct, frozen=True):
    """Token counts as reported, normalised once (SPEC 9.1). None = nobody said; never a guess.

    Units: `input` excludes cache reads and writes; `cache_write` is all writes, the next two its split by lifetime;
    `reasoning` is part of `output`, `audio_input` of all input, `audio_output` of `output`. `web_searches` are calls
    that the provider ran itself; `cost_pd` is its own figure in picodollars, `service_tier` its own word.
    """

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    reasoning: int | None = None
    total: int | None = None
    audio_input: int | None = None
    audio_output: int | None = None
    web_searches: int | None = None
    cost_pd: int | None = None
    service_tier: str | None = None

    @property
    def is_stated(self) -> bool:
        """Whether anything was counted; a tier alone counts nothing."""
        return _fields(self)[:-1] != _UNSTATED

    def merged(self, later: Usage) -> Usage:
        """Return this with what `later` reports in its place. Reports are cumulative: nothing is added up."""
        if self == later:
            return self
        return Usage(*(new if new is not None else old for old, new in zip(_fields(self), _fields(later), strict=True)))

    def announced(self) -> Usage:
        """Return what is known of an answer that was cut when no more than this, told at its start, had been counted:
        its prompt. The output so far (Anthropic's 1) is none that anybody waits for."""
        return msgspec.structs.replace(self, output=None, reasoning=None)

    def all_input(self) -> int | None:
        """Tokens of the whole prompt, cached ones included; None while the uncached part is unknown."""
        if self.input is None:
            return None
        return self.input + (self.cache_read or 0) + (self.cache_write or 0)


def _fields(usage: Usage) -> tuple[Any, ...]:
    return msgspec.structs.astuple(usage)


_UNSTATED = _fields(Usage())[:-1]


class Finish(enum.StrEnum):
    """Why the model stopped."""

    STOP = "stop"
    STOP_SEQUENCE = "stop_sequence"
    LENGTH = "length"
    CONTEXT_WINDOW = "context_window"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    PAUSE = "pause"


# The usual ones. A member that is looked up in its class takes the interpreter as long as ten that are not.
STOP: Final = Finish.STOP
TOOL_CALLS: Final = Finish.TOOL_CALLS


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a unary call returns, and what a finished stream folds into."""

    id: str | None = None
    model: str | None = None
    parts: tuple[Part, ...] = ()
    finish: Finish | None = None
    stop_sequence: str | None = None
    usage: Usage | None = None
    logprobs: tuple[bytes, ...] = ()

    def text(self) -> str:
        """Return the visible text, without thinking and refusals."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


# --- Events: an answer while it happens -------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """The answer begins: who answers, and what is already known of its usage."""

    id: str | None = None
    model: str | None = None
    usage: Usage | None = None


class TextDelta(msgspec.Struct, frozen=True):
    """Visible text. `logprobs` is the raw JSON that came with it, where the client asked for it."""

    text: str
    logprobs: bytes | None = None


class ThinkingDelta(msgspec.Struct, frozen=True):
    text: str
    spelling: str | None = None


class ThinkingSigned(msgspec.Struct, frozen=True):
    """The signature of the thinking so far; that block of thinking is finished. `""` where it has none.

    `item` is the whole of it as raw JSON where an upstream of OpenAI's Responses wants it back.
    """

    signature: str
    item: bytes | None = None


class ThinkingRedacted(msgspec.Struct, frozen=True):
    """What only its provider can read (`RedactedThinking`). Of a message's members each event may be but a slice."""

    data: str
    place: Place = "block"


class ThinkingSealed(msgspec.Struct, frozen=True):
    """What was thought so far, for a client that hands it along (`SealedThinking`)."""

    item: str
    call_id: str | None = None


class RefusalDelta(msgspec.Struct, frozen=True):
    text: str


class CallStarted(msgspec.Struct, frozen=True):
    """A tool call opens. `index` counts the calls of this answer from 0, without gaps."""

    index: int
    id: str
    name: str
    is_free: bool = False


class CallDelta(msgspec.Struct, frozen=True):
    """A slice of the arguments of call `index`, as JSON text cut anywhere; of its input, where that is free text."""

    index: int
    arguments: str


class UsageReported(msgspec.Struct, frozen=True):
    """Counts so far; a later report replaces an earlier one where it says anything."""

    usage: Usage


class Finished(msgspec.Struct, frozen=True):
    """The model stopped. Usage may still follow, output may not."""

    finish: Finish
    stop_sequence: str | None = None


class Failed(msgspec.Struct, frozen=True):
    """The answer failed after it began; nothing follows."""

    error: ArbiterError


class Ended(msgspec.Struct, frozen=True):
    """The upstream completed the stream. `inferred` where it never said why it stopped."""

    inferred: bool = False


Event = (
    Started
    | TextDelta
    | ThinkingDelta
    | ThinkingSigned
    | ThinkingRedacted
    | ThinkingSealed
    | RefusalDelta
    | CallStarted
    | CallDelta
    | UsageReported
    | Finished
    | Failed
    | Ended
)

OUTPUT = (
    TextDelta,
    ThinkingDelta,
    ThinkingSigned,
    ThinkingRedacted,
    ThinkingSealed,
    RefusalDelta,
    CallStarted,
    CallDelta,
)
