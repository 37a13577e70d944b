"""What a client hears of what its answer cost, and that its row says the same."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.fakes.client import ask, run
from tests.fakes.gateway import until
from tests.fakes.origin import Origin, answer
from tests.fakes.wires import JSON, WIRES, Front, Wire
from tests.flow.conftest import MakeFront

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)

PRICES = {
    "input_usd_per_mtok": 3,
    "cached_input_usd_per_mtok": 0.3,
    "cache_write_5m_usd_per_mtok": 3.75,
    "cache_write_1h_usd_per_mtok": 6,
    "output_usd_per_mtok": 15.000001,
}


@each_wire
def test_a_whole_answer_says_what_it_cost_and_its_row_says_the_same(make_front: MakeFront, wire: Wire) -> None:
    """Worked out twice, in the worker and in the control process, by one function: to the picodollar."""
    front: Front = make_front(models=[{"model": f"{wire}/{wire.model}", **PRICES} for wire in WIRES])

    spent = [front.metric("arbiter_cost_usd_total")]

    async def main() -> None:
        async with Origin(answer(wire.answer(), headers=[JSON]), port=front.upstream):
            found = await ask(front.port, wire.path, wire.ask())
        attempt = front.row(found.trace_id)["attempts"][-1]
        told = found.header("x-arbiter-cost-usd")
        assert told is not None and Decimal(told) * 10**12 == attempt["cost_pd"] > 0
        assert attempt["cost_source"] == "model_config"
        spent.append(float(told))

    run(main)
    # It is counted once, and the control process's numbers arrive after its rows.
    until(lambda: front.metric("arbiter_cost_usd_total") == pytest.approx(sum(spent)), "the money in the metrics")


@each_wire
def test_a_cost_that_nobody_knows_is_not_told(front: Front, wire: Wire) -> None:
    async def main() -> None:
        async with Origin(answer(wire.answer(), headers=[JSON]), port=front.upstream):
            found = await ask(front.port, wire.path, wire.ask())
        assert found.status == 200 and found.header("x-arbiter-cost-usd") is None

    run(main)
