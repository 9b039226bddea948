"""Clusters: each of two CTAs loads half of every tile for both, and writes whole tiles."""

import numpy as np
import pytest

from tests.simulator.kernels import BF16, changed
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.simulator.simulation import SimulationReport, simulate
from wsdsl.simulator.simulation_error import SimulationError

SPREAD = """
kernel spread @ scheduled (%X: tensor<bf16[M, 64]>, %Y: tensor<bf16[N, 64]>) {
  launch_grid(tiles=(("N", 256),), scheduler="grid", cluster=2)
  %x_map: tensor_map = make_tensor_map(tensor=%X, box=(32, 64), swizzle="128B")
  %y_map: tensor_map = make_tensor_map(tensor=%Y, box=(16, 64), swizzle="128B")
  %slots: shared<8192 x 2> = allocate_shared(label="slots", offset=0)
  %full: mbarrier<2> = allocate_mbarriers(label="full", arrivals=1, offset=16384)
  %empty: mbarrier<2> = allocate_mbarriers(label="empty", arrivals=2, offset=16400)
  elect() {
    mbarrier_init(barriers=%full)
    mbarrier_init(barriers=%empty)
    fence_mbarrier_init()
  }
  sync_cluster()
  %rank: i32 = cta_rank()
  %first: i32 = cluster_index()
  %num: i32 = num_clusters()
  %m_size: i32 = dim_size(dim="M")
  %zero: i32 = constant(value=0)
  %one: i32 = constant(value=1)
  %two: i32 = constant(value=2)
  %c64: i32 = constant(value=64)
  %both: i32 = constant(value=3)
  %is_first: bool = map(fn="eq", args=(%rank, %zero))
  %up: i32 = map(fn="floordiv", args=(%m_size, %c64))
  partition(role="load") {
    elect() {
      %p0: state = initial_state(parity=1)
      %p_end: state = for_range(index=%t: i32, start=%first, stop=%up, step=%num,
          init=(%p0,), args=(%p: state,)) {
        %row: i32 = map(fn="mul", args=(%t, %c64))
        %c32: i32 = constant(value=32)
        %below: i32 = map(fn="add", args=(%row, %c32))
        mbarrier_wait(barriers=%empty, state=%p)
        mbarrier_arrive_expect_tx(barriers=%full, state=%p, tx_bytes=8192)
        if(cond=%is_first) {
          tma_load(map=%x_map, coordinates=(%row, %zero), shared=%slots, state=%p,
            barriers=%full, multicast=%both)
          yield()
        } {
          tma_load(map=%x_map, coordinates=(%below, %zero), shared=%slots, offset=4096, state=%p,
            barriers=%full, multicast=%both)
          yield()
        }
        %p2: state = advance(state=%p, num=2)
        yield(values=(%p2,))
      }
    }
  }
  partition(role="store") {
    %base: i32 = map(fn="mul", args=(%rank, %m_size))
    %f0: state = initial_state(parity=0)
    %f_end: state, %item_end: i32 = for_range(index=%t_1: i32, start=%first, stop=%up, step=%num,
        init=(%f0, %zero), args=(%f: state, %item: i32)) {
      mbarrier_wait(barriers=%full, state=%f)
      %in: i32 = map(fn="mul", args=(%t_1, %c64))
      %out: i32 = map(fn="add", args=(%in, %base))
      tma_store(map=%y_map, coordinates=(%out, %zero), row_dim=0, shared=%slots, item=%item)
      tma_store_commit()
      tma_store_wait(pending=0)
      named_barrier_sync(barrier=1, num_warpgroups=1)
      mbarrier_arrive(barriers=%empty, state=%f, cta=%zero)
      mbarrier_arrive(barriers=%empty, state=%f, cta=%one)
      %f2: state = advance(state=%f, num=2)
      %other: i32 = map(fn="sub", args=(%one, %item))
      yield(values=(%f2, %other))
    }
    tma_store_wait(pending=0, read=False)
  }
  sync_cluster()
}
"""


def check(kernel: Kernel, seed: int) -> SimulationReport:
    x = np.random.default_rng(0).standard_normal((320, 64)).astype(BF16)
    arrays = {"X": x, "Y": np.full((640, 64), np.nan, BF16)}
    report = simulate(kernel, arrays, seed=seed)
    assert (arrays["Y"] == np.concatenate([x, x])).all()
    return report


def run(*changes: tuple[str, str], seed: int = 0) -> SimulationReport:
    return check(parse_kernel(changed(SPREAD, *changes), "spread.ir"), seed)


ONE_CLUSTER = ('("N", 256)', '("128", 128)')
"""With many tiles, so that stages are used again."""


@pytest.mark.parametrize("seed", range(8))
def test_multicast(seed: int) -> None:
    assert run(ONE_CLUSTER, seed=seed).grid_size == 2
    assert run(seed=seed).grid_size == 6


END = "  }\n  sync_cluster()\n}"
ARRIVE = "      mbarrier_arrive(barriers=%empty, state=%f, cta=%one)\n"
BOTH = "both: i32 = constant(value=3)"
WRONG = {
    "no remote arrival": (
        "deadlock", "waits for `empty` stage 0 of CTA [01], parity 0", (ARRIVE, "")),
    "too few arrivals": (
        "misuse|race",
        "arrival on `(empty|full)`|it overwrites item . of `slots` of CTA",
        ('"empty", arrivals=2', '"empty", arrivals=1'),
    ),
    "too many arrivals": ("deadlock", "1 of 3 arrivals pending", ("arrivals=2", "arrivals=3")),
    "half of the bytes": (
        "misuse|uninitialized|race", "underflow|slots", ("tx_bytes=8192", "tx_bytes=4096")),
    "no sync at the end": ("misuse", "hint: end with a sync_cluster", (END, "  }\n}")),
    "only the CTA synchronizes": (
        "misuse",
        "hint: add a sync_cluster after the initialization",
        ("  }\n  sync_cluster()\n  %rank", "  }\n  sync_cta()\n  %rank"),
    ),
    "one's own copy only": ("deadlock", "tx-count 8192", (BOTH, BOTH.replace("=3", "=1"))),
    "mask out of range": (
        "bounds", "mask 0b111 in a cluster of 2", (BOTH, BOTH.replace("=3", "=7"))),
    "rank out of range": ("bounds", "rank 2 in a cluster of 2", ("cta=%one", "cta=%two")),
    "reads not waited for": (
        "race",
        "no tma_store_wait covers|may have ended",
        ("      tma_store_wait(pending=0)\n", ""),
    ),
    "no barrier before the arrival": (
        "race",
        "not ordered after the tma_store_wait",
        ("      named_barrier_sync(barrier=1, num_warpgroups=1)\n", ""),
    ),
    "too large a cluster": (
        "misuse", "a cluster of 16 CTAs exceeds the limit of 8", ("cluster=2", "cluster=16")),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name: str, seed: int) -> None:
    kind, message, change = WRONG[name]
    with pytest.raises(SimulationError, match=message) as caught:
        run(ONE_CLUSTER, change, seed=seed)
    assert caught.value.kind in kind.split("|")


@pytest.mark.parametrize("seed", range(6))
def test_a_cta_that_has_ended(seed: int) -> None:
    text = """
kernel ends @ scheduled (%X: tensor<bf16[M, 64]>) {
  launch_grid(tiles=(("128", 128),), cluster=2)
  %x_map: tensor_map = make_tensor_map(tensor=%X, box=(64, 64), swizzle="128B")
  %slots: shared<8192 x 1> = allocate_shared(label="slots", offset=0)
  %full: mbarrier<1> = allocate_mbarriers(label="full", arrivals=1, offset=8192)
  elect() {
    mbarrier_init(barriers=%full)
    fence_mbarrier_init()
  }
  sync_cluster()
  %rank: i32 = cta_rank()
  %zero: i32 = constant(value=0)
  %both: i32 = constant(value=3)
  %start: state = initial_state(parity=0)
  %leads: bool = map(fn="eq", args=(%rank, %zero))
  if(cond=%leads) {
    elect() {
      mbarrier_arrive_expect_tx(barriers=%full, state=%start, tx_bytes=8192)
      tma_load(map=%x_map, coordinates=(%zero, %zero), shared=%slots, state=%start,
        barriers=%full, multicast=%both)
    }
    mbarrier_wait(barriers=%full, state=%start)
    yield()
  } { yield() }
}
"""
    with pytest.raises(SimulationError, match=r"CTA 1( of the cluster)? has ended") as caught:
        simulate(parse_kernel(text), {"X": np.zeros((64, 64), BF16)}, seed=seed)
    assert caught.value.kind == "misuse"


def test_numbers_of_ctas() -> None:
    text = """
kernel count @ scheduled (%Y: tensor<i32[P]>) {
  launch_grid(tiles=(("P", 4),), scheduler="grid", cluster=4)
  %i: i32 = cta_index()
  %c: i32 = cluster_index()
  %r: i32 = cta_rank()
  %n: i32 = num_clusters()
  %all: i32 = num_ctas()
  %k: i32 = constant(value=10)
  %a: i32 = map(fn="mul", args=(%c, %k))
  %b: i32 = map(fn="add", args=(%a, %r))
  %d: i32 = map(fn="mul", args=(%n, %k))
  %e: i32 = map(fn="mul", args=(%d, %k))
  %f: i32 = map(fn="add", args=(%b, %e))
  store_global(tensor=%Y, index=(%i,), value=%f)
}
"""
    y = np.zeros(6, np.int32)
    assert simulate(parse_kernel(text), {"Y": y}).grid_size == 8
    assert y.tolist() == [200, 201, 202, 203, 210, 211]
    persistent = parse_kernel(text.replace('"grid"', '"persistent"'))
    assert simulate(persistent, {"Y": y}, num_sms=7).grid_size == 4
    assert simulate(persistent, {"Y": y}, num_sms=132).grid_size == 8
    assert simulate(persistent, {"Y": y}, num_sms=2).grid_size == 4
