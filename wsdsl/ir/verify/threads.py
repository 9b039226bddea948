"""Which threads run an op together, as its class says (`op_class`): spec, simulator and prover ask.

An `elect` runs its body in one thread, so its ops need one thread only. A fragment is
spread over all 128 threads of a warpgroup: every op on one needs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir import ops
from wsdsl.ir.op import THREADS, Kernel, Op, Region, Threads, bound, operands, regions, results_of
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.ops import Partition
from wsdsl.ir.types import Accumulator, Fragment

WHOLE: tuple[Threads, ...] = ("warps", "warpgroup", "cta")
"""Ops that a single thread cannot run."""


def threads_of(op: Op) -> Threads:
    told = THREADS[type(op)]
    if told != "any":
        return told
    if isinstance(op, ops.MbarrierArrive) and (op.each_warp or op.each_thread):
        return "warpgroup"
    values = (*operands(op), *results_of(op), *bound(op))
    spread = any(isinstance(v.type, (Fragment, Accumulator)) for v in values)
    return "warpgroup" if spread else "any"


def misplaced(op: Op, elected: bool) -> tuple[str, str]:
    """Why an op may not be run by one elected thread, or by all; and a hint. "" if it may."""
    threads = threads_of(op)
    if threads == "one" and not elected:
        return "needs exactly one thread", "put it in an `elect`"
    if elected and isinstance(op, ops.Elect):
        return "is within an `elect` already", "remove the inner `elect`, and keep its body"
    if elected and threads in WHOLE:
        return "needs all threads of its warps", "move it out of the `elect`"
    return "", ""


def ops_match_threads(kernel: Kernel) -> Iterator[tuple[Op | None, str]]:
    parted = any(isinstance(op, Partition) for op in kernel.body)

    def visit(region: Region, elected: bool, shared: bool, depth: int) -> Iterator[tuple[Op, str]]:
        """`shared`: threads of several partitions run it."""
        for op in region:
            # Whether it has fragments is asked where not all may have some.
            threads = threads_of(op) if elected or shared else THREADS[type(op)]
            told, hint = misplaced(op, elected) if elected or threads == "one" else ("", "")
            if told:
                yield op, f"{op_name(type(op))} {told}: {hint}"
            elif threads == "kernel" and depth:
                yield op, f"{op_name(type(op))} must be outside of any region"
            elif threads == "warpgroup" and shared:
                told = "needs the warpgroups of one partition: put it in a partition"
                yield op, f"{op_name(type(op))} {told}"
            for inner in regions(op):
                inside = shared and not isinstance(op, Partition)
                yield from visit(inner, elected or isinstance(op, ops.Elect), inside, depth + 1)

    yield from visit(kernel.body, False, parted, 0)
