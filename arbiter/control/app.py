"""The administration as one Starlette application, over whatever store and recorder it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from arbiter.config.snapshot import Snapshot
from arbiter.control.api import Api, fault
from arbiter.control.pages import Pages
from arbiter.ledger.recorder import RecorderState
from arbiter.ledger.store import Readable


def make_app(
    store: Readable | None,
    recorder_state: Callable[[], RecorderState] | None,
    snapshot: Callable[[], Snapshot],
    *,
    extra: Callable[[], dict[str, Any]] | None = None,
    actions: Sequence[BaseRoute] = (),
) -> Starlette:
    """The administration. `store` None: nothing is recorded, and the answers say so.

    `snapshot` gives the current one. `extra` adds members to /admin/api/state, for what other processes know; `actions`
    are the routes that change something.
    """
    app = Starlette(
        routes=[
            *Api(store, recorder_state, snapshot, extra).routes(),
            *actions,
            *Pages(store, recorder_state, snapshot).routes(),
        ],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    # A redirect would name the host that the worker knows us by, which nobody else can reach.
    app.router.redirect_slashes = False
    return app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = fault(error.status_code, error.detail)
    answer.headers.update(error.headers or {})
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    return fault(500, "Internal Server Error")  # Starlette logs it
