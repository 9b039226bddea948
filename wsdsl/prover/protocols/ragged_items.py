"""Items of ragged loops: all CTAs walk the groups, and the items of all groups are one sequence.

    %end = for_range(index=%group, start=%a, stop=%b, step=%c, init=(%cta,), args=(%at,)) {
      %num: i32 = ... the items of the group ...
      for_range(index=%work, start=%at, stop=%num, step=%num_ctas) { ... }
      %next: i32 = map(fn="mod", args=(%at + %num_ctas - %num % %num_ctas, %num_ctas))
      yield(values=(%next,))
    }

`%at` is `%cta` minus the items of the groups before, modulo the number of CTAs. If all CTAs find
the same numbers of items, `%at` differs between any two of them, so that no two process an item.
"""

from collections.abc import Set

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import touch_of
from wsdsl.ir.op import Value, operands
from wsdsl.ir.rewriter import yielded
from wsdsl.prover.machine.linear import Sums


def loop_of_group(
    groups: ops.Loop, grid: ops.LaunchGrid, sums: Sums, written: Set[str]
) -> ops.Loop | None:
    """Return the loop over the items of a group, in the loop over groups; None if CTAs may process
    the same items. `written`: tensors that the kernel writes.
    """
    worker, workers = map(sums.special, grid.worker)
    for op in groups.body:
        if not isinstance(op, ops.Loop) or op.bounds[0] not in groups.args:
            continue
        start, stop, step = map(sums.of, op.bounds)
        carried = groups.args.index(op.bounds[0])
        first, following = groups.init[carried], yielded(groups.body)[carried]
        behind = sums.apply("mod", start + workers - sums.apply("mod", stop, workers), workers)
        bounds = (*groups.bounds, op.bounds[1])
        alike = all(is_uniform(v, sums, written, groups.index) for v in bounds)
        if (sums.of(first), step, sums.of(following)) == (worker, workers, behind) and alike:
            return op
    return None


def is_uniform(value: Value, sums: Sums, written: Set[str], index: Value | None = None) -> bool:
    """Whether a scalar is the same in all CTAs; `index`: that of a loop that all of them walk."""
    op = sums.made.get(value)
    if op is None or value == index:
        return True
    if isinstance(op, ops.SpecialRegister):
        return op.within is None
    touch = touch_of(op, sums.made)
    same = op.pure if touch is None else op.repeatable and touch.tensor not in written
    return same and all(is_uniform(v, sums, written, index) for v in operands(op))
