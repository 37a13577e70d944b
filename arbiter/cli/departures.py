"""What of a configuration differs from the defaults: each setting that no table of `arbiter check` shows anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from arbiter.config.load import parse
from arbiter.config.logins import AGENTS_HEADERS
from arbiter.config.redacted import redacted
from arbiter.config.snapshot import Provider, Snapshot

LEAST = "providers: { some: { type: echo } }"
SHOWN = {
    "server": {"bind", "port", "socket", "workers"},
    "storage": {"url"},
    "routing": {"default_provider", "fallback", "explicit_fallback"},
    "auth": {"mode"},
    "prices": {"overrides"},
}
"""What stands elsewhere, by section."""
SHOWN_SECTIONS = {"limits", "clients", "providers", "models", "aliases", "state"}
SHOWN_OF_PROVIDERS = {"type", "endpoint", "auth", "models", "auto_models", "timeouts", "retry", "limits", "cache_ttl"}
SHOWN_OF_PROVIDERS |= {"key", "keys", "access_key_id", "secret_access_key", "session_token", "oauth", "http"}

Row = tuple[str, str, object]
"""Where, which key, and what it is."""


def departures(snapshot: Snapshot) -> Iterator[Row]:
    """Every setting that was chosen, secrets as `***`: of providers and their models, then of the other sections."""
    least = parse(LEAST, "defaults", {"ARBITER_DATA_DIR": str(snapshot.data_dir)})
    resolved = redacted(snapshot)
    bare = redacted(replace(least, providers={name: _bare(one) for name, one in snapshot.providers.items()}))
    for name, provider in resolved["providers"].items():
        rest = {key: value for key, value in provider.items() if key not in SHOWN_OF_PROVIDERS}
        yield from _changed(name, rest, bare["providers"][name])
        for model in provider["models"]:
            plain = {"id": model["id"], "upstream": model["upstream"], "max_output_tokens": None}
            yield from _changed(f"{name}/{model['id']}", model, plain)
    for override in resolved["prices"]["overrides"]:
        yield "prices", "overrides", f"{override['provider']}/{override['model']}"
    for section, value in resolved.items():
        if section in SHOWN_SECTIONS:
            continue
        if isinstance(value, dict):
            rest = {key: one for key, one in value.items() if key not in SHOWN.get(section, ())}
            yield from _changed(section, rest, bare[section])
        elif value != bare[section]:
            yield section, "", _plain(value)


def _bare(provider: Provider) -> Provider:
    """The same provider, had nothing been said of it but who it is."""
    endpoint = replace(provider.endpoint, proxy=None, tls_ca=None, tls_cert=None, tls_key=None)
    bare = Provider(provider.name, provider.type, provider.wire, endpoint, auth=provider.auth)
    return replace(
        bare,
        prompt_cache="client" if bare.takes_logins else "auto",
        forward_headers=AGENTS_HEADERS[bare.type] if bare.takes_logins else (),
        billing="metered" if bare.auth == "key" else "subscription",
    )


def _changed(where: str, resolved: Mapping[str, Any], default: Mapping[str, Any], within: str = "") -> Iterator[Row]:
    for key, value in resolved.items():
        usual = default.get(key)
        if value == usual:
            continue
        if isinstance(value, dict) and value and isinstance(usual, dict) and usual:
            yield from _changed(where, value, usual, f"{within}{key}.")
        else:
            yield where, within + key, _plain(value)


def _plain(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(str(_plain(one)) for one in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items() if one is not None)
    if value in (None, ""):
        return "none"
    return str(value).lower() if isinstance(value, bool) else value
