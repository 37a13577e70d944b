"""The recorder's stage that compares each call with the one before it, and writes down what was lost of the cache.

It keeps nothing in mind: where a call may have lost something, which is rare, the calls before it are looked up in the
store and among the rows that are about to be stored. So a restart, a batch that comes twice and rows out of order
change nothing. A call is compared only with calls that had ended when it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from arbiter.accounting import caches
from arbiter.config.rates import Rate
from arbiter.config.snapshot import Snapshot
from arbiter.ledger import losses
from arbiter.ledger.database import Database
from arbiter.ledger.losses import Call
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.store import Readable
from arbiter.ledger.tables import Table
from arbiter.metrics import Metrics

REACH = 32
"""How many calls of a conversation are looked through for the one that a call goes on from."""
REACH_OF_SESSION = 8
REQUESTS_OF_SESSION = 50
"""Among the calls of so many of a session's requests: some made none, some were only counted."""
LEAST_TO_GO_ON = 3
"""A call that goes on from another has an input, the answer to it, and what is new. Most that begin have less."""

Fresh = dict[tuple[str, str | None], list[Call]]
"""The completed calls of a batch, by the column that tells what they belong to, and its value."""

_CALLS = Table("attempts", Call)
_HEAD_CAUSES = frozenset({"below_minimum", "model", "account", "compaction", "tools", "system"})
"""What may explain a loss between two slots of one session."""


class Comparison:
    """`rate` finds what a call's tokens cost; `metrics` are the control process's own."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        rate: Callable[[AttemptRow], Rate | None],
        metrics: Metrics | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._rate = rate
        self._metrics = metrics

    def take(self, batch: Batch, store: Readable) -> None:
        providers = self._snapshot().providers
        compacted = {request.id for request in batch.requests if _is_compacted(request)}
        fresh: Fresh | None = None
        known: dict[tuple[str, str | None, str], caches.Cache] = {}
        for row in batch.attempts:
            if row.cached_tokens is None or row.conversation is None:
                continue
            paid = (row.input_tokens or 0) + (row.cache_write_tokens or 0)
            asked = row.provider, row.model_asked, row.format_out
            cache = known.get(asked)
            if cache is None:
                cache = known[asked] = caches.cache(providers.get(row.provider), row.model_asked, row.format_out)
            if paid < cache.floor:
                continue
            now = call_of(row)
            if not losses.counts(losses.most(now), now, cache):
                continue
            if fresh is None:
                fresh = _by_conversation(batch.attempts)
            told = row.request_id in compacted or now.request_kind == "compaction"
            self._compare(row, now, cache, fresh, batch.requests, store, is_compacted=told)

    def stored(self, batch: Batch) -> None:
        if self._metrics is None:
            return
        for row in batch.attempts:
            if row.cache_verdict is not None and row.cache_lost_tokens:
                self._metrics.count("arbiter_cache_loss_tokens_total", (row.cache_verdict,), row.cache_lost_tokens)
        self._metrics.flush()

    def forget(self) -> None:
        """There is nothing to forget."""

    def _compare(
        self,
        row: AttemptRow,
        now: Call,
        cache: caches.Cache,
        fresh: Fresh,
        requests: Sequence[RequestRow],
        store: Readable,
        *,
        is_compacted: bool,
    ) -> None:
        known = _of_conversation(now, fresh, store, 1)
        if known and not (losses.follows(known[0], now) and (known[0].tool_names or not cache.drops_thinking)):
            known = _of_conversation(now, fresh, store, REACH)
        if known:
            before = predecessor(known, now)
            found = losses.judge(before, now, cache, is_compacted=is_compacted, earlier=known)
        elif now.session is not None and (now.inputs or 0) >= LEAST_TO_GO_ON:
            others = _of_session(now, fresh, requests, store)
            other = next((one for one in others if one.client == now.client and losses.goes_on(one, now)), None)
            if other is None:
                return
            before = other
            found = losses.judge(before, now, cache, is_compacted=is_compacted)
            if found is not None and found.cause not in _HEAD_CAUSES:
                return
        else:
            return
        if found is None:
            return
        row.cache_verdict, row.cache_lost_tokens = found.cause, found.tokens
        row.cache_lost_at, row.cache_lost_in = found.at, found.within
        row.cache_against = before.id
        row.cache_lost_pd = losses.lost_pd(now, found.tokens, self._rate(row))


def predecessor(known: Sequence[Call], now: Call) -> Call:
    """Which of `known`, the newest first, is the call before `now`.

    The newest is, unless `now` goes on with another one. That one may be of another conversation in the slot, as
    several runs of one task look alike from outside, or only a side question followed it; then it is the call before.
    Or somebody went back to it, or changed what came after it: then the newest of those that went on from there is.
    """
    if losses.follows(known[0], now):
        return known[0]
    repeated = [at for at, call in enumerate(known) if losses.continues(call, now)]
    if not repeated:
        return known[0]
    longest = max(known[at].inputs or 0 for at in repeated)
    origins = [at for at in repeated if (known[at].inputs or 0) == longest]
    origin = origins[0]
    went_on = [origin]
    for at in range(origin - 1, -1, -1):
        if any(losses.continues(known[older], known[at]) for older in went_on):
            went_on.append(at)
    newest = known[went_on[-1]]
    if (newest.inputs or 0) < (now.inputs or 0):
        return next((known[at] for at in origins if losses.is_next(known[at], now)), newest)
    return newest


def _of_conversation(now: Call, fresh: Fresh, store: Readable, reach: int) -> list[Call]:
    """The newest calls of `now`'s conversation that had ended before it began; newest first."""
    stored = store.read(lambda database: _before(database, now, "conversation = ?", [now.conversation], reach))
    return _newest(now, (*stored, *fresh.get(("conversation", now.conversation), ())), reach)


def _of_session(now: Call, fresh: Fresh, requests: Sequence[RequestRow], store: Readable) -> list[Call]:
    """The same of its session. So rarely asked for that an index of them would cost more; requests have one."""

    def ask(database: Database) -> list[Call]:
        sql = "SELECT id FROM requests WHERE session = ? AND received_ms <= ? ORDER BY received_ms DESC LIMIT ?"
        ids = [id for (id,) in database.rows(sql, (now.session, now.started_ms, REQUESTS_OF_SESSION))]
        ids += [request.id for request in requests if request.session == now.session]  # a call may come before it
        where = f"request_id IN ({', '.join('?' * len(ids))})"
        return _before(database, now, where, ids, REACH_OF_SESSION) if ids else []

    stored = store.read(ask)
    return _newest(now, (*stored, *fresh.get(("session", now.session), ())), REACH_OF_SESSION)


def _before(database: Database, now: Call, where: str, values: Sequence[str | None], reach: int) -> list[Call]:
    """The newest that are stored."""
    sql = (
        f"{_CALLS.select} WHERE {where} AND finished_ms <= ? AND outcome = 'ok' AND output_tokens IS NOT NULL"
        " ORDER BY finished_ms DESC, id DESC LIMIT ?"
    )
    return [_CALLS.load(Call, found) for found in database.rows(sql, (*values, now.started_ms, reach))]


def _newest(now: Call, calls: Iterable[Call], reach: int) -> list[Call]:
    found = {call.id: call for call in calls if (call.finished_ms or 0) <= now.started_ms}
    found.pop(now.id, None)
    return sorted(found.values(), key=lambda call: (call.finished_ms or 0, call.id), reverse=True)[:reach]


def _by_conversation(attempts: Iterable[AttemptRow]) -> Fresh:
    found: Fresh = {}
    for row in attempts:
        if _is_whole(row):
            call = call_of(row)
            for column in ("conversation", "session"):
                found.setdefault((column, getattr(call, column)), []).append(call)
    return found


def _is_whole(row: AttemptRow) -> bool:
    """Whether the call was completed, and so leaves a cache behind. Counting tokens does not."""
    return row.outcome == "ok" and row.finished_ms is not None and row.output_tokens is not None


def _is_compacted(request: RequestRow) -> bool:
    return request.follows_compaction or request.compaction is not None or request.request_kind == "compaction"


def call_of(row: AttemptRow) -> Call:
    """What of an attempt tells of losses."""
    return Call(**{name: getattr(row, name) for name in Call.__struct_fields__})
