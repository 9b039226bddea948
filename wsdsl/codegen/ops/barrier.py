"""Barriers of warps, warpgroups, CTAs and clusters, and proxy fences."""

from wsdsl.codegen import nvvm
from wsdsl.codegen.emission_context import Context
from wsdsl.ir import ops


def convert_named_barrier_sync(
    c: Context, op: ops.NamedBarrierSync | ops.NamedBarrierArrive
) -> None:
    number = str(op.barrier) if op.item is None else c.w.add(c.scalar(op.item).text, op.barrier)
    args = [("i32", number), ("i32", str(128 * op.num_warpgroups))]
    kind = "sync" if isinstance(op, ops.NamedBarrierSync) else "arrive"
    c.w.call(f"llvm.nvvm.barrier.cta.{kind}.aligned.count", "void", args)


convert_named_barrier_arrive = convert_named_barrier_sync


def convert_sync_cta(c: Context, _: ops.SyncCta) -> None:
    c.w.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", "0")])


def convert_sync_cluster(c: Context, op: ops.SyncCluster) -> None:
    order = ".relaxed" if op.relaxed else ""
    c.w.call(f"llvm.nvvm.barrier.cluster.arrive{order}.aligned", "void")
    c.w.call("llvm.nvvm.barrier.cluster.wait.aligned", "void")


def convert_sync_warp(c: Context, _: ops.SyncWarp) -> None:
    c.w.call("llvm.nvvm.bar.warp.sync", "void", [("i32", nvvm.ALL_LANES)])


def convert_fence_async_proxy(c: Context, op: ops.FenceAsyncProxy) -> None:
    nvvm.fence_async_proxy(c.w, op.everywhere)
