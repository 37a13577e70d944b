"""The administration through the workers: who gets in, what is relayed, and the numbers of all processes together."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from arbiter.config.snapshot import key_digest
from arbiter.ledger import price_files
from tests.fakes import browser
from tests.fakes.client import ask, run
from tests.fakes.gateway import ADMIN, ADMIN_TOKEN, ARBITER, Gateway, run_dir, until
from tests.fakes.pages import Page, serving

ECHO = {"providers": {"echo": {"type": "echo", "models": ["m"]}}}
CLIENT_KEY = "ak-the-key-of-a-client"
PRICE = {"litellm_provider": "house", "input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06}
KEYS = {
    "auth": {"mode": "require"},
    "clients": [{"name": "ci", "key_hash": f"sha256:{key_digest(CLIENT_KEY)}"}],
}


def talk(gateway: Gateway, count: int = 1, *, model: str = "m", headers: Any = ()) -> list[str]:
    """So many requests, each on a connection of its own; their trace ids."""
    traces: list[str] = []

    async def main() -> None:
        for _ in range(count):
            body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
            answer = await ask(gateway.port, "/v1/chat/completions", body, headers=headers)
            assert answer.trace_id is not None
            traces.append(answer.trace_id)

    run(main)
    return traces


@pytest.fixture(scope="module")
def open_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Without a token: for this machine only. Two workers, and a client with a key."""
    clients = [{"name": "ci", "key_hash": f"sha256:{key_digest(CLIENT_KEY)}"}]
    with Gateway({**ECHO, "admin": {}, "clients": clients}, tmp_path_factory.mktemp("open"), workers=2) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """With a token, and keys for everybody."""
    with Gateway({**ECHO, **KEYS}, tmp_path_factory.mktemp("gated")) as gateway:
        yield gateway


# --- the gate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8080"}, 200),
        ({"host": "[::1]"}, 200),
        ({"origin": "http://127.0.0.1:3000"}, 200),
        ({"x-forwarded-for": "127.0.0.1"}, 403),
        ({"x-forwarded-proto": "https"}, 403),
        ({"forwarded": "for=127.0.0.1"}, 403),
        ({"host": "gateway.example"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"authorization": "Bearer whatever"}, 200),
    ],
    ids=lambda value: next(iter(value), "plain") if isinstance(value, dict) else str(value),
)
def test_without_a_token_only_this_machine_gets_in(open_gateway: Gateway, headers: dict[str, str], status: int) -> None:
    """And not by way of a proxy, another name (a rebound one, perhaps), or a page of another site (SPEC 12.1)."""
    headers = {"host": f"127.0.0.1:{open_gateway.port}", **headers}
    for path in ("/admin/api/state", "/admin/ui/", "/admin/ui/static/ui.css", "/admin/nothing-here"):
        answer = open_gateway.get(path, headers=headers)
        assert answer.status == (404 if path.endswith("here") and status == 200 else status), path


def test_there_is_no_sign_in_where_there_is_no_token(open_gateway: Gateway) -> None:
    """A form that nobody needs would only be something to attack."""
    for method in ("GET", "POST"):
        assert open_gateway.get("/admin/sign-in", method=method).status == 404


def test_with_a_token_everybody_needs_it_and_a_browser_signs_in_once(gated: Gateway) -> None:
    """The bearer, or the cookie that stands for the token; the cookie changes nothing for pages of other sites."""
    assert gated.get("/admin/api/state").status == 401
    assert gated.get("/admin/ui/static/ui.css").status == 401
    assert gated.get("/admin/api/state", headers={"authorization": "Bearer wrong"}).status == 401
    assert gated.get("/admin/api/state", headers={"authorization": f"Bearer {CLIENT_KEY}"}).status == 401
    assert gated.get("/admin/api/state", headers=ADMIN).status == 200
    page = gated.get("/admin/ui/", headers={"accept": "text/html,*/*"})
    assert page.status == 401 and b'name="token"' in page.body
    form = {"content-type": "application/x-www-form-urlencoded"}
    wrong = gated.get("/admin/sign-in", method="POST", headers=form, body=b"token=nonsense")
    assert wrong.status == 401 and "set-cookie" not in wrong.headers and b"not the token" in wrong.body
    for size, status in ((4000, 401), (8000, 413)):  # a form of megabytes would hold everybody up while it is read
        assert gated.get("/admin/sign-in", method="POST", headers=form, body=b"a=b&" * (size // 4)).status == status
    right = gated.get("/admin/sign-in", method="POST", headers=form, body=f"token={ADMIN_TOKEN}".encode())
    assert (right.status, right.headers["location"]) == (303, "/admin/ui/")
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and ADMIN_TOKEN not in cookie
    signed = {"cookie": cookie.partition(";")[0]}
    assert gated.get("/admin/ui/", headers=signed).status == 200
    assert gated.get("/admin/ui/", headers={"cookie": "arbiter_admin=0"}).status == 401
    own, foreign = f"http://127.0.0.1:{gated.port}", "https://evil.example"
    for headers, status in (
        ({"origin": foreign}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": own}, 405),  # control has nothing to change yet
        ({}, 405),
    ):
        answer = gated.get("/admin/api/state", method="POST", headers={**signed, **headers}, body=b"")
        assert answer.status == status, headers


def test_signing_in_leads_to_the_page_that_was_asked_for(gated: Gateway) -> None:
    """Past a wrong token, too; and never to anywhere but a page of the administration, whatever the form says."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    page = gated.get("/admin/ui/cost?by=day&since=7d", headers={"accept": "text/html,*/*"}).body.decode()
    wanted = 'name="wanted" value="/admin/ui/cost?by=day&amp;since=7d"'
    assert wanted in page and "<title>Sign in \u00b7 Arbiter</title>" in page

    def sent(token: str, wanted: str) -> Any:
        body = urlencode({"token": token, "wanted": wanted}).encode()
        return gated.get("/admin/sign-in", method="POST", headers=form, body=body)

    assert wanted in sent("nonsense", "/admin/ui/cost?by=day&since=7d").body.decode()
    for asked, place in (
        ("/admin/ui/cost?by=day&since=7d", "/admin/ui/cost?by=day&since=7d"),
        ("https://evil.example/admin/ui/", "/admin/ui/"),
        ("//evil.example/admin/ui/", "/admin/ui/"),
        ("/admin/api/state", "/admin/ui/"),
        ("/admin/ui/../../v1/models", "/admin/ui/"),
        ("/admin/ui/%2e%2e/%2e%2e/v1/models", "/admin/ui/"),
        ("/admin/ui/..\\..\\x", "/admin/ui/"),
        ("/admin/ui/cost\r\nset-cookie: a=b", "/admin/ui/"),
        ("/admin/ui/" + "a" * 1000, "/admin/ui/"),
    ):
        signed = sent(ADMIN_TOKEN, asked)
        assert (signed.status, signed.headers["location"]) == (303, place), asked


def test_a_gateway_open_to_the_network_prints_a_token_for_this_run(tmp_path: Path) -> None:
    """Once, and never in a log line; nobody gets in without it, this machine neither."""
    with Gateway({**ECHO, "admin": {}, "server": {"bind": "0.0.0.0"}}, tmp_path) as gateway:
        (token,) = re.findall(r"needs this token.*: (\S+)", gateway.log)
        assert gateway.get("/admin/api/state").status == 401
        assert gateway.get("/admin/api/state", headers={"authorization": f"Bearer {token}"}).status == 200
        talk(gateway)
        assert gateway.log.count(token) == 1
        gateway.stop()
        gateway.start()
        first, second = re.findall(r"needs this token.*: (\S+)", gateway.log)
        assert first != second
        assert gateway.get("/admin/api/state", headers={"authorization": f"Bearer {first}"}).status == 401


def test_a_trusted_proxy_may_vouch_for_its_user(tmp_path: Path) -> None:
    """`forward_auth_header` counts from `trusted_proxies` only."""
    admin = {"admin": {"forward_auth_header": "x-auth-user"}}
    with Gateway({**ECHO, **admin}, tmp_path / "trusting") as gateway:
        assert gateway.get("/admin/api/state").status == 401
        assert gateway.get("/admin/api/state", headers={"x-auth-user": "ada"}).status == 200
    server = {"server": {"trusted_proxies": ["10.0.0.0/8"]}}
    with Gateway({**ECHO, **admin, **server}, tmp_path / "other") as gateway:
        assert gateway.get("/admin/api/state", headers={"x-auth-user": "ada"}).status == 401


# --- the relay --------------------------------------------------------------------------------------------------------


def test_the_administration_is_relayed_whole(open_gateway: Gateway) -> None:
    """Filters, pages, errors and files come through the worker as control said them."""
    key = [("authorization", f"Bearer {CLIENT_KEY}")]
    mine, other = talk(open_gateway, 3, headers=key), talk(open_gateway, 2)
    lost = talk(open_gateway, model="no-such-model")
    for trace in [*mine, *other, *lost]:
        open_gateway.row(trace)

    def traces(query: str) -> list[str]:
        answer = open_gateway.get(f"/admin/api/requests?{query}")
        assert answer.status == 200, answer.body
        return [found["trace_id"] for found in answer.json["requests"]]

    assert traces("client=ci") == mine[::-1]
    assert traces(f"trace={other[0]}") == [other[0]]
    assert set(lost) <= set(traces("errors=1")) and set(mine).isdisjoint(traces("errors=1"))
    assert set(traces("provider=echo")) >= {*mine, *other} and lost[0] not in traces("provider=echo")
    page = open_gateway.get("/admin/api/requests?limit=2&client=ci").json
    rest = open_gateway.get(f"/admin/api/requests?limit=2&client=ci&cursor={page['next']}").json
    assert [found["trace_id"] for found in page["requests"] + rest["requests"]] == mine[::-1]
    wrong = open_gateway.get("/admin/api/requests?bogus=1")
    assert wrong.status == 400 and "bogus" in wrong.json["detail"]
    assert open_gateway.get("/admin/api/requests/unknown").status == 404
    row = open_gateway.row(mine[0])
    shown = open_gateway.get(f"/admin/api/requests/{row['id']}").json
    assert shown["id"] == row["id"] and len(shown["attempt_rows"]) == 1
    style = open_gateway.get("/admin/ui/static/ui.css")
    assert style.status == 200 and style.headers["content-type"].startswith("text/css")
    again = open_gateway.get("/admin/ui/static/ui.css", headers={"if-none-match": style.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    ui = open_gateway.get("/admin/ui/")
    assert ui.status == 200 and f"row-{row['id']}".encode() in ui.body and "content-security-policy" in ui.headers
    assert open_gateway.get("/", headers={}).headers["location"] == "/admin/ui/"


def test_the_administration_says_when_control_is_away(tmp_path: Path) -> None:
    """503 with retry-after, at once; requests are served, and it is back by itself."""
    with Gateway({**ECHO, "admin": {}}, tmp_path) as gateway:
        path = run_dir(gateway) / "control.sock"
        path.rename(path.with_suffix(".away"))
        away = gateway.get("/admin/api/state")
        assert away.status == 503 and away.headers["retry-after"] and "try again" in away.body.decode()
        ready = gateway.get("/health/ready")
        assert ready.status == 200 and "control: not running" in ready.json["warnings"]
        talk(gateway)
        path.with_suffix(".away").rename(path)
        assert gateway.get("/admin/api/state").status == 200
        for _ in range(2):
            control = gateway.control
            assert control is not None
            os.kill(control, signal.SIGKILL)
            statuses = set()

            def is_back() -> bool:
                answer = gateway.get("/admin/api/state")
                statuses.add(answer.status)  # noqa: B023
                return answer.status == 200 and answer.json["control"]["pid"] != control  # noqa: B023

            until(is_back, "control's return")
            assert statuses <= {200, 503}


@pytest.mark.needs("chromium")
def test_a_browser_signs_in_and_sees_what_just_happened(gated: Gateway, tmp_path: Path) -> None:
    """Through the worker, with its cookie, and with nothing that either page's policy refuses."""
    with browser.page(tmp_path / "profile") as page:
        page.open(f"{gated.url}/admin/ui/")
        assert page.js("document.querySelector('label[for=token]').textContent") == "Admin token"
        page.problems.clear()  # the 401 that brought the form is one
        page.js(f"document.querySelector('#token').value = {ADMIN_TOKEN!r}")
        page.js("document.querySelector('form').requestSubmit()")
        page.until("document.querySelector('#list') !== null")
        assert page.js("location.pathname") == "/admin/ui/"
        (trace,) = talk(gated, headers=[("authorization", f"Bearer {CLIENT_KEY}")])
        row = gated.row(trace)
        page.until(f"document.querySelector('#row-{row['id']}') !== null")
        page.js(f"document.querySelector('#row-{row['id']}').click()")
        page.until(f"document.querySelector('#detail [data-request=\"{row['id']}\"]') !== null")
        assert ADMIN_TOKEN not in page.js("document.cookie")
        assert page.problems == []


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_metrics_are_added_up_and_never_fall(tmp_path: Path) -> None:
    """Whichever worker is asked; and a worker's successor goes on from its last numbers."""
    with Gateway(ECHO, tmp_path, workers=2) as gateway:
        talk(gateway, 20)
        until(lambda: gateway.metric("arbiter_requests_total") == 20, "the count of both")
        assert gateway.metric("arbiter_upstream_attempts_total") == 20
        assert gateway.metric("arbiter_request_duration_seconds_count") == 20
        for victim in gateway.workers:
            os.kill(victim, signal.SIGKILL)
            until(lambda: len(gateway.workers) == 2 and victim not in gateway.workers, "a new worker")  # noqa: B023
            assert gateway.metric("arbiter_requests_total") == 20
        talk(gateway, 5)
        until(lambda: gateway.metric("arbiter_requests_total") == 25, "the count of their successors")
        assert gateway.metric("arbiter_open_streams") == 0
        assert gateway.metric("arbiter_requests_in_flight") == 0


def test_metrics_and_models_are_for_those_with_a_key_where_everybody_needs_one(gated: Gateway) -> None:
    """They name providers (SPEC 12.1). The administrator's token opens the metrics too."""
    assert gated.get("/metrics").status == 401
    assert gated.get("/models").status == 401
    key = {"authorization": f"Bearer {CLIENT_KEY}"}
    for path in ("/metrics", "/models"):
        assert gated.get(path, headers=key).status == 200
    assert b"arbiter_requests_total" in gated.get("/metrics", headers=ADMIN).body
    for path in ("/health", "/health/live", "/health/ready"):
        assert gated.get(path).status == 200


def test_health_tells_every_worker_s_caller_how_the_last_fetch_of_prices_went(tmp_path: Path) -> None:
    """SPEC 9.3, without a key and with nothing private: no address, and none of its token. A new worker knows, too."""
    with serving() as site:
        site.pages["/prices"] = Page(200, json.dumps({"one": PRICE, "two": PRICE}).encode())
        prices = {"refresh": "6h", "refresh_url": f"{site.url}/prices?token=S3CRET-word"}
        with Gateway({**ECHO, "prices": prices, **KEYS}, tmp_path, workers=2) as gateway:

            def told() -> dict[str, Any]:
                answer = gateway.get("/health")
                assert answer.status == 200 and b"S3CRET" not in answer.body and b"127.0.0.1" not in answer.body
                return dict(answer.json["prices"] or {})

            until(lambda: all(told().get("outcome") == "ok" for _ in range(20)), "word of the fetch in both workers")
            first = told()
            assert first["entries"] == 2 and isinstance(first["age_s"], int)
            assert first["fetched_ms"] >= first["tried_ms"]
            for victim in gateway.workers:
                os.kill(victim, signal.SIGKILL)
                until(lambda: len(gateway.workers) == 2 and victim not in gateway.workers, "a new worker")  # noqa: B023
            until(lambda: all(told().get("fetched_ms") == first["fetched_ms"] for _ in range(20)), "in new workers")
            # A control that dies is followed by one that has tried nothing yet, and what is kept is new enough.
            os.kill(gateway.control, signal.SIGKILL)
            until(lambda: all(told().get("outcome") is None for _ in range(20)), "word of the new control")
            assert (told()["entries"], told()["fetched_ms"]) == (2, first["fetched_ms"])
            assert len(site.asked) == 1


def test_health_tells_of_a_fetch_that_failed_and_how_old_the_last_good_list_is(tmp_path: Path) -> None:
    """Also where no rows are stored."""
    file = tmp_path / "data" / "prices.json"
    price_files.keep(file, json.dumps({"one": PRICE}).encode(), "by hand")
    kept = json.loads(file.read_bytes())
    kept["fetched_ms"] -= 2 * 86_400_000
    file.write_text(json.dumps(kept))
    with serving() as site:
        prices = {"refresh": "6h", "refresh_url": f"{site.url}/nothing-here"}
        with Gateway({**ECHO, "prices": prices, "storage": {"url": "none"}}, tmp_path) as gateway:
            found = until(
                lambda: (told := gateway.get("/health").json["prices"]) and told["outcome"] and told,
                "word of the fetch",
            )
            assert found["outcome"] == "failed" and found["tried_ms"]
            assert (found["entries"], found["fetched_ms"]) == (1, kept["fetched_ms"]) and found["age_s"] >= 2 * 86_400


# --- the command line beside a running gateway ------------------------------------------------------------------------


def test_the_command_line_reads_the_rows_of_a_running_gateway(open_gateway: Gateway) -> None:
    """`arbiter requests` looks into the store itself, and disturbs nobody."""
    (trace,) = talk(open_gateway)
    row = open_gateway.row(trace)

    def requests(*arguments: str) -> str:
        file = str(open_gateway.folder / "arbiter.yaml")
        command = [*ARBITER, "requests", "--config", file, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, env=open_gateway.env, cwd=open_gateway.folder
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    (found,) = json.loads(requests("--json", "--trace", trace))
    assert found["id"] == row["id"] and found["attempt_rows"][0]["provider"] == "echo"
    assert trace[:12] in requests() and "echo" in requests("--limit", "1")
    assert "Attempt 1, echo: 200 ok\n" in requests("--trace", trace[:8])
    assert "No request matches" in requests("--trace", "nothing")
