"""Control flow: events of PTX."""

from dataclasses import replace

from wsdsl.ir import ops
from wsdsl.ir.rewriter import yielded
from wsdsl.prover.ptx.loop_events import loop_events
from wsdsl.prover.ptx.sync_events import EVERYBODY, Letter
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def trace_if(t: TraceBuilder, op: ops.If, who: ThreadSet) -> None:
    known, before, ends = t.known.get(op.cond), t.now, list[int]()
    own = t.by_warpgroup.get(op.cond, (known,) * (t.places.num_threads // 128))
    for body, wanted in (op.then, True), (op.orelse, False):
        if not (groups := [g for g, x in enumerate(own) if x is None or bool(x) == wanted]):
            continue
        threads = EVERYBODY
        if len(groups) < len(own):
            threads = sum(ThreadSet(group, 1).one_in(1) for group in groups)
        t.now = t.silent(before, threads=threads)
        t.region(body, who)
        t.changed(list(zip(op.result, yielded(body), strict=True)))
        ends.append(t.now)
    t.now = t.silent(*ends)


def trace_elect(t: TraceBuilder, op: ops.Elect, who: ThreadSet) -> None:
    before = t.now
    threads = 1
    if who.inside:
        threads = (1 << 32) - 1 << 128 * who.first + 32 * who.warp
        t.now = t.graph.node(Letter("elect.sync"), op, threads)
        t.graph.join(before, t.now)
    else:
        t.now = t.silent(before, threads=threads)
    elected = t.now
    t.region(op.body, replace(who, elected=True))
    # Which lane is elected is not known.
    done = t.silent(t.now, *([elected] if who.inside else []))
    t.now = t.silent(done, t.silent(before, threads=~threads))


def trace_for_range(t: TraceBuilder, op: ops.ForRange, who: ThreadSet) -> None:
    loop_events(t, op, who)
