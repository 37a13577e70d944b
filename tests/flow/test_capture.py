"""Content capture through whole gateways: what is kept, what never is, and that no request pays for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
import zstandard

from tests.fakes.client import Ending, ask, run
from tests.fakes.gateway import ADMIN, until
from tests.fakes.origin import LAST_CHUNK, Origin, Peer, Request, chunk
from tests.fakes.wires import CHAT, JSON, MESSAGES, UPSTREAM_KEY, WIRES, Front, Wire, sse, sse_head

KEY = "sk-ant-api03-Zm9vYmFyYmF6cXV4MDEyMzQ1Njc4OQ"
CARD = "4111-1111-1111-1111"


def storage(folder: Path, **capture: Any) -> dict[str, Any]:
    return {"url": f"sqlite:///{folder / 'data' / 'arbiter.db'}", "capture": capture}


def whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n%s: %s\r\ncontent-length: %d\r\n\r\n%s" % (
        JSON[0].encode(),
        JSON[1].encode(),
        len(body),
        body,
    )


def rows(gateway: Front, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{gateway.database}?mode=ro", uri=True)) as db:
        return db.execute(sql).fetchall()


def captured(gateway: Front, requests: int) -> None:
    """Wait until so many requests are in the tables of content."""
    gateway.until_settled(1)  # the first row is behind the tables
    sql = "SELECT COUNT(DISTINCT request_id) FROM request_blocks"
    until(lambda: rows(gateway, sql)[0][0] >= requests, "the content in the store")


def conversation(gateway: Front, trace_id: str | None) -> list[tuple[str, str, Any]]:
    """What is kept of one request: (direction, kind, value)."""
    found = rows(
        gateway,
        "SELECT u.direction, u.kind, b.text FROM request_blocks u JOIN blocks b ON b.id = u.block"
        f" JOIN requests r ON r.id = u.request_id WHERE r.trace_id = '{trace_id}' ORDER BY u.direction, u.position",
    )
    plain = zstandard.ZstdDecompressor().decompress
    return [(direction, kind, json.loads(plain(text))) for direction, kind, text in found]


def on_disk(gateway: Front) -> bytes:
    """All that the gateway wrote anywhere below its data directory, and compressed content in plain."""
    files = [path.read_bytes() for path in gateway.data.rglob("*") if path.is_file()]
    plain = zstandard.ZstdDecompressor().decompress
    files += [plain(text) for (text,) in rows(gateway, "SELECT text FROM blocks")]
    return b"\n".join([*files, gateway.log.encode()])


@pytest.mark.parametrize("wire", WIRES, ids=str)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_conversation_is_kept_as_the_client_saw_it(tmp_path: Path, wire: Wire, stream: bool) -> None:
    """In the client's own format, also where it is translated on its way to the provider and back."""
    other = MESSAGES if wire is CHAT else CHAT
    with Front(tmp_path, storage=storage(tmp_path, content=True)) as gateway:
        traces = []

        async def main() -> None:
            for upstream in (wire, other):
                play = sse(*upstream.events("hel", "lo")) if stream else whole(upstream.answer("hello"))
                async with Origin(play, port=gateway.upstream):
                    body = {**wire.ask("what is it?", stream=stream), "model": upstream.model}
                    answer = await ask(gateway.port, wire.path, body)
                    assert answer.status == 200
                    traces.append(answer.trace_id)

        run(main)
        captured(gateway, 2)
        for trace_id in traces:
            gateway.row(trace_id)
            (_, kind, asked), (_, rest, parameters), (direction, _, said) = conversation(gateway, trace_id)
            assert (kind, rest, direction) == ("message", "parameters", "out")
            assert asked == {"role": "user", "content": "what is it?"}
            assert parameters.get("stream", False) is stream and not {"messages", "input"} & set(parameters)
            assert said["role"] == "assistant"
            text = said["content"] if wire is CHAT else said["content"][0]["text"]
            assert text == "hello"


def test_by_default_nothing_of_it_is_stored_anywhere(tmp_path: Path) -> None:
    """No table row, no file of its own, and not a word of it in any file."""
    with Front(tmp_path) as gateway:

        async def main() -> None:
            async with Origin(sse(*CHAT.events("an answer of distinction")), port=gateway.upstream):
                answer = await ask(gateway.port, CHAT.path, CHAT.ask("a question of distinction", stream=True))
                assert CHAT.text(answer.body) == "an answer of distinction"

        run(main)
        gateway.until_settled(1)
        assert not (gateway.data / "state" / "capture").exists()
        for table in ("blocks", "request_blocks", "request_headers"):
            assert rows(gateway, f"SELECT COUNT(*) FROM {table}") == [(0,)]
        kept = on_disk(gateway)
    kept += on_disk(gateway)
    assert b"chat-model" in kept and b"of distinction" not in kept


def test_ten_turns_of_a_conversation_store_each_message_once(tmp_path: Path) -> None:
    """With the cache marks moved in every turn, as Claude Code moves them."""
    with Front(tmp_path, gateway={"workers": 2}, storage=storage(tmp_path, content=True)) as gateway:

        async def main() -> None:
            mark = {"cache_control": {"type": "ephemeral"}}
            messages: list[dict[str, Any]] = []
            async with Origin(whole(MESSAGES.answer("go on")), port=gateway.upstream):
                for turn in range(10):
                    text = {"type": "text", "text": f"turn {turn}: " + "word " * 200}
                    messages.append({"role": "user", "content": [text]})
                    marked = [*messages[:-1], {"role": "user", "content": [{**text, **mark}]}]
                    body = {**MESSAGES.ask(), "system": [{"type": "text", "text": "be brief", **mark}]}
                    assert (await ask(gateway.port, MESSAGES.path, {**body, "messages": marked})).status == 200
                    messages.append({"role": "assistant", "content": [{"type": "text", "text": f"answer {turn}"}]})

        run(main)
        captured(gateway, 10)
        until(lambda: rows(gateway, "SELECT COUNT(*) FROM request_blocks")[0][0] == 100 + 30, "all references")
        found = dict(rows(gateway, "SELECT kind, COUNT(*) FROM blocks GROUP BY 1"))
        assert found == {"message": 19, "system": 1, "parameters": 1, "answer": 1}
        marked = rows(gateway, "SELECT marks FROM request_blocks WHERE marks IS NOT NULL AND kind = 'message'")
        assert marked == [('{"content.0":{"type":"ephemeral"}}',)] * 10


def test_secrets_reach_no_file(tmp_path: Path) -> None:
    """Ours, those of known shapes and what the operator names: not in the store, not in LMDB, not in a log.

    An answer may spell one over several events of its stream, and a request in arguments that are JSON within JSON.
    """
    capture = {"content": True, "headers": True, "redact": [r"\b\d{4}-\d{4}-\d{4}-\d{4}\b"]}
    with Front(tmp_path, storage=storage(tmp_path, **capture)) as gateway:

        async def main() -> None:
            async with Origin(sse(*CHAT.events("take ", KEY[:9], KEY[9:20], KEY[20:], ".")), port=gateway.upstream):
                arguments = json.dumps({"command": f"curl -H 'authorization: Bearer {KEY}'", "card": CARD})
                call = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": arguments}}
                messages = [
                    {"role": "user", "content": f"our key is {UPSTREAM_KEY}, my card {CARD}"},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "call_1", "content": f"export KEY={KEY}\n"},
                ]
                headers = [("authorization", f"Bearer {KEY}"), ("x-my-token", "t0ken-of-mine"), ("x-note", KEY)]
                body = CHAT.ask(stream=True, messages=messages)
                answer = await ask(gateway.port, CHAT.path, body, headers=headers)
                assert KEY in CHAT.text(answer.body)  # nobody takes anything out of what the client gets

        run(main)
        captured(gateway, 1)
        found = rows(gateway, "SELECT direction, headers FROM request_headers")
        headers = {direction: json.loads(fields) for direction, fields in found}
        said = rows(gateway, "SELECT text FROM blocks WHERE kind = 'answer'")[0][0]
        assert json.loads(zstandard.ZstdDecompressor().decompress(said))["content"] == "take ***."
        kept = on_disk(gateway)
    kept += on_disk(gateway)
    assert headers["in"]["x-my-token"] == headers["in"]["authorization"] == headers["in"]["x-note"] == "***"
    assert headers["in"]["host"] == "gateway" and "x-arbiter-trace-id" in headers["out"]
    assert b"our key is ***, my card ***" in kept and b"export KEY=***" in kept
    for secret in (KEY, KEY[:20], UPSTREAM_KEY, CARD, "t0ken-of-mine"):
        assert secret.encode() not in kept, secret


def test_what_a_provider_signed_is_kept_to_the_letter(tmp_path: Path) -> None:
    """Signatures, redacted thinking and call ids, also where they look like a key."""
    content = [
        {"type": "thinking", "thinking": "Let me see.", "signature": f"EqQB{KEY}=="},
        {"type": "redacted_thinking", "data": KEY},
        {"type": "tool_use", "id": f"toolu_{KEY}", "name": "run", "input": {"command": "ls"}},
    ]
    result = {"type": "tool_result", "tool_use_id": f"toolu_{KEY}", "content": f"KEY={KEY}"}
    with Front(tmp_path, storage=storage(tmp_path, content=True)) as gateway:
        trace: list[str | None] = []

        async def main() -> None:
            body = json.loads(MESSAGES.answer()) | {"content": content}
            async with Origin(whole(json.dumps(body).encode()), port=gateway.upstream):
                turns = [
                    {"role": "user", "content": "go"},
                    {"role": "assistant", "content": content},
                    {"role": "user", "content": [result]},
                ]
                trace.append((await ask(gateway.port, MESSAGES.path, {**MESSAGES.ask(), "messages": turns})).trace_id)

        run(main)
        captured(gateway, 1)
        gateway.row(trace[0])
        kept = conversation(gateway, trace[0])
        assert kept[1][2]["content"] == kept[-1][2]["content"] == content
        assert kept[2][2]["content"] == [{**result, "content": "KEY=***"}]


def test_at_the_bound_requests_are_served_and_counted(tmp_path: Path) -> None:
    """Control is stopped, so that nothing drains: what does not fit is dropped, and no client hears of it."""
    with Front(tmp_path, storage=storage(tmp_path, content=True, max="1MiB")) as gateway:
        control = until(lambda: gateway.control, "control")
        os.kill(control, signal.SIGSTOP)
        try:

            async def main() -> None:
                async with Origin(whole(CHAT.answer()), port=gateway.upstream):
                    for _ in range(12):
                        noise = os.urandom(100_000).hex()
                        assert (await ask(gateway.port, CHAT.path, CHAT.ask(noise))).status == 200

            run(main)
            until(lambda: gateway.metric("arbiter_capture_dropped_total") > 0, "a drop that was counted")
        finally:
            os.kill(control, signal.SIGCONT)
        gateway.until_settled(12)

        def told() -> tuple[int, int] | None:
            kept = rows(gateway, "SELECT COUNT(DISTINCT request_id) FROM request_blocks")[0][0]
            dropped = int(gateway.metric("arbiter_capture_dropped_total"))
            return (kept, dropped) if kept + dropped >= 12 else None

        captured(gateway, 1)
        kept, dropped = until(told, "each request's content is stored, or counted as dropped")
        assert kept + dropped == 12 and kept and dropped
        assert gateway.metric("arbiter_ledger_dropped_total") == 0


def test_what_many_large_streams_hold_together_is_bounded(tmp_path: Path) -> None:
    """All of them under way at once: each client has its whole answer, and what was left out is counted and told."""
    size, count = 12 << 20, 8  # of 96 MiB a worker holds 64
    piece = "x" * (1 << 17)
    texts = [piece] * (size // len(piece))
    with Front(tmp_path, storage=storage(tmp_path, content=True)) as gateway:
        sent, all_sent = 0, asyncio.Event()

        async def play(peer: Peer, request: Request) -> None:
            nonlocal sent
            *opening, end = [chunk(event) for event in CHAT.events(*texts)]
            await peer.send(sse_head())
            for event in opening:
                await peer.send(event)
            sent += 1
            if sent == count:
                all_sent.set()
            await all_sent.wait()
            await peer.send(end + LAST_CHUNK)

        async def main() -> None:
            async with Origin(play, port=gateway.upstream):
                asked = [ask(gateway.port, CHAT.path, CHAT.ask(f"{n}", stream=True)) for n in range(count)]
                for answer in await asyncio.gather(*asked):
                    assert answer.ending is Ending.CLEAN and len(CHAT.text(answer.body)) == size

        run(main)
        gateway.until_settled(count)
        captured(gateway, count)
        cut = rows(gateway, "SELECT marks FROM request_blocks WHERE direction = 'out' AND marks IS NOT NULL")
        assert cut  # all of them, where they came alike
        assert all(json.loads(marks)["left_out_bytes"] > 0 for (marks,) in cut)
        until(lambda: gateway.metric("arbiter_capture_cut_total") == len(cut), "the cuts that were counted")
        kept = "SELECT SUM(b.size) FROM request_blocks u JOIN blocks b ON b.id = u.block WHERE u.direction = 'out'"
        assert size < rows(gateway, kept)[0][0] < 64 << 20


def test_what_is_damaged_is_moved_aside_at_the_start(tmp_path: Path) -> None:
    with Front(tmp_path, storage=storage(tmp_path, content=True)) as gateway:

        async def main() -> None:
            async with Origin(whole(CHAT.answer()), port=gateway.upstream):
                assert (await ask(gateway.port, CHAT.path, CHAT.ask())).status == 200

        run(main)
        captured(gateway, 1)
        gateway.stop()
        content = gateway.data / "state" / "capture"
        (content / "data.mdb").write_bytes(os.urandom(65536))
        gateway.start()
        run(main)
        captured(gateway, 2)
        (aside,) = content.parent.glob("capture.damaged-*")
        (line,) = [line for line in gateway.lines() if line["message"].startswith("captured content is damaged")]
        assert line["level"] == "warn" and line["moved_to"] == str(aside)


def test_a_worker_that_is_killed_damages_nothing(tmp_path: Path) -> None:
    """What it had not handed over is lost; what is stored is whole, and the next worker goes on."""
    with Front(tmp_path, storage=storage(tmp_path, content=True)) as gateway:

        async def some(count: int) -> None:
            async with Origin(whole(CHAT.answer()), port=gateway.upstream):
                for _ in range(count):
                    assert (await ask(gateway.port, CHAT.path, CHAT.ask(os.urandom(20_000).hex()))).status == 200

        for _ in range(3):
            run(lambda: some(15))
            victim = gateway.worker
            os.kill(victim, signal.SIGKILL)
            until(lambda victim=victim: victim not in gateway.workers and gateway.workers, "another worker")
            gateway.until_ready()
        run(lambda: some(5))
        gateway.until_settled(50)
        last = "SELECT COUNT(*) FROM request_blocks WHERE request_id = (SELECT MAX(id) FROM requests)"
        until(lambda: rows(gateway, last) == [(3,)], "the last request's content")
        dangling = "SELECT COUNT(*) FROM request_blocks u LEFT JOIN blocks b ON b.id = u.block WHERE b.id IS NULL"
        assert rows(gateway, dangling) == [(0,)]
        plain = zstandard.ZstdDecompressor().decompress
        assert all(json.loads(plain(text)) for (text,) in rows(gateway, "SELECT text FROM blocks"))
        assert rows(gateway, "PRAGMA integrity_check") == [("ok",)]


def test_capture_is_switched_without_a_restart(tmp_path: Path) -> None:
    with Front(tmp_path, storage=storage(tmp_path, content=False)) as gateway:
        texts = iter(["before", "while it was on", "after"])

        async def main() -> None:
            async with Origin(whole(CHAT.answer()), port=gateway.upstream):
                assert (await ask(gateway.port, CHAT.path, CHAT.ask(next(texts)))).status == 200

        run(main)
        for content in (True, False):
            gateway.config["storage"]["capture"] = {"content": content}
            (tmp_path / "arbiter.yaml").write_text(yaml.safe_dump(gateway.config, sort_keys=False))
            reply = gateway.get("/admin/reload", method="POST", headers=ADMIN)
            assert reply.status == 200 and reply.json["needs_restart"] == []
            run(main)
        captured(gateway, 1)
        gateway.until_settled(3)
    # Who is stopped has written all that there is.
    plain = zstandard.ZstdDecompressor().decompress
    kept = rows(gateway, "SELECT text FROM blocks WHERE kind = 'message'")
    asked = [json.loads(plain(text))["content"] for (text,) in kept]
    assert asked == ["while it was on"]


def hits(gateway: Front, q: str) -> list[str] | None:
    """The kinds of what is found; None while there is no index."""
    reply = gateway.get(f"/admin/api/search?q={quote(q)}", headers=ADMIN)
    if reply.status == 503:
        assert reply.json["reason"] == "search_off"
        return None
    assert reply.status == 200, reply.body
    return sorted(hit["kind"] for hit in reply.json["hits"])


def test_search_is_switched_on_and_off_by_a_reload(tmp_path: Path) -> None:
    """What was said before is found as well as what is said after; and no secret is, nor is it in a file."""
    call = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    answer = json.loads(CHAT.answer("the quokka bites"))
    answer["choices"][0]["message"]["tool_calls"] = [call]
    with Front(tmp_path, storage=storage(tmp_path, content=True)) as gateway:

        def said(text: str) -> None:
            async def main() -> None:
                async with Origin(whole(json.dumps(answer).encode()), port=gateway.upstream):
                    assert (await ask(gateway.port, CHAT.path, CHAT.ask(text))).status == 200

            run(main)

        def switch(*, on: bool) -> None:
            gateway.config["search"] = {"index": on}
            (tmp_path / "arbiter.yaml").write_text(yaml.safe_dump(gateway.config, sort_keys=False))
            assert gateway.get("/admin/reload", method="POST", headers=ADMIN).status == 200

        said(f"before: wombat {KEY}")
        captured(gateway, 1)
        assert hits(gateway, "wombat") is None
        switch(on=True)
        until(lambda: hits(gateway, "wombat") == ["message"], "what was stored before")
        until(lambda: hits(gateway, "read_file") == ["answer", "tools"], "names of tools")
        said("after: numbat")
        until(lambda: hits(gateway, "numbat") == ["message"], "what was said after")
        assert hits(gateway, '"quokka bites"') == ["answer"]
        assert hits(gateway, KEY[7:20]) == [] and hits(gateway, '"(') == []
        assert KEY.encode() not in on_disk(gateway)
        switch(on=False)
        until(lambda: hits(gateway, "wombat") is None, "the end of the index")
        gone = "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'search%'"
        until(lambda: rows(gateway, gone) == [(0,)], "its tables' end")
        assert rows(gateway, "SELECT COUNT(*) FROM blocks WHERE kind = 'message'") == [(2,)]
