"""Titles and summaries by an alias, through every process of a gateway (SPEC 8.4)."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arbiter.sessions.kinds import OPENCODE_TITLE
from arbiter.sessions.naming import MAX_TOKENS
from tests.fakes.client import ask
from tests.fakes.gateway import ADMIN, ARBITER, Gateway, free_port, until
from tests.fakes.namer import Namer, Reply

SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"


def config(namer: str, **titles: Any) -> dict[str, Any]:
    """Conversations go to the echo provider, and questions for titles to the namer."""
    return {
        "providers": {
            "echo": {"type": "echo", "models": ["m"]},
            "namer": {
                "type": "openai",
                "endpoint": namer,
                "key": "k",
                "models": ["n"],
                "timeouts": {"connect": "1s"},
                "retry": {"attempts": 1},
            },
        },
        "models": [{"model": "namer/n", "input_usd_per_mtok": 1, "output_usd_per_mtok": 2}],
        "aliases": {"fast": {"pin": "namer/n"}},
        "sessions": {"titles": {"alias": "fast", **titles}},
        "search": {"index": True},
    }


@pytest.fixture(scope="module")
def namer() -> Iterator[Namer]:
    with Namer() as namer:
        yield namer


@pytest.fixture(scope="module")
def gateway(namer: Namer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(config(namer.url, per_day=1000), tmp_path_factory.mktemp("titles"), workers=2) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def _fresh(namer: Namer) -> None:
    namer.asked.clear()
    namer.held.set()
    namer.answer = lambda asked: "Fix the flaky login test\nA test of the login fails at random."


def say(gateway: Gateway, session: str | None, *words: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """One turn of a conversation, of whose user these are the words; its row, once it is stored."""
    messages = []
    for text in words:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "go on"}]
    body = {"model": "m", "max_tokens": 9, "messages": messages[:-1]}
    named = {"x-arbiter-session-id": session} if session is not None else {}
    pairs = [*named.items(), *(headers or {}).items()]
    answer = asyncio.run(ask(gateway.port, "/v1/messages", body, headers=pairs))
    assert answer.status == 200, answer.body
    return gateway.row(answer.trace_id)


def session(gateway: Gateway, name: str) -> dict[str, Any]:
    found = gateway.get(f"/admin/api/sessions/%20{name}", headers=ADMIN)
    assert found.status == 200, found.body
    return dict(found.json)


def own(gateway: Gateway, name: str, count: int = 1) -> list[dict[str, Any]]:
    """The questions about a session, once there are so many."""

    def found() -> list[dict[str, Any]]:
        rows = gateway.select("SELECT * FROM requests WHERE about = ? ORDER BY received_ms, id", f" {name}")
        return rows if len(rows) >= count else []

    rows = list(until(found, f"{count} questions about {name}"))
    assert len(rows) == count
    return rows


def titled(gateway: Gateway, name: str, title: str) -> dict[str, Any]:
    return dict(until(lambda: (row := session(gateway, name))["title"] == title and row, f"the title {title!r}"))


def until_asked(gateway: Gateway, namer: Namer, name: str) -> None:
    """All that waited to be asked about has been: there is one queue, and this session comes last."""
    namer.answer = lambda asked: "At the end"
    say(gateway, name, "hello there")
    titled(gateway, name, "At the end")


def state_of_titles(gateway: Gateway) -> dict[str, Any]:
    return dict(gateway.get("/admin/api/state", headers=ADMIN).json["titles"])


def arbiter(gateway: Gateway, *arguments: str) -> str:
    done = subprocess.run(
        [*ARBITER, *arguments],
        cwd=gateway.folder,
        env=gateway.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def hits(gateway: Gateway, word: str) -> list[tuple[str, str]]:
    found = gateway.get(f"/admin/api/search?q={word}", headers=ADMIN).json["hits"]
    return [(hit["kind"], hit["session"]) for hit in found]


def test_a_session_gets_a_title_and_a_summary_after_its_first_turn(gateway: Gateway, namer: Namer) -> None:
    """The alias is asked as anybody asks it, and the question is a row of its own, priced, and nobody's session."""
    say(gateway, "first", f"please fix the flaky login test, the key is {SECRET}")
    row = titled(gateway, "first", "Fix the flaky login test")
    assert (row["summary"], row["title_by"]) == ("A test of the login fails at random.", "alias")
    assert (row["requests"], row["turns"], row["titles"]) == (1, 1, 0)
    (question,) = own(gateway, "first")
    assert (question["kind"], question["request_kind"], question["client"]) == ("summary", "title", "(gateway)")
    assert (question["alias"], question["provider"], question["outcome"]) == ("fast", "namer", "ok")
    assert question["cost_pd"] == 100 * 1_000_000 + 10 * 2_000_000
    assert (question["session"], question["turn_index"], question["affinity_key"]) == (None, None, None)
    (asked,) = namer.asked
    text = json.dumps(asked)
    assert "fix the flaky login test" in text and SECRET not in text and "***" in text and "(gateway)" not in text
    assert asked["model"] == "n" and (asked.get("max_completion_tokens") or asked["max_tokens"]) == MAX_TOKENS
    assert [one["id"] for one in session(gateway, "first")["own_requests"]] == [question["id"]]
    listed = [one["id"] for one in gateway.get("/admin/api/requests", headers=ADMIN).json["requests"]]
    assert question["id"] not in listed
    listed = [one["id"] for one in gateway.get("/admin/api/requests?kind=summary", headers=ADMIN).json["requests"]]
    assert listed == [question["id"]]
    page = gateway.get(f"/admin/ui/requests/{question['id']}", headers=ADMIN).body.decode()
    assert 'href="/admin/ui/sessions/%20first"' in page
    assert "  about          first\n" in arbiter(gateway, "requests", "--trace", question["trace_id"])


def test_a_title_is_shown_found_and_gone_once_an_operator_clears_it(gateway: Gateway, namer: Namer) -> None:
    namer.answer = lambda asked: "Zebras in the cache\nWhy zebras are counted twice."
    say(gateway, "zebras", "why are there zebras in the cache?")
    titled(gateway, "zebras", "Zebras in the cache")
    assert "Zebras in the cache" in arbiter(gateway, "sessions")
    told = arbiter(gateway, "session", "zebras")
    assert told.startswith("Zebras in the cache") and "Why zebras are counted twice." in told
    page = gateway.get("/admin/ui/sessions", headers=ADMIN).body.decode()
    assert "Zebras in the cache" in page
    until(lambda: ("title", "zebras") in hits(gateway, "zebras"), "the title in the index")
    until(lambda: ("summary", "zebras") in hits(gateway, "counted"), "the summary in the index")
    path = "/admin/api/sessions/%20zebras/title"
    assert gateway.get(f"{path}/clear", method="POST", headers=ADMIN).json == {"cleared": True}
    row = session(gateway, "zebras")
    assert (row["title"], row["summary"], row["title_by"]) == (None, None, "operator")
    until(lambda: not hits(gateway, "zebras") and not hits(gateway, "counted"), "their end in the index")
    for turn in range(9):
        say(gateway, "zebras", "zebras", f"turn {turn}")
    until_asked(gateway, namer, "after-zebras")
    own(gateway, "zebras", 1)
    assert session(gateway, "zebras")["title"] is None, "what was cleared stays so"


def test_every_tenth_turn_asks_again_and_the_same_answer_changes_nothing(gateway: Gateway, namer: Namer) -> None:
    say(gateway, "long", "the beginning")
    before = titled(gateway, "long", "Fix the flaky login test")
    for turn in range(2, 10):
        say(gateway, "long", "the beginning", f"turn {turn}")
    say(gateway, "long", "the beginning", "the tenth")
    own(gateway, "long", 2)
    asked = namer.asked[-1]
    assert "the tenth" in json.dumps(asked) and "the beginning" in json.dumps(asked)
    until_asked(gateway, namer, "after-long")
    after = session(gateway, "long")
    assert (after["titled_ms"], after["title"]) == (before["titled_ms"], before["title"])
    namer.answer = lambda asked: "Something else by now\nA test of the login fails at random."
    for turn in range(11, 21):
        say(gateway, "long", "the beginning", f"turn {turn}")
    later = titled(gateway, "long", "Something else by now")
    assert later["titled_ms"] > before["titled_ms"] and len(own(gateway, "long", 3)) == 3


LONG = "word " * 2000


@pytest.mark.parametrize(
    ("name", "answer", "title", "summary"),
    [
        ("html", "<script>alert(1)</script> & co\n<img src=x>", "<script>alert(1)</script> & co", "<img src=x>"),
        ("controls", "a\x00b\x1b[31mc\u202ed\r\nz\x07z", "ab[31mcd", "zz"),
        ("verylong", LONG + "\n" + LONG, "word word", "word word"),
        ("lines", "\n\nOne\n\nTwo\nThree\n", "One", "Two Three"),
        ("quoted", '**Title:** "A quoted one"', "A quoted one", None),
    ],
)
def test_whatever_the_alias_answers_is_a_short_line(
    gateway: Gateway, namer: Namer, name: str, answer: str, title: str, summary: str | None
) -> None:
    namer.answer = lambda asked: answer
    say(gateway, name, "hello there")
    row = until(lambda: (row := session(gateway, name))["title"] and row, "a title")
    assert row["title"].startswith(title) and len(row["title"]) <= 80 and row["title"].isprintable()
    assert (row["summary"] or "").startswith(summary or "") and len(row["summary"] or "") <= 400
    for path in ("", f"/%20{name}"):
        page = gateway.get(f"/admin/ui/sessions{path}", headers=ADMIN).body.decode()
        assert "<script>alert" not in page and "<img src=x" not in page and "\x1b" not in page
    assert "\x1b" not in arbiter(gateway, "sessions", "--limit", "1000")


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("empty", "", "holds no title"),
        ("blank", " \n\u200b\n...", "holds no title"),
        ("refused", Reply(400, b'{"error":{"message":"no"}}'), "status 400"),
        ("broken", Reply(500, b"<html>oops"), "status 5"),
        ("nojson", Reply(200, b"no json at all"), "status 5"),
        ("odd", Reply(200, b'{"choices": 7}'), "status 5"),
    ],
)
def test_an_answer_that_is_none_costs_a_session_its_title_and_nothing_else(
    gateway: Gateway, namer: Namer, name: str, answer: str | Reply, said: str
) -> None:
    namer.answer = lambda asked: answer
    assert say(gateway, name, "hello there")["outcome"] == "ok"
    own(gateway, name)

    def told() -> bool:
        return said in (state_of_titles(gateway)["error"] or "")

    until(told, f"the state to say {said!r}")
    assert session(gateway, name)["title"] is None
    namer.answer = lambda asked: "Well again"
    say(gateway, f"{name}-next", "hello there")
    titled(gateway, f"{name}-next", "Well again")
    until(lambda: state_of_titles(gateway)["error"] is None, "the state to say nothing")


def test_a_slow_alias_keeps_nobody_waiting(gateway: Gateway, namer: Namer) -> None:
    """Not the conversation, not others, not the recorder: only the next question."""
    namer.held.clear()
    say(gateway, "slow", "hello there")
    until(lambda: len(namer.asked) == 1, "the question")
    for number in range(5):
        assert say(gateway, f"meanwhile-{number}", "hello there")["turn_index"] == 1
    until(lambda: state_of_titles(gateway)["waiting"] == 5, "five that wait")
    assert len(namer.asked) == 1
    assert session(gateway, "slow")["title"] is None
    namer.held.set()
    titled(gateway, "slow", "Fix the flaky login test")
    titled(gateway, "meanwhile-4", "Fix the flaky login test")


def test_an_operators_title_stands_above_the_aliass(gateway: Gateway, namer: Namer) -> None:
    """SPEC 8.4, 8.4a."""
    namer.held.clear()
    say(gateway, "mine", "hello there")
    until(lambda: namer.asked, "the question")
    path = "/admin/api/sessions/%20mine/title"
    told = gateway.get(path, method="POST", headers=ADMIN, body=json.dumps({"text": " My \n own\x00 "}).encode())
    assert told.json == {"title": "My own", "changed": True}
    namer.held.set()
    row = until(lambda: (row := session(gateway, "mine"))["summary"] and row, "the summary")
    assert (row["title"], row["title_by"]) == ("My own", "operator")
    assert "changed" in arbiter(gateway, "session", "mine", "--title", "Theirs")
    assert session(gateway, "mine")["title"] == "Theirs"
    audit = gateway.get("/admin/api/audit?limit=2", headers=ADMIN).json["audit"]
    assert [(row["action"], row["target"], row["who"]) for row in audit] == [
        ("title", " mine", "cli"),
        ("title", " mine", "token"),
    ]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("agent", ["claude-code", "opencode"])
def test_an_agents_own_title_is_its_sessions(gateway: Gateway, namer: Namer, agent: str, is_streamed: bool) -> None:
    """From the answer to its own request for one; the alias is asked for the summary, and does not overwrite it."""
    name = f"{agent}-{is_streamed}".lower()
    text = f"please look at {name}, which fails at random"
    said = {"type": "text", "text": text}
    if agent == "opencode":
        content: list[Any] = [{"type": "text", "text": OPENCODE_TITLE + "\n"}, said]
        # A header that nobody believes from a stranger: it waits until the conversation comes.
        headers = {"user-agent": "opencode/1.18.33", "x-session-id": name}
        answer, more = "Own title of opencode", dict[str, Any]()
    else:
        content, headers = [said], {"user-agent": "claude-cli/2.1.0 (external)", "x-claude-code-session-id": name}
        answer = '{"title": "Own title of claude"}'
        schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
        more = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": content}], "stream": is_streamed}
    pairs = [*headers.items(), ("x-echo-text", answer)]
    asked = asyncio.run(ask(gateway.port, "/v1/messages", {**body, **more}, headers=pairs))
    assert asked.status == 200 and gateway.row(asked.trace_id)["request_kind"] == "title"
    say(gateway, name, text, headers={"user-agent": headers["user-agent"]})
    row = until(lambda: (row := session(gateway, name))["summary"] and row["title_by"] == "agent" and row, "its title")
    assert row["title"] == f"Own title of {agent.partition('-')[0]}"


def test_a_sub_agents_session_is_not_asked_about(gateway: Gateway, namer: Namer) -> None:
    """Its parent has a title, and a day's questions are few."""
    headers = {"x-claude-code-session-id": "root", "x-claude-code-agent-id": "a1"}
    assert say(gateway, None, "do this part of it", headers=headers)["session"] == "root:a1"
    until_asked(gateway, namer, "after-root")
    assert len(namer.asked) == 1


def test_the_headers_of_our_own_are_nothing_without_the_key_of_this_run(gateway: Gateway) -> None:
    """A stranger cannot hide among the gateway's own requests, nor pass for one where keys are wanted."""
    headers = {"x-arbiter-own-key": "0" * 64, "x-arbiter-own-kind": "summary", "x-arbiter-own-about": "%20first"}
    row = say(gateway, "stranger", "hello there", headers=headers)
    assert (row["kind"], row["about"], row["client"]) == ("client", None, None)


def test_an_alias_that_is_down_costs_nobody_anything(tmp_path: Path) -> None:
    """Nobody listens there. The next start finds nothing undone, and asks when there is something to ask about."""
    port = free_port()
    with Gateway(config(f"http://127.0.0.1:{port}/v1"), tmp_path) as gateway:
        for number in range(3):
            assert say(gateway, f"s{number}", "hello there")["outcome"] == "ok"
            (question,) = own(gateway, f"s{number}")
            assert (question["outcome"], question["kind"]) == ("error", "summary")
        assert session(gateway, "s0")["title"] is None
        with Namer(port):
            say(gateway, "s3", "hello there")
            titled(gateway, "s3", "A title")


def test_a_day_has_so_many_questions_whatever_starts_anew(namer: Namer, tmp_path: Path) -> None:
    """They are counted by their rows."""
    with Gateway(config(namer.url, per_day=2), tmp_path) as gateway:
        for number in range(4):
            say(gateway, f"s{number}", "hello there")
            if number < 2:
                titled(gateway, f"s{number}", "Fix the flaky login test")

        def is_told() -> bool:
            return "today's 2 questions" in (state_of_titles(gateway)["error"] or "")

        until(is_told, "the day's end")
    with gateway:
        say(gateway, "s5", "hello there")
        until(is_told, "the day's end")
    assert len(namer.asked) == 2


@pytest.mark.parametrize("is_socket", [False, True])
def test_it_needs_no_key_of_its_own_and_no_port(namer: Namer, tmp_path: Path, is_socket: bool) -> None:
    """Where clients need keys, and where the gateway listens on a unix socket."""
    made = config(namer.url)
    if is_socket:
        made["server"] = {"socket": str(tmp_path / "gw.sock")}
    with Gateway({**made, "auth": {"mode": "require"}}, tmp_path) as gateway:
        key = json.loads(arbiter(gateway, "keys", "new", "dev", "--json"))["key"]
        body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello there"}]})
        headers = {"x-api-key": key, "x-arbiter-session-id": "s", "content-type": "application/json"}
        assert gateway.get("/v1/messages", method="POST", headers=headers, body=body.encode()).status == 200
        sql = "SELECT 1 FROM sessions WHERE id = 'dev s' AND title = 'Fix the flaky login test'"
        until(lambda: gateway.select(sql), "the title")


def test_words_are_nowhere_unless_titles_are_wanted(namer: Namer, tmp_path: Path) -> None:
    """SPEC 7.8: without the opt-in not even the journal sees them; with it the store never does."""
    made = config(namer.url)
    made["sessions"] = {}
    with Gateway(made, tmp_path / "off") as gateway:
        say(gateway, "s", "unmistakable-words")
    assert not any(b"unmistakable" in file.read_bytes() for file in gateway.data.rglob("*") if file.is_file())
    with Gateway(config(namer.url), tmp_path / "on") as gateway:
        say(gateway, "s", "unmistakable-words")
        titled(gateway, "s", "Fix the flaky login test")
    found = {file.name for file in gateway.data.rglob("arbiter.db*") if b"unmistakable" in file.read_bytes()}
    assert found == set() and len(namer.asked) == 1
