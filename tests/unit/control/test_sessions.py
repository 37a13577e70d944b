"""Sessions and the audit in the administration, over a real socket and real stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arbiter.control.actions import Actions
from arbiter.control.app import make_app
from arbiter.control.audit import Audit
from arbiter.control.main import listen
from arbiter.ledger.recorder import Batch, RecorderState
from arbiter.ledger.sessions import Sessions
from arbiter.ledger.store import Changer, Position, Reader, StoreDown
from arbiter.state.memory import Memory
from tests.fakes.admin import serving
from tests.fakes.rows import attempt_row, request_row
from tests.fakes.stores import Place
from tests.unit.control.test_admin import OverUnix, snapshot

ROOT, CHILD = "0199c2a4-77aa", "0199c2a4-77aa:a1"


class Site:
    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, target: str, status: int = 200, method: str = "GET", body: Any = None, **headers: str) -> Any:
        connection = OverUnix(self.path)
        try:
            connection.request(method, target, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == status, text
            return json.loads(text)
        finally:
            connection.close()

    def post(self, target: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        return self.ask(target, status, "POST", body, **headers)


def fill(place: Place) -> None:
    """Two clients; one of them has a session with a sub-agent below it, and a turn that lost its cache."""
    store = place.open()
    rows, attempts = [], []
    for number, fields in enumerate(
        (
            {"session": ROOT, "agent": "claude-code", "request_kind": "main", "labels": {"issue": "12", "x": "y"}},
            {"session": ROOT, "outcome": "error", "status": 502},
            {"session": CHILD, "parent_session": ROOT, "request_kind": "subagent"},
            {"session": ROOT, "client": "other", "labels": {"issue": "123"}},
            {"session": None},
            {"session": ROOT, "request_kind": "main"},
        ),
        1,
    ):
        row = request_row(number, **fields)
        rows.append(row)
        used = {"cost_pd": 5_000, "cache_write_tokens": 200}
        if number == 6:
            used |= {"cache_lost_tokens": 9000, "cache_lost_pd": 77, "cache_verdict": "miss", "cost_pd": None}
        attempts.append(attempt_row(row, **used))
    batch = Batch(rows, attempts, [])
    Sessions(lambda: 3_600_000).take(batch, store)
    store.write([*batch.requests, *batch.attempts], Position("j", 1), batch.also)
    store.close()


@pytest.fixture
def here(place: Place, tmp_path: Path) -> Iterator[Site]:
    fill(place)
    reader, changer = Reader(lambda: place.open(readonly=True)), Changer(place.open)
    audit = Audit(reader, changer)
    actions = Actions(Memory(), snapshot, audit)
    app = make_app(reader, RecorderState, snapshot, actions=actions.routes(), changer=changer, audit=audit)
    with serving(app, listen(tmp_path / "control.sock")):
        yield Site(tmp_path / "control.sock")
    reader.close()
    changer.close()


def test_sessions_are_listed_by_their_last_sign_of_life_with_what_they_used(here: Site) -> None:
    found = here.ask("/admin/api/sessions")["sessions"]
    assert [(one["client"], one["is_told"]) for one in found] == [
        ("ci", True),
        ("ci", False),
        ("other", True),
        ("ci", True),
    ]
    root = found[0]
    assert (root["session"], root["turns"], root["requests"], root["failed"], root["state"]) == (ROOT, 2, 3, 1, "open")
    assert (root["input_tokens"], root["cached_tokens"], root["output_tokens"]) == (3600, 2400, 192)
    assert root["hit_rate"] == pytest.approx(2400 / (3600 + 2400 + 600))
    assert (root["cost_pd"], root["unpriced"], root["lost_tokens"], root["lost_pd"]) == (10_000, 1, 9000, 77)


def test_filters_and_pages_leave_none_out_and_repeat_none(here: Site) -> None:
    assert [one["client"] for one in here.ask("/admin/api/sessions?label=issue=12")["sessions"]] == ["ci"]
    assert [one["client"] for one in here.ask("/admin/api/sessions?label=issue=123")["sessions"]] == ["other"]
    assert here.ask("/admin/api/sessions?label=issue=1")["sessions"] == []
    assert [one["session"] for one in here.ask("/admin/api/sessions?agent=claude-code")["sessions"]] == [ROOT]
    assert len(here.ask("/admin/api/sessions?client=ci")["sessions"]) == 3
    assert here.ask("/admin/api/sessions?since=1s")["sessions"] == []
    paged, cursor = [], ""
    while True:
        page = here.ask(f"/admin/api/sessions?limit=1{cursor}")
        paged += [one["id"] for one in page["sessions"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert paged == [one["id"] for one in here.ask("/admin/api/sessions")["sessions"]]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("nope=1", "nope"),
        ("limit=0", "limit"),
        ("label=issue", "label"),
        ("cursor=x", "cursor"),
        ("since=soon", "since"),
    ],
)
def test_a_malformed_parameter_is_named(here: Site, query: str, parameter: str) -> None:
    assert here.ask(f"/admin/api/sessions?{query}", 400)["parameter"] == parameter


def test_one_session_has_its_turns_in_order_its_notes_and_its_children(here: Site) -> None:
    found = here.ask(f"/admin/api/sessions/ci%20{ROOT}")
    assert [one["turn_index"] for one in found["requests_shown"]] == [1, None, 2] and not found["has_more"]
    assert found["requests_shown"][2]["attempt_rows"][0]["cache_verdict"] == "miss"
    assert [one["session"] for one in found["children"]] == [CHILD]
    latest = here.ask(f"/admin/api/sessions/ci%20{ROOT}?limit=1")
    assert [one["turn_index"] for one in latest["requests_shown"]] == [2] and latest["has_more"]
    assert here.ask(f"/admin/api/sessions/other%20{ROOT}")["children"] == [], "children are of the same client"
    here.ask("/admin/api/sessions/nobody", 404)
    here.ask(f"/admin/api/sessions/ci%20{ROOT}?limit=x", 400)


def test_an_operator_ends_a_session_and_says_why_and_both_are_on_record(here: Site) -> None:
    """SPEC 8.4, 8.4a: who, when, what, on what."""
    path, who = f"/admin/api/sessions/ci%20{ROOT}", {"x-arbiter-user": "user:ann%C3%A9"}
    assert here.post(f"{path}/end", **who) == {"ended": True}
    assert here.post(f"{path}/end", **who) == {"ended": False}
    note = here.post(f"{path}/notes", {"text": " two\nlines "}, **who)["note"]
    assert (note["text"], note["who"]) == ("two\nlines", "user:anné")
    found = here.ask(path)
    assert (found["state"], found["ended_by"], found["notes"]) == ("ended", "operator", [note])
    here.post("/admin/pause", {"provider": "openai", "reason": "it burns"})
    rows = here.ask("/admin/api/audit")["audit"]
    assert [(row["action"], row["target"], row["who"]) for row in rows] == [
        ("pause", "openai", "cli"),
        ("note", f"ci {ROOT}", "user:anné"),
        ("end", f"ci {ROOT}", "user:anné"),
    ]
    assert rows[0]["details"]["reason"] == "it burns"
    assert [row["action"] for row in here.ask("/admin/api/audit?action=end&limit=5")["audit"]] == ["end"]
    assert here.ask("/admin/api/audit?nope=1", 400)["parameter"] == "nope"


@pytest.mark.parametrize("body", [None, {}, {"text": ""}, {"text": "x" * 4097}, {"text": 5}, {"note": "x"}, []])
def test_a_note_that_is_none_changes_nothing(here: Site, body: Any) -> None:
    here.post(f"/admin/api/sessions/ci%20{ROOT}/notes", body, 400)
    here.post("/admin/api/sessions/nobody/notes", {"text": "x"}, 404)
    here.post("/admin/api/sessions/nobody/end", None, 404)
    assert here.ask("/admin/api/audit")["audit"] == []


def test_without_a_store_nothing_is_empty_and_nothing_is_done(tmp_path: Path) -> None:
    with serving(make_app(None, None, snapshot), listen(tmp_path / "control.sock")):
        site = Site(tmp_path / "control.sock")
        for path in ("sessions", "sessions/x", "audit"):
            assert site.ask(f"/admin/api/{path}", 503)["reason"] == "storage_off"
        site.post("/admin/api/sessions/x/end", None, 503)


def test_an_action_whose_row_cannot_be_stored_is_done_all_the_same(tmp_path: Path) -> None:
    """A store that is down must not keep an operator from pausing what burns."""

    def down() -> Any:
        raise StoreDown("the disk is full")

    state = Memory()
    actions = Actions(state, snapshot, Audit(None, Changer(down)))
    with serving(make_app(None, None, snapshot, actions=actions.routes()), listen(tmp_path / "control.sock")):
        Site(tmp_path / "control.sock").post("/admin/pause", {"provider": "openai"})
    assert ("provider", "openai") in state.standing().pauses


# --- the pages --------------------------------------------------------------------------------------------------------


def page(site: Site, target: str, status: int = 200) -> str:
    connection = OverUnix(site.path)
    try:
        connection.request("GET", f"/admin/ui/sessions{target}")
        answer = connection.getresponse()
        text = answer.read().decode()
        assert (answer.status, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), text
        return text
    finally:
        connection.close()


def test_the_page_of_sessions_leads_to_each_and_from_one_to_those_around_it(here: Site) -> None:
    text = page(here, "")
    assert text.count("<tr>") == 5 and f'href="/admin/ui/sessions/ci%20{ROOT}"' in text
    text = page(here, f"/ci%20{ROOT}")
    assert "<dd>2.67 s, 71.9 tokens a second</dd>" in text
    assert "2 of 3 requests, 1 failed" in text and '<span class="tag">miss</span>' in text
    assert f'href="/admin/ui/sessions/ci%20{CHILD}"' in text
    assert f'href="/admin/ui/sessions/ci%20{ROOT}"' in page(here, f"/ci%20{CHILD}"), "the way back to its parent"


def test_filters_of_the_page_are_those_of_the_list(here: Site) -> None:
    assert page(here, "?client=other&agent=&label=").count("<tr>") == 2
    assert "Nothing matches" in page(here, "?client=nobody")
    assert "nope" in page(here, "?nope=1", 400)
    assert "No such session" in page(here, "/nobody", 404)


def test_what_callers_and_operators_wrote_is_text_and_no_page(here: Site) -> None:
    here.post(f"/admin/api/sessions/ci%20{ROOT}/notes", {"text": "<script>alert(1)</script>"})
    text = page(here, f"/ci%20{ROOT}")
    assert "&lt;script&gt;alert(1)" in text and "<script>alert" not in text


def post(site: Site, target: str, form: str, status: int) -> tuple[str, str | None]:
    """A form of the page, sent: what comes of it, and where it leads."""
    connection = OverUnix(site.path)
    try:
        headers = {"content-type": "application/x-www-form-urlencoded", "x-arbiter-user": "user:ann"}
        connection.request("POST", f"/admin/ui/sessions{target}", form, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == status, text
        return text, answer.headers["location"]
    finally:
        connection.close()


def test_the_forms_of_a_session_do_what_the_api_does_and_lead_back(here: Site) -> None:
    """SPEC 8.4, 8.4a."""
    where = f"/ci%20{ROOT}"
    for form in ("act=note&text=a+note+%26%0Amore", "act=title&text=A%20title", "act=clear_title", "act=end"):
        assert post(here, where, form, 303)[1] == f"/admin/ui/sessions{where}"
    found = here.ask(f"/admin/api/sessions{where}")
    assert [(note["text"], note["who"]) for note in found["notes"]] == [("a note &\nmore", "user:ann")]
    assert (found["title"], found["title_by"], found["state"]) == (None, "operator", "ended")
    audit = here.ask("/admin/api/audit")["audit"]
    assert [row["action"] for row in audit] == ["end", "clear_title", "title", "note"]
    post(here, where, "act=end", 303)
    assert here.ask("/admin/api/audit")["audit"] == audit, "it was ended already"


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("", "end, note, title or clear_title"),
        ("act=drop", "end, note, title or clear_title"),
        ("act=note&text=", "between 1 and 4096"),
        ("act=note&text=" + "x" * 4097, "between 1 and 4096"),
        ("act=title&text=%00%E2%80%8B", "between 1 and 80"),
        ("act=title&text=" + "x" * 81, "between 1 and 80"),
        ("act=end&act=note&text=x", "more than once"),
        ("&".join(f"a{number}=1" for number in range(9)), "fields"),
    ],
)
def test_a_form_that_cannot_be_followed_says_why(here: Site, form: str, said: str) -> None:
    assert said in post(here, f"/ci%20{ROOT}", form, 400)[0]
    assert here.ask("/admin/api/audit")["audit"] == []


def test_a_form_about_no_session_is_told_so(here: Site) -> None:
    assert "No such session" in post(here, "/ci%20nobody", "act=end", 404)[0]


def test_titles_are_given_and_taken_over_the_api(here: Site) -> None:
    target = f"/admin/api/sessions/ci%20{ROOT}/title"
    assert here.post(target, {"text": "  Two\nlines "}) == {"title": "Two lines", "changed": True}
    assert here.post(target, {"text": "Two lines"}) == {"title": "Two lines", "changed": False}
    assert here.ask(f"/admin/api/sessions/ci%20{ROOT}")["title"] == "Two lines"
    assert here.post(f"{target}/clear") == {"cleared": True} and here.post(f"{target}/clear") == {"cleared": False}
    assert [row["action"] for row in here.ask("/admin/api/audit")["audit"]] == ["clear_title", "title"]
    for body in ({"text": ""}, {"text": "x" * 81}, {"txt": "x"}, {"text": 1}):
        here.post(target, body, 400)
    here.post("/admin/api/sessions/nobody/title", {"text": "x"}, 404)
    here.post("/admin/api/sessions/nobody/title/clear", status=404)
