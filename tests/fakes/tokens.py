"""A vendor that people log in to: its token endpoint with single-use refresh tokens, and its API behind them.

    vendor = TokenVendor(port)
    async with vendor.origin: ...          # POST /token, POST /device, and the API at any other path

A refresh token that comes a second time ends the whole family, as vendors do. `refreshes` are those that came; `hold`
(an asyncio.Event) keeps answers to them back, after the rotation has happened; `says` is sent in place of the next.
With `keeps` an access token stays good when there is a newer one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from typing import Any
from urllib.parse import parse_qsl

from tests.fakes.origin import Origin, Peer, Request, answer

JSON = ("content-type", "application/json")
CLIENT_ID = "client-of-the-tests"


class TokenVendor:
    """See the module's docstring."""

    def __init__(self, port: int, *, lives_s: int = 3600) -> None:
        self.origin = Origin(self._serve, port=port)
        self.lives_s = lives_s
        self.number = 0
        self.current = ""  # the one refresh token that is good
        self.access: set[str] = set()
        self.keeps = False
        self.used: set[str] = set()
        self.refreshes: list[str] = []
        self.asked: list[Request] = []  # of the API
        self.hold: asyncio.Event | None = None
        self.says: list[bytes] = []
        self.api: bytes | None = None  # the API's answer, in place of its own
        self.codes: dict[str, str] = {}  # by code, the challenge that was sent with it
        self.pending = 0  # polls of a login by device that are told to wait
        self.exchanged: list[dict[str, str]] = []

    def give(self) -> dict[str, Any]:
        """Log somebody in: what they get."""
        self.number += 1
        self.current = f"refresh-{self.number:04}-of-the-tests"
        access = f"access-{self.number:04}-of-the-tests"
        self.access = {access, *(self.access if self.keeps else ())}
        return {"access_token": access, "refresh_token": self.current, "expires_in": self.lives_s}

    async def _serve(self, peer: Peer, request: Request) -> None:
        if request.target == "/token":
            await peer.send(await self._token(request))
        elif request.target == "/device":
            told = {"device_code": "dev-1", "user_code": "ABCD", "verification_uri": "https://v.test", "interval": 0.01}
            await peer.send(answer(json.dumps(told).encode(), headers=[JSON]))
        else:
            self.asked.append(request)
            bearer = (request.header("authorization") or "").removeprefix("Bearer ")
            if self.api is not None:
                await peer.send(self.api)
            elif bearer in self.access:
                await peer.send(answer(json.dumps(MESSAGE).encode(), headers=[JSON]))
            else:
                error = {"type": "error", "error": {"type": "authentication_error", "message": f"bad {bearer}"}}
                await peer.send(answer(json.dumps(error).encode(), status="401 x", headers=[JSON]))

    async def _token(self, request: Request) -> bytes:
        is_json = (request.header("content-type") or "").startswith("application/json")
        asked = json.loads(request.body) if is_json else dict(parse_qsl(request.body.decode()))
        assert asked["client_id"] == CLIENT_ID
        if asked["grant_type"] == "refresh_token":
            self.refreshes.append(asked["refresh_token"])
            if self.says:
                return self.says.pop(0)
            found = self._rotated(asked["refresh_token"])
            if self.hold is not None:
                await self.hold.wait()
            return found
        self.exchanged.append(asked)
        if asked["grant_type"] == "authorization_code":
            digest = hashlib.sha256(asked["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if self.codes.pop(asked["code"], None) != challenge:
                return refused("invalid_grant")
        elif self.pending:
            self.pending -= 1
            return refused("authorization_pending")
        return answer(json.dumps(self.give()).encode(), headers=[JSON])

    def _rotated(self, token: str) -> bytes:
        if token in self.used:
            self.current, self.access = "", set()  # somebody has stolen one, or so it looks
        if token != self.current or not token:
            return refused("invalid_grant")
        self.used.add(token)
        return answer(json.dumps(self.give()).encode(), headers=[JSON])


def refused(error: str, status: str = "400 Bad Request") -> bytes:
    return answer(json.dumps({"error": error, "error_description": "no"}).encode(), status=status, headers=[JSON])


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
           "stop_reason": "end_turn", "stop_sequence": None,
           "usage": {"input_tokens": 1_000_000, "output_tokens": 1}}  # fmt: skip
