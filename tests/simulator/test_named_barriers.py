"""Named barriers: one warpgroup fills a stage, another stores it, in alternation."""

import numpy as np
import pytest

from tests.simulator.kernels import changed
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

PINGPONG = """
kernel turns @ scheduled (%Y: tensor<f32[M, 32]>) {
  %y_map: tensor_map = make_tensor_map(tensor=%Y, box=(16, 32), swizzle="128B")
  %slot: shared<8192 x 1> = allocate_shared(label="slot", offset=0)
  %zero: i32 = constant(value=0)
  %m_size: i32 = dim_size(dim="M")
  %c64: i32 = constant(value=64)
  partition(role="fill") {
    for_range(index=%t: i32, start=%zero, stop=%m_size, step=%c64) {
      %row: frag<i32[64x1]> = iota(start=%t)
      %wide: frag<f32[64x1]> = cast(x=%row)
      %value: frag<f32[64x32]> = full(value=%wide)
      named_barrier_sync(barrier=2, num_warpgroups=2)
      store_shared(value=%value, shared=%slot, item=%zero, swizzle="128B")
      fence_async_proxy()
      named_barrier_arrive(barrier=15, num_warpgroups=2)
      yield()
    }
    named_barrier_sync(barrier=2, num_warpgroups=2)
  }
  partition(role="store") {
    named_barrier_arrive(barrier=2, num_warpgroups=2)
    for_range(index=%t_1: i32, start=%zero, stop=%m_size, step=%c64) {
      named_barrier_sync(barrier=15, num_warpgroups=2)
      tma_store(map=%y_map, coordinates=(%t_1, %zero), row_dim=0, shared=%slot, item=%zero)
      tma_store_commit()
      tma_store_wait(pending=0)
      named_barrier_arrive(barrier=2, num_warpgroups=2)
      yield()
    }
    tma_store_wait(pending=0, read=False)
  }
}
"""


def check(kernel: Kernel, seed: int) -> None:
    y = np.full((256, 32), np.nan, np.float32)
    simulate(kernel, {"Y": y}, seed=seed)
    assert (y == np.arange(256)[:, None]).all()


def run(*changes: tuple[str, str], seed: int = 0) -> None:
    check(parse_kernel(changed(PINGPONG, *changes), "turns.ir"), seed)


@pytest.mark.parametrize("seed", range(8))
def test_alternation(seed: int) -> None:
    run(seed=seed)


FILLED = "named_barrier_arrive(barrier=15, num_warpgroups=2)"
FREE = "named_barrier_arrive(barrier=2, num_warpgroups=2)"
WRONG = {
    "counts differ": (
        # If the one who counts 1 comes first, it is a round of its own.
        "misuse|deadlock",
        "it expects 1 warpgroups at named barrier 15, not 2 as store|"
        "waits for named barrier 15; 1 of 2",
        (FILLED, FILLED.replace("=2", "=1")),
    ),
    "never arrives": (
        "deadlock",
        r"waits for named barrier 15; 1 of 2 warpgroups have arrived \(store warpgroup 0\)",
        (FILLED, ""),
    ),
    "barrier 0": ("misuse", "is not one of 1 to 15", ("barrier=2,", "barrier=0,")),
    "barrier 16": ("misuse", "is not one of 1 to 15", ("barrier=15", "barrier=16")),
    "more than there are": (
        "misuse",
        "it expects 3 of 2 warpgroups",
        ("num_warpgroups=2", "num_warpgroups=3"),
    ),
    "comes twice": (
        "misuse|race", "arrives twice at named barrier 15|it overwrites item 0",
        (FILLED, FILLED + "\n" + FILLED)),
    "reads too early": ("uninitialized|race", "no op has written it|no wait orders", (
        "named_barrier_sync(barrier=15", "named_barrier_arrive(barrier=15")),
    "overwrites too early": (
        "misuse|race",
        "no tma_store_wait covers that store|not ordered|arrives twice",
        ("named_barrier_sync(barrier=2, num_warpgroups=2)\n      store_shared",
         "named_barrier_arrive(barrier=2, num_warpgroups=2)\n      store_shared"),
    ),
    "reads not over": (
        "race", "no tma_store_wait covers", ("      tma_store_wait(pending=0)\n", "")),
    "one thread": ("misuse", "needs all threads", (FILLED, "elect() { " + FILLED + " }")),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name: str, seed: int) -> None:
    kind, message, change = WRONG[name]
    with pytest.raises(SimulationError, match=message) as caught:
        run(change, seed=seed)
    assert caught.value.kind in kind.split("|")
