"""Load the operands of products in front of the loops that do not change them.

Before:
    for_tiles(index=%t: axis<t of T>, ...) {
      %q = load(tensor=%Q, index=(%b, %s, %d))
      %k = load(tensor=%K, index=(%b, %t, %d))
      %y = contract(a=%q, b=%k)
After:
    %q = load(tensor=%Q, index=(%b, %s, %d))
    for_tiles(index=%t: axis<t of T>, ...) {
      %k = load(tensor=%K, index=(%b, %t, %d))
      %y = contract(a=%q, b=%k)

A slot then holds the tile while the loop runs. What the kernel writes stays where it is, and so
does what an `if` decides: an address may be good for nothing where its branch is not taken.

Why here: before anything asks which loads share a slot.
"""

from collections.abc import Iterable

from wsdsl.ir.op import Kernel, Op, bound, operands, results_of, with_fields
from wsdsl.ir.ops import DimLoop, Load, Store, Whole
from wsdsl.ir.rewriter import rewrite
from wsdsl.lowering.axes import output_nest
from wsdsl.lowering.product_operands import multiplied


def hoist_loads(kernel: Kernel) -> Kernel:
    stored = {op.tensor for op in kernel.of(Store)}
    parallel = {loop.index for loop in output_nest(kernel)[0]}

    def leave(loop: Op) -> Iterable[Op]:
        """The loads that leave the loop, with the axes that they take whole, and the rest of it."""
        if not isinstance(loop, DimLoop) or loop.index in parallel:
            return (loop,)
        known = {op.result for op in loop.body if isinstance(op, Whole)}
        inside = {*bound(loop), *(v for op in loop.body for v in results_of(op))} - known
        taken = (x for x in loop.body if isinstance(x, Load) and x.result in multiplied(kernel))
        loads = [op for op in taken if op.tensor not in stored and not inside & {*operands(op)}]
        used = {v for op in loads for v in operands(op)}
        early = [op for op in loop.body if op in loads or used & known & {*results_of(op)}]
        rest = tuple(op for op in loop.body if op not in early)
        return (*early, with_fields(loop, body=rest))

    body = rewrite(kernel.body, leave)
    return kernel if body == kernel.body else kernel.with_body(body)
