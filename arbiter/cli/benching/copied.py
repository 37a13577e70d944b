"""The operator's configuration, as much of it as decides what a request costs, around one upstream of our own.

What is taken over is named here, section by section, and taken from the configuration as `arbiter check` shows it, in
which no secret stands. Providers, their keys, plugins, the store and the state are never among it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arbiter.config.redacted import redacted
from arbiter.config.snapshot import Snapshot, key_digest

PROVIDER, MODEL, PACED = "bench", "bench", "bench-paced"
CLIENT_KEY, UPSTREAM_KEY = "arbiter-bench-client", "arbiter-bench-upstream"

_TAKEN = {
    "server": ("workers", "drain", "keepalive", "commit_after", "stream_failure"),
    "limits": None,  # all of it
    "auth": None,
    "session_affinity": None,
    "sessions": ("trust_user_agent", "prompt_cache_key", "idle_timeout"),
    "search": ("index",),
    "telemetry": None,
}
_OF_STORAGE = ("journal_max", "on_full", "capture")


def is_messages(snapshot: Snapshot) -> bool:
    """Whether its first provider speaks Anthropic's Messages; the bench then does so, too, and else OpenAI's Chat."""
    return next(iter(snapshot.providers.values())).wire == "anthropic-messages"


def configuration(snapshot: Snapshot, *, port: int, upstream_port: int, data: Path) -> dict[str, Any]:
    """An `arbiter.yaml` for this run: the operator's dials; all that it touches is below `data` or on loopback."""
    theirs = redacted(snapshot)
    config: dict[str, Any] = {
        section: theirs[section] if keys is None else {key: theirs[section][key] for key in keys}
        for section, keys in _TAKEN.items()
    }
    config["server"] |= {"bind": "127.0.0.1", "port": port}
    # A store that keeps nothing is a choice that costs less; where another keeps it is not ours to touch.
    keeps = snapshot.storage.url != "none"
    config["storage"] = {
        "url": f"sqlite:///{data / 'arbiter.db'}" if keeps else "none",
        **{key: theirs["storage"][key] for key in _OF_STORAGE},
    }
    config["state"] = f"lmdb://{data / 'state'}"
    if snapshot.auth.mode != "none":
        config["clients"] = [{"name": "bench", "key_hash": f"sha256:{key_digest(CLIENT_KEY)}"}]
    config["providers"] = {
        PROVIDER: {
            "type": "anthropic" if is_messages(snapshot) else "openai",
            "endpoint": f"http://127.0.0.1:{upstream_port}/v1",
            "key": UPSTREAM_KEY,
            "models": [MODEL, PACED],
            "proxy": "none",
        }
    }
    return config


def left_out(snapshot: Snapshot) -> list[str]:
    """What of the operator's configuration was not measured, in words."""
    found = []
    if snapshot.plugins:
        found.append(f"plugins ({len(snapshot.plugins)}): they may call others")
    if snapshot.storage.url.startswith("postgres"):
        found.append("PostgreSQL: rows went to a throw-away SQLite file")
    if snapshot.sessions.titles is not None:
        found.append("titles of sessions")
    if snapshot.search.embed is not None:
        found.append("vectors for the search by meaning")
    return found
