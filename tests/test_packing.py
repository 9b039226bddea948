"""Tensors in the order in which threads hold what they compute an operand from: `Kernel.pack`."""

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.case_data import rejects
from tests.case_table import parsed
from wsdsl import CompileError, LaunchError, Schedule, ScheduleError
from wsdsl.artifact.signature import MapArgument
from wsdsl.diagnostics import ProofError
from wsdsl.ir.hardware.swizzle import panel_address
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.types import DTYPES
from wsdsl.prover.prove import prove
from wsdsl.runtime.arrays.packed import Packed, pack, packed_view
from wsdsl.runtime.tensor_map_encoding import tiled_map
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

TEXT = """
def widened(X: bf16[M, K], W: i8[N, K], s: f32[N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ cast(W[n, k], bf16)
        Y[m, n] = acc * s[n]
"""
EXPERTS = """
def experts(X: f16[E, M, K], W: f16[E, N, K], s: f16[N], Y: f32[E, M, N]):
    for e in each(E):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += X[e, m, k] @ (W[e, n, k] * s[n])
            Y[e, m, n] = acc
"""
SCHEDULES = [
    None,
    Schedule(operand_transform="registers", tile=dict(k=128), stages=2),
    Schedule(operand_transform="registers", cluster=dict(m=2), tile=dict(m=8, n=128, k=64)),
    Schedule(
        operand_transform="registers", cluster=dict(m=2), tile=dict(m=8, n=64, k=64), consumers=1
    ),
    Schedule(operand_transform="registers", scheduler="split_k", splits=3),
    Schedule(operand_transform="registers", scheduler="stream_k"),
    Schedule(operand_transform="smem"),
    Schedule(operand_transform="smem", mma_m="m", tile=dict(m=128, n=128, k=128)),
]
SIZES = (40, 200, 136), (1, 65, 8)
POINTS = [(SIZES[0], s) for s in SCHEDULES] + [(SIZES[1], s) for s in (None, SCHEDULES[-2])]


def kernel(text: str = TEXT) -> wsdsl.Kernel:
    return parsed(f"@kernel{text}")


def bits(*shape: int, dtype: Any = np.int8, seed: int = 0) -> Any:
    """Of all patterns."""
    raw = np.random.default_rng(seed).bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return np.frombuffer(raw, np.uint8).view(dtype).reshape(shape)


@pytest.mark.parametrize(
    ("name", "dtype"), [("u4", np.uint8), ("u8", np.uint8), ("bf16", ml_dtypes.bfloat16)]
)
@pytest.mark.parametrize("shape", [(64, 64), (65, 130), (3, 7, 64)])
def test_packed_and_unpacked(name: str, dtype: Any, shape: tuple[int, ...]) -> None:
    array = bits(*shape[:-1], shape[-1] // 2 if name == "u4" else shape[-1], dtype=dtype)
    made = pack(array, DTYPES[name])
    assert made.shape == shape and made.nbytes % (64 * 64 * DTYPES[name].bits // 8) == 0
    back = made.unpack()
    assert back.dtype == array.dtype and back.tobytes() == array.tobytes()
    again = Packed(made.data, made.shape, made.dtype)
    assert again.unpack().tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [np.int8, np.float16])
def test_a_block_is_what_smem_holds(dtype: Any) -> None:
    array = bits(64, 64, dtype=dtype)
    name, raw = {np.int8: "i8", np.float16: "f16"}[dtype], array.view(np.uint8)
    data = pack(array, DTYPES[name]).data
    for row, byte in np.ndindex(raw.shape):
        assert data[panel_address(row, byte, 64, f"packed{raw.shape[1]}")] == raw[row, byte]


def test_blocks_follow_each_other_along_the_last_axis() -> None:
    array = bits(2, 130, 70)
    data = pack(array, DTYPES["i8"]).data.reshape(2, 3, 2, 4096)
    for e, n, k in np.ndindex(2, 3, 2):
        block = np.zeros((64, 64), np.int8)
        part = array[e, 64 * n : 64 * n + 64, 64 * k : 64 * k + 64]
        block[: part.shape[0], : part.shape[1]] = part
        assert np.array_equal(data[e, n, k], pack(block, DTYPES["i8"]).data)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("sizes", "schedule"), POINTS, ids=repr)
def test_right_and_proved(sizes: tuple[int, int, int], schedule: Schedule | None) -> None:
    (m, n, k), own = sizes, kernel()
    x, w = bits(m, k), bits(n, k, seed=1)
    x, s = (x / 64).astype(ml_dtypes.bfloat16), np.linspace(0.5, 2, n, dtype=np.float32)
    packed = own.pack(w)
    wanted = (x.astype(np.float64) @ w.T.astype(np.float64)) * s
    got = own.simulate(x, packed, s, None, schedule=schedule)
    assert np.allclose(got.astype(np.float64), wanted, rtol=2**-8, atol=2**-7 * k**0.5)
    assert np.array_equal(got, own.simulate(x, w, s, None, schedule=schedule))
    assert own.packed("W").compile(schedule, M=m, N=n, K=k).certificate is not None


def test_three_dimensions_of_16_bits() -> None:
    own, rng = kernel(EXPERTS), np.random.default_rng(3)
    x, w = (rng.standard_normal((2, n, 72)).astype(np.float16) for n in (24, 80))
    s = rng.standard_normal(80).astype(np.float16)
    scaled = (w * s[:, None]).astype(np.float64)
    wanted = np.einsum("emk,enk->emn", x.astype(np.float64), scaled)
    given = x, own.pack(W=w), s
    assert np.allclose(own.simulate(*given, None), wanted, atol=0.05)
    assert np.allclose(own.reference(*given, None), wanted, atol=0.05)


def test_operands_that_are_packed_and_no_more() -> None:
    """Threads read them, too: the other operand is made in SMEM then, and they can not be."""
    own, x, w = kernel(), bits(24, 96).astype(ml_dtypes.bfloat16), bits(72, 96)
    packed, s = own.pack(X=x), np.ones(72, np.float32)
    with pytest.raises(CompileError, match="both operands of this matmul are"):
        own.simulate(packed, w, s, None, schedule=Schedule(operand_transform="registers"))
    both = own.simulate(packed, w, s, None)
    wanted = (x.astype(np.float64) @ w.T.astype(np.float64)).astype(ml_dtypes.bfloat16)
    assert np.array_equal(both, wanted)
    with pytest.raises(CompileError, match="X is packed, and this load is not pipelined"):
        own.simulate(packed, w, s, None, schedule=Schedule(operand_transform="smem"))
    plain = kernel(TEXT.replace("i8", "bf16").replace("cast(W[n, k], bf16)", "W[n, k]"))
    got = plain.simulate(packed, w.astype(ml_dtypes.bfloat16), s, None)
    wanted = x.astype(np.float64) @ w.T.astype(np.float64)
    assert np.array_equal(got, wanted.astype(ml_dtypes.bfloat16))


def test_what_codegen_loads() -> None:
    ptx = kernel().packed("W").compile(Schedule(tile=dict(k=64)), M=16, N=128, K=128).ptx
    assert ptx.count("ld.shared.v4.b32") == 2 and "cvt.rn.f32.s" not in ptx
    assert "cp.async.bulk.tensor.4d" in ptx


def test_explain_tells_what_the_plain_order_costs() -> None:
    told = "threads load W by two elements, 16 loads per 64 x 64 block. hint: pack it ahead of time"
    assert f"{told} (widened.pack): 2 loads" in kernel().explain(M=16, N=128, K=128)
    assert "ahead of time" not in kernel().packed("W").explain(M=16, N=128, K=128)


def test_its_tensor_map() -> None:
    view = packed_view(pack(bits(2, 130, 70), DTYPES["i8"]))
    made = tiled_map(view, MapArgument("W", (1, 128, 64), "packed64"))
    assert made.dims == (256, 16, 2, 3, 2) and made.box == (256, 16, 1, 2, 1)
    assert made.strides == (256, 4096, 2 * 4096, 6 * 4096)


def test_it_stands_for_the_array_alone() -> None:
    own, w = kernel(), bits(64, 64)
    x = np.zeros((8, 64), ml_dtypes.bfloat16)
    s = np.ones(64, np.float32)
    with pytest.raises(LaunchError, match=r"is not packed, expected tensor<i8.*\n.*pack it"):
        own.packed("W").simulate(x, w, s, None)
    with pytest.raises(LaunchError, match="dtype is u8, expected i8"):
        own.simulate(x, Packed(pack(w.view(np.uint8), DTYPES["u8"]).data, (64, 64), "u8"), s, None)
    rejects("Y: the kernel writes it; inputs can be packed", own.pack, Y=x)
    rejects("its elements are f32; those of", own.pack, s=s)
    rejects(r"has no `w`\n  hint: did you mean `W`", own.pack, w=w)
    rejects("has 2 arrays by position, expected 1", own.pack, w, w)
    rejects("4095 bytes are not a packed i8", Packed, np.zeros(4095, np.uint8), (64, 64), "i8")


def test_refusals() -> None:
    across = TEXT.replace("W: i8[N, K]", "W: i8[K, N]").replace("W[n, k]", "W[k, n]")
    with pytest.raises(CompileError, match=r"W is packed.*\n.*\n.*\n.*pass W unpacked"):
        kernel(across).packed("W").compile(M=64, N=64, K=64)
    with pytest.raises(ScheduleError, match=r"tile k=32 .* W is packed in blocks of 64 x 64"):
        kernel().packed("W").compile(Schedule(tile=dict(k=32)), M=64, N=64, K=64)


def test_what_is_cut_elsewhere_is_found() -> None:
    """A box that begins amid a block is what TMA can not copy."""
    own = kernel().packed("W")
    scheduled = str(own.compile(Schedule(tile=dict(k=64)), M=8, N=64, K=128).scheduled)
    assert 'swizzle="packed64"' in scheduled
    moved = re.sub(r"(%c64\w*: i32 = constant\(value=)64", r"\g<1>32", scheduled)
    assert moved != scheduled
    arrays = dict(X=np.zeros((8, 128), ml_dtypes.bfloat16), W=bits(64, 128))
    arrays |= dict(s=np.ones(64, np.float32), Y=np.zeros((8, 64), ml_dtypes.bfloat16))
    with pytest.raises(SimulationError, match="is within one"):
        simulate(parse_kernel(moved), arrays)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("decode", ["registers", "shared"])
def test_a_warp_meets_before_it_gives_a_slot_back(decode: Any) -> None:
    """One arrival stands for its 32 threads: they have read by then, and passed the wait."""
    scheduled = (
        kernel()
        .packed("W")
        .compile(Schedule(operand_transform=decode), M=16, N=128, K=256)
        .scheduled
    )
    lines = str(scheduled).splitlines()
    given_back = next(i for i, line in enumerate(lines) if "each_warp" in line)
    met = max(i for i in range(given_back) if "sync_warp" in lines[i])
    waited = max(i for i in range(met) if "mbarrier_wait" in lines[i])
    without = [*lines[:met], *lines[met + 1 :]]
    for broken in without, [*without[:waited], lines[met], *without[waited:]]:
        with pytest.raises(ProofError):
            prove(parse_kernel("\n".join(broken)))
