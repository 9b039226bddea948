"""Multicast tiles that several CTAs of a cluster read: each loads a part for all (PARTITIONED).

Before:
    %ring = pipeline(depth=4, layouts=((bf16[m, k], bf16[n, k]),), consumers=2)
    partition(role="load") {
      for_work(index=(%m, %n), dims=("M", "N"), cluster=(2, 1)) {
        for_tiles(index=%k) {
          ...
          load_to_slot(slot=%slot, field=0, tensor=%A, index=(%m, %k))
          load_to_slot(slot=%slot, field=1, tensor=%B, index=(%n, %k))
After:
    %ring = pipeline(depth=4, layouts=(...), consumers=2, multicast=(((2, 1),),))
          ...
          load_to_slot(slot=%slot, field=0, tensor=%A, index=(%m, %k))
          load_to_slot(slot=%slot, field=1, tensor=%B, index=(%n, %k), multicast=((2, 1),))
          ...
      producer_tail(ring=%ring)

A tile is equal along an index of the work if neither its coordinates nor any loop around it depends
on that index. It is split into groups of 8 lines, within which the swizzle exchanges address bits;
a tile that cannot be split evenly is loaded by each CTA separately, since each CTA that another
waits for must copy a part. If the loops of a pipeline depend on an index, the CTAs may take
different numbers of stages, and no tile is multicast. A pipeline that would be multicast in some
stages only is not: a CTA releases the stage of another CTA only after it has received a part from
it. Threads copy for their CTA alone, and so does the thread that loads tiles in parts. A CTA ends
after all CTAs have released its copies. With `Schedule.multicast=False` each CTA loads separately.

Why here: load partitions have separate loops, whose dependences are still explicit.
"""

import math
from collections.abc import Sequence

from wsdsl.diagnostics import CompileError
from wsdsl.ir.op import Kernel, Op, Region, Value, with_fields
from wsdsl.ir.ops import ForWork, LoadToSlot, Partition, Pipeline, ProducerAcquire, with_tails
from wsdsl.ir.rewriter import rewrite, walk
from wsdsl.lowering.cta_pairs import different_tiles, in_pairs, joint_rings
from wsdsl.lowering.dependence import depending, loops_depend
from wsdsl.lowering.multicast_groups import Group, comes_out_even
from wsdsl.lowering.schedule_findings import pair_fault


def assign_multicast(kernel: Kernel) -> Kernel:
    work = kernel.of(ForWork)[0]
    size = math.prod(work.cluster)
    loads = [op for op in kernel.body if isinstance(op, Partition) and op.role == "load"]
    sides = [op.body for op in loads if op.num_warpgroups]
    if in_pairs(kernel.schedule):
        return _in_halves(kernel, sides)
    unwanted = kernel.schedule is not None and kernel.schedule.multicast is False
    if size == 1 or unwanted or not sides:
        return kernel
    found: dict[LoadToSlot, Group] = {}
    for side in sides:
        (work,) = (op for op in side if isinstance(op, ForWork))
        found |= _in_every_slot(work, _groups(kernel, work))
    slots = {op.result: op.ring for op in kernel.of(ProducerAcquire)}
    groups: dict[Value, dict[Group, None]] = {}
    for op, group in sorted(found.items(), key=lambda pair: pair[0].field):
        if group:
            groups.setdefault(slots[op.slot], {})[group] = None

    def change(op: Op) -> tuple[Op]:
        if isinstance(op, LoadToSlot):
            op = with_fields(op, multicast=found.get(op, ()))
        elif isinstance(op, Pipeline):
            op = with_fields(op, multicast=tuple(groups.get(op.result, ())))
        elif isinstance(op, Partition):
            op = with_tails(op, groups.keys())
        return (op,)

    return kernel.with_body(rewrite(kernel.body, change))


def _in_halves(kernel: Kernel, sides: Sequence[Region]) -> Kernel:
    """Split the loads of a pair of CTAs: each loads the half of a common tile that its stages have;
    the producers of MMA operands wait at the end.
    """
    joint, found = joint_rings(kernel), dict[LoadToSlot, Group]()
    slots = {op.result: op.ring for op in kernel.of(ProducerAcquire)}
    for side in sides:
        (work,) = (op for op in side if isinstance(op, ForWork))
        for load, group in _groups(kernel, work).items():
            if slots[load.slot] in joint and any(axis.role == "columns" for axis in load.axes):
                found |= {load: group} if not load.box else {}
    for load, group in found.items():
        if not group:
            raise CompileError(pair_fault(different_tiles(load.tensor), load.loc))

    def change(op: Op) -> tuple[Op]:
        if isinstance(op, LoadToSlot) and op in found:
            op = with_fields(op, multicast=found[op], halved=True)
        elif isinstance(op, Partition) and op.role != "mma":
            op = with_tails(op, joint)
        return (op,)

    return kernel.with_body(rewrite(kernel.body, change))


def _groups(kernel: Kernel, work: ForWork) -> dict[LoadToSlot, Group]:
    """For each load, the (size, stride) of the ranks that want the same tile."""
    loads = [op for op in walk(work.body) if isinstance(op, LoadToSlot)]
    found: dict[LoadToSlot, Group] = dict.fromkeys(loads, ())
    stride = work.sharing
    for index, num in reversed(tuple(zip(work.index, work.cluster, strict=True))):
        if num > 1:
            varies = depending(work.body, index)
            if not loops_depend(work.body, varies):
                for load in loads:
                    group = ((num, stride), *found[load])
                    by_tma = load.tensor.name not in kernel.unaligned and not load.box
                    if by_tma and not varies & {*load.index} and _comes_out_even(load, group):
                        found[load] = group
        stride *= num
    return found


def _in_every_slot(work: ForWork, found: dict[LoadToSlot, Group]) -> dict[LoadToSlot, Group]:
    """Return the groups that are common to every stage of a pipeline."""
    slots = [op for op in walk(work.body) if isinstance(op, ProducerAcquire)]
    each = {op.result: {g for load, g in found.items() if load.slot == op.result} for op in slots}
    rings = {op.result: op.ring for op in slots}
    common = {
        ring: set.intersection(*(each[slot] for slot in each if rings[slot] == ring))
        for ring in rings.values()
    }
    return {load: g if g in common[rings[load.slot]] else () for load, g in found.items()}


def _comes_out_even(load: LoadToSlot, group: Group) -> bool:
    return comes_out_even(load.axes[0].size, math.prod(num for num, _ in group), load.packed)
