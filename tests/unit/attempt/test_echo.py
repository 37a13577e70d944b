"""The echo provider: every directive does what docs/echo.md says, and it behaves as a connection does."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from arbiter.attempt.echo import Echo
from arbiter.attempt.echo_script import DIRECTIVES
from arbiter.clock import monotonic
from arbiter.config.snapshot import Budgets
from arbiter.errors import ArbiterError, Cut, ErrorClass, Garbled, InStreamError, TimedOut
from arbiter.fold import collect
from arbiter.model import (
    Answer,
    CallDelta,
    Ended,
    Event,
    Failed,
    Finish,
    RedactedThinking,
    Refusal,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    Usage,
)
from arbiter.upstream.transport import Exchange, Outgoing
from arbiter.wire.format import FORMATS
from tests.fakes.loops import TICK_S

CHAT, MESSAGES, RESPONSES = "openai-chat", "anthropic-messages", "openai-responses"
WIRES = pytest.mark.parametrize("wire", [CHAT, MESSAGES, RESPONSES])
LIMIT = 64 << 20
PATHS = {CHAT: "/v1/chat/completions", MESSAGES: "/v1/messages?beta=true", RESPONSES: "/v1/responses"}


T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def outgoing(wire: str, said: Any, *, stream: bool = True, headers: Any = (), **members: Any) -> Outgoing:
    messages = said if isinstance(said, list) else [{"role": "user", "content": said}]
    body = {"model": "m", "max_tokens": 5_000_000, "messages": messages, "stream": stream, **members}
    if wire == CHAT:
        body.setdefault("stream_options", {"include_usage": True})
    if wire == RESPONSES:
        body["input"] = body.pop("messages")
    return Outgoing("POST", PATHS[wire], list(headers), json.dumps(body).encode())


async def send(out: Outgoing, wire: str, budgets: Budgets | None = None, *, stream: bool = True) -> Exchange:
    return await Echo().send(out, wire, budgets or Budgets(), stream=stream)


class Heard:
    """A sink that keeps everything."""

    def __init__(self, wire: str) -> None:
        self.pushes: list[bytes] = []
        self.events: list[Event] = []
        self.error: ArbiterError | None = None
        self.over = asyncio.Event()
        self.some = asyncio.Event()
        self._reader = FORMATS[wire].reader()

    def on_data(self, data: bytes) -> None:
        assert data and not self.over.is_set()
        self.pushes.append(data)
        self.events += self._reader.feed(data)
        self.some.set()

    def on_end(self, error: ArbiterError | None) -> None:
        assert not self.over.is_set()
        self.error = error
        self.events += self._reader.finish()
        self.over.set()

    @property
    def bytes(self) -> bytes:
        return b"".join(self.pushes)


async def hear(wire: str, said: Any, budgets: Budgets | None = None, **members: Any) -> Heard:
    """One whole stream, to its end."""
    heard = Heard(wire)
    exchange = await send(outgoing(wire, said, **members), wire, budgets)
    assert exchange.status == 200 and exchange.header("content-type", "").startswith("text/event-stream")  # type: ignore[union-attr]
    exchange.stream(heard)
    await asyncio.wait_for(heard.over.wait(), 10)
    return heard


async def whole(wire: str, said: Any, **members: Any) -> tuple[Exchange, bytes]:
    """One unary answer."""
    exchange = await send(outgoing(wire, said, stream=False, **members), wire, stream=False)
    return exchange, await exchange.read(LIMIT)


def both(wire: str, said: Any, **members: Any) -> Answer:
    """The answer, streamed and whole; that they agree is a test by itself."""
    streamed = collect(run(hear(wire, said, **members)).events)
    exchange, body = run(whole(wire, said, **members))
    assert exchange.status == 200
    unary = FORMATS[wire].parse_answer(body)
    for one, other in zip(streamed.parts, unary.parts, strict=True):
        if isinstance(one, ToolCall) and isinstance(other, ToolCall):
            assert (one.name, json.loads(one.arguments)) == (other.name, json.loads(other.arguments))
        else:
            assert one == other
    assert (streamed.finish, streamed.usage) == (unary.finish, unary.usage)
    assert streamed.id != unary.id, "no id is ever used twice"
    return streamed


# --- Without directives -----------------------------------------------------------------------------------------------


@WIRES
def test_the_newest_user_text_comes_back_word_by_word(wire: str) -> None:
    said = [{"role": "user", "content": "first"}, {"role": "assistant", "content": "x"}]
    parts = [{"type": "text", "text": "a note"}, {"type": "text", "text": "naïve  日本 🎈"}]
    said.append({"role": "user", "content": parts})  # type: ignore[dict-item]
    heard = run(hear(wire, said))
    assert [one.text for one in heard.events if isinstance(one, TextDelta)] == ["naïve", "  日本", " 🎈"]
    answer = both(wire, said)
    assert answer.text() == "naïve  日本 🎈" and answer.finish is Finish.STOP
    assert answer.usage is not None and (answer.usage.input or 0) > 5 and answer.usage.output == 3


RESULTS: dict[str, list[dict[str, Any]]] = {
    RESPONSES: [
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "sunny"},
    ],
    CHAT: [
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    ],
    MESSAGES: [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "sunny"}]},
    ],
}


async def answered(out: Outgoing, wire: str) -> Any:
    return json.loads(await (await send(out, wire, stream=False)).read(LIMIT))


@WIRES
def test_a_tools_result_is_talked_about(wire: str) -> None:
    """So an agent's loop ends, although the prompt that asked for the call is still there."""
    asked = [{"role": "user", "content": "Go\n/echo tool f"}]
    assert both(wire, asked + RESULTS[wire]).text() == "The tool answered: sunny"


@WIRES
def test_after_is_followed_in_the_first_round_only(wire: str) -> None:
    """`after`: not now, but once results are there; in the second round the loop ends."""
    asked = [{"role": "user", "content": "Go\n/echo tool f\n/echo after text Next.\n/echo after tool g"}]
    assert [one.name for one in both(wire, asked).parts if isinstance(one, ToolCall)] == ["f"]
    second = both(wire, asked + RESULTS[wire])
    assert second.text() == "Next." and second.finish is Finish.TOOL_CALLS
    assert both(wire, asked + RESULTS[wire] * 2).text() == "The tool answered: sunny"


@WIRES
def test_what_an_agent_slips_in_is_not_the_users_word(wire: str) -> None:
    """Claude Code puts reminders beside results and a system message behind them; its loop must end all the same."""
    reminder = {"type": "text", "text": "<system-reminder>\n/echo text No.\n</system-reminder>"}
    asked = [{"role": "user", "content": [reminder, {"type": "text", "text": "Go\n/echo tool f"}]}]
    assert [one.name for one in both(wire, asked).parts if isinstance(one, ToolCall)] == ["f"]
    behind = [{"role": "user", "content": [reminder]}, {"role": "system", "content": "Be terse."}]
    assert both(wire, asked + RESULTS[wire] + behind).text() == "The tool answered: sunny"
    headers = [("x-echo", "tool g"), ("x-echo-finish", "length")]
    answer = both(wire, asked + RESULTS[wire], headers=headers)
    assert (answer.text(), answer.finish) == ("The tool answered: sunny", Finish.LENGTH)


def test_a_forced_tool_is_called() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    answer = both(CHAT, "Hi", tools=[tool], tool_choice="required")
    assert [one.name for one in answer.parts if isinstance(one, ToolCall)] == ["f"]
    named = {"type": "tool", "name": "g"}
    answer = both(MESSAGES, "Hi", tools=[{"name": "g", "input_schema": {}}], tool_choice=named)
    assert [one.name for one in answer.parts if isinstance(one, ToolCall)] == ["g"]


@WIRES
def test_the_limit_is_kept(wire: str) -> None:
    answer = both(wire, "one two three four", **{"max_output_tokens" if wire == RESPONSES else "max_tokens": 2})
    assert (answer.text(), answer.finish) == ("one two", Finish.LENGTH)


def test_tokens_are_counted() -> None:
    async def count(text: str) -> tuple[int, Any]:
        out = outgoing(MESSAGES, text)
        out = Outgoing("POST", "/v1/messages/count_tokens?beta=true", [], out.body)
        exchange = await send(out, MESSAGES, stream=False)
        return exchange.status, json.loads(await exchange.read(LIMIT))

    status, body = run(count("x" * 400))
    assert status == 200 and set(body) == {"input_tokens"} and 90 < body["input_tokens"] < 120
    assert run(count("x" * 800))[1]["input_tokens"] > 190
    out = Outgoing("POST", "/v1/responses/input_tokens", [], outgoing(RESPONSES, "x" * 400).body)
    body = run(answered(out, RESPONSES))
    assert body["object"] == "response.input_tokens" and 90 < body["input_tokens"] < 120


@WIRES
def test_models_are_listed_and_other_paths_are_not_found(wire: str) -> None:
    async def get(path: str) -> tuple[int, Any]:
        exchange = await send(Outgoing("GET", path, [], b""), wire, stream=False)
        return exchange.status, json.loads(await exchange.read(LIMIT))

    assert run(get("/v1/models?limit=1000"))[1]["data"][0]["id"] == "echo"
    status, body = run(get("/v1/nothing"))
    assert status == 404 and body["error"]["type"] == FORMATS[wire].ERROR_TYPES[ErrorClass.NOT_FOUND]  # type: ignore[attr-defined]


@WIRES
def test_a_bad_body_is_a_400_in_the_formats_shape(wire: str) -> None:
    async def post(body: bytes) -> tuple[int, Any]:
        exchange = await send(Outgoing("POST", PATHS[wire], [], body), wire, stream=False)
        return exchange.status, json.loads(await exchange.read(LIMIT))

    for body in (b"{", b"[]", b'{"model":"m"}', b'{"model":"m","messages":[{"role":"wizard","content":""}]}'):
        status, answer = run(post(body))
        assert status == 400 and answer["error"]["type"] == "invalid_request_error"


# --- Directives -------------------------------------------------------------------------------------------------------


@WIRES
def test_text_think_tool_and_usage(wire: str) -> None:
    answer = both(
        wire,
        'Hi\n/echo think let me see\n/echo text "two\\nlines"\n'
        '/echo tool get_weather {"city":"Oslo"}\n/echo tool now\n'
        "/echo usage in=12 cached=3 write=2 out=5 reasoning=1",
    )
    thought, text, *calls = answer.parts
    assert isinstance(thought, Thinking) and thought.text == "let me see"
    assert (thought.signature is not None) == (wire == MESSAGES)
    assert text == Text("two\nlines")
    assert [(one.name, one.arguments) for one in calls if isinstance(one, ToolCall)] == [
        ("get_weather", '{"city":"Oslo"}'),
        ("now", "{}"),
    ]
    assert len({one.id for one in calls if isinstance(one, ToolCall)}) == 2
    assert answer.finish is Finish.TOOL_CALLS
    assert answer.usage is not None
    said = msgspec.structs.replace(answer.usage, total=None, service_tier=None)
    assert said == Usage(12, 3, 2, output=5, reasoning=1)


@WIRES
def test_arguments_come_in_slices(wire: str) -> None:
    heard = run(hear(wire, '/echo tool f {"city":"Oslo","when":"now"}'))
    slices = [one.arguments for one in heard.events if isinstance(one, CallDelta)]
    assert len(slices) == 4 and json.loads("".join(slices)) == {"city": "Oslo", "when": "now"}


@WIRES
def test_usage_may_be_split_by_lifetime_or_missing(wire: str) -> None:
    none = both(wire, "/echo text Hi\n/echo usage none").usage
    # Anthropic's format must say something, and a response that ended always has every number.
    zeros = Usage(input=0, cache_read=0, cache_write=0, output=0, reasoning=0, total=0)
    assert none == {MESSAGES: Usage(input=0, output=0), RESPONSES: zeros}.get(wire)
    if wire == MESSAGES:
        usage = both(wire, "/echo text Hi\n/echo usage write=100 write5m=60 write1h=40").usage
        assert usage is not None and (usage.cache_write_5m, usage.cache_write_1h) == (60, 40)


@WIRES
def test_refuse_redacted_model_and_tokens(wire: str) -> None:
    refused = both(wire, "/echo refuse I will not.").parts
    assert refused == ((Refusal("I will not."),) if wire != MESSAGES else (Text("I will not."),))
    if wire == MESSAGES:
        assert both(wire, "/echo redacted abc").parts == (RedactedThinking("abc"),)
    assert both(wire, "/echo text Hi\n/echo model other").model == "other"
    assert len(both(wire, "/echo tokens 200").text().split()) == 200
    assert both(wire, "/echo blob 2000000").text() == "x" * 2_000_000


@WIRES
@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.CONTENT_FILTER])
def test_finish(wire: str, finish: Finish) -> None:
    assert both(wire, f"/echo text Hi\n/echo finish {finish}").finish is finish


def test_finish_with_a_sequence() -> None:
    answer = both(MESSAGES, "/echo text Hi\n/echo finish stop_sequence END")
    assert (answer.finish, answer.stop_sequence) == (Finish.STOP_SEQUENCE, "END")


@WIRES
def test_header(wire: str) -> None:
    exchange, _ = run(whole(wire, "/echo header x-ratelimit-remaining-requests: 5"))
    assert exchange.header("x-ratelimit-remaining-requests") == "5"


@WIRES
@pytest.mark.parametrize("stream", [True, False])
def test_error(wire: str, stream: bool) -> None:
    """An error comes as a status, with the vendor's type for it."""

    async def ask() -> tuple[Exchange, Any]:
        exchange = await send(outgoing(wire, "/echo error 429 retry-after=2 Slow down.", stream=stream), wire)
        return exchange, json.loads(await exchange.read(LIMIT))

    exchange, body = run(ask())
    assert exchange.status == 429 and exchange.header("retry-after") == "2"
    assert body["error"]["message"] == "Slow down." and body["error"]["type"] == "rate_limit_error"


@WIRES
def test_error_of_a_class_and_status_with_a_body(wire: str) -> None:
    exchange, body = run(whole(wire, "/echo error 400 class=context_length Too much."))
    error = FORMATS[wire].parse_error(exchange.status, exchange.headers, body)
    assert str(error) == "Too much."
    assert error.code is (ErrorClass.CONTEXT_LENGTH if wire != MESSAGES else ErrorClass.BAD_REQUEST)
    exchange, body = run(whole(wire, "/echo status 502 <html><title>Bad Gateway</title></html>"))
    assert exchange.status == 502 and body == b"<html><title>Bad Gateway</title></html>"
    assert exchange.header("content-type") == "text/html"
    exchange, body = run(whole(wire, "/echo status 503"))
    assert (exchange.status, body, exchange.header("content-length")) == (503, b"", "0")


@WIRES
def test_error_in_stream(wire: str) -> None:
    heard = run(hear(wire, "/echo text Hel\n/echo error-in-stream overloaded engine queue full\n/echo text lo"))
    *_, text, failed = heard.events
    assert text == TextDelta("Hel") and isinstance(failed, Failed) and isinstance(failed.error, InStreamError)
    assert str(failed.error) == "engine queue full" and heard.error is None
    exchange, body = run(whole(wire, "/echo error-in-stream overloaded engine queue full"))
    assert exchange.status == 503 and b"engine queue full" in body


@WIRES
def test_cut(wire: str) -> None:
    """The bytes end where the script says, and the exchange says that the connection was lost."""
    heard = run(hear(wire, "one two\n/echo cut"))
    assert isinstance(heard.error, Cut)
    assert [one.text for one in heard.events if isinstance(one, TextDelta)] == ["one", " two"]
    assert isinstance(heard.events[-1], Failed)
    with pytest.raises(Cut):
        run(whole(wire, "/echo cut"))


@pytest.mark.parametrize("leaves_out", ["no-done", "no-finish"])
def test_responses_have_nothing_behind_their_finish(leaves_out: str) -> None:
    """Their terminal event is what says that they are over: without either, the stream was cut."""
    heard = run(hear(RESPONSES, f"Hi\n/echo {leaves_out}"))
    assert b"response.completed" not in heard.bytes and isinstance(heard.events[-1], Failed)


def test_a_conversation_is_compacted_to_one_item() -> None:
    out = outgoing(RESPONSES, "Hello there", stream=False)
    out = Outgoing("POST", "/v1/responses/compact", [], out.body)
    body = run(answered(out, RESPONSES))
    assert [item["type"] for item in body["output"]] == ["compaction"] and body["usage"]["input_tokens"] > 0


@pytest.mark.parametrize("wire", [CHAT, MESSAGES])
def test_no_done_and_no_finish(wire: str) -> None:
    terminal = b"[DONE]" if wire == CHAT else b"message_stop"
    done = run(hear(wire, "Hi\n/echo no-done"))
    assert terminal not in done.bytes and done.events[-1] == Ended()
    finish = run(hear(wire, "Hi\n/echo no-finish"))
    assert terminal in finish.bytes and finish.events[-1] == Ended(inferred=True)


@WIRES
def test_raw_and_ping(wire: str) -> None:
    heard = run(hear(wire, '/echo ping 2\n/echo text Hi\n/echo raw "data: {\\"warning\\":1}\\n\\n"'))
    assert heard.bytes.count(FORMATS[wire].keepalive) == 2
    assert b'\n\ndata: {"warning":1}\n\n' in heard.bytes
    assert collect(heard.events).text() == "Hi"


@WIRES
def test_split_cuts_anywhere_and_nothing_is_lost(wire: str) -> None:
    small = run(hear(wire, "naïve 日本\n/echo split 3"))
    assert max(map(len, small.pushes)) == 3
    assert collect(small.events).text() == "naïve 日本"
    large = run(hear(wire, "/echo tokens 2000"))
    assert len(large.pushes) > 2 and all(len(push) == 16 << 10 for push in large.pushes[:-1])


@WIRES
def test_directives_may_come_as_headers(wire: str) -> None:
    async def ask() -> bytes:
        headers = [("X-Echo", "text From a header."), ("x-echo-finish", "length")]
        exchange = await send(outgoing(wire, "Hi", stream=False, headers=headers), wire, stream=False)
        return await exchange.read(LIMIT)

    answer = FORMATS[wire].parse_answer(run(ask()))
    assert (answer.text(), answer.finish) == ("From a header.", Finish.LENGTH)


@pytest.mark.parametrize(
    "line",
    [
        "dance",
        "tokens many",
        "tokens 0",
        "delay soon",
        "usage in=x",
        "usage in",
        'raw "\\ud800"',
        "after",
        "usage sideways=1",
        "finish never",
        "error teapot",
        "status 99",
        "tool",
        "header nothing",
        'text "\\x"',
        "error 400 class=none",
    ],
)
def test_a_directive_that_cannot_be_followed_is_a_400(line: str) -> None:
    exchange, body = run(whole(CHAT, f"/echo {line}"))
    message = json.loads(body)["error"]["message"]
    assert exchange.status == 400 and message.startswith("echo: ")
    # In words of ours: what Python says of the same is no help to whoever wrote the prompt.
    assert not re.search(r"literal|not a valid|dictionary|Error|Expecting|[Ii]nvalid|char \d", message)


def test_an_unknown_directive_is_told_the_known_ones() -> None:
    _, body = run(whole(CHAT, "/echo dance"))
    message = json.loads(body)["error"]["message"]
    assert 'no directive "dance"' in message and message.endswith(", ".join([*DIRECTIVES, "after"]))


def test_every_directive_is_documented_and_tested() -> None:
    """docs/echo.md has a row for each, and none for what is not there; and each is used by a test in this file."""
    page = Path("docs/echo.md").read_text()
    documented = set(re.findall(r"^\| `([a-z-]+)", page, re.MULTILINE))
    assert documented == {*DIRECTIVES, "after"}
    source = Path(__file__).read_text()
    assert [name for name in documented if f"/echo {name}" not in source] == []


# --- As a connection --------------------------------------------------------------------------------------------------


@WIRES
def test_delay_stall_and_pace_take_their_time(wire: str) -> None:
    async def times(said: str) -> tuple[float, float]:
        began = monotonic()
        exchange = await send(outgoing(wire, said), wire)
        head = monotonic() - began
        heard = Heard(wire)
        exchange.stream(heard)
        await heard.over.wait()
        assert heard.error is None and isinstance(heard.events[-1], Ended)
        return head, monotonic() - began

    head, whole = run(times("Hi\n/echo delay 60ms"))
    assert head >= 0.06 - TICK_S
    head, whole = run(times("Hi\n/echo stall 60ms"))
    assert head < whole and whole >= 0.06 - TICK_S
    head, whole = run(times("a b c\n/echo pace 20ms"))
    assert whole >= 0.08 - 4 * TICK_S, "three words and a finish"


@pytest.mark.parametrize(
    ("said", "budgets", "phase"),
    [
        ("Hi\n/echo delay 1m", Budgets(headers_s=0.03), "headers"),
        ("/echo hang", Budgets(first_event_s=0.03), "first_event"),
        ("/echo ping 3\n/echo pace 10ms\n/echo hang", Budgets(first_event_s=0.03, idle_s=30), "first_event"),
        ("/echo text Hi\n/echo hang", Budgets(idle_s=0.03), "idle"),
        ("/echo tokens 1000\n/echo pace 5ms", Budgets(total_s=0.03, idle_s=30), "total"),
    ],
)
def test_budgets_are_honoured(said: str, budgets: Budgets, phase: str) -> None:
    """Each timeout names its phase (SPEC 3.3); what came before it was heard."""

    async def ask() -> ArbiterError | None:
        try:
            return (await hear(CHAT, said, budgets)).error
        except TimedOut as error:
            return error

    late = run(ask())
    assert isinstance(late, TimedOut) and late.phase == phase and late.waited_s >= 0.03 - TICK_S


def test_a_unary_answer_has_one_budget() -> None:
    async def ask(said: str, budgets: Budgets) -> None:
        exchange = await send(outgoing(CHAT, said, stream=False), CHAT, budgets, stream=False)
        await exchange.read(LIMIT)

    for said in ("Hi\n/echo delay 1m", "Hi\n/echo stall 1m", "/echo hang"):
        with pytest.raises(TimedOut) as caught:
            run(ask(said, Budgets(unary_s=0.03, headers_s=0.001)))
        assert caught.value.phase == "unary"


def test_a_reader_that_saw_an_event_is_past_the_first_event_budget() -> None:
    async def ask() -> Heard:
        heard = Heard(CHAT)
        exchange = await send(outgoing(CHAT, "/echo text Hi\n/echo stall 80ms"), CHAT, Budgets(first_event_s=0.02))
        exchange.saw_event()
        exchange.stream(heard)
        await heard.over.wait()
        return heard

    assert run(ask()).error is None


def test_a_paused_reader_is_told_nothing_and_misses_nothing() -> None:
    """Backpressure: the next push waits for `resume`."""

    async def ask() -> Heard:
        heard = Heard(CHAT)
        exchange = await send(outgoing(CHAT, "/echo tokens 5000\n/echo split 1000"), CHAT)
        exchange.stream(heard)
        await heard.some.wait()
        exchange.pause()
        count = len(heard.pushes)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(heard.pushes) == count
        exchange.resume()
        await asyncio.wait_for(heard.over.wait(), 10)
        return heard

    assert len(collect(run(ask()).events).text().split()) == 5000


@pytest.mark.parametrize("ending", ["abort", "finish"])
def test_an_abandoned_exchange_never_speaks_again(ending: str) -> None:
    async def ask() -> None:
        echo = Echo()
        heard = Heard(CHAT)
        exchange = await echo.send(outgoing(CHAT, "/echo tokens 100000\n/echo split 100"), CHAT, Budgets(), stream=True)
        exchange.stream(heard)
        await heard.some.wait()
        getattr(exchange, ending)()
        count = len(heard.pushes)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(heard.pushes) == count and not heard.over.is_set()
        exchange.abort()
        assert not echo._active

    run(ask())


def test_a_cancelled_send_leaves_nothing_behind() -> None:
    async def ask() -> None:
        echo = Echo()
        task = asyncio.create_task(echo.send(outgoing(CHAT, "Hi\n/echo delay 1m"), CHAT, Budgets(), stream=True))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not echo._active

    run(ask())


def test_an_answer_over_the_limit_is_refused() -> None:
    async def ask() -> None:
        exchange = await send(outgoing(CHAT, "/echo blob 10000", stream=False), CHAT, stream=False)
        await exchange.read(1000)

    with pytest.raises(Garbled):
        run(ask())


def test_a_closing_provider_ends_its_streams() -> None:
    async def ask() -> Heard:
        echo, heard = Echo(), Heard(CHAT)
        exchange = await echo.send(outgoing(CHAT, "/echo hang"), CHAT, Budgets(), stream=True)
        exchange.stream(heard)
        await echo.close()
        return heard

    assert isinstance(run(ask()).error, Cut)


def test_many_streams_at_once_do_not_mix() -> None:
    async def ask() -> None:
        heard = await asyncio.gather(*(hear(CHAT, f"I am {i}\n/echo split 7") for i in range(50)))
        assert [collect(one.events).text() for one in heard] == [f"I am {i}" for i in range(50)]

    run(ask())
