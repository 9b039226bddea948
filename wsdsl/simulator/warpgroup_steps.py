"""A warpgroup's run through a kernel's body, as a coroutine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import THREADS, Kernel, Op, Region, Value, by_op
from wsdsl.ir.ops import Partition
from wsdsl.ir.types import Tile
from wsdsl.simulator.ops import (
    barrier,
    clc,
    cluster,
    gmem,
    histogram,
    mbarrier,
    reduction,
    smem,
    tcgen05,
    tma,
    wgmma,
)
from wsdsl.simulator.ops.fragment import assign
from wsdsl.simulator.warpgroup import Steps, Warpgroup, op_word

UNSEEN = (ops.AllocateGlobal, ops.PrefetchTensorMap, ops.PrefetchBox, ops.PrefetchTile)
"""The launch has allocated the tensor, and no thread sees what comes to a cache."""
SEEN: dict[type[Op], Callable[[Warpgroup, Any], Steps | None]] = {
    **dict.fromkeys(UNSEEN, lambda _, __: None),
    **by_op(
        clc, cluster, tma, histogram, gmem, reduction, smem,
        mbarrier, wgmma, tcgen05, barrier,
    ),
}  # fmt: skip
"""Ops that others can see, or that depend on others: any warpgroup may be overtaken before one."""


def warpgroup_steps(kernel: Kernel, wg: Warpgroup) -> Steps:
    """Run the kernel as one warpgroup; ends in what must not be left over."""
    for param in kernel.params:
        if isinstance(param.type, Tile):
            wg.values[param.name] = wg.cta.arguments.scalars[param.name]
    yield from _run(wg, kernel.body)
    _check_end(wg, kernel.body[-1])


def _run(wg: Warpgroup, region: Region) -> Steps:
    has_operands = bool(wg.operands.names)
    for op in region:
        kind = type(op)
        if wg.effects is not None:
            wg.effect(op, "run", "threads", wg.actors)
        if wg.elected or THREADS[kind] == "one":
            wg.check_threads(op)
        if assign(wg, op):
            if has_operands:
                wg.operands.note(op, wg.wgmma.fences)
            continue
        seen = SEEN.get(kind)
        if seen is not None:
            yield None
            wg.note(op)
            waiting = seen(wg, op)
            if waiting is not None:
                yield from waiting
            if has_operands:
                wg.operands.note(op, wg.wgmma.fences)
            continue
        match op:
            case ops.Yield():
                return tuple(wg.values[v.name] for v in op.values)
            case ops.ForRange():
                yield from _for_range(wg, op)
            case ops.If():
                chosen = op.then if wg.get(op.cond, op) else op.orelse
                _define(wg, op.result, (yield from _run(wg, chosen)))
            case ops.Elect():
                # Outside of the partitions the CTA's thread 0 is meant.
                if wg.rank == 0 and (wg.in_partition or wg.index == 0):
                    wg.elected = True
                    yield from _run(wg, op.body)
                    wg.elected = False
            case Partition():
                if wg.partition is op:
                    wg.in_partition = True
                    yield from _run(wg, op.body)
                    if op.registers > wg.registers:
                        told = f"{op.registers} registers per thread and has {wg.registers}"
                        hint = "add a setmaxnreg"
                        wg.fail(op, f"the partition is compiled for {told}", hint=hint)
                    wg.in_partition = False
            case ops.GriddepWait():
                wg.effect(op, "wait", "grid", wg.actors)
            case ops.GriddepLaunchDependents():
                wg.effect(op, "arrive", "grid", wg.actors)
            case ops.LaunchGrid():
                pass
            case _:
                wg.fail(op, f"the simulator does not support {op_word(op)}")
    return ()


def _define(wg: Warpgroup, results: tuple[Value, ...], values: tuple[Any, ...]) -> None:
    for value, held in zip(results, values, strict=True):
        wg.values[value.name] = held
    wg.operands.carried(results, wg.wgmma.fences)


def _for_range(wg: Warpgroup, op: ops.ForRange) -> Steps:
    start, stop, step = (int(wg.get(v, op)) for v in (op.start, op.stop, op.step))
    if step <= 0:
        wg.fail(op, f"the loop has a step of {step}")
    carried: tuple[Any, ...] = tuple(wg.values[v.name] for v in op.init)
    place = len(wg.loops)
    wg.loops.append((op.index.name, start))
    i = start
    while i < stop:
        wg.loops[place] = op.index.name, i
        wg.values[op.index.name] = i
        _define(wg, op.args, carried)
        carried = yield from _run(wg, op.body)
        i = int(carried[-1]) if op.claimed else i + step
    wg.loops.pop()
    _define(wg, op.result, carried)


def _check_end(wg: Warpgroup, op: Op) -> None:
    if wg.wgmma.open or wg.wgmma.groups:
        last = [*wg.wgmma.open, *(p for group in wg.wgmma.groups for p in group)][-1]
        wg.fail(last.op, "the kernel ends, but no wgmma_wait has completed this wgmma")
    if wg.tensor_pipe.queue:
        last = wg.tensor_pipe.queue[-1]
        wg.fail(last.op, "the kernel ends, but no wait has completed this op")
    if wg.index == 0 and wg.cta.tensor_memory is not None:
        wg.fail(op, "the kernel ends, but its tensor memory is not freed")
    if wg.open_stores.stores:
        wg.fail(wg.last_store(op), "the kernel ends, but this store is not committed")
    if any(group.stores for group in wg.store_groups[wg.read_groups :]):
        wg.fail(
            wg.last_store(op),
            "the kernel ends while this store may still read SMEM",
            hint="end with tma_store_wait(pending=0)",
        )
