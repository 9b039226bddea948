"""Kernels whose clusters claim their tiles, and every small way to break that."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

from tests.kernels import CASES
from tests.simulator.mutants import changes, exchange
from tests.tensor_memory import lowered
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Value, operands, results_of
from wsdsl.ir.ops import If, Yield
from wsdsl.ir.printer import print_head
from wsdsl.ir.rewriter import walk, yielded

FORMS: dict[str, dict[str, Any]] = {
    "alone": dict(scheduler="dynamic"),
    "pair": dict(scheduler="dynamic", cta_group=2),
    "cluster": dict(scheduler="dynamic", cluster=dict(m=2)),
}


@cache
def claimed(form: str = "alone") -> Kernel:
    return lowered(CASES["gemm"], tile=dict(m=128, n=64), stages=3, **FORMS[form])


def of_claims(kernel: Kernel) -> frozenset[Value]:
    """The answers, their barriers and their states."""
    asks = next(op for op in kernel.ops if isinstance(op, ops.ClcTryCancel))
    held = {asks.shared, asks.barriers}
    reads = [op for op in kernel.ops if isinstance(op, ops.ClcQueryCancel)]
    states = {op.state for op in (asks, *reads)}
    for op in kernel.ops:
        if isinstance(op, (ops.MbarrierWait, ops.MbarrierArrive)) and op.state in states:
            held.add(op.barriers)
    for op in kernel.ops:
        if isinstance(op, ops.MbarrierWait) and op.barriers in held:
            states.add(op.state)
        if isinstance(op, ops.ForRange) and op.claimed:
            own = zip(op.init, op.args, op.result, yielded(op.body), strict=True)
            states |= {v for four in own if four[1] in states for v in four}
    return frozenset(held | states)


def _changes(op: Op) -> Iterator[tuple[str, tuple[Op, ...]]]:
    if not results_of(op) and not isinstance(op, (Yield, If, ops.LaunchGrid)):
        yield "delete", ()
        yield "twice", (op, op)
    match op:
        case ops.ForRange():
            yield "not claimed", (replace(op, claimed=False),)
            last = op.body[-1]
            assert isinstance(last, Yield)
            body = (*op.body[:-1], Yield(values=(*last.values[:-1], op.index)))
            yield "same index", (replace(op, body=body),)
            yield "ends early", (replace(op, stop=op.step),)
        case ops.ClcTryCancel() | ops.ClcQueryCancel():
            yield "ctas", (replace(op, ctas=3 - op.ctas),)
        case ops.MbarrierArriveExpectTx():
            for by in (-16, 16):
                yield f"bytes {by:+}", (replace(op, tx_bytes=op.tx_bytes + by),)
        case ops.MbarrierArrive():
            yield "one warp", (replace(op, each_warp=not op.each_warp),)
            if op.cta is not None:
                yield "own barrier", (replace(op, cta=None),)
        case ops.AllocateMbarriers() | ops.InitialState() | ops.Advance():
            yield from ((what, (made,)) for what, made in changes(op))
        case ops.LaunchGrid():
            yield "persistent", (replace(op, scheduler="persistent"),)
        case If():
            yield "other CTA", (replace(op, then=op.orelse, orelse=op.then),)
            yield "both CTAs", (*op.then[:-1],)
        case _:
            pass


def mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """(what was broken, the kernel), of all that has to do with claims."""
    held, members = of_claims(kernel), list(walk(kernel.body))
    for at, op in enumerate(members):
        own = held & {*operands(op), *results_of(op)}
        asks = isinstance(op, If) and any(isinstance(o, ops.ClcTryCancel) for o in walk((op,)))
        after = isinstance(op, ops.FenceAsyncProxy) and isinstance(
            members[at - 1], ops.ClcQueryCancel
        )
        met = isinstance(op, ops.SyncWarp) and isinstance(members[at - 2], ops.ClcQueryCancel)
        if isinstance(op, ops.ForRange) and not op.claimed:
            continue
        if not (own or asks or after or met or isinstance(op, ops.LaunchGrid)):
            continue
        for what, new in _changes(op):
            yield f"{what} op {at}: {print_head(op)}", exchange(kernel, at, *new)
    yield from _moved(kernel)


def _moved(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Neighbours that concern claims, the other way round."""
    held, members = of_claims(kernel), list(walk(kernel.body))
    for at, (op, following) in enumerate(pairwise(members)):
        kinds = (
            ops.MbarrierWait,
            ops.MbarrierArrive,
            ops.MbarrierArriveExpectTx,
            ops.ClcTryCancel,
            ops.ClcQueryCancel,
        )
        kinds += ops.FenceAsyncProxy, ops.SyncWarp
        if not isinstance(op, kinds) or not isinstance(following, kinds):
            continue
        if not held & {*operands(op), *operands(following)}:
            continue
        if {*results_of(op)} & {*operands(following)}:
            continue
        mutant = exchange(exchange(kernel, at + 1), at, following, op)
        yield f"swapped op {at}: {print_head(op)}", mutant
