"""Kernels without products hold tiles as vectors, as memory wants them."""

import contextlib
import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.kernels import CASES
from tests.lowering.row_kernels import KERNELS
from tests.pattern_kernels import PATTERNS
from tests.simulator.kernels import rejected
from tests.word_kernels import WORD_KERNELS
from wsdsl import Schedule, parse
from wsdsl.diagnostics import ScheduleError
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import LoadGlobal, StoreGlobal, TmaStore
from wsdsl.ir.types import ACCUMULATOR, Fragment, Lanes

MOVED = """
@kernel
def moved(X: {first}[M, N], b: f32[N], Y: {last}[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = cast(X[m, n], f32) + b[n]

@kernel
def added(X: {first}[M, N], Y: {last}[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] += cast(X[m, n], f32)

@kernel
def line(X: {first}[N], Y: {last}[N]):
    for n in tiles(N):
        Y[n] = cast(X[n], f32) * cast(index(n), f32)
"""
SIZES = dict(M=8192, N=8192)


def scheduled(name: str, first: str, last: str, unaligned: tuple[str, ...] = ()) -> Kernel:
    kernel = vars(parse(MOVED.format(first=first, last=last)))[name]
    sizes = {"N": 1 << 26} if name == "line" else SIZES
    return kernel._compile(None, sizes, unaligned).scheduled


def lanes(kernel: Kernel) -> set[Lanes]:
    kinds = (op.result.type for op in kernel.of(LoadGlobal))
    return {kind.lanes for kind in kinds if isinstance(kind, Fragment)}


@pytest.mark.parametrize(
    ("first", "last", "held", "vectors"),
    [
        ("f32", "f32", Lanes(4, 32), {"X": 4, "b": 4, "Y": 4}),
        ("bf16", "bf16", Lanes(8, 32), {"X": 8, "b": 4, "Y": 8}),
        ("i8", "f32", Lanes(4, 32), {"X": 4, "b": 4, "Y": 4}),
        ("u8", "f8e4m3", Lanes(16, 16), {"X": 16, "b": 4, "Y": 16}),
    ],
)
def test_vectors_are_of_16_bytes(
    first: str, last: str, held: Lanes, vectors: dict[str, int]
) -> None:
    made = scheduled("moved", first, last)
    assert lanes(made) == {held}
    accesses = [*made.of(LoadGlobal), *made.of(StoreGlobal)]
    assert {op.tensor.name: op.vector for op in accesses} == vectors


def test_an_axis_alone_has_rows_and_columns() -> None:
    made = scheduled("line", "bf16", "bf16")
    (load,) = made.of(LoadGlobal)
    kind = load.result.type
    assert isinstance(kind, Fragment) and (kind.rows, kind.columns) == (64, 128)
    assert load.vector == 8


@pytest.mark.parametrize(
    ("kind", "added", "vector"), [("bf16", "v4.bf16x2", 8), ("f32", "v4.f32", 4)]
)
def test_what_is_added_in_memory_is_added_by_vectors(kind: str, added: str, vector: int) -> None:
    """Side by side in a warp, so that L2 adds to whole sectors."""
    made = parse(f"""
@kernel
def added(D: bf16[M, N], ids: i32[M], G: {kind}[V, N]):
    for m, n in tiles(M, N):
        G[ids[m], n] += D[m, n]
""").added.compile(M=8192, N=8192, V=8192)
    assert f"{added} " in made.ptx
    assert made.scheduled.of(LoadGlobal)[0].vector == vector


def test_neighbouring_threads_have_neighbours_of_rows_that_are_not_aligned() -> None:
    made = KERNELS.rmsnorm._compile(None, dict(M=64, N=1001), ("X", "Y")).scheduled
    assert all(held.striped for held in lanes(made))
    assert {op.vector for op in made.ops if isinstance(op, (LoadGlobal, StoreGlobal))} == {1}


def test_other_rows_that_are_not_aligned_go_through_shared_memory() -> None:
    assert lanes(scheduled("moved", "bf16", "bf16", ("X", "Y"))) == {ACCUMULATOR}


def test_tiles_are_as_small_as_fills_the_card() -> None:
    kernel = vars(parse(MOVED.format(first="bf16", last="bf16")))["moved"]
    sizes = ((8192, 8192), (1024, 1024), (512, 256), (1 << 20, 64))
    tiles = [kernel.schedule(M=m, N=n).tile for m, n in sizes]
    assert tiles == [dict(m=m, n=n) for m, n in ((16, 256), (16, 64), (16, 64), (64, 64))]


def test_products_keep_their_order() -> None:
    kernel = CASES["epilogue"].kernel._compile(None, {}, ()).scheduled
    assert lanes(kernel) <= {ACCUMULATOR} and kernel.of(TmaStore)


BY_HAND = """
kernel k @ scheduled (%X: tensor<f32[M, N]>, %Y: tensor<f32[M, N]>) {
  %c0: i32 = constant(value=0)
  launch_grid(tiles=(("M", 64),))
  partition(role="compute") {
    %rows: frag<i32[64x1] lanes 4x16> = iota(start=%c0)
    %columns: frag<i32[1x64] lanes 4x16> = iota(start=%c0)
    %x: frag<f32[64x64] lanes 4x16> = load_global(tensor=%X, index=(%rows, %columns), vector=4)
    %y: frag<f32[64x64] lanes 4x16> = map(fn="add", args=(%x, %x))
    store_global(tensor=%Y, index=(%rows, %columns), value=%y, vector=4)
  }
}
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("%x: frag<f32[64x64] lanes 4x16>", "%x: frag<f32[64x64] lanes 4x8>", "several lane"),
        ("%x: frag<f32[64x64] lanes 4x16>", "%x: frag<f32[64x32] lanes 4x16>", "of 64 columns"),
        ("vector=4", "vector=8", "has no such groups"),
        ("lanes 4x16", "lanes 4x256", "2 to 128 lanes"),
    ],
)
def test_lanes_that_do_not_fit(old: str, new: str, told: str) -> None:
    rejected(BY_HAND, old, new, told)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "schedule",
    [
        None,
        Schedule(tile=dict(n=64)),
        Schedule(consumers=2, scheduler="persistent"),
        Schedule(tile=dict(m=128, n=32), consumers=2),
    ],
    ids=repr,
)
def test_every_schedule_gives_the_same(schedule: Schedule | None) -> None:
    kernel = vars(parse(MOVED.format(first="i8", last="bf16")))["moved"]
    rng = np.random.default_rng(0)
    x, b = rng.integers(-128, 128, (130, 200), np.int8), rng.standard_normal(200, np.float32)
    made = kernel.compile(schedule, M=130, N=200)
    y = np.zeros((130, 200), ml_dtypes.bfloat16)
    made.simulate(x, b, y)
    assert (y == (x + b).astype(ml_dtypes.bfloat16)).all()
    assert made.prove()


def test_tiles_of_every_size_have_registers() -> None:
    """Or are rejected by name: lanes of fewer than 64 rows are not an accumulator's."""
    kernel = vars(parse(MOVED.format(first="bf16", last="bf16")))["moved"]
    for m, n in itertools.product((4, 8, 16, 32), range(8, 208, 8)):
        with contextlib.suppress(ScheduleError):
            assert lanes(kernel._compile(Schedule(tile=dict(m=m, n=n)), {}, ()).scheduled)
    x, b = np.arange(40 * 200).reshape(40, 200) % 128, np.arange(200, dtype=np.float32)
    y = np.zeros((40, 200), ml_dtypes.bfloat16)
    made = kernel.compile(Schedule(tile=dict(m=32, n=72)), M=40, N=200)
    made.simulate(x.astype(y.dtype), b, y)
    assert (y == (x + b).astype(y.dtype)).all() and made.prove() and made.ptx


@pytest.mark.parametrize(
    ("name", "sizes", "height"),
    [
        ("cumulative", dict(M=16384, N=8192), 4),
        ("cumulative", dict(M=16384, N=100), 32),
        ("largest", dict(M=16384, N=4096, K=4), 16),
    ],
)
def test_warps_have_rows_that_are_walked(name: str, sizes: dict[str, int], height: int) -> None:
    """Of what is stored beside them all lanes of a row have a pair."""
    kernel = vars(parse(WORD_KERNELS[name].text))[name]
    assert kernel.schedule(**sizes).tile == dict(m=height, n=4096 // height)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WORD_KERNELS["largest"].text, "use tiles of 16 rows, since each has all of `K`"),
        ("\n@kernel" + PATTERNS["sums of all"].text, "names `m`, whose indices are not tiles"),
    ],
)
def test_tiles_that_do_not_fit_are_told_what_would(text: str, told: str) -> None:
    (kernel,) = vars(parse(text)).values()
    with pytest.raises(ScheduleError, match=told):
        kernel.compile(Schedule(tile=dict(m=4)), **dict.fromkeys(kernel.dims, 16))


def test_tiles_are_as_high_as_threads_hold_what_is_loaded() -> None:
    kernel = vars(parse(PATTERNS["rope"].text.replace("def", "@kernel\ndef", 1)))["rope"]
    assert kernel.schedule(S=8192, H=32, D=64).tile == dict(s=16, d=64, h=4)


@pytest.mark.parametrize("consumers", [1, 2, 4])
@pytest.mark.parametrize("tile", [None, 8192, 16384])
def test_consumers_share_an_axis_alone(consumers: int, tile: int | None) -> None:
    kernel = vars(parse(MOVED.format(first="f32", last="f32")))["line"]
    x = np.arange(1001, dtype=np.float32)
    given = Schedule(consumers=consumers, tile=tile and dict(n=tile))
    wanted = kernel.reference(x, None)
    assert np.array_equal(kernel.simulate(x, None, schedule=given), wanted)


@pytest.mark.parametrize("consumers", [2, 4])
def test_consumers_that_have_the_same_reduce_it_apart(consumers: int) -> None:
    """Each in words of its own, by all of its warps; and one adds the result."""
    text = "@kernel\ndef f(X: f32[N], S: f32[1]):\n    for n in tiles(N):\n"
    kernel = parse(f"{text}        S[0] += sum(X[n], over=n)\n").f
    given = Schedule(consumers=consumers, tile=dict(n=1024))
    x, s = np.arange(3000, dtype=np.float32), np.ones(1, np.float32)
    kernel.simulate(x, s, schedule=given)
    assert s[0] == x.sum() + 1 and kernel.compile(schedule=given, N=3000).prove().proved


def test_consumers_that_share_rows_have_64_each() -> None:
    kernel = vars(parse(MOVED.format(first="bf16", last="bf16")))["moved"]
    chosen = kernel.schedule(M=8192, N=8192, schedule=Schedule(consumers=2))
    assert chosen.tile == dict(m=128, n=128)
