"""Semaphores: each CTA writes a block, and reads the next CTA's block after its arrival."""

import numpy as np
import pytest

from tests.simulator.kernels import BF16, changed
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

HAND_OVER = """
kernel hand_over @ scheduled (%W: tensor<f32[M, 32]>, %F: tensor<i32[P]>, %Y: tensor<f32[M, 32]>) {
  launch_grid(tiles=(("M", 64),), scheduler="persistent")
  %i: i32 = cta_index()
  %n: i32 = num_ctas()
  %zero: i32 = constant(value=0)
  %one: i32 = constant(value=1)
  %c64: i32 = constant(value=64)
  %row0: i32 = map(fn="mul", args=(%i, %c64))
  %rows: frag<i32[64x1]> = iota(start=%row0)
  %columns: frag<i32[1x32]> = iota(start=%zero)
  %tall: frag<f32[64x1]> = cast(x=%rows)
  %value: frag<f32[64x32]> = full(value=%tall)
  store_global(tensor=%W, index=(%rows, %columns), value=%value)
  named_barrier_sync(barrier=1, num_warpgroups=1)
  semaphore_arrive(tensor=%F, index=(%i,), amount=2)
  %next: i32 = map(fn="add", args=(%i, %one))
  %other: i32 = map(fn="mod", args=(%next, %n))
  %two: i32 = constant(value=2)
  semaphore_wait(tensor=%F, index=(%other,), count=%two)
  %row1: i32 = map(fn="mul", args=(%other, %c64))
  %from: frag<i32[64x1]> = iota(start=%row1)
  %held: frag<f32[64x32]> = load_global(tensor=%W, index=(%from, %columns))
  store_global(tensor=%Y, index=(%rows, %columns), value=%held)
}
"""
SYNC = "  named_barrier_sync(barrier=1, num_warpgroups=1)\n"
ARRIVE = "  semaphore_arrive(tensor=%F, index=(%i,), amount=2)\n"
WAIT = "  semaphore_wait(tensor=%F, index=(%other,), count=%two)\n"
GRID = ('"persistent"', '"grid"')


def arrays() -> dict[str, np.ndarray]:
    w, y = (np.full((256, 32), np.nan, np.float32) for _ in range(2))
    return {"W": w, "F": np.zeros(4, np.int32), "Y": y}


def check(kernel: Kernel, seed: int, num_sms: int = 4) -> None:
    held = arrays()
    simulate(kernel, held, seed=seed, num_sms=num_sms)
    assert (held["Y"][:, 0] == (np.arange(256) + 64) % 256).all()
    assert (held["F"] == 2).all()


def run(*changes: tuple[str, str], seed: int = 0, num_sms: int = 4) -> None:
    check(parse_kernel(changed(HAND_OVER, *changes), "flags.ir"), seed, num_sms)


@pytest.mark.parametrize("seed", range(8))
def test_commit_by_semaphore(seed: int) -> None:
    run(seed=seed)
    run(GRID, seed=seed)


WRONG = {
    "no sync before the arrival": (
        "race", r"it reads W\[.*which CTA \d kernel .* accessed by store_global", (SYNC, "")),
    "no wait": ("race", r"it (reads|writes) W\[.*no wait orders this after it", (WAIT, "")),
    "no arrival": ("deadlock", r"waits for flag F\[1\] to reach 2; it is 0", (ARRIVE, "")),
    "a relaxed arrival": (
        "race", r"it (reads|writes) W\[.*no wait orders this",
        (ARRIVE, ARRIVE.replace("2)", "2, release=False)"))),
    "too small a count": (
        "race", r"it (reads|writes) W\[", (WAIT, WAIT.replace("count=%two", "count=%zero"))),
    "too large a count": (
        "deadlock", r"F\[1\] to reach 64; it is 2", (WAIT, WAIT.replace("%two", "%c64"))),
    "outside of the flags": (
        "bounds", r"flag F\[64\] is outside", (ARRIVE, ARRIVE.replace("%i", "%c64"))),
    "arrives before it writes": (
        "race", "no wait orders this", (SYNC + ARRIVE, ""),
        ("  store_global(tensor=%W", ARRIVE + "  store_global(tensor=%W")),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name: str, seed: int) -> None:
    kind, message, *changes = WRONG[name]
    with pytest.raises(SimulationError, match=message) as caught:
        run(*changes, seed=seed)
    assert caught.value.kind == kind


@pytest.mark.parametrize("seed", range(4))
def test_a_cta_that_has_not_started(seed: int) -> None:
    with pytest.raises(SimulationError, match="CTAs 1 to 3 have not started") as caught:
        run(GRID, seed=seed, num_sms=1)
    assert caught.value.kind == "deadlock"
    assert "waits for flag F[1] to reach 2; it is 0" in str(caught.value)
    run(GRID, seed=seed, num_sms=2)
    last = 'fn="mod", args=(%next, %n)', 'fn="sub", args=(%n, %one)'
    with pytest.raises(SimulationError, match=r"CTAs 2 to 3 .* at most 2 CTAs at a time"):
        run(GRID, last, seed=seed, num_sms=2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_sms", [1, 2, 3])
def test_waits_for_ctas_of_a_lower_index(seed: int, num_sms: int) -> None:
    """Each but the first adds to the one before; they start in the order of their indices."""
    before = '  %other: i32 = map(fn="mod", args=(%next, %n))\n'
    lower = (
        '  %less: i32 = map(fn="sub", args=(%i, %one))\n'
        '  %other: i32 = map(fn="max", args=(%less, %zero))\n'
    )
    text = HAND_OVER.replace(*GRID).replace(before, lower)
    held = arrays()
    simulate(parse_kernel(text), held, seed=seed, num_sms=num_sms)
    assert (held["Y"][:, 0] == np.maximum(np.arange(256) - 64, np.arange(256) % 64)).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_plain_store_to_a_flag(seed: int) -> None:
    text = """
kernel resets @ scheduled (%F: tensor<i32[1]>) {
  launch_grid(tiles=(("2", 1),), scheduler="persistent")
  %i: i32 = cta_index()
  %zero: i32 = constant(value=0)
  %is_first: bool = map(fn="eq", args=(%i, %zero))
  if(cond=%is_first) {
    semaphore_wait(tensor=%F, index=(%zero,), count=%zero)
    store_global(tensor=%F, index=(%zero,), value=%zero)
    yield()
  } {
    semaphore_arrive(tensor=%F, index=(%zero,))
    yield()
  }
}
"""
    told = r"(writes the flag|arrives on) F\[0\]; it is unordered"
    with pytest.raises(SimulationError, match=told):
        simulate(parse_kernel(text), {"F": np.zeros(1, np.int32)}, seed=seed)
    one = text.replace("count=%zero", "count=%one").replace(
        "  %is_first", "  %one: i32 = constant(value=1)\n  %is_first"
    )
    flag = np.zeros(1, np.int32)
    simulate(parse_kernel(one), {"F": flag}, seed=seed)
    assert flag[0] == 0


def test_waiting_thread_sees_only_released_accesses() -> None:
    """Of two arrivals one is enough to go on: accesses before the other may be incomplete."""
    text = """
kernel early @ scheduled (%W: tensor<f32[P]>, %F: tensor<i32[1]>, %Y: tensor<f32[1]>) {
  launch_grid(tiles=(("3", 1),), scheduler="persistent")
  %i: i32 = cta_index()
  %zero: i32 = constant(value=0)
  %one: i32 = constant(value=1)
  %f: f32 = constant(value=1.0)
  %last: i32 = constant(value=2)
  %waits: bool = map(fn="eq", args=(%i, %last))
  if(cond=%waits) {
    semaphore_wait(tensor=%F, index=(%zero,), count=%one)
    %a: f32 = load_global(tensor=%W, index=(%zero,))
    %b: f32 = load_global(tensor=%W, index=(%one,))
    %c: f32 = map(fn="add", args=(%a, %b))
    store_global(tensor=%Y, index=(%zero,), value=%c)
    yield()
  } {
    store_global(tensor=%W, index=(%i,), value=%f)
    named_barrier_sync(barrier=1, num_warpgroups=1)
    semaphore_arrive(tensor=%F, index=(%zero,))
    yield()
  }
}
"""

    def outcome(text: str, seed: int) -> float:
        held = {
            "W": np.zeros(2, np.float32),
            "F": np.zeros(1, np.int32),
            "Y": np.zeros(1, np.float32),
        }
        simulate(parse_kernel(text), held, seed=seed)
        return held["Y"][0]

    for seed in range(8):
        with pytest.raises(SimulationError, match=r"it (reads|writes) W\["):
            outcome(text, seed)
        assert outcome(text.replace("count=%one", "count=%last"), seed) == 2


BY_TMA = """
kernel by_tma @ scheduled (%W: tensor<bf16[M, 64]>, %F: tensor<i32[P]>, %Y: tensor<bf16[M, 64]>) {
  launch_grid(tiles=(("M", 64),), scheduler="persistent")
  %w_map: tensor_map = make_tensor_map(tensor=%W, box=(16, 64), swizzle="128B")
  %all_map: tensor_map = make_tensor_map(tensor=%W, box=(64, 64), swizzle="128B")
  %y_map: tensor_map = make_tensor_map(tensor=%Y, box=(16, 64), swizzle="128B")
  %slot: shared<8192 x 2> = allocate_shared(label="slot", offset=0)
  %full: mbarrier<1> = allocate_mbarriers(label="full", arrivals=1, offset=16384)
  elect() {
    mbarrier_init(barriers=%full)
    fence_mbarrier_init()
  }
  sync_cta()
  %i: i32 = cta_index()
  %n: i32 = num_ctas()
  %zero: i32 = constant(value=0)
  %one: i32 = constant(value=1)
  %c64: i32 = constant(value=64)
  %row: i32 = map(fn="mul", args=(%i, %c64))
  %number: bf16 = cast(x=%i)
  %value: frag<bf16[64x64]> = full(value=%number)
  store_shared(value=%value, shared=%slot, item=%one, swizzle="128B")
  fence_async_proxy()
  sync_warp()
  tma_store(map=%w_map, coordinates=(%row, %zero), row_dim=0, shared=%slot, item=%one)
  tma_store_commit()
  tma_store_wait(pending=0, read=False)
  named_barrier_sync(barrier=1, num_warpgroups=1)
  semaphore_arrive(tensor=%F, index=(%i,))
  %next: i32 = map(fn="add", args=(%i, %one))
  %other: i32 = map(fn="mod", args=(%next, %n))
  %from: i32 = map(fn="mul", args=(%other, %c64))
  %start: state = initial_state(parity=0)
  elect() {
    mbarrier_arrive_expect_tx(barriers=%full, state=%start, tx_bytes=8192)
    semaphore_wait(tensor=%F, index=(%other,), count=%one)
    tma_load(map=%all_map, coordinates=(%from, %zero), shared=%slot, state=%start, barriers=%full)
  }
  mbarrier_wait(barriers=%full, state=%start)
  tma_store(map=%y_map, coordinates=(%row, %zero), row_dim=0, shared=%slot, item=%zero)
  tma_store_commit()
  tma_store_wait(pending=0)
}
"""
BY_TMA_WRONG = {
    "only the reads are complete": (
        r"it reads W\[.*no tma_store_wait\(read=False\) covers that store", (", read=False", "")),
    "no sync before the arrival": (
        r"it reads W\[.*not ordered after the tma_store_wait", (SYNC, "")),
    "no wait": (
        r"it (reads|writes) W\[",
        ("    semaphore_wait(tensor=%F, index=(%other,), count=%one)\n", "")),
}  # fmt: skip


def check_by_tma(kernel: Kernel, seed: int) -> None:
    w, y = (np.full((256, 64), np.nan, BF16) for _ in range(2))
    simulate(kernel, {"W": w, "F": np.zeros(4, np.int32), "Y": y}, seed=seed)
    assert (y[:, 5] == (np.arange(256) // 64 + 1) % 4).all()


def run_by_tma(seed: int, *changes: tuple[str, str]) -> None:
    check_by_tma(parse_kernel(changed(BY_TMA, *changes), "flags.ir"), seed)


@pytest.mark.parametrize("seed", range(6))
def test_tma_stores_and_loads(seed: int) -> None:
    run_by_tma(seed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", BY_TMA_WRONG)
def test_mistakes_with_tma(name: str, seed: int) -> None:
    message, *changes = BY_TMA_WRONG[name]
    with pytest.raises(SimulationError, match=message) as caught:
        run_by_tma(seed, *changes)
    assert caught.value.kind == "race"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("where", ["", "everywhere=True"])
def test_tma_need_not_see_what_threads_wrote(seed: int, where: str) -> None:
    begin = BY_TMA.index("  store_shared(")
    end = BY_TMA.index(SYNC)
    by_threads = (
        "  %rows: frag<i32[64x1]> = iota(start=%row)\n"
        "  %columns: frag<i32[1x64]> = iota(start=%zero)\n"
        "  store_global(tensor=%W, index=(%rows, %columns), value=%value)\n"
        f"  fence_async_proxy({where})\n"
    )
    if where:
        run_by_tma(seed, (BY_TMA[begin:end], by_threads))
        return
    with pytest.raises(SimulationError, match=r"it reads W.*no fence_async_proxy.everywhere=True"):
        run_by_tma(seed, (BY_TMA[begin:end], by_threads))
