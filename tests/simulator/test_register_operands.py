"""wgmma with its left operand in registers, one step of K after the loads of the other."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.simulator.kernels import BF16, changed
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

GEMM = """
kernel registers @ scheduled (%A: tensor<f32[64, K]>, %B: tensor<bf16[N, K]>,
    %C: tensor<f32[64, N]>) {
  launch_grid(tiles=(("N", 64),), scheduler="grid")
  %b_map: tensor_map = make_tensor_map(tensor=%B, box=(64, 64), swizzle="128B")
  %slots: shared<8192 x 2> = allocate_shared(label="slots", offset=0)
  %full: mbarrier<2> = allocate_mbarriers(label="full", arrivals=1, offset=16384)
  %empty: mbarrier<2> = allocate_mbarriers(label="empty", arrivals=1, offset=16400)
  elect() {
    mbarrier_init(barriers=%full)
    mbarrier_init(barriers=%empty)
    fence_mbarrier_init()
  }
  sync_cta()
  %i: i32 = cta_index()
  %zero: i32 = constant(value=0)
  %c64: i32 = constant(value=64)
  %k_size: i32 = dim_size(dim="K")
  %n: i32 = map(fn="mul", args=(%i, %c64))
  partition(role="load") {
    elect() {
      %p0: state = initial_state(parity=1)
      %p_end: state = for_range(index=%k: i32, start=%zero, stop=%k_size, step=%c64,
          init=(%p0,), args=(%p: state,)) {
        mbarrier_wait(barriers=%empty, state=%p)
        mbarrier_arrive_expect_tx(barriers=%full, state=%p, tx_bytes=8192)
        tma_load(map=%b_map, coordinates=(%n, %k), shared=%slots, state=%p, barriers=%full)
        %p2: state = advance(state=%p, num=2)
        yield(values=(%p2,))
      }
    }
  }
  partition(role="compute") {
    %rows: frag<i32[64x1]> = iota(start=%zero)
    %columns: frag<i32[1x64]> = iota(start=%zero)
    %first: frag<bf16[64x64]> = full(value=%none)
    %acc0: acc<f32[64x64]> = empty_accumulator()
    %f0: state = initial_state(parity=0)
    %acc3: acc<f32[64x64]>, %f_end: state, %last: state, %last_a: frag<bf16[64x64]> =
        for_range(index=%k_1: i32, start=%zero, stop=%k_size, step=%c64,
        init=(%acc0, %f0, %f0, %first), args=(%acc1: acc<f32[64x64]>, %f: state, %before: state,
        %held: frag<bf16[64x64]>)) {
      %at: frag<i32[1x64]> = iota(start=%k_1)
      %wide: frag<f32[64x64]> = load_global(tensor=%A, index=(%rows, %at))
      %a: frag<bf16[64x64]> = cast(x=%wide)
      %left: frag<bf16[64x64] operand> = convert_layout(x=%a)
      mbarrier_wait(barriers=%full, state=%f)
      %more: bool = map(fn="gt", args=(%k_1, %zero))
      %b: matrix_descriptor = smem_descriptor(shared=%slots, state=%f, dtype="bf16",
        rows=64, columns=64, swizzle="128B")
      wgmma_fence()
      %acc2: acc<f32[64x64]> = wgmma_mma_async(acc=%acc1, a=%left, b=%b,
    accumulate=%more, dtype="bf16", k=64)
      wgmma_commit()
      wgmma_wait(pending=1, fragments=(%held,))
      mbarrier_arrive(barriers=%empty, state=%before, pred=%more)
      %f2: state = advance(state=%f, num=2)
      yield(values=(%acc2, %f2, %f, %a))
    }
    %sum: frag<f32[64x64]> = wgmma_wait(pending=0, accumulators=(%acc3,), fragments=(%last_a,))
    mbarrier_arrive(barriers=%empty, state=%last)
    %to: frag<i32[1x64]> = iota(start=%n)
    store_global(tensor=%C, index=(%rows, %to), value=%sum)
  }
}
""".replace("value=%none)", "value=%bf)").replace(
    "    %first: frag", "    %bf: bf16 = constant(value=0.0)\n    %first: frag"
)


def check(kernel: Kernel, seed: int, dtype: Any = BF16) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((64, 208)).astype(np.float32)
    b = rng.standard_normal((70, 208)).astype(dtype)
    c = np.full((64, 70), np.nan, np.float32)
    simulate(kernel, {"A": a, "B": b, "C": c}, seed=seed)
    wanted = a.astype(dtype).astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c - wanted).max() < 1e-3


def run(*changes: tuple[str, str], seed: int = 0, dtype: Any = BF16) -> None:
    check(parse_kernel(changed(GEMM, *changes), "registers.ir"), seed, dtype)


@pytest.mark.parametrize("seed", range(6))
def test_right(seed: int) -> None:
    run(seed=seed)


A = "      %a: frag<bf16[64x64]> = cast(x=%wide)\n"
LEFT = "      %left: frag<bf16[64x64] operand> = convert_layout(x=%a)\n"
FENCE = "      wgmma_fence()\n"
LATE = (A + LEFT, ""), (FENCE, FENCE + A + LEFT)
WRONG = {
    "written after the fence": ("no wgmma_fence follows the last write", LATE),
    "not kept in the loop": (
        "registers of %left may be overwritten",
        ((", fragments=(%held,)", ""),)),
    "not kept after the loop": (
        "registers of %left may be overwritten",
        ((", fragments=(%last_a,)", ""),)),
    "another one kept": (
        "registers of %left may be over", (("fragments=(%last_a,)", "fragments=(%first,)"),)),
    "not of the instruction's K": (
        r"the wgmma expects frag<bf16\[64x32\] operand>", (("k=64)", "k=32)"),)),
    "carried past the fence": (
        "no wgmma_fence follows the last write",
        (("x=%a)", "x=%held)"), (FENCE, ""), ("    %f0", FENCE + "    %f0")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name: str, seed: int) -> None:
    message, changes = WRONG[name]
    with pytest.raises(SimulationError, match=message) as caught:
        run(*changes, seed=seed)
    assert caught.value.kind == "misuse"


def test_a_slice_lies_in_the_same_registers() -> None:
    """A slice runs no code: it may come after the fence, and keeping the whole keeps it."""
    sliced = (
        (A + LEFT, A.replace("%a:", "%whole:")),
        (FENCE, f"{FENCE}      %a: frag<bf16[64x64]> = slice_columns(x=%whole, start=0)\n{LEFT}"),
    )
    run(*sliced)
    run(*sliced, ("yield(values=(%acc2, %f2, %f, %a))", "yield(values=(%acc2, %f2, %f, %whole))"))


FP8 = ml_dtypes.float8_e4m3fn
EIGHT = (
    ("tensor<bf16[", "tensor<f8e4m3["), ("frag<bf16[", "frag<f8e4m3["),
    ("%bf: bf16", "%bf: f8e4m3"), ('dtype="bf16"', 'dtype="f8e4m3"'),
    ('swizzle="128B"', 'swizzle="64B"'), ("tx_bytes=8192", "tx_bytes=4096"),
    ("shared<8192", "shared<4096"),
)  # fmt: skip
LAST = "      yield(values=(%acc2,"
KEPT = "      wgmma_wait(pending=0, fragments=(%left,))\n"


def test_operands_of_8_bits_have_registers_of_their_own() -> None:
    """Keeping what they are made of keeps nothing."""
    with pytest.raises(SimulationError, match="the registers of %left may be overwritten"):
        run(*EIGHT, dtype=FP8)
    run(*EIGHT, (LAST, KEPT + LAST), dtype=FP8)
