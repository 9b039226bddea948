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

from wsdsl.ir import ops
from wsdsl.ir.rewriter import yielded
from wsdsl.prover.machine.carried_scalars import Formulas
from wsdsl.prover.machine.linear import Sums


def loop_of_group(
    groups: ops.Loop, grid: ops.LaunchGrid, sums: Sums, formulas: Formulas
) -> ops.Loop | None:
    """Return the loop over the items of a group, in the loop over groups; None if CTAs may process
    the same items. `formulas`: of what is the same in all CTAs.
    """
    worker, workers = map(sums.special, grid.worker)
    for op in groups.body:
        if not isinstance(op, ops.Loop) or op.bounds[0] not in groups.args:
            continue
        start, stop, step = map(sums.of, op.bounds)
        carried = groups.args.index(op.bounds[0])
        first, following = groups.init[carried], yielded(groups.body)[carried]
        behind = sums.apply("mod", start + workers - sums.apply("mod", stop, workers), workers)
        alike = None not in formulas.within((groups,), (*groups.bounds, op.bounds[1]))
        if (sums.of(first), step, sums.of(following)) == (worker, workers, behind) and alike:
            return op
    return None
