"""The configuration in the file's shape, as one may see it: everything resolved, and `***` for each secret."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from arbiter.config import units
from arbiter.config.rates import FEES, Card, Pricing, Rate
from arbiter.config.snapshot import Account, Alias, CacheFacts, Client, Endpoint, OAuth, Provider, Snapshot

MASK = "***"


def redacted(snapshot: Snapshot) -> dict[str, Any]:
    """The whole of it."""
    return {
        "server": {
            "bind": snapshot.server.bind,
            "port": snapshot.server.port,
            "socket": snapshot.server.socket,
            "workers": snapshot.server.workers,
            "drain": units.duration(snapshot.server.drain_s),
            "keepalive": units.duration(snapshot.server.keepalive_s),
            "commit_after": units.duration(snapshot.server.commit_after_s),
            "stream_failure": snapshot.server.stream_failure,
            "trusted_proxies": [str(network) for network in snapshot.server.trusted_proxies],
        },
        "limits": {
            "body": units.size(snapshot.limits.body),
            "headers": units.size(snapshot.limits.headers),
            "event": units.size(snapshot.limits.event),
            "answer": units.size(snapshot.limits.answer),
            "stream_buffer": units.size(snapshot.limits.stream_buffer),
            "slow_sender": units.duration(snapshot.limits.slow_sender_s),
            "json_depth": snapshot.limits.json_depth,
        },
        "auth": {"mode": snapshot.auth.mode},
        "clients": [redacted_client(client) for client in snapshot.clients],
        "providers": {name: _provider(provider) for name, provider in snapshot.providers.items()},
        "models": [{"model": name, **_row(rate, card)} for name, rate, card in snapshot.catalog()],
        "prices": _pricing(snapshot.pricing),
        "aliases": {name: _alias(alias) for name, alias in snapshot.aliases.items() if name == alias.name},
        "routing": {
            "default_provider": snapshot.routing.default_provider,
            "fallback": [member.name for member in snapshot.routing.fallback],
            "explicit_fallback": snapshot.routing.explicit_fallback,
        },
        "session_affinity": {
            "header": snapshot.affinity.header,
            "ttl": units.duration(snapshot.affinity.ttl_s),
            "no_pin": sorted(snapshot.affinity.no_pin),
        },
        "sessions": {
            "trust_user_agent": snapshot.sessions.trust_user_agent,
            "prompt_cache_key": snapshot.sessions.prompt_cache_key,
            "idle_timeout": units.duration(snapshot.sessions.idle_timeout_s),
            "titles": {} if snapshot.sessions.titles is None else asdict(snapshot.sessions.titles),
        },
        "reasoning": {"keys": [MASK] * len(snapshot.reasoning_keys) if snapshot.has_own_keys else []},
        "state": f"lmdb://{snapshot.state_dir}" if snapshot.state_dir.is_absolute() else f"lmdb:{snapshot.state_dir}",
        "storage": {
            "url": snapshot.storage.shown,
            "journal_max": units.size(snapshot.storage.journal_max),
            "on_full": snapshot.storage.on_full,
            "capture": {
                "content": snapshot.storage.capture.content,
                "headers": snapshot.storage.capture.headers,
                "ttl": units.duration(snapshot.storage.capture.ttl_s),
                "redact": list(snapshot.storage.capture.redact),
                "preview_chars": snapshot.storage.capture.preview_chars,
                "max": units.size(snapshot.storage.capture.max),
            },
            "rows_ttl": "never" if snapshot.storage.rows_ttl_s is None else units.duration(snapshot.storage.rows_ttl_s),
        },
        "search": {
            "index": snapshot.search.index,
            "embed": {} if snapshot.search.embed is None else asdict(snapshot.search.embed),
        },
        "admin": {"token": _mask(snapshot.admin.token), "forward_auth_header": snapshot.admin.forward_auth_header},
        "telemetry": {
            "log": {"level": snapshot.telemetry.log_level, "format": snapshot.telemetry.log_format},
            "metrics": snapshot.telemetry.metrics,
        },
        "plugins": [{"use": plugin.use, "required": plugin.required} for plugin in snapshot.plugins],
    }


def redacted_client(client: Client) -> dict[str, Any]:
    """One of `clients`."""
    return {
        "name": client.name,
        "key_hash": MASK,
        "agent": client.agent,
        "allow": list(client.allow),
        "expires": None if client.expires_ms is None else units.moment(client.expires_ms),
        "group": client.group,
        "overrides": dict(client.overrides),
        "metadata": dict(client.metadata),
    }


def _provider(provider: Provider) -> dict[str, Any]:
    endpoint = provider.endpoint
    return {
        "type": provider.type,
        "endpoint": None if endpoint.scheme == "echo" else endpoint.url,
        "auth": provider.auth,
        **_keys(provider.accounts),
        "models": [
            {
                "id": model.id,
                "upstream": model.upstream,
                "max_output_tokens": model.max_output,
                **({"api": model.api} if model.api is not None else {}),
                **({"cache": _cache(model.cache)} if model.cache != CacheFacts() else {}),
            }
            for model in provider.models
        ],
        **({"oauth": _oauth(provider.oauth)} if provider.oauth is not None else {}),
        "auto_models": "on" if provider.auto_models else "off",
        "relay": provider.relay,
        "api": provider.api,
        **({"api_version": provider.api_version} if provider.api_version is not None else {}),
        **({"region": provider.region} if provider.region is not None else {}),
        "responses_api": provider.responses_api,
        "prompt_cache": provider.prompt_cache,
        "prompt_cache_ttl": provider.prompt_cache_ttl,
        "attribution": provider.attribution,
        "timeouts": {phase: units.duration(budget) for phase, budget in provider.budgets.items()},
        "connections": {
            "max": provider.max_connections,
            "idle": provider.idle_connections,
            "idle_for": units.duration(provider.idle_for_s),
        },
        "retry": {
            "attempts": provider.retry.attempts,
            "budget": units.duration(provider.retry.budget_s),
            "base": units.duration(provider.retry.base_s),
            "cap": units.duration(provider.retry.cap_s),
            "before_fallback": provider.retry.before_fallback,
            "accepted_timeout": provider.retry.accepted_timeout,
        },
        "limits": {
            "requests_per_minute": provider.request_limits.per_minute,
            "requests_per_day": provider.request_limits.per_day,
        },
        "cache_ttl": units.duration(provider.pin_ttl_s),
        "cache": _cache(provider.cache),
        "speechless": provider.speechless,
        "billing": provider.billing,
        "priced_as": provider.priced_as,
        "headers": {name: MASK for name, _ in provider.headers},
        "forward_headers": list(provider.forward_headers),
        "host": endpoint.host_header,
        "http": "2" if endpoint.http2 else "1.1",
        "proxy": _mask(endpoint.proxy or ""),
        "tls": {"ca": endpoint.tls_ca, "cert": endpoint.tls_cert, "key": endpoint.tls_key},
    }


def _oauth(oauth: OAuth) -> dict[str, Any]:
    def url(at: tuple[Endpoint, str] | None) -> str | None:
        return None if at is None else f"{at[0].url}{at[1].partition('?')[0]}"

    return {
        "token_url": url(oauth.token_at),
        "client_id": oauth.client_id,
        "client_secret": _mask(oauth.client_secret),
        "scopes": list(oauth.scopes),
        "encoding": oauth.encoding,
        "authorize_url": oauth.authorize_url,
        "redirect_uri": oauth.redirect_uri,
        "device_url": url(oauth.device_at),
        "parameters": dict(oauth.parameters),
        "refresh_before": units.duration(oauth.refresh_before_s),
        "clients": sorted(oauth.clients),
    }


def _keys(accounts: tuple[Account, ...]) -> dict[str, Any]:
    if accounts[0].label is None:
        account = accounts[0]
        if account.access_id:
            token = {"session_token": MASK} if account.session_token else {}
            return {"access_key_id": account.access_id, "secret_access_key": MASK, **token}
        return {"key": _mask(account.key)}
    return {"keys": [{"label": account.label, "key": _mask(account.key)} for account in accounts]}


def _alias(alias: Alias) -> dict[str, Any]:
    shown: dict[str, Any] = {"display_name": alias.display_name, "advertise_as": alias.advertise_as}
    if not alias.is_group:
        return {"pin": alias.members[0].name, **shown}
    group: dict[str, Any] = {"group": [member.name for member in alias.members], "select": alias.select}
    if weights := {member.name: member.weight for member in alias.members if member.weight != 1.0}:
        group["weights"] = weights
    return {**group, **shown}


def _cache(facts: CacheFacts) -> dict[str, Any]:
    ttl = None if facts.ttl_s is None else units.duration(facts.ttl_s)
    return {"floor": facts.floor, "minimum": facts.minimum, "ttl": ttl}


def _pricing(pricing: Pricing) -> dict[str, Any]:
    """Without the query of an address; overrides are shown in the USD that they come to."""
    return {
        "source": "genai-prices" if pricing.source is None else str(pricing.source),
        "refresh": units.duration(pricing.refresh_s) if pricing.refresh_s else "off",
        "refresh_url": pricing.refresh_from,
        "max_age": units.duration(pricing.max_age_s),
        "overrides": [
            {
                "provider": one.provider,
                "model": one.model,
                "service_tier": one.service_tier,
                "from": None if one.from_ms is None else units.moment(one.from_ms),
                "until": None if one.until_ms is None else units.moment(one.until_ms),
                "discount_percent": units.price((10**6 - one.keep) * 100),
                **_rate(one.prices),
            }
            for one in pricing.overrides
        ],
        "prepaid": [
            {
                "provider": one.provider,
                "account": one.account,
                "balance_usd": units.price(one.balance_pd // 10**6),
                "since": units.moment(one.since_ms),
            }
            for one in pricing.prepaid
        ],
    }


def _row(rate: Rate | None, card: Card | None) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if rate is not None:
        shown |= _rate(rate)
        shown["tiers"] = [{"above_input_tokens": above, **_rate(tier)} for above, tier in reversed(rate.tiers)]
    if card is not None:
        facts = {
            "max_input_tokens": card.max_input,
            "latency_ms_p50": card.latency_ms_p50,
            "input_modalities": list(card.input_modalities or ()),
            "metadata": dict(card.metadata),
        }
        shown |= {name: fact for name, fact in facts.items() if fact}
    return shown


def _rate(rate: Rate) -> dict[str, str]:
    shown = {f"{name}_usd_per_mtok": units.price(pd) for name, pd in rate.items() if pd is not None}
    fees = {f"{name}_usd": pd for name in FEES if (pd := getattr(rate, name)) is not None}
    return shown | {name: units.price(pd // 10**6) for name, pd in fees.items()}


def _mask(secret: str) -> str:
    """`***` in place of a secret; nothing in place of none."""
    return MASK if secret else ""
