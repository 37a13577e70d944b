"""Real providers' errors: `tests/vectors/errors/`, each with where its shape came from.

A provider's new way to say no arrives as a new file: what it sent, the class that is meant, what may help, and for how
long it asked us to stay away.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arbiter.errors import ErrorClass, Retry
from arbiter.wire import faults, waits

FILES = sorted((Path(__file__).parents[2] / "vectors" / "errors").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_a_provider_means_by_its_error_is_known(file: Path) -> None:
    """SPEC 4.4, 4.8: by its class an agent knows what to do, and by what may help, the ladder."""
    vector: dict[str, Any] = json.loads(file.read_text())
    headers = list(vector["headers"].items())
    body = json.dumps(vector["body"], ensure_ascii=False).encode()
    error = faults.read(vector["status"], headers, body)
    assert error.code is ErrorClass(vector["class"])
    assert error.retry is Retry(vector["retry"])
    assert waits.wait_s(vector["status"], headers, body, 1_764_555_529_000) == vector.get("wait_s")
    assert "{" not in str(error) and len(str(error)) > 8, "there is something for people to read"
    assert vector["source"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("not JSON", "Provider returned error: not JSON"),
        ('{"error":"plain"}', "Provider returned error: plain"),
        ('{"detail":1}', "Provider returned error"),
        ("", "Provider returned error"),
        ("x" * 100_000, "Provider returned error"),
        ("[" * 5_000, None),
        ('{"error":{"message":"a","metadata":{"raw":"{\\"error\\":\\"b\\"}"}}}', "Provider returned error: a"),
    ],
)
def test_an_error_in_an_error_is_read_once_and_never_far(raw: str, said: str | None) -> None:
    """What a router repeats of the server behind it is somebody else's text: of any shape and size."""
    body = json.dumps({"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": raw}}}).encode()
    error = faults.read(400, [], body)
    assert error.code is ErrorClass.BAD_REQUEST and len(str(error)) <= faults.MAX_MESSAGE
    assert said is None or str(error) == said
