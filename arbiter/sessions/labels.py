"""Words that a caller gives its requests, to find them by: `X-Arbiter-Label: issue=12` (SPEC 7.2)."""

from __future__ import annotations

import re

from arbiter.sessions.signals import Fields

HEADER = "x-arbiter-label"
MOST = 16
MAX_NAME, MAX_VALUE = 64, 256

_label = re.compile(rf"([A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}})=([!-~](?:[ -~]{{0,{MAX_VALUE - 1}}}))").fullmatch


def labels_of(fields: Fields) -> dict[str, str] | None:
    """The labels of a request by their name; None without any.

    Shapes: several stand in several headers, or in one with commas between. What is malformed is passed over, and so is
    what comes after `MOST`; of two with one name the last counts.
    """
    told = fields.get(HEADER)
    if told is None:
        return None
    found: dict[str, str] = {}
    for part in told.split(",", 4 * MOST)[: 4 * MOST]:
        match = _label(part.strip())
        if match is not None and (match[1] in found or len(found) < MOST):
            found[match[1]] = match[2]
    return found or None
