"""`arbiter bench` without its processes: what it takes of a configuration, what it checks, what it says."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from arbiter.cli import CommandError, bench, main
from arbiter.cli.benching import copied, measure, talk
from arbiter.cli.benching.client import Connection
from arbiter.cli.benching.measure import Latency, Load, Result
from arbiter.cli.benching.upstream import Upstream
from arbiter.config.load import parse
from arbiter.config.snapshot import Snapshot

FULL = """\
server: { workers: 3, keepalive: 7s, bind: 0.0.0.0, port: 9999 }
limits: { body: 5MiB, json_depth: 77 }
auth: { mode: require }
clients:
  - { name: ada, key_hash: "sha256:0000000000000000000000000000000000000000000000000000000000000000" }
providers:
  main:
    type: anthropic
    key: SECRET-KEY
    endpoint: https://provider.example/v1
    models: [claude-sonnet-4-5]
    headers: { x-secret: SECRET-HEADER }
  other: { type: openai, keys: [SECRET-A, SECRET-B], models: [gpt-5.2, small] }
aliases: { fast: { pin: other/small } }
sessions: { trust_user_agent: true, titles: { alias: fast } }
session_affinity: { ttl: 5h }
storage:
  url: "postgresql://ada:SECRET-PASSWORD@db.example/arbiter"
  capture: { content: true, headers: true, redact: ["x+"] }
search: { index: true, embed: { alias: fast } }
admin: { token: SECRET-ADMIN-TOKEN-OF-SOME-LENGTH }
telemetry: { log: { level: debug } }
plugins: [{ use: "some.module:Class" }]
"""
SMALL = "providers: { openai: { type: openai, key: SECRET-1, models: [gpt-5.2] } }\n"


def snapshot(text: str = FULL) -> Snapshot:
    return parse(text, "arbiter.yaml", {})


def copy(of: Snapshot, tmp_path: Path) -> dict[str, Any]:
    return copied.configuration(of, port=4321, upstream_port=8765, data=tmp_path)


def test_no_key_is_wanted_of_who_has_an_upstream_of_their_own(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(SMALL.replace("SECRET-1", '"${UNSET_KEY}"'))
    measured: list[Snapshot] = []

    def stops(snapshot: Snapshot, seconds: float) -> Result:
        measured.append(snapshot)
        raise CommandError("enough")

    monkeypatch.setattr(bench, "measure", stops)
    assert main(["bench"]) == 1
    assert measured[0].providers["openai"].accounts[0].key.startswith("withheld")


def test_the_dials_are_taken_over_and_nothing_that_anybody_owns(tmp_path: Path) -> None:
    written = yaml.safe_dump(copy(snapshot(), tmp_path))
    for word in ("SECRET", "example", "claude", "gpt", "ada", "some.module", "titles", "embed", "9999", "0.0.0.0"):
        assert word not in written, word
    used = parse(written, str(tmp_path / "arbiter.yaml"), {})
    assert used.server.workers == 3 and used.server.keepalive_s == 7
    assert (used.server.bind, used.server.port, used.server.socket) == ("127.0.0.1", 4321, None)
    assert used.limits == snapshot().limits and used.auth.mode == "require"
    assert used.storage.capture.content and used.storage.capture.headers and used.storage.capture.redact == ("x+",)
    assert used.search.index and used.search.embed is None and used.sessions.titles is None
    assert used.sessions.trust_user_agent and used.affinity.ttl_s == 5 * 3600
    assert used.telemetry.log_level == "debug" and used.plugins == () and not used.admin.token
    assert used.storage.path == tmp_path / "arbiter.db" and used.state_dir == tmp_path / "state"
    assert [client.name for client in used.clients] == ["bench"]
    assert {provider.url for provider in used.providers.values()} == {"http://127.0.0.1:8765/v1"}
    assert used.warnings == ()


def test_a_gateway_that_keeps_nothing_keeps_nothing_here(tmp_path: Path) -> None:
    small = snapshot(SMALL + "storage: { url: none }\nauth: { mode: none }\n")
    used = parse(yaml.safe_dump(copy(small, tmp_path)), str(tmp_path / "arbiter.yaml"), {})
    assert used.storage.url == "none" and used.clients == () and used.auth.mode == "none"


def test_the_format_is_that_of_the_first_provider(tmp_path: Path) -> None:
    assert copied.is_messages(snapshot()) and not copied.is_messages(snapshot(SMALL))
    assert copy(snapshot(), tmp_path)["providers"]["bench"]["type"] == "anthropic"
    assert copy(snapshot(SMALL), tmp_path)["providers"]["bench"]["type"] == "openai"


def test_what_was_not_measured_is_said() -> None:
    told = " | ".join(copied.left_out(snapshot()))
    assert "plugins (1)" in told and "PostgreSQL" in told and "titles" in told and "vectors" in told
    assert copied.left_out(snapshot(SMALL)) == []


# ------------------------------------------------------------------------------------------------- what is said


@pytest.mark.parametrize("is_messages", [True, False])
def test_the_upstream_says_what_the_client_expects(is_messages: bool) -> None:
    assert (
        talk.fault_of_answer(talk.answer("00000007", is_messages=is_messages), "00000007", is_messages=is_messages)
        is None
    )
    stream = b"".join(talk.events("00000007", 5, is_messages=is_messages))
    assert talk.fault_of_stream(stream, "00000007", 5, is_messages=is_messages) is None


@pytest.mark.parametrize("is_messages", [True, False])
def test_every_fault_of_a_stream_is_seen(is_messages: bool) -> None:
    events = talk.events("00000007", 5, is_messages=is_messages)
    first = 2 if is_messages else 1

    def fault(changed: list[bytes]) -> str | None:
        return talk.fault_of_stream(b"".join(changed), "00000007", 5, is_messages=is_messages)

    swapped = [*events[:first], events[first + 1], events[first], *events[first + 2 :]]
    others = talk.events("00000008", 5, is_messages=is_messages)
    assert fault(swapped) == "5 of 5 events, or not in order"
    assert fault(events[: first + 2] + events[first + 3 :]) == "4 of 5 events, or not in order"
    assert fault([*events[: first + 1], *events[first:]]) == "6 of 5 events, or not in order"
    assert fault([*events[:first], others[first], *events[first + 1 :]]) == "another request's events"
    assert fault(events[:-1]) == "no proper end"
    for body in (b"", b"{}", b"[]", b'{"content":[],"choices":[]}', talk.answer("00000008", is_messages=is_messages)):
        assert talk.fault_of_answer(body, "00000007", is_messages=is_messages)


@pytest.mark.parametrize("is_messages", [True, False])
@pytest.mark.parametrize(("streams", "is_paced"), [(False, False), (True, False), (True, True)])
def test_the_upstream_reads_what_the_client_asks(is_messages: bool, streams: bool, is_paced: bool) -> None:
    whole = talk.request("00000042", is_messages=is_messages, streams=streams, is_paced=is_paced)
    head, _, body = whole.partition(b"\r\n\r\n")
    assert talk.asked(body) == ("00000042", streams, is_paced)
    assert f"content-length: {len(body)}".encode() in head and abs(len(body) - talk.REQUEST_BYTES) < 200


class Wire(asyncio.Transport):
    """Where a protocol writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        pass


@pytest.mark.parametrize("is_messages", [True, False])
@pytest.mark.parametrize("streams", [True, False])
def test_any_cut_of_an_answer_is_read_alike(is_messages: bool, streams: bool) -> None:
    """The upstream's bytes into the client, in two parts, wherever they are cut."""

    async def read(cut: int) -> tuple[str | None, int]:
        client, there = Connection(0, is_messages=is_messages), Wire()
        client.connection_made(Wire())
        assert isinstance(client.transport, Wire)
        asking = asyncio.create_task(client.ask(streams=streams))
        await asyncio.sleep(0)
        upstream = Upstream(0)
        upstream.connection_made(there)
        request = client.transport.written
        upstream.data_received(request[: cut % len(request)])
        upstream.data_received(request[cut % len(request) :])
        client.data_received(there.written[:cut])
        if cut < len(there.written):
            client.data_received(there.written[cut:])
        answer = await asyncio.wait_for(asking, 30)
        return answer.fault, len(there.written)

    async def all_cuts() -> set[str | None]:
        _, size = await read(1)
        return {(await read(cut))[0] for cut in range(1, size, 7)}

    assert asyncio.run(all_cuts()) == {None}


def test_an_answer_that_breaks_off_and_a_refusal_are_faults() -> None:
    async def read(data: bytes, *, closes: bool = False) -> str | None:
        client = Connection(0, is_messages=False)
        client.connection_made(Wire())
        asking = asyncio.create_task(client.ask())
        await asyncio.sleep(0)
        client.data_received(data)
        if closes:
            client.connection_lost(None)
        return (await asyncio.wait_for(asking, 30)).fault

    refused = b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno"
    assert asyncio.run(read(refused)) == "answered 503: no"
    cut = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nno"
    assert asyncio.run(read(cut, closes=True)) == "the connection was closed before the end"


# -------------------------------------------------------------------------------------------------- what it says


RESULT = Result(
    unary=Latency(0.1, 0.3, 0.5, 1.5),
    first_event=Latency(0.2, 0.4, 0.7, 1.9),
    requests=Load(9000, 3000.0, 250.0, 0),
    events=Load(10_000, 3200.0, 20.0, 0),
    at_rest_bytes=150_000_000,
    at_most_bytes=150_000_000 + 64 * 30 * 1024,
    lost=0,
    complaint=None,
    load_before=0.0,
)


def test_good_figures_are_told_without_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SIDE", "c")
    said = bench.text(snapshot(SMALL), "arbiter.yaml", RESULT)
    lines = said.splitlines()
    assert lines[0].startswith("arbiter.yaml: ") and "keeps rows; OpenAI Chat on both sides" in lines[0]
    assert any(line.split() == ["an", "answer", "of", "1", "KB,", "median", "0.10", "0.50", "0.40"] for line in lines)
    assert any(line.split()[-3:] == ["3,000", "250", "0"] for line in lines)
    assert "150 MB at rest, 152 MB with 64 streams open, 30 KB for each" in said
    assert "One core carries some 4,000 requests a second, or 50,000 events a second: 1,000 streams" in said
    assert "What to do" not in said and "Not measured" not in said


def test_a_narrow_console_has_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a row is called gives way, and no number does."""
    monkeypatch.setenv("COLUMNS", "60")
    lines = bench.text(snapshot(SMALL), "arbiter.yaml", RESULT).splitlines()
    assert any(line.split()[-3:] == ["3,000", "250", "0"] for line in lines)
    assert any(line.split()[-3:] == ["3,200", "20.0", "0"] for line in lines)
    assert any(line.split()[-3:] == ["0.10", "0.50", "0.40"] for line in lines)


def test_bad_figures_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SIDE", "py")
    monkeypatch.setattr(bench, "_cores", lambda: 2)
    bad = replace(RESULT, requests=Load(9, 3.0, 2500.0, 1), lost=1, complaint="answered 500: no", load_before=3.0)
    keeps = snapshot(SMALL + "storage: { capture: { content: true } }\nserver: { workers: 9 }\n")
    told = "\n".join(bench.advice(keeps, bad))
    for word in ("answered 500: no", "ARBITER_PURE", "load 3.0 on 2 cores", "server.workers", "capture.content"):
        assert word in told, word
    assert "debug" not in told and "debug" in "\n".join(bench.advice(snapshot(), bad))
    said = bench.text(snapshot(), "arbiter.yaml", bad)
    assert "keeps rows and content; Anthropic Messages" in said and "Not measured" in said and "What to do" in said


def test_programs_get_every_figure() -> None:
    told = bench.report(snapshot(SMALL), "arbiter.yaml", RESULT, 10)
    assert told["unary"]["added_ms"] == {"p50": 0.4, "p99": 1.2}
    assert told["requests"] == {"connections": 8, "count": 9000, "per_s": 3000.0, "cpu_us": 250.0, "lost": 0}
    assert told["memory"]["per_stream_bytes"] == 30 * 1024 and told["format"] == "chat"


def test_a_gateway_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        child = subprocess.Popen([sys.executable, "-c", "raise SystemExit('no such thing')"], stderr=out)
        with pytest.raises(CommandError, match=r"did not start[^\n]*\nno such thing"):
            measure._until_ready(child, 1, log)
    child.wait()


def test_no_key_of_the_environment_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "HTTPS_PROXY", "ARBITER_ADMIN_TOKEN", "ARBITER_CONFIG", "PORT", "HOST"):
        monkeypatch.setenv(name, "SECRET")
    monkeypatch.setenv("LANG", "C.UTF-8")
    found = measure._environment()
    assert "SECRET" not in found.values() and found["LANG"] == "C.UTF-8"


def test_a_signal_is_heard_whatever_runs_when_it_comes() -> None:
    """What a handler raises in a callback of uvloop's is logged and gone, and the bench would go on."""
    ours, theirs = socket.socketpair()

    class Told(asyncio.Protocol):
        def eof_received(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    async def work() -> Any:
        await asyncio.get_running_loop().create_connection(Told, sock=ours)
        theirs.close()
        async with asyncio.timeout(10):
            await asyncio.Event().wait()

    def stop(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(SystemExit, match="143"):
            measure.stoppable(work())
        assert signal.getsignal(signal.SIGTERM) is stop
    finally:
        signal.signal(signal.SIGTERM, before)
