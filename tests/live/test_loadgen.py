"""The load generator of the benchmarks against its own mock: what it calls good is good, and every fault is told."""

from __future__ import annotations

import socket
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bench import tools

pytestmark = pytest.mark.needs("cargo")

PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/{model}:streamGenerateContent?alt=sse",
}
FORMATS = tuple(PATHS)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with tools.mock() as (port, _):
        yield port


def ask(port: int, form: str, model: str, *options: object, path: str = "") -> dict[str, Any]:
    """A few requests over a few connections, which is enough to have streams side by side."""
    url = f"http://127.0.0.1:{port}{path or PATHS[form]}"
    return tools.load(url, model, "--format", form, "--connections", 4, "--requests", 12, *options, timeout_s=60)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "answer", ["u2000", "s20-0", "s20-1", "s20-0.r5.t5", "s5-0.x3000.b3", "s0-0.t1", "s300-0.x2000"]
)
def test_every_answer_of_the_mock_is_good(port: int, form: str, answer: str) -> None:
    """Nothing that a format may hold is taken for a fault, and every request and event is counted."""
    report = ask(port, form, answer)
    assert report["complaint"] == "" and report["errors"] == 0 and report["errors_by_kind"] == {}
    assert report["requests"] == 12 and report["total_us"]["count"] == 12
    if answer.startswith("s"):
        text = int(answer[1:].partition("-")[0])
        assert report["events"] >= 12 * text
        assert report["gap_us"]["count"] == report["events"] - 12
        for times in ("first_us", "ttft_us", "total_us", "gap_us"):
            spread = [report[times][at] for at in ("p50", "p90", "p99", "p99.9", "max")]
            assert spread == sorted(spread)
        assert report["first_us"]["max"] <= report["total_us"]["max"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "options", [["--messages", 30], ["--tools", 12], ["--body-bytes", 300_000], ["--key", "k", "--header", "x-a: b"]]
)
def test_requests_of_every_shape_are_understood(port: int, form: str, options: list[object]) -> None:
    """The mark is found in long requests and short ones, with tools or without."""
    assert ask(port, form, "s5-0", *options)["complaint"] == ""


# Every check has a fault that only it sees: what the mock does, and what the client must call it. A place that is
# negative counts from the end; in `s9-0` every format has its fifth event within the text.
FAULTS = {
    "status429.retry1": {"status_429"},
    "status529": {"status_529"},
    "s9-0.cut5": {"cut"},
    "s9-0.cut0": {"cut"},
    "s9-0.noend": {"cut"},
    "s9-0.junk5": {"garbled"},
    "s9-0.mix5": {"mixed"},
    "s9-0.error5": {"error_event"},
    "s9-0.twice5": {"order"},
    "s9-0.swap5": {"order"},
    "s9-0.skip5": {"order"},
    "s9-0.twice-1": {"trailing"},
    "s9-0.tail": {"trailing"},
    "s9-0.usage": {"usage"},
    "s9-0.skip-1": {"terminal"},
    "u900.cut0": {"cut"},
    "u900.junk0": {"garbled"},
    "u900.mix0": {"mixed"},
    "u900.usage": {"usage"},
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_by_its_kind(port: int, form: str, fault: str) -> None:
    """Each answer is wrong in one way; each is told, and as that."""
    report = ask(port, form, fault)
    assert set(report["errors_by_kind"]) == FAULTS[fault]
    assert report["errors"] == report["requests"] == 12
    assert report["complaint"].startswith(next(iter(FAULTS[fault])))
    assert report["total_us"]["count"] == 0  # a fault's time is nobody's latency


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_of_another_length_is_told(port: int, form: str) -> None:
    """Fewer events than were asked for, and more."""
    assert set(ask(port, form, "s9-0", "--answer", "s10-0")["errors_by_kind"]) == {"count"}
    # One that is too many is seen at once: it stands where the end should.
    assert ask(port, form, "s9-0", "--answer", "s8-0")["errors"] == 12


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("fault", ["s9-0.stall5", "u900.stall0", "s9-0.head60000", "s9-0.delay60000"])
def test_silence_is_given_up_on(port: int, form: str, fault: str) -> None:
    """What never comes ends the request after the time it was given."""
    report = ask(port, form, fault, "--timeout", 0.2, "--requests", 4)
    assert report["errors_by_kind"] == {"stalled": 4}


def test_only_every_nth_request_is_struck(port: int) -> None:
    """A share of faults is exact, and the connection serves on."""
    report = ask(port, "chat", "s9-0.status503.every4", "--connections", 1)
    assert report["errors_by_kind"] == {"status_503": 3} and report["requests"] == 12
    assert report["total_us"]["count"] == 9


def test_late_heads_and_late_events_are_timed(port: int) -> None:
    """Times begin at the request: a head that comes late delays everything, and each event is due after the last."""
    report = ask(port, "chat", "s5-30.head100.delay50")
    assert report["complaint"] == ""
    assert report["first_us"]["p50"] >= 149_000 <= report["ttft_us"]["p50"]
    assert report["total_us"]["p50"] >= 149_000 + 8 * 30_000


@pytest.mark.parametrize(
    "path", ["/u700/v1/chat/completions", "/s7-0/v1/chat/completions", "/s7-1.r2/x/v1/chat/completions"]
)
def test_the_path_says_what_to_answer(port: int, path: str) -> None:
    """A proxy that rewrites the model's name still gets the answer that was meant."""
    assert ask(port, "chat", "some-model", path=path)["complaint"] == ""
    assert ask(port, "chat", "s3-0.t1", path=path)["complaint"] == ""  # the path goes before the name


def test_a_server_that_is_none_is_told() -> None:
    """Nobody there; somebody there who speaks something else."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = closed.getsockname()[1]
        assert ask(nowhere, "chat", "u1")["errors_by_kind"] == {"refused": 12}
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(65536)
                    peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        threading.Thread(target=greet, daemon=True).start()
        assert ask(listener.getsockname()[1], "chat", "u1")["errors_by_kind"] == {"garbled": 12}
        listener.shutdown(socket.SHUT_RDWR)


def test_an_open_loop_keeps_to_its_schedule_and_counts_what_waited(port: int) -> None:
    """Ten requests a second, one connection, half a second an answer: the times are those of the ones who had to wait.

    A closed loop sees half a second each, since it asks only once it has its answer. That is coordinated omission.
    """
    options = ["--connections", 1, "--requests", 10]
    closed = ask(port, "chat", "u100.head500", *options, "--duration", 60)
    assert closed["complaint"] == "" and closed["rate"] is None
    assert closed["total_us"]["p50"] >= 500_000 and closed["late_us"]["count"] == 0
    opened = ask(port, "chat", "u100.head500", *options, "--rate", 10)
    assert opened["complaint"] == "" and opened["rate"] == 10 and opened["requests"] == 10
    # The last was due 0.9 s after the first, and had nine answers of 0.5 s before it.
    assert opened["total_us"]["max"] >= 10 * 500_000 - 900_000 - 10_000
    assert opened["late_us"]["max"] >= 9 * 500_000 - 900_000 - 10_000 and opened["waiting_max"] >= 3


def test_a_server_that_stands_still_is_seen_by_everybody_who_comes_meanwhile(port: int) -> None:
    """Fifty a second for 0.78 s on one connection, and the 20th of 39 answers takes a second.

    Who was due while it did has waited from then on, in every time that is told: half of all, and not one in 39.
    """
    options = ["--connections", 1, "--requests", 39]
    report = ask(port, "chat", "s1-0.head1000.every20", *options, "--rate", 50)
    assert report["complaint"] == "" and report["requests"] == 39
    # The last is due at 0.76 s, and nobody was served between 0.38 s and 1.38 s.
    for times in ("first_us", "ttft_us", "total_us"):
        assert report[times]["p50"] >= 619_000, times
    assert report["late_us"]["p90"] >= 619_000


def test_an_open_loop_with_connections_to_spare_lets_nobody_wait(port: int) -> None:
    """As many connections as are needed, and no more."""
    report = ask(port, "chat", "u100.head100", "--rate", 50, "--arrivals", "poisson", "--connections", 64)
    assert report["complaint"] == "" and report["requests"] == 12 and report["waiting_max"] == 0
    assert report["connects"] <= 12


def test_a_duration_ends_a_run_and_every_answer_is_still_read(port: int) -> None:
    """Requests that began within the time are read to their end."""
    url = f"http://127.0.0.1:{port}{PATHS['chat']}"
    report = tools.load(url, "s3-50", "--connections", 3, "--duration", 0.4)
    assert report["complaint"] == "" and report["requests"] >= 3
    assert report["requests"] * 7 == report["events"] and report["seconds"] >= 0.4


def test_a_limit_ends_what_is_not_over(port: int) -> None:
    """A stream that goes on is told as not over, one that was over is good, and nothing begins any more."""
    url = f"http://127.0.0.1:{port}{PATHS['chat']}"
    options = ["--connections", 2, "--requests", 50, "--limit", 1.5]
    report = tools.load(url, "s60000-50", *options, timeout_s=20)
    assert report["errors_by_kind"] == {"stalled": 2} and report["requests"] == 2 and report["events"] > 2
    assert tools.load(url, "s3-0", *options, timeout_s=20)["errors"] == 0


def test_real_answers_are_checked_by_their_form(port: int) -> None:
    """Against a model whose words nobody knows: a good stream passes, a cut one does not."""
    assert ask(port, "messages", "s9-0", "--answer", "any-stream")["complaint"] == ""
    assert set(ask(port, "messages", "s9-0.skip-1", "--answer", "any-stream")["errors_by_kind"]) == {"terminal"}
    assert ask(port, "responses", "u900", "--answer", "any")["complaint"] == ""


def test_the_guide_has_the_words_that_the_mock_knows() -> None:
    """bench/README.md shows what `arbiter-loadgen scripts` prints."""
    said = subprocess.run([tools.loadgen(), "scripts"], check=True, capture_output=True, text=True, timeout=10).stdout
    assert textwrap.indent(said, "    ") in tools.SOURCE.with_name("README.md").read_text("utf-8")


def test_the_command_line_is_told_what_is_wrong_with_it() -> None:
    """A mistake ends with 2 and a sentence, before anything is sent."""
    with pytest.raises(RuntimeError, match="there is no TLS here"):
        tools.load("https://127.0.0.1:1/", "m", "--requests", 1)
    with pytest.raises(RuntimeError, match="no option --rat"):
        tools.load("http://127.0.0.1:1/", "m", "--requests", 1, "--rat", 5)
