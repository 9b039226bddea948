"""Rules of SCHEDULED kernels about scales in tensor memory: which products take them, where they
lie, and who writes them. The assembler looks at none of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir import ops
from wsdsl.ir.effects import Access, Wait
from wsdsl.ir.hardware import block_scale_factors as s
from wsdsl.ir.hardware.scale_factor_atoms import SHAPE, atoms_of
from wsdsl.ir.op import Kernel, Problem, Value, walk
from wsdsl.ir.types import Columns

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
    for op in kernel.making(Columns):
        odd = op.result.type_as(Columns).columns % s.TILE_COLUMNS
        if any(op.result == scales for scales, _ in taken) and (odd or op.first % s.TILE_COLUMNS):
            yield op, f"TMEM of scale factors must be multiples of {s.TILE_COLUMNS} columns"


def copies_match_scales(kernel: Kernel) -> Iterator[Problem]:
    """Check that threads read the rows of one-byte elements that TMA copies there."""
    boxes = {
        (e.of, e.spans[0][0].start): copy.tensor_map(kernel.definers)
        for copy, effects in kernel.effects
        for e in effects
        if isinstance(copy, ops.ByTensorMap) and isinstance(e, Access) and e.kind == "write"
        if e.space == "smem"
    }
    scales = {p: op for op in kernel.of(ops.Tcgen05Mma) if op.scales for p in _places(op)}
    for op in _writers(kernel):
        made, product = boxes.get((op.shared, op.offset)), scales.get(_written(op))
        if made is None or product is None:
            yield op, "no copy loads these scale factors, or no MMA uses them"
            continue
        if isinstance(op, ops.Tcgen05Cp) or op.atoms:
            if made.box[-4:] != (atoms_of(op.rows), op.words, *SHAPE):
                yield op, f"box {made.box} does not fit atoms of {op.rows} rows, {op.words} words"
        elif (made.box[-1], max(made.box[:-1], default=1)) != (op.line, op.rows):
            yield op, f"box {made.box} does not fit {op.rows} rows of {op.line} bytes"
        if made.tensor.as_tensor.dtype.name != product.scale_dtype or made.swizzle != "none":
            yield op, f"the copy of {made.tensor} differs from {product.scale_dtype} of the MMA"


def _places(op: ops.Tcgen05Mma) -> list[Place]:
    kind = s.kind_of(*op.dtypes, op.scale_dtype, op.block)
    return [] if kind is None or op.scales is None else [*_read(op, op.scales, kind)]


def scales_are_written_one_way(kernel: Kernel) -> Iterator[Problem]:
    stored = {op.scales for op in kernel.of(ops.StoreScaleFactors)}
    for op in kernel.of(ops.Tcgen05Cp):
        if op.scales in stored:
            yield op, "scale factors cannot be both copied and stored"


def one_warpgroup_stores_scales(kernel: Kernel) -> Iterator[Problem]:
    """Each of its warps the lanes that are its own; it reads no sums, and waits for its stores."""
    inside = ops.enclosing_partitions(kernel) if kernel.of(ops.StoreScaleFactors) else {}
    for op in kernel.of(ops.StoreScaleFactors):
        if id(op) not in inside:
            yield op, "scale factors must be stored within a partition"
    stores = [inside[id(o)] for o in kernel.of(ops.StoreScaleFactors) if id(o) in inside]
    for p in {id(p): p for p in stores}.values():
        effects = [effect for o in walk(p.body) for effect in kernel.effects_of[id(o)]]
        if p.num_warps != 4:
            yield p, f"{p.num_warps} warps store scale factors, not 4"
        if any(isinstance(e, Access) and (e.kind, e.space) == ("read", "tmem") for e in effects):
            yield p, "a partition that stores scale factors cannot issue MMAs or read accumulators"
        if Wait("tcgen05.st") not in effects:
            yield p, "no wait follows the stores of scale factors"
