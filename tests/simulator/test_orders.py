"""Orders of events: prescribed by a script, and those that seeds must reach."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.simulator.kernels import check, gemm, inputs
from wsdsl.ir.parser import parse_kernel
from wsdsl.simulator.ops import tma
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError
from wsdsl.simulator.state import wgmma_groups
from wsdsl.simulator.state.gmem_races import GlobalAccesses

LAST_WINS = """
kernel last @ scheduled (%Y: tensor<i32[1]>) {
  %zero: i32 = constant(value=0)
  %one: i32 = constant(value=1)
  %two: i32 = constant(value=2)
  partition(role="compute") { store_global(tensor=%Y, index=(%zero,), value=%one) }
  partition(role="compute") { store_global(tensor=%Y, index=(%zero,), value=%two) }
}
"""
FIRST, SECOND = "cta0/0.compute.0", "cta0/1.compute.0"


class Event(NamedTuple):
    """A load that has landed (and where in K), or a product that runs (and how many wait)."""

    name: str
    number: int
    ops_run: int = 0


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    seen: list[Event] = []
    land, product = tma.LoadInFlight.step, wgmma_groups.WgmmaPipe.step

    def landed(load: tma.LoadInFlight) -> bool:
        seen.append(Event(load.op.map.name, load.coordinates[1], load.wg.ops_run))
        return land(load)

    def ran(pipe: wgmma_groups.WgmmaPipe) -> bool:
        seen.append(Event("wgmma", len(pipe.queue)))
        return product(pipe)

    monkeypatch.setattr(tma.LoadInFlight, "step", landed)
    monkeypatch.setattr(wgmma_groups.WgmmaPipe, "step", ran)
    return seen


@pytest.fixture
def races_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GlobalAccesses, "follows", lambda *_: False)


def test_two_stores_to_one_element_are_a_race() -> None:
    with pytest.raises(SimulationError, match=r"it writes Y\[0\]"):
        simulate(parse_kernel(LAST_WINS), {"Y": np.zeros(1, np.int32)})


@pytest.mark.usefixtures("races_allowed")
@pytest.mark.parametrize("seed", range(5))
def test_a_script_prescribes_the_order(seed: int) -> None:
    for script, wanted in [([(FIRST, 1), (SECOND, 1)], 2), ([(SECOND, 1), (FIRST, 1)], 1)]:
        y = np.zeros(1, np.int32)
        simulate(parse_kernel(LAST_WINS), {"Y": y}, seed=seed, script=script)
        assert y[0] == wanted


@pytest.mark.usefixtures("races_allowed")
def test_seeds_reach_both_orders() -> None:
    found: set[int] = set()
    for seed in range(20):
        y = np.zeros(1, np.int32)
        simulate(parse_kernel(LAST_WINS), {"Y": y}, seed=seed)
        found.add(int(y[0]))
    assert found == {1, 2}


def test_scripts_with_mistakes() -> None:
    y = {"Y": np.zeros(1, np.int32)}
    with pytest.raises(ValueError, match=r"names 'compute'; there are cta0/0.compute.0, cta0/1"):
        simulate(parse_kernel(LAST_WINS), y, script=[("compute", 1)])
    with pytest.raises(ValueError, match="run -1 ops"):
        simulate(parse_kernel(LAST_WINS), y, script=[(FIRST, -1)])


LOAD, LEFT, RIGHT = "cta0/0.load.0", "cta0/1.compute.0", "cta0/1.compute.1"


@pytest.mark.parametrize("agents", ["eager", "lazy", "random"])
def test_a_script_that_cannot_be_followed_is_left(agents: Any) -> None:
    """The consumers cannot go first, and the loads are at most the stages ahead."""
    for script in ([(LEFT, 1000), (LOAD, 5)], [(LOAD, 1000)], [(LOAD, 0), (RIGHT, 40), (LOAD, 3)]):
        arrays = inputs(200, 256, 320)
        simulate(gemm(), arrays, num_sms=1, script=script, agents=agents)
        check(arrays)


PROLOGUE = [(LOAD, 14), (LEFT, 8), (RIGHT, 8)]
"""All come to sync_cta, the last op of each entry; only the last one of them goes on."""


@pytest.mark.parametrize(("agents", "ops"), [("eager", 14 + 1 + 3), ("lazy", 14 + 1 + 16)])
@pytest.mark.parametrize("seed", range(4))
def test_when_agents_get_on(seed: int, agents: Any, ops: int, events: list[Event]) -> None:
    """How many ops had the loading warpgroup run when the first copy landed?"""
    script = [*PROLOGUE, (LOAD, 1 + 4 * 4)]
    simulate(gemm(), inputs(128, 128, 256), seed=seed, agents=agents, script=script)
    assert events[0].ops_run == ops
    loads = [event.name for event in events if event.name != "wgmma"]
    if agents == "eager":
        assert loads == ["a_map", "b_map"] * 4


@pytest.mark.parametrize("agents", ["eager", "lazy", "random"])
@pytest.mark.parametrize("seed", range(3))
def test_agents_without_a_script(agents: Any, seed: int) -> None:
    arrays = inputs(200, 256, 320)
    simulate(gemm(), arrays, seed=seed, agents=agents)
    check(arrays)


def test_copies_complete_in_any_order(events: list[Event]) -> None:
    """Two on one barrier, and those of different stages, overtake each other."""
    pairs: set[bool] = set()
    stages: set[bool] = set()
    for seed in range(12):
        events.clear()
        simulate(gemm(), inputs(128, 128, 256), seed=seed)
        order = {(e.name, e.number): i for i, e in enumerate(events)}
        for k in range(0, 256, 64):
            pairs.add(order["a_map", k] < order["b_map", k])
        for k in range(64, 256, 64):
            stages.add(order["a_map", k - 64] < order["a_map", k])
    assert pairs == stages == {True, False}


def test_products_run_late(events: list[Event]) -> None:
    """Some begin at once, others when a second one has been issued."""
    for seed in range(12):
        simulate(gemm(), inputs(64, 128, 512), seed=seed, num_sms=1)
    assert {event.number for event in events if event.name == "wgmma"} == {1, 2}


def test_keys_of_warpgroups_in_clusters() -> None:
    """Entries of clusters that run one after another are followed by each for itself."""
    text = """
kernel keys @ scheduled (%Y: tensor<i32[P]>) {
  launch_grid(tiles=(("P", 1),), scheduler="grid", cluster=2)
  %i: i32 = cluster_index()
  %r: i32 = cta_rank()
  store_global(tensor=%Y, index=(%i,), value=%r)
  sync_cluster()
}
"""
    for first, second in ((0, 1), (1, 0)):
        y = np.zeros(4, np.int32)
        script = [(f"cta{2 * c + r}/0.kernel.0", 1) for r in (first, second) for c in (1, 0)]
        # Both write the same: the report tells who came second.
        with pytest.raises(SimulationError, match=f"CTA {second}, kernel .* CTA {first} kernel"):
            simulate(parse_kernel(text), {"Y": y}, script=script)
