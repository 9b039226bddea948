"""Compute where operands lie before the slot that they share is taken.

Before:
    %a1 = load(tensor=%A, index=(%m, %k))
    %c0: i32 = constant(value=0)
    %b1 = load(tensor=%W, index=(%c0, %n, %k))
    %y1 = contract(a=%a1, b=%b1, acc=%x1)
    %r: i32 = load(tensor=%rows, index=(%e,))
    %b2 = load(tensor=%W, index=(%r, %n, %k))
    %y2 = contract(a=%a1, b=%b2, acc=%x2)
After:
    %a1 = load(tensor=%A, index=(%m, %k))
    %c0: i32 = constant(value=0)
    %b1 = load(tensor=%W, index=(%c0, %n, %k))
    %r: i32 = load(tensor=%rows, index=(%e,))
    %y1 = contract(a=%a1, b=%b1, acc=%x1)
    %b2 = load(tensor=%W, index=(%r, %n, %k))
    %y2 = contract(a=%a1, b=%b2, acc=%x2)

A slot is filled with all of its tiles where the first product reads one of them. Dimensions that
are taken whole are known from the start.

Why here: behind the passes that change products, and before anything asks which loads share a slot.
"""

from wsdsl.ir.op import Kernel, Region, results_of
from wsdsl.ir.ops import Load, Whole
from wsdsl.ir.rewriter import with_regions
from wsdsl.lowering.buffer_assignment import SlotGroup, needed_before, operand_slots_in


def hoist_indices(kernel: Kernel) -> Kernel:
    made = {v for op in kernel.ops for v in results_of(op)}
    if not kernel.of(Whole) and made.isdisjoint(v for op in kernel.of(Load) for v in op.index):
        return kernel
    groups = operand_slots_in(kernel, kernel.body)

    def change(block: Region) -> Region:
        order = _order(block, [group for group in groups if group.block is block])
        return tuple(with_regions(block[i], change) for i in order)

    return kernel.with_body(change(kernel.body))


def _order(block: Region, groups: list[SlotGroup]) -> list[int]:
    """Places in the block as they shall follow each other."""
    known = (i for i, op in enumerate(block) if isinstance(op, Whole))
    moved = dict.fromkeys(known, -1)
    for group in sorted(groups, key=lambda group: group.first):
        index = [v for load in group.loads for v in load.index]
        for i in needed_before(block, group.first, index) or ():
            moved.setdefault(i, group.first)
    return sorted(range(len(block)), key=lambda i: (moved.get(i, i), i not in moved, i))
