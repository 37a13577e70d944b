"""The administration as one Starlette application, over whatever store and recorder it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from arbiter.config.snapshot import Snapshot
from arbiter.control.actions import describe
from arbiter.control.api import Api, fault
from arbiter.control.audit import Audit
from arbiter.control.caches import Caches
from arbiter.control.contents import Contents
from arbiter.control.conversations import Conversations
from arbiter.control.costs import Costs
from arbiter.control.limits import Limits
from arbiter.control.pages import HOME, Pages
from arbiter.control.quotas import Quotas
from arbiter.control.report_pages import ReportPages
from arbiter.control.searches import Embeds, Searches
from arbiter.control.session_acts import Acts
from arbiter.control.session_pages import SessionPages
from arbiter.control.sessions import Sessions
from arbiter.ledger.recorder import RecorderState
from arbiter.ledger.store import Changer, Readable


def make_app(
    store: Readable | None,
    recorder_state: Callable[[], RecorderState] | None,
    snapshot: Callable[[], Snapshot],
    *,
    extra: Callable[[], dict[str, Any]] | None = None,
    actions: Sequence[BaseRoute] = (),
    changer: Changer | None = None,
    audit: Audit | None = None,
    embeds: Embeds | None = None,
) -> Starlette:
    """The administration. `store` None: nothing is recorded, and the answers say so.

    `snapshot` gives the current one. `extra` tells the state that the workers share, as `actions.describe` does;
    without it they share none. `actions` are the routes that change something there, `changer` changes the store, and
    `audit` writes down what was done. `embeds` makes the vector of what a search by meaning looks for.
    """
    audit = audit if audit is not None else Audit(store, changer)
    acts = Acts(changer, audit) if changer is not None else None
    pages = Pages(store, recorder_state, snapshot)
    standing = extra if extra is not None else lambda: describe(None, snapshot())
    app = Starlette(
        routes=[
            *Api(store, recorder_state, snapshot, extra).routes(),
            *Caches(store).routes(),
            *Quotas(store).routes(),
            *Costs(store, snapshot).routes(),
            *Sessions(store, acts).routes(),
            *audit.routes(),
            *actions,
            *Searches(store, snapshot, embeds).routes(),
            *Conversations(store).routes(),
            *Contents(store, snapshot, pages.render).routes(),
            *Limits(standing, snapshot, pages.render).routes(),
            *ReportPages(store, snapshot, pages.render).routes(),
            *SessionPages(store, acts, pages.render).routes(),
            *pages.routes(),
        ],
        exception_handlers={HTTPException: partial(_refused, pages.render), Exception: _failed},
    )
    # A redirect would name the host that the worker knows us by, which nobody else can reach.
    app.router.redirect_slashes = False
    return app


async def _refused(render: Callable[..., Response], request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    is_read = request.url.path.startswith(HOME) and "text/html" in request.headers.get("accept", "")
    if error.status_code == 404 and is_read:
        return render("missing.html", 404, asked=request.url.path)
    answer = fault(error.status_code, error.detail)
    answer.headers.update(error.headers or {})
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    return fault(500, "Internal Server Error")  # Starlette logs it
