"""What a token endpoint's answers mean: tokens, a no for good, or trouble that may pass."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import parse_qsl

import pytest

from arbiter.config.snapshot import Endpoint, OAuth
from arbiter.upstream import token_endpoint
from arbiter.upstream.token_endpoint import TokenRefused, Tokens, TokenTrouble
from arbiter.upstream.transport import Transport
from tests.fakes.origin import CLOSE, Origin, answer

JSON = [("content-type", "application/json")]
HOUR_MS = 3_600_000


def asked(script: Any, **options: Any) -> tuple[Tokens, Origin]:
    async def main() -> tuple[Tokens, Origin]:
        async with Origin(script) as origin:
            oauth = OAuth((Endpoint("http", origin.host, origin.port), "/token?v=1"), "client", **options)
            transport = Transport()
            try:
                return await token_endpoint.refresh(transport, oauth, "refresh-1"), origin
            finally:
                await transport.close()

    return asyncio.run(main())


def told(body: Any, status: str = "200 OK") -> bytes:
    return answer(json.dumps(body).encode(), status=status, headers=JSON)


@pytest.mark.parametrize("encoding", ["form", "json"])
def test_a_refresh_is_asked_for_as_the_vendor_reads_it(encoding):
    found, origin = asked(
        told({"access_token": "a", "refresh_token": "r", "expires_in": 60}),
        encoding=encoding,
        scopes=("one", "two"),
        client_secret="shh",
    )
    (request,) = origin.requests
    assert (request.method, request.target) == ("POST", "/token?v=1")
    sent = json.loads(request.body) if encoding == "json" else dict(parse_qsl(request.body.decode()))
    assert sent == {
        "grant_type": "refresh_token",
        "refresh_token": "refresh-1",
        "scope": "one two",
        "client_id": "client",
        "client_secret": "shh",
    }
    assert (found.access_token, found.refresh_token) == ("a", "r") and found.expires_ms == found.obtained_ms + 60_000
    assert "'a'" not in repr(found)


@pytest.mark.parametrize(
    ("more", "lives"),
    [({}, HOUR_MS), ({"expires_in": "90"}, 90_000), ({"expires_in": 0.5}, 500), ({"error": None}, HOUR_MS),
     ({"refresh_token": None}, HOUR_MS), ({"refresh_token": ""}, HOUR_MS), ({"expires_in": 1e300}, 10**13)]
    + [({"expires_in": wrong}, HOUR_MS)
       for wrong in (True, False, 0, -1, -1e300, 10**400, "9" * 400, "-5", "90 s", " 90", "\u0669", "", [], {}, None)],
    ids=str,
)  # fmt: skip
def test_a_life_that_makes_no_sense_is_taken_for_an_hour(more, lives):
    """Neither for a second nor for ever: both were what vendors' slips had come to."""
    found, _ = asked(told({"access_token": "a"} | more))
    assert found.refresh_token is None and found.expires_ms - found.obtained_ms == lives


@pytest.mark.parametrize(
    ("script", "word"),
    [
        (told({"error": "invalid_grant"}, "400 x"), "invalid_grant"),
        (told({"error": {"code": "refresh_token_reused"}}, "401 x"), "refresh_token_reused"),
        (told({"error": {"type": "invalid_request_error"}}, "403 x"), "invalid_request_error"),
        (answer(b"<html>", status="400 x"), "status 400"),
        (told({"error": "x\n" * 99}, "400 x"), "error"),
    ],
)
def test_a_no_is_for_good(script, word):
    with pytest.raises(TokenRefused) as no:
        asked(script)
    assert no.value.error == word


@pytest.mark.parametrize(
    "script",
    [
        told({"error": "temporarily_unavailable"}, "503 x"),
        told({"error": "slow_down"}, "429 x"),
        answer(b"<html>blocked</html>", status="403 x"),
        answer(b"moved", status="302 x"),
        answer(b"not json"),
        told([1]),
        told({}),
        told({"access_token": "a b"}),
        told({"access_token": "a\nb"}),
        told({"access_token": "a", "refresh_token": 7}),
        told({"access_token": "x" * 20_000}),
        [CLOSE],
        b"garbage\r\n\r\n",
    ],
    ids=str,
)
def test_what_is_no_answer_may_pass(script):
    with pytest.raises(TokenTrouble) as trouble:
        asked(script)
    assert "refresh-1" not in str(trouble.value)
