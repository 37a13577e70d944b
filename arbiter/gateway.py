"""The spine: one request, from bytes to settled row. Everything else is called from here, in this order.

open        who asks, and for what: the body, opened one level deep
plan        where it may go
climb       an upstream that answered, its first event already in hand
relay       upstream bytes to the client, as they come
settle      exactly one row, whatever happened
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from msgspec import Raw

from arbiter import earlier, ids, stored
from arbiter.attempt import ladder, logins
from arbiter.attempt.amounts import Amount
from arbiter.attempt.ask import Ask
from arbiter.attempt.client_end import ClientEnd, Overheard, Room
from arbiter.attempt.continuity import check_owner, maker
from arbiter.attempt.conversation import Conversation
from arbiter.attempt.counting import Estimate
from arbiter.attempt.ladder import Around
from arbiter.attempt.lane import EVENTS
from arbiter.attempt.live import Live, StreamRelay
from arbiter.call import Call
from arbiter.clock import monotonic_ns, now_ms
from arbiter.errors import (
    ArbiterError,
    BadRequest,
    ClientGone,
    ErrorClass,
    Garbled,
    InternalError,
    Paused,
    Unavailable,
    Unreachable,
    UpstreamStatus,
    let_go,
)
from arbiter.inputs import conversation_of
from arbiter.kept import TITLE_BYTES, heard, report, tell_words
from arbiter.ledger.book import Book, clipped, told, told_once
from arbiter.ledger.prompt import Apart, Prompt
from arbiter.ledger.titles import TITLE
from arbiter.log import Log
from arbiter.own_headers import STREAM_HEADERS, cost, own_headers, timing
from arbiter.presence import Presence
from arbiter.routing.plan import Asked, Caller, Plan
from arbiter.sessions.compaction import COMPACTIONS, compaction
from arbiter.sessions.identity import NOBODY, identify
from arbiter.sessions.labels import labels_of
from arbiter.state.base import Pause
from arbiter.wire import native
from arbiter.wire.gemini_embeddings import texts_of
from arbiter.wire.gemini_names import to_count
from arbiter.wire.headers import Pairs, to_client, visible
from arbiter.wire.vault import vault_of

_MODEL_CHARS = 256  # no model has a longer name, and it stands in rows, headers and messages
_NO_TURNS = ("count_tokens", "embeddings")  # no turns of a conversation: never streamed, and they leave no trace in it

_log = Log(__name__)


async def serve(call: Call, out: ClientEnd) -> None:
    """Answer one call and settle it: exactly one row, whatever happens."""
    services, row = call.services, call.row
    book = Book(services.journal, services.metrics, row, call.doors.blot)
    services.in_flight += 1
    services.waiting[call] = task = call.task
    overheard: Overheard | None = None
    capture = services.capture
    if capture is not None:
        out = overheard = Overheard(out, services.room if capture.settings.content else None)
    try:
        await _answer(call, out, book)
        row.outcome = "ok"
    except ArbiterError as error:
        if isinstance(error, InternalError):  # who made it logged the bug, and did not know whose request it was
            _log.error("a request failed inside the gateway", trace_id=row.trace_id, error=error)
        _note(call, error)
        await _tell(call, out, error)
    except asyncio.CancelledError:
        over = Unavailable("the gateway is shutting down") if services.is_over and not out.gone else None
        _note(call, over or ClientGone("the client hung up"))
        if over is None and not out.gone:
            raise
        if task is not None:
            task.uncancel()
        if over is not None:
            await _tell(call, out, over)
    except Exception as bug:
        # A bug of ours costs this request, not the worker. The log says more than the client needs to know.
        _log.error("a request failed inside the gateway", trace_id=row.trace_id, error=bug)
        failure = InternalError(f"the gateway failed on this request; its log says why under trace id {row.trace_id}")
        _note(call, failure)
        await _tell(call, out, failure)
    finally:
        services.in_flight -= 1
        services.waiting.pop(call, None)
        if overheard is not None:
            overheard.let_go()
        _settle(call, out, book)
        if capture is not None and overheard is not None:
            capture.take(heard(call, overheard))
            if overheard.left_out:
                services.metrics.count("arbiter_capture_cut_total")


async def _answer(call: Call, out: ClientEnd, book: Book) -> None:
    services, row = call.services, call.row
    if services.is_over:
        raise Unavailable("the gateway is shutting down")
    caller = call.door.identify()
    if caller.client is not None:
        row.client, row.client_group = caller.client.name, caller.client.group
    if caller.login is not None:
        # Whoever it is sent to may repeat it.
        call.secrets = caller.login.secrets
        call.doors = replace(call.doors, blot=call.doors.blot.also(call.secrets))
        book.blot = call.doors.blot
    body = await call.door.read_body()
    row.bytes_in = len(body)
    if call.endpoint in stored.ENDPOINTS:
        plan, ask = stored.understood(call, caller)
        conversation = Conversation(services.around.state, None, ask.opened.model, keeps=False)
        row.stream, row.request_kind = ask.stream, "auxiliary"
    else:
        opened = _opened(call, body)
        del body  # what is still here when the answer flows is held until it ends
        if services.control is not None and call.format.name == native.RESPONSES:
            opened = await earlier.carried_on(opened, caller.owner, services.around.state, call.doors, services.control)
        plan, ask, conversation = _understood(call, caller, opened, book)
        del opened
    if row.request_kind == TITLE and call.own is None and call.snapshot.sessions.titles is not None:
        out = call.answer = Overheard(out, Room(TITLE_BYTES))
    row.alias, row.rationale, row.warning = plan.alias, told(plan.rationale), plan.warning
    presence = Presence(call, out)
    try:
        if conversation.standing.pauses:
            _check_pauses(conversation.standing.pauses, caller)
        if not services.journal.healthy and call.snapshot.storage.on_full == "refuse":
            what = "is full" if services.journal.full else "cannot be written"
            raise Unavailable(f"the ledger {what} and `storage.on_full` is `refuse`", retry_after_s=5)
        around = services.around
        if plan.is_auto and ("provider", plan.rungs[0].provider.name) not in conversation.standing.pauses:
            await _check_model(call, plan, book)
        if ask.counts_tokens and ask.amount is not None:
            live = await services.counting.count(plan, ask, book, call.doors, around, conversation, ask.amount)
            if isinstance(live, Estimate):
                _tell_estimate(call, out, book, live)
                return
        else:
            live = await ladder.climb(plan, ask, book, call.doors, around, conversation)
        try:
            if caller.login is not None and live.rung.provider.takes_logins:
                logins.accepted(caller.login, live.rung.provider, around.state)
            if call.doors.tokens(live.rung.provider) is not None:
                call.secrets += tuple(value.partition(" ")[2] for _, value in live.account.sent)
            row.affinity = conversation.served(live.rung, live.account)
            if services.capture is not None and services.capture.settings.content:
                earlier.remember(around.state, ask, live)
            amount = ask.amount
            del ask
            flowing = _relay(call, out, live, book, amount, presence)
            if flowing is not None:
                await flowing
        except BaseException as error:
            # Whatever it was: no attempt stays open, and no upstream goes on for nobody.
            live.give_up(ladder.meaning(error))
            raise
        if call.endpoint not in _NO_TURNS and amount is not None and live.facts is not None:
            around.amounts.heard(live.rung.name, amount, live.facts.usage)
    except UpstreamStatus as error:
        if caller.login is not None and error.status == 401:
            logins.disclaimed(caller.login, services.around.state)
        raise
    finally:
        presence.close()
        if plan.claims and caller.login is not None and not (book.has_sent or plan.is_auto):
            logins.unsent(caller.login, services.around.state)


def _opened(call: Call, body: bytes) -> native.Opened:
    """What is asked for, one level deep."""
    opened = native.open_body(body, call.snapshot.limits.json_depth, call.addressed)
    if len(opened.model) > _MODEL_CHARS:
        raise BadRequest(f"`model` is longer than {_MODEL_CHARS} characters", param="model")
    call.members, call.row.model_asked = opened.members, told(opened.model)
    return opened


def _understood(call: Call, caller: Caller, opened: native.Opened, book: Book) -> tuple[Plan, Ask, Conversation]:
    """Where a request for an answer may go, what is asked there, and in which conversation."""
    services, row = call.services, call.row
    call.members = members = opened.members
    goes_on = call.endpoint not in _NO_TURNS
    row.stream = stream = opened.stream and goes_on
    slot = _place(call, caller, members, book) if call.own is None else None
    counted: Mapping[str, Raw] = members
    if call.endpoint == "count_tokens":
        counted = to_count(members)
    elif call.format.name == native.GEMINI_EMBEDDINGS:
        counted = texts_of(members)
    if services.prefixes is not None and call.endpoint != "count_tokens":
        book.prompt = Prompt(services.prefixes, members) if goes_on else Apart(counted)
    state, name = services.around.state, caller.name
    conversation = Conversation(state, slot, opened.model, keeps=goes_on)
    amount = services.around.amounts.of(counted, name or told(call.incoming.product))
    ask = Ask(
        call.format,
        call.path,
        opened,
        call.incoming,
        call.snapshot.limits,
        stream=stream,
        trace_id=row.trace_id,
        amount=amount,
        owner=caller.owner,
        client=name,
        vault=vault_of(call.snapshot.reasoning_keys),
        edits=opened.edits,
    )
    if call.format.name == native.RESPONSES:
        check_owner(ask, state)
        conversation.goes_on_from(maker(ask, state))
    plan = call.router.settled(opened.model, caller.client, conversation.wanted)
    if plan is None:
        asked = Asked(
            model=opened.model,
            caller=caller,
            pinned=conversation.wanted,
            slot=slot,
            draw=ids.draw(),
            facts=services.around.measured,
            amount=amount,
        )
        plan = call.router.plan(asked)
    ask.window = plan.window
    return logins.admitted(plan, caller, call.format.name, state), ask, conversation


def _place(call: Call, caller: Caller, members: Mapping[str, Raw], book: Book) -> bytes | None:
    """Write down which conversation this belongs to, and what it is for there; returns the slot of its pin, if any."""
    row, fields = call.row, call.incoming.fields
    identity = identify(fields, members, caller.client, call.snapshot.sessions)
    if identity is not NOBODY:
        row.session, row.parent_session = identity.session, identity.parent
        row.agent, row.request_kind = identity.agent, identity.kind
    if call.endpoint == "compact":
        row.request_kind = row.request_kind or "compaction"
    if (labels := labels_of(fields)) is not None:
        row.labels = {name: told_once(value) for name, value in labels.items()}
    found = None
    if call.endpoint != "embeddings":
        found = call.affinity.slot(call.format.name, members, fields, identity.session, caller.owner)
    slot = None
    if found is not None:
        book.conversation = key = found.key.hex()
        if call.affinity.pins(identity.kind):
            slot, row.affinity_key = found.key, key
    if identity.kind == TITLE and identity.session is None:
        row.opener = call.affinity.named(conversation_of(members)).hex() or None
    elif found is not None and found.opener:
        row.opener = found.opener.hex()
    if not COMPACTIONS.isdisjoint(fields):
        row.compaction, row.follows_compaction = compaction(fields)
    return slot


async def _check_model(call: Call, plan: Plan, book: Book) -> None:
    """Errors: NoRoute where the provider says that it has no such model."""
    rung, services = plan.rungs[0], call.services
    account = await call.doors.account(rung.provider, rung.provider.accounts[0])
    warning = await services.auto_models.check(rung, account, call.incoming, call.doors, services.around.state)
    if warning is not None:
        book.warn(warning)


def _tell_estimate(call: Call, out: ClientEnd, book: Book, found: Estimate) -> None:
    """A count that nobody made but us, and that says so."""
    row = call.row
    call.services.waiting.pop(call, None)
    row.provider, row.model = found.rung.provider.name, found.rung.model
    row.rationale = f"{row.rationale}; tokens estimated: {found.why}"
    row.first_byte_us = (monotonic_ns() - call.arrived_ns) // 1000
    row.overhead_us = max(0, row.first_byte_us - book.waited_us)
    own = [("content-type", "application/json"), *own_headers(row, found.rung), ("x-arbiter-estimate", found.why)]
    out.reply(200, own, found.body)


def _check_pauses(pauses: Mapping[tuple[str, str], Pause], caller: Caller) -> None:
    """Errors: Paused where an operator stopped everything, or this client. A paused provider is the climb's affair."""
    pause = pauses.get(("all", "")) or pauses.get(("client", caller.name or ""))
    if pause is not None:
        what = "all traffic" if pause.scope == "all" else f"the client {caller.name!r}"
        raise Paused(f"an operator has paused {what}" + (f": {pause.reason}" if pause.reason else ""))


def _relay(
    call: Call, out: ClientEnd, live: Live, book: Book, amount: Amount | None, presence: Presence
) -> Awaitable[None] | None:
    """Send the client its answer: a whole one at once, a stream while what is returned is awaited."""
    row, stream = call.row, live.stream
    call.services.waiting.pop(call, None)
    _name_served(call, live)
    row.first_byte_us = first_byte_us = (monotonic_ns() - call.arrived_ns) // 1000
    # What earlier attempts took, and the pauses between them, are none of our own work either.
    waited_us = book.waited_us + live.attempt.waited_us(stream.first_event_ns if stream is not None else 0)
    row.overhead_us = overhead_us = max(0, first_byte_us - waited_us)
    headers = call.doors.blot.pairs(to_client(live.exchange.headers))
    if live.kind is not None:
        headers = [pair for pair in headers if pair[0] != "content-type"] + [("content-type", live.kind)]
    headers += own_headers(row, live.rung)
    headers.append(timing(overhead_us, waited_us))
    if stream is not None:
        on_long = partial(_hold_less, call.services.around, book, live, amount)
        return _flow(call, out, live, stream, headers, on_long, presence)
    headers += cost(call.snapshot, live)
    if not out.started:
        # The client has its answer before anything is written down.
        out.reply(live.status, headers, live.body)
    elif live.kind == EVENTS:
        out.send(live.body)
        out.end()
    else:
        unfit = Garbled("the upstream answered whole, too late for a client that was promised a stream")
        live.close(unfit)
        raise unfit
    live.close(None)
    return None


async def _flow(
    call: Call,
    out: ClientEnd,
    live: Live,
    stream: StreamRelay,
    headers: Pairs,
    on_long: Callable[[], None],
    presence: Presence,
) -> None:
    row, services = call.row, call.services
    if not out.started:
        out.start(live.status, headers + STREAM_HEADERS, call.format.keepalive)
    del headers
    out.hold_less()
    live.exchange.hold_less()
    services.streams.add(stream)
    call.stream = stream
    if not call.snapshot.storage.capture.is_on and call.snapshot.sessions.titles is None:
        call.members = None  # nobody asks for them any more
    presence.flowing(stream)
    try:
        error = await stream.flow(out, on_long)
    except asyncio.CancelledError:
        stream.stop(ClientGone("the request was cancelled"))
        live.close(ClientGone("the request was cancelled"))
        raise
    finally:
        services.streams.discard(stream)
    if error is None:
        # The client has its last byte before anything is written down.
        out.end()
    live.close(error)
    row.repairs = stream.course.repairs or None
    _name_served(call, live)
    if error is not None:
        if stream.last_words:
            await _end_failed(call, out, call.doors.blot.raw(stream.last_words))
        if isinstance(error, Unreachable):
            services.around.state.failed(live.rung.provider.name)
        raise error


def _hold_less(around: Around, book: Book, live: Live, amount: Amount | None) -> None:
    """The answer goes on for long: what its end will want to know of the request is found out now."""
    if book.prompt is not None:
        book.prompt.let_go()
    if amount is not None:
        around.amounts.let_go(live.rung.name, amount)


async def _tell(call: Call, out: ClientEnd, error: ArbiterError) -> None:
    """Tell the client about `error`: with a status while nothing was sent, in-band after that (SPEC 2.7)."""
    call.services.waiting.pop(call, None)
    if out.gone:
        return
    row, blot = call.row, call.doors.blot
    # An upstream's words may repeat the key that we sent it.
    error.args = (blot(str(error)),)
    if out.started:
        stream = call.stream
        event = call.format.write_error_event(error, row.trace_id) if stream is None else stream.failed(error)
        await _end_failed(call, out, event)
        return
    is_theirs = isinstance(error, UpstreamStatus) and error.format == call.format.name and _is_json(error)
    if isinstance(error, UpstreamStatus) and is_theirs:
        # Clients match on the upstream's own wording: its error passes as it came.
        status, body = error.status, error.body
        headers = blot.pairs(to_client(error.upstream_headers))
        source = "upstream"
    else:
        status, headers, body = call.format.write_error(error, row.trace_id)
        if isinstance(error, ClientGone):
            status = 400  # its body broke off in itself, and it is there; 499 is a word of rows, and no status
        if isinstance(error, UpstreamStatus):
            # Only the body was none for a client; when to come back is.
            headers += [pair for pair in blot.pairs(to_client(error.upstream_headers)) if pair[0] != "content-type"]
        source = error.source
    wants_when = error.code is ErrorClass.RATE_LIMITED_TRANSIENT or (status in (503, 529) and not is_theirs)
    if wants_when and not any(name.startswith("retry-after") for name, _ in headers):
        # The provider did not say when; a 429, or a 503 of ours, that says nothing ends some agents' work (Codex).
        headers.append(("retry-after", "1"))
    headers += [
        ("x-arbiter-trace-id", row.trace_id),
        ("x-arbiter-request-id", row.id),
        ("x-arbiter-attempts", str(row.attempts)),
        ("x-arbiter-error-source", source),
    ]
    if row.provider is not None:
        headers += [("x-arbiter-provider", visible(row.provider)), ("x-arbiter-model", visible(row.model or ""))]
    if row.fidelity is not None:
        headers.append(("x-arbiter-fidelity", visible(row.fidelity)))
    out.reply(status, headers, body)


async def _end_failed(call: Call, out: ClientEnd, event: bytes) -> None:
    server = call.snapshot.server
    how = server.stream_failure
    # On a unix socket nothing can be cut (`app.out`): there the event alone tells the end from that of a whole answer.
    is_silent = how == "abort" and server.socket is None
    await out.fail_stream(b"" if is_silent else event, abrupt=how != "event")


def _is_json(error: UpstreamStatus) -> bool:
    return error.body[:1] == b"{" and error.body.rstrip()[-1:] == b"}"


def _name_served(call: Call, live: Live) -> None:
    if live.facts is not None and live.facts.model is not None:  # an upstream may say anything, our key too
        call.row.model = call.doors.blot(live.facts.model[:_MODEL_CHARS])


def _note(call: Call, error: ArbiterError) -> None:
    row = call.row
    row.outcome = "cancelled" if isinstance(error, ClientGone) else "error"
    row.error_class = error.code.value
    row.message = clipped(call.doors.blot(str(error)))
    let_go(error)


def _settle(call: Call, out: ClientEnd, book: Book) -> None:
    row, metrics = call.row, call.services.metrics
    row.finished_ms = now_ms()
    row.total_us = (monotonic_ns() - call.arrived_ns) // 1000
    row.status = 499 if row.outcome == "cancelled" else out.status or None
    row.bytes_out = out.bytes_out
    if call.snapshot.sessions.titles is not None and call.own is None:
        tell_words(call)
    book.settle()
    metrics.settled((row.endpoint, row.format_in, row.outcome, row.status), row.total_us, row.overhead_us)
    if row.stream and row.overhead_us is not None and row.provider is not None and row.first_byte_us is not None:
        metrics.observe("arbiter_time_to_first_token_seconds", (row.provider,), row.first_byte_us / 1e6)
    if row.affinity is not None:
        metrics.count("arbiter_affinity_total", (row.affinity,))
    for repair in row.repairs or ():
        metrics.count("arbiter_repairs_total", (row.provider or "", repair))
    report(row)
