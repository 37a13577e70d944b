"""Why a call read less from the provider's prompt cache than the call before it had left there (SPEC 7.5).

Theory of operation. A call leaves in the cache what it read from it and what it wrote to it; where the provider reports
no writes, its whole prompt. The next call of the conversation reads that, or pays for it once more: what is missing is
lost. A small part is no loss: providers read in blocks, and late.

A lost prefix has one cause. They are asked for in the order of `CAUSES`. First what makes another prompt of it from the
beginning: another model, a new history, other tools or instructions (these may move a conversation to another account;
they are the cause then, and the account is not). Then where it was asked for, then what changes how it is read, then
the history, then time, then what the provider itself left out of the prompt. Only what nothing explains is an alarm:
the history was rewritten where it should have been repeated (`drift`), or nothing differs and the provider forgot
(`miss`), or there is nothing to tell the two apart by (`undetermined`). A client's drift goes before a cold
predecessor: whoever rewrites its history in each call has cold predecessors only, and would never be told.

A new history need not show in the old one. Where the provider compacts, the client repeats all that it had, and behind
it a part that stands in its place: only the answer that brought the part tells of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from arbiter.accounting.caches import Cache
from arbiter.accounting.prices import MAX_PD
from arbiter.config.rates import Rate

CAUSES: Final = (
    "below_minimum",
    "model",
    "compaction",
    "tools",
    "system",
    "account",
    "effort",
    "settings",
    "rewrite",
    "rewind",
    "idle",
    "marks",
    "cleared",
    "thinking",
    "drift",
    "cold_predecessor",
    "miss",
    "undetermined",
)
"""In the order in which they are asked for. What each means stands in docs/ledger.md."""

ALARMS: Final = frozenset({"drift", "miss", "undetermined"})
"""Losses that nothing explains. The others are reasons."""

_BY_HISTORY: Final = frozenset({"compaction", "drift", "undetermined"})
"""Causes that are found in a history which differs."""

PART_OF_PROMPT = 20  # a loss is more than a twentieth of the prompt
RESPONSES = "openai-responses"
MESSAGES = "anthropic-messages"  # the format in which a cache is read and written by marks
LOOKBACK_BLOCKS = 20
"""How far before a mark Anthropic looks for what it has cached, in blocks of content."""

_LASTS = re.compile(r"@(\d{1,9})([smhd])$")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_OF_MESSAGE = re.compile(r"message:(\d{1,9})")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What of an attempt's row tells why a cache was lost; the names and their meanings are the row's."""

    id: str
    provider: str
    format_out: str
    lane: str = "native"
    started_ms: int
    account: str | None = None
    model_asked: str | None = None
    model_served: str | None = None
    finished_ms: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    tool_names: list[str] | None = None
    thinking_bytes: int | None = None
    client: str | None = None
    session: str | None = None
    request_kind: str | None = None
    conversation: str | None = None
    head_hash: str | None = None
    system_hash: str | None = None
    tools_hash: str | None = None
    inputs: int | None = None
    effort: str | None = None
    settings_hash: str | None = None
    cache_marks: list[str] | None = None
    input_chain: list[str] | None = None
    replaced: int | None = None
    projection_hash: str | None = None
    cleared_tokens: int | None = None
    compacted: bool = False

    @property
    def prompt(self) -> int | None:
        """Tokens of the whole prompt, however they were paid for."""
        if self.input_tokens is None:
            return None
        return self.input_tokens + (self.cached_tokens or 0) + (self.cache_write_tokens or 0)

    @property
    def left(self) -> int | None:
        """Tokens that this call left in the cache."""
        if self.cache_write_tokens is None:
            return self.prompt
        return (self.cached_tokens or 0) + self.cache_write_tokens


class Loss(NamedTuple):
    """`at` is the first kept position at which the two histories differ, `within` where in the prompt that is."""

    cause: str
    tokens: int
    at: int | None = None
    within: str | None = None


def most(now: Call) -> int:
    """The most that this call can have lost: what it paid for at more than the price of reading.

    A call that does not say what it read has lost nothing that anybody knows of.
    """
    prompt = now.prompt
    return prompt - now.cached_tokens if prompt is not None and now.cached_tokens is not None else 0


def counts(tokens: int, now: Call, cache: Cache) -> bool:
    """Whether so many lost tokens are a loss, and no rounding."""
    return tokens >= max(cache.floor, 1) and tokens * PART_OF_PROMPT > (now.prompt or 0)


def judge(
    before: Call, now: Call, cache: Cache, *, is_compacted: bool = False, earlier: Sequence[Call] = ()
) -> Loss | None:
    """What `now` lost of what `before` had left, and why; None where that is nothing worth a word.

    `before` is the call that `now` goes on from, ended before `now` began. `is_compacted`: the agent says that it has
    compacted its context. `earlier` are other calls of the same conversation: they know more of its history.
    """
    left = before.left
    if left is None or now.cached_tokens is None or now.prompt is None:
        return None
    # What a shorter prompt no longer holds, nobody pays for.
    tokens = min(left, now.prompt) - now.cached_tokens
    if not counts(tokens, now, cache):
        return None
    is_compacted = is_compacted or before.compacted or now.compacted
    histories = _compare(before, now, earlier)
    cause = _cause(before, now, cache, histories, earlier, is_compacted=is_compacted)
    if cause in _BY_HISTORY and not histories.agrees_at and not is_compacted and not _may_be_one(before, now):
        return None
    if cause in ("tools", "system"):
        return Loss(cause, tokens, within=cause)
    if before.head_hash != now.head_hash or histories.differs_at is None:
        return Loss(cause, tokens)
    return Loss(cause, tokens, histories.differs_at, _messages(histories))


def goes_on(before: Call, now: Call) -> bool:
    """Whether `now` may go on from a call of its session that had other instructions, and so another slot.

    A title, or a sub-agent without a session of its own, begins anew: it has other tools and no answer in its history.
    """
    if before.inputs is None or now.inputs is None or now.inputs < before.inputs + 2:
        return False
    if before.request_kind is not None and before.request_kind == now.request_kind:
        return True
    has_tools = bool(now.tools_hash) and before.request_kind == now.request_kind
    return has_tools and before.tools_hash == now.tools_hash


def continues(before: Call, now: Call) -> bool:
    """Whether `now` repeats all of `before`'s history: its last hash stands among the kept ones (SPEC 7.4)."""
    if not before.input_chain or not now.input_chain:
        return False
    return before.input_chain[-1] in now.input_chain


def follows(before: Call, now: Call) -> bool:
    """Whether `now` is `before`'s next turn, or the same request again."""
    return continues(before, now) and (before.inputs == now.inputs or is_next(before, now))


def is_next(before: Call, now: Call) -> bool:
    """Whether one history is longer than the other by a turn: an answer, and what each of its calls gave."""
    return 0 < (now.inputs or 0) - (before.inputs or 0) <= _most_of_a_turn(before)


def lost_pd(now: Call, tokens: int, rate: Rate | None) -> int | None:
    """What `now` paid for the lost tokens beyond the price of reading them; None where a price is unknown.

    Units: picodollars. Tokens that were written to the cache again cost the price of writing (in the proportion in
    which this call wrote for an hour and for less), the others that of input.
    """
    if rate is None:
        return None
    rate = next((tier for above, tier in rate.tiers if (now.prompt or 0) > above), rate)
    written = now.cache_write_tokens or 0
    again = min(tokens, written)
    hour = again * min(now.cache_write_1h_tokens or 0, written) // written if written else 0
    paid = ((hour, rate.cache_write_1h), (again - hour, rate.cache_write_5m), (tokens - again, rate.input))
    total = 0
    for count, price in paid:
        if not count:
            continue
        if price is None or rate.cached_input is None:
            return None
        total += count * (price - rate.cached_input)
    return total if 0 <= total <= MAX_PD else None


# ---------------------------------------------------------------------- inside


class _Histories(NamedTuple):
    """Two chains side by side. `agrees_at` is the last position before any difference at which they agree; 0: none."""

    is_shared: bool = False  # some position was kept by both
    agrees_at: int = 0
    differs_at: int | None = None
    is_continued: bool = False
    is_longer: bool = True  # the newer history; also where nobody knows
    is_same: bool = False


def _cause(
    before: Call, now: Call, cache: Cache, histories: _Histories, earlier: Sequence[Call], *, is_compacted: bool
) -> str:
    # What was read or written was long enough, whatever is known of the model.
    cached = max(before.cached_tokens or 0, before.cache_write_tokens or 0)
    if min(before.prompt or 0, now.prompt or 0) < (min(cache.minimum, cached) if cached else cache.minimum):
        return "below_minimum"
    if _model(before, now):
        return "model"
    # The provider's own stands within a history that goes on as if nothing were.
    if before.compacted or now.compacted or (is_compacted and not histories.is_continued):
        return "compaction"
    if before.head_hash is not None and now.head_hash is not None:
        if before.tools_hash != now.tools_hash:
            return "tools"
        if before.system_hash != now.system_hash:
            return "system"
    if (before.provider, before.account) != (now.provider, now.account):
        return "account"
    if before.effort != now.effort:
        return "effort"
    if before.settings_hash != now.settings_hash:
        return "settings"
    if _is_rewritten(before, now):
        return "rewrite"
    if not histories.is_longer and not histories.is_same:
        if histories.agrees_at:
            return "rewind"
        if now.inputs != before.inputs:
            return "compaction"
    if now.started_ms - before.started_ms >= 1000 * _lasts_s(before.cache_marks, cache.ttl_s):
        return "idle"
    if _is_unmarked(before, now, histories):
        return "marks"
    if before.cleared_tokens != now.cleared_tokens:
        return "cleared"
    if cache.drops_thinking and histories.is_continued and _has_dropped_thoughts(before, earlier):
        return "thinking"
    if histories.differs_at is not None:
        return "drift"
    if not before.cached_tokens and not before.cache_write_tokens:
        return "cold_predecessor"
    return "miss" if histories.is_shared else "undetermined"


def _model(before: Call, now: Call) -> bool:
    """Whether another model answered: by the name that it gave itself, where both did."""
    if before.model_served is not None and now.model_served is not None:
        return before.model_served != now.model_served
    return before.model_asked != now.model_asked


def _may_be_one(before: Call, now: Call) -> bool:
    """Whether two histories that share nothing may be one conversation, by their lengths.

    In a session with one prompt they are, but for questions that stand by themselves: no answer is in their history, or
    none was added. Where nobody told the session, one must be longer than the other by about a turn.
    """
    if before.inputs is None or now.inputs is None:
        return now.session is not None
    if now.session is None:
        return before.inputs >= 3 and is_next(before, now)
    return before.inputs >= 3 or now.inputs >= before.inputs + 2


def _most_of_a_turn(call: Call) -> int:
    """How many inputs the next turn adds at most, with one to spare: agents put in reminders of their own."""
    calls = len(call.tool_names or ())
    if (call.format_out == MESSAGES) == (call.lane == "native"):
        return 3  # the client speaks Messages: an answer is one input, and so are all results together
    return 2 + max(1, calls) if call.format_out != RESPONSES else 4 + 2 * calls


def _is_rewritten(before: Call, now: Call) -> bool:
    """Whether the gateway changed something that it had sent otherwise before.

    What it makes of new inputs changes nothing of that: then there are no more changed ones than new ones.
    """
    if before.projection_hash == now.projection_hash:
        return False
    more = (now.replaced or 0) - (before.replaced or 0)
    if not 0 <= more <= (now.inputs or 0) - (before.inputs or 0):
        return True
    return more == 0 and (before.projection_hash is None) != (now.projection_hash is None)


def _is_unmarked(before: Call, now: Call, histories: _Histories) -> bool:
    """Whether the request did not ask for what was cached, where one must: it set no mark, or one too far behind."""
    if now.format_out != MESSAGES or not before.cache_marks or now.cache_marks is None:
        return False
    if not now.cache_marks:
        return True
    if before.inputs is None or not histories.is_continued:
        return False
    # Text, thoughts, and each call of the last answer stand there as blocks, and each result as another.
    blocks = 2 * len(before.tool_names or ()) + 1 + bool(before.thinking_bytes)
    marked = {int(found[1]) for mark in now.cache_marks if (found := _OF_MESSAGE.match(mark))}
    is_marked_between = not marked.isdisjoint((before.inputs - 1, before.inputs))
    return not is_marked_between and blocks >= LOOKBACK_BLOCKS


def _has_dropped_thoughts(before: Call, earlier: Sequence[Call]) -> bool:
    """Whether a turn of several calls ended with `before`, so that the thoughts in it leave the prompt."""
    if before.tool_names:
        return False  # its results come now: the turn goes on
    call = next((one for one in earlier if one.id != before.id and continues(one, before)), None)
    return call is not None and bool(call.tool_names) and bool(call.thinking_bytes)


def _lasts_s(marks: Sequence[str] | None, default_s: float) -> float:
    """How long the prefix that ends with the last mark is kept after its last use."""
    found = _LASTS.search(marks[-1]) if marks else None
    return int(found[1]) * _UNIT_S[found[2]] if found else default_s


def _compare(before: Call, now: Call, earlier: Sequence[Call]) -> _Histories:
    is_told = bool(before.input_chain and now.input_chain)
    is_longer = not is_told or before.inputs is None or now.inputs is None or now.inputs > before.inputs
    is_continued = continues(before, now)
    old, new = _kept(before), _kept(now)
    shared = sorted(old.keys() & new.keys() - {0})
    differs_at = next((position for position in shared if old[position] != new[position]), None)
    agreed = [position for position in shared if differs_at is None or position < differs_at]
    if not agreed and not is_longer:
        # A long history keeps little of its beginning. Whoever made that beginning knew all of it.
        known = {spot for call in earlier for spot in _kept(call).items()} & new.items()
        agreed = sorted(at for at, _ in known if at and (differs_at is None or at < differs_at))
    return _Histories(
        is_shared=bool(shared),
        agrees_at=agreed[-1] if agreed else 0,
        differs_at=differs_at,
        is_continued=is_continued,
        is_longer=is_longer,
        is_same=is_continued and before.inputs == now.inputs,
    )


def _kept(call: Call) -> dict[int, str]:
    """The positions of a history that its chain kept, with their hashes.

    Instructions among the inputs are none of it: behind them stands the head's own hash, and all with that head agree.
    """
    head = (call.head_hash or "")[:12]
    kept = {}
    for entry in call.input_chain or ():
        position, _, digest = entry.partition(":")
        if digest != head and position.isascii() and position.isdigit():
            kept[int(position)] = digest
    return kept


def _messages(histories: _Histories) -> str:
    """Between the last position that agrees and the first that does not."""
    first, last = histories.agrees_at + 1, histories.differs_at
    return f"message {last}" if first == last else f"messages {first}-{last}"
