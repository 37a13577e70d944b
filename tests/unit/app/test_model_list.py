"""`GET /models`: what a caller may name, models and aliases of every kind."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from arbiter.app.endpoints import model_list
from arbiter.config.load import parse
from arbiter.config.snapshot import key_digest
from arbiter.routing.plan import ANYONE, Caller

TEXT = f"""
providers:
  p: {{ type: openai, key: k, models: [big, small] }}
aliases:
  fast: {{ pin: p/small, advertise_as: claude-fast }}
  cheap: {{ group: [p/small, fast, p/big], select: random, display_name: Cheap and cheerful }}
clients:
  - {{ name: ci, key_hash: "sha256:{key_digest("k")}", allow: [cheap, "b*"] }}
"""
SNAPSHOT = parse(TEXT, "t.yaml", {})


def listed(caller: Caller) -> list[dict[str, Any]]:
    worker = SimpleNamespace(services=SimpleNamespace(snapshot=SNAPSHOT), started_s=1, started_iso="1970")
    body = json.loads(model_list(worker, caller))  # type: ignore[arg-type]
    assert (body["first_id"], body["last_id"]) == (body["data"][0]["id"], body["data"][-1]["id"])
    return list(body["data"])


def test_groups_and_pinned_aliases_are_listed_with_the_models():
    found = {one["id"]: (one["owned_by"], one["display_name"]) for one in listed(ANYONE)}
    assert found == {
        "claude-fast": ("alias", "fast"),
        "cheap": ("alias", "Cheap and cheerful"),
        "big": ("p", "big"),
        "small": ("p", "small"),
    }


def test_a_key_is_shown_what_it_may_name_and_not_what_is_behind_it():
    assert [one["id"] for one in listed(Caller(SNAPSHOT.clients[0]))] == ["cheap", "big"]
