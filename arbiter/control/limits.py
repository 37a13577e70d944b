"""The page that shows who rests, who is paused and what is pinned, with the buttons that change it.

It asks for itself again each second, and says by a fingerprint what it shows: it is replaced only when there is
something new, so that nobody's click falls between two buttons. Hence it names moments, and counts nothing down. The
buttons are POSTs to the actions themselves; what came of one is what the page shows next.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.config.snapshot import Snapshot

PATH = "/admin/ui/limits"


class Limits:
    """`describe` tells the state, `render` makes a page of a template's name and its values."""

    def __init__(
        self, describe: Callable[[], dict[str, Any]], snapshot: Callable[[], Snapshot], render: Callable[..., Response]
    ) -> None:
        self._describe = describe
        self._snapshot = snapshot
        self._render = render

    def routes(self) -> list[Route]:
        return [Route(PATH, self.page)]

    def page(self, request: Request) -> Response:
        """The whole page; `fragment=1`: what refreshes, or 204 where it would be what `seen` says is there already."""
        values = self._values(clock.now_ms())
        values["seen"] = f"{zlib.crc32(repr(values).encode()):08x}"
        if request.query_params.get("fragment") != "1":
            return self._render("limits.html", **values)
        if request.query_params.get("seen") == values["seen"]:
            return Response(status_code=204, headers={"cache-control": "no-store"})
        return self._render("standing.html", **values)

    def _values(self, now_ms: int) -> dict[str, Any]:
        state = self._describe()
        pauses = {(pause["scope"], pause["name"]): pause for pause in state["pauses"] or ()}
        breakers = {row["provider"]: _timed(row, now_ms) for row in state["breakers"] or ()}
        cooldowns = {(row["provider"], row["account"]): _timed(row, now_ms) for row in state["cooldowns"] or ()}
        snapshot = self._snapshot()
        providers = []
        for name in snapshot.providers:
            breaker = breakers.get(name)
            accounts = [
                {**row, "cooldown": cooldowns.get((name, row["account"]))}
                for row in state["accounts"]
                if row["provider"] == name
            ]
            # What there is to end: a refused key stays refused, and failures that opened no breaker keep nobody out.
            rests = any(row["cooldown"] and row["standing"] != "refused" for row in accounts)
            providers.append(
                {
                    "name": name,
                    "pause": pauses.pop(("provider", name), None),
                    "breaker": breaker,
                    "rests": rests or bool(breaker and breaker["open"]),
                    "accounts": accounts,
                }
            )
        clients = [{"name": name, "pause": pauses.pop(("client", name), None)} for name in snapshot.client_names]
        return {
            "sharing": state["sharing"],
            "pins": state["pins"],
            "everything": pauses.pop(("all", ""), None),
            "providers": providers,
            "clients": clients,
            "lost": list(pauses.values()),
        }


def _timed(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """`row` with the moment that its `seconds_left` lead to, to five seconds: nearer, it would never stand still."""
    left = row["seconds_left"]
    until_ms = round((now_ms / 1000 + left) / 5) * 5000 if left else 0
    return {**{name: value for name, value in row.items() if name != "seconds_left"}, "until_ms": until_ms}
