"""`arbiter login`: bring a login into the gateway, for a provider with `auth: oauth`, or replace the one it has."""

from __future__ import annotations

import argparse
import base64
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from arbiter.cli import CommandError, UsageError, options
from arbiter.clock import now_ms
from arbiter.config import fingerprints, units
from arbiter.config.load import Source
from arbiter.config.snapshot import Provider, Snapshot
from arbiter.config.words import is_token
from arbiter.state.login_file import Login, LoginFault, LoginFile

MAX_BYTES = 1 << 20


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "login",
        run,
        help="log the gateway in at a provider",
        description="Bring a login into the gateway for a provider with `auth: oauth`: with a code for another device, "
        "with a browser and a code to paste here, or from a file of a program that is logged in. A gateway that runs "
        "on the data directory uses it from its next request on. Run it as the gateway's user.",
        json="one JSON object",
    )
    command.add_argument("provider", metavar="PROVIDER", help="a name of `providers`")
    options.add_config(command)
    command.add_argument("--reconnect", action="store_true", help="replace the login that there is")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--device", action="store_true", help="with a code for another device (`oauth.device_url`)")
    how.add_argument("--paste", action="store_true", help="with a browser and a code to paste (`oauth.authorize_url`)")
    how.add_argument(
        "--import",
        dest="file",
        metavar="FILE",
        help="take it from a file that holds a refresh token, such as ~/.codex/auth.json or "
        "~/.claude/.credentials.json; - reads standard input",
    )
    how.add_argument("--status", action="store_true", help="say how the login is, and change nothing")


def run(arguments: argparse.Namespace) -> int:
    # Whoever logs in need not have the keys of other providers, which another user's file may hold.
    snapshot = Source(arguments.config, dict(os.environ)).keyless("providers", asked=[arguments.provider])
    provider = _provider(snapshot, arguments.provider)
    try:
        file = LoginFile(snapshot.data_dir, provider.name, fingerprints.key(snapshot.data_dir, make=True))
        if arguments.status:
            return _status(provider, file, as_json=arguments.json)
        _check_free(file, provider, reconnects=arguments.reconnect)
        fresh = _fresh(arguments, provider)
        with file.held():
            file.take_in(fresh, replaces=arguments.reconnect)
    except LoginFault as fault:
        raise CommandError(f"{provider.name}: {fault}") from None
    if arguments.json:
        options.print_json({"ok": True, **_shown(provider, fresh, None)})
    else:
        print(f"{provider.name} is logged in; the login is in {file.path}")
    return 0


def _provider(snapshot: Snapshot, name: str) -> Provider:
    provider = snapshot.providers.get(name)
    if provider is None:
        raise UsageError(f"there is no provider {name!r}; there is {', '.join(snapshot.providers)}")
    if provider.oauth is None:
        raise CommandError(
            f"the provider {name!r} is not asked on a login of the gateway's: it has no `auth: oauth`"
            + (" (callers bring their own: auth: passthrough)" if provider.takes_logins else "; docs/logins.md has one")
        )
    return provider


def _check_free(file: LoginFile, provider: Provider, *, reconnects: bool) -> None:
    """Nobody is to log in for nothing."""
    assert provider.oauth is not None, "it was looked up as one"
    old = file.read()
    if old is not None and not reconnects and file.dead(old, provider.oauth) is None:
        raise CommandError(f"{provider.name} is logged in already; --reconnect replaces the login")


def _fresh(arguments: argparse.Namespace, provider: Provider) -> Login:
    oauth = provider.oauth
    assert oauth is not None, "it was looked up as one"
    if arguments.file is not None:
        return imported(_read(arguments.file))
    if arguments.device and oauth.device_at is None:
        raise CommandError(f"providers.{provider.name}.oauth has no device_url")
    if arguments.paste and oauth.authorize_url is None:
        raise CommandError(f"providers.{provider.name}.oauth has no authorize_url")
    if oauth.device_at is None and oauth.authorize_url is None:
        raise CommandError(
            f"providers.{provider.name}.oauth has neither device_url nor authorize_url; take a login in with --import"
        )
    from arbiter.cli import logging_in  # the event loop: only now

    is_device = oauth.device_at is not None and not arguments.paste
    return logging_in.by_device(oauth) if is_device else logging_in.by_paste(oauth)


# ------------------------------------------------------------------------------------------------------ from a file


def _read(path: str) -> bytes:
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).expanduser().open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
    if len(raw) > MAX_BYTES:
        raise CommandError(f"{path} is over 1 MiB; this is no login")
    return raw


def imported(raw: bytes) -> Login:
    """The login in a JSON text, wherever in it: an object with `refresh_token` or `refreshToken` and what is beside it.

    Errors: CommandError, which shows nothing of it.
    """
    try:
        found = _holder(msgspec.json.decode(raw))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise CommandError("this is not JSON; a login is an object with a refresh_token") from None
    if found is None:
        raise CommandError("there is no refresh_token in this")
    refresh = _member(found, "refresh_token", "refreshToken")
    access = _member(found, "access_token", "accessToken")
    if not is_token(refresh) or not (access in (None, "") or is_token(access)):
        raise CommandError("the tokens in this are none: a token is printable ASCII without spaces")
    ends = _member(found, "expires_at", "expiresAt", "expires_ms", "expires")
    expires_ms = _moment_ms(ends) or (_end_of_jwt(str(access)) if access else None)
    # Without a word on its end it might have ended: then the refresh token is better asked at once.
    is_known = bool(access) and expires_ms is not None
    return Login(str(refresh), str(access) if is_known else "", now_ms(), expires_ms if is_known else None)


def _holder(value: Any, depth: int = 0) -> dict[str, Any] | None:
    if not isinstance(value, dict) or depth > 4:
        return None
    if "refresh_token" in value or "refreshToken" in value:
        return value
    return next((found for inner in value.values() if (found := _holder(inner, depth + 1)) is not None), None)


def _member(found: Mapping[str, Any], *names: str) -> Any:
    return next((found[name] for name in names if name in found), None)


def _moment_ms(value: Any) -> int | None:
    """A moment as programs write one: seconds or milliseconds since 1970, or ISO 8601."""
    if isinstance(value, str):
        return units.moment_ms(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e14:
        return round(value if value > 1e11 else value * 1000)
    return None


def _end_of_jwt(token: str) -> int | None:
    """When a token says that it ends, where it is one that says something (RFC 7519). Nothing is trusted to it."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None
    return _moment_ms(claims.get("exp")) if isinstance(claims, dict) else None


# ------------------------------------------------------------------------------------------------------- how it is


def _status(provider: Provider, file: LoginFile, *, as_json: bool) -> int:
    login = file.read()
    assert provider.oauth is not None, "it was looked up as one"
    why = file.dead(login, provider.oauth) if login is not None else None
    mode = file.open_to()
    if as_json:
        shown = _shown(provider, login, why)
        options.print_json({"ok": login is not None and why is None, **shown, "open_to_others": mode is not None})
    elif login is None:
        print(f"nobody is logged in at {provider.name}; arbiter login {provider.name}")
    elif why is not None:
        print(f"the login of {provider.name} is dead: {why}; --reconnect brings in another")
    else:
        ends = "" if login.expires_ms is None else f", its access token until {units.moment(login.expires_ms)}"
        print(f"{provider.name} is logged in{ends}")
    if mode is not None and not as_json:
        print(f"warning: others than its owner have rights in {file.path} (mode {mode}); chmod 600 it")
    return 0 if login is not None and why is None else 1


def _shown(provider: Provider, login: Login | None, why: str | None) -> dict[str, Any]:
    return {
        "provider": provider.name,
        "logged_in": login is not None,
        "dead": why,
        "obtained_ms": login.obtained_ms if login is not None else None,
        "expires_ms": login.expires_ms if login is not None else None,
        "consumed": len(login.consumed) if login is not None else 0,
    }
