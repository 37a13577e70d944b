"""Searching by meaning, through every process of a gateway (SPEC 8.5)."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from arbiter.control.embedding import WAIT_S
from tests.fakes.client import ask
from tests.fakes.embedder import embedded
from tests.fakes.gateway import ADMIN, ARBITER, BOUND_S, Gateway, Reply, free_port, until
from tests.fakes.namer import Namer
from tests.fakes.stores import Place

SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"
MODEL = "bag-of-words"


def config(embedder: str, **more: Any) -> dict[str, Any]:
    """Conversations go to the echo provider, and questions for vectors to the embedder."""
    return {
        "providers": {
            "echo": {"type": "echo", "models": ["m"]},
            "embedder": {
                "type": "openai",
                "endpoint": embedder,
                "key": "k",
                "models": [MODEL, "other"],
                "retry": {"attempts": 1},
            },
        },
        "models": [{"model": f"embedder/{MODEL}", "input_usd_per_mtok": 2, "output_usd_per_mtok": 0}],
        "aliases": {"near": {"pin": f"embedder/{MODEL}"}, "far": {"pin": "embedder/other"}},
        "search": {"embed": {"alias": "near"}},
        "storage": {"capture": {"content": True}},
        **more,
    }


@pytest.fixture(scope="module")
def embedder() -> Iterator[Namer]:
    with Namer() as embedder:
        embedder.answer = embedded
        yield embedder


@pytest.fixture(scope="module")
def gateway(embedder: Namer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(config(embedder.url), tmp_path_factory.mktemp("meaning"), workers=2) as gateway:
        yield gateway


def say(gateway: Gateway, session: str, text: str, answer: str = "I see.") -> str:
    """A turn of a conversation; its request's id."""
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
    headers = [("x-arbiter-session-id", session), ("x-echo-text", answer)]
    found = asyncio.run(ask(gateway.port, "/v1/messages", body, headers=headers))
    assert found.status == 200, found.body
    return str(gateway.row(found.trace_id)["id"])


def search(gateway: Gateway, words: str, **more: Any) -> Reply:
    return gateway.get(f"/admin/api/search?{urlencode({'meaning': words, **more})}", headers=ADMIN)


def hits(gateway: Gateway, words: str, **more: Any) -> list[dict[str, Any]]:
    found = search(gateway, words, **more)
    assert found.status == 200, found.body
    return list(found.json["hits"])


def until_found(gateway: Gateway, words: str, request: str) -> list[dict[str, Any]]:
    def look() -> list[dict[str, Any]]:
        found = search(gateway, words)
        return found.json["hits"] if any(hit["request"] == request for hit in found.json.get("hits", ())) else []

    # Where a question for vectors went wrong once, as on a machine that stalled, the next comes after a wait.
    return list(until(look, f"{request} to be found by {words!r}", WAIT_S + BOUND_S))


def arbiter(gateway: Gateway, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ARBITER, *arguments], cwd=gateway.folder, env=gateway.env, capture_output=True, text=True, timeout=60
    )


def test_what_was_said_in_other_words_is_found_the_nearest_first(gateway: Gateway, embedder: Namer) -> None:
    """And whoever made the vectors was asked as anybody asks, without secrets, and paid."""
    car = say(gateway, "garage", f"the car makes quick noises, my key is {SECRET}")
    cat = say(gateway, "home", "my cat sleeps on the roof", answer="Kitten behaviour.")
    until_found(gateway, "feline", cat)
    found = until_found(gateway, "speedy automobile noises", car)
    assert (found[0]["request"], found[0]["kind"], found[0]["session"]) == (car, "message", "garage")
    assert "the car makes quick noises" in found[0]["text"] and 0.5 < found[0]["score"] <= 1
    assert [hit["score"] for hit in found] == sorted((hit["score"] for hit in found), reverse=True)

    def felines() -> set[tuple[str, str]]:
        return {(hit["kind"], hit["request"]) for hit in hits(gateway, "feline")}

    until(lambda: felines() == {("message", cat), ("answer", cat)}, "what was said, and the answer to it")
    assert hits(gateway, "feline", session="garage") == []
    assert len(hits(gateway, "feline", session="home", limit=1)) == 1
    texts = json.dumps(embedder.asked)
    assert "my cat sleeps on the roof" in texts and SECRET not in texts and "***" in texts
    paid = "SELECT * FROM requests WHERE kind = 'embedding' ORDER BY received_ms"
    (row, *_) = until(lambda: gateway.select(paid), "a row of the embedder's")
    assert (row["client"], row["endpoint"], row["alias"], row["outcome"]) == ("(gateway)", "embeddings", "near", "ok")
    assert row["cost_pd"] and row["cost_pd"] % (10 * 2_000_000) == 0 and row["session"] is None
    listed = gateway.get("/admin/api/requests", headers=ADMIN).json["requests"]
    assert {one["kind"] for one in listed} == {"client"}

    def told() -> dict[str, Any]:
        return dict(gateway.get("/admin/api/state", headers=ADMIN).json["vectors"])

    until(lambda: told()["kept"] >= 4, "vectors of both turns")
    assert (told()["alias"], told()["error"]) == ("near", None)


def test_a_title_is_found_until_it_is_cleared(gateway: Gateway) -> None:
    say(gateway, "zoo", "hello there")
    path = "/admin/api/sessions/%20zoo/title"
    title = json.dumps({"text": "Vehicle inspection"}).encode()
    given = gateway.get(path, method="POST", headers=ADMIN, body=title)
    assert given.status == 200, given.body

    def titles() -> list[str]:
        return [hit["session"] for hit in hits(gateway, "automobile inspection") if hit["kind"] == "title"]

    until(lambda: titles() == ["zoo"], "the title to be found")
    assert gateway.get(f"{path}/clear", method="POST", headers=ADMIN).status == 200
    until(lambda: titles() == [], "the title's end")


def test_the_command_asks_the_running_gateway(gateway: Gateway) -> None:
    request = say(gateway, "boats", "a speedy vehicle on the water")
    until_found(gateway, "quick car", request)
    done = arbiter(gateway, "search", "--meaning", "a quick car on water")
    assert done.returncode == 0, done.stderr
    head, _, first, *_ = done.stdout.splitlines()
    assert head.split()[:3] == ["score", "time", "(UTC)"] and head.split()[3:] == ["trace", "session", "what", "text"]
    assert first.strip().startswith("0.9") and first.endswith("message  a speedy vehicle on the water")
    found = json.loads(arbiter(gateway, "search", "--meaning", "--json", "--session", "boats", "quick", "car").stdout)
    assert [hit["request"] for hit in found["hits"]] == [request] and found["index"] == "ready"
    assert arbiter(gateway, "search", "--meaning", "qqqq").stdout == "Nothing means that.\n"
    assert arbiter(gateway, "search", "--meaning", "--since", "1s", "xyzzy").stdout.startswith("Nothing since ")
    refused = arbiter(gateway, "search", "--meaning", "--db", "x.db", "car")
    assert refused.returncode == 2 and "--config" in refused.stderr
    silent = arbiter(gateway, "search", "--meaning", " ")
    assert silent.returncode == 2 and "say nothing" in silent.stderr
    assert " near   embedder " in arbiter(gateway, "requests", "--kind", "embedding").stdout


@pytest.mark.parametrize(
    ("query", "status", "parameter"),
    [
        ("meaning=", 400, "meaning"),
        ("meaning=+", 400, "meaning"),
        ("meaning=a&q=b", 400, "q"),
        ("meaning=a&meaning=b", 400, "meaning"),
        ("meaning=a&limit=101", 400, "limit"),
        ("meaning=a&since=never", 400, "since"),
    ],
)
def test_a_wrong_question_is_told_apart(gateway: Gateway, query: str, status: int, parameter: str) -> None:
    found = gateway.get(f"/admin/api/search?{query}", headers=ADMIN)
    assert (found.status, found.json["parameter"]) == (status, parameter)


def test_an_embedder_that_is_down_costs_nobody_anything(tmp_path: Path) -> None:
    """What was said meanwhile is found once it is back, also over a restart; a search says why it finds nothing."""
    port = free_port()
    with Gateway(config(f"http://127.0.0.1:{port}/v1"), tmp_path) as gateway:
        request = say(gateway, "s", "a kitten on the keys")

        def error() -> str:
            return gateway.get("/admin/api/state", headers=ADMIN).json["vectors"]["error"] or ""

        until(lambda: "status 5" in error(), "the state to say why")
        found = search(gateway, "cat")
        assert (found.status, found.json["reason"]) == (503, "no_vector")
        done = arbiter(gateway, "search", "--meaning", "cat")
        assert done.returncode == 1 and "status 5" in done.stderr and "leave --meaning out" in done.stderr
        assert sum("gets no vectors" in json.dumps(line) for line in gateway.lines()) == 1
        with Namer(port) as embedder:
            embedder.answer = embedded
            gateway.stop()
            gateway.start()
            until_found(gateway, "cat", request)


def test_it_is_switched_by_a_reload_and_made_anew_for_another_model(embedder: Namer, tmp_path: Path) -> None:
    """Off: the command finds the words and says so. On: what was said before gets vectors too. Off again: all gone."""
    off = config(embedder.url, search={"index": True})
    with Gateway(off, tmp_path) as gateway:
        request = say(gateway, "s", "the vehicle of choice")
        assert search(gateway, "car").json["reason"] == "meaning_off"

        def by_words() -> str:
            return arbiter(gateway, "search", "--meaning", "vehicle").stdout

        until(lambda: "the vehicle of choice" in by_words(), "the words to be found")
        assert "Not searched by meaning: `search.embed.alias`" in arbiter(gateway, "search", "--meaning", "x").stderr

        def reload(**search: Any) -> None:
            written = yaml.safe_dump({**gateway.config, "search": search}, sort_keys=False)
            (gateway.folder / "arbiter.yaml").write_text(written, "utf-8")
            assert gateway.get("/admin/reload", method="POST", headers=ADMIN).status == 200

        def models() -> list[Any]:
            rows = gateway.select("SELECT DISTINCT model FROM requests WHERE kind = 'embedding'")
            return sorted(row["model"] for row in rows)

        reload(embed={"alias": "near"})
        until_found(gateway, "automobile", request)
        until(lambda: models() == [MODEL], "the row of the model that was asked")
        reload(embed={"alias": "far"})
        until(lambda: len(models()) == 2, "the other model to be asked")
        until_found(gateway, "automobile", request)
        reload()
        tables = "SELECT name FROM sqlite_master WHERE name LIKE 'search%'"
        until(lambda: gateway.select(tables) == [], "the end of the tables")
        assert search(gateway, "car").json["reason"] == "meaning_off"


def test_it_goes_with_either_store(embedder: Namer, tmp_path: Path, place: Place) -> None:
    storage = {"url": place.url, "capture": {"content": True}}
    with Gateway(config(embedder.url, storage=storage), tmp_path / "gateway") as gateway:
        request = say(gateway, "s", "felines are quick")
        until_found(gateway, "speedy", request)
        until(lambda: place.sql("SELECT COUNT(*) FROM search_vectors") == [(2,)], "both vectors")


def test_without_a_running_gateway_the_command_says_what_is_missing(embedder: Namer, tmp_path: Path) -> None:
    gateway = Gateway(config(embedder.url), tmp_path)
    with gateway:
        pass
    done = arbiter(gateway, "search", "--meaning", "x")
    assert done.returncode == 1 and "no gateway runs on" in done.stderr
