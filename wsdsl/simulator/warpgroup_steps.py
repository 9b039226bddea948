"""Execution of a kernel's body by a warpgroup, as a coroutine.

A file of `simulator/ops` has one function per op `x` of its family: `value_of_x` returns the result
of an op that neither waits nor accesses memory; `run_x` runs an op that no other warpgroup
observes; `x` runs any other op, before which another warpgroup may run.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from wsdsl.ir.op import THREADS, Kernel, Op, Region, by_op
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import Tile
from wsdsl.simulator import ops
from wsdsl.simulator.state.tmem_races import begin_columns
from wsdsl.simulator.warpgroup import Steps, Warpgroup, op_word

Run = Callable[[Warpgroup, Any], Steps | None]
VALUES: dict[type[Op], Callable[[Warpgroup, Any], Any]] = by_op(ops, prefix="value_of_")
INVISIBLE_OPS: dict[type[Op], Run] = by_op(ops, prefix="run_")
VISIBLE_OPS: dict[type[Op], Run] = by_op(ops)


def warpgroup_steps(kernel: Kernel, wg: Warpgroup) -> Steps:
    """Run the kernel as one warpgroup; fail if an operation is in flight at the end."""
    for param in kernel.params:
        if isinstance(param.type, Tile):
            wg.values[param.name] = wg.cta.arguments.scalars[param.name]
    wg.run = partial(_run, wg)
    yield from _run(wg, kernel.body)
    _check_end(wg, kernel.body[-1])


def assign(wg: Warpgroup, op: Any) -> bool:
    """Compute the result of an op in `VALUES`; False for another op."""
    value_of = VALUES.get(type(op))
    if value_of is not None:
        wg.values[op.result.name] = value_of(wg, op)
    return value_of is not None


def _run(wg: Warpgroup, region: Region) -> Steps:
    has_operands = bool(wg.operands.names)
    for op in region:
        kind = type(op)
        if wg.effects is not None:
            wg.effect(op, "run", "threads", wg.actors, wg.integers())
        if wg.elected or THREADS[kind] == "one":
            wg.check_threads(op)
        run = VISIBLE_OPS.get(kind)
        if run is not None:
            yield None
            wg.note(op)
            if wg.cta.tensor_memory is not None:
                begin_columns(wg, op)
        elif not assign(wg, op):
            run = INVISIBLE_OPS.get(kind)
            if run is None:
                wg.fail(op, f"the simulator does not support {op_word(op)}")
        waiting = run(wg, op) if run else None
        if waiting is not None:
            yield from waiting
        if has_operands:
            wg.operands.note(op, wg.wgmma.fences)
    return tuple(wg.values[v.name] for v in yielded(region))


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
