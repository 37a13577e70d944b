"""Names and ids that OpenAI's format would refuse, made to fit: each a function of the name alone.

So the same call has the same id in every turn (SPEC 2.4), and its result finds it. A shortened tool name must be read
back in answers: `renamed` says which is whose.
"""

from __future__ import annotations

import hashlib
import re

from arbiter.errors import BadRequest
from arbiter.model import Request, Tool
from arbiter.wire.openai_models import Dialect

MAX_CALL_ID = 40  # in a chat
MAX_NAME = 64
MAX_USER = 64

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_NINE = re.compile(r"[a-zA-Z0-9]{9}\Z")
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def sent_name(name: str) -> str:
    """Return a tool's name as it is sent: itself, or its beginning with a digest of the whole behind it."""
    if (len(name) <= MAX_NAME and name.isascii() and name.isidentifier()) or _NAME.match(name):  # quicker, for most
        return name
    digest = _digest(name)[:12]
    return f"{_FOREIGN.sub('_', name[: MAX_NAME - 13])}_{digest}"


def renamed(request: Request) -> dict[str, Tool]:
    """Return the tools whose name is not sent as it is, by the sent one. Empty for nearly every request.

    Errors: BadRequest where two tools would be sent under one name.
    """
    if not request.tools:
        return {}
    tools = [tool for tool in request.tools if type(tool) is Tool]
    shortened = {sent: tool for tool in tools if (sent := sent_name(tool.name)) != tool.name}
    if shortened and not shortened.keys().isdisjoint(tool.name for tool in tools):
        raise BadRequest("two tools have names that cannot be told apart in 64 characters", param="tools")
    return shortened


def sent_call_id(call_id: str, dialect: Dialect) -> str:
    """Return the id of a call, and of its result, as it is sent."""
    if dialect.call_ids == "9":
        return call_id if _NINE.match(call_id) else _nine(call_id)
    return call_id if dialect.call_ids == "any" else short_call_id(call_id, MAX_CALL_ID)


def short_call_id(call_id: str, most: int) -> str:
    """Return the id of a call in at most so many characters, which are at least 40, and one that is none where it is
    empty."""
    if not call_id:
        return "call"
    return call_id if len(call_id) <= most else f"call_{_digest(call_id)[: MAX_CALL_ID - 5]}"


def sent_user(user: str) -> str:
    """Return who the user is in at most 64 characters: a longer name (Claude Code's is JSON) as its SHA-256."""
    return user if len(user) <= MAX_USER else _digest(user)


def _nine(call_id: str) -> str:
    number = int(_digest(call_id), 16)
    letters = []
    for _ in range(9):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return "".join(letters)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
