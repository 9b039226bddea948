"""wgmma whose left operand is in registers: which ones, written when, and kept until when."""

import itertools
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.ptx_interpreter import Memory, Program
from tests.codegen.support import assembled, kernel_of, needs_ptxas, ptx_of
from wsdsl.artifact.signature import PointerArgument
from wsdsl.codegen.launch_signature import signature
from wsdsl.codegen.llvm_module import emit_llvm
from wsdsl.ir.hardware.swizzle import OF_NIBBLES, panel_address
from wsdsl.ir.types import DTYPES
from wsdsl.ir.verify.verifier import verify
from wsdsl.prover.ptx.check_ptx import check_skeleton
from wsdsl.runtime.arrays.packed import pack
from wsdsl.simulator.reference.arithmetic import numpy_dtype
from wsdsl.simulator.reference.bound_arrays import unpack_nibbles

SMEM = '%smem: shared<131072 x 1> = allocate_shared(label="smem", offset=0)\n'
LOAD = """
%zero: i32 = constant(value=0)
%no: bool = constant(value=False)
%st: state = initial_state(parity=0)
%r: frag<i32[64x1]> = iota(start=%zero)
%c: frag<i32[1x{k}]> = iota(start=%zero)
%wide: frag<f32[64x{k}]> = load_global(tensor=%X, index=(%r, %c), vector=2)
%b: matrix_descriptor = smem_descriptor(shared=%smem, state=%st, dtype="{dtype}", rows=72,
  columns={k}, swizzle="{swizzle}")
%acc: acc<f32[64x72]> = empty_accumulator()
"""
OPERAND = "%a: frag<{dtype}[64x{k}] operand> = convert_layout(x=%cast)\n"
PRODUCT = """
wgmma_fence()
%acc1: acc<f32[64x72]> = wgmma_mma_async(acc=%acc, a=%a, b=%b,
    accumulate=%no, dtype="{dtype}", k={k})
wgmma_commit()
"""
STORE = """
%sum: frag<f32[64x72]> = wgmma_wait(pending=0, accumulators=(%acc1,), fragments=({kept},))
%d: frag<i32[1x72]> = iota(start=%zero)
store_global(tensor=%Y, index=(%r, %d), value=%sum, vector=2)
"""
PARAMS = "%X: tensor<f32[M, K]>, %Y: tensor<f32[M, N]>, %odd: bool"
TAKEN = re.compile(r"m64n72k16\S* \{[^}]*\}, \{([^}]*)\}, b, (.*);")
CONVERTED = re.compile(r"cvt\.rn\.\w+x2\.f32 \s*(%r\d+)")


def product(dtype: str, k: int, cast: str = "", kept: str = "%a") -> str:
    cast = cast or f"%cast: frag<{dtype}[64x{k}]> = cast(x=%wide)\n" + OPERAND
    swizzle = {16: "32B", 32: "64B", 64: "128B"}[k]
    body = LOAD + cast + PRODUCT + STORE.replace("{kept}", kept)
    return body.replace("{k}", str(k)).replace("{dtype}", dtype).replace("{swizzle}", swizzle)


def taken(ptx: str) -> list[str]:
    """The registers of the operand, in the order of the instructions."""
    return [register for found in TAKEN.findall(ptx) for register in found[0].split(", ")]


@needs_ptxas
@pytest.mark.parametrize(
    ("dtype", "k", "b_k"),
    [*itertools.product(("f16", "bf16"), (16, 32, 64), (True,)), ("bf16", 64, False)],
)
def test_products(dtype: str, k: int, b_k: bool) -> None:
    body = product(dtype, k)
    if not b_k:
        held, other = (
            'rows=72,\n  columns=64, swizzle="128B"',
            'rows=64, columns=72, swizzle="none"',
        )
        body = body.replace(held, f"{other}, k_major=False").replace(
            "k=64)", "k=64, b_k_major=False)"
        )
    kernel = kernel_of(body, PARAMS, SMEM)
    verify(kernel)
    found = assembled(kernel)
    assert "C75" not in found.log
    ptx = found.ptx
    check_skeleton(kernel, ptx)
    assert f"k16.f32.{dtype}.{dtype}" in ptx
    ends = [last for _, last in TAKEN.findall(ptx)]
    last = int(not b_k)
    assert ends == [f"0, 1, 1, {last}"] + [f"1, 1, 1, {last}"] * (k // 16 - 1), "A is as it is"
    held = taken(ptx)
    assert len(held) == len(set(held)) == k // 4
    # hopper.md 3.4: a0, a1 are two rows of the first 8 columns, a2, a3 of the next: the order of
    # a fragment's own elements, in pairs.
    assert held == _in_the_order_of_elements(ptx)


def _in_the_order_of_elements(ptx: str) -> list[str]:
    """Conversions by what they convert: pairs are loaded in the order of the elements."""
    loads = re.findall(r"ld\.global\.nc\.v2\.b32 \{(%r\d+), (%r\d+)\}", ptx)
    pairs = re.findall(r"cvt\.rn\.\w+x2\.f32 \s*(%r\d+), (%r\d+), (%r\d+);", ptx)
    made = {(low, high): result for result, high, low in pairs}
    return [made[pair] for pair in loads]


def test_they_are_kept_until_the_wait() -> None:
    ptx = ptx_of(kernel_of(product("bf16", 64), PARAMS, SMEM))
    after = ptx[ptx.rindex("commit_group") : ptx.index("wgmma.wait_group")]
    assert not re.search(r"%r\d+", after), "copied to other registers"
    # The wait has no place for them in its text; LLVM's operands are what keeps them.
    text = emit_llvm(kernel_of(product("bf16", 64), PARAMS, SMEM))
    calls = [line for line in text.splitlines() if re.search(r"wgmma\.(mma|wait)", line)]
    read, kept = (re.findall(r"i32 (%\S+?)[,)]", line[line.rindex('"(') :]) for line in calls)
    assert len(kept) == 16
    assert read[: len(kept)] == kept


FENCE_OUTSIDE = """
wgmma_fence()
%acc1: acc<f32[64x72]> = if(cond=%odd) {
  %acc2: acc<f32[64x72]> = wgmma_mma_async(acc=%acc, a=%a, b=%b, accumulate=%no, dtype="bf16", k=64)
  wgmma_commit()
  wgmma_wait(pending=0, fragments=(%a,))
  yield(values=(%acc2,))
} {
  yield(values=(%acc,))
}
"""


@pytest.mark.parametrize("fenced", [PRODUCT, FENCE_OUTSIDE], ids=["beside", "outside"])
def test_they_are_written_before_the_fence(fenced: str) -> None:
    """LLVM takes a conversion for pure, and would move it to its only user."""
    body = product("bf16", 64)
    plain = PRODUCT.replace("{dtype}", "bf16").replace("{k}", "64")
    assert plain in body
    body = body.replace(plain, fenced.replace("{dtype}", "bf16").replace("{k}", "64"))
    if fenced is FENCE_OUTSIDE:
        body = body.replace("accumulators=(%acc1,), fragments=(%a,)", "accumulators=(%acc1,)")
    ptx = ptx_of(kernel_of(body, PARAMS, SMEM))
    before = ptx[: ptx.index("wgmma.fence")]
    assert set(taken(ptx)) == set(CONVERTED.findall(before))
    assert not CONVERTED.findall(ptx[ptx.index("wgmma.fence") :])


@needs_ptxas
def test_slices_and_joins_are_the_same_registers() -> None:
    """They may come after the fence, and the whole keeps them."""
    whole = "%whole: frag<bf16[64x64]> = cast(x=%wide)\n"
    after = """wgmma_fence()
%right: frag<bf16[64x32]> = slice_columns(x=%whole, start=32)
%left: frag<bf16[64x32]> = slice_columns(x=%whole, start=0)
%cast: frag<bf16[64x64]> = join_columns(parts=(%right, %left))
%a: frag<bf16[64x64] operand> = convert_layout(x=%cast)
"""
    body = product("bf16", 64, whole, "%a").replace("wgmma_fence()\n", after)
    found = assembled(kernel_of(body, PARAMS, SMEM))
    assert "C75" not in found.log
    held = _in_the_order_of_elements(found.ptx)
    assert taken(found.ptx) == held[8:] + held[:8]
    assert not CONVERTED.findall(found.ptx[found.ptx.index("wgmma.fence") :])


BYTES = """
%zero: i32 = constant(value=0)
%no: bool = constant(value=False)
%st: state = initial_state(parity=0)
%r: frag<i32[64x1]> = iota(start=%zero)
%c: frag<i32[1x64]> = iota(start=%zero)
%x: frag<{dtype}[64x64]> = load_global(tensor=%X, index=(%r, %c))
%a: frag<{dtype}[64x64] operand> = convert_layout(x=%x)
%b: matrix_descriptor = smem_descriptor(shared=%smem, state=%st, dtype="{dtype}", rows=64,
  columns=64, swizzle="64B")
%acc: acc<{sum}[64x64]> = empty_accumulator()
wgmma_fence()
%acc1: acc<{sum}[64x64]> = wgmma_mma_async(acc=%acc, a=%a, b=%b,
    accumulate=%no, dtype="{dtype}", k=64)
wgmma_commit()
%sum: frag<{sum}[64x64]> = wgmma_wait(pending=0, accumulators=(%acc1,), fragments=(%a,))
store_global(tensor=%Y, index=(%r, %c), value=%sum)
"""


@needs_ptxas
@pytest.mark.parametrize(("dtype", "total"), [("i8", "i32"), ("f8e4m3", "f32")])
def test_operands_of_8_bits_are_exchanged(dtype: str, total: str) -> None:
    """Registers are run of one warp: hopper.md 3.4 has four columns, of rows 8 apart, in each."""
    body = BYTES.replace("{dtype}", dtype).replace("{sum}", total)
    params = f"%X: tensor<{dtype}[M, K]>, %Y: tensor<{total}[M, N]>"
    kernel = kernel_of(body, params, SMEM)
    found = assembled(kernel)
    assert "(C7" not in found.log
    check_skeleton(kernel, found.ptx)
    rows = [bytes((37 * row + 5 * column) % 256 for column in range(64)) for row in range(16)]
    memory = Memory(1 << 20, bytearray(b"".join(rows)), bytearray())
    lanes = Program(found.ptx).run_warps((1 << 20, 64, 0, 64, 16, 64, 64), memory)
    taken = re.findall(r"m64n64k32\S* \{[^}]*\}, \{([^}]*)\}, b, ", found.ptx)
    assert len(taken) == 2
    for lane, registers in enumerate(lanes):
        for step, names in enumerate(taken):
            for i, name in enumerate(names.split(", ")):
                row, first = lane // 4 + 8 * (i % 2), 32 * step + 16 * (i // 2) + 4 * (lane % 4)
                held = registers[name].to_bytes(4, "little")
                assert held == rows[row][first : first + 4], (lane, step, i)


WIDENED = """
%st: state = initial_state(parity=0)
%zero: i32 = constant(value=0)
%no: bool = constant(value=False)
%r: frag<i32[64x1]> = iota(start=%zero)
%c: frag<i32[1x64]> = iota(start=%zero)
%x: frag<{source}[64x64]> = load_panels(shared=%smem, state=%st, start=%zero, rows=64,
  swizzle="{order}")
{made}
%b: matrix_descriptor = smem_descriptor(shared=%smem, state=%st, dtype="{dtype}", rows=72,
  columns=64, swizzle="128B")
%acc: acc<f32[64x72]> = empty_accumulator()
"""
CAST = "%cast: frag<{dtype}[64x64]> = cast(x=%x)"
MAPS = """
%s: frag<{dtype}[64x1]> = load_global(tensor=%S, index=(%r,))
%t: frag<{dtype}[1x64]> = load_global(tensor=%T, index=(%c,))
%edge: i32 = constant(value=37)
%left: frag<bool[1x64]> = map(fn="lt", args=(%c, %edge))
%p: frag<{dtype}[64x64]> = map(fn="mul", args=(%x, %s))
%q: frag<{dtype}[64x64]> = map(fn="add", args=(%p, %t))
%o: frag<{dtype}[64x64]> = map(fn="sub", args=(%t, %x))
%cast: frag<{dtype}[64x64]> = map(fn="where", args=(%left, %q, %o))
"""
HALVES = [ml_dtypes.bfloat16, np.float16]
NAMES = {np.int8: "i8", np.uint8: "u8", np.float16: "f16", ml_dtypes.bfloat16: "bf16"}


def every_byte(columns: int) -> Any:
    """16 lines of them, in which all come in some order."""
    made = np.random.default_rng(2).permutation(np.arange(16 * columns) % 256)
    return made.astype(np.uint8).reshape(16, columns)


def image(raw: Any, order: str) -> bytearray:
    """The first of 64 lines of a tile in SMEM."""
    if order == OF_NIBBLES:
        return bytearray(pack(np.pad(raw, ((0, 48), (0, 0))), DTYPES["u4"]).data)
    shared = bytearray(64 * raw.shape[1])
    for row, byte in np.ndindex(raw.shape):
        shared[panel_address(row, byte, 64, order)] = raw[row, byte]
    return shared


def operand_of(lines: Any, dtype: Any, order: str, made: str, *given: Any, source: str = "") -> Any:
    """The operand in the registers of a warp's lanes that is `made` of 16 lines of 64 elements in
    SMEM, and of tensors S [64] and T [64], if they are given. `source`: the type of bytes.
    """
    base = 1 << 20
    shared, source = image(lines.view(np.uint8), order), source or NAMES[lines.dtype.type]
    body = product(NAMES[dtype], 64)
    made = WIDENED.replace("{made}", made) + body[body.index("%a: ") :]
    made = made.replace("{source}", source).replace("{order}", order)
    params = "%Y: tensor<f32[M, N]>"
    if given:
        params = f"%S: tensor<{NAMES[dtype]}[R]>, %T: tensor<{NAMES[dtype]}[C]>, {params}"
    kernel = kernel_of(made.replace("{dtype}", NAMES[dtype]), params, SMEM)
    known = {"S": base, "T": base + 128, "Y": 0}
    arguments = [
        known[argument.tensor] if isinstance(argument, PointerArgument) else 64
        for argument in signature(kernel).arguments
    ]
    held, ptx = b"".join(x.tobytes() for x in given), ptx_of(kernel)
    lanes = Program(ptx).run_warps(arguments, Memory(base, bytearray(held), shared))
    taken = [found.split(", ") for found, _ in TAKEN.findall(ptx)]
    assert len(lanes) == 32 and [len(names) for names in taken] == [4] * 4
    found = np.empty((16, 64), dtype)
    for lane, registers in enumerate(lanes):
        for step, names in enumerate(taken):
            for i, name in enumerate(names):
                row, first = lane // 4 + 8 * (i % 2), 16 * step + 8 * (i // 2) + 2 * (lane % 4)
                found[row, first : first + 2] = np.array([registers[name]], np.uint32).view(dtype)
    return found


@pytest.mark.parametrize("order", ["64B", "packed64"])
@pytest.mark.parametrize("source", [np.int8, np.uint8])
@pytest.mark.parametrize("dtype", HALVES)
def test_bytes_become_floats(order: str, source: Any, dtype: Any) -> None:
    """All values, from SMEM in either order, each in its place."""
    lines = every_byte(64).view(source)
    assert np.array_equal(operand_of(lines, dtype, order, CAST), lines.astype(dtype))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("order", ["32B", "packed32"])
@pytest.mark.parametrize("source", ["u4", "i4", "f4e2m1"])
@pytest.mark.parametrize("dtype", HALVES)
def test_nibbles_become_floats(order: str, source: str, dtype: Any) -> None:
    """All pairs of values, at each position, with any other values in the word."""
    lines = every_byte(32)
    values = unpack_nibbles(lines, DTYPES[source], 64).astype(np.float32)
    found = operand_of(lines, dtype, order, CAST, source=source)
    assert found.tobytes() == values.astype(dtype).tobytes()


ZERO_POINTS = """
%points: frag<{source}[64x1]> = cast(x=%r)
%left: frag<{dtype}[64x64]> = cast(x=%x)
%right: frag<{dtype}[64x1]> = cast(x=%points)
%cast: frag<{dtype}[64x64]> = map(fn="sub", args=(%left, %right))
"""


@pytest.mark.parametrize("source", ["u4", "i4"])
@pytest.mark.parametrize("dtype", HALVES)
def test_nibbles_less_zero_points(source: str, dtype: Any) -> None:
    """All of either, by one subtraction per pair, which includes the offset of the conversion."""
    lines = np.tile(np.arange(256).astype(np.uint8), 2).reshape(16, 32)
    lines = np.roll(lines, 1, 0) ^ np.arange(16, dtype=np.uint8)[:, None]
    values = unpack_nibbles(lines, DTYPES[source], 64).astype(np.float32)
    points = np.arange(16) - 16 * (np.arange(16) > 7) * (source == "i4")
    found = operand_of(lines, dtype, "packed32", ZERO_POINTS, source=source)
    assert found.tobytes() == (values - points[:, None]).astype(dtype).tobytes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("order", ["64B", "packed64"])
@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        *((source, dtype) for source in ("f6e2m3", "f6e3m2") for dtype in HALVES),
        ("f8e8m0", ml_dtypes.bfloat16),
    ],
)
def test_small_floats_become_floats(order: str, source: str, dtype: Any) -> None:
    """All values; of six bits the upper two of a byte do not count."""
    lines, own = every_byte(64), 0xFF if source == "f8e8m0" else 0x3F
    values = (lines & own).view(numpy_dtype(DTYPES[source])).astype(np.float32)
    found = operand_of(lines, dtype, order, CAST, source=source).astype(np.float32)
    assert np.array_equal(found, values, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(values)) or source == "f8e8m0"


@pytest.mark.parametrize("dtype", HALVES)
def test_arithmetic_in_pairs(dtype: Any) -> None:
    """Each operation rounds, once; operands of rows, of columns and of both."""
    rng = np.random.default_rng(1)
    lines, s, t = (rng.standard_normal(n).astype(dtype) for n in ((16, 64), 64, 64))
    found = operand_of(lines, dtype, "packed128", MAPS, s, t)
    s, wide = s[:16, None], np.float32
    scaled = (lines.astype(wide) * s.astype(wide)).astype(dtype)
    summed = (scaled.astype(wide) + t.astype(wide)).astype(dtype)
    rest = (t.astype(wide) - lines.astype(wide)).astype(dtype)
    assert np.array_equal(found, np.where(np.arange(64) < 37, summed, rest))
