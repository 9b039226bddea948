"""One function per SCHEDULED op: IR in, LLVM text out. What has no function fails by name.

Elementwise maths, direct accesses to GMEM, stores to SMEM and control flow have files of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from wsdsl.codegen import inline_ptx, nvvm
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import cut_columns, iota, texts_of
from wsdsl.codegen.llvm_types import shape_of
from wsdsl.codegen.ops import (
    block_reduction,
    cast,
    cluster,
    control,
    gmem,
    histogram,
    map,
    mbarrier,
    reduction,
    smem,
    smem_load,
    tcgen05,
    thread_load,
    thread_store,
    tma,
    transpose,
    wgmma,
)
from wsdsl.codegen.ops.register_operands import convert_layout
from wsdsl.codegen.value_registers import Held, Registers, Scalar, SharedAt, StateAt
from wsdsl.diagnostics import CompileError
from wsdsl.ir import ops
from wsdsl.ir.op import Op, Region, Value, by_op
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.ops import Partition
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import I32, Shared


def convert_region(c: Context, region: Region) -> tuple[Value, ...]:
    for op in control.group_partitions(region):
        if isinstance(op, list):
            control.convert_partitions(c, op)
        elif type(op) not in HANDLED_BY_REGION:
            convert_op(c, op)
    return yielded(region)


def convert_op(c: Context, op: Op) -> None:
    arm = ARMS.get(type(op))
    if arm is None:
        raise CompileError(f"WS0601 codegen cannot emit `{op_name(type(op))}`", op.loc, IR_HINT)
    arm(c, op)


# The CTA -----------------------------------------------------------------------------------------


def convert_setmaxnreg(c: Context, op: ops.Setmaxnreg) -> None:
    nvvm.setmaxnreg(c.w, op.count, op.increase)
    c.place = replace(c.place, registers=op.count)


# SMEM and TMA ------------------------------------------------------------------------------------


def convert_allocate_shared(c: Context, op: ops.AllocateShared) -> None:
    kind = op.result.type_as(Shared)
    c.held[op.result] = SharedAt(mbarrier.placed(op), kind.bytes, kind.num, op.label)


# Fragments ---------------------------------------------------------------------------------------


def convert_join(c: Context, op: ops.Join) -> None:
    parts = [c.registers(part) for part in op.parts]
    texts = tuple(text for part in parts for text in texts_of(c.w, part))
    whole = parts[0].shape._replace(columns=sum(part.columns for part in parts))
    c.held[op.result] = Registers(parts[0].dtype, *whole, texts)


def special_register(name: str, c: Context, op: Op) -> Held:
    return Scalar(nvvm.special_register(c.w, name), I32, nonnegative=True)


def define(value_of: Callable[[Context, Any], Held], c: Context, op: Any) -> None:
    c.held[op.result] = value_of(c, op)


VALUES: dict[type[Op], Callable[[Context, Any], Held]] = {
    ops.DimSize: lambda c, op: c.sizes[op.dim],
    ops.CtaIndex: partial(special_register, "ctaid.x"),
    ops.NumCtas: partial(special_register, "nctaid.x"),
    ops.ClusterIndex: partial(special_register, "clusterid.x"),
    ops.NumClusters: partial(special_register, "nclusterid.x"),
    ops.CtaRank: partial(special_register, "cluster.ctarank"),
    ops.WarpgroupIndex: lambda c, _: Scalar(c.own_warpgroup(), I32, nonnegative=True),
    ops.LaunchNarrowing: lambda c, _: Scalar(c.narrower, I32, nonnegative=True),
    ops.InitialState: lambda _, op: StateAt("0", str(op.parity)),
    ops.MakeTensorMap: lambda c, _: next(c.maps),
    ops.AsAccumulator: lambda c, op: c.registers(op.x),
    ops.Slice: lambda c, op: cut_columns(c.registers(op.x), op.start, op.result.type.columns),
    ops.Iota: lambda c, op: iota(c, c.scalar(op.start), shape_of(op.result.type), op.apart),
}
"""The results of ops of one line."""
ARMS: dict[type[Op], Callable[[Context, Any], object]] = {
    **{kind: partial(define, value_of) for kind, value_of in VALUES.items()},
    ops.AllocateGlobal: lambda _, __: None,  # an argument like any other tensor
    ops.SyncCta: lambda c, _: nvvm.sync_cta(c.w),
    ops.SyncCluster: lambda c, op: nvvm.sync_cluster(c.w, op.relaxed),
    ops.SyncWarp: lambda c, _: nvvm.sync_warp(c.w),
    ops.GriddepLaunchDependents: lambda c, _: nvvm.griddep_launch_dependents(c.w),
    ops.FenceAsyncProxy: lambda c, op: nvvm.fence_async_proxy(c.w, op.everywhere),
    ops.PrefetchTensorMap: lambda c, op: inline_ptx.prefetch_tensor_map(
        c.w, c.pointer(op.map).text
    ),
    ops.TmaStoreCommit: lambda c, _: inline_ptx.tma_store_commit(c.w, c.threads.first_lane),
    ops.TmaStoreWait: lambda c, op: inline_ptx.tma_store_wait(
        c.w, op.pending, op.read, c.threads.first_lane
    ),
    ops.Tcgen05WaitSt: lambda c, _: c.w.asm("tcgen05.wait::st.sync.aligned;"),
    ops.ConvertLayout: convert_layout,
    **by_op(
        mbarrier, cluster, block_reduction, cast, control, histogram, map,
        gmem, smem_load, wgmma, reduction, smem, tcgen05, thread_load,
        thread_store, tma, transpose, sys.modules[__name__], prefix="convert_",
    ),
}  # fmt: skip
HANDLED_BY_REGION: frozenset[type[Op]] = frozenset({ops.Yield, ops.LaunchGrid, Partition})
