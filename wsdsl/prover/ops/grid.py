"""Indices of CTAs and warpgroups, and registers per thread."""

from collections.abc import Callable

from wsdsl.ir import ops
from wsdsl.ir.op import Op
from wsdsl.prover.machine.instructions import BLOCKED, LOCAL, SEEN, Instruction, Run
from wsdsl.prover.machine.machine import Agent, Machine
from wsdsl.prover.machine.model import Model
from wsdsl.prover.machine.symbolic_terms import Term, apply
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def setmaxnreg(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Setmaxnreg = i.op
    if op.count % 8 or not 24 <= op.count <= 256:
        told = f"setmaxnreg needs a multiple of 8 from 24 to 256, not {op.count} registers"
        raise a.fail("registers", op, told)
    taken = op.count - a.registers
    if taken and op.increase != (taken > 0):
        more = "more" if op.increase else "fewer"
        told = f"{op.count} registers per thread are not {more} than {a.registers}"
        raise a.fail("registers", op, told)
    if taken > m.pool[a.cta]:
        return BLOCKED
    m.pool[a.cta] -= taken
    a.registers = op.count
    return SEEN


def _register(number: Callable[[Model, Agent], Term]) -> Run:
    def read(m: Machine, a: Agent, i: Instruction) -> int:
        a.slots[i.defines[0]] = number(m.model, a)
        return LOCAL

    return read


def _cta(model: Model, a: Agent) -> Term:
    """The index of the CTA in the grid."""
    if model.sizes is not None:
        return a.cta
    rank = model.ranks[a.cta]
    if rank is None or model.cluster == 1:
        return ("cta",)
    return apply("add", (apply("mul", (("group", model.cluster), model.cluster)), rank))


def _count(model: Model, what: str, size: int) -> Term:
    """The number of CTAs, or of clusters, of `size` CTAs in the grid."""
    return (what,) if model.sizes is None else len(model.ctas) // size


cta_index = _register(_cta)
num_ctas = _register(lambda model, _: _count(model, "ctas", 1))
cluster_index = _register(lambda model, a: apply("floordiv", (_cta(model, a), model.cluster)))
num_clusters = _register(lambda model, _: _count(model, "clusters", model.cluster))
cta_rank = _register(lambda model, a: model.rank(a.cta))
warpgroup_index = _register(lambda _, a: a.rank)


def trace_launch_grid(t: TraceBuilder, op: ops.LaunchGrid, _: ThreadSet) -> None:
    t.cluster = t.places.ranks = op.cluster


def trace_cta_rank(t: TraceBuilder, op: ops.CtaRank, _: ThreadSet) -> None:
    t.by_rank[op.result] = tuple(range(t.cluster))


def trace_warpgroup_index(t: TraceBuilder, op: ops.WarpgroupIndex, who: ThreadSet) -> None:
    groups = range(t.places.num_threads // 128)
    t.by_warpgroup[op.result] = tuple(g - who.first for g in groups)


def trace_setmaxnreg(t: TraceBuilder, op: ops.Setmaxnreg, _: ThreadSet) -> None:
    t.emit(op, f"setmaxnreg.{'inc' if op.increase else 'dec'}", str(op.count))


SPECIAL: dict[type[Op], str] = {
    ops.CtaIndex: "%ctaid.x", ops.NumCtas: "%nctaid.x", ops.CtaRank: "%cluster_ctarank",
    ops.ClusterIndex: "%clusterid.x", ops.NumClusters: "%nclusterid.x",
    ops.WarpgroupIndex: "%warpgroup",
}  # fmt: skip


def numbers_of(cta: int, num_clusters: int, cluster: int) -> dict[type[Op], int]:
    """Return the special registers of a CTA in a grid of clusters of `cluster` CTAs."""
    numbers = cta, num_clusters * cluster, cta % cluster, cta // cluster, num_clusters
    return dict(zip(SPECIAL, numbers, strict=False))
