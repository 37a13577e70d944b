"""Code of the operator's own, started and stopped with each process (SPEC 11.2a).

    plugins: [{ use: "house.rules:Audit", required: true }]

A component is an instance of the named class, made without arguments. Its `startup(snapshot)` and `shutdown()` are
awaited in each process that serves, if it has them; `Plugin` is a base class with both. Components stop in the
reverse of the order in which they started.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arbiter.log import Log

if TYPE_CHECKING:
    from arbiter.config.snapshot import PluginSpec, Snapshot

STARTUP_S = 30.0
SHUTDOWN_S = 5.0  # within `server.drain`, together with everything else that ends

log = Log(__name__)


class PluginFailed(Exception):
    """A required plugin could not be loaded or started: the process must not serve."""


class Plugin:
    """A component that need not do anything when a process starts or stops."""

    async def startup(self, snapshot: Snapshot) -> None:
        """Get ready to serve. What this raises is a failure of the plugin."""

    async def shutdown(self) -> None:
        """Let go of what `startup` took. Called once, and only after a `startup` that succeeded."""


class Plugins:
    """The components of one process. `components` are those that started, in order."""

    def __init__(self, specs: Sequence[PluginSpec]) -> None:
        self._specs = tuple(specs)
        self.components: list[Any] = []

    async def startup(self, snapshot: Snapshot) -> None:
        """Load and start each plugin.

        Errors: PluginFailed for a required one, after those already started were stopped; an optional one's failure
        is a warning, and it is left out.
        """
        try:
            for spec in self._specs:
                try:
                    component = _made(spec.use)
                    await _call(component, "startup", STARTUP_S, snapshot)
                except Exception as error:  # the operator's code: whatever it raises is its failure, not ours
                    if spec.required:
                        raise PluginFailed(f"the plugin {spec.use} did not start: {_told(error)}") from error
                    log.warn("an optional plugin did not start and is left out", plugin=spec.use, error=error)
                else:
                    self.components.append(component)
        except BaseException:
            await self.shutdown()
            raise

    async def shutdown(self) -> None:
        """Stop what was started, last first. Failures are logged; calling it again does nothing."""
        while self.components:
            component = self.components.pop()
            try:
                await _call(component, "shutdown", SHUTDOWN_S)
            except Exception as error:  # as above; the others must still be stopped
                log.warn("a plugin did not stop cleanly", plugin=type(component).__qualname__, error=error)


def _made(use: str) -> Any:
    module, _, names = use.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found()


async def _call(component: Any, hook: str, limit_s: float, *arguments: Any) -> None:
    method = getattr(component, hook, None)
    if method is None:
        return
    async with asyncio.timeout(limit_s):
        answer = method(*arguments)
        if inspect.isawaitable(answer):
            await answer


def _told(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"it took longer than {STARTUP_S:.0f} s"
    return f"{type(error).__name__}: {error}"
