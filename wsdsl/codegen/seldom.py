"""Rows that are seldom taken from elsewhere: a warp votes, and goes round what it would do for them
where no row of its own is.

    %x: frag<bf16[64x64]> = load_global(tensor=%V, index=(%at, %columns))
    %y: frag<bf16[64x64]> = map(fn="where", args=(%kept, %x, %w))

The load of such a choice is made with it, behind one vote. One that says which rows are asked for
(`only`) is made where it stands, behind a vote of its own, and the choice has another one. Either
then costs a vote, and a branch that all threads of a warp take or leave together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from wsdsl.codegen import elementwise
from wsdsl.codegen.context import Context
from wsdsl.codegen.elementwise import dtype_and_shape
from wsdsl.codegen.global_access import convert_load_global
from wsdsl.codegen.held import Registers
from wsdsl.codegen.paired_maps import paired
from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.memory_ops import LoadGlobal
from wsdsl.ir.op import Kernel, Value, regions
from wsdsl.ir.seldom_rows import choices_of_rows, is_by_rows
from wsdsl.ir.tensor_accesses import written_tensors
from wsdsl.ir.tile_ops import Map
from wsdsl.ir.walk import uses, walk, yielded

WHOLE_WARP = "-1"
ANYTHING = "undef"


def seldom_loaded(kernel: Kernel) -> dict[Value, LoadGlobal | None]:
    """What choices by rows take: loads that are made there, and, as None, what a loop carries of
    loads that are made ahead.
    """
    used, stored = Counter(uses(kernel.body)), written_tensors(kernel.ops)
    inner = (region for op in walk(kernel.body) for region in regions(op))
    found = dict[Value, LoadGlobal | None]()
    for region in (kernel.body, *inner):
        found |= {load.result: load for _, load in choices_of_rows(region, used, stored)}
    for op in kernel.of(ForRange):
        for arg, last in zip(op.args, yielded(op.body), strict=True):
            load = kernel.definers.get(last)
            if isinstance(load, LoadGlobal) and load.only is not None:
                found[arg] = None
    return found


def convert_load(c: Context, op: LoadGlobal) -> None:
    def load() -> Registers:
        convert_load_global(c, op)
        return c.registers(op.result)

    if op.only is not None and not c.place.elected:
        c.held[op.result] = _behind_vote(c, op.only, load, None)
    elif c.place.elected or op.result not in c.seldom:
        load()


def convert_map(c: Context, op: Map) -> None:
    seldom = op.fn == "where" and op.args[1] in c.seldom and is_by_rows(op)
    if not seldom or c.place.elected:
        elementwise.convert_map(c, op)
        return
    load, usual = c.seldom[op.args[1]], c.registers(op.args[2])

    def choose() -> Registers:
        if load is not None:
            convert_load_global(c, load)
        made = paired(c, op, *dtype_and_shape(op.result.type))
        assert made is not None
        return made

    c.held[op.result] = _behind_vote(c, op.args[0], choose, usual)


def _behind_vote(
    c: Context, rows: Value, make: Callable[[], Registers], usual: Registers | None
) -> Registers:
    """What `make` gives if a row of the warp is among `rows`, else `usual`, or anything."""
    w, before, own = c.w, c.w.block, "false"
    for row in c.registers(rows).texts:
        own = row if own == "false" else w.binary("or", "i1", own, row)
    anybody = w.call("llvm.nvvm.vote.any.sync", "i1", [("i32", WHOLE_WARP), ("i1", own)])
    behind, after = w.name("seldom"), w.name("after")
    w.branch(w.binary("xor", "i1", anybody, "true"), after, behind, likely=True)
    w.begin(behind)
    made = make()
    end = w.block
    w.jump(after)
    w.begin(after)
    phis = w.phis(["i32"] * len(made.texts))
    others = (ANYTHING,) * len(phis) if usual is None else usual.texts
    for phi, new, old in zip(phis, made.texts, others, strict=True):
        w.fill(phi, "i32", [(new, end), (old, before)])
    return Registers(made.dtype, *made.shape, tuple(name for _, name in phis))
