"""Rules of SCHEDULED kernels whose clusters claim others: in iteration j of the loops over tiles,
all partitions of the cluster have the j-th answer.

Each such loop takes the answers one by one: states begin at stage 0 and go on by one an iteration,
and each iteration asks once and reads once. That what is read has come, and is not overwritten
meanwhile, is the prover's matter.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Makers, Problem, Region, Value, operands, regions
from wsdsl.ir.ops import Constant, If, Map
from wsdsl.ir.rewriter import walk, yielded
from wsdsl.ir.types import I32, Shared, Tile
from wsdsl.ir.verify.synchronization import cluster_of

DYNAMIC = "dynamic"


def claims_match_grid(kernel: Kernel) -> Iterator[Problem]:
    """Claims need a dynamic grid, on a GPU with cluster launch control."""
    grid = ops.grid_of(kernel)
    claims = kernel.of(ops.ClcTryCancel)
    loops = [op for op in kernel.having("claimed") if getattr(op, "claimed", False)]
    if grid is not None and grid.scheduler == DYNAMIC:
        if not kernel.target.claims_clusters:
            yield grid, f"{kernel.target} has no cluster launch control"
        if len(claims) != 1:
            yield grid, f"a dynamic grid needs one clc_try_cancel, not {len(claims)}"
    else:
        for op in (*claims, *loops):
            yield op, 'claims need launch_grid(scheduler="dynamic")'


def responses_are_read_in_order(kernel: Kernel) -> Iterator[Problem]:
    made = kernel.definers
    claims = kernel.of(ops.ClcTryCancel)
    answers = {op.shared for op in claims}
    reads, loops = kernel.of(ops.ClcQueryCancel), kernel.of(ops.ForRange)
    if not claims and not reads and not any(loop.claimed for loop in loops):
        return
    for op in kernel.ops:
        if isinstance(op, (ops.ClcTryCancel, ops.ClcQueryCancel)) and op.ctas != cluster_of(kernel):
            yield op, f"ctas={op.ctas}: a CLC response reaches all {cluster_of(kernel)} CTAs"
        known = isinstance(op, (ops.ClcTryCancel, ops.ClcQueryCancel))
        if not known and answers & {*operands(op)}:
            yield op, "only clc_query_cancel can read a CLC response"
        if isinstance(op, ops.ClcQueryCancel) and op.shared not in answers:
            yield op, f"no clc_try_cancel writes a response to {op.shared}"

    def visit(region: Region, loops: tuple[ops.ForRange, ...], first: int) -> Iterator[Problem]:
        """`first`: of how many tests around only the cluster's first CTA is; -1 with others."""
        for op in region:
            match op:
                case ops.ForRange(claimed=True):
                    yield from _loop(op, made)
                    if loops:
                        yield op, "a loop over claimed items cannot be nested"
                case ops.ClcTryCancel():
                    if len(loops) != 1 or not loops[0].claimed:
                        yield op, "each iteration of a loop over claimed items must claim once"
                    elif not _in_turn(op.state, op.shared, loops[0], made):
                        yield op, _TURNS
                    if first < 0 or (op.ctas > 1) != (first > 0):
                        yield op, "only the first CTA of the cluster can claim, by its rank alone"
                case ops.ClcQueryCancel():
                    if not loops or op not in loops[-1].body or not loops[-1].claimed:
                        yield op, "clc_query_cancel must be on every path of a loop over claims"
                    elif not _in_turn(op.state, op.shared, loops[-1], made):
                        yield op, _TURNS
                case _:
                    pass
            inner = (*loops, op) if isinstance(op, ops.ForRange) else loops
            for number, body in enumerate(regions(op)):
                own = first
                if isinstance(op, If):
                    own = first + 1 if first >= 0 and not number and _is_first(op, made) else -1
                yield from visit(body, inner, own)

    yield from visit(kernel.body, (), 0)


_TURNS = "the state of responses must start at stage 0 and advance once per iteration"


def _loop(op: ops.ForRange, made: Makers) -> Iterator[Problem]:
    """It begins with the cluster's own index, and goes on with the iteration's answer."""
    if not isinstance(made.get(op.start), (ops.ClusterIndex, ops.CtaIndex)):
        yield op, "a loop over claimed items must start with cta_index or cluster_index"
    last = yielded(op.body)[-1:]
    reads = [o for o in walk(op.body) if isinstance(o, ops.ClcQueryCancel)]
    if len(reads) != 1 or [o.result for o in reads] != [*last]:
        yield op, "the loop must carry the result of its only clc_query_cancel as its last value"
    if last and last[0].type != Tile(I32):
        yield op, "the index of a claimed item must be an i32"


def _in_turn(state: Value, shared: Value, loop: ops.ForRange, made: Makers) -> bool:
    if state not in loop.args or not isinstance(shared.type, Shared):
        return False
    at = loop.args.index(state)
    following = made.get(yielded(loop.body)[at])
    first, num = made.get(loop.init[at]), shared.type.num
    return following in loop.body and ops.counts_stages(first, following, state, num)


def _is_first(op: If, made: Makers) -> bool:
    match made.get(op.cond):
        case Map(fn="eq", args=(x, y)):
            zero = Constant(result=y, value=0)
            return isinstance(made.get(x), ops.CtaRank) and made.get(y) == zero
        case _:
            return False
