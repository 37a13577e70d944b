"""A login of the gateway's own, in a file of the data directory that all its processes share (SPEC 6.5).

Refresh tokens are used once: whoever changes the file holds its lock, and what a vendor gave in exchange is on disk,
whole, before anybody uses it. Of tokens that were used up only fingerprints are kept, so that none is sent again, nor
taken in again. Readers need no lock, since the file is replaced and never written to.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from arbiter.config.snapshot import OAuth, Provider
from arbiter.config.words import is_token

FOLDER = "logins"
MOST_CONSUMED = 64
MAX_BYTES = 1 << 20


class LoginFault(Exception):
    """The file cannot be read or written, or a login may not be taken in; its text says why, without a token.

    `why` leaves out where the file is: that is for the operator's eyes, and no client's.
    """

    def __init__(self, why: str, path: Path | None = None) -> None:
        super().__init__(why if path is None else f"{path} {why}")
        self.why = why if path is None else f"its file {why}"


class Refused(msgspec.Struct, forbid_unknown_fields=True):
    """The vendor will not take a refresh token again: `of` is its fingerprint, `error` the vendor's word."""

    of: str
    error: str
    at_ms: int


class Login(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is known of one login; moments are Unix milliseconds. `expires_ms` None: nobody said when it ends."""

    refresh_token: str
    access_token: str = ""
    obtained_ms: int = 0
    expires_ms: int | None = None
    consumed: list[str] = []
    refused: Refused | None = None

    def __repr__(self) -> str:
        return f"Login(obtained_ms={self.obtained_ms}, expires_ms={self.expires_ms}, refused={self.refused})"

    def is_fresh(self, now_ms: int, before_s: float) -> bool:
        """Whether the access token is good for longer than `before_s`, or a fifth of its life where that is less."""
        if not self.access_token:
            return False
        if self.expires_ms is None:
            return True
        before_ms = min(before_s * 1000, (self.expires_ms - self.obtained_ms) / 5)
        return now_ms < self.expires_ms - before_ms

    def is_good(self, now_ms: int) -> bool:
        """Whether the access token has not ended."""
        return bool(self.access_token) and (self.expires_ms is None or now_ms < self.expires_ms)


class LoginFile:
    """The login of one provider. `key` makes its fingerprints (`config.fingerprints`)."""

    def __init__(self, data_dir: Path, provider: str, key: bytes) -> None:
        self.path = data_dir / FOLDER / f"{provider}.json"
        self._key = key

    def fingerprint(self, token: str, *circumstances: str) -> str:
        """What a token is known by once it is gone; with what it was sent to, where that matters."""
        told = "\0".join(("refresh", token, *circumstances))
        return hmac.new(self._key, told.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:32]

    def mark(self, login: Login, oauth: OAuth) -> str:
        """What a refusal of its refresh token is remembered by: another client, or another address of the vendor's, may
        have better luck with it."""
        endpoint, target = oauth.token_at
        return self.fingerprint(login.refresh_token, f"{endpoint.url}{target}", oauth.client_id)

    def dead(self, login: Login, oauth: OAuth) -> str | None:
        """Why it cannot be renewed; None where nothing is known against it."""
        if self.fingerprint(login.refresh_token) in login.consumed:
            return "its refresh token was used up"
        if login.refused is not None and login.refused.of == self.mark(login, oauth):
            return login.refused.error
        return None

    def stamp(self) -> tuple[int, int, int] | None:
        """Changes whenever the file does; None while there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def read(self) -> Login | None:
        """The login; None where there is none. Errors: LoginFault."""
        try:
            with self.path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LoginFault(f"cannot be read: {error.strerror or type(error).__name__}", self.path) from None
        try:
            login = msgspec.json.decode(raw, type=Login)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise LoginFault("holds no login; remove it, and log in again", self.path) from None
        if not is_token(login.refresh_token) or not (login.access_token == "" or is_token(login.access_token)):
            # As headers they would be refused much later, and as if the caller had sent them.
            raise LoginFault("holds a token that is none: printable ASCII without spaces or line breaks", self.path)
        return login

    def open_to(self) -> str | None:
        """The file's mode (`0644`) where others than its owner have rights in it; None where all is well."""
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        except OSError:
            return None
        return f"{mode:04o}" if mode & 0o077 else None

    def write(self, login: Login) -> None:
        """Put `login` there, on disk and whole, for its owner alone. Whoever holds the lock may. Errors: LoginFault."""
        new = self.path.with_suffix(".new")
        try:
            descriptor = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o600)
                file.write(msgspec.json.encode(login))
                file.flush()
                os.fsync(descriptor)
            new.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise LoginFault(f"cannot be written: {error.strerror or type(error).__name__}", self.path) from None

    def try_hold(self) -> int | None:
        """The lock, as a descriptor that holds it until it is closed; None while somebody else has it.

        Errors: LoginFault.
        """
        lock = self._lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else changes it within; waits for whoever does. Errors: LoginFault."""
        lock = self._lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _lock(self) -> int:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise LoginFault(f"cannot be locked: {error.strerror or type(error).__name__}", self.path) from None

    def take_in(self, fresh: Login, *, replaces: bool) -> None:
        """Make `fresh` the login, with what is known of those before it. Within `held`.

        Errors: LoginFault where there is one that works and `replaces` is not said, and for a token that was used up or
        refused: sent once more it would end the login that came of it.
        """
        old = self.read()
        if old is not None:
            if not replaces and old.refused is None:
                raise LoginFault("there is a login already; --reconnect replaces it")
            mark = self.fingerprint(fresh.refresh_token)
            if mark in old.consumed:
                raise LoginFault("this refresh token was used up already; log in anew where it came from")
            if old.refused is not None and old.refresh_token == fresh.refresh_token:
                raise LoginFault(f"this refresh token was refused already ({old.refused.error}); log in anew")
            fresh.consumed = self._after(old) if old.refresh_token != fresh.refresh_token else old.consumed
        self.write(fresh)

    def rotated(self, old: Login, refresh_token: str | None) -> tuple[str, list[str]]:
        """The refresh token from now on, and the fingerprints of those that are gone."""
        if refresh_token is None or refresh_token == old.refresh_token:
            return old.refresh_token, old.consumed
        return refresh_token, self._after(old)

    def _after(self, old: Login) -> list[str]:
        mark = self.fingerprint(old.refresh_token)
        return [*(one for one in old.consumed if one != mark), mark][-MOST_CONSUMED:]


def faults(providers: Iterable[Provider], data_dir: Path, key: bytes) -> list[str]:
    """What is wrong with the logins of `providers`, a line each, with what to do about it."""
    said = []
    for provider in providers:
        file, name = LoginFile(data_dir, provider.name, key), provider.name
        try:
            login = file.read()
        except LoginFault as fault:
            said.append(f"login: {name}: {fault.why} ({FOLDER}/{file.path.name} in the data directory)")
            continue
        if login is None:
            said.append(f"login: nobody is logged in at {name}; run `arbiter login {name}`")
        elif provider.oauth is not None and (why := file.dead(login, provider.oauth)) is not None:
            said.append(f"login: that of {name} is dead ({why}); run `arbiter login {name} --reconnect`")
        if (mode := file.open_to()) is not None:
            said.append(
                f"login: {name}: others than its owner have rights in its file (mode {mode});"
                f" `chmod 600` {FOLDER}/{file.path.name} in the data directory"
            )
    return said
