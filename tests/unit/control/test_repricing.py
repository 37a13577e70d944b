"""Repricing asked for over HTTP: a short span at once, a long one as a job."""

from __future__ import annotations

import json
import time

import pytest
from starlette.testclient import TestClient

from arbiter.config.load import parse
from arbiter.control import repricing
from arbiter.control.app import make_app
from arbiter.control.audit import Audit
from arbiter.control.repricing import Repricing
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Changer, Position
from tests.fakes.gateway import until
from tests.fakes.rows import attempt_row, request_row

CONFIG = """
providers: { openai: { type: openai, endpoint: "http://127.0.0.1:9/v1" } }
models: [{ model: openai/gpt-5.2, input_usd_per_mtok: 1, cached_input_usd_per_mtok: 0, output_usd_per_mtok: 0 }]
"""


@pytest.fixture
def path(tmp_path):
    store = SqliteStore(tmp_path / "a.db")
    request = request_row(1, received_ms=int(time.time() * 1000) - 1000)
    store.write([request, attempt_row(request, cost_source="unpriced")], Position("j", 1))
    store.close()
    return tmp_path / "a.db"


@pytest.fixture
def client(path):
    snapshot = parse(CONFIG, "f", {})
    changer = Changer(lambda: SqliteStore(path))
    routes = Repricing(changer, lambda: snapshot, Audit(None, changer))
    yield TestClient(make_app(None, None, lambda: snapshot, actions=routes.routes()))
    routes.close()
    changer.close()


def cost(path):
    store = SqliteStore(path, readonly=True)
    try:
        return store.request("r00000001").request.cost_pd
    finally:
        store.close()


def ask(client, **body):
    return client.post("/admin/api/reprice", content=json.dumps(body))


def test_a_short_span_is_answered_once_it_is_done(client, path):
    answer = ask(client, since="7d", dry_run=True)
    assert answer.status_code == 200 and answer.json()["outcome"]["changed"] == 1 and cost(path) is None
    answer = ask(client, since="7d")
    assert (answer.json()["state"], cost(path)) == ("succeeded", 1_200_000_000)
    assert client.get(answer.json()["status_url"]).json() == answer.json()
    store = SqliteStore(path, readonly=True)
    noted = store.read(lambda db: db.rows("SELECT action, details FROM audit ORDER BY id"))
    store.close()
    assert [action for action, _ in noted] == ["reprice", "reprice"] and '"since":"7d"' in noted[1][1]


def test_a_long_span_is_a_job(client, path):
    """It says where to ask; the answer there is the same in the end."""
    answer = ask(client, since="8d")
    job = answer.json()
    assert answer.status_code == 202 and job["state"] != "failed"
    give_up = time.monotonic() + 20
    while job["state"] not in ("succeeded", "failed") and time.monotonic() < give_up:
        time.sleep(0.02)
        job = client.get(job["status_url"]).json()
    assert job["state"] == "succeeded" and cost(path) == 1_200_000_000
    assert client.get("/admin/api/reprice/none").status_code == 404


def test_a_short_span_that_takes_long_is_a_job_too(client, path, monkeypatch):
    monkeypatch.setattr(repricing, "ANSWER_S", 0.0)
    answer = ask(client, since="1d")
    assert answer.status_code in (200, 202) and answer.json()["status_url"]


def test_a_store_that_is_gone_fails_the_job(client, path):
    path.write_bytes(b"this is no database" * 100)
    answer = ask(client, since="7d")
    assert answer.status_code == 503 and answer.json()["reason"] == "store_down"


def test_a_bug_fails_the_job_and_is_told(client, monkeypatch, caplog):
    """Whoever asked for a long span sees that it is over; nobody would look at an exception."""

    def broken(*args, **named):
        raise RuntimeError("a bug")

    monkeypatch.setattr(repricing, "reprice", broken)
    assert ask(client, since="7d").status_code == 500
    job = ask(client, since="8d").json()
    job = until(lambda: (told := client.get(job["status_url"]).json())["finished_ms"] and told)
    assert job["state"] == "failed" and "its log" in job["error"]
    assert [str(record.exc_info[1]) for record in caplog.records if record.levelname == "ERROR"] == ["a bug"] * 2


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"since": "soon"}', b'{"since": "1d", "colour": 1}', b"\xff"])
def test_a_body_that_asks_for_nothing_is_refused(client, body):
    assert client.post("/admin/api/reprice", content=body).status_code == 400


def test_without_a_store_there_is_nothing_to_price():
    snapshot = parse(CONFIG, "f", {})
    app = make_app(None, None, lambda: snapshot, actions=Repricing(None, lambda: snapshot, Audit(None, None)).routes())
    assert ask(TestClient(app), since="1d").json()["reason"] == "storage_off"
