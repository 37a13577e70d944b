"""Logins of the gateway's own (`auth: oauth`): brought in, renewed once for all, kept through kills, and ended."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from arbiter.config.snapshot import key_digest
from tests.fakes.client import Answer, Caller, ask, request, run
from tests.fakes.gateway import ARBITER, BOUND_S, Gateway, free_port, until
from tests.fakes.origin import answer
from tests.fakes.tokens import CLIENT_ID, TokenVendor

KEYS = {name: f"arb-{name}-" + "0123456789abcdef" * 2 for name in ("ann", "bob")}


class House:
    """A vendor and a gateway that is, or will be, logged in there."""

    def __init__(self, folder: Path, *, workers: int = 1, **oauth: Any) -> None:
        self.port = free_port()
        self.vendor = TokenVendor(self.port)
        at = f"http://127.0.0.1:{self.port}"
        settings = {"token_url": f"{at}/token", "client_id": CLIENT_ID, "scopes": ["inference"], **oauth}
        config = {
            "clients": [{"name": name, "key_hash": "sha256:" + key_digest(key)} for name, key in KEYS.items()],
            "providers": {
                "claude": {"type": "anthropic", "endpoint": at, "auth": "oauth", "models": ["claude-sonnet-4-5"],
                           "priced_as": "anthropic", "auto_models": "off", "oauth": settings},
            },
        }  # fmt: skip
        self.gateway = Gateway(config, folder, workers=workers)
        self.file = self.gateway.data / "logins" / "claude.json"

    def login(self) -> dict[str, Any]:
        return json.loads(self.file.read_text())

    def age(self, lived_s: float, left_s: float) -> None:
        """Have the access token be so old, and good for so long from now."""
        now_ms = round(time.time() * 1000)
        times = {"obtained_ms": now_ms - round(lived_s * 1000), "expires_ms": now_ms + round(left_s * 1000)}
        self.file.write_text(json.dumps(self.login() | times))

    async def arbiter(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str]:
        process = await self.begin(*arguments)
        out, _ = await process.communicate(stdin)
        return process.returncode or 0, out.decode()

    async def begin(self, *arguments: str) -> asyncio.subprocess.Process:
        self.gateway.folder.mkdir(exist_ok=True)
        config = self.gateway.folder / "login.yaml"
        config.write_text(json.dumps(self.gateway.config))
        return await asyncio.create_subprocess_exec(
            *ARBITER, *arguments, "--config", str(config), env=self.gateway.env, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip

    async def bring(self, *options: str, **given: Any) -> tuple[int, str]:
        """Log in from a file, as another program leaves one."""
        told = self.vendor.give() | given
        return await self.arbiter("login", "claude", "--import", "-", *options, stdin=json.dumps(told).encode())

    def talk(self, *headers: tuple[str, str], path: str = "/v1/messages", **members: Any) -> Awaitable[Answer]:
        body = {"model": "claude-sonnet-4-5", "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
        return ask(self.gateway.port, path, body | members, headers=headers)

    def serve(self, main: Callable[[], Awaitable[None]]) -> None:
        async def beside() -> None:
            async with self.vendor.origin:
                await main()

        run(beside)

    async def start(self) -> None:
        await asyncio.to_thread(self.gateway.start)

    async def stop(self) -> None:
        await asyncio.to_thread(self.gateway.stop)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "gateway")
    yield made
    if made.gateway.process is not None and made.gateway.process.poll() is None:
        made.gateway.process.kill()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "gateway", workers=2)
    yield made
    if made.gateway.process is not None and made.gateway.process.poll() is None:
        made.gateway.process.kill()


def test_a_login_serves_whoever_asks_and_is_seen_nowhere(house):
    """The first request renews what was brought in, with a beta of logins; rows, log and state hold no token."""

    async def main() -> None:
        code, said = await house.bring()
        assert code == 0 and "logged in" in said and "refresh-" not in said and "access-" not in said
        assert stat.S_IMODE(house.file.stat().st_mode) == 0o600
        assert stat.S_IMODE(house.file.parent.stat().st_mode) == 0o700
        await house.start()
        got = await house.talk(("anthropic-beta", "one"), ("authorization", "Bearer sk-ant-oat01-of-somebody-else"))
        assert got.status == 200, got.body
        (sent,) = house.vendor.asked
        assert sent.header("authorization") == "Bearer access-0002-of-the-tests" and sent.header("x-api-key") is None
        assert sent.header("anthropic-beta") == "one,oauth-2025-04-20"
        assert house.vendor.refreshes == ["refresh-0001-of-the-tests"]
        (attempt,) = house.gateway.attempts(house.gateway.row(got.trace_id)["id"])
        assert attempt["cost_source"] == "subscription" and attempt["equivalent_pd"] > 0 and attempt["account"] is None
        assert (await house.talk()).status == 200 and len(house.vendor.refreshes) == 1
        login = house.login()
        assert login["refresh_token"] == house.vendor.current and len(login["consumed"]) == 1
        await house.stop()
        for file in house.gateway.folder.rglob("*"):
            if file.is_file() and file != house.file:
                held = file.read_bytes()
                assert b"access-0" not in held and b"refresh-0" not in held, file

    house.serve(main)


def test_two_workers_renew_it_once(pair):
    """Both find it ended at the same moment; the vendor sees one refresh token once, and each worker uses what came."""

    async def main() -> None:
        await pair.bring(expires_at=1)
        await pair.start()
        pair.vendor.hold = asyncio.Event()
        asking = [asyncio.ensure_future(pair.talk()) for _ in range(16)]
        await pair.vendor.origin.until(lambda: len(pair.vendor.refreshes) == 1)
        await asyncio.to_thread(until, lambda: pair.gateway.in_flight() == 16, "sixteen who wait")
        pair.vendor.hold.set()
        answers = await asyncio.gather(*asking)
        assert {got.status for got in answers} == {200} and len(pair.vendor.refreshes) == 1
        assert {one.header("authorization") for one in pair.vendor.asked} == {"Bearer access-0002-of-the-tests"}
        await pair.stop()

    pair.serve(main)


def test_it_is_renewed_before_it_ends(house):
    """A fifth of its life before, where that is less than `refresh_before`; nobody meets an ended token."""

    async def main() -> None:
        await house.bring(expires_at=4102444800)
        await house.start()
        house.age(lived_s=130, left_s=70)
        assert (await house.talk()).status == 200 and house.vendor.refreshes == []
        house.age(lived_s=170, left_s=30)
        house.vendor.keeps = True  # a moment is all that a request waits for the new one
        assert (await house.talk()).status == 200
        await house.vendor.origin.until(lambda: len(house.vendor.refreshes) == 1)
        await house.vendor.origin.until(lambda: house.login()["refresh_token"] == house.vendor.current)
        assert (await house.talk()).status == 200 and len(house.vendor.refreshes) == 1
        assert house.vendor.asked[-1].header("authorization") == "Bearer access-0002-of-the-tests"
        await house.stop()

    house.serve(main)


def test_a_token_that_is_taken_back_early_is_renewed_once(pair):
    """On a 401; all who met it share one renewal. A second 401 is what the client hears of: 502, not to be retried."""

    async def main() -> None:
        await pair.bring(expires_at=1)
        await pair.start()
        assert (await pair.talk()).status == 200
        pair.vendor.access.clear()
        answers = await asyncio.gather(*(pair.talk() for _ in range(8)))
        assert {got.status for got in answers} == {200} and len(pair.vendor.refreshes) == 2
        row = pair.gateway.row(answers[0].trace_id)
        assert [one["why"] for one in pair.gateway.attempts(row["id"])] in (["first", "login"], ["first"])
        told = str([pair.gateway.attempts(pair.gateway.row(got.trace_id)["id"]) for got in answers])
        assert "bad ***" in told and "access-0" not in told, "the vendor repeats what it was sent"
        error = {"type": "error", "error": {"type": "authentication_error", "message": "no"}}
        pair.vendor.api = answer(
            json.dumps(error).encode(), status="401 x", headers=[("content-type", "application/json")]
        )
        got = await pair.talk()
        assert got.status == 502 and got.header("x-should-retry") == "false" and len(pair.vendor.refreshes) == 3
        row = pair.gateway.row(got.trace_id)
        assert row["error_class"] == "config" and len(pair.gateway.attempts(row["id"])) == 2
        await pair.stop()

    pair.serve(main)


def test_a_dead_login_is_not_asked_about_again_until_it_is_replaced(pair):
    """SPEC 6.5: `invalid_grant` is remembered by all workers and the next run; /health/ready and check tell of it."""

    async def main() -> None:
        await pair.bring(expires_at=1)
        old = pair.login()["refresh_token"]
        pair.vendor.current = "revoked"
        await pair.start()
        for _ in range(8):
            got = await pair.talk()
            assert got.status == 502 and "arbiter login claude --reconnect" in got.json["error"]["message"]
        assert pair.vendor.refreshes == [old] and pair.vendor.asked == []
        ready = pair.gateway.get("/health/ready")
        assert ready.status == 200
        assert (
            "login: that of claude is dead (invalid_grant); run `arbiter login claude --reconnect`"
            in ready.json["warnings"]
        )
        code, said = await pair.arbiter("check")
        assert code == 0 and "login: that of claude is dead (invalid_grant)" in said
        assert (await pair.arbiter("login", "claude", "--status"))[0] == 1
        await pair.stop()
        await pair.start()
        assert (await pair.talk()).status == 502 and pair.vendor.refreshes == [old]
        again, said = await pair.bring("--reconnect", refresh_token=old)
        assert again == 1 and "refused already" in said
        assert (await pair.bring("--reconnect", expires_at=1))[0] == 0
        assert (await pair.talk()).status == 200, "a gateway that runs uses the new one"
        assert not any("login" in warning for warning in pair.gateway.get("/health/ready").json["warnings"])
        await pair.stop()

    pair.serve(main)


def test_nobody_is_logged_in_yet(house):
    async def main() -> None:
        await house.start()
        got = await house.talk()
        assert got.status == 502 and "`arbiter login claude`" in got.json["error"]["message"]
        assert (
            "login: nobody is logged in at claude; run `arbiter login claude`"
            in house.gateway.get("/health/ready").json["warnings"]
        )
        assert (await house.bring(expires_at=4102444800))[0] == 0
        assert (await house.talk()).status == 200 and house.vendor.refreshes == []
        await house.stop()

    house.serve(main)


@pytest.mark.parametrize(
    ("held", "why"),
    [('{"refresh_token"', "holds no login"), ('{"refresh_token": "r", "access_token": "bad\\nkey"}', "holds a token")],
)
def test_a_file_that_cannot_be_used_is_the_gateways_fault_and_its_operators_to_know(house, held, why):
    """The client hears whose login it is, and nothing of where it is kept; the log has the file, once."""

    async def main() -> None:
        await house.bring(expires_at=4102444800)
        await house.start()
        assert (await house.talk()).status == 200
        house.file.write_text(held)
        for _ in range(3):
            got = await house.talk()
            assert got.status == 502 and got.json["error"]["type"] == "api_error", got.body
            assert f"'claude' has no login that can be used: its file {why}" in got.json["error"]["message"]
            assert str(house.gateway.data) not in got.body.decode() and "bad" not in got.json["error"]["message"]
        assert house.gateway.row(got.trace_id)["error_class"] == "config"
        ready = house.gateway.get("/health/ready")
        (told,) = (line for line in ready.json["warnings"] if line.startswith("login: claude: its file"))
        assert why in told and str(house.gateway.data) not in told
        await house.stop()
        assert len([line for line in house.gateway.log.splitlines() if f"{house.file} {why}" in line]) == 1
        assert len(house.vendor.asked) == 1

    house.serve(main)


def test_a_file_that_others_may_read_is_used_and_warned_of(house):
    """At the start, by `check`, by `login --status` and in /health/ready; its next renewal puts that right."""

    async def main() -> None:
        await house.bring(expires_at=4102444800)
        assert "0644" not in (await house.arbiter("check"))[1]
        house.file.chmod(0o644)
        code, said = await house.arbiter("check")
        assert code == 0 and "(mode 0644); `chmod 600` logins/claude.json" in said
        code, said = await house.arbiter("login", "claude", "--status")
        assert code == 0 and f"rights in {house.file} (mode 0644)" in said
        code, said = await house.arbiter("login", "claude", "--status", "--json")
        assert code == 0 and json.loads(said)["open_to_others"] is True
        await house.start()
        assert (await house.talk()).status == 200
        assert any("(mode 0644)" in line for line in house.gateway.get("/health/ready").json["warnings"])
        house.vendor.access.clear()
        assert (await house.talk()).status == 200
        assert not any("(mode 0644)" in line for line in house.gateway.get("/health/ready").json["warnings"])
        await house.stop()
        assert len([line for line in house.gateway.log.splitlines() if "(mode 0644)" in line]) == 1

    house.serve(main)


def test_what_passes_is_asked_again_and_the_old_token_serves_meanwhile(house):
    """A vendor that is down costs nobody anything while the access token is good; then a 502; and then all is well."""

    async def main() -> None:
        await house.bring(expires_at=4102444800)
        house.age(lived_s=3600, left_s=100)  # within `refresh_before`
        house.vendor.says = [answer(b"busy", status="503 x")] * 50
        await house.start()
        for _ in range(8):
            assert (await house.talk()).status == 200
        assert 0 < len(house.vendor.refreshes) < 5, "it is left alone for a while, and longer each time"
        assert house.vendor.asked[-1].header("authorization") == "Bearer access-0001-of-the-tests"
        house.age(lived_s=3600, left_s=-1)
        got = await house.talk()
        assert got.status == 502 and "could not be renewed" in got.json["error"]["message"]
        house.vendor.says = []
        end = asyncio.get_running_loop().time() + 60
        while (await house.talk()).status != 200:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.1)
        assert set(house.vendor.refreshes) == {"refresh-0001-of-the-tests"}
        await house.stop()

    house.serve(main)


def test_a_token_endpoint_that_hangs_holds_nobody_up(house):
    """The old access token serves meanwhile, and the new one as soon as it is there."""

    async def main() -> None:
        await house.bring(expires_at=4102444800)
        house.age(lived_s=3600, left_s=250)
        house.vendor.hold, house.vendor.keeps = asyncio.Event(), True
        await house.start()
        held = [asyncio.ensure_future(house.talk()) for _ in range(4)]
        await house.vendor.origin.until(lambda: len(house.vendor.refreshes) == 1)
        assert {got.status for got in await asyncio.gather(*held)} == {200}
        assert {one.header("authorization") for one in house.vendor.asked} == {"Bearer access-0001-of-the-tests"}
        house.vendor.hold.set()
        while house.vendor.asked[-1].header("authorization") != "Bearer access-0002-of-the-tests":
            assert (await house.talk()).status == 200
        assert len(house.vendor.refreshes) == 1
        await house.stop()

    house.serve(main)


def test_a_vendor_that_refuses_every_token_is_not_asked_for_one_with_each_request(pair):
    """SPEC 6.5: each worker finds out once, and again after a while."""

    async def main() -> None:
        await pair.bring(expires_at=1)
        await pair.start()
        assert (await pair.talk()).status == 200
        error = {"type": "error", "error": {"type": "authentication_error", "message": "no"}}
        said = json.dumps(error).encode()
        pair.vendor.api = answer(said, status="401 x", headers=[("content-type", "application/json")])
        for _ in range(4):
            answers = await asyncio.gather(*(pair.talk() for _ in range(25)))
            assert {got.status for got in answers} == {502}
        assert 2 <= len(pair.vendor.refreshes) < 20
        pair.vendor.api = None
        assert (await pair.talk()).status == 200
        await pair.stop()

    pair.serve(main)


def test_a_kill_after_the_rotation_loses_nothing(pair):
    """What came is on disk before it is used: the next run goes on with it, and the used one is not sent again."""

    async def main() -> None:
        await pair.bring(expires_at=1)
        await pair.start()
        asking = asyncio.ensure_future(pair.talk())
        until_file = asyncio.get_running_loop()
        end = until_file.time() + BOUND_S
        while pair.login()["refresh_token"] == "refresh-0001-of-the-tests":
            assert until_file.time() < end
            await asyncio.sleep(0)
        assert pair.gateway.process is not None
        pair.gateway.process.send_signal(signal.SIGKILL)
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.to_thread(pair.gateway.process.wait, 10)
        await pair.start()
        assert (await pair.talk()).status == 200
        assert pair.vendor.refreshes == ["refresh-0001-of-the-tests"]
        await pair.stop()

    pair.serve(main)


def test_a_kill_before_the_answer_is_met_once_and_told(house):
    """The vendor has rotated, and nobody heard: the next run asks once, and knows from then on that it is dead."""

    async def main() -> None:
        await house.bring(expires_at=1)
        await house.start()
        house.vendor.hold = asyncio.Event()
        asking = asyncio.ensure_future(house.talk())
        await house.vendor.origin.until(lambda: len(house.vendor.refreshes) == 1)
        assert house.gateway.process is not None
        house.gateway.process.send_signal(signal.SIGKILL)
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.to_thread(house.gateway.process.wait, 10)
        house.vendor.hold = None
        await house.start()
        for _ in range(3):
            assert (await house.talk()).status == 502
        assert house.vendor.refreshes == ["refresh-0001-of-the-tests"] * 2
        await house.stop()

    house.serve(main)


def test_a_client_that_leaves_does_not_take_the_rotation_with_it(house):
    """Whoever began the renewal hangs up in the middle of it: it goes on, and is kept."""

    async def main() -> None:
        await house.bring(expires_at=1)
        await house.start()
        house.vendor.hold = asyncio.Event()
        body = {"model": "claude-sonnet-4-5", "max_tokens": 8, "stream": True,
                "messages": [{"role": "user", "content": "hello"}]}  # fmt: skip
        caller = await Caller.connect(house.gateway.port)
        await caller.send(request("/v1/messages", body))
        await house.vendor.origin.until(lambda: len(house.vendor.refreshes) == 1)
        caller.reset()
        await asyncio.to_thread(until, lambda: house.gateway.in_flight() == 0, "nobody who waits")
        house.vendor.hold.set()
        await house.vendor.origin.until(lambda: house.login()["refresh_token"] == house.vendor.current)
        assert (await house.talk()).status == 200 and len(house.vendor.refreshes) == 1
        await house.stop()

    house.serve(main)


def test_a_login_may_be_for_some_clients_and_buys_no_embeddings(tmp_path):
    """FEATURES P10, P21."""
    house = House(tmp_path / "gateway", clients=["ann"])

    async def main() -> None:
        await house.bring(expires_at=4102444800)
        await house.start()
        assert (await house.talk(("x-arbiter-key", KEYS["ann"]))).status == 200
        for headers in ([("x-arbiter-key", KEYS["bob"])], []):
            got = await house.talk(*headers)
            assert got.status == 403 and "oauth.clients" in got.json["error"]["message"]
        found = await house.talk(path="/v1/embeddings", input="x")
        assert found.status == 400 and "embeddings" in found.json["error"]["message"]
        assert len(house.vendor.asked) == 1
        await house.stop()

    house.serve(main)


# ----------------------------------------------------------------------------------------------- bringing a login in


def test_a_person_logs_in_with_a_browser_and_pastes_the_code(tmp_path):
    """RFC 7636: the vendor checks that who brings the code is who asked for it. A state that is not ours is refused."""
    house = House(
        tmp_path / "gateway",
        authorize_url="https://vendor.test/authorize?a=1",
        redirect_uri="https://vendor.test/done",
        parameters={"code": "true"},
        encoding="json",
    )

    async def main() -> None:
        async def logged_in(paste: Callable[[str], str], *options: str) -> tuple[int, str]:
            process = await house.begin("login", "claude", *options)
            assert process.stdout is not None and process.stdin is not None
            said = b""
            while b"https://" not in said or not said.endswith(b": "):
                said += await process.stdout.read(1)
            url = next(word for word in said.decode().split() if word.startswith("https://"))
            told = parse_qs(urlsplit(url).query)
            assert told["response_type"] == ["code"] and told["code_challenge_method"] == ["S256"]
            assert told["client_id"] == [CLIENT_ID] and told["scope"] == ["inference"] and told["code"] == ["true"]
            house.vendor.codes["code-1"] = told["code_challenge"][0]
            out, _ = await process.communicate((paste(told["state"][0]) + "\n").encode())
            return process.returncode or 0, out.decode()

        code, said = await logged_in(lambda state: "code-1#somebody-elses")
        assert code == 1 and "state" in said and house.vendor.exchanged == []
        code, said = await logged_in(lambda state: f"code-1#{state}")
        assert code == 0, said
        assert house.vendor.exchanged[-1]["redirect_uri"] == "https://vendor.test/done"
        assert house.login()["refresh_token"] == house.vendor.current
        code, said = await house.arbiter("login", "claude")
        assert code == 1 and "--reconnect replaces" in said
        code, _ = await logged_in(lambda state: f"https://vendor.test/done?code=code-1&state={state}", "--reconnect")
        assert code == 0 and house.login()["refresh_token"] == house.vendor.current
        code, _ = await logged_in(lambda state: "https://vendor.test/done?error=access_denied", "--reconnect")
        assert code == 1

    house.serve(main)


def test_a_person_logs_in_on_another_device(tmp_path):
    """RFC 8628: asked again until somebody has entered the code."""
    port_later: dict[str, Any] = {}
    house = House(tmp_path / "gateway", **port_later)
    house.gateway.config["providers"]["claude"]["oauth"]["device_url"] = f"http://127.0.0.1:{house.port}/device"

    async def main() -> None:
        house.vendor.pending = 3
        code, said = await house.arbiter("login", "claude")
        assert code == 0 and "enter the code ABCD" in said and len(house.vendor.exchanged) == 4
        assert house.login()["refresh_token"] == house.vendor.current

    house.serve(main)


def test_a_token_that_was_used_up_is_not_taken_in_again(house):
    """SPEC 6.5: 64 fingerprints are kept, over renewals and new logins; a re-import would end the login that runs."""

    async def main() -> None:
        await house.bring(expires_at=1)
        await house.start()
        used = house.vendor.current
        assert (await house.talk()).status == 200
        code, said = await house.bring("--reconnect", refresh_token=used)
        assert code == 1 and "used up already" in said
        house.vendor.says = []
        assert (await house.bring("--reconnect"))[0] == 0
        assert (await house.bring("--reconnect", refresh_token=used))[0] == 1
        assert len(house.login()["consumed"]) == 2
        await house.stop()

    house.serve(main)


def test_programs_logins_are_taken_from_where_they_keep_them(house):
    """Codex's and Claude Code's files, as they are; what the access token says of its end is believed."""

    async def main() -> None:
        tokens = {"id_token": "x", "access_token": "opaque", "refresh_token": "r-1", "account_id": "a"}
        codex = {"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": "2026-01-01T00:00:00Z"}
        claude = {"claudeAiOauth": {"accessToken": "a-2", "refreshToken": "r-2", "expiresAt": 4102444800000,
                                    "scopes": ["user:inference"]}}  # fmt: skip
        for told, refresh, access in ((codex, "r-1", ""), (claude, "r-2", "a-2")):
            raw = json.dumps(told).encode()
            assert (await house.arbiter("login", "claude", "--reconnect", "--import", "-", stdin=raw))[0] == 0
            assert (house.login()["refresh_token"], house.login().get("access_token", "")) == (refresh, access)
        for junk in (b"", b"[]", b'{"refresh_token": 7}', b'{"refresh_token": "a b"}', b"\xff"):
            code, said = await house.arbiter("login", "claude", "--reconnect", "--import", "-", stdin=junk)
            assert code == 1 and "Traceback" not in said, said

    house.serve(main)


def test_what_the_token_endpoint_says_of_itself_is_not_taken_for_a_token(house):
    """Answers that are none pass, and the refresh token is not held to be refused; refusals in other shapes are."""

    async def main() -> None:
        await house.bring(expires_at=1)
        await house.start()
        json_type = [("content-type", "application/json")]
        house.vendor.says = [answer(b'{"access_token": "a b"}', headers=json_type)]
        assert (await house.talk()).status == 502
        assert "refused" not in house.login() or house.login()["refused"] is None
        nested = {"error": {"code": "refresh_token_reused", "message": "no"}}
        house.vendor.says = [answer(json.dumps(nested).encode(), status="401 x", headers=json_type)]
        while house.vendor.says:  # it is left alone for a moment
            assert (await house.talk()).status == 502
        assert house.login()["refused"]["error"] == "refresh_token_reused"
        await house.stop()

    house.serve(main)
