"""The echo provider's language: a prompt in, a scripted answer out. No I/O, no clock.

A line of the newest user text that begins with `/echo` is a directive, and so is an `x-echo` header; docs/echo.md
describes each. What remains of a conversation without directives is the default: the newest user text comes back word
by word, a required tool is called, and a tool's result is talked about, so that an agent's loop comes to its end.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from arbiter.errors import BadRequest, ErrorClass, InStreamError
from arbiter.model import (
    CallDelta,
    CallStarted,
    Event,
    Failed,
    Finish,
    Message,
    Part,
    RefusalDelta,
    Request,
    Text,
    TextDelta,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)

MAX_S = 3600.0
MAX_TOKENS = 1_000_000
MAX_BYTES = 64 << 20
SLICE = 8
"""Characters of call arguments in one slice; real models send about as many."""


class Wait(msgspec.Struct, frozen=True):
    seconds: float


class Bytes(msgspec.Struct, frozen=True):
    """Bytes that go into the stream as they are."""

    data: bytes


class Ping(msgspec.Struct, frozen=True):
    """One keepalive of the format."""


class Stop(enum.Enum):
    """The stream stops here, its connection lost (`CUT`) or for ever silent (`HANG`)."""

    CUT = "cut"
    HANG = "hang"


Act = Event | Wait | Bytes | Ping | Stop


@dataclass(slots=True)
class Script:
    """What the echo provider will do for one request."""

    acts: list[Act] = field(default_factory=list)
    delay_s: float = 0.0  # before the response head
    pace_s: float = 0.0  # between events
    split: int = 0  # bytes a push, 0 = as a socket would
    headers: list[tuple[str, str]] = field(default_factory=list)
    error: tuple[int, ErrorClass | None, str] | None = None
    body: tuple[int, str] | None = None  # a status with a body of the prompt's own
    usage: Usage | None = None
    no_usage: bool = False
    finish: Finish | None = None
    stop_sequence: str | None = None
    no_finish: bool = False
    no_done: bool = False
    model: str | None = None
    calls: int = 0


def read(request: Request, headers: Sequence[tuple[str, str]], new_id: Callable[[], str]) -> Script:
    """Return the script for `request`. `new_id` makes the ids of tool calls.

    Errors: BadRequest for a directive that cannot be followed.
    """
    script = Script()
    scribe = _Scribe(script, new_id)
    spoken = _spoken(request)
    newest = spoken[-1] if spoken else Message("user", "")
    asked = next((message for message in reversed(spoken) if message.role == "user"), newest)
    is_answer = newest.role == "tool"
    # Only the first round obeys `after`: an agent's loop must end.
    is_after = is_answer and _rounds(spoken) == 1
    for line in _in_headers(headers):
        if line.startswith("after "):
            if is_after:
                scribe.follow(line.removeprefix("after "))
        elif not is_answer or not line.startswith("tool "):  # a loop must end
            scribe.follow(line)
    lines = [line.strip() for line in _texts(asked, "\n").splitlines()]
    directives = [line.removeprefix("/echo ") for line in lines if line.startswith("/echo ")]
    if is_answer:
        after = directives if is_after else []
        directives = [line.removeprefix("after ") for line in after if line.startswith("after ")]
    else:
        directives = [line for line in directives if not line.startswith("after ")]
    for directive in directives:
        scribe.follow(directive)
    if not any(isinstance(act, OUTPUT) for act in script.acts) and script.error is None and script.body is None:
        default = list(_default(request, asked, newest, scribe))
        # A script of waits, pings and cuts alone is about how the default answer goes wrong.
        script.acts = default + script.acts if Stop.CUT in script.acts else script.acts + default
    _limit(script, request.max_output)
    return script


OUTPUT = TextDelta | ThinkingDelta | RefusalDelta | CallStarted | ThinkingRedacted | Failed | Bytes


def _default(request: Request, asked: Message, newest: Message, scribe: _Scribe) -> Iterator[Act]:
    if newest.role == "tool":
        results = [part for part in newest.parts() if isinstance(part, ToolResult)]
        said = " ".join(_result_text(result) for result in results)
        yield from words(f"The tool answered: {said[:400]}" if said else "The tool answered nothing.")
        return
    forced = _forced(request)
    if forced is not None:
        yield from scribe.call(forced, "{}")
        return
    texts = [part.text for part in asked.parts() if isinstance(part, Text) and part.text.strip()]
    plain = [line for line in (texts[-1] if texts else "").splitlines() if not line.strip().startswith("/echo ")]
    yield from words("\n".join(plain).strip() or "Hello from the echo provider.")


def _forced(request: Request) -> str | None:
    choice = request.tool_choice
    if choice is None or choice.mode not in ("tool", "required"):
        return None
    return choice.name or next((tool.name for tool in request.tools if isinstance(tool, Tool)), None)


def _texts(message: Message, joint: str) -> str:
    return joint.join(part.text for part in message.parts() if isinstance(part, Text))


def _result_text(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return " ".join(
        part.text if isinstance(part, Text) else f"({type(part).__name__.lower()})" for part in result.content
    )


def _in_headers(headers: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, value in headers:
        lowered = name.lower()
        if lowered == "x-echo":
            yield value
        elif lowered.startswith("x-echo-"):
            yield f"{lowered.removeprefix('x-echo-')} {value}"


def _spoken(request: Request) -> list[Message]:
    """Return the conversation proper: without instructions, and without what an agent slips into the user's words."""
    spoken = []
    for message in request.messages:
        if message.role == "user":
            parts = tuple(part for part in message.parts() if not _is_reminder(part))
            if parts or not message.parts():
                spoken.append(Message("user", parts))
        elif message.role not in ("system", "developer"):
            spoken.append(message)
    return spoken


def _is_reminder(part: Part) -> bool:
    return isinstance(part, Text) and part.text.lstrip().startswith("<system-reminder>")


def _rounds(spoken: Sequence[Message]) -> int:
    """Return how often tools were called since the user last spoke."""
    rounds = 0
    for message in reversed(spoken):
        if message.role == "user":
            break
        rounds += message.role == "assistant" and any(isinstance(part, ToolCall) for part in message.parts())
    return rounds


def words(text: str) -> Iterator[TextDelta]:
    """Return `text` as deltas of one word each, blanks in front; together they are `text` again."""
    for found in re.findall(r"\s*\S+|\s+\Z", text):
        yield TextDelta(found)


def _limit(script: Script, max_output: int | None) -> None:
    """Cut text and thinking off after `max_output` words, as a model would."""
    if max_output is None:
        return
    kept: list[Act] = []
    for act in script.acts:
        if isinstance(act, TextDelta | ThinkingDelta):
            if max_output == 0:
                script.finish = script.finish or Finish.LENGTH
                continue
            max_output -= 1
        kept.append(act)
    script.acts = kept


def count(request: Request) -> int:
    """Return a plausible number of input tokens: a quarter of what a model would read, in bytes."""
    size = 0
    for message in request.messages:
        for part in message.parts():
            if isinstance(part, ToolResult):
                size += len(_result_text(part).encode())
            elif isinstance(part, Text):
                size += len(part.text.encode())
            elif isinstance(part, ToolCall):
                size += len(part.name) + len(part.arguments)
        size += 12
    for tool in request.tools:
        if isinstance(tool, Tool):
            size += len(tool.name) + len((tool.description or "").encode()) + len(tool.parameters or b"")
        else:
            size += len(tool.raw)
    return max(1, -(-size // 4))


def count_output(acts: Sequence[Act]) -> tuple[int, int]:
    """Return plausible numbers of output tokens and, among them, of reasoning ones."""
    reasoning = sum(isinstance(act, ThinkingDelta) for act in acts)
    other = sum(isinstance(act, TextDelta | RefusalDelta | CallStarted | CallDelta) for act in acts)
    return reasoning + other, reasoning


# --- The directives ---------------------------------------------------------------------------------------------------


class _Unclear(Exception):
    """A directive cannot be followed; its text says why, to whoever wrote it."""


class _Scribe:
    """Writes one script, directive by directive. A method `do_x` is the directive `x`."""

    def __init__(self, script: Script, new_id: Callable[[], str]) -> None:
        self.script = script
        self.new_id = new_id

    def follow(self, line: str) -> None:
        """Write what one directive says.

        Errors: BadRequest.
        """
        name, _, rest = line.strip().partition(" ")
        if name not in DIRECTIVES:
            known = ", ".join([*DIRECTIVES, "after"])
            raise BadRequest(f'echo: there is no directive "{name[:80]}"; known are {known}')
        try:
            DIRECTIVES[name](self, rest.strip())
        except _Unclear as error:
            raise BadRequest(f'echo: cannot follow "{line.strip()[:200]}": {error}') from error

    def call(self, name: str, arguments: str) -> Iterator[Act]:
        number = self.script.calls
        self.script.calls += 1
        yield CallStarted(number, self.new_id(), name)
        for start in range(0, len(arguments), SLICE):
            yield CallDelta(number, arguments[start : start + SLICE])

    def do_text(self, rest: str) -> None:
        self.script.acts += words(_quoted(rest))

    def do_think(self, rest: str) -> None:
        text = _quoted(rest)
        self.script.acts += [ThinkingDelta(delta.text) for delta in words(text)]
        self.script.acts.append(ThinkingSigned(_signature(text)))

    def do_redacted(self, rest: str) -> None:
        self.script.acts.append(ThinkingRedacted(rest or _signature("redacted")))

    def do_refuse(self, rest: str) -> None:
        self.script.acts.append(RefusalDelta(_quoted(rest) or "I cannot help with that."))

    def do_tool(self, rest: str) -> None:
        name, _, arguments = rest.partition(" ")
        if not name:
            raise _Unclear("a tool needs a name")
        self.script.acts += self.call(name, arguments.strip() or "{}")

    def do_tokens(self, rest: str) -> None:
        number = _bounded(rest, MAX_TOKENS)
        self.script.acts += [TextDelta(f"word{i} ") for i in range(number)]

    def do_blob(self, rest: str) -> None:
        self.script.acts.append(TextDelta("x" * _bounded(rest, MAX_BYTES)))

    def do_usage(self, rest: str) -> None:
        if rest == "none":
            self.script.no_usage = True
            return
        counts: dict[str, Any] = {}
        for name, equals, value in (pair.partition("=") for pair in rest.split()):
            if not equals or name not in _COUNTS:
                raise _Unclear(f"usage is none, or NAME=NUMBER with one of {', '.join(_COUNTS)}")
            counts[_COUNTS[name]] = _number(value)
        self.script.usage = Usage(**counts)

    def do_finish(self, rest: str) -> None:
        word, _, sequence = rest.partition(" ")
        if word not in set(Finish):
            raise _Unclear(f"an answer ends with one of {', '.join(Finish)}")
        self.script.finish = Finish(word)
        self.script.stop_sequence = sequence or None

    def do_model(self, rest: str) -> None:
        self.script.model = rest

    def do_header(self, rest: str) -> None:
        name, colon, value = rest.partition(":")
        if not colon or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise _Unclear("a header is written NAME: VALUE")
        self.script.headers.append((name.lower(), value.strip()))

    def do_error(self, rest: str) -> None:
        status, _, rest = rest.partition(" ")
        code: ErrorClass | None = None
        while found := re.match(r"(retry-after|class)=(\S+)\s*", rest):
            rest = rest[found.end() :]
            if found[1] == "class":
                if found[2] not in set(ErrorClass):
                    raise _Unclear(f"there is no such class; there are {', '.join(ErrorClass)}")
                code = ErrorClass(found[2])
            else:
                self.script.headers.append(("retry-after", found[2]))
        self.script.error = (_status(status), code, _quoted(rest) or "this is the error that you asked for")

    def do_status(self, rest: str) -> None:
        status, _, body = rest.partition(" ")
        self.script.body = (_status(status), _quoted(body))

    def do_error_in_stream(self, rest: str) -> None:
        word, _, message = rest.partition(" ")
        error = InStreamError(rest or "this is the error that you asked for")
        if word in set(ErrorClass):
            error = InStreamError(message or "this is the error that you asked for")
            error.classify(ErrorClass(word))
        self.script.acts.append(Failed(error))

    def do_delay(self, rest: str) -> None:
        self.script.delay_s += _seconds(rest)

    def do_stall(self, rest: str) -> None:
        self.script.acts.append(Wait(_seconds(rest)))

    def do_pace(self, rest: str) -> None:
        self.script.pace_s = _seconds(rest)

    def do_split(self, rest: str) -> None:
        self.script.split = _bounded(rest, MAX_BYTES)

    def do_ping(self, rest: str) -> None:
        self.script.acts += [Ping()] * _bounded(rest or "1", 10_000)

    def do_raw(self, rest: str) -> None:
        self.script.acts.append(Bytes(_quoted(rest).encode()))

    def do_cut(self, rest: str) -> None:
        self.script.acts.append(Stop.CUT)

    def do_hang(self, rest: str) -> None:
        self.script.acts.append(Stop.HANG)

    def do_no_done(self, rest: str) -> None:
        self.script.no_done = True

    def do_no_finish(self, rest: str) -> None:
        self.script.no_finish = True


DIRECTIVES: dict[str, Callable[[_Scribe, str], None]] = {
    name.removeprefix("do_").replace("_", "-"): method
    for name, method in vars(_Scribe).items()
    if name.startswith("do_")
}
"""Every directive by name; a test finds each in docs/echo.md. `after` is about when, not what, and so is none."""

_COUNTS = {
    "in": "input",
    "cached": "cache_read",
    "write": "cache_write",
    "write5m": "cache_write_5m",
    "write1h": "cache_write_1h",
    "out": "output",
    "reasoning": "reasoning",
}


def _quoted(text: str) -> str:
    """Return text as written, or, where it is one JSON string, what that string says (line breaks, blanks)."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            said = str(json.loads(text, strict=False))
            said.encode()
        except ValueError:
            raise _Unclear("what stands in double quotes is no JSON string") from None
        return said
    return text


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)", text)
    if not found:
        raise _Unclear("a duration is written 200ms, 1.5s or 1m")
    return min(float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0}[found[2]], MAX_S)


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise _Unclear("expected a number")
    return int(text)


def _bounded(text: str, most: int) -> int:
    number = _number(text)
    if not 0 < number <= most:
        raise _Unclear(f"a number goes from 1 to {most}")
    return number


def _status(text: str) -> int:
    status = _number(text)
    if not 200 <= status <= 599:
        raise _Unclear("a status is a number from 200 to 599")
    return status


def _signature(text: str) -> str:
    """Return what stands for a signature: the same for the same thinking, and nothing that anyone would accept."""
    return "echo-" + hashlib.sha256(text.encode()).hexdigest()[:32]
