"""The two sides of the carriers move the same bytes of any stream; and what they move is what a decoder reads."""

from __future__ import annotations

import itertools
import json
import re
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import carry as c_carry
from arbiter._speedups.py import carry as py_carry
from arbiter.errors import Garbled

Moulds = tuple[tuple[bytes, bytes] | None, ...]

CHAT_STRINGS = ["content", "reasoning_content", "reasoning"]
TYPES = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}


def listed(members: str) -> list[str]:
    return re.split(r"\s{2,}", members.strip())


# Raw members. Most events should be plain but for one thing, so what is odd is drawn apart, and seldom.
STRING = st.text(max_size=9).map(json.dumps) | st.sampled_from(
    [r'"\"\\\/\n"', r'"\u00e9\ud83d\ude00"', '"é🌍"', '"error"', '""', "null"]
)
ODD_STRING = st.sampled_from([r'"\ud83d"', r'"\ude00\ud83d"', '"\t"', '"', r'"\x"', "1", "[]", '{"a":1}'])
ROOT = listed("""
"id":"i"   "object":"chat.completion.chunk"   "usage":null   "error":null   "model":["m"]
"x":{"a":[1,-2.5e3,true,{}],"b":{"c":null}}   "created":17   "x":"data: [DONE]"
""")
ODD_ROOT = listed(r"""
"object":"error"   "object":null   "usage":{"a":1}   "usage":{}   "error":{}   "type":"x"   "x_groq":{}   "x":"\ud800"
"\u0069d":1   "x":{"\u0061":1}   "choices":[]   "x":[   "x":01   "index":1   "delta":{}   x
"x":123456789012345678   "x":-1.123456789012345678   "x":1e100   "x":[1E-007]
"x":12345678901234567.12345678901234567e+99
""")
CHOICE = listed(""" "finish_reason":null   "finish_reason":""   "logprobs":null   "usage":null   "x":[[]]   "x":"y" """)
ODD_CHOICE = listed("""
"finish_reason":"stop"   "finish_reason":0   "logprobs":{"content":[]}   "usage":{"a":1}   "index":0   "index":1
""")
DELTA = listed("""
"role":"assistant"   "function_call":null   "tool_calls":null   "tool_calls":[]   "x":{"text":"y"}   "refusal":null
""")
ODD_DELTA = listed("""
"function_call":{}   "tool_calls":{}   "type":"text_delta"   "type":1   "refusal":"no"   "content":"b"   "text":"b"
"reasoning":"b"   "thinking":"b"   "partial_json":"b"   "content":["b"]   "text":["b"]
""")
INDEX = st.sampled_from(["0", "0", "0", "0", "1", "123456789012345"])
ODD_INDEX = st.sampled_from(["01", "0.0", "-0", "null", '"0"', "1234567890123456"])
FRAGMENT = listed(""" "id":null   "id":""   "type":"function"   "x":[{"index":1}] """)
ODD_FRAGMENT = listed(""" "id":"call"   "index":0   "function":{} """)
FUNCTION = listed(""" "name":null   "name":""   "x":"y" """)
ODD_FUNCTION = listed(""" "name":"f"   "arguments":"" """)
BLANK = st.sampled_from(["", "", "", " ", "\t", "\ndata:"])
SELDOM = st.integers(0, 19).map(lambda number: number == 0)


@st.composite
def objects(draw: st.DrawFn, members: list[str], more: list[str], odd: list[str]) -> str:
    """An object of these members and perhaps some more, in any order."""
    members = [*members, *draw(st.lists(st.sampled_from(more), max_size=2, unique=True))]
    if draw(SELDOM):
        members.append(draw(st.sampled_from(odd)))
    return "{" + draw(BLANK) + ("," + draw(BLANK)).join(draw(st.permutations(members))) + "}"


@st.composite
def chats(draw: st.DrawFn) -> str:
    index = INDEX if not draw(SELDOM) else ODD_INDEX
    string = draw(STRING if not draw(SELDOM) else ODD_STRING)
    kind = draw(st.sampled_from([*CHAT_STRINGS, "arguments", "arguments"]))
    said = f'"{kind}":{string}'
    if kind == "arguments":
        function = draw(objects([said], FUNCTION, ODD_FUNCTION))
        fragment = draw(objects([f'"index":{draw(index)}', f'"function":{function}'], FRAGMENT, ODD_FRAGMENT))
        said = f'"tool_calls":[{",".join([fragment] * (1 + draw(SELDOM)))}]'
    delta = draw(objects([said], DELTA, ODD_DELTA))
    number = "0" if not draw(SELDOM) else draw(ODD_INDEX | INDEX)
    choice = draw(objects([f'"index":{number}', f'"delta":{delta}'], CHOICE, ODD_CHOICE))
    return draw(objects([f'"choices":[{",".join([choice] * (1 + draw(SELDOM)))}]'], ROOT, ODD_ROOT))


@st.composite
def messages(draw: st.DrawFn) -> str:
    index = draw(INDEX if not draw(SELDOM) else ODD_INDEX)
    string = draw(STRING if not draw(SELDOM) else ODD_STRING)
    kind = draw(st.sampled_from(list(TYPES)))
    typed = TYPES[kind if not draw(SELDOM) else "text"]
    delta = draw(objects([f'"{kind}":{string}', f'"type":"{typed}"'], DELTA, ODD_DELTA))
    event = "content_block_delta" if not draw(SELDOM) else draw(st.sampled_from(["content_block_stop", "ping", "x"]))
    return draw(objects([f'"type":"{event}"', f'"index":{index}', f'"delta":{delta}'], ROOT, ODD_ROOT))


NAME = st.sampled_from(["", "", "", "event: message\n", "event: content_block_delta\n", "event: error\n", "event\n"])
EVENT = st.tuples(
    NAME, chats() | messages() | st.sampled_from(["[DONE]", "{}", "[]", '"ping"', " ", '{"type":"ping"}'])
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Some events, more like them with one string changed, as streams have them; and now and then a byte is changed."""
    events = [f"{name}data: {data}\n\n" for name, data in draw(st.lists(EVENT, min_size=1, max_size=4))]
    for _ in range(draw(st.integers(0, 4))):
        event = draw(st.sampled_from(events))
        spans = [found.span() for found in re.finditer(r'(?<=:)"(?:[^"\\]|\\.)*"', event)]
        start, stop = draw(st.sampled_from(spans or [(0, 0)]))
        events.append(event[:start] + (draw(STRING | ODD_STRING) if stop else "") + event[stop:])
    text = "".join(events)
    if draw(st.booleans()):
        text = text.replace("\n", draw(st.sampled_from(["\r\n", "\r"])))
    data = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"])) + text.encode()
    for at in draw(st.lists(st.integers(0, len(data) - 1), max_size=draw(st.sampled_from([0, 0, 2])))):
        data = data[:at] + draw(st.sampled_from([b"", b'"', b"\\", b"}", b"\xff", b"\n\n", b"\x00"])) + data[at + 1 :]
    return data


MOULD = st.sampled_from([None, (b"<", b">"), (b"", b""), (b"event: x\ndata: {", b"}\n\n")])
AIMS = st.lists(
    st.tuples(st.tuples(MOULD, MOULD, MOULD, MOULD), st.sampled_from([0, 0, 1, -1, 123456789012345]), st.booleans()),
    min_size=1,
    max_size=3,
)
CARRIERS = st.sampled_from(["ChatCarrier", "MessagesCarrier"])


def carried(
    module: ModuleType,
    name: str,
    pieces: list[bytes],
    aims: list[tuple[Moulds, int, bool]] | None = None,
    limit: int = 1 << 20,
) -> list[Any]:
    """The story of a stream: what was moved and handed out in turns, what was kept and counted, how it ended."""
    carrier = getattr(module, name)(limit)
    told: list[Any] = [b""]
    rounds = itertools.cycle(aims) if aims else itertools.repeat((((b"<", b">"),) * 4, 0, True))
    moulds, place, keep = next(rounds)
    carrier.aim(*moulds, place, keep)
    try:
        for piece in [*pieces, None, None]:
            carrier.end() if piece is None else carrier.open(piece)
            while (event := carrier.next()) is not None:
                told[-1] += carrier.take()
                told += [event, b""]
                moulds, place, keep = next(rounds)
                carrier.aim(*moulds, place, keep)
            told[-1] += carrier.take()
    except Garbled as error:
        told[-1] += carrier.take()
        told.append(str(error))
    counts = carrier.events, carrier.text_bytes, carrier.thinking_bytes, carrier.argument_bytes
    return [*told, carrier.kept(), counts]


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(min(one, len(stream)) for one in cuts), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(at)]


@settings(deadline=None, max_examples=400)
@given(
    stream=streams(),
    cuts=st.lists(st.integers(0, 800), max_size=6),
    aims=AIMS,
    name=CARRIERS,
    limit=st.sampled_from([1 << 20, 1 << 20, 120]),
)
def test_the_twins_agree_on_any_stream(
    stream: bytes, cuts: list[int], aims: list[tuple[Moulds, int, bool]], name: str, limit: int
) -> None:
    """Same bytes moved, same events between them, same counts and faults: for any cut, under changing moulds."""
    whole = carried(py_carry, name, [stream], aims, limit)
    assert carried(py_carry, name, cut(stream, cuts), aims, limit) == whole
    assert carried(c_carry, name, [stream], aims, limit) == whole
    assert carried(c_carry, name, cut(stream, cuts), aims, limit) == whole


@settings(deadline=None, max_examples=200)
@given(stream=st.binary(max_size=200), name=CARRIERS)
def test_the_twins_agree_on_noise(stream: bytes, name: str) -> None:
    """Bytes that are nothing at all, as a stream, as data, and inside of a string."""
    delta = {
        "ChatCarrier": (b'{"choices":[{"index":0,"delta":{"content":"', b'"}}]}'),
        "MessagesCarrier": (b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"', b'"}}'),
    }[name]
    for data in (stream, b"data: %s\n\n" % stream, b"data: %s%s%s\n\n" % (delta[0], stream, delta[1])):
        assert carried(c_carry, name, [data, data]) == carried(py_carry, name, [data, data])


@settings(deadline=None, max_examples=200)
@given(data=chats() | messages(), name=CARRIERS)
def test_what_is_moved_is_what_a_decoder_reads(data: str, name: str) -> None:
    """Whoever decodes the event finds in it the one string that was moved, in the member that gave it its mould."""
    members = ["text", "thinking", "none", "partial_json"]
    if name == "ChatCarrier":
        members = ["content", "reasoning_content", "reasoning", "arguments", "refusal"]
    moulds = tuple((member.encode() + b":", b"") for member in members[:4])
    moved, *_, counts = carried(c_carry, name, [f"data: {data}\n\n".encode()], [(moulds, 0, False)])
    if moved:
        event = json.loads("\n".join(line.removeprefix("data:") for line in data.splitlines()))
        delta = event["choices"][0]["delta"] if name == "ChatCarrier" else event["delta"]
        for call in delta.get("tool_calls") or () if name == "ChatCarrier" else ():
            assert call["index"] == 0
            delta |= call["function"]
        member, _, raw = moved.decode().partition(":")
        string = json.loads(raw)
        assert {one: delta[one] for one in members if delta.get(one)} == {member: string}
        at = (0, 1, 1, 2)[members.index(member)]
        assert counts == (1, *(len(string.encode()) * (at == place) for place in range(3)))


@pytest.mark.parametrize("name", ["ChatCarrier", "MessagesCarrier"])
def test_the_twins_agree_on_how_deep_is_too_deep(name: str) -> None:
    """At each place where a member may stand that nobody looks at."""
    text, call = '"content":"a"', '"tool_calls":[{"index":0,"function":{"arguments":"a"}}]'
    chat = '{"choices":[{"index":0,"delta":{SAID}}]}'
    events = [chat.replace("SAID", text), chat.replace("SAID", call)]
    if name == "MessagesCarrier":
        events = ['{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}']
    for event in events:
        for at in (found.end() for found in re.finditer("{", event)):
            told = []
            for depth in range(28, 40):
                for bracket in ("[]", '{"x":}'):
                    deep = bracket[:-1] * depth + "1" + bracket[-1] * depth
                    data = [f'data: {event[:at]}"x":{deep},{event[at:]}\n\n'.encode()]
                    told.append(carried(py_carry, name, data))
                    assert carried(c_carry, name, data) == told[-1], (event, at, depth)
            assert [bool(moved) for moved, *_ in told] == [True] * 10 + [False] * 14


@pytest.mark.parametrize(("name", "events"), [("ChatCarrier", chats()), ("MessagesCarrier", messages())])
def test_of_these_streams_many_are_moved(name: str, events: st.SearchStrategy[str]) -> None:
    """A guard of the tests above: they would agree as well if nothing were ever moved, or all of it."""
    counts = {"moved": 0, "handed out": 0}

    @settings(deadline=None, max_examples=200, derandomize=True, database=None)
    @given(data=events)
    def run(data: str) -> None:
        moved, *_ = carried(py_carry, name, [f"data: {data}\n\n".encode()])
        counts["moved" if moved else "handed out"] += 1

    run()
    assert min(counts.values()) > 20, counts
