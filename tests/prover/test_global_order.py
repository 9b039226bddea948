"""Accesses to a tensor that a kernel writes are in order; what orders them is missed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

import pytest

import wsdsl
from tests.in_place_kernels import arrays, in_place
from tests.kernels import CASES
from tests.prover.test_split_k_protocol import objection as objection_of
from tests.simulator.mutants import exchange
from wsdsl import Schedule
from wsdsl.diagnostics import ProofError, WsdslError
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.rewriter import walk
from wsdsl.lowering.pipeline import lower
from wsdsl.prover.failure import GLOBAL_ORDER, Failure
from wsdsl.prover.memory.gmem_order import check_global_order
from wsdsl.prover.prove import prove
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

SIZES = dict(M=72, N=40, K=40, E=3, G=3)
objection = partial(objection_of, check=check_global_order, kind=GLOBAL_ORDER)
ORDERS = (ops.SyncWarp, ops.NamedBarrierSync, ops.FenceAsyncProxy, ops.TmaStoreWait)


@cache
def scheduled(name: str, dtype: str, consumers: int = 2) -> Kernel:
    schedule = Schedule(consumers=consumers)
    return in_place(name, dtype)._compile(schedule, SIZES, ()).scheduled


def mutants(kernel: Kernel) -> Iterator[tuple[Op, Kernel]]:
    """With each op taken out that orders anything, or made to order less."""
    for op in walk(kernel.body):
        if isinstance(op, ORDERS):
            yield op, exchange(kernel, op)
        if isinstance(op, ops.TmaStoreWait) and not op.read:
            yield op, exchange(kernel, op, replace(op, read=True))
            yield op, exchange(kernel, op, replace(op, pending=1))
        if isinstance(op, ops.FenceAsyncProxy) and op.everywhere:
            yield op, exchange(kernel, op, replace(op, everywhere=False))


CAUGHT = {
    # Threads read and write elements of their own.
    ("loop", "bf16"): set[str](),
    ("stored twice", "f32"): set[str](),
    ("used behind", "f32"): set[str](),
    ("added", "f32"): set[str](),
    ("transposed", "bf16"): {"TmaStoreWait", "SyncWarp", "NamedBarrierSync", "FenceAsyncProxy"},
    ("row", "f32"): {"NamedBarrierSync"},
    ("scalar", "f32"): {"NamedBarrierSync"},
    ("product", "bf16"): {"TmaStoreWait", "SyncWarp", "FenceAsyncProxy"},
}


@pytest.mark.parametrize(("name", "dtype"), CAUGHT)
def test_what_orders_is_missed(name: str, dtype: str) -> None:
    kernel = scheduled(name, dtype)
    assert objection(kernel) == ""
    found = {type(op).__name__ for op, mutant in mutants(kernel) if objection(mutant)}
    assert found == CAUGHT[name, dtype]


def test_loops_in_front_are_waited_for() -> None:
    """All threads read a row before one of them overwrites its elements in another loop."""
    schedule = Schedule(tile=dict(m=64, n=16))
    kernel = in_place("gone over again", "f32")._compile(schedule, SIZES, ()).scheduled
    (meeting,) = (op for op in walk(kernel.body) if isinstance(op, ORDERS))
    assert objection(kernel) == "" != objection(exchange(kernel, meeting))


@pytest.mark.parametrize(("name", "dtype"), [("transposed", "bf16"), ("scalar", "f32")])
def test_what_the_simulator_finds_is_found(name: str, dtype: str) -> None:
    kernel, made = scheduled(name, dtype), in_place(name, dtype)
    names, caught = [p.name for p in made.tile_ir.params], 0
    for op, mutant in mutants(kernel):
        given = dict(zip(names, arrays(made, SIZES), strict=True))
        try:
            simulate(mutant, given, seed=1, agents="lazy")
        except SimulationError as error:
            if re.search(r"it (reads|writes) X\[", str(error)):
                caught += 1
                assert objection(mutant), op
    assert caught


def test_the_certificate_is_refused_where_it_was_wrong() -> None:
    """What was emitted once: the next iteration's loads do not wait for the stores."""
    kernel = scheduled("transposed", "f16")
    waits = [op for op in walk(kernel.body) if isinstance(op, ops.TmaStoreWait) and not op.read]
    with pytest.raises(ProofError, match="this may read `Y` before it is written by"):
        prove(exchange(kernel, waits[0]))


BY_HAND = """
kernel k @ scheduled (%X: tensor<f32[M, 64]>, %Y: tensor<f32[M, 64]>) {{
  %c0: i32 = constant(value=0)
  %c1: i32 = constant(value=1)
  %c8: i32 = constant(value=8)
  %c64: i32 = constant(value=64)
  %c4: i32 = constant(value=4)
  %c2: i32 = constant(value=2)
  partition(role="compute") {{
    %rows: frag<i32[64x1]> = iota(start=%c0)
    %columns: frag<i32[1x8]> = iota(start=%c0)
    for_range(index=%i: i32, start=%c0, stop=%c64, step=%c8) {{
      {body}
      yield()
    }}
  }}
}}
"""
VALUE = "%x: frag<f32[64x8]> = load_global(tensor=%Y, index=(%rows, %columns))\n"
STORE = "store_global(tensor=%X, index=(%rows, {}), value=%x)\n"
LOAD = "%y: frag<f32[64x8]> = load_global(tensor=%X, index=(%rows, {}))\n"
AT = '%at: i32 = map(fn="{}", args=(%i, {}))\n%there: frag<i32[1x8]> = iota(start=%at)\n'
MEET = "named_barrier_sync(barrier=1, num_warpgroups=1)\n"
FOUR_ROWS = """
%first: frag<i32[16x1] lanes 16x8> = iota(start=%c0)
%later: frag<i32[16x1] lanes 16x8> = iota(start={})
%wide: frag<i32[1x128] lanes 16x8> = iota(start=%c0)
%v: frag<f32[16x128] lanes 16x8> = load_global(tensor=%Y, index=(%first, %wide))
store_global(tensor=%X, index=(%first, %wide), value=%v)
sync_warp()
%w: frag<f32[16x128] lanes 16x8> = load_global(tensor=%X, index=(%later, %wide))
named_barrier_sync(barrier=1, num_warpgroups=1)
"""
RACES = {
    "a warp's four rows": (FOUR_ROWS.format("%c0"), ""),
    "four rows of another warp": (FOUR_ROWS.format("%c4"), "this may read `X`"),
    "the same thread": (VALUE + LOAD.format("%columns") + STORE.format("%columns"), ""),
    "elsewhere in each iteration": (VALUE + AT.format("add", "%c0") + STORE.format("%there"), ""),
    "it was there in the last one": (
        VALUE + AT.format("add", "%c8") + "%own: frag<i32[1x8]> = iota(start=%i)\n"
        + LOAD.format("%own") + STORE.format("%there"),
        "this may read `X`",
    ),
    "half of it was there": (
        VALUE + AT.format("add", "%c4") + "%own: frag<i32[1x8]> = iota(start=%i)\n"
        + LOAD.format("%own") + STORE.format("%there"),
        "this may",
    ),
    "it meets": (
        VALUE + AT.format("floordiv", "%c64") + STORE.format("%there")
        + MEET + LOAD.format("%columns") + MEET,
        "",
    ),
    "it does not meet": (
        VALUE + AT.format("floordiv", "%c64") + STORE.format("%there")
        + LOAD.format("%columns") + MEET,
        "this may read `X`",
    ),
    "a warp meets": (
        VALUE + "store_global(tensor=%X, index=(%rows, %c0), value=%one)\nsync_warp()\n"
        + LOAD.format("%columns") + "sync_warp()\n",
        "",
    ),
    "a warp does not meet": (
        VALUE + "store_global(tensor=%X, index=(%rows, %c0), value=%one)\n"
        + LOAD.format("%columns") + "sync_warp()\n",
        "this may read `X`",
    ),
    "one element, by all": (
        "%z: f32 = load_global(tensor=%X, index=(%c0, %c0))\nsync_warp()\n"
        "store_global(tensor=%X, index=(%c0, %c0), value=%z)\n" + MEET,
        "this may overwrite `X`",
    ),
}  # fmt: skip

TWO = (
    """%wg: i32 = warpgroup_index()
%share: i32 = map(fn="mul", args=(%wg, %c8))
%twice: i32 = map(fn="mul", args=(%i, %c2))
%at: i32 = map(fn="add", args=({}, %share))
%there: frag<i32[1x8]> = iota(start=%at)
"""
    + VALUE
    + STORE.format("%there")
)
RACES |= {
    "the other warpgroup was there": (TWO.format("%i"), "this may overwrite `X`"),
    "both go on by what both store": (TWO.format("%twice"), ""),
}  # fmt: skip
BOTH_MEET = "named_barrier_sync(barrier=1, num_warpgroups=2)\n"
ONE_ROW = "store_global(tensor=%X, index=(%c0, %columns), value=%z{})\nsync_warp()\n" + BOTH_MEET
ROW = "%z: frag<f32[1x8]> = load_global(tensor=%Y, index=(%c0, %columns))\n"
OWN = 'warpgroup_index()\n%own: bool = map(fn="eq", args=({}, %c1))\n'
# What looks the same in both warpgroups, and is not: both store to the same columns.
SHARE = """%wg: i32 = warpgroup_index()
%share: i32 = map(fn="mul", args=(%wg, %c8))
"""
FOUND = "%there: frag<i32[1x8]> = iota(start=%at)\n" + VALUE + STORE.format("%there")
BEGINS = (
    SHARE
    + """%first: i32 = map(fn="sub", args=(%c8, {}))
for_range(index=%j: i32, start=%first, stop=%c64, step=%c64) {{
%at: i32 = map(fn="add", args=(%j, %share))
"""
    + FOUND
    + "yield()\n}}\n"
    + BOTH_MEET
)
CARRIED = (
    SHARE
    + """%last: i32 = for_range(index=%j: i32, start=%c0, stop=%c2, step=%c1, init=({},), \
args=(%from: i32,)) {{
%less: i32 = map(fn="sub", args=(%from, %c4))
yield(values=(%less,))
}}
%at: i32 = map(fn="sub", args=(%share, %last))
"""
    + FOUND
    + BOTH_MEET
)
LEAST = (
    SHARE
    + """%least: i32 = map(fn="min", args=({}, %i))
%at: i32 = map(fn="sub", args=(%share, %least))
"""
    + FOUND
    + BOTH_MEET
)
RACES |= {
    "both store a row": (
        ROW + "%wg: i32 = warpgroup_index()\n" + ONE_ROW.format(""),
        "another warpgroup may store to the same elements of `X`",
    ),
    "one of both stores a row": (
        ROW + "%wg: i32 = " + OWN.format("%wg") + ONE_ROW.format(", pred=%own"),
        "",
    ),
    "both do in one iteration": (
        ROW + "%wg: i32 = " + OWN.format("%i") + ONE_ROW.format(", pred=%own"),
        "another warpgroup may store to the same elements of `X`",
    ),
}
for what, text in {"begins": BEGINS, "is carried": CARRIED, "is bounded": LEAST}.items():
    told = "another warpgroup may store to the same elements of `X`"
    RACES[f"an index that {what} by the warpgroup"] = (text.format("%share"), told)
    RACES[f"an index that {what} alike in both"] = (text.format("%c4"), "")


@pytest.mark.parametrize("name", RACES)
def test_by_hand(name: str) -> None:
    body, told = RACES[name]
    one = "%one: frag<f32[64x1]> = load_global(tensor=%Y, index=(%rows, %c0))\n"
    text = BY_HAND.format(body=(one if "%one" in body else "") + body)
    if "%wg" in body:
        text = text.replace('role="compute"', 'role="compute", num_warps=8')
    try:
        kernel = parse_kernel(text)
    except WsdslError as error:
        raise AssertionError(str(error)) from None
    found = objection(kernel)
    assert found.startswith(told) and bool(found) == bool(told), found


@pytest.mark.parametrize("swizzle", [1, 8])
def test_tiles_that_overlap_at_an_edge_are_told_apart_in_each_partition(swizzle: int) -> None:
    """Of a product whose sizes are open, by consumers that take turns."""
    tile = dict(m=128, n=192, k=64)
    schedule = Schedule(tile=tile, consumers=2, mode="pingpong", swizzle=swizzle)
    kernel = CASES["gemm"].kernel._compile(schedule, {}, ()).scheduled
    assert sum(isinstance(op, ops.TmaStore) for op in kernel.ops) == 12
    assert objection(kernel) == ""


SCATTERED = """
@kernel
def line(A: f8e4m3[T, M], i: i32, rows: i32[M], B: f8e4m3[M], C: f32[T]):
    for m in tiles(M):
        B[m] = A[i, m]
        C[rows[m]] = bitcast(index(m), f32)
"""


@pytest.mark.parametrize("index", ["at[l]", "at[l] + 1"])
def test_a_scattered_store_in_iterations_of_a_loop(index: str) -> None:
    """Its rows differ, if they are read of other elements."""
    text = f"""
@kernel
def rows(X: f32[L, D], at: i32[L], Y: f32[T, B, D], Z: f32[B]):
    for b in each(B):
        for l in tiles(L):
            Y[{index}, b, :] = X[l, :]
        Z[b] = 1.0
"""
    kernel = lower(replace(wsdsl.parse(text).rows.tile_ir, sizes=(("D", 128),)))
    assert not objection(kernel)
    nearer = str(kernel).replace("i32 = constant(value=16)", "i32 = constant(value=8)")
    assert "overwrite" in objection(parse_kernel(nearer))


def test_rows_of_two_warpgroups_in_a_scattered_store() -> None:
    """What an index is computed of holds numbers, too, which are no terms of a sum."""
    text = """
@kernel
def rows(perm: i32[M], Y: bf16[T, N], X: f32[N], A: f8e5m2[M, K], B: f8e4m3[N, K], C: u8[M, N]):
    for m, n in tiles(M, N):
        Y[perm[m], n] = X[n]
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
"""
    schedule = Schedule(tile=dict(m=128, k=32), consumers=2, stages=2)
    kernel = vars(wsdsl.parse(text))["rows"]._compile(schedule, {}, ()).scheduled
    assert not objection(kernel)


def test_parts_of_one_scattered_store_are_apart() -> None:
    """Parts that overlap are seen."""
    schedule = Schedule(tile=dict(m=72), cluster=dict(m=2))
    kernel = wsdsl.parse(SCATTERED).line._compile(schedule, {}, ()).scheduled
    assert not objection(kernel)
    start = next(op.start for op in walk(kernel.body) if isinstance(op, ops.Iota))
    for op in walk(kernel.body):
        if isinstance(op, ops.Iota) and op.start != start:
            kernel = exchange(kernel, op, replace(op, start=start))
    assert objection(kernel)


def test_ctas_have_items_of_their_own() -> None:
    text = str(CASES["scale"].kernel._compile(Schedule(scheduler="persistent"), {}, ()).scheduled)
    check_global_order(parse_kernel(text))
    assert "step=%num_ctas" in text and "%c16: i32" in text
    with pytest.raises(Failure, match="two CTAs may process the same item"):
        check_global_order(parse_kernel(text.replace("step=%num_ctas", "step=%c16")))
    with pytest.raises(Failure, match="not end at the number of items"):
        check_global_order(parse_kernel(re.sub(r"stop=%num_work\w*", "stop=%c16", text)))


def test_a_persistent_cta_does_all_of_its_items() -> None:
    text = str(CASES["scale"].kernel._compile(Schedule(scheduler="grid"), {}, ()).scheduled)
    check_global_order(parse_kernel(text))
    assert text.count('scheduler="grid"') == 2 and "for_range" not in text
    with pytest.raises(Failure, match='a CTA of a "persistent" grid has several items'):
        check_global_order(parse_kernel(text.replace('scheduler="grid"', 'scheduler="persistent"')))
