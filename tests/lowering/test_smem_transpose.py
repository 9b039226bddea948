"""Tiles that tensors have the other way round go through SMEM, and are accessed by vectors."""

from typing import Any

import numpy as np
import pytest

from tests.lowering.turned_kernels import turned_kernel
from tests.test_mutations import without
from wsdsl import Schedule
from wsdsl.diagnostics import ProofError, ScheduleError
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.ops import LoadGlobal, LoadTransposed, NamedBarrierSync, StoreGlobal, StoreTransposed
from wsdsl.ir.types import DTYPES
from wsdsl.prover.prove import prove
from wsdsl.simulator.reference.arithmetic import numpy_dtype
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

ROOT = np.random.default_rng(0)


def array(dtype: str, *shape: int, padded: bool = False) -> Any:
    """Small numbers; in rows that begin at multiples of 16 bytes if `padded`."""
    low, high = (0, 2) if dtype == "bool" else (0, 6) if dtype[0] == "u" else (-5, 6)
    made = ROOT.integers(low, high, shape).astype(numpy_dtype(DTYPES[dtype]))
    wide = np.zeros((*shape[:-1], -(-shape[-1] // 16) * 16 * padded or shape[-1]), made.dtype)
    wide[..., : shape[-1]] = made
    return wide[..., : shape[-1]]


def turns(kernel: Kernel) -> list[Op]:
    return [op for op in kernel.ops if isinstance(op, (StoreTransposed, LoadTransposed))]


def case(name: str, x: str, y: str, m: int, n: int, padded: str = "") -> tuple[list[Any], Any]:
    """Arrays, the last of which is written, and what it should be."""
    first = array(x, m, n, padded="x" in padded)
    last = array(y, n, m, padded="y" in padded)
    given = np.asarray(first, np.float32)
    match name:
        case "scaled":
            a, b = array("f32", n), array("f32", m)
            return [first, a, b, 3.0, last], (given * a + 3 * b[:, None]).T
        case "added":
            other = array(y, n, m, padded="y" in padded)
            return [first, other, last], given.T + np.asarray(other, np.float32)
        case _:
            return [first, last], given.T


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "x", "y", "m", "n", "padded"),
    [
        ("transpose", "bf16", "bf16", 136, 264, ""),
        ("transpose", "f8e4m3", "f8e4m3", 144, 272, ""),
        ("transpose", "i16", "i16", 136, 264, ""),
        ("transpose", "bool", "bool", 144, 144, ""),
        ("transpose", "f32", "bf16", 136, 264, ""),
        ("transpose", "i8", "f32", 144, 144, ""),
        ("transpose", "u8", "u8", 129, 65, ""),
        ("transpose", "f16", "f16", 129, 65, ""),
        ("transpose", "bf16", "bf16", 129, 65, "x"),
        ("transpose", "bf16", "bf16", 129, 65, "y"),
        ("transpose", "f8e5m2", "f8e5m2", 129, 65, "xy"),
        ("scaled", "f16", "f16", 136, 264, ""),
        ("added", "bf16", "bf16", 136, 264, ""),
        ("added", "f8e4m3", "bf16", 144, 264, ""),
        ("added", "f32", "f32", 137, 264, ""),
    ],
)
def test_values(name: str, x: str, y: str, m: int, n: int, padded: str) -> None:
    kernel = turned_kernel(name, x, y)
    arrays, wanted = case(name, x, y, m, n, padded)
    kernel.simulate(*arrays, seed=1)
    assert np.array_equal(arrays[-1], wanted.astype(arrays[-1].dtype))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "x", "schedule"),
    [
        ("transpose", "bf16", Schedule(tile=dict(m=128, n=128))),
        ("transpose", "bf16", Schedule(tile=dict(m=128, n=48), consumers=2)),
        ("transpose", "bf16", Schedule(tile=dict(m=64, n=32), consumers=2, consumer_split="n")),
        ("transpose", "i8", Schedule(tile=dict(m=64, n=16))),
        ("added", "i8", Schedule(tile=dict(m=64, n=64))),
        ("added", "bf16", Schedule(scheduler="persistent")),
    ],
    ids=repr,
)
def test_every_schedule_gives_the_same(name: str, x: str, schedule: Schedule) -> None:
    kernel = turned_kernel(name, x, x)
    arrays, wanted = case(name, x, x, 136, 264)
    made = kernel.compile(schedule, M=136, N=264)
    assert turns(made.scheduled) and made.prove()
    made.simulate(*arrays)
    assert np.array_equal(arrays[-1], wanted.astype(arrays[-1].dtype))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("x", ["u8", "bool", "f8e4m3"])
@pytest.mark.parametrize(("m", "consumers"), [(8, 1), (24, 1), (16, 2)])
def test_lines_that_are_no_vectors_stay_in_registers(x: str, m: int, consumers: int) -> None:
    kernel, tile = turned_kernel("transpose", x, "f32"), dict(n=64, m=m)
    arrays, wanted = case("transpose", x, "f32", 136, 72)
    made = kernel.compile(Schedule(tile=tile, consumers=consumers, consumer_split="m"), M=136, N=72)
    assert not turns(made.scheduled) and made.prove()
    made.simulate(*arrays)
    assert np.array_equal(arrays[-1], wanted)


def test_batches_loops_and_heads() -> None:
    x = array("bf16", 3, 72, 136)
    y = np.zeros((3, 136, 72), x.dtype)
    turned_kernel("batched", "bf16", "bf16").simulate(x, y)
    assert np.array_equal(y, x.transpose(0, 2, 1))
    z = array("bf16", 72, 3, 136)
    inner = turned_kernel("inner", "bf16", "bf16")
    assert inner.compile(M=72, B=3, N=136).prove()
    inner.simulate(z, y)
    assert np.array_equal(y, z.transpose(1, 2, 0))
    h = array("f16", 2, 72, 3, 64)
    keys = np.zeros((2, 3, 64, 72), h.dtype)
    turned_kernel("keys", "f16", "f16").simulate(h, keys)
    assert np.array_equal(keys, h.transpose(0, 2, 3, 1))
    heads = np.zeros((2, 3, 72, 64), h.dtype)
    kernel = turned_kernel("heads", "f16", "f16")
    kernel.simulate(h, heads)
    assert np.array_equal(heads, h.transpose(0, 2, 1, 3))
    made = kernel.compile(B=2, S=72, H=3, D=64).scheduled
    assert {op.vector for op in made.of(LoadGlobal)} == {8} and not turns(made)


def test_what_is_loaded_and_stored_both_ways() -> None:
    x, z = array("bf16", 136, 72), array("bf16", 72, 136)
    y, w = np.zeros((72, 136), x.dtype), np.zeros((136, 72), x.dtype)
    kernel = turned_kernel("both", "bf16", "bf16")
    made = kernel.compile(M=136, N=72)
    assert made.prove()
    made.simulate(x, z, y, w)
    total = x.astype(np.float32) + z.T.astype(np.float32)
    assert np.array_equal(y, total.T.astype(y.dtype))
    assert np.array_equal(w, (2 * total).astype(w.dtype))


def test_blocks_are_quantised_both_ways() -> None:
    x = array("bf16", 144, 128)
    q = np.zeros((144, 128), numpy_dtype(DTYPES["f8e4m3"]))
    t, s = np.zeros((128, 144), q.dtype), np.zeros((144, 4), np.float32)
    kernel = turned_kernel("quantised", "bf16", "f8e4m3")
    made = kernel.compile(M=144, N=128, K=4)
    assert turns(made.scheduled) and made.prove()
    made.simulate(x, q, t, s)
    largest = np.abs(x.astype(np.float32)).reshape(144, 4, 32).max(2).clip(1)
    wanted = (x.astype(np.float32) / largest.repeat(32, 1)).astype(q.dtype)
    assert np.array_equal(s, largest) and np.array_equal(q, wanted) and np.array_equal(t, wanted.T)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "x", "tile", "vectors"),
    [
        ("transpose", "bf16", dict(m=64, n=128), {"X": 8, "Y": 8}),
        ("transpose", "i8", dict(m=128, n=128), {"X": 16, "Y": 16}),
        ("transpose", "f32", dict(m=64, n=128), {"X": 4, "Y": 4}),
        # Most bytes lie along m.
        ("added", "bf16", dict(m=128, n=64), {"X": 8, "Z": 8, "Y": 8}),
    ],
)
def test_default_tiles(name: str, x: str, tile: dict[str, int], vectors: dict[str, int]) -> None:
    """Lines of 128 bytes both ways, by vectors of 16 bytes."""
    kernel = turned_kernel(name, x, x)
    made = kernel.compile(M=8192, N=8192)
    assert made.schedule.tile == tile
    accesses = [op for op in made.scheduled.ops if isinstance(op, (LoadGlobal, StoreGlobal))]
    assert {op.tensor.name: op.vector for op in accesses} == vectors


@pytest.mark.parametrize("name", ["transpose", "added", "both"])
def test_every_meeting_is_needed(name: str) -> None:
    """Prover and simulator tell of each that is left out."""
    made = turned_kernel(name, "bf16", "bf16").compile(M=136, N=72).scheduled
    meetings = made.of(NamedBarrierSync)
    assert meetings
    for victim in meetings:
        mutant = without(made, victim)
        with pytest.raises(ProofError):
            prove(mutant)
        with pytest.raises(SimulationError):
            simulate(mutant, arrays_of(made))


def arrays_of(kernel: Kernel) -> dict[str, Any]:
    sizes = {"M": 136, "N": 72}
    return {
        p.name: array("bf16", *(sizes[str(d)] for d in p.as_tensor.dims)) for p in kernel.params
    }


def test_tiles_that_threads_have_no_registers_for() -> None:
    with pytest.raises(ScheduleError, match="must be 64 or less"):
        turned_kernel("transpose", "f32", "f32").compile(
            Schedule(tile=dict(m=256, n=128)), M=512, N=512
        )


def test_what_is_stored_in_place_does_not_go_through_shared_memory() -> None:
    kernel = turned_kernel("in_place", "bf16", "bf16")
    assert not turns(kernel.compile(M=64, N=64).scheduled)
