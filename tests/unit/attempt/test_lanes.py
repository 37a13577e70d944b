"""Which lane a request takes, what the upstream is sent, and what an answer in one piece becomes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from arbiter.attempt import ways
from arbiter.attempt.ask import MAX_VALUES, Ask
from arbiter.attempt.lane import EVENTS, Lane, Whole
from arbiter.attempt.lanes import choose
from arbiter.attempt.native_lane import NativeLane
from arbiter.attempt.translated_lane import TranslatedLane
from arbiter.config.snapshot import Account, Limits
from arbiter.errors import BadRequest, Garbled, InStreamError, ProtocolUnsupported, TooLarge
from arbiter.routing.plan import Rung
from arbiter.wire import native
from arbiter.wire.format import FORMATS
from arbiter.wire.headers import Incoming
from tests.fakes.asks import TRACE, ask, rung

CHAT, MESSAGES, RESPONSES = "openai-chat", "anthropic-messages", "openai-responses"
ITEMS: dict[str, Any] = {"model": "asked", "input": [{"role": "user", "content": "hi"}]}
HELLO: dict[str, Any] = {"model": "asked", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def test_equal_formats_are_relayed_and_others_are_translated() -> None:
    """The native lane is for who speaks alike; `any` is the echo provider, which speaks both."""
    assert type(choose(ask(CHAT, HELLO), rung(CHAT))) is NativeLane
    assert type(choose(ask(CHAT, HELLO), rung("any"))) is NativeLane
    assert type(choose(ask(MESSAGES, HELLO), rung(CHAT))) is TranslatedLane
    assert type(choose(ask(CHAT, HELLO), rung(MESSAGES))) is TranslatedLane


@pytest.mark.parametrize("wire", [CHAT, MESSAGES])
def test_rebuild_is_the_operators_choice(wire: str) -> None:
    """With it a request passes through the model even where it need not, and says so."""
    lane = choose(ask(wire, HELLO | {"invented": 1}), rung(wire, relay="rebuild"))
    assert (type(lane), lane.fidelity, lane.format.name) == (TranslatedLane, "rebuilt", wire)
    assert b"invented" not in lane.body


def test_what_a_maker_signed_and_a_translation_leaves_out_is_counted() -> None:
    """So the client is warned: in each message where the target is told nothing of it."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    turn = {"role": "assistant", "content": [thought, {"type": "text", "text": "Hi"}]}
    body = HELLO | {"messages": [*HELLO["messages"], turn, *HELLO["messages"], turn, *HELLO["messages"]]}
    assert choose(ask(MESSAGES, body), rung(MESSAGES)).left_out == 0
    assert choose(ask(MESSAGES, body), rung(MESSAGES, relay="rebuild")).left_out == 0
    assert choose(ask(MESSAGES, body), rung(RESPONSES)).left_out == 2
    assert choose(ask(MESSAGES, body), rung(CHAT)).left_out == 0  # which is told it as text
    assert choose(ask(MESSAGES, body), rung(CHAT, "gpt-4o")).left_out == 2


def test_counting_tokens_is_never_translated() -> None:
    """The count is the upstream's own; one that cannot count is not asked."""
    path = "/messages/count_tokens"
    assert type(choose(ask(MESSAGES, HELLO, path=path), rung(MESSAGES, relay="rebuild"))) is NativeLane
    with pytest.raises(ProtocolUnsupported, match="cannot count tokens"):
        choose(ask(MESSAGES, HELLO, path=path), rung(CHAT))


def test_embeddings_are_relayed_to_servers_of_openais_format_and_to_nobody_else() -> None:
    """Also where the provider's requests are otherwise made anew: nothing of them is in the neutral model."""
    body = {"model": "asked", "input": ["a"], "dimensions": 3}
    lane = choose(ask("embeddings", body), rung(CHAT, "served", relay="rebuild"))
    assert (type(lane), lane.target(), lane.fidelity) == (NativeLane, "/v1/embeddings", "model-only")
    assert json.loads(lane.body) == body | {"model": "served"}
    assert type(choose(ask("embeddings", body), rung("any"))) is NativeLane
    with pytest.raises(ProtocolUnsupported, match="has no embeddings"):
        choose(ask("embeddings", body), rung(MESSAGES))


@pytest.mark.parametrize(
    ("base", "target"),
    [
        ("", "/v1beta/openai/embeddings"),
        ("/v1beta", "/v1beta/openai/embeddings"),
        ("/google/v1", "/google/v1/openai/embeddings"),
    ],
)
def test_google_has_embeddings_in_openais_format(base: str, target: str) -> None:
    at = rung(native.GEMINI, "gemini-embedding-001", base=base)
    lane = choose(ask("embeddings", {"model": "asked", "input": ["a"]}), at)
    assert (type(lane), lane.target()) == (NativeLane, target)
    assert json.loads(lane.body) == {"model": "gemini-embedding-001", "input": ["a"]}


@pytest.mark.parametrize(
    ("ours", "theirs", "base", "target"),
    [
        (CHAT, CHAT, "/v1", "/v1/chat/completions?x=1"),
        (CHAT, CHAT, "", "/chat/completions?x=1"),
        (MESSAGES, MESSAGES, "", "/v1/messages?x=1"),
        (MESSAGES, MESSAGES, "/api/v1", "/api/v1/messages?x=1"),
        (CHAT, MESSAGES, "", "/v1/messages"),
        (MESSAGES, CHAT, "/v1", "/v1/chat/completions"),
    ],
)
def test_the_target_is_where_the_upstreams_format_is_served(ours: str, theirs: str, base: str, target: str) -> None:
    """A query string goes along only where the same format understands it."""
    assert choose(ask(ours, HELLO, query="x=1"), rung(theirs, base=base)).target() == target


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("beta=true&key=sk-1", "?beta=true"),
        ("k%65y=sk-1", ""),
        ("api_key=1&access_token=2&x=3&X-Amz-Signature=4", "?x=3"),
        ("a=1&&b", "?a=1&&b"),
    ],
)
def test_no_credential_in_a_query_goes_along(query: str, told: str) -> None:
    """Whatever key a client put there is none of the upstream's (SPEC 2.13)."""
    for wire, path in ((CHAT, "/v1/chat/completions"), (MESSAGES, "/v1/messages")):
        assert choose(ask(wire, HELLO, query=query), rung(wire)).target() == path + told


KEY = (Account(key="sk"),)


@pytest.mark.parametrize(
    ("ours", "target", "lacks", "spoken"),
    [
        (RESPONSES, rung(CHAT, accounts=KEY), False, RESPONSES),
        (RESPONSES, rung(CHAT, accounts=KEY), True, CHAT),
        (RESPONSES, rung(CHAT), False, CHAT),
        (RESPONSES, rung(CHAT, responses_api="native"), True, RESPONSES),
        (RESPONSES, rung(CHAT, accounts=KEY, responses_api="transcode"), False, CHAT),
        (RESPONSES, rung(MESSAGES, accounts=KEY), False, MESSAGES),
        (RESPONSES, Rung(rung(CHAT, accounts=KEY).provider, "m", api="chat"), False, CHAT),
        (RESPONSES, Rung(rung(CHAT).provider, "m", api="responses"), True, RESPONSES),
        (CHAT, rung(CHAT, accounts=KEY, api="responses"), False, CHAT),
        (CHAT, Rung(rung(CHAT).provider, "m", api="responses"), False, RESPONSES),
        (MESSAGES, rung(CHAT), False, CHAT),
        (MESSAGES, rung(CHAT, api="responses"), False, RESPONSES),
        (MESSAGES, Rung(rung(CHAT, api="responses").provider, "m", api="chat"), False, CHAT),
        (RESPONSES, rung("any"), False, "any"),
    ],
)
def test_a_rung_is_asked_in_what_it_has_and_the_operator_says(
    ours: str, target: Rung, lacks: bool, spoken: str
) -> None:
    """SPEC 6.1, 6.6a. A client of one of OpenAI's two formats is served in that one, if nothing speaks against it."""
    assert ways.spoken(ours, target, lacks=lacks) == spoken
    lane = choose(ask(ours, ITEMS if ours == RESPONSES else HELLO), target, lacks=lacks)
    assert lane.format.name == (ours if spoken == "any" else spoken)
    assert lane.name == ("native" if spoken in (ours, "any") else "translated")


@pytest.mark.parametrize(
    ("kind", "api", "base", "target"),
    [
        ("openai", "responses", "/v1", "/v1/responses"),
        ("openai", "messages", "/v1", "/v1/messages"),
        ("openai", "messages", "", "/v1/messages"),
        ("anthropic", "chat", "", "/v1/chat/completions"),
        ("anthropic", "chat", "/v1", "/v1/chat/completions"),
    ],
)
def test_an_api_that_a_model_names_is_where_its_vendor_has_it(kind: str, api: str, base: str, target: str) -> None:
    """Anthropic has a chat endpoint, too, and servers of OpenAI's format have one for Messages, all below /v1."""
    at = rung({"openai": CHAT, "anthropic": MESSAGES}[kind], base=base)
    assert choose(ask(CHAT, HELLO), Rung(at.provider, "m", api=api)).target() == target


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_provider_keeps_was_paid_for_when_it_was_made(stream: bool) -> None:
    lane = choose(stored_ask(stream), rung(CHAT))
    assert (lane.name, lane.body, lane.target()) == ("native", b"", "/v1/responses/resp_1?include=a")
    response = {"id": "resp_1", "model": "m", "status": "completed", "output": [], "usage": {"input_tokens": 9}}
    body = json.dumps(response).encode()
    if not stream:
        assert asyncio.run(lane.whole(body, "application/json")) == Whole(body, None)
        return
    course = lane.course()
    course.feed(b'data: {"type":"response.completed","response":%b}\n\n' % body)
    found = lane.facts(course, 1, 2)
    assert (found.response_id, found.model, found.usage, found.usage_source) == ("resp_1", "m", None, "missing")


def stored_ask(stream: bool) -> Ask:
    opened, incoming = native.Opened({}, "m", stream), Incoming((), "include=a")
    path, more = "/responses/resp_1", {"stream": stream, "trace_id": TRACE}
    return Ask(FORMATS[RESPONSES], path, opened, incoming, Limits(), **more, method="GET", is_of_stored=True)


def test_a_compaction_is_never_translated() -> None:
    path = "/responses/compact"
    assert type(choose(ask(RESPONSES, ITEMS, path=path), rung(CHAT, accounts=KEY, relay="rebuild"))) is NativeLane
    for target in (rung(MESSAGES), rung(CHAT), rung(CHAT, accounts=KEY, responses_api="transcode")):
        with pytest.raises(ProtocolUnsupported, match="/responses/compact"):
            choose(ask(RESPONSES, ITEMS, path=path), target)


def test_a_translated_request_is_for_the_rungs_model_and_streams_as_the_client_does() -> None:
    """Usage is asked for with a stream, and only then: OpenAI refuses `stream_options` without one."""
    for stream in (True, False):
        lane = choose(ask(MESSAGES, HELLO | {"stream": stream}), rung(CHAT, "served"))
        body = json.loads(lane.body)
        assert body["model"] == "served"
        assert body.get("stream", False) is stream
        assert body.get("stream_options") == ({"include_usage": True} if stream else None)


def test_one_target_is_asked_for_a_stream_and_for_a_whole_answer_by_turns() -> None:
    """What is kept with it of the one is not said of the other, nor of another client's format."""
    target = rung("google-gemini", "served")
    for stream in (True, False, True, False):
        for wire in (CHAT, MESSAGES):
            path = choose(ask(wire, HELLO | {"stream": stream}), target).target()
            assert ("streamGenerateContent" in path) is stream


def test_what_the_catalog_says_bounds_an_answer_without_a_limit() -> None:
    """Anthropic must have `max_tokens`; the operator's figure for the model goes before our own table."""

    body = {name: value for name, value in HELLO.items() if name != "max_tokens"}
    target = Rung(rung(MESSAGES).provider, "served", max_output=12345)
    assert json.loads(choose(ask(CHAT, body), target).body)["max_tokens"] == 12345
    assert json.loads(choose(ask(CHAT, body | {"max_tokens": 20_000}), target).body)["max_tokens"] == 12345
    assert json.loads(choose(ask(CHAT, body | {"max_tokens": 200}), target).body)["max_tokens"] == 200


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/bmp;base64,Qk0="}}
HELD = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "video"}]}
BY_ID = {"type": "image", "source": {"type": "file", "file_id": "f"}}


@pytest.mark.parametrize(
    ("ours", "theirs", "turns", "place", "words"),
    [
        (CHAT, MESSAGES, [["a", {"type": "video_url"}]], "[0].content[1]", "a part of type video_url cannot be told"),
        (
            CHAT,
            MESSAGES,
            ["a", [PICTURE]],
            "[1].content[0]",
            "must be JPEG, PNG, GIF or WebP; this one says it is image/bmp",
        ),
        (
            CHAT,
            MESSAGES,
            [["a", "b", {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]],
            "[0].content[2]",
            "a part of type input_audio cannot be told to this upstream, which speaks Anthropic Messages",
        ),
        (MESSAGES, CHAT, ["a", [BY_ID]], "[1].content[0]", "a part of type image with a source of type file cannot"),
        (MESSAGES, CHAT, [[HELD, {"type": "text", "text": "b"}]], "[0].content[0]", "a part of type video cannot"),
        (
            MESSAGES,
            CHAT,
            [[{"type": "tool_use", "id": "c", "name": "f", "input": {}}]],
            "[0].content[0]",
            "a part of type tool_use cannot be told to this upstream, which speaks OpenAI Chat",
        ),
    ],
)
def test_what_cannot_be_told_is_named_with_its_place_in_the_clients_body(
    ours: str, theirs: str, turns: list[Any], place: str, words: str
) -> None:
    """The client knows no neutral parts: it gets the path and the type that it wrote."""
    said = [
        [{"type": "text", "text": one} if isinstance(one, str) else one for one in turn]
        if isinstance(turn, list)
        else turn
        for turn in turns
    ]
    body = {"model": "m", "messages": [{"role": "user", "content": content} for content in said]}
    with pytest.raises(ProtocolUnsupported) as refused:
        choose(ask(ours, body), rung(theirs))
    assert refused.value.param == f"messages{place}"
    assert str(refused.value).startswith(f"messages{place}: ") and words in str(refused.value)


def test_a_place_is_not_looked_for_for_ever() -> None:
    many = [{"type": "text", "text": "x"}] * 2000 + [{"type": "video_url"}]
    body = {"model": "m", "messages": [{"role": "user", "content": many}]}
    with pytest.raises(ProtocolUnsupported, match=r"^a part of type video_url") as refused:
        choose(ask(CHAT, body), rung(MESSAGES))
    assert refused.value.param is None


def test_a_conversation_that_nobody_began_is_refused() -> None:
    """No format has it; a translated one would begin with words that nobody said."""
    for ours, theirs in ((CHAT, MESSAGES), (MESSAGES, CHAT)):
        with pytest.raises(BadRequest, match="messages: there must be at least one"):
            choose(ask(ours, HELLO | {"messages": []}), rung(theirs))


def took(lane: Lane, body: bytes, kind: str = "application/json") -> Whole:
    whole = asyncio.run(lane.whole(body, kind))
    if whole.error is not None:
        raise whole.error
    return whole


def test_a_request_of_too_many_values_is_not_translated() -> None:
    """Each becomes an object, and everybody else waits meanwhile. Text is one value, whatever it is made of."""
    rows = ",".join("0" * (MAX_VALUES - 10))
    said = HELLO | {"messages": [{"role": "user", "content": rows * 20}, {"role": "user", "content": "x"}]}
    for ours, theirs in ((CHAT, MESSAGES), (MESSAGES, CHAT)):
        assert choose(ask(ours, said), rung(theirs))
        tools = said | {"tools": [{"input_schema": {"enum": [0] * (MAX_VALUES // 2)}}] * 2}
        with pytest.raises(TooLarge, match="100,000 values"):
            choose(ask(ours, tools), rung(theirs))
        assert choose(ask(ours, tools), rung(ours)), "nobody reads it where the formats are the same"


def chat_answer(**message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json.dumps({"id": "x", "model": "stated", "choices": [choice], "usage": {"prompt_tokens": 4}}).encode()


def test_a_whole_answer_is_written_in_the_clients_format() -> None:
    """Under an id of ours, and the model that the upstream says it was."""
    whole = took(choose(ask(MESSAGES, HELLO), rung(CHAT)), chat_answer(content="yes"))
    body = json.loads(whole.body)
    assert (whole.kind, body["id"], body["model"]) == ("application/json", f"msg_{TRACE}", "stated")
    assert [(block["type"], block["text"]) for block in body["content"]] == [("text", "yes")]
    assert whole.facts is not None
    assert (whole.facts.response_id, whole.facts.model, whole.facts.finish) == ("x", "stated", "stop")


def test_a_client_that_wants_a_stream_gets_one_from_a_whole_answer() -> None:
    """Servers that do not know `stream` exist; their client need not know."""
    lane = choose(ask(MESSAGES, HELLO | {"stream": True}), rung(CHAT))
    whole = took(lane, chat_answer(content="yes"))
    assert whole.kind == EVENTS
    assert whole.body.startswith(b"event: message_start") and b"event: message_stop" in whole.body


def test_a_client_that_wants_one_piece_gets_it_from_a_stream() -> None:
    """The events fold into the answer that they are."""
    chunk = {"id": "x", "model": "stated", "choices": [{"index": 0, "delta": {"content": "yes"}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": {"completion_tokens": 5}}
    body = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in (chunk, end)) + b"data: [DONE]\n\n"
    whole = took(choose(ask(MESSAGES, HELLO), rung(CHAT)), body, "text/event-stream; charset=utf-8")
    told = json.loads(whole.body)
    mislabelled = took(choose(ask(MESSAGES, HELLO), rung(CHAT)), body)
    assert json.loads(mislabelled.body)["content"] == told["content"]
    assert (told["content"][0]["text"], told["stop_reason"]) == ("yes", "max_tokens")
    assert whole.facts is not None and whole.facts.usage is not None
    assert (whole.facts.finish, whole.facts.usage.output, whole.facts.output_bytes) == ("length", 5, 3)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"choices": 3}', b'{"choices": []}', b"{}", b""])
def test_an_answer_that_is_none_is_the_upstreams_fault(body: bytes) -> None:
    """Nobody gets to see half of something that cannot be understood."""
    with pytest.raises(Garbled):
        took(choose(ask(MESSAGES, HELLO), rung(CHAT)), body)


def test_an_error_in_spite_of_its_200_is_an_error() -> None:
    """There is no way to tell it as an answer of another format."""
    with pytest.raises(InStreamError, match="busy"):
        took(choose(ask(MESSAGES, HELLO), rung(CHAT)), b'{"error": {"message": "busy"}}')


def test_tool_names_that_had_to_be_shortened_come_back_whole() -> None:
    """OpenAI takes 64 characters; the client must see the name that it declared."""
    name = "mcp__" + "very_long_server_name" * 3 + "__tool"
    tools = [{"name": name, "input_schema": {"type": "object"}}]
    lane = choose(ask(MESSAGES, HELLO | {"tools": tools}), rung(CHAT))
    sent = json.loads(lane.body)["tools"][0]["function"]["name"]
    assert sent != name and len(sent) <= 64
    call = {"id": "c", "type": "function", "function": {"name": sent, "arguments": "{}"}}
    whole = took(lane, chat_answer(content=None, tool_calls=[call]))
    assert json.loads(whole.body)["content"][0]["name"] == name
    course = lane.course()
    fragment = {"index": 0, **call}
    chunk = {"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [fragment]}}]}
    assert json.dumps(name).encode() in course.feed(b"data: %b\n\n" % json.dumps(chunk).encode())


@pytest.mark.parametrize(
    ("setting", "host", "drops"),
    [
        ("auto", "api.anthropic.com", False),
        ("auto", "anthropic.com", False),
        ("auto", "notanthropic.com", True),
        ("keep", "elsewhere.test", False),
        ("drop", "api.anthropic.com", True),
    ],
)
def test_the_attribution_line_goes_where_it_is_understood(setting: Any, host: str, drops: bool) -> None:
    """Anthropic takes it out of the prompt itself; anybody else would read it to the model (SPEC 2.2a)."""
    assert rung(MESSAGES, host=host, attribution=setting).provider.drops_attribution is drops
    line = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1;"}
    request = ask(MESSAGES, HELLO | {"system": [line, {"type": "text", "text": "Be kind."}]})
    assert (b"billing-header" in choose(request, rung(MESSAGES, host=host, attribution=setting)).body) is not drops
    assert b"billing-header" not in choose(request, rung(CHAT, host=host, attribution=setting)).body
    rebuilt = choose(request, rung(MESSAGES, host=host, attribution=setting, relay="rebuild"))
    assert (b"billing-header" in rebuilt.body) is not drops


def test_a_request_is_read_once_for_all_rungs() -> None:
    """A climb of several rungs does not parse the conversation several times."""
    request = ask(CHAT, HELLO)
    assert request.request() is request.request()
    assert FORMATS[CHAT] is request.format
