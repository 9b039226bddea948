# ruff: noqa: E501 - lines of IR
"""Descriptors that live on: where one points belongs to a state, seen from where its ring begins."""

import pytest

from tests.prover.handshake import verdict
from wsdsl.ir.parser import parse_kernel

OPERAND = 'dtype="bf16", rows=64, columns=64, swizzle="128B"'


def product(of: str, result: str) -> str:
    return f"""
      %{result}: acc<f32[64x64]> = empty_accumulator()
      wgmma_fence()
      %{result}_1: acc<f32[64x64]> = wgmma_mma_async(acc=%{result}, a=%{of}, b=%{of}, accumulate=%no, dtype="bf16", k=64)
      wgmma_commit()
      %{result}_2: frag<f32[64x64]> = wgmma_wait(pending=0, accumulators=(%{result}_1,))"""


def kernel(load: str, compute: str, *, stages: int, bytes_: int, barriers: dict[str, int]) -> str:
    allocated = "".join(
        f'  %{name}: mbarrier<{stages}> = allocate_mbarriers(label="{name}", arrivals={arrivals}, offset={200000 + 128 * n})\n'
        for n, (name, arrivals) in enumerate(barriers.items())
    )
    initialised = "".join(f"    mbarrier_init(barriers=%{name})\n" for name in barriers)
    return f"""kernel ring @ scheduled (%A: tensor<bf16[M, K]>, %n: tensor<i32[L]>, %o: tensor<i32[L]>) {{
  launch_grid(tiles=(("M", 64),))
  %map: tensor_map = make_tensor_map(tensor=%A, box=(64, 64), swizzle="128B")
  %x: shared<{bytes_} x {stages}> = allocate_shared(label="x", offset=0)
{allocated}  elect() {{
{initialised}    fence_mbarrier_init()
  }}
  sync_cta()
  %size: i32 = dim_size(dim="K")
  %zero: i32 = constant(value=0)
  %step: i32 = constant(value=64)
  %lap: i32 = constant(value={64 * stages})
  %no: bool = constant(value=False)
  partition(role="load", num_warps=4) {{
    elect() {{{load}
    }}
  }}
  partition(role="compute", num_warps=4) {{{compute}
  }}
}}"""


def read_again(stages: int) -> str:
    """After a first lap, each iteration reads the last item too, which is filled at its turn."""

    def fill(s: str) -> str:
        return f"""
        mbarrier_wait(barriers=%empty, state=%p{s})
        mbarrier_arrive_expect_tx(barriers=%full, state=%p{s}, tx_bytes=8192)
        tma_load(map=%map, coordinates=(%zero, %i{s}), shared=%x, state=%p{s}, barriers=%full)
        mbarrier_wait(barriers=%extra, state=%q{s})
        %p{s}1: state = advance(state=%p{s}, num={stages})
        %q{s}1: state = advance(state=%q{s}, num={stages})
        yield(values=(%p{s}1, %q{s}1))
      }}"""

    def use(s: str) -> str:
        return f"""
      mbarrier_arrive(barriers=%extra, state=%r{s})
      mbarrier_wait(barriers=%full, state=%c{s})
      %a{s}: matrix_descriptor = smem_descriptor(shared=%x, state=%c{s}, {OPERAND}){product(f"a{s}", f"acc{s}")}
      mbarrier_arrive(barriers=%empty, state=%c{s})
      %c{s}1: state = advance(state=%c{s}, num={stages})
      %r{s}1: state = advance(state=%r{s}, num={stages})
      yield(values=(%c{s}1, %r{s}1))
    }}"""

    to_last = "".join(
        f"\n    %e{n + 1}: state = advance(state=%e{n}, num={stages})" for n in range(stages - 1)
    )
    load = f"""
      %p0: state = initial_state(parity=1)
      %q0: state = initial_state(parity=0)
      %pa9: state, %qa9: state = for_range(index=%ia: i32, start=%zero, stop=%lap, step=%step, init=(%p0, %q0), args=(%pa: state, %qa: state)) {{{fill("a")}
      %pb9: state, %qb9: state = for_range(index=%ib: i32, start=%lap, stop=%size, step=%step, init=(%pa9, %qa9), args=(%pb: state, %qb: state)) {{{fill("b")}"""
    compute = f"""
    %c0: state = initial_state(parity=0)
    %r0: state = initial_state(parity=0)
    %e0: state = initial_state(parity=0){to_last}
    %last: matrix_descriptor = smem_descriptor(shared=%x, state=%e{stages - 1}, {OPERAND})
    %ca9: state, %ra9: state = for_range(index=%ja: i32, start=%zero, stop=%lap, step=%step, init=(%c0, %r0), args=(%ca: state, %ra: state)) {{{use("a")}
    %cb9: state, %rb9: state = for_range(index=%jb: i32, start=%lap, stop=%size, step=%step, init=(%ca9, %ra9), args=(%cb: state, %rb: state)) {{{product("last", "again")}{use("b")}"""
    barriers = dict(full=1, empty=1, extra=1)
    return kernel(load, compute, stages=stages, bytes_=8192, barriers=barriers)


@pytest.mark.parametrize("stages", [3, 4])
def test_an_item_does_not_turn_with_the_others(stages: int) -> None:
    assert verdict(parse_kernel(read_again(stages))) == "race"


def halves(then: int, otherwise: int) -> str:
    """The second half of a slot is given back at once, the first one after the next iteration's
    product, of the half that a condition has chosen."""
    load = """
      %p0: state = initial_state(parity=1)
      %p9: state = for_range(index=%i: i32, start=%zero, stop=%size, step=%step, init=(%p0,), args=(%p: state,)) {
        mbarrier_wait(barriers=%second, state=%p)
        mbarrier_arrive_expect_tx(barriers=%full, state=%p, tx_bytes=16384)
        tma_load(map=%map, coordinates=(%zero, %i), shared=%x, offset=8192, state=%p, barriers=%full)
        mbarrier_wait(barriers=%first, state=%p)
        tma_load(map=%map, coordinates=(%zero, %i), shared=%x, state=%p, barriers=%full)
        %p1: state = advance(state=%p, num=3)
        yield(values=(%p1,))
      }"""
    compute = f"""
    %c0: state = initial_state(parity=0)
    %d0: matrix_descriptor = smem_descriptor(shared=%x, state=%c0, {OPERAND})
    %c9: state, %l9: state, %d9: matrix_descriptor = for_range(index=%j: i32, start=%zero, stop=%size, step=%step, init=(%c0, %c0, %d0), args=(%c: state, %l: state, %d: matrix_descriptor)) {{
      %later: bool = map(fn="gt", args=(%j, %zero))
      mbarrier_wait(barriers=%full, state=%c)
      %w: i32 = load_global(tensor=%o, index=(%j,))
      %sometimes: bool = map(fn="gt", args=(%w, %zero))
      if(cond=%sometimes) {{
        sync_warp()
        yield()
      }} {{ yield() }}
      if(cond=%later) {{{product("d", "acc")}
        mbarrier_arrive(barriers=%first, state=%l)
        yield()
      }} {{ yield() }}
      mbarrier_arrive(barriers=%second, state=%c, each_thread=True)
      %v: i32 = load_global(tensor=%n, index=(%j,))
      %cond: bool = map(fn="gt", args=(%v, %zero))
      %dn: matrix_descriptor = if(cond=%cond) {{
        %da: matrix_descriptor = smem_descriptor(shared=%x, state=%c, offset={then}, {OPERAND})
        yield(values=(%da,))
      }} {{
        %db: matrix_descriptor = smem_descriptor(shared=%x, state=%c, offset={otherwise}, {OPERAND})
        yield(values=(%db,))
      }}
      %c1: state = advance(state=%c, num=3)
      yield(values=(%c1, %c, %dn))
    }}
    %any: bool = map(fn="gt", args=(%size, %zero))
    mbarrier_arrive(barriers=%first, state=%l9, pred=%any)"""
    barriers = dict(full=1, first=1, second=128)
    return kernel(load, compute, stages=3, bytes_=16384, barriers=barriers)


@pytest.mark.parametrize(
    ("offsets", "found"), [((0, 0), ""), ((8192, 0), "race"), ((0, 8192), "race")]
)
def test_states_differ_by_what_descriptors_say(offsets: tuple[int, int], found: str) -> None:
    assert verdict(parse_kernel(halves(*offsets))) == found
