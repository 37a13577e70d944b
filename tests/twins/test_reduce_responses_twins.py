"""What each event of an OpenAI Responses stream means to the side reducer, on both sides."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.twins.streams import RESPONSES, SPENT, Story, compact, event, item, response, said


def test_a_responses_stream_is_told(reduce: ModuleType) -> None:
    """What comes with `…done` was said before, and is not counted again."""
    story = Story(reduce, "ResponsesTap", RESPONSES)
    assert story.kinds == ["START", "FINISH", "DONE"]
    assert story.facts == {
        "boundary": len(RESPONSES.encode()),
        "offset": len(RESPONSES.encode()),
        "events": 19,
        "pings": 0,
        "text_bytes": len('Grüße 🌍\n"type":"response.completed"'.encode()),
        "thinking_bytes": 5,
        "argument_bytes": len('{"path":"/"}'),
        "finish": b"completed",
        "finished": True,
        "done": True,
        "errored": False,
        "tool_names": [b"ls"],
        "response_id": b"resp_1",
        "model": b"m-3",
        "usage": compact(SPENT).encode(),
        "service_tier": b"default",
        "created_s": None,
        "compacted": False,
    }


def test_lines_with_the_names_of_events_are_not_asked_for(reduce: ModuleType) -> None:
    """llama.cpp and transformers leave them out; the type stands in the data, too."""
    bare = "".join(line for line in RESPONSES.splitlines(keepends=True) if not line.startswith("event:"))
    named, unnamed = Story(reduce, "ResponsesTap", RESPONSES), Story(reduce, "ResponsesTap", bare)
    assert unnamed.kinds == named.kinds
    apart = ("boundary", "offset")
    assert {k: v for k, v in unnamed.facts.items() if k not in apart} == {
        k: v for k, v in named.facts.items() if k not in apart
    }


END = response("completed", usage=SPENT)
FAILED = response("failed", error={"code": "server_error", "message": "x"}, usage=SPENT)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([END], ["FINISH", "DONE"]),
        ([response("incomplete", incomplete_details={"reason": "max_output_tokens"})], ["FINISH", "DONE"]),
        ([FAILED], ["ERROR"]),
        ([response("cancelled")], ["ERROR"]),
        (['data: {"type":"error","code":"x","message":"y","param":null}\n\n'], ["ERROR"]),
        (['data: {"error":{"message":"x"}}\n\n'], ["ERROR"]),
        (["event: error\ndata: gone\n\n"], ["ERROR"]),
        (['event: error\ndata: {"type":[],"response":{"id":"x"}}\n\n'], ["ERROR"]),
        (['data: {"error":{"message":"x"},"type":{},"response":{"id":"x"}}\n\n'], ["ERROR"]),
        (['data: {"type":[],"response":{"id":"x"}}\n\n'], ["FOREIGN"]),
        ([response("created"), response("created")], ["START", "RESTART"]),
        ([END, said("output_text", "x")], ["FINISH", "DONE", "AFTER_FINISH"]),
        ([END, said("output_text", "")], ["FINISH", "DONE"]),
        ([END, item(type="message")], ["FINISH", "DONE", "AFTER_FINISH"]),
        ([FAILED, END], ["ERROR", "AFTER_FINISH"]),
        ([END, "data: [DONE]\n\n"], ["FINISH", "DONE", "FOREIGN"]),
        ([event("keepalive", sequence_number=3), event("ping")], []),
        ([event("codex.rate_limits", rate_limits={}), "data: 7\n\n"], ["FOREIGN"] * 2),
        ([event("response.web_search_call.in_progress"), event("response.of_tomorrow", x={})], []),
        (["data: {]\n\n"], ["MALFORMED"]),
    ],
)
def test_the_order_of_responses_events_is_judged(reduce: ModuleType, events: list[str], expected: list[str]) -> None:
    """One beginning, one terminal event, failures by type or by shape (SPEC 2.6, 2.7)."""
    assert Story(reduce, "ResponsesTap", "".join(events)).kinds == expected


def test_a_failure_says_what_was_spent(reduce: ModuleType) -> None:
    """A failed attempt keeps the usage that its stream metered (SPEC 7.3)."""
    tap = Story(reduce, "ResponsesTap", response("created") + FAILED).tap
    assert (tap.usage, tap.errored, tap.done, tap.finish) == (compact(SPENT).encode(), True, False, None)


@pytest.mark.parametrize(("reason", "word"), [("content_filter", b"content_filter"), (None, b"incomplete")])
def test_an_incomplete_answer_says_why(reduce: ModuleType, reason: str | None, word: bytes) -> None:
    stream = response("incomplete", incomplete_details={"reason": reason})
    assert Story(reduce, "ResponsesTap", stream).tap.finish == word


CALLS: list[tuple[dict[str, Any], list[bytes]]] = [
    ({"type": "function_call", "name": "f"}, [b"f"]),
    ({"type": "custom_tool_call", "name": "apply_patch"}, [b"apply_patch"]),
    ({"type": "web_search_call", "action": {}}, [b"web_search"]),
    ({"type": "mcp_call", "name": "lookup"}, [b"lookup"]),
    ({"type": "local_shell_call"}, [b"local_shell"]),
    ({"type": "mcp_list_tools", "tools": []}, []),
    ({"type": "function_call_output"}, []),
    ({"type": "message"}, []),
    ({"type": "reasoning"}, []),
]


@pytest.mark.parametrize(("added", "names"), CALLS)
def test_who_was_called_is_known_from_the_items(reduce: ModuleType, added: dict[str, Any], names: list[bytes]) -> None:
    assert Story(reduce, "ResponsesTap", item(**added)).tap.tool_names == names


def test_an_answer_without_deltas_is_counted_from_its_end(reduce: ModuleType) -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "abc"}, {"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "name": "p", "input": "patch"},
    ]
    tap = Story(reduce, "ResponsesTap", response("created") + response("completed", output=output)).tap
    assert (tap.text_bytes, tap.thinking_bytes, tap.argument_bytes, tap.tool_names) == (5, 2, 7, [b"f", b"p"])


def test_a_compaction_has_said_something(reduce: ModuleType) -> None:
    """It is no empty answer, though only its maker can read it."""
    stream = item(type="compaction") + item(done=True, type="compaction", encrypted_content="gAAAA") + END
    tap = Story(reduce, "ResponsesTap", stream).tap
    assert (tap.text_bytes, tap.compacted) == (5, True)
    for output, is_told in (([{"type": "compaction"}], True), ([{"type": "message", "content": "compaction"}], False)):
        whole = response("created") + response("completed", output=["compaction", *output])
        assert Story(reduce, "ResponsesTap", whole).tap.compacted is is_told


PROBABLE = {"token": "a", "bytes": [97, 98, 99], "logprob": -0.5}


def spoken(tokens: int) -> dict[str, Any]:
    """A message with the log probabilities of so many tokens, each with twenty others."""
    probable = [{**PROBABLE, "top_logprobs": [PROBABLE] * 20}] * tokens
    part = {"type": "output_text", "text": "a" * tokens, "annotations": [], "logprobs": probable}
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}


def test_log_probabilities_do_not_make_an_answer_too_large(reduce: ModuleType) -> None:
    """SPEC 2.10: 1,500 tokens with twenty alternatives each are more values than any event is decoded with."""
    message = spoken(1500)
    assert compact(message).count(",") > reduce.MAX_VALUES
    events = [
        response("created"),
        said("output_text", "a" * 1500, logprobs=message["content"][0]["logprobs"]),
        event("response.output_text.done", item_id="i", text="", logprobs=message["content"][0]["logprobs"]),
        item(done=True, **message),
        response("completed", output=[message], usage=SPENT),
    ]
    story = Story(reduce, "ResponsesTap", "".join(events), limit=16 << 20)
    assert story.kinds == ["START", "FINISH", "DONE"]
    assert (story.facts["text_bytes"], story.facts["usage"]) == (1500, compact(SPENT).encode())
    whole = Story(reduce, "ResponsesTap", "".join([events[0], events[-1]]), limit=16 << 20)
    assert whole.facts["text_bytes"] == 1500, "an answer without deltas is counted from its end"


def test_other_values_do(reduce: ModuleType) -> None:
    """In whatever they stand, and also where the text of a message looks like log probabilities."""
    many = [1] * reduce.MAX_VALUES
    for members in ({"output": many}, {"output": [{"text": '"logprobs":[', "more": many}]}, {"logprobs_": many}):
        tap = reduce.ResponsesTap(16 << 20)
        ((kind, _, _, _),) = tap.feed(response("completed", **members).encode())
        assert kind == reduce.MALFORMED


def test_slim_takes_log_probabilities_out(reduce: ModuleType) -> None:
    many = compact([{"token": "]", "bytes": [1] * 50_000}] * 2)
    text = compact({"text": 'a "logprobs":[1', "type": "x"})
    before = f'{{"a":{text},"logprobs" : {many},"b":[{{"logprobs":{{"content":{many}}}}}]}}'
    after = f'{{"a":{text},"logprobs" : [],"b":[{{"logprobs":{{}}}}]}}'
    assert reduce.slim(before.encode()) == after.encode()
    few = b'{"logprobs":[1,2]}'
    assert reduce.slim(few) is few
    endless = before.encode()[:-4]
    assert reduce.slim(endless).startswith(b'{"a":') and len(reduce.slim(endless)) > len(many)
