"""Vertex AI through a whole gateway: Google's models and Anthropic's, on a service account's tokens."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.fakes.client import ask, run
from tests.fakes.gateway import Gateway, free_port
from tests.fakes.origin import Origin, Peer, Request, answer
from tests.fakes.wires import GEMINI, JSON, MESSAGES

PLACE = "/v1/projects/my-project/locations/us-east5/publishers"
PRIVATE = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Google:
    """Its token endpoint, which believes what the key signed, and its API behind it."""

    def __init__(self, port: int) -> None:
        self.origin = Origin(self._serve, port=port)
        self.tokens: list[str] = []
        self.refused: set[str] = set()
        self.claims: list[dict[str, Any]] = []
        self.asked: list[Request] = []
        self.counts: dict[str, bytes] = {}
        self.lives_s = 3600
        self.is_down = False

    async def _serve(self, peer: Peer, request: Request) -> None:
        if request.target == "/token":
            await peer.send(self._token(request))
            return
        self.asked.append(request)
        bearer = (request.header("authorization") or "").removeprefix("Bearer ")
        if bearer not in self.tokens or bearer in self.refused:
            error = {"error": {"code": 401, "message": "no", "status": "UNAUTHENTICATED"}}
            await peer.send(answer(json.dumps(error).encode(), status="401 Unauthorized", headers=[JSON]))
            return
        if (counted := self.counts.get(request.target.rpartition("/")[2])) is not None:
            await peer.send(counted)
            return
        wire = MESSAGES if "/anthropic/" in request.target else GEMINI
        await peer.send(answer(wire.answer("hello"), headers=[JSON]))

    def _token(self, request: Request) -> bytes:
        if self.is_down:
            return answer(b"busy", status="503 Service Unavailable")
        asked = dict(parse_qsl(request.body.decode()))
        assert asked["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer" and "client_id" not in asked
        said, _, signature = asked["assertion"].rpartition(".")
        PRIVATE.public_key().verify(_raw(signature), said.encode(), padding.PKCS1v15(), SHA256())
        head, claims = (json.loads(_raw(one)) for one in said.split("."))
        assert head == {"alg": "RS256", "typ": "JWT", "kid": "kid-1"}
        self.claims.append(claims)
        self.tokens.append(f"ya29.token-{len(self.tokens)}-of-the-tests")
        told = {"access_token": self.tokens[-1], "expires_in": self.lives_s, "token_type": "Bearer"}
        return answer(json.dumps(told).encode(), headers=[JSON])


def _raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def config(port: int, folder: Path, **provider: Any) -> dict[str, Any]:
    pem = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {"type": "service_account", "client_email": "gw@my-project.iam.gserviceaccount.com", "private_key": pem}
    file = folder / "service.json"
    at = f"http://127.0.0.1:{port}"
    file.write_text(json.dumps({**account, "private_key_id": "kid-1", "token_uri": f"{at}/token"}))
    vertex = {
        **{"type": "vertex", "project": "my-project", "location": "us-east5", "endpoint": at},
        **{"credentials": str(file), "models": ["gemini-2.5-pro", "claude-sonnet-4-5@20250929"]},
        "retry": {"attempts": 1},
    }
    return {"providers": {"vertex": {**vertex, **provider}}}


def test_both_vendors_models_are_asked_on_one_token(tmp_path: Path) -> None:
    """Each at its own path; a body of Messages names the version of its format, and no model."""
    port = free_port()

    async def main() -> None:
        google = Google(port)
        async with google.origin:
            for _ in range(2):
                found = await ask(gateway.port, GEMINI.at("gemini-2.5-pro"), GEMINI.ask())
                assert (found.status, found.json["candidates"][0]["content"]["parts"]) == (200, [{"text": "hello"}])
            body = MESSAGES.ask(model="claude-sonnet-4-5@20250929")
            found = await ask(gateway.port, MESSAGES.path, body)
            assert (found.status, found.json["content"][0]["text"]) == (200, "hello")
            found = await ask(gateway.port, GEMINI.at("claude-sonnet-4-5@20250929"), GEMINI.ask())
            assert found.json["candidates"][0]["content"]["parts"] == [{"text": "hello"}]
        (claims,) = google.claims
        assert (claims["iss"], claims["aud"]) == (
            "gw@my-project.iam.gserviceaccount.com",
            f"http://127.0.0.1:{port}/token",
        )
        assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
        assert claims["exp"] - claims["iat"] == 3600
        targets = [one.target for one in google.asked]
        claude = f"{PLACE}/anthropic/models/claude-sonnet-4-5@20250929:rawPredict"
        assert targets == [f"{PLACE}/google/models/gemini-2.5-pro:generateContent"] * 2 + [claude] * 2
        for one in google.asked[2:]:
            sent = json.loads(one.body)
            assert sent["anthropic_version"] == "vertex-2023-10-16" and "model" not in sent
        assert gateway.row(found.trace_id)["attempts"][0]["format_out"] == "anthropic-messages"

    with Gateway(config(port, tmp_path), tmp_path / "gateway", workers=1) as gateway:
        run(main)
    assert "PRIVATE KEY" not in gateway.log and "ya29" not in gateway.log


def test_a_token_is_renewed_before_its_end_and_where_it_was_taken_back(tmp_path: Path) -> None:
    """One about to end is renewed; where that fails it serves on; one that was refused is not sent again."""
    port = free_port()

    async def main() -> None:
        google = Google(port)
        async with google.origin:
            google.lives_s = 200  # less than it has to have left
            for number in (1, 2):
                assert (await ask(gateway.port, GEMINI.at("gemini-2.5-pro"), GEMINI.ask())).status == 200
                assert len(google.tokens) == number
            google.is_down = True
            assert (await ask(gateway.port, GEMINI.at("gemini-2.5-pro"), GEMINI.ask())).status == 200
            google.is_down, google.lives_s = False, 3600
            assert (await ask(gateway.port, GEMINI.at("gemini-2.5-pro"), GEMINI.ask())).status == 200
            assert len(google.tokens) == 3
            google.refused = set(google.tokens)
            assert (await ask(gateway.port, GEMINI.at("gemini-2.5-pro"), GEMINI.ask())).status == 200
            assert len(google.tokens) == 4
        google.is_down = True

    with Gateway(config(port, tmp_path), tmp_path / "gateway", workers=1) as gateway:
        run(main)


def test_a_token_may_be_given_and_is_a_bearers(tmp_path: Path) -> None:
    """A stream of Google's, and one of Anthropic's: each at the method that streams."""
    port = free_port()

    async def main() -> None:
        google = Google(port)
        google.tokens.append("ya29.given")
        async with google.origin:
            await ask(gateway.port, GEMINI.at("gemini-2.5-pro", stream=True), GEMINI.ask())
            await ask(gateway.port, MESSAGES.path, MESSAGES.ask(model="claude-sonnet-4-5@20250929", stream=True))
        assert [one.target for one in google.asked] == [
            f"{PLACE}/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            f"{PLACE}/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict",
        ]
        assert json.loads(google.asked[1].body)["stream"] is True

    told = config(port, tmp_path, key="ya29.given")
    del told["providers"]["vertex"]["credentials"]
    with Gateway(told, tmp_path / "gateway", workers=1) as gateway:
        run(main)


def test_both_vendors_models_are_counted(tmp_path: Path) -> None:
    """A Claude by a model of that name, which is told in the body what to count for; a whole request of Gemini's as the
    members of it that a count has here. Where Claudes are not counted, an estimate is given, and nobody asked again."""
    port = free_port()
    claude, count = "claude-sonnet-4-5@20250929", "/v1/messages/count_tokens"

    async def main() -> None:
        google = Google(port)
        google.counts["count-tokens:rawPredict"] = answer(b'{"input_tokens":42}', headers=[JSON])
        google.counts["gemini-2.5-pro:countTokens"] = answer(b'{"totalTokens":43}', headers=[JSON])
        async with google.origin:
            asked = {"model": claude, "messages": MESSAGES.ask()["messages"]}
            found = await ask(gateway.port, count, asked)
            assert (found.status, found.body, found.header("x-arbiter-estimate")) == (200, b'{"input_tokens":42}', None)
            inner = {"model": "models/gemini-2.5-pro", **GEMINI.ask(), "toolConfig": {}, "safetySettings": []}
            path = "/v1beta/models/gemini-2.5-pro:countTokens"
            for body in ({"generateContentRequest": inner}, GEMINI.ask()):
                found = await ask(gateway.port, path, body)
                assert (found.status, found.body) == (200, b'{"totalTokens":43}')
            refused = {"error": {"code": 404, "message": "Publisher Model `projects/p/locations/x/publishers/anthropic/"
                                 "models/count-tokens` was not found.", "status": "NOT_FOUND"}}  # fmt: skip
            google.counts["count-tokens:rawPredict"] = answer(
                json.dumps(refused).encode(), status="404 Not Found", headers=[JSON]
            )
            for _ in range(2):
                found = await ask(gateway.port, count, asked)
                assert (found.status, found.header("x-arbiter-estimate")) == (200, "unsupported")
        told = [(one.target, json.loads(one.body)) for one in google.asked]
        at = f"{PLACE}/anthropic/models/count-tokens:rawPredict"
        versioned = {**asked, "anthropic_version": "vertex-2023-10-16"}
        gemini = (f"{PLACE}/google/models/gemini-2.5-pro:countTokens", GEMINI.ask())
        assert told == [(at, versioned), gemini, gemini, (at, versioned)]

    with Gateway(config(port, tmp_path), tmp_path / "gateway", workers=1) as gateway:
        run(main)


@pytest.mark.parametrize("status", ["400 Bad Request", "503 Service Unavailable"])
def test_who_gets_no_token_is_told_whose_fault_it_is(tmp_path: Path, status: str) -> None:
    """An account that Google does not know is the configuration's fault, an endpoint that is down is theirs."""
    port = free_port()

    async def main() -> None:
        async with Origin(answer(b'{"error":"invalid_grant"}', status=status, headers=[JSON]), port=port):
            found = await ask(gateway.port, GEMINI.at("gemini-2.5-pro"), GEMINI.ask())
        row = gateway.row(found.trace_id)
        assert (found.status, row["error_class"]) == (502, "config" if status[0] == "4" else "upstream_error")

    with Gateway(config(port, tmp_path), tmp_path / "gateway", workers=1) as gateway:
        run(main)
