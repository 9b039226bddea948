"""The events of loops, as codegen is to emit them.

Of loops of the same bounds that follow one another all run, or none; LLVM may ask for each,
or once for all. Hence two skeletons: one in which each loop may be empty by itself,

    (loop a)* (loop b)*

and one with a way for each answer, with the events after the first loop on both:

    (loop a)+ (loop b)+ | nothing
"""

from wsdsl.ir.op import Op, Region, Value
from wsdsl.ir.ops import ForRange
from wsdsl.ir.rewriter import walk, yielded
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder

Bounds = tuple[Value, Value]


def bounds_of_loops(region: Region) -> list[Bounds]:
    return [(op.start, op.stop) for op in walk(region) if isinstance(op, ForRange)]


def of_several(made: TraceBuilder, op: Op, behind: Region) -> Bounds | None:
    """The bounds of a loop, if a later one has them, too, and whether they run is still open."""
    if not isinstance(op, ForRange):
        return None
    bounds = op.start, op.stop
    if bounds in made.decided or bounds in made.around:
        return None
    return bounds if bounds in bounds_of_loops(behind) else None


def both_ways(made: TraceBuilder, bounds: Bounds, region: Region, who: ThreadSet) -> None:
    """The region where loops of these bounds run, and where they do not."""
    before, ends = made.now, list[int]()
    for runs in (True, False):
        made.now, made.decided[bounds] = made.silent(before), runs
        made.region(region, who)
        ends.append(made.now)
    del made.decided[bounds]
    made.now = made.silent(*ends)


def loop_events(made: TraceBuilder, op: ForRange, who: ThreadSet) -> None:
    start, stop = made.known.get(op.start), made.known.get(op.stop)
    bounds = op.start, op.stop
    # One that is within another with its bounds is run, also for LLVM.
    runs = True if bounds in made.around else made.decided.get(bounds)
    if start is not None and stop is not None:
        runs = start < stop
    before = made.now
    if runs is not False:
        made.changed(list(zip(op.args, op.init, strict=True)))
        first = made.now = made.silent(made.now)
        made.around.append(bounds)
        made.region(op.body, who)
        made.around.pop()
        results = yielded(op.body)
        end = made.now
        made.changed(list(zip(op.args, results, strict=True)))
        made.graph.join(made.now, first)
        made.now = made.silent(end)
        made.changed(list(zip(op.result, results, strict=True)))
    after = made.now
    if not runs:
        made.now = before
        made.changed(list(zip(op.result, op.init, strict=True)))
        made.now = made.silent(made.now, *([] if runs is False else [after]))
