"""Loads that only a choice by rows reads: a warp votes, and goes round them where no row of its own
takes what is loaded.

    %x: frag<bf16[64x64]> = load_global(tensor=%V, index=(%at, %columns))
    %y: frag<bf16[64x64]> = map(fn="where", args=(%kept, %x, %w))

Rows that are seldom taken from elsewhere then cost a vote, and a branch that all threads of a warp
take or leave together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from wsdsl.codegen import elementwise
from wsdsl.codegen.context import Context
from wsdsl.codegen.convert_type import is_packed
from wsdsl.codegen.elementwise import dtype_and_shape
from wsdsl.codegen.global_access import convert_load_global
from wsdsl.codegen.held import Registers
from wsdsl.codegen.paired_maps import paired
from wsdsl.ir.memory_ops import LoadGlobal
from wsdsl.ir.op import Kernel, Region, Value, regions
from wsdsl.ir.tensor_accesses import written_tensors
from wsdsl.ir.tile_ops import Map
from wsdsl.ir.types import BOOL, Fragment
from wsdsl.ir.walk import uses, walk

WHOLE_WARP = "-1"


def seldom_loaded(kernel: Kernel) -> dict[Value, LoadGlobal]:
    """Loads that only a choice of 16-bit floats by rows, in the same region, reads, and of what
    nobody writes: they are made there.
    """
    used, stored = Counter(uses(kernel.body)), written_tensors(kernel.ops)

    def of(region: Region) -> Iterator[LoadGlobal]:
        loads = {op.result: op for op in region if isinstance(op, LoadGlobal)}
        for op in region:
            if isinstance(op, Map) and op.fn == "where" and _is_by_rows(op):
                load = loads.get(op.args[1])
                if load and load.tensor.name not in stored and not load.in_order:
                    yield from (load,) if used[load.result] == 1 else ()

    inner = (region for op in walk(kernel.body) for region in regions(op))
    return {op.result: op for region in (kernel.body, *inner) for op in of(region)}


def _is_by_rows(op: Map) -> bool:
    cond, chosen, other = op.args
    kind = op.result.type
    return (
        isinstance(kind, Fragment)
        and kind.rows > 1
        and kind.dtype.bits == 16
        and is_packed(kind.dtype, kind.columns)
        and chosen.type == other.type == kind
        and cond.type == Fragment(BOOL, kind.rows, 1)
    )


def convert_load(c: Context, op: LoadGlobal) -> None:
    if c.place.elected or op.result not in c.seldom:
        convert_load_global(c, op)


def convert_map(c: Context, op: Map) -> None:
    load = c.seldom.get(op.args[1]) if op.fn == "where" and not c.place.elected else None
    if load is None:
        elementwise.convert_map(c, op)
    else:
        c.held[op.result] = _chosen(c, op, load)


def _chosen(c: Context, op: Map, load: LoadGlobal) -> Registers:
    w, before = c.w, c.w.block
    cond, _, other = op.args
    usual, own = c.registers(other), "false"
    for row in c.registers(cond).texts:
        own = row if own == "false" else w.binary("or", "i1", own, row)
    anybody = w.call("llvm.nvvm.vote.any.sync", "i1", [("i32", WHOLE_WARP), ("i1", own)])
    behind, after = w.name("seldom"), w.name("after")
    w.branch(w.binary("xor", "i1", anybody, "true"), after, behind, likely=True)
    w.begin(behind)
    convert_load_global(c, load)
    made, end = paired(c, op, *dtype_and_shape(op.result.type)), w.block
    assert made is not None
    w.jump(after)
    w.begin(after)
    phis = w.phis(["i32"] * len(made.texts))
    for phi, new, old in zip(phis, made.texts, usual.texts, strict=True):
        w.fill(phi, "i32", [(new, end), (old, before)])
    return Registers(made.dtype, made.rows, made.columns, tuple(name for _, name in phis))
