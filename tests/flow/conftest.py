"""The gateways that flow tests share: started once, by whoever first needs one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fakes.wires import Front

MakeFront = Callable[..., Front]


@pytest.fixture(scope="session")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """The gateway with calm defaults."""
    with Front(tmp_path_factory.mktemp("front")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def make_front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeFront]:
    """Start a gateway that differs: `make_front(provider={...}, server={...}, gateway={...})`. Lives for a module."""
    started: list[Front] = []

    def make(**differences: object) -> Front:
        gateway = Front(tmp_path_factory.mktemp("front"), **differences)  # type: ignore[arg-type]
        started.append(gateway)
        gateway.start()
        return gateway

    yield make
    for gateway in started:
        gateway.stop()
