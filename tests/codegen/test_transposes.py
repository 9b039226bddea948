"""Fragments whose rows become columns: register by register, and without conflicts of banks."""

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
import pytest

from tests.codegen.ptx_interpreter import Memory
from tests.codegen.run_warp import run_warps
from tests.codegen.support import kernel_of
from wsdsl.ir.hardware.swizzle import BANKS, WORD
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import numpy_dtype

SETUP = """
%zero: i32 = constant(value=0)
%s: shared<{bytes} x 1> = allocate_shared(label="turned", offset=0)
"""
PART = """
%start{i}: i32 = constant(value={first})
%r{i}: frag<i32[64x1] lanes {held}> = iota(start=%start{i})
%x{i}: frag<{dtype}[64x{columns}] lanes {held}> = load_global(
    tensor=%X, index=(%r{i}, %c), vector={wide})
"""
TURNED = """
%row{i}: i32 = constant(value={first})
%m{i}: frag<i32[64x1] lanes {turned}> = iota(start=%row{i})
%y{i}: frag<{dtype}[64x{rows}] lanes {turned}> = load_transposed(
    shared=%s, item=%zero, line={first}, length={rows}, step={step})
store_global(tensor=%Y, index=(%m{i}, %n), value=%y{i}, vector={own})
"""


def turns(memory: Memory) -> Iterator[tuple[int, int]]:
    """For each access of a warp to SMEM, its number of passes, and the minimum."""
    for warp in range(4):
        threads = [memory.in_shared[32 * warp + lane] for lane in range(32)]
        for accesses in zip_longest(*threads):
            size = accesses[0][1]
            together = min(32, BANKS * WORD // size)
            taken = 0
            for first in range(0, 32, together):
                words = {
                    word
                    for address, _ in accesses[first : first + together]
                    for word in range(address // WORD, -(-(address + size) // WORD))
                }
                taken += max(np.bincount([word % BANKS for word in words]))
            yield int(taken), 32 // together


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "held", "turned", "step", "free"),
    [
        ("bf16", 64, 128, "8x8 tall 2", "8x8", 8, True),
        ("i16", 128, 64, "8x8 tall 2", "8x8", 8, True),
        ("f8e4m3", 128, 128, "16x8 tall 4", "16x8", 16, True),
        ("u8", 128, 64, "8x8 tall 4", "16x8", 8, True),
        ("f32", 64, 64, "4x8", "4x8", 4, True),
        ("bf16", 64, 64, "4x8 tall 2", "8x8", 4, True),
        # Rows that begin anywhere, of both, of one of them.
        ("bf16", 64, 64, "2x32 striped tall 2", "2x32 striped", 0, True),
        ("f32", 64, 64, "2x32 striped", "2x32 striped", 0, True),
        ("i8", 128, 64, "2x32 striped tall 4", "2x32 striped", 0, True),
        ("f16", 64, 64, "8x8 tall 2", "2x32 striped", 8, True),
        ("bf16", 64, 64, "2x32 striped tall 2", "8x8", 1, False),
        ("bool", 128, 64, "8x8 tall 4", "16x8", 8, True),
        # Lines of 64 bytes; few adjacent elements: elements by themselves, and pairs.
        ("u8", 64, 64, "8x8 tall 4", "8x8", 8, False),
        ("i8", 64, 64, "2x8 tall 2", "8x8", 2, False),
        ("bf16", 64, 64, "2x8", "2x8", 2, False),
    ],
)
def test_rows_become_columns(
    dtype: str, rows: int, columns: int, held: str, turned: str, step: int, free: bool
) -> None:
    kind = numpy_dtype(DTYPES[dtype])
    size = rows * columns * kind.itemsize
    wide, own = (1 if "striped" in x else int(x.split("x")[0]) for x in (held, turned))
    values = dict(dtype=dtype, rows=rows, columns=columns, held=held, turned=turned, step=step)
    first = [PART.format(i=i, first=64 * i, wide=wide, **values) for i in range(rows // 64)]
    last = [TURNED.format(i=i, first=64 * i, own=own, **values) for i in range(columns // 64)]
    parts = ", ".join(f"%x{i}" for i in range(rows // 64))
    parts = f"({parts},)" if rows == 64 else f"({parts})"
    body = "\n".join(
        [
            f"%c: frag<i32[1x{columns}] lanes {held}> = iota(start=%zero)",
            f"%n: frag<i32[1x{rows}] lanes {turned}> = iota(start=%zero)",
            *first,
            f"store_transposed(parts={parts}, shared=%s, item=%zero, step={step})",
            "named_barrier_sync(barrier=1, num_warpgroups=1)",
            *last,
        ]
    )
    params = f"%X: tensor<{dtype}[M, N]>, %Y: tensor<{dtype}[N, M]>"
    kernel = kernel_of(body, params, SETUP.format(bytes=size))
    x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 256, size, np.uint8)
    x = x.view(kind).reshape(rows, columns)
    sizes, given = {"M": rows, "N": columns}, {"X": x}
    made, memory = run_warps(kernel, sizes, given, "Y", size, warps=4, shared=size)
    assert made.tobytes() == np.ascontiguousarray(x.T).tobytes()
    found = [*turns(memory)]
    assert found and all(taken == needed for taken, needed in found) == free
