"""Plugins: loaded by name, started in order, stopped in reverse, and who fails loudly."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from arbiter import plugins
from arbiter.config.load import parse
from arbiter.config.snapshot import Snapshot
from arbiter.plugins import Plugin, PluginFailed, Plugins

HEARD: list[str] = []


class First(Plugin):
    async def startup(self, snapshot: Snapshot) -> None:
        HEARD.append(f"first up {snapshot.server.port}")

    async def shutdown(self) -> None:
        HEARD.append("first down")


class Second(First):
    def startup(self, snapshot: Snapshot) -> None:  # type: ignore[override]
        HEARD.append("second up")

    def shutdown(self) -> None:  # type: ignore[override]
        HEARD.append("second down")
        raise RuntimeError("cannot stop")


class Bare:
    pass


class Broken(Plugin):
    async def startup(self, snapshot: Snapshot) -> None:
        raise ValueError("no licence")


class Slow(Plugin):
    async def startup(self, snapshot: Snapshot) -> None:
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _house() -> Iterator[None]:
    """A module `house` that holds the classes above."""
    HEARD.clear()
    house = ModuleType("house")
    for component in (First, Second, Bare, Broken, Slow):
        setattr(house, component.__name__, component)
    sys.modules["house"] = house
    yield
    del sys.modules["house"]


def snapshot(*uses: str) -> Snapshot:
    written = ", ".join(f"{{ use: '{use.rstrip('?')}', required: {str(use[-1] != '?').lower()} }}" for use in uses)
    return parse(f"providers: {{ e: {{ type: echo }} }}\nplugins: [{written}]\n", "t", {})


def run(*uses: str) -> Plugins:
    held = snapshot(*uses)
    found = Plugins(held.plugins)

    async def both() -> None:
        await found.startup(held)
        HEARD.append("serving")
        await found.shutdown()
        await found.shutdown()

    asyncio.run(both())
    return found


def test_components_start_in_order_and_stop_in_reverse_whatever_one_of_them_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run("house:First", "house:Second")
    assert HEARD == ["first up 8080", "second up", "serving", "second down", "first down"]
    assert "did not stop cleanly" in caplog.text


def test_a_component_without_hooks_is_a_component() -> None:
    run("house:Bare")
    assert HEARD == ["serving"]


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("house:Broken", "ValueError: no licence"),
        ("house:Missing", "AttributeError"),
        ("no_such_module:X", "ModuleNotFoundError"),
    ],
)
def test_a_required_plugin_that_fails_keeps_the_process_from_serving(use: str, words: str) -> None:
    with pytest.raises(PluginFailed, match=words):
        run("house:First", use, "house:Second")
    assert HEARD == ["first up 8080", "first down"]


def test_an_optional_plugin_that_fails_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    run("house:Broken?", "no_such_module:X?", "house:First")
    assert HEARD == ["first up 8080", "serving", "first down"]
    assert caplog.text.count("is left out") == 2


def test_a_plugin_that_hangs_is_a_plugin_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "STARTUP_S", 0.01)
    with pytest.raises(PluginFailed, match="took longer"):
        run("house:Slow")


def test_a_cancelled_start_stops_what_had_started() -> None:
    held = snapshot("house:First", "house:Slow")
    found = Plugins(held.plugins)

    async def cancelled() -> None:
        task = asyncio.ensure_future(found.startup(held))
        while not found.components:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert HEARD == ["first up 8080", "first down"]
