"""What is held of answers on their way to their clients, one by one and all together."""

from __future__ import annotations

import pytest

from arbiter.attempt import client_end
from arbiter.attempt.client_end import PIECE_BYTES, Overheard, Room
from arbiter.wire.headers import Pairs


class End:
    """A client's end that takes whatever comes."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def reply(self, status: int, headers: Pairs, body: bytes) -> None:
        self.sent.append(body)

    def start(self, status: int, headers: Pairs, keepalive: bytes) -> None:
        pass

    def send(self, data: bytes) -> None:
        self.sent.append(data)


def overheard(room: Room | None) -> tuple[End, Overheard]:
    end = End()
    return end, Overheard(end, room)  # type: ignore[arg-type]


def test_the_pieces_are_the_very_bytes_that_the_client_is_sent():
    end, one = overheard(Room())
    sent = [b"data: %d\n\n" % number for number in range(3)]
    one.start(200, [("a", "b")], b"")
    for piece in sent:
        one.send(piece)
    assert end.sent == sent and all(held is piece for held, piece in zip(one.pieces, sent, strict=True))
    assert (one.headers, one.is_stream, one.left_out) == ([("a", "b")], True, 0)


def test_without_content_nothing_is_held():
    end, one = overheard(None)
    one.send(b"x" * 1000)
    assert end.sent == [b"x" * 1000] and (one.pieces, one.held_bytes, one.left_out) == ([], 0, 0)
    one.let_go()


def test_what_does_not_fit_ends_what_is_held_of_an_answer_and_reaches_its_client(monkeypatch):
    """What came later might fit again; behind a hole it would be another answer."""
    monkeypatch.setattr(client_end, "KEPT_BYTES", 100 + 2 * PIECE_BYTES)
    end, one = overheard(Room())
    for size in (60, 41, 1):
        one.send(b"x" * size)
    assert [len(piece) for piece in end.sent] == [60, 41, 1]
    assert [len(piece) for piece in one.pieces] == [60] and one.left_out == 42


def test_a_whole_answer_is_held_whole_or_not_at_all():
    end, one = overheard(Room(100))
    one.reply(200, [], b"x" * 101)
    assert end.sent == [b"x" * 101] and (one.pieces, one.left_out) == ([], 101)


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_all_answers_of_a_worker_share_one_room(size):
    """Many streams at once, in pieces of any length: memory is what is bounded, and not bytes of text."""
    limit = 100_000
    room = Room(limit)
    under_way = [overheard(room) for _ in range(50)]
    rounds = 2 * limit // size // len(under_way) + 1
    for _ in range(rounds):
        for _, one in under_way:
            one.send(b"x" * size)
    held = sum(len(piece) + PIECE_BYTES for _, one in under_way for piece in one.pieces)
    assert limit - size - PIECE_BYTES < held <= limit
    assert all(len(end.sent) == rounds for end, _ in under_way)
    assert all(size * len(one.pieces) + one.left_out == size * rounds for _, one in under_way)


def test_what_an_answer_held_is_there_for_the_next_one():
    room = Room(100 + PIECE_BYTES)
    for _ in range(3):
        _, one = overheard(room)
        one.send(b"x" * 100)
        assert one.left_out == 0
        one.let_go()
        one.let_go()  # twice gives no more back than it had
    _, one = overheard(room)
    one.send(b"x" * 101)
    assert one.left_out == 101
