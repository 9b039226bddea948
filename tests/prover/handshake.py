# ruff: noqa: E501 - lines of IR
"""Small hand-written SCHEDULED kernels: a producer, a consumer and a ring between them."""

from __future__ import annotations

from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.prover.machine.explore import Refuted, explore

PRODUCE = """
mbarrier_wait(barriers=%empty, state=%p)
mbarrier_arrive_expect_tx(barriers=%full, state=%p, tx_bytes=8192)
tma_load(map=%map, coordinates=(%zero, %i), shared=%x, state=%p, barriers=%full)
"""
CONSUME = """
mbarrier_wait(barriers=%full, state=%c)
%a: matrix_descriptor = smem_descriptor(shared=%x, state=%c, dtype="bf16", rows=64, columns=64, swizzle="128B")
%acc: acc<f32[64x64]> = empty_accumulator()
wgmma_fence()
%acc_1: acc<f32[64x64]> = wgmma_mma_async(acc=%acc, a=%a, b=%a, accumulate=%no, dtype="bf16", k=64)
wgmma_commit()
%sum: frag<f32[64x64]> = wgmma_wait(pending=0, accumulators=(%acc_1,))
mbarrier_arrive(barriers=%empty, state=%c)
"""
THREADS_PRODUCE = """
mbarrier_wait(barriers=%empty, state=%p)
thread_load(tensor=%A, coordinates=(%zero, %i), row_dim=0, rows=64, columns=64, swizzle="128B", shared=%x, state=%p)
fence_async_proxy()
mbarrier_arrive(barriers=%full, state=%p, each_thread=True)
"""


def ring(
    produce: str = PRODUCE,
    consume: str = CONSUME,
    *,
    stages: int = 3,
    consumers: int = 1,
    empty_arrivals: int | None = None,
    by_threads: bool = False,
    stop: str = "%size",
    more: str = "",
) -> Kernel:
    """A loop over K on each side; `produce` and `consume` are the bodies. `%p`, `%c`: states."""
    begin, end = ("", "") if by_threads else ("elect() {", "}")
    return parse_kernel(
        f"""kernel ring @ scheduled (%A: tensor<bf16[M, K]>, %Y: tensor<bf16[M, K]>, %n: tensor<i32[1]>) {{
  launch_grid(tiles=(("M", 64),), scheduler="grid")
  %map: tensor_map = make_tensor_map(tensor=%A, box=(64, 64), swizzle="128B")
  %x: shared<8192 x {stages}> = allocate_shared(label="x", offset=0)
  %full: mbarrier<{stages}> = allocate_mbarriers(label="full", arrivals={128 if by_threads else 1}, offset=200000)
  %empty: mbarrier<{stages}> = allocate_mbarriers(label="empty", arrivals={empty_arrivals or consumers}, offset=200128)
  {more}
  elect() {{
    mbarrier_init(barriers=%full)
    mbarrier_init(barriers=%empty)
    fence_mbarrier_init()
  }}
  sync_cta()
  %size: i32 = dim_size(dim="K")
  %zero: i32 = constant(value=0)
  %step: i32 = constant(value=64)
  %no: bool = constant(value=False)
  %limit: i32 = load_global(tensor=%n, index=(%zero,))
  partition(role="load", num_warps=4) {{
    {begin}
      %p0: state = initial_state(parity=1)
      %p9: state = for_range(index=%i: i32, start=%zero, stop={stop}, step=%step, init=(%p0,), args=(%p: state,)) {{
        {produce}
        %p1: state = advance(state=%p, num={stages})
        yield(values=(%p1,))
      }}
    {end}
  }}
  partition(role="compute", num_warps={4 * consumers}) {{
    %c0: state = initial_state(parity=0)
    %c9: state = for_range(index=%j: i32, start=%zero, stop={stop}, step=%step, init=(%c0,), args=(%c: state,)) {{
      {consume}
      %c1: state = advance(state=%c, num={stages})
      yield(values=(%c1,))
    }}
  }}
}}"""
    )


def verdict(kernel: Kernel) -> str:
    """ "" where the kernel is proved, else the kind of failure."""
    try:
        explore(kernel)
    except Refuted as refuted:
        assert refuted.failure.kind != "unknown", refuted.failure.message
        return refuted.failure.kind
    return ""
