"""The providers of a configuration: what each one's section says, with the defaults that depend on its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from arbiter.config import keyless, logins, schema, units, vendors, vertex
from arbiter.config.accounts import accounts
from arbiter.config.address import Fault, endpoint, is_loopback
from arbiter.config.decode import join
from arbiter.config.snapshot import Budgets, CacheFacts, Model, Provider, RequestLimits, Retry
from arbiter.config.source import ConfigError
from arbiter.config.words import check_forwarded, check_header, check_identifier, check_name


class Providers:
    """`stands` tells whether a key is in the file, `is_unasked` whether a provider's credentials are wanted by nobody.

    `base`: relative paths of secret and certificate files start there. What is odd and does no harm goes to `warnings`.
    """

    def __init__(
        self,
        error: Fault,
        stands: Callable[[str], bool],
        warnings: list[str],
        base: Path,
        env: Mapping[str, str],
        pin_ttl_s: float,
        is_unasked: Callable[[str], bool],
    ) -> None:
        self._error = error
        self._stands = stands
        self._warnings = warnings
        self._base = base
        self._env = env
        self._pin_ttl_s = pin_ttl_s
        self._is_unasked = is_unasked
        self._cap_s = _cap_s(env)

    def known(self, name: str, written: schema.Provider) -> Provider:
        """One of them, as it is written. Errors: what `error(path, message)` makes."""
        path = join("providers", name)
        check_name(name, partial(self._error, path))
        if self._is_unasked(name):
            written = keyless.provider(written)
        has_pool = self._stands(join(path, "keys"))
        pool = vendors.signing(written, path, self._env, self._error)
        pool = pool or accounts(written, path, self._base, self._error, has_pool=has_pool)
        region = vendors.region(written, path, self._env, self._error)
        place = endpoint(written, path, self._base, self._env, self._error, region)
        service = vertex.service(written, path, self._base, self._env, self._error)
        takes_logins = written.auth == "passthrough"
        oauth = logins.oauth(written, path, self._base, self._env, self._error, self._stands)
        if takes_logins:
            logins.check(written, path, self._error, self._stands)
            if place.scheme == "http" and place.uds is None and not is_loopback(place.host):
                self._warnings.append(
                    f"{path}: its callers' logins cross the network unencrypted (http://{place.host})"
                )
        elif written.type == "echo":
            for option in ("key", "key_file", "keys", "endpoint", "proxy", "host"):
                if getattr(written, option):
                    raise self._error(join(path, option), "the echo provider is built in and takes none")
        elif not (oauth or service or pool[0].key or written.endpoint) and written.type != "ollama":
            self._warnings.append(f"{path}: no key; {place.host} will refuse every request")
        elif pool[0].key and place.scheme == "http" and place.uds is None and not is_loopback(place.host):
            self._warnings.append(f"{path}: the key crosses the network unencrypted (http://{place.host})")
        if written.api == "responses" and vendors.WIRES[written.type] != "openai-chat":
            raise self._error(join(path, "api"), f"only OpenAI has two of them; {written.type} has one")
        if vendors.WIRES[written.type] == "openai-chat" and place.path == "" and written.type != "azure":
            self._warnings.append(
                f"{join(path, 'endpoint')}: no path; most servers of OpenAI's format live under /v1, as in "
                "http://localhost:8000/v1"
            )
        if written.auto_models == "on" and written.type not in logins.TYPES:
            raise self._error(join(path, "auto_models"), f"no names are {written.type}'s own; declare its models")
        vendors.check(written, path, self._error)
        self._warn_of_idle(written, path)
        models: dict[str, Model] = {}
        for index, entry in enumerate(written.models):
            here = join(join(path, "models"), index)
            if isinstance(entry, str):
                model = Model(entry, entry, api=vendors.api_of(written.type, entry, None))
            else:
                model = Model(
                    entry.id,
                    entry.upstream or entry.id,
                    entry.max_output_tokens,
                    _cache(entry.cache),
                    vendors.api_of(written.type, entry.upstream or entry.id, entry.api),
                )
            for text in (model.id, model.upstream):
                check_identifier(text, partial(self._error, here))
            if model.id in models:
                raise self._error(here, f'"{model.id}" is listed twice')
            models[model.id] = model
        timeouts = written.timeouts
        headers_s = timeouts.headers_s if timeouts.headers_s is not None else vendors.HEADERS_S.get(written.type, 60.0)
        written_s = {**msgspec.structs.asdict(timeouts), "headers_s": headers_s}
        budgets = Budgets(**{phase: _capped(budget_s, self._cap_s) for phase, budget_s in written_s.items()})
        headers = []
        for header, value in written.headers.items():
            here = join(join(path, "headers"), header)
            check_header(header, value, partial(self._error, here))
            headers.append((header, value))
        for index, header in enumerate(written.forward_headers):
            check_forwarded(header, partial(self._error, join(join(path, "forward_headers"), index)))
        forwarded = written.forward_headers
        if takes_logins and not self._stands(join(path, "forward_headers")):
            forwarded = list(logins.AGENTS_HEADERS[written.type])
        return Provider(
            name=name,
            type=written.type,
            wire=vendors.WIRES[written.type],
            api=written.api,
            api_version=written.api_version,
            region=region,
            endpoint=place,
            accounts=pool,
            models=tuple(models.values()),
            relay=written.relay,
            responses_api=written.responses_api,
            prompt_cache="client" if takes_logins else written.prompt_cache,
            prompt_cache_ttl=written.prompt_cache_ttl,
            attribution=written.attribution,
            budgets=budgets,
            max_connections=written.connections.max,
            idle_connections=written.connections.idle,
            idle_for_s=written.connections.idle_for_s,
            headers=tuple(headers),
            forward_headers=tuple(header.lower() for header in forwarded),
            retry=self._retry(written.retry, join(path, "retry")),
            request_limits=RequestLimits(written.limits.requests_per_minute, written.limits.requests_per_day),
            pin_ttl_s=self._pin_ttl_s if written.cache_ttl_s is None else written.cache_ttl_s,
            cache=_cache(written.cache),
            speechless=written.speechless,
            billing=written.billing or ("metered" if written.auth == "key" else "subscription"),
            auth=written.auth,
            auto_models=written.auto_models == "on" or (written.auth != "key" and written.auto_models == "auto"),
            oauth=oauth,
            vertex=vertex.place(written, path, self._error),
            service=service,
            priced_as=written.priced_as,
        )

    def _retry(self, written: schema.Retry, path: str) -> Retry:
        if not written.base_s:
            raise self._error(join(path, "base"), "asks a failing provider again at once; write 10ms or more")
        if written.cap_s < written.base_s:
            base = units.duration(written.base_s)
            raise self._error(
                join(path, "cap" if self._stands(join(path, "cap")) else "base"),
                f"retry.cap ({units.duration(written.cap_s)}) is below retry.base ({base}), from which waits grow",
            )
        return Retry(**msgspec.structs.asdict(written))

    def _warn_of_idle(self, written: schema.Provider, path: str) -> None:
        """Warn of keys that do nothing where they stand."""
        if written.timeouts.headers_s is not None and written.timeouts.first_event_s:
            self._warnings.append(
                f"{join(path, 'timeouts.headers')}: has no effect; first_event is set, and is the limit of both"
            )
        if written.auth != "oauth" and self._stands(join(path, "oauth")):
            self._warnings.append(f"{join(path, 'oauth')}: has no effect without auth: oauth")
        if vendors.WIRES[written.type] != "openai-chat" and written.responses_api != "auto":
            self._warnings.append(
                f"{join(path, 'responses_api')}: has no effect; only providers of OpenAI's format have a choice"
            )
        if vendors.WIRES[written.type] == "openai-chat":
            for option, default in (("prompt_cache", "auto"), ("prompt_cache_ttl", "5m")):
                if getattr(written, option) != default:
                    self._warnings.append(
                        f"{join(path, option)}: has no effect; only Anthropic's format has cache marks"
                    )
            if written.attribution == "keep":
                self._warnings.append(
                    f"{join(path, 'attribution')}: has no effect; the line never leaves for {written.type}"
                )
        elif written.prompt_cache in ("off", "client") and written.prompt_cache_ttl != "5m":
            self._warnings.append(
                f"{join(path, 'prompt_cache_ttl')}: has no effect; with prompt_cache: {written.prompt_cache} Arbiter "
                "sets no marks"
            )


def _cap_s(env: Mapping[str, str]) -> float:
    raw = env.get("ARBITER_PROVIDER_TIMEOUT_MS") or "0"
    if not raw.isascii() or not raw.isdigit() or len(raw) > 12:
        raise ConfigError("ARBITER_PROVIDER_TIMEOUT_MS: expected a whole number of milliseconds")
    return int(raw) / 1000


def _cache(written: schema.Cache) -> CacheFacts:
    return CacheFacts(written.floor, written.minimum, written.ttl_s)


def _capped(budget_s: float, cap_s: float) -> float:
    if not cap_s:
        return budget_s
    return min(budget_s, cap_s) if budget_s else cap_s
