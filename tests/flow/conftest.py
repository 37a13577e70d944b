"""The gateways that flow tests share: started once, by whoever first needs one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from tests.fakes.wires import Front

MakeFront = Callable[..., Front]


@pytest.fixture(scope="session")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """The gateway with calm defaults."""
    with Front(tmp_path_factory.mktemp("front")) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def _forget(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test hears of the limits and failures of another test's upstream."""
    yield
    if "front" in request.fixturenames:
        request.getfixturevalue("front").forget()


@pytest.fixture(scope="module")
def make_front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeFront]:
    """A gateway that differs: `make_front(provider={...}, server={...}, gateway={...})`. A module's tests that ask for
    the same one share it."""
    started: dict[str, Front] = {}

    def make(**differences: object) -> Front:
        key = repr(differences)
        if key in started:
            started[key].forget()
        if key not in started:
            gateway = Front(tmp_path_factory.mktemp("front"), **differences)  # type: ignore[arg-type]
            gateway.start()
            started[key] = gateway
        return started[key]

    yield make
    for gateway in started.values():  # all at once: each takes its time to drain
        if gateway.process is not None and gateway.process.poll() is None:
            gateway.process.send_signal(signal.SIGTERM)
    for gateway in started.values():
        gateway.stop(check=False)
    for gateway in started.values():
        gateway.check()
