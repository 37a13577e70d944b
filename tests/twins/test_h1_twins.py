"""The HTTP/1.1 response reader, both sides, against h11 as the oracle.

What h11 accepts we accept with the same reading, and what it refuses we refuse; the places where we are stricter on
purpose are listed in `STRICTER`, with their reasons, and nowhere else.
"""

from __future__ import annotations

import itertools
import re
from types import ModuleType

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arbiter._speedups.c import h1 as c_h1
from arbiter._speedups.py import h1 as py_h1

SIDES = [pytest.param(py_h1, id="py"), pytest.param(c_h1, id="c")]


@pytest.fixture(params=[py_h1, c_h1], ids=["py", "c"])
def h1(request: pytest.FixtureRequest) -> ModuleType:
    side: ModuleType = request.param
    return side


Reading = tuple[int, int, list[tuple[str, str]], bytes, bool, bool, bool]


def read(h1: ModuleType, pieces: list[bytes], *, bodyless: bool = False, eof: bool = True) -> Reading:
    """(state, status, headers, body, keep_alive, eof_delimited, complete before the end of the connection)."""
    core = h1.H1Core()
    core.begin(bodyless)
    body = b"".join(core.feed(piece) for piece in pieces)
    early, keep = core.state == h1.DONE, core.keep_alive
    if eof:
        core.eof()
    if core.state == h1.FAILED:
        assert core.fault
    return core.state, core.status, core.headers, body, keep, core.eof_delimited, early


def cuts(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def oracle(data: bytes, *, method: str = "GET") -> tuple[int, list[tuple[str, str]], bytes, bool] | None:
    """What h11 reads: (status, headers, body, trailing bytes), None where it refuses."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    status, headers, body = 0, [], b""
    try:
        connection.receive_data(data)
        connection.receive_data(b"")
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
                headers = [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, headers, body, bool(connection.trailing_data[0])
            elif event is h11.NEED_DATA or event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return None
    except h11.RemoteProtocolError:
        return None


HEAD = rb"(?:^|\n\r?\n)HTTP/"
STRICTER: dict[str, re.Pattern[bytes]] = {
    # RFC 9112 5.2: obsolete; two parsers in a row rarely fold alike.
    "a folded header line": re.compile(rb"\n[ \t]"),
    # RFC 9112 6.3 lets a recipient repair equal lengths. Nobody honest sends two.
    "more than one Content-Length": re.compile(rb"(?is)(content-length\s*:.*){2}"),
    "a list as Content-Length": re.compile(rb"(?i)content-length:[^\n]*,"),
    # Past 10**18 or 2**60 it is no length; both twins count in 63 bits.
    "a length of more than 18 digits": re.compile(rb"(?i)content-length:[ \t]*[0-9]{19}"),
    "a chunk size of more than 15 digits": re.compile(rb"[0-9A-Fa-f]{16}"),
    "NUL or a bare CR in a chunk extension": re.compile(rb";[^\n]*[\x00\r][^\n]"),
    # We speak HTTP/1.x and nothing else.
    "another major version": re.compile(rb"HTTP/[02-9]"),
    # Framing fields among the trailers belong to no message.
    "framing fields in trailers": re.compile(rb"(?i)\r\n0+[ \t;\r].*(content-length|transfer-encoding)", re.S),
    # The interim answer's own framing fields must be sane too, but h11 also refuses some of the sane ones.
    "a chunk size line over 4 KiB": re.compile(rb"[0-9A-Fa-f];[^\n]{4000}"),
}


# ------------------------------------------------------------------------------------------------ examples

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

WHOLE = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello", b"hello", True),
    "empty": (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"", True),
    "no reason": (b"HTTP/1.1 404\r\ncontent-length: 2\r\n\r\nno", b"no", True),
    "chunked": (CHUNKED.replace(b"t", b"T") + b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", b"hello!", True),
    "extensions": (CHUNKED + b'2;a="b;c"  \r\nhi\r\n00;x\r\n\r\n', b"hi", True),
    "trailers": (CHUNKED + b"2\r\nhi\r\n0\r\nA: b\r\nC: d\r\n\r\n", b"hi", True),
    "interim": (b"HTTP/1.1 103\r\na:\r\n\r\nHTTP/1.1 100\r\n\r\nHTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", b"", True),
    "bare LF": (b"HTTP/1.1 200 OK\ncontent-length: 3\n\nabc", b"abc", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "304": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\n\r\n", b"", True),
    "close": (b"HTTP/1.1 200 OK\r\nConnection: foo , Close\r\ncontent-length: 1\r\n\r\nx", b"x", False),
    "http/1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", b"x", False),
    "both framings": (CHUNKED[:-2] + b"content-length: 9\r\n\r\n1\r\nx\r\n0\r\n\r\n", b"x", False),
    "to the end": (b"HTTP/1.1 200 OK\r\n\r\nanything", b"anything", False),
    "latin-1": (b"HTTP/1.1 200 \xe9\r\nx: \xe9t\xe9 \t\r\ncontent-length: 1\r\n\r\nx", b"x", True),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_proper_answers_are_read_whatever_the_cut(h1: ModuleType, name: str) -> None:
    """Whole, at every single cut, and byte by byte: one status, one set of headers, one body, one end."""
    data, body, keep = WHOLE[name]
    whole = read(h1, [data])
    assert whole[0] == h1.DONE
    assert whole[3:5] == (body, keep)
    for cut in range(len(data) + 1):
        assert read(h1, [data[:cut], data[cut:]]) == whole
    assert read(h1, [data[i : i + 1] for i in range(len(data))]) == whole
    expected = oracle(data)
    assert expected is not None
    assert (whole[1], whole[2], whole[3], False) == expected


@pytest.mark.parametrize("name", WHOLE)
def test_a_truncated_answer_is_never_complete(h1: ModuleType, name: str) -> None:
    """Only a body that nothing but the end delimits can be cut without our seeing it."""
    data, _, _ = WHOLE[name]
    head = data.find(b"\r\n\r\n") + 4
    for cut in range(len(data)):
        state, *_, eof_delimited, early = read(h1, [data[:cut]])
        if name == "to the end" and cut >= head:
            assert state == h1.DONE and eof_delimited and not early
        else:
            assert state == h1.FAILED, data[:cut]


BROKEN = {
    "folded": b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
    "the same length twice": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nContent-Length: 1\r\n\r\nx",
    "a list of lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1, 1\r\n\r\nx",
    "signed length": b"HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\nx",
    "negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nx",
    "hex length": b"HTTP/1.1 200 OK\r\ncontent-length: 0x1\r\n\r\nx",
    "empty length": b"HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\nx",
    "spaced length": b"HTTP/1.1 200 OK\r\ncontent-length: 1 1\r\n\r\nx",
    "huge length": b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999999999999\r\n\r\nx",
    "foreign digits": "HTTP/1.1 200 OK\r\ncontent-length: ٣\r\n\r\nxxx".encode(),
    "unknown coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
    "coding on top": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and identity": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "disguised coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "space before the colon": b"HTTP/1.1 200 OK\r\ncontent-length : 1\r\n\r\nx",
    "no colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "no name": b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
    "NUL in a value": b"HTTP/1.1 200 OK\r\na: b\0c\r\n\r\n",
    "CR in a value": b"HTTP/1.1 200 OK\r\na: b\rc: d\r\n\r\n",
    "two CR": b"HTTP/1.1 200 OK\r\r\na: b\r\n\r\n",
    "blank first line": b"\r\nHTTP/1.1 200 OK\r\n\r\n",
    "not HTTP": b"SSH-2.0-OpenSSH_9\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46",
    "HTTP/2": b"HTTP/2.0 200 OK\r\n\r\n",
    "lower case": b"http/1.1 200 OK\r\n\r\n",
    "two-digit status": b"HTTP/1.1 20 OK\r\n\r\n",
    "status 099": b"HTTP/1.1 099 OK\r\n\r\n",
    "four-digit status": b"HTTP/1.1 2000 OK\r\n\r\n",
    "two spaces": b"HTTP/1.1  200 OK\r\n\r\n",
    "switching": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
    "interim with two lengths": b"HTTP/1.1 100 Continue\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    "empty chunk size": CHUNKED + b"\r\nhi\r\n",
    "no hex": CHUNKED + b"xyz\r\n",
    "0x chunk": CHUNKED + b"0x2\r\nhi\r\n0\r\n\r\n",
    "huge chunk": CHUNKED + b"1000000000000000\r\nhi",
    "size line with LF only": CHUNKED + b"2\nhi\r\n0\r\n\r\n",
    "space before the extension": CHUNKED + b"2 ;x\r\nhi\r\n0\r\n\r\n",
    "CR in an extension": CHUNKED + b"2;a\rb\r\nhi\r\n0\r\n\r\n",
    "long chunk": CHUNKED + b"2\r\nhiX\r\n0\r\n\r\n",
    "chunk ends in LF": CHUNKED + b"2\r\nhi\n0\r\n\r\n",
    "length in trailers": CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
    "coding in trailers": CHUNKED + b"0\r\ntransfer-encoding: chunked\r\n\r\n",
    "garbage in trailers": CHUNKED + b"0\r\nnope\r\n\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_leaves_room_for_two_readings_is_refused(h1: ModuleType, name: str) -> None:
    """At every cut, with the same body before the fault, and never kept."""
    data = BROKEN[name]
    whole = read(h1, [data])
    assert whole[0] == h1.FAILED
    assert not whole[4]
    for cut in range(len(data) + 1):
        again = read(h1, [data[:cut], data[cut:]])
        assert (again[0], again[3]) == (h1.FAILED, whole[3])
    assert oracle(data) is None or any(pattern.search(data) for pattern in STRICTER.values())


def test_an_answer_to_head_has_no_body(h1: ModuleType) -> None:
    """Its headers describe what a GET would bring."""
    for framing in (b"content-length: 5", b"transfer-encoding: chunked", b"x: y"):
        state, _, _, body, keep, _, early = read(h1, [b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n"], bodyless=True)
        assert (state, body, keep, early) == (h1.DONE, b"", True, True)


def test_more_than_the_answer_ends_the_connection(h1: ModuleType) -> None:
    """A second, unasked answer must never be taken for the answer to the next request."""
    for data in (WHOLE["length"][0], WHOLE["chunked"][0], WHOLE["204"][0]):
        for pieces in ([data + b"H"], [data, b"HTTP/1.1 200 OK\r\n"]):
            state, *_, keep, _, early = read(h1, pieces)
            assert (state, keep, early) == (h1.DONE, False, True)


def test_a_204_that_announces_a_body_is_not_kept(h1: ModuleType) -> None:
    """It may send one."""
    for framing in (b"content-length: 5", b"transfer-encoding: chunked"):
        assert not read(h1, [b"HTTP/1.1 204 No Content\r\n" + framing + b"\r\n\r\n"])[4]


def test_headers_are_bounded_whole_or_in_pieces(h1: ModuleType) -> None:
    """One line, many lines, many interim answers: 256 KiB in all, and the tail never grows past it."""
    start = b"HTTP/1.1 200 OK\r\n"
    room = h1.MAX_HEAD_BYTES - len(start) - 4
    fits = start + b"a:" + b"x" * (room - 2 - 19) + b"\r\ncontent-length: 0\r\n\r\n"
    assert len(fits) == h1.MAX_HEAD_BYTES
    assert read(h1, [fits])[0] == h1.DONE
    assert read(h1, [fits.replace(b"a:", b"a: ")])[0] == h1.FAILED
    for flood in (b"a" * 1000, b"a: b\r\n" * 200):
        core = h1.H1Core()
        core.feed(start)
        fed = 0
        while core.state == h1.HEAD:
            core.feed(flood)
            fed += len(flood)
        assert core.state == h1.FAILED
        assert fed <= h1.MAX_HEAD_BYTES + len(flood)
    interim = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    assert read(h1, [interim * (h1.MAX_HEAD_BYTES // len(interim) + 1)])[0] == h1.FAILED


def test_header_lines_are_bounded_in_number(h1: ModuleType) -> None:
    """Of the head, of interim answers and the head together, of trailers: 256 pass, one more is a fault."""
    many = b"".join(b"quota%d:\n" % n for n in range(h1.MAX_FIELDS))
    start, one = b"HTTP/1.1 204 No Content\r\n", b"a: b\r\n"
    interim = b"HTTP/1.1 103 Early Hints\r\n"
    for before, after, state in (
        (start, b"\r\n", h1.DONE),
        (interim, b"\r\n" + start + b"\r\n", h1.DONE),
        (CHUNKED + b"0\r\n", b"\r\n", h1.DONE),
    ):
        for data, expected in ((before + many + after, state), (before + one + many + after, h1.FAILED)):
            for pieces in ([data], [data[at : at + 100] for at in range(0, len(data), 100)]):
                core = h1.H1Core()
                for piece in pieces:
                    core.feed(piece)
                assert core.state == expected
                assert core.fault == ("" if expected == h1.DONE else "it has more than 256 header lines")
    assert read(h1, [interim + many + b"\r\n" + start + one + b"\r\n"])[0] == h1.FAILED
    core = h1.H1Core()
    for _ in range(2):
        core.begin(False)
        core.feed(start + many + b"\r\n")
        assert (core.state, len(core.headers)) == (h1.DONE, h1.MAX_FIELDS)


def test_chunk_lines_and_trailers_are_bounded(h1: ModuleType) -> None:
    """An extension or a trailer without end is a fault, not a buffer."""
    start = CHUNKED
    for flood, limit in (
        (b"1;" + b"x" * 9999, h1.MAX_SIZE_LINE_BYTES),
        (b"0\r\na:" + b"x" * 19999, h1.MAX_TRAILER_BYTES),
    ):
        for size in (1, 7, len(flood)):
            core = h1.H1Core()
            core.feed(start)
            fed = 0
            while core.state == h1.BODY and fed < len(flood):
                core.feed(flood[fed : fed + size])
                fed += size
            assert core.state == h1.FAILED
            assert fed <= max(limit + 8, size)


def test_several_chunks_of_one_read_come_as_one_bytes(h1: ModuleType) -> None:
    """One read, one `bytes`: that is what goes to the client in one send."""
    core = h1.H1Core()
    core.feed(CHUNKED)
    assert core.feed(b"3\r\nabc\r\n2\r\nde\r\n1\r\nf") == b"abcdef"
    assert core.feed(b"\r\n") == b""


def test_only_the_first_bytes_of_the_buffer_count(h1: ModuleType) -> None:
    """The arena is larger than a read and holds an older read's bytes."""
    arena = bytearray(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcdef")
    core = h1.H1Core()
    assert core.feed(memoryview(arena), len(arena) - 3) == b"abc"
    assert core.state == h1.DONE and core.keep_alive


def test_what_was_read_does_not_change_with_the_buffer(h1: ModuleType) -> None:
    """The next read overwrites the arena while the last one's bytes are still on their way."""
    arena = bytearray(b"HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 9\r\n\r\nabc")
    core = h1.H1Core()
    body = core.feed(arena)
    cut = core.feed(b"def", 3)
    arena[:] = b"z" * len(arena)
    assert (body, cut, core.headers) == (b"abc", b"def", [("x", "y"), ("content-length", "9")])


def test_a_reader_is_new_after_begin(h1: ModuleType) -> None:
    """Nothing of one answer shows in the next, whatever state the last one ended in."""
    core = h1.H1Core()
    for data in (b"HTTP/1.1 200 OK\r\na: b\r\ncont", WHOLE["chunked"][0][:70], BROKEN["not HTTP"], WHOLE["close"][0]):
        core.begin(False)
        core.feed(data)
        core.begin(False)
        assert core.feed(WHOLE["length"][0]) == b"hello"
        assert (core.state, core.received) == (h1.DONE, len(WHOLE["length"][0]))
        assert core.headers == [("content-length", "5"), ("x", "y")] and core.keep_alive


def test_encodings_of_the_answer_are_named_and_no_others(h1: ModuleType) -> None:
    """Several lines are one list; an interim answer's, and the last answer's, do not count."""
    core = h1.H1Core()
    core.feed(b"HTTP/1.1 103\r\ncontent-encoding: x\r\nconnection: close\r\n\r\n")
    core.feed(b"HTTP/1.1 200\r\nContent-Encoding: gzip \r\ncontent-encoding:br\r\ncontent-length: 0\r\n\r\n")
    assert (core.state, core.encoding, core.keep_alive) == (h1.DONE, "gzip,br", True)
    core.begin(False)
    core.feed(WHOLE["length"][0])
    assert core.encoding == ""


# ------------------------------------------------------------------------------------------------ properties

TOKEN = st.text("abcXYZ019-_!~", min_size=1, max_size=12).map(str.encode)
VALUE = st.binary(max_size=20).map(lambda raw: re.sub(rb"[\x00\n\x0b\x0c\r]", b"", raw))
FIELD = st.tuples(TOKEN, st.sampled_from([b":", b": ", b":\t "]), VALUE, st.sampled_from([b"\r\n", b"\n", b" \r\n"]))
FRAMING = st.sampled_from(
    [
        b"content-length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"",
        b"connection: close\r\n",
        b"content-length: 0\r\n",
    ]
)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Mostly proper answers, with the odd thing wrong."""
    head = b"HTTP/1.%d %d%s\r\n" % (
        draw(st.integers(0, 1)),
        draw(st.sampled_from([200, 204, 304, 404, 500, 100, 103, 101, 999])),
        draw(st.sampled_from([b"", b" ", b" OK", b" \xff"])),
    )
    fields = [b"".join(field) for field in draw(st.lists(FIELD, max_size=3))]
    fields.insert(draw(st.integers(0, len(fields))), draw(FRAMING))
    chunks = b"".join(
        b"%x%s\r\n%s\r\n" % (len(data), draw(st.sampled_from([b"", b";a=b", b" "])), data)
        for data in draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
    )
    body = draw(st.sampled_from([b"hello", chunks + b"0\r\n\r\n", chunks + b"0\r\nt: x\r\n\r\n", b"", chunks]))
    return head + b"".join(fields) + b"\r\n" + body + draw(st.sampled_from([b"", b"", b"x"]))


DAMAGE = st.sampled_from([b"", b"\r", b"\n", b"\0", b" ", b"0", b";", b"\r\n", b":", b"content-length: 5\r\n", b"\xff"])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(answers()))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 2))] = draw(
            st.sampled_from(
                [b"", b"\r", b"\n", b"\0", b" ", b"0", b";", b"\r\n", b":", b"content-length: 5\r\n", b"\xff"]
            )
        )
    return bytes(data)


@given(damaged(), st.sampled_from(["GET", "HEAD"]))
@example(CHUNKED + b"0\r\n\n", "GET")
def test_the_oracle_reads_the_same(data: bytes, method: str) -> None:
    """Accepted with the same reading, or refused by both, but for the listed strictness."""
    expected = oracle(data, method=method)
    for side in (py_h1, c_h1):
        state, status, headers, body, *_ = read(side, [data], bodyless=method == "HEAD")
        if expected is None:
            assert state == side.FAILED, f"{side.__name__} accepted what h11 refuses"
        elif state == side.DONE:
            assert (status, headers, body) == expected[:3]
        else:
            assert any(pattern.search(data) for pattern in STRICTER.values()), f"{side.__name__} refused {data!r}"


@given(damaged(), st.lists(st.integers(0, 1 << 16), max_size=6), st.booleans(), st.booleans())
def test_any_cut_gives_the_same_result(data: bytes, places: list[int], bodyless: bool, eof: bool) -> None:
    """However the network slices the bytes."""
    for side in (py_h1, c_h1):
        whole = read(side, [data], bodyless=bodyless, eof=eof)
        cut = read(side, cuts(data, places), bodyless=bodyless, eof=eof)
        if whole[0] == side.FAILED:
            # Where exactly in a head the fault is noticed may differ; that it is, and what came before, may not.
            assert (cut[0], cut[3]) == (whole[0], whole[3])
        else:
            assert cut == whole


SEEN = ("state", "status", "minor", "headers", "length", "received", "answered", "encoding", "keep_alive", "fault")


@given(st.one_of(damaged(), st.binary(max_size=300)), st.lists(st.integers(0, 1 << 16), max_size=6), st.booleans())
def test_the_twins_agree_on_everything(data: bytes, places: list[int], bodyless: bool) -> None:
    """After every read: the same bytes, the same state, the same words."""
    one, two = py_h1.H1Core(), c_h1.H1Core()
    one.begin(bodyless)
    two.begin(bodyless)
    for piece in [*cuts(data, places), None]:
        if piece is None:
            assert one.eof() == two.eof()
        else:
            assert one.feed(piece) == two.feed(piece)
        for name in (
            "state",
            "status",
            "minor",
            "headers",
            "length",
            "received",
            "keep_alive",
            "eof_delimited",
            "fault",
        ):
            assert getattr(one, name) == getattr(two, name), name
        assert one.eof_delimited == two.eof_delimited


@pytest.mark.parametrize(
    ("items", "fields"),
    [
        ([], {}),
        ([("a", "1"), ("b", "2")], {"a": "1", "b": "2"}),
        ([("a", "1"), ("b", "2"), ("a", "3"), ("a", "1")], {"a": "1, 3, 1", "b": "2"}),
        (2 * [("a", "")], {"a": ", "}),
        ([("\xe4", "\u20ac"), ("\xe4", "x")], {"\xe4": "\u20ac, x"}),
    ],
)
def test_repeated_fields_are_joined(h1: ModuleType, items: list[tuple[str, str]], fields: dict[str, str]) -> None:
    size = sum(len(name) + len(value) + 4 for name, value in items)
    assert h1.fields(items) == h1.fields(iter(items)) == (fields, size)
    assert list(h1.fields(items)[0]) == list(fields)


@pytest.mark.parametrize("items", [[("a", None)], [(None, "a")], [("a",)], [("a", "b", "c")], [1]])
def test_what_is_no_field_is_an_error(h1: ModuleType, items: list[object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        h1.fields(items)


def test_fields_are_chosen_by_what_was_decided_of_their_names(h1: ModuleType) -> None:
    """In the order in which they came, the very pairs; who decides is asked of what is not known, each time."""
    asked: list[str] = []

    def decide(name: str) -> bool:
        asked.append(name)
        return name.startswith("x-")

    pairs = [("a", "1"), ("x-b", "22"), ("c", ""), ("x-b", "3"), ("x-d", "\u20ac"), ("a", "4")]
    found, size = h1.chosen(iter(pairs), {"a": True, "c": False}, decide)
    assert found == [pairs[0], pairs[1], pairs[3], pairs[4], pairs[5]] and found[1] is pairs[1]
    assert size == sum(len(name) + len(value) + 4 for name, value in found)
    assert asked == ["x-b", "x-b", "x-d"]
    assert h1.chosen((), {}, decide) == ([], 0)


@pytest.mark.parametrize("pair", [("a",), ("a", "b", "c"), 1, None])
def test_what_is_no_field_is_not_chosen_from(h1: ModuleType, pair: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        h1.chosen([pair], {"a": True}, bool)


def test_a_field_is_not_chosen_where_that_cannot_be_decided(h1: ModuleType) -> None:
    def decide(name: str) -> bool:
        raise KeyError(name)

    with pytest.raises(KeyError):
        h1.chosen([("a", "1")], {}, decide)


def test_a_name_is_itself_however_many_were_met_before(h1: ModuleType) -> None:
    """Names are kept for the next answer, and one takes the place of another."""
    names = [f"X-{n % 97:x}-{'y' * (n % 13)}-{n:x}" for n in range(3000)]
    for start in [*range(0, len(names), 200), *range(0, len(names), 200)]:
        some = names[start : start + 200]
        head = "HTTP/1.1 204 No Content\r\n" + "".join(f"{name}: {name}\r\n" for name in some) + "\r\n"
        assert read(h1, [head.encode()])[2] == [(name.lower(), name) for name in some]
