"""Whether a provider has a model that nobody declared (`auto_models`, SPEC 6.5): it is asked once, for all workers.

`GET /models/{id}` says so: 200 has it, a 404 has not, and anything else leaves it open, so that the request itself
finds out. What was said is kept beside what else has a maker and an end in the shared state: 24 hours for a yes, ten
minutes for anything else, by the account that was asked, since what one login may use another may not.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from typing import Literal
from urllib.parse import quote

from arbiter.attempt.ladder import Doors
from arbiter.config.snapshot import Account, Provider
from arbiter.errors import ArbiterError, NoRoute
from arbiter.log import Log
from arbiter.routing.plan import Rung
from arbiter.state.base import Origin, State
from arbiter.upstream.exchange import Outgoing
from arbiter.wire.dialects import dialect_of
from arbiter.wire.format import FORMATS
from arbiter.wire.headers import Incoming, to_upstream

Verdict = Literal["verified", "missing", "open"]

VERIFIED_S, ELSE_S = 86400.0, 600.0
PATIENCE_S = 5.0  # somebody waits for an answer behind it
ANSWER_BYTES = 1 << 20

_log = Log(__name__)


class AutoModels:
    """One worker's questions. Those who ask the same at the same time wait for one answer."""

    def __init__(self) -> None:
        self._asking: dict[bytes, asyncio.Task[Verdict]] = {}

    async def check(self, rung: Rung, account: Account, incoming: Incoming, doors: Doors, state: State) -> str | None:
        """Return what is to be said of the model in a warning; None where nothing is.

        Errors: NoRoute where the provider has no such model.
        """
        provider, model = rung.provider, rung.model
        mark = _mark(provider, account, model)
        (known,) = state.origins([mark])
        if known is None:
            task = self._asking.get(mark)
            if task is None:
                task = asyncio.ensure_future(self._ask(mark, rung, account, incoming, doors, state))
                self._asking[mark] = task
                task.add_done_callback(lambda done: self._asking.pop(mark, None))
            verdict = await asyncio.shield(task)
        else:
            verdict = known.account  # type: ignore[assignment]
        if verdict == "missing":
            raise _lacking(rung)
        if known is None and verdict == "open":
            return f"model_unverified: {provider.name} did not say whether it has {model}"
        return None

    def recall(self, rung: Rung, account: Account, state: State) -> None:
        """Errors: NoRoute where the provider said lately that it has no such model. Nobody is asked."""
        (known,) = state.origins([_mark(rung.provider, account, rung.model)])
        if known is not None and known.account == "missing":
            raise _lacking(rung)

    async def _ask(
        self, mark: bytes, rung: Rung, account: Account, incoming: Incoming, doors: Doors, state: State
    ) -> Verdict:
        provider, model = rung.provider, rung.model
        status, body = await _asked(rung, account, incoming, doors)
        verdict: Verdict = "verified" if status == 200 else "missing" if status == 404 and _names(body) else "open"
        state.remember([mark], Origin(provider.name, verdict, model), VERIFIED_S if status == 200 else ELSE_S)
        if verdict == "open":
            _log.warn("a model that nobody declared is let through unverified", provider=provider.name, model=model,
                      status=status or None)  # fmt: skip
        else:
            _log.info("a model that nobody declared was asked for", provider=provider.name, model=model,
                      verdict=verdict)  # fmt: skip
        return verdict


def _lacking(rung: Rung) -> NoRoute:
    said = f"the provider {rung.provider.name!r} has no model {rung.model!r}: it was asked for it"
    return NoRoute(said, param="model")


async def _asked(rung: Rung, account: Account, incoming: Incoming, doors: Doors) -> tuple[int, bytes]:
    """What the provider answers; 0 where it did not, or not soon."""
    provider, format = rung.provider, FORMATS[rung.wire]
    headers = [
        pair for pair in to_upstream(provider, account, rung.wire, incoming, stream=False) if pair[0] != "content-type"
    ]
    path = f"/models/{quote(rung.model, safe='')}"
    target = dialect_of(provider).target(provider, format.name, path, rung.model, stream=False)
    budgets = replace(
        provider.budgets, queue_s=PATIENCE_S, connect_s=PATIENCE_S, headers_s=PATIENCE_S, unary_s=PATIENCE_S
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            exchange = await doors.send(provider, Outgoing("GET", target, headers, b""), format, budgets, stream=False)
            try:
                return exchange.status, await exchange.read(ANSWER_BYTES)
            except BaseException:
                exchange.abort()
                raise
    except (ArbiterError, TimeoutError):
        return 0, b""


def _names(body: bytes) -> bool:
    """Whether a 404 is about the model. Servers that lack the endpoint say so in other words: a page, a line, or
    FastAPI's `detail`."""
    words = body[:4096].strip()
    return not words or (words[:1] == b"{" and b'"detail"' not in words)


def _mark(provider: Provider, account: Account, model: str) -> bytes:
    told = "\0".join(("auto model", provider.url, account.name, model))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()[:16]
