"""Repricing asked for by an administrator: a short span at once, a long one as a job that is asked after."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from typing import Any, Literal

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.config.snapshot import Snapshot
from arbiter.control.api import fault, json, store_off
from arbiter.control.audit import Audit
from arbiter.ledger import query
from arbiter.ledger.query import BadParameter
from arbiter.ledger.repricing import Outcome, Window, reprice
from arbiter.ledger.store import Changer, StoreDown
from arbiter.ledger.tariffs import tariff
from arbiter.log import Log

PATH = "/admin/api/reprice"
INLINE_MS = 7 * 86_400_000
# A worker waits 30 s for us; what takes longer goes on as a job.
ANSWER_S = 20.0
MOST_JOBS = 64
OWN_FAULT = "a fault of the gateway's own; its log says more"

_log = Log(__name__)


class Asked(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body."""

    since: str
    until: str | None = None
    provider: str | None = None
    model: str | None = None
    unpriced: bool = False
    dry_run: bool = False


class Job(msgspec.Struct, kw_only=True):
    """One run, as it is told."""

    job_id: str
    state: Literal["queued", "running", "succeeded", "failed"] = "queued"
    dry_run: bool
    since_ms: int
    until_ms: int
    asked_ms: int
    finished_ms: int | None = None
    error: str | None = None
    outcome: Outcome | None = None


class Repricing:
    """The endpoints. One job runs at a time, in a thread of its own; `store` None: nothing is recorded."""

    def __init__(self, store: Changer | None, snapshot: Callable[[], Snapshot], audit: Audit | None = None) -> None:
        self._store = store
        self._snapshot = snapshot
        self._audit = audit if audit is not None else Audit(None, None)
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._runner = ThreadPoolExecutor(1, "reprice")
        self._is_over = False
        self._count = 0

    def routes(self) -> list[Route]:
        return [Route(PATH, self.ask, methods=["POST"]), Route(PATH + "/{id}", self.job)]

    def close(self) -> None:
        """Leave off after the page that is being priced."""
        self._is_over = True
        self._runner.shutdown(cancel_futures=True)

    async def ask(self, request: Request) -> Response:
        """Price a span anew; answered with what was done, or with where to ask for it."""
        body = await request.body()
        return await run_in_threadpool(self._ask, request, body)

    def job(self, request: Request) -> Response:
        """How a job is doing."""
        with self._lock:
            job = self._jobs.get(request.path_params["id"])
            told = _told(job) if job is not None else None
        return json(told) if told is not None else fault(404, "there is no job of this id, or no longer")

    def _ask(self, request: Request, body: bytes) -> Response:
        now_ms = clock.now_ms()
        try:
            asked = msgspec.json.decode(body, type=Asked)
            since_ms = query.since(asked.since, now_ms)
            until_ms = now_ms + 1 if asked.until is None else query.since(asked.until, now_ms)
        except BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        except msgspec.ValidationError as error:
            return fault(400, str(error))
        except (msgspec.DecodeError, RecursionError) as error:
            return fault(400, f"the body is to be a JSON object with `since`: {error}")
        store = self._store
        if store is None:
            return store_off()
        window = Window(
            since_ms=since_ms,
            until_ms=until_ms,
            provider=asked.provider,
            model=asked.model,
            unpriced=asked.unpriced,
        )
        job, running = self._begin(store, window, now_ms, dry_run=asked.dry_run)
        self._audit.note(request, "reprice", asked.provider, {**msgspec.to_builtins(asked), "job": job.job_id})
        is_short = min(until_ms, now_ms) - since_ms <= INLINE_MS
        if is_short:
            try:
                running.result(ANSWER_S)
            except TimeoutError:
                pass
        with self._lock:
            is_over = is_short and job.finished_ms is not None
            told = _told(job)
        if not is_over:
            return json(told, 202)
        if job.error is None:
            return json(told)
        return fault(500, job.error) if job.error == OWN_FAULT else fault(503, job.error, reason="store_down")

    def _begin(self, store: Changer, window: Window, now_ms: int, *, dry_run: bool) -> tuple[Job, Future[None]]:
        with self._lock:
            self._count += 1
            job = Job(
                job_id=f"{now_ms:x}-{self._count}",
                dry_run=dry_run,
                since_ms=window.since_ms,
                until_ms=window.until_ms,
                asked_ms=now_ms,
            )
            self._jobs[job.job_id] = job
            for old in list(self._jobs)[:-MOST_JOBS]:
                if self._jobs[old].finished_ms is not None:
                    del self._jobs[old]
        return job, self._runner.submit(self._run, store, window, job)

    def _run(self, store: Changer, window: Window, job: Job) -> None:
        self._tell(job, state="running")
        try:
            snapshot = self._snapshot()
            prices = tariff(snapshot.pricing, snapshot.providers)
            outcome = reprice(
                window, prices, store.change, dry_run=job.dry_run, progress=lambda done: self._progress(job, done)
            )
        except (StoreDown, _Stopped) as error:
            self._tell(job, state="failed", error=str(error), finished_ms=clock.now_ms())
            return
        except Exception as bug:  # the thread's own exit guard: nobody asks a long job for its exception
            _log.error("requests could not be priced anew", job=job.job_id, error=bug)
            self._tell(job, state="failed", error=OWN_FAULT, finished_ms=clock.now_ms())
            return
        self._tell(job, state="succeeded", outcome=outcome, finished_ms=clock.now_ms())
        _log.info("requests were priced anew", job=job.job_id, **msgspec.structs.asdict(outcome))

    def _progress(self, job: Job, done: Outcome) -> None:
        if self._is_over:
            raise _Stopped("the gateway stops; what was priced so far stays")
        self._tell(job, outcome=msgspec.structs.replace(done))

    def _tell(self, job: Job, **changed: Any) -> None:
        with self._lock:
            for name, value in changed.items():
                setattr(job, name, value)


class _Stopped(Exception):
    """We end before the job does."""


def _told(job: Job) -> dict[str, Any]:
    shown: dict[str, Any] = {**msgspec.to_builtins(job), "status_url": f"{PATH}/{job.job_id}"}
    return shown
