"""Logins of the gateway's own (`auth: oauth`, SPEC 6.5): an account with an access token that is good now.

Theory of operation. The login is in a file that all workers share (`state.login_file`). A request looks whether the
file changed, and goes on with the access token that this worker knows. Where that is about to end, or was refused, one
task of this worker takes the file's lock, and looks again: another worker may have renewed it in the meantime. Only
then is the refresh token sent. What comes back is on disk before anybody uses it; whoever asked may have hung up by
then, the task goes on all the same.

A vendor that says no to a refresh token is not asked about it again: that is written down, and every worker and the
next run know. Whatever else goes wrong passes: the old access token serves for as long as it is good, and the vendor is
asked again after a while. How long a request waits, and how often a 401 is worth a new token, is in `renewals`.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from arbiter.attempt.renewals import Renewals
from arbiter.clock import monotonic, now_ms
from arbiter.config.snapshot import Account, OAuth, Provider
from arbiter.errors import KeyRefused, UpstreamError
from arbiter.log import Blotter, Log
from arbiter.state.login_file import Login, LoginFault, LoginFile, Refused
from arbiter.upstream import token_endpoint
from arbiter.upstream.token_endpoint import TokenRefused, TokenTrouble
from arbiter.upstream.transport import Transport

_LOOK_EVERY_S = 0.02
_HELD_AT_MOST_S = 60.0  # by others; longer than any of them asks
_QUIET_S, _QUIET_AT_MOST_S = 1.0, 60.0
_STOP_S = 10.0  # a vendor that answers at all has answered by then, and somebody waits for us to end

_log = Log(__name__)


@dataclass(slots=True)
class _Known:
    """What this worker knows of one login, as of the file with this stamp."""

    stamp: tuple[int, int, int] | None
    login: Login | None
    account: Account


class OwnLogins:
    """The logins of one worker. Use it on the loop. `blot` learns every token before it is used."""

    def __init__(self, data_dir: Path, key: bytes, transport: Transport, blot: Blotter) -> None:
        self._data_dir = data_dir
        self._transport = transport
        self._known: dict[str, _Known] = {}
        self._renewals = Renewals()
        self._quiet: dict[str, tuple[float, float]] = {}  # by provider: until when it is not asked, and for how long
        self._faults: dict[str, str] = {}  # by provider: what was last told of its file
        self.adopt(key, blot)

    def adopt(self, key: bytes, blot: Blotter) -> None:
        """Go on under another configuration."""
        self._key, self._blot = key, blot
        self._known.clear()

    async def account(self, provider: Provider) -> Account:
        """The account to ask `provider` on.

        Errors: KeyRefused where there is no login, or a dead one; UpstreamError where none can be had now.
        """
        known, now = self._look(provider), now_ms()
        if known.login is not None and known.login.is_fresh(now, _oauth(provider).refresh_before_s):
            return known.account
        if known.login is not None and known.login.is_good(now):
            return await self._renewals.soon(provider.name, partial(self._renew, provider, None), known.account)
        return await self._renewed(provider, None)

    async def renewed(self, provider: Provider, refused: Account) -> Account:
        """The same after `provider` refused what it was sent. Errors: as of `account`; KeyRefused, too, where that had
        been renewed for the same reason just now."""
        if self._look(provider).account.sent == refused.sent:
            self._renewals.check(provider.name)
        account = await self._renewed(provider, refused)
        self._renewals.replaced(provider.name, account)
        return account

    def served(self, provider: Provider) -> None:
        """`provider` took what it was sent."""
        self._renewals.served(provider.name)

    async def aclose(self) -> None:
        """Wait for what is under way: a rotation that nobody wrote down would end the login."""
        if self._renewals.under_way:
            await asyncio.wait(self._renewals.under_way, timeout=_STOP_S)

    # ------------------------------------------------------------------ inside

    def _file(self, provider: Provider) -> LoginFile:
        return LoginFile(self._data_dir, provider.name, self._key)

    def _look(self, provider: Provider) -> _Known:
        known, file = self._known.get(provider.name), self._file(provider)
        stamp = file.stamp()
        if known is None or known.stamp != stamp:
            try:
                login = file.read()
            except LoginFault as fault:
                raise self._unusable(provider, fault) from None
            known = self._learn(provider, login, stamp)
        return known

    def _learn(self, provider: Provider, login: Login | None, stamp: tuple[int, int, int] | None) -> _Known:
        self._faults.pop(provider.name, None)
        token = login.access_token if login is not None else ""
        if login is not None:
            self._blot.learn((token, login.refresh_token))
        account = Account(sent=(("authorization", f"Bearer {token}"),))
        known = self._known[provider.name] = _Known(stamp, login, account)
        return known

    async def _renewed(self, provider: Provider, refused: Account | None) -> Account:
        while True:
            task, is_ours = self._renewals.joined(provider.name, partial(self._renew, provider, refused))
            account = await asyncio.shield(task)
            # Whoever began it need not have known that this very token was refused.
            if is_ours or refused is None or account.sent != refused.sent:
                return account

    async def _renew(self, provider: Provider, refused: Account | None) -> Account:
        file = self._file(provider)
        try:
            lock = await _hold(file)
            try:
                return await self._renew_held(provider, file, refused)
            finally:
                os.close(lock)
        except LoginFault as fault:
            raise self._unusable(provider, fault) from None

    def _unusable(self, provider: Provider, fault: LoginFault) -> KeyRefused:
        """What a client is told of a fault; where the file is goes into the log, once for as long as it lasts."""
        if self._faults.get(provider.name) != str(fault):
            self._faults[provider.name] = str(fault)
            _log.warn("a login cannot be used", provider=provider.name, error=fault)
        return KeyRefused(f"the provider {provider.name!r} has no login that can be used: {fault.why}")

    async def _renew_held(self, provider: Provider, file: LoginFile, refused: Account | None) -> Account:
        name, oauth = provider.name, _oauth(provider)
        login = file.read()
        known = self._learn(provider, login, file.stamp())
        if login is None:
            raise KeyRefused(f"nobody is logged in at the provider {name!r}: `arbiter login {name}` does that")
        is_other = refused is None or known.account.sent != refused.sent
        if is_other and login.is_fresh(now_ms(), oauth.refresh_before_s):
            return known.account
        serves = is_other and login.is_good(now_ms())
        if (why := file.dead(login, oauth)) is not None:
            if serves:
                return known.account
            raise KeyRefused(_told(name, why))
        until, wait_s = self._quiet.get(name, (0.0, 0.0))
        try:
            if until > monotonic():
                raise TokenTrouble("the token endpoint failed a moment ago")
            file.write(login)  # where nothing can be kept, nothing is used up
            tokens = await token_endpoint.refresh(self._transport, oauth, login.refresh_token)
        except TokenRefused as no:
            login.refused = Refused(file.mark(login, oauth), no.error, now_ms())
            file.write(login)
            self._learn(provider, login, file.stamp())
            _log.warn("a login is dead: its refresh token was refused", provider=name, reason=no.error)
            if serves:
                return known.account
            raise KeyRefused(_told(name, no.error)) from None
        except TokenTrouble as trouble:
            if until <= monotonic():
                wait_s = min(max(_QUIET_S, 2 * wait_s), _QUIET_AT_MOST_S)
                self._quiet[name] = monotonic() + wait_s, wait_s
                _log.warn("a login could not be renewed", provider=name, error=trouble)
            if serves:
                return known.account
            raise UpstreamError(f"the login of the provider {name!r} could not be renewed: {trouble}") from None
        self._quiet.pop(name, None)
        refresh_token, consumed = file.rotated(login, tokens.refresh_token)
        fresh = Login(refresh_token, tokens.access_token, tokens.obtained_ms, tokens.expires_ms, consumed)
        self._blot.learn((fresh.access_token, fresh.refresh_token))
        file.write(fresh)
        _log.info("a login was renewed", provider=name)
        return self._learn(provider, fresh, file.stamp()).account


def _oauth(provider: Provider) -> OAuth:
    assert provider.oauth is not None, "it is asked on a login of ours"
    return provider.oauth


def _told(name: str, why: str) -> str:
    return f"the login of the provider {name!r} is dead ({why}): `arbiter login {name} --reconnect` brings in another"


async def _hold(file: LoginFile) -> int:
    """The file's lock. Errors: LoginFault where somebody has it for longer than anybody should."""
    until = monotonic() + _HELD_AT_MOST_S
    while (lock := file.try_hold()) is None:
        if monotonic() > until:
            raise LoginFault("is locked by another process", file.path)
        await asyncio.sleep(_LOOK_EVERY_S)
    return lock
