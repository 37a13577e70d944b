"""Climbing a plan: put the request to a rung, wait, try the next one, and come back with an answer in hand.

Which step comes next is `climb.Climb`'s to say; here it is taken, and what it teaches about accounts and providers is
written down for every worker. Whatever happens, each attempt that was opened is closed, and no connection outlives its
attempt.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import msgspec

from arbiter.attempt import turn_state, ways, windows
from arbiter.attempt.amounts import Amounts
from arbiter.attempt.artefacts import Artefacts, artefacts_of
from arbiter.attempt.aside import Aside
from arbiter.attempt.ask import Ask
from arbiter.attempt.books import Attempt, Books
from arbiter.attempt.climb import Climb, Step, at_once
from arbiter.attempt.continuity import Continuity, guard
from arbiter.attempt.conversation import Conversation
from arbiter.attempt.echo import Echo
from arbiter.attempt.lane import EVENTS, Lane
from arbiter.attempt.live import Live, StreamRelay
from arbiter.attempt.made_lanes import MadeLanes
from arbiter.attempt.measured import Measured
from arbiter.attempt.own_logins import OwnLogins
from arbiter.attempt.service_accounts import ServiceAccounts
from arbiter.clock import monotonic, monotonic_ns, now_ms
from arbiter.config.snapshot import Account, Budgets, Provider
from arbiter.errors import (
    ArbiterError,
    ClientGone,
    ErrorClass,
    Garbled,
    InStreamError,
    InternalError,
    KeyRefused,
    ProtocolUnsupported,
    Retry,
    TimedOut,
    Unreachable,
    UpstreamError,
    UpstreamStatus,
    let_go,
)
from arbiter.log import Blotter, Log
from arbiter.routing.plan import Plan, Rung
from arbiter.routing.undeclared import betas_of
from arbiter.state.base import State
from arbiter.upstream.exchange import Answering, Outgoing
from arbiter.upstream.transport import Transport
from arbiter.watch import Watch
from arbiter.wire import bound, bound_responses, faults, gemini_names, native, waits
from arbiter.wire.dialects import dialect_of
from arbiter.wire.format import Asked
from arbiter.wire.headers import to_upstream

LACKS_FOR_S = 900.0  # SPEC 6.1: how long an endpoint that was missing is not asked for
GUESSED_WAIT_S = 5.0  # SPEC 4.4: an account whose provider does not say for how long it is to rest
NUDGE = "Your last turn had no visible text. Give your answer now."
"""What a model that only thought is asked once more with (`speechless: nudge`)."""

COUNT_S, COUNT_QUEUE_S = 10.0, 1.0
ERROR_BODY_S = 5.0  # it is sent at once, or by somebody who stalls
ERROR_BODY_BYTES = 1 << 20  # of an error answer; more than any vendor's, and no page of a CDN is worth more


_log = Log(__name__)
_random = random.Random()


class Around(msgspec.Struct, frozen=True):
    """What every climb of a worker stands in: what all workers share, and what this one measures."""

    state: State
    measured: Measured
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Doors:
    """The ways out: the network, and the embedded echo provider.

    `blot` takes our own secrets out of what comes back: an upstream's debug page may repeat the key that we sent.
    """

    transport: Transport
    echo: Echo
    watch: Watch
    blot: Blotter
    logins: OwnLogins | None = None
    services: ServiceAccounts | None = None
    aside: Aside = field(default_factory=Aside)

    async def account(self, provider: Provider, account: Account) -> Account:
        """What `account` is sent as now. Errors: where it lives no longer than its token, what `OwnLogins.account`
        has."""
        tokens = self.tokens(provider)
        return account if tokens is None else await tokens.account(provider)

    def tokens(self, provider: Provider) -> OwnLogins | ServiceAccounts | None:
        """Who keeps the tokens that `provider` is asked on; None where it has keys."""
        if provider.oauth is not None:
            assert self.logins is not None, "a worker keeps the logins of its providers"
            return self.logins
        if provider.service is not None:
            assert self.services is not None, "a worker keeps the tokens of its providers"
            return self.services
        return None

    def send(
        self, provider: Provider, out: Outgoing, format: Asked, budgets: Budgets, *, stream: bool
    ) -> Awaitable[Answering]:
        if provider.type == "echo":
            return self.echo.send(out, format.name, budgets, stream=stream)
        return self.transport.send(
            provider.endpoint,
            out,
            budgets,
            stream=stream,
            max_connections=provider.max_connections,
            idle_connections=provider.idle_connections,
            idle_for_s=provider.idle_for_s,
        )


async def climb(plan: Plan, ask: Ask, book: Books, doors: Doors, around: Around, conversation: Conversation) -> Live:
    """An upstream that answered the request, its first event already in hand.

    Errors: the last attempt's, or why nobody was contacted. A stream has shown the client nothing until this returns.
    """
    state = around.state
    minds = not ask.counts_tokens
    continuity = guard(ask, plan, conversation, state)
    fits = continuity.fits if continuity is not None else None
    artefacts = artefacts_of(ask, plan, is_guarded=continuity is not None)
    small = windows.too_small(plan, ask) if len(plan.rungs) > 1 else {}
    made_lanes = MadeLanes(state, conversation, doors.aside)

    def tell(rung: Rung) -> ArbiterError | None:
        try:
            made_lanes.of(rung, rung.provider.accounts[0], ask)
        except ArbiterError as error:
            let_go(error)
            return error
        return None

    def begin(taken: Step | None) -> Climb:
        made = Climb(
            plan,
            state,
            monotonic,
            _random.random,
            conversation,
            fits,
            tell=tell,
            amount=ask.amount,
            small=small,
            minds_cooldowns=minds,
        )
        if taken is not None:
            made.took(taken)
        return made

    # Nearly always the first step is clear, and the only one: what decides on others is made when it is needed.
    step = at_once(plan, conversation, minds_cooldowns=minds) if fits is None and not small else None
    steps: Climb | None = None
    if step is None:
        # What the first step will be judged by.
        first = plan.rungs[0]
        if ask.is_long:
            if continuity is not None and not continuity.knows(first):
                await doors.aside.run(continuity.read)
            await made_lanes.prepare(first, first.provider.accounts[0], ask)
        steps = begin(None)
        step = steps.next()
    adapted: list[tuple[Rung, Ask]] | None = None
    was_renewed = False  # a login of ours, for this request
    silent: Live | None = None  # the answer that said nothing, kept until the second one is here
    suspects: list[Step] = []
    while True:
        if silent is not None and (step is None or step.why != "nudge"):
            return _as_it_was(silent, book, state, artefacts)
        if step is None:
            assert steps is not None, "it said that there is none"
            if adapted is None and continuity is not None and not steps.is_over:
                # Nobody is left who takes the conversation as it is.
                adapted = await _adapted(continuity, steps.unfit, ask, doors.aside)
            if not adapted or steps.is_over:
                if ask.is_long and not steps.has_contacted:
                    await _look_ahead(steps, made_lanes, ask)
                verdict = steps.verdict()
                book.explain(steps.passed)
                raise verdict
            rung, ask = adapted.pop(0)
            steps.admit(rung, is_last=not adapted)
            step = steps.next()
            continue
        waited_us: int | None = None
        if step.delay_s and steps is not None:
            began_ns = monotonic_ns()
            await asyncio.sleep(step.delay_s)
            waited_us = (monotonic_ns() - began_ns) // 1000
            if not steps.still_stands(step):
                step = steps.next()
                continue
        may_nudge = silent is None
        lane: Lane | None = None
        try:
            if ask.is_long:
                await made_lanes.prepare(step.rung, step.account, ask)
            lane = made_lanes.of(step.rung, step.account, ask)
            live = await _try(
                step, lane, waited_us, ask, book, doors, around, conversation, may_nudge=may_nudge, artefacts=artefacts
            )
        except asyncio.CancelledError:
            state.release(step.rung.provider.name)
            raise
        except ArbiterError as failure:
            error = failure
            let_go(error)
            if lane is None:
                state.release(step.rung.provider.name)  # nobody was asked: the next one tries it
            if lane is None and silent is None and isinstance(error, ProtocolUnsupported):
                # So nothing is lost: another target may speak what this one does not.
                steps = steps or begin(step)
                steps.passed_over(error)
                step = steps.next()
                continue
            _learn(state, step, error, ask)
            if (
                not was_renewed
                and isinstance(error, KeyRefused)
                and error.told == 401
                and doors.tokens(step.rung.provider) is not None
            ):
                # The token may have been taken back before its time. One that is new says whether the login was.
                was_renewed = True
                found = await _renewed(step.rung.provider, error, doors)
                if found is None:
                    steps = steps or begin(step)
                    steps.repeat("login")
                    step = steps.next()
                    continue
                error = found
            if _lacks_endpoint(step.rung, error, ask):
                # Known to all workers for a while; this request goes through chat at once.
                state.lack(step.rung.url, LACKS_FOR_S)
                steps = steps or begin(step)
                steps.repeat("transcode")
                step = steps.next()
                continue
            if silent is not None:
                return _as_it_was(silent, book, state, artefacts)
            if error.code is ErrorClass.CONFIG and error.retry is Retry.KEY:
                suspects.append(step)
            steps = steps or begin(step)
            if ask.is_long and (error.retry is Retry.SAME or isinstance(error, TimedOut)):
                await _look_ahead(steps, made_lanes, ask, step.rung)
            steps.failed(error, error.wait_s if isinstance(error, UpstreamError) else None)
            step = steps.next()
            continue
        state.served(step.rung.provider.name)
        if (tokens := doors.tokens(step.rung.provider)) is not None:
            tokens.served(step.rung.provider)
        if suspects:
            _refuse(state, step, suspects)
        if may_nudge and _is_to_be_nudged(live):
            # It ended well, and is on record as such; the client has seen nothing of it.
            live.close(None)
            ask = _nudged(ask)
            silent = live
            steps = steps or begin(step)
            steps.repeat("nudge")
            step = steps.next()
            continue
        if steps is not None and steps.passed:
            book.explain(steps.passed)
        if adapted is not None:
            book.warn(f"thinking_removed: made elsewhere, and {step.rung.name} would refuse it")
        if artefacts is not None:
            live.on_close = partial(_remember, state, artefacts)
        return live


async def _look_ahead(steps: Climb, made_lanes: MadeLanes, ask: Ask, besides: Rung | None = None) -> None:
    """Find out beside the loop whom a long request can be told, as far as the climb is about to ask."""
    for rung in steps.unknown(besides):
        await made_lanes.prepare(rung, rung.provider.accounts[0], ask)
        if steps.can_tell(rung):
            return


async def _adapted(continuity: Continuity, unfit: list[Rung], ask: Ask, aside: Aside) -> list[tuple[Rung, Ask]]:
    """The targets that would take the request without what they refuse, and what of it is left for each."""
    continuity.look_up()
    found = []
    for rung in unfit:
        adapt = partial(continuity.adapted, rung)
        made = await aside.run(adapt) if ask.is_long else adapt()
        if made is not None:
            found.append((rung, made))
    return found


async def _try(
    step: Step,
    lane: Lane,
    waited_us: int | None,
    ask: Ask,
    book: Books,
    doors: Doors,
    around: Around,
    conversation: Conversation,
    *,
    may_nudge: bool,
    artefacts: Artefacts | None,
) -> Live:
    rung, provider = step.rung, step.rung.provider
    is_key = provider.oauth is None and provider.service is None
    account = step.account if is_key else await doors.account(provider, step.account)
    dialect = dialect_of(provider)
    format = lane.format
    betas = betas_of(ask.window) if ask.window else ()
    headers = to_upstream(provider, account, format.name, ask.incoming, stream=ask.stream, betas=betas)
    if provider.forward_headers:
        headers = turn_state.told(headers, provider, around.state)
    conversation.dispatched(rung, account)
    attempt = book.open(
        rung,
        account,
        format.name,
        lane.name,
        lane.fidelity,
        why=step.why,
        wait_us=waited_us,
        edited=lane.edited,
        marked=lane.marked(),
    )
    if lane.left_out:
        book.warn(f"reasoning_left_out: thought elsewhere, and nothing to {rung.name}")
    target = lane.target()
    if dialect.seals:
        headers = dialect.sealed(provider, account, target, headers, lane.body, now_ms=now_ms(), stream=ask.stream)
    out = Outgoing(ask.method, target, headers, lane.body, attempt.sent)
    # A count is no load: whoever is the least busy is so by what it generates.
    measured = around.measured if not ask.counts_tokens else None
    budgets = provider.budgets if measured is not None else _brief(provider.budgets)
    if measured is not None:
        measured.began(rung.name)
    sent_ns = monotonic_ns()
    exchange: Answering | None = None
    live: Live | None = None
    try:
        exchange = await doors.send(provider, out, format, budgets, stream=ask.stream)
        attempt.answered(exchange)
        turn_state.heard(exchange, provider, around.state)
        if exchange.status >= 300:
            body = doors.blot.raw(await _error_body(exchange))
            error = format.parse_error(exchange.status, exchange.headers, body)
            error.format = format.name if dialect.tells_errors else ""
            error.wait_s = waits.wait_s(exchange.status, exchange.headers, body, now_ms())
            refusal = _refusal(provider, error)
            if isinstance(refusal, KeyRefused):
                refusal.on = account
            raise refusal
        live = Live(rung, account, attempt, exchange, lane.fidelity, measured, sent_ns)
        nudge_bytes = ask.limits.stream_buffer if provider.speechless == "nudge" and may_nudge else 0
        kind = (exchange.header("content-type") or "").lower()
        frames = dialect.unframer(kind, format.name, ask.limits.event) if ask.stream else None
        if frames is not None or (ask.stream and _is_event_stream(exchange)):
            live.stream = StreamRelay(lane, exchange, doors.watch, nudge_bytes=nudge_bytes, frames=frames)
            live.kind = lane.kind if frames is None else EVENTS
            if artefacts is not None:
                artefacts.watch(around.state, live, lane)
            exchange.stream(live.stream)
            await live.stream.first()
        else:
            limit = ask.limits.answer
            here = exchange.here(limit)
            answer = here if here is not None else await exchange.read(limit)
            attempt.whole()
            whole = await lane.whole(answer, kind)
            live.body, live.facts, live.kind = whole.body, whole.facts, whole.kind
            if whole.error is not None:
                raise whole.error
        return live
    except BaseException as error:
        _give_up(live, attempt, exchange, meaning(error))
        if live is None and measured is not None:
            measured.ended(rung.name)
        raise


@lru_cache(64)
def _brief(budgets: Budgets) -> Budgets:
    """The budgets of a count: an estimate is at hand, and better than a long wait."""
    queue_s, unary_s = budgets.queue_s or COUNT_QUEUE_S, budgets.unary_s or COUNT_S
    return replace(budgets, queue_s=min(queue_s, COUNT_QUEUE_S), unary_s=min(unary_s, COUNT_S))


def _remember(state: State, artefacts: Artefacts, live: Live, error: ArbiterError | None) -> None:
    artefacts.remember(state, live)


def _nudged(ask: Ask) -> Ask:
    if ask.format.name == native.RESPONSES:
        return ask.edited(bound_responses.nudged(ask.opened.members, NUDGE), ("$.input[-1]",))
    if ask.format.name == native.GEMINI:
        return ask.edited(gemini_names.nudged(ask.opened.members, NUDGE), ("$.contents[-1]",))
    return ask.edited(bound.nudged(ask.opened.members, NUDGE), ("$.messages[-1]",))


def _learn(state: State, step: Step, error: ArbiterError, ask: Ask) -> None:
    """What a failed step says about its account and its provider, for all workers."""
    provider, account = step.rung.provider.name, step.account
    is_late = isinstance(error, TimedOut) and error.phase in ("first_event", "idle", "total")
    if is_late or isinstance(error, UpstreamStatus | InStreamError | KeyRefused | Garbled):
        state.served(provider)  # badly, but it is there
    if isinstance(error, Unreachable) or (isinstance(error, TimedOut) and error.phase in ("connect", "headers")):
        state.failed(provider)
    # Counting has limits of its own, and a burst of it must not keep anybody from an answer.
    is_limited = isinstance(error, UpstreamError) and error.retry is Retry.KEY and error.code is not ErrorClass.CONFIG
    if is_limited and not ask.counts_tokens:
        told_s = error.wait_s if isinstance(error, UpstreamError) else None
        wait_s = told_s if told_s is not None else GUESSED_WAIT_S
        is_quota = error.code is ErrorClass.QUOTA_EXHAUSTED
        state.cool((provider, account.name), wait_s, is_told=told_s is not None, is_quota=is_quota)
        _log.info("an account rests", provider=provider, account=account.label, seconds=wait_s)


async def _renewed(provider: Provider, refused: KeyRefused, doors: Doors) -> ArbiterError | None:
    """Have the login renewed that was refused; what went wrong with that, where something did."""
    tokens = doors.tokens(provider)
    assert tokens is not None and isinstance(refused.on, Account), "it was asked on one"
    try:
        await tokens.renewed(provider, refused.on)
    except ArbiterError as error:
        return error
    return None


def _lacks_endpoint(rung: Rung, error: ArbiterError, ask: Ask) -> bool:
    """Whether a provider that was asked for Responses has just said that it has none (SPEC 6.1)."""
    if not ways.may_lack(ask.format.name, rung) or ask.is_bound_to_format or not isinstance(error, UpstreamStatus):
        return False
    return error.format == native.RESPONSES and faults.lacks_endpoint(error)


def _refuse(state: State, served: Step, suspects: list[Step]) -> None:
    """Another key of the provider got the same request answered, by the same model: those that did not are at fault.

    Without that proof none is marked: a request for what no key may do, or an hour in which the provider takes no key,
    must not keep everybody else from it until a reload.
    """
    for step in suspects:
        if step.rung is served.rung and step.account is not served.account:
            provider, account = step.rung.provider.name, step.account
            state.refuse((provider, account.name))
            _log.warn("a key was refused and is not used until a reload", provider=provider, account=account.label)
    suspects.clear()


def _as_it_was(silent: Live, book: Books, state: State, artefacts: Artefacts | None) -> Live:
    """The answer that said nothing, after all. The nudge was an offer; what was answered without it is an answer."""
    book.serves(silent.rung, silent.fidelity)
    if artefacts is not None:
        artefacts.remember(state, silent)
    return silent


async def _error_body(exchange: Answering) -> bytes:
    """What an upstream says about its error; nothing where that does not come whole and soon. The status is known
    already, and what it means must not wait for words, nor depend on them."""
    try:
        async with asyncio.timeout(ERROR_BODY_S):
            return await exchange.read(ERROR_BODY_BYTES)
    except (TimeoutError, ArbiterError):
        return b""


def _is_to_be_nudged(live: Live) -> bool:
    if live.rung.provider.speechless != "nudge":
        return False
    if live.stream is None:
        return live.facts is not None and live.facts.is_speechless
    return live.stream.is_whole and live.stream.facts().is_speechless


def meaning(error: BaseException) -> ArbiterError:
    """What the books say of an attempt that ended so."""
    if isinstance(error, ArbiterError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return ClientGone("the client hung up, or the gateway stopped, before the answer began")
    return InternalError("the gateway failed on this attempt; its log says why")


def _give_up(live: Live | None, attempt: Attempt, exchange: Answering | None, error: ArbiterError) -> None:
    if exchange is not None:
        exchange.abort()
    if live is not None:
        live.close(error)
    else:
        attempt.close(None, error)


def _is_event_stream(exchange: Answering) -> bool:
    kind = exchange.header("content-type")
    # llama.cpp and vLLM label their streams; a server that labels nothing is taken at its word, not at its label.
    return kind is None or kind.lower().startswith(("text/event-stream", "application/octet-stream", "text/plain"))


def _refusal(provider: Provider, error: UpstreamStatus) -> ArbiterError:
    """Their refusal of *our* key is our configuration's fault; the caller must not be asked to log in (SPEC 4.8). What
    they say of the caller's own login is for the caller."""
    if error.code is ErrorClass.UNAUTHORIZED and error.status == 400:  # Google's word for a key that it does not know
        return KeyRefused(f"the provider {provider.name!r} refused the gateway's key (400): {error}")
    if (
        error.code in (ErrorClass.UNAUTHORIZED, ErrorClass.FORBIDDEN)
        and error.status in (401, 403)
        and not provider.takes_logins
    ):
        # A 403 need not mean the key: it may be good, and its account not allowed to do this.
        what = "the gateway's key (401)" if error.status == 401 else "the gateway (403)"
        return KeyRefused(f"the provider {provider.name!r} refused {what}: {error}", told=error.status)
    if error.status < 400:
        # A redirect would take the request, and the key, to a place that nobody configured.
        return Garbled(f"the upstream answered {error.status}, and redirects are not followed")
    return error
