"""Servers of OpenAI's format that refuse a member of a message which they do not know, each in its own words.

They work off an errand as `fakes.thinkers` do; `MEMBER` is the one member for reasoning that each knows. A thought of
its own has to come back with its call, as it was: the servers themselves do not insist, but their models are worse
without.

Source: what users of each server reported of its 400s, 2025 and 2026.
"""

from __future__ import annotations

from typing import Any

from tests.fakes.thinkers import DeepSeek


class Groq(DeepSeek):
    PREFIX, MEMBER, must_have = "groq", "reasoning", False

    def unknown(self, place: int, member: str, value: Any) -> str:
        at = f"'messages.{place}'"
        why = f"property '{member}' is unsupported"
        return f"{at} : for 'role:assistant' the following must be satisfied[({at} : {why})]"

    def refusal(self, message: str) -> tuple[str, dict[str, Any]]:
        return "400 Bad Request", {"error": {"message": message, "type": "invalid_request_error"}}


class Cerebras(DeepSeek):
    PREFIX, MEMBER, must_have = "cerebras", "reasoning", False

    def unknown(self, place: int, member: str, value: Any) -> str:
        at = f"messages.{place}.assistant.{member}"
        return f"{at}: property '{at}' is unsupported"

    def refusal(self, message: str) -> tuple[str, dict[str, Any]]:
        told = {"message": message, "type": "invalid_request_error"}
        return "400 Bad Request", {**told, "param": "validation_error", "code": "wrong_api_format"}


class Fireworks(DeepSeek):
    PREFIX, must_have = "fireworks", False

    def unknown(self, place: int, member: str, value: Any) -> str:
        return f"Extra inputs are not permitted, field: 'messages[{place}].{member}', value: {value!r}"

    def refusal(self, message: str) -> tuple[str, dict[str, Any]]:
        word = "invalid_request_error"
        return "400 Bad Request", {"error": {"object": "error", "type": word, "code": word, "message": message}}


class Mistral(DeepSeek):
    PREFIX, MEMBER, must_have = "mistral", None, False

    def unknown(self, place: int, member: str, value: Any) -> str:
        return f"messages {place} assistant {member}"

    def refusal(self, message: str) -> tuple[str, dict[str, Any]]:
        found = {"type": "extra_forbidden", "loc": ["body", *message.split()], "msg": "Extra inputs are not permitted"}
        told = {"object": "error", "message": {"detail": [found]}, "type": "invalid_request_error"}
        return "422 Unprocessable Entity", {**told, "param": None, "code": None}


class OpenAI(DeepSeek):
    PREFIX, MEMBER, must_have = "openai", None, False

    def unknown(self, place: int, member: str, value: Any) -> str:
        return f"messages[{place}].{member}"

    def refusal(self, message: str) -> tuple[str, dict[str, Any]]:
        told = {"message": f"Unknown parameter: '{message}'.", "type": "invalid_request_error"}
        return "400 Bad Request", {"error": {**told, "param": message, "code": "unknown_parameter"}}
