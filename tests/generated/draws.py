"""What a kernel is tried with: sizes, arrays, schedules."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

import wsdsl
from wsdsl import Schedule
from wsdsl.frontend.settled_tile_sizes import doubts
from wsdsl.ir.ops import Contract, ForTiles
from wsdsl.ir.rewriter import walk
from wsdsl.ir.types import Axis, Tensor, Tile
from wsdsl.lowering.passes.dce import dce
from wsdsl.simulator.reference.arithmetic import numpy_dtype

SIZES: dict[str, tuple[int, ...]] = {
    "M": (1, 3, 17, 64, 70, 130), "N": (1, 2, 8, 24, 40, 72), "K": (1, 5, 16, 40, 64, 70),
    "L": (1, 7, 16, 33, 72), "B": (1, 2), "H": (1, 2), "E": (1, 2, 3), "D": (1, 8, 16, 33, 64),
    "T": (1, 4, 5), "S": (40, 130, 200),
}  # fmt: skip
"""Small ones, odd ones, and some beyond the smallest tiles."""
BLOCKS = (1, 2, 3)


def sizes(kernel: wsdsl.Kernel, rng: Random) -> dict[str, int]:
    kinds = [p.type for p in kernel.tile_ir.params if isinstance(p.type, Tensor)]
    packed = {kind.dims[-1] for kind in kinds if kind.dtype.bits == 4}
    empty = {d: 0 for d in kernel.dims if rng.random() < 0.01}
    found = {d: rng.choice(SIZES.get(d, BLOCKS)) for d in kernel.dims} | empty
    # Two elements share a byte: a dimension that other tensors have, too, is even.
    return {d: n + n % 2 if d in packed else n for d, n in found.items()}


def arrays(kernel: wsdsl.Kernel, dims: dict[str, int], seed: int) -> dict[str, Any]:
    """Quarters of small numbers, whose sums are exact in f32, or any; now and then NaN and
    infinities, but not in `scale…`.

    `perm…` has each index once; what is written has the same data for everybody beforehand.
    """
    rng = np.random.default_rng(seed)
    special, normal = rng.random() < 0.2, rng.random() < 0.3
    special &= not doubts(kernel.tile_ir)  # Whose tile sizes are tried on finite numbers alone.
    made: dict[str, Any] = {}
    for p in kernel.tile_ir.params:
        assert isinstance(p.type, (Tensor, Tile))
        dtype = p.type.dtype
        held = numpy_dtype(dtype)
        if not isinstance(p.type, Tensor):
            made[p.name] = int(rng.integers(0, 4)) if dtype.is_integer else float(
                rng.choice((0.25, 1.0, 1.5, -2.0)))  # fmt: skip
            continue
        shape = [dims[d] if isinstance(d, str) else d for d in p.type.dims]
        if p.name.startswith("perm"):
            made[p.name] = rng.permutation(shape[0]).astype(held)
        elif dtype.bits == 4:
            # Packed, two to a byte.
            shape[-1] = (shape[-1] + 1) // 2
            made[p.name] = rng.integers(0, 256, shape).astype(np.uint8)
        elif p.name.startswith("rows"):
            made[p.name] = rng.integers(-1, 6, shape).astype(held)
        elif dtype.kind == "bool":
            made[p.name] = rng.random(shape) < 0.5
        elif dtype.is_integer:
            low = -9 if dtype.kind == "int" else 0
            made[p.name] = rng.integers(low, 10, shape).astype(held)
        else:
            values = rng.integers(-8, 9, shape).astype(np.float32) / 4
            if normal:
                values = rng.standard_normal(shape).astype(np.float32)
            if special and not p.name.startswith("scale"):
                where = rng.random(shape) < 0.02
                values = np.where(where, rng.choice((np.nan, np.inf, -np.inf, -0.0), shape), values)
            made[p.name] = values.astype(np.float32).astype(held)
    return made


def loop_variables(kernel: wsdsl.Kernel) -> dict[str, str]:
    """Of `tiles` without `by` in which anything is done, with their dimensions."""
    tiles: dict[str, str] = {}
    for op in walk(dce(kernel.tile_ir).body):
        if isinstance(op, ForTiles):
            kind = op.index.type
            if isinstance(kind, Axis) and not kind.size:
                tiles[kind.name] = kind.dim
    return tiles


def multiplies(kernel: wsdsl.Kernel) -> bool:
    return any(isinstance(op, Contract) for op in walk(dce(kernel.tile_ir).body))


def schedule(kernel: wsdsl.Kernel, rng: Random) -> Schedule | None:
    """Some fields at random; many are refused."""
    tiles = list(loop_variables(kernel))
    if not tiles or rng.random() < 0.25:
        return None

    def maybe(probability: float, *values: Any) -> Any:
        return rng.choice(values) if rng.random() < probability else None

    products = multiplies(kernel)
    consumers = maybe(0.4, 1, 2, 3)
    tile: dict[str, int] = {}
    for name in tiles:
        if rng.random() < 0.6:
            tall = name == "m" and rng.random() < 0.9
            rows = tuple(r for r in (64, 128, 192) if r % (64 * (consumers or 1)) == 0)
            deep = name in "kl" and rng.random() < 0.9
            columns = (16, 32, 64, 128) if deep else (16, 32, 48, 64, 72, 128)
            tile[name] = rng.choice(rows if tall else columns)
    cluster = {rng.choice(tiles): rng.choice((2, 2, 4))} if rng.random() < 0.2 else None
    if cluster and rng.random() < 0.3:
        cluster |= {rng.choice(tiles): 2}
    scheduler = maybe(0.4, "grid", "persistent", "persistent", "stream_k", "split_k")
    split = scheduler == "split_k"
    tensors = [p.name for p in kernel.tile_ir.params if isinstance(p.type, Tensor)]
    return Schedule(
        tile=tile,
        stages=maybe(0.4, 1, 2, 3, 4),
        consumers=consumers,
        mode=maybe(0.3, "cooperative", *["pingpong"] * (products and consumers != 1)),
        consumer_split=maybe(0.1, *tiles),
        cluster=cluster,
        multicast=maybe(0.2, True, False) if cluster else None,
        raster=maybe(0.1, *tiles),
        mma_m=maybe(0.2, "m", "n", *tiles) if products else None,
        scheduler=scheduler,
        splits=maybe(0.7, 2, 3) if split else None,
        reduction=maybe(0.5, "serial", "parallel") if split else None,
        swizzle=maybe(0.2, 1, 2, 4),
        pdl_independent=(rng.choice(tensors),) if tensors and rng.random() < 0.1 else None,
        launch_pdl=maybe(0.1, True, False),
    )


def on_tensor_memory(kernel: wsdsl.Kernel, rng: Random) -> Schedule:
    """Of a kernel with products."""
    tile = {"s": 64} if "s" in loop_variables(kernel) and rng.random() < 0.7 else None
    scheduler = rng.choice((None, "grid", "dynamic"))
    return Schedule(arch="sm_100a", tile=tile, scheduler=scheduler)


def tile_sizes(kernel: wsdsl.Kernel, dims: dict[str, int], rng: Random) -> dict[str, int]:
    """By which the reference walks; a kernel means the same by all. Few tiles, or it takes long."""
    variables = loop_variables(kernel)
    return {v: -(-dims.get(d, 1) // rng.choice((1, 1, 2, 3, 4))) or 1 for v, d in variables.items()}
