"""Weights of 4 and 6 bits, and scales that are exponents, as parts of computed operands."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.case_table import parsed
from wsdsl import LaunchError, Schedule, ScheduleError
from wsdsl.artifact.signature import MapArgument
from wsdsl.ir.hardware.swizzle import nibble_address
from wsdsl.ir.types import DTYPES
from wsdsl.runtime.arrays.packed import pack, packed_view
from wsdsl.runtime.arrays.views import ArrayView
from wsdsl.runtime.tensor_map_encoding import tiled_map

TEXT = """
def widened(X: bf16[M, K], W: {dtype}[N, K]{given}, Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ {operand}
        Y[m, n] = acc
"""
OPERANDS = {
    "plain": ("", "cast(W[n, k], bf16)"),
    "groups": (", s: bf16[N, G]", "(cast(W[n, k], bf16) * s[n, index(k) // 32])"),
    "zeros": (
        ", s: bf16[N, G], z: u4[N, G]",
        "((cast(W[n, k], bf16) - cast(z[n, index(k) // 32], bf16)) * s[n, index(k) // 32])",
    ),
    "exponents": (", s: f8e8m0[N, G]", "(cast(W[n, k], bf16) * cast(s[n, index(k) // 32], bf16))"),
}
SCHEDULES = [
    None,
    Schedule(operand_transform="registers", tile=dict(k=128), stages=2),
    Schedule(operand_transform="registers", cluster=dict(m=2), tile=dict(m=8, n=128, k=64)),
    Schedule(operand_transform="registers", scheduler="stream_k"),
    Schedule(operand_transform="smem", mma_m="m", tile=dict(m=128, n=128, k=128)),
]
SIZES = (40, 200, 160)
AMID = (16, 72, 136)
"""Rows of 68 bytes, which TMA does not take."""
POINTS = [
    *((dtype, "groups", s, SIZES) for dtype in ("i4", "u4") for s in SCHEDULES),
    *((dtype, "plain", s, AMID) for dtype in ("u4", "f4e2m1") for s in (None, SCHEDULES[-1])),
    ("u4", "zeros", None, (40, 200, 192)),
    ("u4", "zeros", SCHEDULES[-1], (40, 200, 192)),
    ("f4e2m1", "exponents", None, (40, 200, 192)),
    ("f4e2m1", "groups", SCHEDULES[-1], SIZES),
    ("f6e2m3", "groups", None, SIZES),
    ("f6e3m2", "plain", SCHEDULES[-1], AMID),
    ("i4", "plain", None, (1, 65, 8)),
]


def kernel(dtype: str = "i4", operand: str = "plain") -> wsdsl.Kernel:
    given, computed = OPERANDS[operand]
    return parsed("@kernel" + TEXT.format(dtype=dtype, given=given, operand=computed))


def codes(dtype: str, rows: int, columns: int) -> Any:
    """Of all patterns, in bytes."""
    held = columns // 2 if DTYPES[dtype].bits == 4 else columns
    return np.random.default_rng(rows).integers(0, 256, (rows, held)).astype(np.uint8)


def arguments(dtype: str, operand: str, sizes: tuple[int, int, int]) -> list[Any]:
    """Whose products are exact."""
    m, n, k = sizes
    rng, groups = np.random.default_rng(1), -(-k // 32)
    given: list[Any] = [(rng.integers(-8, 9, (m, k)) / 8).astype(ml_dtypes.bfloat16)]
    given.append(codes(dtype, n, k))
    if operand != "plain":
        kind = ml_dtypes.float8_e8m0fnu if operand == "exponents" else ml_dtypes.bfloat16
        given.append((2.0 ** rng.integers(-2, 3, (n, groups))).astype(kind))
    if operand == "zeros":
        given.append(codes("u4", n, groups))
    return given


@pytest.mark.sampled(10)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize(("dtype", "operand", "schedule", "sizes"), POINTS, ids=repr)
def test_right_and_proved(
    dtype: str, operand: str, schedule: Schedule | None, sizes: tuple[int, int, int], packed: bool
) -> None:
    own, given = kernel(dtype, operand), arguments(dtype, operand, sizes)
    wanted = own.reference(*given, None)
    if packed:
        given[1] = own.pack(W=given[1])
    assert np.array_equal(own.simulate(*given, None, schedule=schedule), wanted)
    if packed:
        own = own.packed("W")
    known: dict[str, Any] = dict(zip("MNK", sizes, strict=True)) | {"G": -(-sizes[2] // 32)}
    compiled = own.compile(schedule, **{dim: known[dim] for dim in own.dims})
    assert compiled.certificate is not None


EXPERTS = """
def experts(X: bf16[E, M, K], W: i4[E, N, K], s: bf16[E, N, G], Y: f32[E, M, N]):
    for e in each(E):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += X[e, m, k] @ (cast(W[e, n, k], bf16) * s[e, n, index(k) // 32])
            Y[e, m, n] = acc
"""
PARTS = """
def parts(X: bf16[M, K], W: u4[N, K], o: i32[P], Y: f32[P, M, N]):
    for p in each(P):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(o[p], o[p] + 40, of=K):
                acc += X[m, k] @ cast(W[n, k], bf16)
            Y[p, m, n] = acc
"""


def test_experts_in_rows_that_lie_apart() -> None:
    own, three = parsed("@kernel" + EXPERTS), arguments("i4", "groups", (40, 72, 160))
    x, w, s = (np.stack([x, x[::-1]]) for x in three)
    apart = np.full((2, 72, 96), 255, np.uint8)
    apart[..., :80] = w
    wanted = own.reference(x, w, s, None)
    for given in w, apart[..., :80], own.pack(W=apart[..., :80]):
        assert np.array_equal(own.simulate(x, given, s, None), wanted)


@pytest.mark.parametrize("decode", ["registers", "shared"])
def test_parts_may_begin_amid_a_byte(decode: Any) -> None:
    own, (x, w) = parsed("@kernel" + PARTS), arguments("u4", "plain", (24, 72, 160))
    given = x, w, np.array([0, 7, 50], np.int32), None
    found = own.simulate(*given, schedule=Schedule(operand_transform=decode))
    assert np.array_equal(found, own.reference(*given))
    known: dict[str, Any] = dict(M=24, N=72, K=160, P=3)
    assert own.compile(Schedule(operand_transform=decode), **known).certificate is not None


def test_what_is_no_array_of_its_type_is_not_packed() -> None:
    for dtype, array in ("u4", np.zeros((64, 64), np.float32)), ("i8", codes("u8", 64, 64)):
        with pytest.raises(LaunchError, match=rf"a \w+ array, expected {dtype}"):
            kernel(dtype).pack(array)


def test_a_block_is_what_smem_holds() -> None:
    array = codes("u4", 64, 64)
    data = pack(array, DTYPES["u4"]).data
    for row, column in np.ndindex(64, 64):
        at = nibble_address(row, column, 64)
        assert (
            data[at // 2] >> 4 * (at % 2) & 15 == array[row, column // 2] >> 4 * (column % 2) & 15
        )


def test_what_codegen_loads() -> None:
    """Of 64 x 64 a thread has 32 elements: one vector of a block, or four of plain rows."""
    one = Schedule(scheduler="grid", tile=dict(m=16, n=64, k=64), consumers=1, mma_m="n")
    ptx = [own.compile(one, M=16, N=128, K=256).ptx for own in (kernel().packed("W"), kernel())]
    assert [text.count("ld.shared.v4.b32") for text in ptx] == [1, 4]
    assert all("cvt.rn.f32.s" not in text and "ld.shared.b8" not in text for text in ptx)


def test_its_tensor_maps() -> None:
    """Of bytes."""
    array = codes("u4", 130, 192)
    view = ArrayView(0, DTYPES["u4"], (130, 192), (192, 1), "cpu")
    made = tiled_map(view, MapArgument("W", (128, 64), "32B"))
    assert (made.dims, made.strides, made.box) == ((96, 130), (96,), (32, 128))
    made = tiled_map(
        packed_view(pack(array, DTYPES["u4"])), MapArgument("W", (128, 64), "packed32")
    )
    assert made.dims == (256, 8, 3, 3) and made.box == (256, 8, 1, 2)


ACROSS = """
def across(X: bf16[M, K], W: u4[K, N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ cast(W[k, n], bf16)
        Y[m, n] = acc
"""


def test_rows_that_lie_across() -> None:
    """Threads read them one by one, or come through slots if they are decoded to SMEM."""
    own = parsed("@kernel" + ACROSS)
    x, w = arguments("u4", "plain", (40, 160, 192))[0], codes("u4", 192, 160)
    wanted = own.reference(x, w, None)
    for schedule in None, Schedule(operand_transform="smem"):
        assert np.array_equal(own.simulate(x, w, None, schedule=schedule), wanted)
    with pytest.raises(ScheduleError, match=r"tile n=48 .* a multiple of 32: .* of W by"):
        own.compile(Schedule(operand_transform="smem", tile=dict(n=48)), M=40, N=160, K=192)


def test_lines_of_16_bytes_have_32_nibbles() -> None:
    with pytest.raises(ScheduleError, match=r"tile k=16 \(K extent\) must be a multiple of 32"):
        kernel().compile(Schedule(tile=dict(k=16)), M=64, N=64, K=64)
