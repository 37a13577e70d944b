"""The carriers: what is moved, what is handed out, and in which order; on both sides."""

from __future__ import annotations

import itertools
import json
from types import ModuleType
from typing import Any

import pytest

from arbiter.errors import Garbled
from tests.twins.streams import CHAT, DONE, MESSAGES, TOKENS, block, call, chat, compact, delta, event, fed

MOULDS = ((b"<T ", b">"), (b"<C ", b">"), (b"<R ", b">"), (b"<A ", b">"))
CARRIERS = ["ChatCarrier", "MessagesCarrier"]


def carrier(module: ModuleType, name: str, place: int = 0, keep: bool = False, limit: int = 1 << 20) -> Any:
    """A carrier that moves whatever it may."""
    made = getattr(module, name)(limit)
    made.aim(*MOULDS, place, keep)
    return made


def raw(*members: str) -> str:
    return "data: {" + ",".join(members) + "}\n\n"


def moved(module: ModuleType, name: str, stream: str) -> bytes | None:
    """What became of a stream of plain deltas; None where any was handed out."""
    made = carrier(module, name)
    return None if fed(made, stream.encode()) else bytes(made.take())


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (chat(delta(content="Grüße")), '<T "Grüße">'),
        (chat(delta(reasoning_content="Hmm")), '<C "Hmm">'),
        (chat(delta(reasoning="Hmm")), '<R "Hmm">'),
        (chat(delta(tool_calls=[call(0, arguments='{"a":')])), r'<A "{\"a\":">'),
        (chat(delta(tool_calls=[{**call(0, arguments="1"), "id": None, "type": "function"}])), '<A "1">'),
        (chat(delta(tool_calls=[{**call(0, "", arguments="1")}], content=None)), '<A "1">'),
        (chat(delta(role="assistant", content="a", reasoning="", refusal=None, tool_calls=[])), '<T "a">'),
        (chat(delta(content="a", annotations=[{"a": [1, -2.5e3, True]}], function_call=None)), '<T "a">'),
        (chat(delta(content="a", reasoning_details=[], extra_content=None)), '<T "a">'),
        (chat(delta(content="a", reasoning_details=[])).replace("[]", "[ \t]"), '<T "a">'),
        (chat(delta(content="a", finish=""), usage=None, error=None, obfuscation="x"), '<T "a">'),
        ("event: message\n" + chat(delta(content="a")), '<T "a">'),
        (chat(delta(content="a")).replace('":', '" : ').replace(",", " ,\t"), '<T "a">'),
    ],
)
def test_a_plain_chat_delta_is_moved(carry: ModuleType, stream: str, expected: str) -> None:
    """One string that is not empty, whatever stands beside it that says nothing."""
    assert moved(carry, "ChatCarrier", stream) == expected.encode()


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (block(type="text_delta", text="Grüße"), '<T "Grüße">'),
        (block(7, type="text_delta", text="a"), '<T "a">'),
        (block(type="thinking_delta", thinking="Hmm"), '<C "Hmm">'),
        (block(type="input_json_delta", partial_json='{"a":'), r'<A "{\"a\":">'),
        (block(type="text_delta", text="a", thinking="", other=[{}]), '<T "a">'),
        (block(type="text_delta", text="a").partition("\n")[2], '<T "a">'),
    ],
)
def test_a_plain_messages_delta_is_moved(carry: ModuleType, stream: str, expected: str) -> None:
    """With or without its event name."""
    assert moved(carry, "MessagesCarrier", stream) == expected.encode()


@pytest.mark.parametrize("name", CARRIERS)
def test_a_string_arrives_as_it_was_written(carry: ModuleType, name: str) -> None:
    """Quotes and escapes are not undone and done again; the bytes are counted as the client will read them."""
    written = r"\"\\\/\b\n\u00e9\uD83D\ude00 é🌍"
    stream = chat(delta(content="?")) if name == "ChatCarrier" else block(type="text_delta", text="?")
    made = carrier(carry, name)
    assert fed(made, stream.replace("?", written).encode()) == []
    assert made.take() == f'<T "{written}">'.encode()
    assert made.text_bytes == len(json.loads(f'"{written}"').encode())


CHOICES = '"choices":[{"index":0,"delta":{"content":"a"}}]'
ODD_CHAT = {
    "a finish": chat(delta(content="a", finish="stop")),
    "usage": chat(delta(content="a"), usage=TOKENS),
    "usage in the choice": chat({**delta(content="a"), "usage": TOKENS}),
    "only usage": chat(usage=TOKENS),
    "log probabilities": chat({**delta(content="a"), "logprobs": {"content": []}}),
    "another choice": chat(delta(1, content="a")),
    "two choices": chat(delta(content="a"), delta(1, content="b")),
    "one choice twice": chat(delta(content="a"), delta(content="b")),
    "no index": raw('"choices":[{"delta":{"content":"a"}}]'),
    "two strings": chat(delta(content="a", reasoning="b")),
    "one string under two names": chat(delta(reasoning_content="a", reasoning="a")),
    "text beside a slice": chat(delta(content="a", tool_calls=[call(0)])),
    "two slices": chat(delta(tool_calls=[call(0, arguments="1"), call(0, arguments="2")])),
    "a new call": chat(delta(tool_calls=[call(0, "call_1", "f", "{")])),
    "an id": chat(delta(tool_calls=[call(0, "call_1", arguments="{")])),
    "a name": chat(delta(tool_calls=[call(0, None, "f", "{")])),
    "another call": chat(delta(tool_calls=[call(1, arguments="{")])),
    "a slice without index": chat(delta(tool_calls=[call(None, arguments="{")])),
    "an empty slice": chat(delta(tool_calls=[call(0)])),
    "arguments as an object": chat(delta(tool_calls=[call(0, arguments={"a": 1})])),
    "a refusal": chat(delta(refusal="no")),
    "what is wanted back beside a thought": chat(delta(reasoning="a", reasoning_details=[{"text": "a"}])),
    "what is wanted back alone": chat(delta(content="", reasoning=None, reasoning_details=[{"signature": "s"}])),
    "what is wanted back, of no known shape": chat(delta(content="a", reasoning_details={})),
    "a signature of Google's": chat(delta(extra_content={"google": {"thought_signature": "s"}})),
    "a call's": chat(delta(tool_calls=[{**call(0, arguments="{"), "extra_content": {"google": {}}}])),
    "its name twice": raw('"choices":[{"index":0,"delta":{"content":"a","extra_content":null,"extra_content":null}}]'),
    "a legacy call": chat(delta(function_call={"arguments": "a"})),
    "parts": chat(delta(content=[{"type": "text", "text": "a"}])),
    "an error": chat(delta(content="a"), error={"message": "x"}),
    "an object named error": chat(delta(content="a"), object="error"),
    "an event named error": "event: error\n" + chat(delta(content="a")),
    "half a surrogate pair": raw('"choices":[{"index":0,"delta":{"content":"a\\ud83c"}}]'),
    "half a pair elsewhere": raw('"x":"\\ude00"', CHOICES),
    "a name with an escape": raw('"choices":[{"index":0,"delta":{"c\\u006fntent":"a"}}]'),
    "a member twice": raw(CHOICES, CHOICES),
    "a delta's member twice": raw('"choices":[{"index":0,"delta":{"content":"a","content":"a"}}]'),
    "no JSON": raw(CHOICES).replace("}\n", "\n"),
    "a comma too many": raw(CHOICES, ""),
    "a control character": raw('"choices":[{"index":0,"delta":{"content":"a\tb"}}]'),
    "a large event": chat(delta(content="x" * (1 << 16))),
    "the end": DONE,
}
KIND, TEXT = '"type":"content_block_delta"', '"delta":{"type":"text_delta","text":"a"}'
ODD_MESSAGES = {
    "a start": event("content_block_start", index=0, content_block={"type": "text", "text": "a"}),
    "a stop": event("content_block_stop", index=0, delta={"type": "text_delta", "text": "a"}),
    "a stop reason": event("message_delta", delta={"stop_reason": "end_turn", "text": "a"}),
    "a signature": block(type="signature_delta", signature="Eq"),
    "a citation": block(type="citations_delta", citation={"text": "a"}),
    "another type": block(type="thinking_delta", text="a"),
    "no type": block(text="a"),
    "two strings": block(type="text_delta", text="a", thinking="b"),
    "an empty string": block(type="text_delta", text=""),
    "no string": block(type="text_delta", text=None),
    "a number": block(type="text_delta", text=1),
    "another block": block(1, type="input_json_delta", partial_json="{"),
    "no index": raw(KIND, TEXT),
    "no whole index": raw(KIND, '"index":0.5', TEXT),
    "another name": block(type="text_delta", text="a").replace("event: content_block_delta", "event: error"),
    "half a surrogate pair": block(type="text_delta", text="a").replace('"a"', '"\\ud83c"'),
    "a type with an escape": block(type="text_delta", text="a").replace('"text_d', '"te\\u0078t_d'),
    "a delta twice": raw(KIND, '"index":0', TEXT, TEXT),
    "an error": event("error", error={"type": "overloaded_error"}),
    "the end": event("message_stop"),
}


@pytest.mark.parametrize(
    ("name", "stream"),
    [pytest.param("ChatCarrier", stream, id=f"chat-{case}") for case, stream in ODD_CHAT.items()]
    + [pytest.param("MessagesCarrier", stream, id=f"messages-{case}") for case, stream in ODD_MESSAGES.items()],
)
def test_anything_else_is_handed_out(carry: ModuleType, name: str, stream: str) -> None:
    """What says more than one string, or is not to be trusted, is for the reader: whole, and nothing of it is moved."""
    made = carrier(carry, name)
    lines = stream.splitlines()
    named = lines[0].partition(": ")[2] if lines[0].startswith("event") else ""
    payload = next(line for line in lines if line.startswith("data")).partition(": ")[2]
    assert fed(made, stream.encode()) == [(named.encode(), payload.encode())]
    assert made.take() == made.kept() == b""
    assert (made.events, made.text_bytes, made.thinking_bytes, made.argument_bytes) == (1, 0, 0, 0)


@pytest.mark.parametrize("stream", [CHAT, MESSAGES], ids=CARRIERS)
def test_without_a_mould_every_event_is_handed_out(carry: ModuleType, stream: str) -> None:
    """A carrier that never was aimed is a reader of events and nothing else."""
    made = getattr(carry, CARRIERS[stream is MESSAGES])()
    assert [data.decode() for _, data in fed(made, stream.encode())] == [
        line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: ")
    ]
    assert made.take() == b""


def test_only_kinds_with_a_mould_are_moved(carry: ModuleType) -> None:
    """The rest is handed out, in its place between what was moved: `take` gives what stood before."""
    made = carry.ChatCarrier()
    made.aim(MOULDS[0], None, None, None, -1, False)
    made.open(
        "".join(chat(delta(**{kind: f"{kind}{n}"})) for n in (1, 2) for kind in ("content", "reasoning")).encode()
    )
    for n in (1, 2):
        assert b"reasoning%d" % n in made.next()[1]
        assert made.take() == b'<T "content%d">' % n
    assert made.next() is None
    assert made.take() == b""
    assert (made.events, made.text_bytes, made.thinking_bytes) == (4, 16, 0)


def test_moulds_may_change_after_each_event(carry: ModuleType) -> None:
    """What was aimed holds from the next event on, in the middle of a read as well."""
    made = carry.MessagesCarrier()
    made.aim((b"[", b"]"), None, None, None, -1, False)
    text = block(type="text_delta", text="a")
    made.open((text + event("content_block_stop", index=0) + text + event("message_stop") + text).encode())
    made.next()
    made.aim((b"{", b"}"), None, None, None, -1, False)
    made.next()
    assert made.take() == b'["a"]{"a"}'
    made.aim(None, None, None, None, -1, False)
    assert json.loads(made.next()[1])["delta"]["text"] == "a"


def test_a_chunk_that_says_nothing_is_passed_over_while_anything_is_moved(carry: ModuleType) -> None:
    """Many servers open, or fill, their streams with them. Without a mould the reader gets them too."""
    silent = [delta(), delta(role="assistant", content=""), delta(content=None, tool_calls=None), {"index": 0}]
    stream = "".join(chat(one, usage=None) for one in silent).encode()
    made = carry.ChatCarrier()
    assert len(fed(made, stream)) == len(silent)
    made.aim(None, None, None, MOULDS[3], 0, False)
    assert fed(made, stream) == []
    assert made.take() == b""
    assert made.events == 2 * len(silent)


@pytest.mark.parametrize("name", CARRIERS)
def test_arguments_are_moved_for_one_place_and_kept_on_demand(carry: ModuleType, name: str) -> None:
    """What was kept is the inside of one JSON string, of the moved slices only."""
    slices = ['{"pa', 'th":"\\n', 'é"']

    def sliced(place: int, text: str) -> str:
        if name == "ChatCarrier":
            return chat(delta(tool_calls=[call(place, arguments=text)]))
        return block(place, type="input_json_delta", partial_json=text)

    stream = "".join(sliced(3, text) + sliced(2, "other") for text in slices).encode()
    made = carrier(carry, name, place=3, keep=True)
    assert len(fed(made, stream)) == len(slices)
    assert made.take() == b"".join(b"<A %s>" % compact(text).encode() for text in slices)
    assert json.loads(b'"' + made.kept() + b'"') == "".join(slices)
    assert made.kept() == b""
    assert made.argument_bytes == len("".join(slices).encode())
    made.aim(*MOULDS, 3, False)
    fed(made, stream)
    assert made.kept() == b""


@pytest.mark.parametrize("name", CARRIERS)
@pytest.mark.parametrize(
    ("written", "ends"),
    [("a}", True), (r"\"}", True), (r"\u007d", True), (r"\u007D", True), (r"\\u007d", False), (r"\n\u007b{", False)],
)
def test_a_slice_that_may_end_the_arguments_is_handed_out(
    carry: ModuleType, name: str, written: str, ends: bool
) -> None:
    """Who wants them kept asks whether they are whole, and must know before anything else is moved."""
    chunk = chat(delta(tool_calls=[call(0, arguments="?")]))
    stream = chunk if name == "ChatCarrier" else block(type="input_json_delta", partial_json="?")
    data = stream.replace("?", written).encode()
    made = carrier(carry, name, keep=True)
    assert bool(fed(made, data)) is ends
    assert (made.take() == b"") is ends
    assert not fed(carrier(carry, name), data)


@pytest.mark.parametrize("place", [-1, 1 << 40])
def test_a_place_that_never_comes_moves_no_arguments(carry: ModuleType, place: int) -> None:
    """-1 is for calls that cannot be told by their index; a slice without one does not match it."""
    made = carrier(carry, "ChatCarrier", place=place)
    for index in (0, None, -1):
        assert len(fed(made, chat(delta(tool_calls=[call(index, arguments="1")])).encode())) == 1


def test_comments_and_pings_are_no_events(carry: ModuleType) -> None:
    """A ping is handed out, who reads it knows what it is; but an upstream that only pings has said nothing yet."""
    made = carrier(carry, "MessagesCarrier")
    stream = ": hello\n\n" + event("ping") + 'data: {"type": "ping"}\n\n' + "event: ping\ndata: x\n\n"
    assert len(fed(made, stream.encode())) == 3
    assert made.events == 0
    assert len(fed(made, (event("message_start") + 'data: {"a":"ping"}\n\n' + 'data: "ping\n\n').encode())) == 3
    assert fed(made, block(type="text_delta", text='"ping"').encode()) == []
    assert made.events == 4


def test_what_was_moved_before_a_fault_can_be_taken(carry: ModuleType) -> None:
    """The client gets all that came before the upstream broke; then `next` raises, each time."""
    good, bad = chat(delta(content="a")).encode(), b"data: \xff\n\n"
    for pieces in ([good + bad + good], [good, bad, good]):
        made = carrier(carry, "ChatCarrier")
        for piece in pieces:
            made.open(piece)
            if bad in piece:
                break
            assert made.next() is None
        for _ in range(2):
            with pytest.raises(Garbled, match="UTF-8"):
                made.next()
        assert made.take() == b'<T "a">'
        made.open(good)
        with pytest.raises(Garbled, match="UTF-8"):
            made.next()
        assert made.take() == b""


def test_an_event_over_the_limit_is_a_fault(carry: ModuleType) -> None:
    """As for every reader of frames."""
    made = carrier(carry, "ChatCarrier", limit=200)
    made.open(chat(delta(content="a")).encode() + b"data: " + b"x" * 200)
    with pytest.raises(Garbled, match="200"):
        made.next()
    assert made.take() == b'<T "a">'


def test_the_last_event_may_come_without_its_blank_line(carry: ModuleType) -> None:
    """At the end of the bytes it is moved or handed out like any other."""
    for tail, handed in (
        (chat(delta(content="b")).rstrip("\n"), []),
        (DONE.rstrip("\n"), [(b"", b"[DONE]")]),
        (chat(delta(content="b"))[:40], [(b"", chat(delta(content="b"))[6:40].encode())]),
    ):
        made = carrier(carry, "ChatCarrier")
        assert fed(made, (chat(delta(content="a")) + tail).encode()) == []
        assert made.take() == b'<T "a">'
        made.end()
        assert list(iter(made.next, None)) == handed
        assert made.take() == (b"" if handed else b'<T "b">')
        with pytest.raises(ValueError, match="finished"):
            made.open(b"x")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("stream", [CHAT, MESSAGES], ids=CARRIERS)
@pytest.mark.parametrize("keep", [False, True])
def test_any_cut_moves_the_same(carry: ModuleType, stream: str, end: str, keep: bool) -> None:
    """With a byte order mark and data of several lines, byte by byte too: same bytes, same events, same order."""
    name = CARRIERS[stream is MESSAGES]
    lined = stream.replace('{"choices"', '{\ndata: "choices"').replace('"delta":', '"delta":\ndata: ')
    data = ("\ufeff" + lined.replace("\n", end)).encode()

    def story(pieces: list[bytes]) -> list[Any]:
        made = carrier(carry, name, place=2 if stream is MESSAGES else 0, keep=keep)
        told: list[Any] = [b""]
        for piece in pieces:
            made.open(piece)
            while (handed := made.next()) is not None:
                told[-1] += made.take()
                told += [handed, b""]
            told[-1] += made.take()
        return [*told, made.kept(), made.events, made.text_bytes, made.thinking_bytes, made.argument_bytes]

    whole = story([data])
    assert whole[-2] > 0 and (keep or whole[-1] > 0)
    for cut in range(0, len(data), 3):
        assert story([data[:cut], data[cut:]]) == whole, cut
    assert story([data[at : at + 1] for at in range(len(data))]) == whole


def test_one_read_may_hold_thousands_of_deltas(carry: ModuleType) -> None:
    """They become one piece of output, without a look in between; and the next read's begin anew."""
    made = carrier(carry, "ChatCarrier")
    texts = [str(n) for n in range(5000)]
    for _ in range(2):
        assert fed(made, "".join(chat(delta(content=text)) for text in texts).encode()) == []
        assert made.take() == "".join(f'<T "{text}">' for text in texts).encode()
    assert made.events == 10_000


def test_deltas_that_look_alike_are_told_apart(carry: ModuleType) -> None:
    """What was learnt from one event serves the next only where all but the string is the same."""
    likes = [
        delta(content="a"),
        delta(content=""),
        delta(content='"}}],"finish_reason":"stop'),
        delta(content="b", finish="stop"),
        delta(reasoning="a"),
        delta(tool_calls=[call(0, arguments="a")]),
        delta(tool_calls=[call(1, arguments="a")]),
    ]
    for first, second in itertools.permutations(likes, 2):
        made = carrier(carry, "ChatCarrier")
        fed(made, chat(first).encode())
        made.take()
        alone = carrier(carry, "ChatCarrier")
        assert fed(made, chat(second).encode()) == fed(alone, chat(second).encode())
        assert made.take() == alone.take()


@pytest.mark.parametrize(
    ("noise", "is_moved"),
    [('"q"', True), ('""', True), (r'"\"}"', True), (r'"\ud83c"', False), ("1", True), ('"', False)],
)
def test_noise_beside_the_choices_may_change(carry: ModuleType, noise: str, is_moved: bool) -> None:
    """OpenAI pads its chunks with a string of random letters, so that their sizes tell nothing."""
    made = carrier(carry, "ChatCarrier")
    padded = chat(delta(content="a"), usage=None, obfuscation="p")
    assert fed(made, padded.encode()) == []
    handed = fed(made, (padded.replace('"a"', '"b"').replace('"p"', noise) + padded).encode())
    assert len(handed) == (not is_moved)
    assert made.take() == b'<T "a">' + b'<T "b">' * is_moved + b'<T "a">'
