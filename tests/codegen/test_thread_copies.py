"""The accesses of the PTX of `thread_load`, `thread_store` and `prefetch_tile`, run here."""

import itertools
import random

import pytest

from tests.codegen.ptx_interpreter import Memory, Program
from tests.codegen.support import kernel_of, ptx_of
from wsdsl.codegen.launch_signature import PointerArgument, SizeArgument, StrideArgument, signature
from wsdsl.ir.hardware.gmem_limits import L2_LINE
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN, line_swizzle, panel_address, swizzle_address
from wsdsl.ir.op import Kernel
from wsdsl.ir.types import DTYPES

BASE = 0x7F1200000000 - 128
START = 128
ITEM = 8192
ALIGNED = (1, 2, 4, 8)
SEEDS = range(3)
STORES = [
    *itertools.product(("rows", "transposed"), ("bf16", "f32", "u8"), (False,)),
    *itertools.product(("rows", "transposed"), ("f16", "f32", "i32"), (True,)),
    ("joined", "bf16", False),
    ("joined", "bf16", True),
]
"""Panels, types, and whether they are added. Warps join panels of 16 bits alone."""


class Tensor:
    """Random sizes and strides, mostly multiples of `unit` elements, within other memory."""

    def __init__(self, rng: random.Random, size: int, rank: int, most: tuple[int, int]) -> None:
        self.rng, self.size, unit = rng, size, rng.choice(ALIGNED)
        lines, columns = most
        self.dims = [rng.randint(1, 4) for _ in range(rank - 2)]
        self.dims += [rng.randint(1, lines), rng.randint(1, max(1, columns // unit)) * unit]
        self.strides, step = [1] * rank, self.dims[-1] + rng.choice((0, unit))
        for dim in range(rank - 2, -1, -1):
            self.strides[dim] = step
            step = step * self.dims[dim] + rng.choice((0, unit))
        self.offset = rng.choice((0, unit))
        self.memory = rng.randbytes(2 * START + (step + self.offset) * size)
        self.at = [rng.choice((0, rng.randrange(n))) for n in self.dims]
        self.at[-1] = rng.choice((0, rng.randrange(self.dims[-1]) // 8 * 8))

    def place(self, index: list[int]) -> int | None:
        """In its memory; None beyond the end."""
        if any(i >= n for i, n in zip(index, self.dims, strict=True)):
            return None
        element = sum(i * s for i, s in zip(index, self.strides, strict=True))
        return START + (self.offset + element) * self.size

    def run(self, kernel: Kernel, memory: Memory) -> None:
        program, given = Program(ptx_of(kernel)), list[int]()
        for argument in signature(kernel).arguments:
            match argument:
                case PointerArgument():
                    given.append(BASE + START + self.offset * self.size)
                case StrideArgument():
                    given.append(self.strides[argument.dim])
                case SizeArgument():
                    given.append(self.dims[int(argument.dim[1:])])
                case _:
                    given.append(self.at[int(argument.name[1:])])
        for thread in range(128):
            program.run(thread, given, memory)


def parameters(dtype: str, rank: int) -> tuple[str, str]:
    dims = ", ".join(f"D{i}" for i in range(rank))
    at = [f"%c{i}" for i in range(rank)]
    return f"%X: tensor<{dtype}[{dims}]>, {', '.join(f'{c}: i32' for c in at)}", ", ".join(at)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("panel", "dtype", "accumulate"), STORES)
def test_stores(panel: str, dtype: str, accumulate: bool, seed: int) -> None:
    rng, size = random.Random(f"{seed}{dtype}{panel}"), DTYPES[dtype].bytes
    rank, joined = rng.choice((2, 3)), panel == "joined"
    lines, line = 16, rng.choice([n for n in range(8, 129, 8) if n * size in range(16, 129, 16)])
    if panel != "rows":
        lines, line = (rng.choice((8, 16)), 64) if joined else (rng.choice((8, 24, 32)), 16)
    box = [*[1] * (rank - 2), lines, line]
    row_dim = rank - 1 if panel == "transposed" else rank - 2
    swizzle, apart = line_swizzle(line * size), lines * line * size if joined else 0
    params, at = parameters(dtype, rank)
    body = f"""
%one: i32 = constant(value=1)
thread_store(tensor=%X, coordinates=({at}), box={tuple(box)}, swizzle="{swizzle}",
  row_dim={row_dim}, shared=%smem, item=%one, apart={apart}, accumulate={accumulate})
"""
    smem = f'%smem: shared<{ITEM} x 2> = allocate_shared(label="smem", offset=1024)\n'
    held = Tensor(rng, size, rank, (150, 200))
    memory = Memory(BASE, bytearray(held.memory), bytearray(rng.randbytes(1024 + 2 * ITEM)))
    held.run(kernel_of(body, params, smem), memory)
    expected: dict[int, int] = {}
    for warp, i, j in itertools.product(range(4), range(lines), range(line)):
        index = list(held.at)
        index[row_dim] += warp * box[row_dim]
        index[-2], index[-1] = index[-2] + i, index[-1] + j
        span = max(line * size, SWIZZLE_SPAN[swizzle])
        source = 1024 + ITEM + warp * (apart or ITEM // 4)
        source += swizzle_address(i * span + j * size, swizzle)
        if (place := held.place(index)) is not None:
            expected |= {place + b: memory.shared[source + b] for b in range(size)}
    assert (memory.added if accumulate else memory.written) == expected
    assert not (memory.written if accumulate else memory.added)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["bf16", "f32", "u8"])
@pytest.mark.parametrize("registers", [24, 40, 56])
def test_loads(registers: int, dtype: str, seed: int) -> None:
    rng, size = random.Random(f"{seed}{dtype}{registers}"), DTYPES[dtype].bytes
    rank, swizzle = rng.choice((2, 3)), rng.choice(("128B", "128B", "64B", "32B", "none"))
    columns = rng.choice((1, 2, 3, 4)) * SWIZZLE_SPAN[swizzle] // size
    rows = rng.choice((8, 12, 40, 64, 128))
    params, at = parameters(dtype, rank)
    tile = f"coordinates=({at}), row_dim={rank - 2}, rows={rows}, columns={columns}"
    body = f"""
setmaxnreg(count={registers}, increase=False)
%st: state = initial_state(parity=0)
prefetch_tile(tensor=%X, {tile})
thread_load(tensor=%X, {tile}, swizzle="{swizzle}", shared=%smem, offset=1024, state=%st)
fence_async_proxy()
"""
    smem = '%smem: shared<131072 x 1> = allocate_shared(label="smem", offset=0)\n'
    held = Tensor(rng, size, rank, (200, 300))
    memory = Memory(BASE, bytearray(held.memory), bytearray(131072))
    held.run(kernel_of(body, params, smem), memory)
    expected, filled = bytearray(131072), set[int]()
    asked = {(BASE + at) // L2_LINE for at in memory.prefetched}
    for i, j in itertools.product(range(rows), range(columns)):
        index = list(held.at)
        index[-2], index[-1] = index[-2] + i, index[-1] + j
        to = 1024 + panel_address(i, j * size, rows, swizzle)
        filled |= {to + b for b in range(size)}
        if (place := held.place(index)) is not None:
            expected[to : to + size] = held.memory[place : place + size]
            if j * size % L2_LINE == 0:
                assert (BASE + place) // L2_LINE in asked
    assert memory.shared == expected and memory.filled == filled
    last = held.place([n - 1 for n in held.dims])
    assert last is not None and all(START <= at <= last for at in memory.prefetched)
