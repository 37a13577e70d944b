"""The cases' neutral set-up as an arbiter.yaml.

    python tests/cases/run_cases.py --emit-config | python tests/cases/adapter.py DATA_DIR > arbiter.yaml

A target becomes a provider named after it, with a dash where the target has a dot. `single` declares the route's model
there; `fallback` and `balance` become a group of that name, so their providers call the model by the target's name: a
declared model would win over the alias. Targets of a format that is not built are left out.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

TYPES = {
    "openai-chat": "openai",
    "anthropic-messages": "anthropic",
    "openai-responses": "openai",
    "embeddings": "openai",
}
APIS = {"openai-chat": "chat", "anthropic-messages": "messages", "openai-responses": "responses"}
PRICES = ("input", "cached_input", "cache_write_5m", "cache_write_1h", "output")
SELECT = {"fallback": "ordered", "balance": "random"}
ADMIN_TOKEN = "admin-token-dummy-0001"


def arbiter_config(neutral: dict[str, Any], data_dir: Path) -> dict[str, Any]:
    """Return what `arbiter.yaml` must say for the routes of `neutral`; rows and state go below `data_dir`."""
    providers: dict[str, Any] = {}
    models: list[dict[str, Any]] = []
    aliases: dict[str, Any] = {}
    limits: dict[str, str] = {}
    for route in neutral["routes"]:
        select = SELECT.get(route["policy"])
        timeouts = _timeouts(route.get("timeouts", {}))
        group = []
        for target in route["targets"]:
            if target["format"] not in TYPES:
                continue
            name = target["name"].replace(".", "-")
            provider = providers.setdefault(
                name,
                {
                    "type": TYPES[target["format"]],
                    "endpoint": target["base_url"],
                    "key": target["api_key"],
                    "models": [],
                    "retry": {"attempts": 4},
                },
            )
            model = route["model"] if select is None else target["name"]
            api = {"api": APIS[target["format"]]} if target["format"] in APIS else {}
            provider["models"].append({"id": model, "upstream": target["model"], **api})
            group.append(f"{name}/{model}")
            if "prices" in route:
                models.append({"model": f"{name}/{model}", **_prices(route["prices"])})
            if timeouts:
                provider["timeouts"] = timeouts
        if select is not None and group:
            aliases[route["model"]] = {"group": group, "select": select}
        if group and "request_read_s" in route.get("timeouts", {}):
            limits["slow_sender"] = f"{route['timeouts']['request_read_s']}s"
    config: dict[str, Any] = {
        "auth": {"mode": "require"},
        "clients": [
            {"name": f"case-runner-{number}", "key_hash": f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"}
            for number, key in enumerate(neutral["client_keys"])
        ],
        "admin": {"token": ADMIN_TOKEN},
        "providers": providers,
        "storage": {"url": f"sqlite:///{data_dir / 'arbiter.db'}"},
        "state": f"lmdb:///{data_dir / 'state'}",
    }
    if aliases:
        config["aliases"] = aliases
    if models:
        config["models"] = models
    if limits:
        config["limits"] = limits
    return config


def _timeouts(patience: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    if "first_byte_s" in patience:
        found |= {"headers": f"{patience['first_byte_s']}s", "first_event": f"{patience['first_byte_s']}s"}
    if "idle_s" in patience:
        found["idle"] = f"{patience['idle_s']}s"
    return found


def _prices(written: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {f"{name}_usd_per_mtok": written[name] for name in PRICES if name in written}
    if "tiers" in written:
        found["tiers"] = [
            {"above_input_tokens": tier["above_input_tokens"], **_prices(tier)} for tier in written["tiers"]
        ]
    return found


def main() -> None:
    yaml.safe_dump(arbiter_config(json.load(sys.stdin), Path(sys.argv[1]).resolve()), sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()
