"""Rules of SCHEDULED kernels about scales in tensor memory: which products take them, where they
lie, and who writes them. The assembler looks at none of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir import ops
from wsdsl.ir.hardware import block_scale_factors as s
from wsdsl.ir.hardware.scale_factor_atoms import SHAPE, atoms_of
from wsdsl.ir.op import Kernel, Problem, Value, walk
from wsdsl.ir.ops import MakeTensorMap, Partition, TmaLoad
from wsdsl.ir.types import Columns, Tensor

Writer = ops.StoreScaleFactors | ops.Tcgen05Cp
Place = tuple[Value, int, int, int]
"""Columns, the first one, rows and words: of the scales of an operand."""


def scale_factors_are_written(kernel: Kernel) -> Iterator[Problem]:
    """Every field of their instructions, and where their scales lie."""
    written = {_written(op) for op in _writers(kernel)}
    for op in kernel.of(ops.Tcgen05Mma):
        for place in _places(op):
            if place not in written:
                scales = f"{place[2]} rows of {place[3]} words from column {place[1]} on"
                yield op, f"no op writes the scale factors of {scales}"


def _read(op: ops.Tcgen05Mma, scales: Value, kind: s.Kind) -> Iterator[Place]:
    words = max(1, op.k // kind.word)
    for column, rows in ((op.a_scale, op.rows), (op.b_scale, op.columns)):
        yield scales, column, rows, words


def _written(op: Writer) -> Place:
    return op.scales, op.column, op.rows, op.words


def _writers(kernel: Kernel) -> list[Writer]:
    return [*kernel.of(ops.StoreScaleFactors), *kernel.of(ops.Tcgen05Cp)]


def scale_columns_are_disjoint(kernel: Kernel) -> Iterator[Problem]:
    """Those of several operands, and each within its item, from a tile's first column on."""
    taken = dict[tuple[Value, Value | None], set[tuple[int, int]]]()
    for op in _writers(kernel):
        end = op.column + s.scale_columns(op.rows, op.words)
        # Stages have one layout at a time; copied scale factors have one item.
        state = op.state if isinstance(op, ops.StoreScaleFactors) else None
        own = taken.setdefault((op.scales, state), set())
        if any((op.column, end) != o and op.column < o[1] and o[0] < end for o in own):
            yield op, "overlaps other scale factors"
        own.add((op.column, end))
    for op in kernel.of(ops.TmemColumns):
        odd = op.result.type_as(Columns).columns % s.TILE_COLUMNS
        if any(op.result == scales for scales, _ in taken) and (odd or op.first % s.TILE_COLUMNS):
            yield op, f"TMEM of scale factors must be multiples of {s.TILE_COLUMNS} columns"


def copies_match_scales(kernel: Kernel) -> Iterator[Problem]:
    """Check that threads read the rows of one-byte elements that TMA copies there."""
    maps = {op.result: op for op in kernel.of(MakeTensorMap)}
    boxes = dict[tuple[Value, int], tuple[MakeTensorMap, Tensor]]()
    for copy in kernel.of(TmaLoad):
        made = maps.get(copy.map)
        if made is not None and isinstance(made.tensor.type, Tensor):
            boxes[copy.shared, copy.offset] = made, made.tensor.type
    scales = {p: op for op in kernel.of(ops.Tcgen05Mma) if op.scales for p in _places(op)}
    for op in _writers(kernel):
        found, product = boxes.get((op.shared, op.offset)), scales.get(_written(op))
        if found is None or product is None:
            yield op, "no copy loads these scale factors, or no MMA uses them"
            continue
        made, tensor = found
        if isinstance(op, ops.Tcgen05Cp) or op.atoms:
            if made.box[-4:] != (atoms_of(op.rows), op.words, *SHAPE):
                yield op, f"box {made.box} does not fit atoms of {op.rows} rows, {op.words} words"
        elif (made.box[-1], max(made.box[:-1], default=1)) != (op.line, op.rows):
            yield op, f"box {made.box} does not fit {op.rows} rows of {op.line} bytes"
        if tensor.dtype.name != product.scale_dtype or made.swizzle != "none":
            yield op, f"the copy of {made.tensor} differs from {product.scale_dtype} of the MMA"


def _places(op: ops.Tcgen05Mma) -> list[Place]:
    kind = s.kind_of(*op.dtypes, op.scale_dtype, op.block)
    return [] if kind is None or op.scales is None else [*_read(op, op.scales, kind)]


def mma_partition_copies_scales(kernel: Kernel) -> Iterator[Problem]:
    """Nothing else orders a copy with the products that take it."""
    parts = [[*walk(op.body)] for op in kernel.body if isinstance(op, Partition)]
    beside = [own for own in parts if any(isinstance(o, ops.Tcgen05Mma) for o in own)]
    inside = {id(o) for own in beside for o in own}
    for op in kernel.of(ops.Tcgen05Cp):
        if id(op) not in inside:
            yield op, "only the partition of the MMAs can copy scale factors, which orders both"
    for op in kernel.of(ops.Tcgen05Cp):
        if any(o.scales == op.scales for o in kernel.of(ops.StoreScaleFactors)):
            yield op, "scale factors cannot be both copied and stored"


def one_warpgroup_stores_scales(kernel: Kernel) -> Iterator[Problem]:
    """Each of its warps the lanes that are its own; it reads no sums, and waits for its stores."""
    parts = [op for op in kernel.body if isinstance(op, Partition)]
    inside = {id(o): p for p in parts for o in walk(p.body) if isinstance(o, ops.StoreScaleFactors)}
    for op in kernel.of(ops.StoreScaleFactors):
        if id(op) not in inside:
            yield op, "scale factors must be stored within a partition"
    for p in {id(p): p for p in inside.values()}.values():
        own = list(walk(p.body))
        if p.num_warps != 4:
            yield p, f"{p.num_warps} warps store scale factors, not 4"
        if any(isinstance(o, (ops.Tcgen05Ld, ops.Tcgen05Mma)) for o in own):
            yield p, "a partition that stores scale factors cannot issue MMAs or read accumulators"
        if not any(isinstance(o, ops.Tcgen05WaitSt) for o in own):
            yield p, "no tcgen05_wait_st follows the stores of scale factors"
