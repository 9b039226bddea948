"""Barriers of warps, warpgroups, CTAs and clusters, and proxy fences."""

from __future__ import annotations

from wsdsl.codegen import nvvm
from wsdsl.codegen.emission_context import Context
from wsdsl.ir import ops


def convert_named_barrier_sync(
    c: Context, op: ops.NamedBarrierSync | ops.NamedBarrierArrive
) -> None:
    number = str(op.barrier) if op.item is None else c.w.add(c.scalar(op.item).text, op.barrier)
    threads, waits = 128 * op.num_warpgroups, isinstance(op, ops.NamedBarrierSync)
    nvvm.named_barrier(c.w, number, threads, waits)


convert_named_barrier_arrive = convert_named_barrier_sync


def convert_sync_cta(c: Context, _: ops.SyncCta) -> None:
    nvvm.sync_cta(c.w)


def convert_sync_cluster(c: Context, op: ops.SyncCluster) -> None:
    nvvm.sync_cluster(c.w, op.relaxed)


def convert_sync_warp(c: Context, _: ops.SyncWarp) -> None:
    nvvm.sync_warp(c.w)


def convert_fence_async_proxy(c: Context, op: ops.FenceAsyncProxy) -> None:
    nvvm.fence_async_proxy(c.w, op.everywhere)
