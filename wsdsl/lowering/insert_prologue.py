"""Begin the kernel: set up the mbarriers, share out the registers, elect the loading thread.

Before:
    %full: mbarrier<4> = allocate_barriers(label="full", arrivals=1)
    partition(role="load", registers=40) { ... }
    partition(role="compute", num_warpgroups=2, registers=232) { ... }
After:
    %full: mbarrier<4> = allocate_barriers(label="full", arrivals=1)
    elect() {
      initialize_barriers(barriers=%full)
      fence_barrier_init()
      prefetch_tensor_map(map=%a_map)
    }
    wait_predecessor()
    launch_dependents()
    sync_cta()
    partition(role="load", registers=40) {
      set_max_registers(count=40, increase=False)
      elect() { ... }
    }
    partition(role="compute", num_warpgroups=2, registers=232) {
      set_max_registers(count=232, increase=True)
      ...
    }

All this may happen while the kernel in front on the stream still runs; what follows must not.
In a cluster the CTAs meet instead, before the first reaches for another's SMEM and after the last.

Why here: all barriers and tensor maps are known.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.barrier_ops import (
    AllocateBarriers,
    Elect,
    FenceBarrierInit,
    InitializeBarriers,
    LaunchDependents,
    LaunchGrid,
    SetMaxRegisters,
    SyncCluster,
    SyncCta,
    WaitPredecessor,
)
from wsdsl.ir.memory_ops import MakeTensorMap, PrefetchTensorMap, ThreadLoad
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.walk import walk


def insert_prologue(kernel: Kernel) -> Kernel:
    barriers = [op.result for op in kernel.body if isinstance(op, AllocateBarriers)]
    maps = [op.result for op in kernel.body if isinstance(op, MakeTensorMap)]
    first: list[Op] = [InitializeBarriers(barriers=b) for b in barriers]
    if barriers:
        first.append(FenceBarrierInit())
    first += [PrefetchTensorMap(map=m) for m in maps]
    prologue: list[Op] = [Elect(body=tuple(first))] if first else []
    prologue += [WaitPredecessor(), LaunchDependents()]
    in_cluster = any(isinstance(op, LaunchGrid) and op.cluster > 1 for op in kernel.body)
    if barriers:
        prologue.append(SyncCluster() if in_cluster else SyncCta())
    last = [SyncCluster()] if in_cluster else []
    declared = [op for op in kernel.body if not isinstance(op, Partition)]
    partitions = [_begin(op) for op in kernel.body if isinstance(op, Partition)]
    return dataclasses.replace(kernel, body=(*declared, *prologue, *partitions, *last))


def _begin(op: Partition) -> Partition:
    body = op.body
    by_threads = any(isinstance(inner, ThreadLoad) for inner in walk(body))
    if op.role == "load" and not by_threads:
        body = (Elect(body=body, loc=op.loc),)
    if op.registers:
        increase = op.role != "load"
        own = SetMaxRegisters(count=op.registers, increase=increase, loc=op.loc)
        body = (own, *body)
    return dataclasses.replace(op, body=body)
