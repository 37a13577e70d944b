"""What the sections of the file are made of: their base, the kinds of their values, and what is said of a key."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

Duration = Annotated[float, Meta(extra={"kind": "duration"}, extra_json_schema={"x-unit": "duration"})]
Size = Annotated[int, Meta(extra={"kind": "size"}, extra_json_schema={"x-unit": "size"})]
Price = Annotated[int, Meta(extra={"kind": "price"}, extra_json_schema={"x-unit": "price"})]
Moment = Annotated[int, Meta(extra={"kind": "moment"}, extra_json_schema={"x-unit": "moment"})]
Number = Annotated[float, Meta(extra={"kind": "number"}, extra_json_schema={"x-unit": "number"})]
# How long something is kept: years, if you like, and no less than it may take to arrive.
Ttl = Annotated[
    float,
    Meta(ge=3600, le=10 * 366 * 86400, extra={"kind": "duration"}, extra_json_schema={"x-unit": "duration"}),
]
Secret = Annotated[str, Meta(extra={"secret": True}, extra_json_schema={"x-unit": "secret"})]


def doc(text: str, ge: int | None = None, le: int | None = None) -> Meta:
    return Meta(description=text, ge=ge, le=le)


def instead(key: str, *written: str) -> dict[str, str]:
    """Hints for other programs' names of `key`."""
    return dict.fromkeys(written, f'unknown key; it is called "{key}" here')


class Section(Struct, forbid_unknown_fields=True):
    """A mapping of the file with known keys."""

    not_built: ClassVar[frozenset[str]] = frozenset()
    hints: ClassVar[dict[str, str]] = {}
