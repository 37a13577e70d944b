"""A file that holds one word and nothing else, such as the name of a default."""

from __future__ import annotations

from arbiter.cli.connecting.tree import Place

WORD: Place = ("word",)


def parse(text: str) -> dict[str, str]:
    """The word, where there is one."""
    return {"word": text.strip()} if text.strip() else {}


def put(text: str, place: Place, value: str) -> str:
    return value + ("\n" if text.endswith("\n") else "")


def drop(text: str, place: Place) -> str:
    return ""
