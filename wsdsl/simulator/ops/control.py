"""Structured control flow."""

from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Value
from wsdsl.simulator.warpgroup import Steps, Warpgroup


def run_yield(wg: Warpgroup, op: ops.Yield) -> None:
    """The op that has the region reads the values."""


def run_if(wg: Warpgroup, op: ops.If) -> Steps:
    chosen = op.then if wg.get(op.cond, op) else op.orelse
    _define(wg, op.result, (yield from wg.run(chosen)))


def run_elect(wg: Warpgroup, op: ops.Elect) -> Steps:
    """Outside of the partitions, thread 0 of the CTA is elected."""
    if wg.rank == 0 and (wg.in_partition or wg.index == 0):
        wg.elected = True
        yield from wg.run(op.body)
        wg.elected = False


def run_for_range(wg: Warpgroup, op: ops.ForRange) -> Steps:
    start, stop, step = (int(wg.get(v, op)) for v in (op.start, op.stop, op.step))
    if step <= 0:
        wg.fail(op, f"the loop has a step of {step}")
    carried: tuple[Any, ...] = tuple(wg.values[v.name] for v in op.init)
    depth = len(wg.loops)
    wg.loops.append((op.index.name, start))
    i = start
    while i < stop:
        wg.loops[depth] = op.index.name, i
        wg.values[op.index.name] = i
        _define(wg, op.args, carried)
        carried = yield from wg.run(op.body)
        i = int(carried[-1]) if op.claimed else i + step
    wg.loops.pop()
    _define(wg, op.result, carried)


def _define(wg: Warpgroup, results: tuple[Value, ...], values: tuple[Any, ...]) -> None:
    for value, operand in zip(results, values, strict=True):
        wg.values[value.name] = operand
    wg.operands.carried(results, wg.wgmma.fences)
