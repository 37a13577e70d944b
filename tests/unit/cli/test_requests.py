"""`arbiter requests`: the console's view of the store."""

from __future__ import annotations

import datetime
import json
import unicodedata

import pytest

from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position
from tests.fakes.console import arbiter
from tests.fakes.contents import heard, keep
from tests.fakes.postgres import PASSWORD, PASSWORD_IN_URL
from tests.fakes.rows import attempt_row, request_row
from tests.fakes.wires import MESSAGES

HEAD = [
    "time",
    "(UTC)",
    "trace",
    "client",
    "model",
    "provider",
    "status",
    "ms",
    "ttft",
    "in",
    "cached",
    "written",
    "out",
    "cost",
]


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "arbiter.db"
    store = SqliteStore(path)
    ok = request_row(1, client_trace_id="mine")
    failed = request_row(2, outcome="error", error_class="transport", status=502, first_byte_us=None)
    store.write([ok, attempt_row(ok, cost_source="unpriced"), failed], Position("j", 1))
    store.write([request_row(number) for number in range(10, 610)], Position("j", 2))
    store.close()
    return path


def test_a_table_newest_first(db):
    done = arbiter("requests", "--db", db, "--limit", 3, "--errors")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == HEAD
    assert len(lines) == 3
    assert arbiter("requests", "--db", db, "--limit", 3).stdout.endswith(
        "\nThere are more: --limit N shows N of them.\n"
    )
    year = [] if datetime.datetime.now(datetime.UTC).year == 2026 else ["2026"]
    assert lines[2].replace("2026-", "2026 ").split() == [
        *year, "09-21", "14:13:22", "000000000000", "ci", "swift", "openai", "502", "transport",
        "900", "-", "-", "-", "-", "-", "-",
    ]  # fmt: skip


def test_a_table_of_long_names_fits_a_console(tmp_path):
    """Names give way, numbers never do; only counts that were cut off bring the line that explains them."""
    store = SqliteStore(tmp_path / "a.db")
    long = request_row(
        1, client="the-client-of-the-team-next-door", model_asked="模型-" * 20, provider="the-provider-next-door",
        outcome="error", error_class="rate_limited_transient", status=429, total_us=7_260_000_000,
        cost_pd=3_532_000_000,
    )  # fmt: skip
    store.write([long, attempt_row(long)], Position("j", 1))
    whole = arbiter("requests", "--db", tmp_path / "a.db", COLUMNS="130").stdout.splitlines()
    assert len(whole) == 3
    cut = request_row(2)
    store.write([cut, attempt_row(cut, usage_source="partial", cached_tokens=None)], Position("j", 2))
    store.close()
    *table, note = arbiter("requests", "--db", tmp_path / "a.db", COLUMNS="130").stdout.splitlines()
    wide = [sum(2 if unicodedata.east_asian_width(c) == "W" else 1 for c in line) for line in whole + table]
    assert max(wide) == 130
    assert table[3].split()[-7:] == ["7260000", "120", "2000", "800", "-", "64", "$0.003532"] and "…" in table[3]
    assert table[2].split()[-7:] == ["900", "120", "~1200", "-", "-", "~64", "unpriced"]
    assert note == "~ estimated, or counted only until the stream was cut"


def test_a_trace_of_one_request_tells_its_story(tmp_path):
    """All of it: what went wrong in its own words, and each attempt with its phases and tokens."""
    store = SqliteStore(tmp_path / "a.db")
    failed = request_row(
        7, trace_id="0123456789abcdef" * 2, attempts=2, outcome="error", error_class="transport", status=502,
        message="openai is unreachable\x1b[31m", fidelity="model-only", labels={"issue": "12"},
    )  # fmt: skip
    first = attempt_row(
        failed, outcome="error", error_class="timeout_headers", status=None, message="no answer",
        first_event_us=None, last_event_us=None, timeout_phase="headers", timeout_wait_ms=60_000,
        usage_source="missing",
    )  # fmt: skip
    second = attempt_row(
        failed, 2, provider="echo", endpoint="openai-chat:echo:", usage_source="partial", cost_pd=120_000,
    )  # fmt: skip
    twin = request_row(8, trace_id="0123456789fedcba" * 2, model_asked=None, attempts=0)
    store.write([failed, first, second, twin], Position("j", 1))
    store.close()

    def ask(*words: object) -> str:
        done = arbiter("requests", "--db", tmp_path / "a.db", "--trace", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = ask("0123456789a")
    head, one, two = told.split("\n\n")
    assert head.startswith("swift: 502 transport\n  message       openai is unreachable?[31m\n")
    assert failed.trace_id in head and "issue=12" in head and "model-only" in head
    assert one.startswith("Attempt 1, openai: timeout_headers\n") and "no answer" in one and "not reported" in one
    assert "connected 15 ms, waited for the response 80 ms" in one and "headers after 60.0 s" in one
    assert two.startswith("Attempt 2, echo: 200 ok\n  upstream      openai-chat:echo\n")
    assert "~2,000 in (800 cached), ~64 out (counted until the stream was cut)" in two
    assert "  cost          ~$0.00000012\n" in two and "  cost " not in head + one
    assert ask("0123456789f").startswith("Request without a model: 200 ok\n")
    assert "No upstream was tried." in ask("0123456789f")

    # What may mean two is a list, also when only one of them is wanted.
    assert len(ask("01234567").splitlines()) == 5  # and what `~` means
    assert ask("01234567", "--limit", 1).startswith("time ")
    assert ask("0123456") == "No request matches; the beginning of an id needs at least 8 characters.\n"
    assert ask("nobody-here") == "No request matches.\n"
    assert ask(b"\xff\xfe-no-text") == "No request matches.\n"


def test_a_request_in_full_tells_its_conversation_and_why_it_was_tried_again(tmp_path):
    """Session, pin and warning; and of each attempt its key, its reason, and what the provider asked for."""
    store = SqliteStore(tmp_path / "a.db")
    request = request_row(
        1, session="s-1", parent_session="s-0", agent="codex", request_kind="subagent", affinity="kept",
        affinity_key="0f" * 16, warning="mind the gap\x1b[31m", attempts=3,
    )  # fmt: skip
    limited = {"outcome": "error", "status": 429, "error_class": "rate_limited_transient", "retry_after_ms": 20_000}
    store.write(
        [
            request,
            attempt_row(request, 1, provider="alpha", account="team-a", **limited),
            attempt_row(request, 2, provider="alpha", account="team-b", why="key", **limited),
            attempt_row(request, 3, provider="beta", why="fallback", wait_us=1_234_000, empty_completion=True),
        ],
        Position("j", 1),
    )
    store.close()
    told = arbiter("requests", "--db", tmp_path / "a.db", "--session", "s-1", "--trace", request.trace_id).stdout
    head, one, two, three = told.split("\n\n")
    assert "  warning       mind the gap?[31m\n" in head and "  client        ci, codex\n" in head
    assert "  session       s-1\n  parent        s-0\n  kind          subagent\n" in head
    assert f"  pin           kept: served where the turn before it was\n  affinity key  {'0f' * 16}\n" in head
    assert one.startswith("Attempt 1, alpha:team-a: 429 rate_limited_transient, asked to wait 20.0 s\n")
    assert "  why" not in one
    assert two.startswith("Attempt 2, alpha:team-b: 429") and "  why           key: another key of the pool\n" in two
    assert three.startswith("Attempt 3, beta: 200 ok, an empty answer\n")
    assert "  why           fallback: another target, after waiting 1.23 s\n" in three


def test_a_request_in_full_tells_what_was_lost_of_a_cache(tmp_path):
    """How much, why, where and for how much; a request that lost nothing has no line of it."""
    path = tmp_path / "arbiter.db"
    store = SqliteStore(path)
    calm, lost = request_row(1), request_row(2)
    loss = {"cache_verdict": "drift", "cache_lost_tokens": 110_312, "cache_lost_at": 32, "cache_against": "r1-1"}
    told = attempt_row(lost, cache_lost_in="messages 17-32", cache_lost_pd=380_576_400_000, **loss)
    store.write([calm, attempt_row(calm), lost, told], Position("j", 1))
    store.close()
    out = arbiter("requests", "--trace", lost.trace_id, "--db", path).stdout
    line = "  lost cache    110k drift in messages 17-32, $0.3806: the history was sent once more, and differs\n"
    assert line + "  against       r1-1\n" in out
    out = arbiter("requests", "--trace", calm.trace_id, "--db", path).stdout
    assert "lost" not in out and "against" not in out


def test_what_a_loss_was_compared_with_is_found_by_its_id(tmp_path):
    """`against` names an attempt, and `--trace` takes it as it stands there."""
    store = SqliteStore(tmp_path / "a.db")
    before, lost = request_row(1), request_row(2)
    loss = {"cache_verdict": "miss", "cache_lost_tokens": 9000, "cache_against": f"{before.id}-1"}
    store.write([before, attempt_row(before), lost, attempt_row(lost, **loss)], Position("j", 1))
    store.close()
    told = arbiter("requests", "--db", tmp_path / "a.db", "--trace", f"{lost.id}-1").stdout
    against = told.partition("  against       ")[2].split()[0]
    assert (
        f"  trace         {before.trace_id}\n"
        in arbiter("requests", "--db", tmp_path / "a.db", "--trace", against).stdout
    )


def test_a_session_and_a_conversation_are_listed_alone(tmp_path):
    store = SqliteStore(tmp_path / "a.db")
    rows = [request_row(1, session="s-1"), request_row(2, affinity_key="0f" * 16), request_row(3)]
    store.write(rows, Position("j", 1))
    store.close()

    def ids(*words: object) -> list[str]:
        return [
            one["id"] for one in json.loads(arbiter("requests", "--db", tmp_path / "a.db", "--json", *words).stdout)
        ]

    assert ids("--session", "s-1") == [rows[0].id] and ids("--affinity-key", "0f" * 16) == [rows[1].id]
    assert ids("--session", "s-2") == ids("--session", "s-1", "--affinity-key", "0f" * 16) == []


def test_json_brings_the_attempts(db):
    done = arbiter("requests", "--db", db, "--json", "--trace", "mine")
    (one,) = json.loads(done.stdout)
    assert one["id"] == "r00000001" and one["output_tokens"] == 64
    assert one["cost_pd"] is one["cost_usd"] is None and one["attempt_rows"][0]["cost_source"] == "unpriced"
    assert [attempt["id"] for attempt in one["attempt_rows"]] == ["r00000001-1"]


def test_the_limit_may_be_more_than_a_page(db):
    assert len(json.loads(arbiter("requests", "--db", db, "--json").stdout)) == 20
    ids = [one["id"] for one in json.loads(arbiter("requests", "--db", db, "--json", "--limit", 601).stdout)]
    assert len(ids) == len(set(ids)) == 601 and ids == sorted(ids, reverse=True)


def test_since_leaves_out_what_is_older(db):
    done = arbiter("requests", "--db", db, "--json", "--limit", 1000, "--since", "1790000600000")
    assert len(json.loads(done.stdout)) == 10


def test_a_time_that_was_shown_means_the_same_when_it_is_given_back(db):
    """Times are local on their way out and on their way in; whoever names a zone means that one."""
    tokyo, utc = (
        arbiter("requests", "--db", db, "--limit", 3, "--errors", TZ=zone).stdout for zone in ("Asia/Tokyo", "UTC")
    )
    assert " 23:13:22 " in tokyo and " 14:13:22 " in utc
    for zone, since, is_found in (
        ("Asia/Tokyo", "2026-09-21T23:13:22", True),
        ("Asia/Tokyo", "2026-09-21T23:13:23", False),
        ("UTC", "2026-09-21T14:13:22", True),
        ("UTC", "2026-09-21T14:13:23", False),
        ("Asia/Tokyo", "2026-09-21T14:13:22Z", True),
        ("Asia/Tokyo", "2026-09-21T14:13:23Z", False),
    ):
        done = arbiter("requests", "--db", db, "--errors", "--json", "--since", since, TZ=zone)
        assert (len(json.loads(done.stdout)) == 1) is is_found, (zone, since)


def test_the_configuration_names_the_store(db):
    config = db.parent / "arbiter.yaml"
    config.write_text(f"providers: {{ e: {{ type: echo }} }}\nstorage: {{ url: sqlite:///{db} }}\n")
    assert "swift" in arbiter("requests", "--config", config).stdout
    config.write_text("providers: { e: { type: echo } }\nstorage: { url: none }\n")
    done = arbiter("requests", cwd=db.parent)
    assert done.returncode == 1 and "storage.url" in done.stderr


def test_any_store_is_read_by_its_url(place, tmp_path):
    """Named on the command line or by the configuration; what goes wrong with it gives no password away."""
    store = place.open()
    store.write([request_row(1, client_trace_id="mine")], Position("j", 1))
    store.close()
    by_flag = arbiter("requests", "--db", place.url, "--json")
    (found,) = json.loads(by_flag.stdout)
    assert found["client_trace_id"] == "mine", by_flag.stderr
    config = tmp_path / "arbiter.yaml"
    config.write_text(f"providers: {{ e: {{ type: echo }} }}\nstorage: {{ url: '{place.url}' }}\n")
    assert arbiter("requests", "--config", config, "--json").stdout == by_flag.stdout
    checked = arbiter("check", "--config", config)
    assert checked.returncode == 0 and "Rows go to" in checked.stdout
    wrong = place.url.replace("arbiter.db", "nothing.db").replace("/test_", "/no_test_")
    done = arbiter("requests", "--db", wrong)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert PASSWORD_IN_URL not in checked.stdout + done.stderr and PASSWORD not in checked.stdout + done.stderr


def test_a_url_that_is_none_is_refused_without_being_repeated():
    done = arbiter("requests", "--db", "mysql://u:SECRET@h/d")
    assert done.returncode == 1 and "--db: expected sqlite:///" in done.stderr and "SECRET" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--db", "nowhere.db"], 1, "there is no store at nowhere.db"),
        ([], 1, "--config FILE, or the store itself with --db"),
        (["--db", "nowhere.db", "--since", "soon"], 2, "--since"),
        (["--limit", "0"], 2, "--limit"),
        (["--limit", "many"], 2, "--limit"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path, words, code, said):
    done = arbiter("requests", *words, cwd=tmp_path)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_store_says_so(tmp_path):
    SqliteStore(tmp_path / "a.db").close()
    assert arbiter("requests", "--db", tmp_path / "a.db").stdout == "No request yet.\n"
    assert arbiter("requests", "--db", tmp_path / "a.db", "--errors").stdout == "No request matches.\n"
    assert json.loads(arbiter("requests", "--db", tmp_path / "a.db", "--json").stdout) == []


def test_content_is_told_as_a_conversation(db, tmp_path):
    """Who said what, in order; and nothing of it may move the cursor of whoever reads it."""
    body = {"system": "be brief", "messages": [{"role": "user", "content": "line one\nline \x1b[31mtwo"}]}
    one = heard("r00000001", body, answer=MESSAGES.answer("the answer"), headers={"x-api-key": "k", "a": "b"})
    keep(tmp_path / "state", lambda: SqliteStore(db), one, headers=True)
    done = arbiter("requests", "--db", db, "--trace", "mine", "--content")
    assert done.returncode == 0, done.stderr
    told = done.stdout.partition("\n--- ")[2]
    assert told.splitlines() == [
        "system",
        "be brief",
        "",
        "--- user",
        "line one",
        "line ?[31mtwo",
        "",
        "--- parameters",
        "{",
        '  "model": "m"',
        "}",
        "",
        "--- answer, assistant",
        "the answer",
        "",
        "--- headers of the request",
        "x-api-key: ***",
        "a: b",
    ]
    shown = json.loads(arbiter("requests", "--db", db, "--trace", "mine", "--content", "--json").stdout)
    assert [piece["kind"] for piece in shown[0]["content"]] == ["system", "message", "parameters", "answer"]
    assert shown[0]["headers"]["in"]["a"] == "b" and shown[0]["trace_id"]


def test_content_that_is_not_kept_is_said_to_be_none(db):
    done = arbiter("requests", "--db", db, "--trace", "mine", "--content")
    assert done.returncode == 0 and done.stdout.endswith("\nNothing of its content is kept.\n")
    wrong = arbiter("requests", "--db", db, "--content")
    assert wrong.returncode == 2 and "--content needs --trace" in wrong.stderr


def test_an_estimate_is_told_as_one(tmp_path):
    """Where the provider counted nothing, the console shows our count, and says whose it is."""
    store = SqliteStore(tmp_path / "a.db")
    request = request_row(1)
    counts = {"input_tokens": None, "cached_tokens": None, "output_tokens": None}
    estimate = {"usage_source": "estimated", "estimated_input_tokens": 1234, "estimated_output_tokens": 56}
    store.write([attempt_row(request, **counts, **estimate), request], Position("j", 1))
    store.close()
    told = arbiter("requests", "--db", tmp_path / "a.db", "--trace", request.trace_id).stdout
    assert "  tokens        ~1,234 in, ~56 out (estimated)\n" in told
    table = arbiter("requests", "--db", tmp_path / "a.db").stdout
    assert table.splitlines()[2].split()[-5:-1] == ["~1234", "-", "-", "~56"] and "~ estimated, or" in table
    (shown,) = json.loads(arbiter("requests", "--db", tmp_path / "a.db", "--json").stdout)
    assert (shown["input_tokens"], shown["output_tokens"]) == (None, None)  # which are the reported ones
    assert shown["is_approximate"] is True
