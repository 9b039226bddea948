"""Partitions of the warpgroups of a CTA."""

from wsdsl.ir import ops
from wsdsl.simulator.warpgroup import Steps, Warpgroup


def run_partition(wg: Warpgroup, op: ops.Partition) -> Steps:
    if wg.partition is not op:
        return
    wg.in_partition = True
    yield from wg.run(op.body)
    if op.registers > wg.registers:
        needed = f"{op.registers} registers per thread and has {wg.registers}"
        wg.fail(op, f"the partition is compiled for {needed}", hint="add a setmaxnreg")
    wg.in_partition = False
