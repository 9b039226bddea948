"""One function per SCHEDULED op: IR in, LLVM text out. What has no function fails by name.

Elementwise maths, direct accesses to GMEM, stores to SMEM and control flow have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from wsdsl.codegen import (
    barriers,
    control,
    counters,
    inline_ptx,
    nvvm,
    products,
    reductions,
    tensor_memory,
    transposes,
)
from wsdsl.codegen.barriers import placed
from wsdsl.codegen.block_access import convert_receive_fragment, convert_send_fragment
from wsdsl.codegen.block_reductions import convert_scan_columns
from wsdsl.codegen.casts import convert_bitcast, convert_cast
from wsdsl.codegen.context import Arms, Context
from wsdsl.codegen.convert_type import shape_of
from wsdsl.codegen.elementwise import convert_constant, convert_full, convert_map
from wsdsl.codegen.fragments import cut_columns, iota, texts_of
from wsdsl.codegen.global_access import convert_load_global, convert_store_global
from wsdsl.codegen.held import Held, Registers, Scalar, SharedAt, StateAt
from wsdsl.codegen.panel_loads import convert_load_panels, convert_load_shared
from wsdsl.codegen.register_operands import convert_layout
from wsdsl.codegen.shared_stores import convert_clear_panels, convert_store_shared
from wsdsl.codegen.thread_load import convert_thread_load
from wsdsl.codegen.thread_store import convert_thread_store
from wsdsl.codegen.tma_copies import (
    convert_prefetch_box,
    convert_prefetch_tile,
    convert_tma_load,
    convert_tma_store,
)
from wsdsl.diagnostics import CompileError
from wsdsl.ir import barrier_ops as b
from wsdsl.ir import fragment_ops as f
from wsdsl.ir import memory_ops as m
from wsdsl.ir import prefetch_ops as p
from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Op, Region, Value, op_name
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.types import I32, Shared
from wsdsl.ir.walk import yielded


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


def convert_set_max_registers(c: Context, op: b.SetMaxRegisters) -> None:
    nvvm.set_max_registers(c.w, op.count, op.increase)
    c.place = replace(c.place, registers=op.count)


# SMEM and TMA ------------------------------------------------------------------------------------


def convert_allocate_shared(c: Context, op: m.AllocateShared) -> None:
    assert isinstance(op.result.type, Shared)
    c.held[op.result] = SharedAt(placed(op), op.result.type.bytes, op.result.type.num, op.label)


# Fragments ---------------------------------------------------------------------------------------


def convert_join(c: Context, op: f.Join) -> None:
    parts = [c.registers(part) for part in op.parts]
    texts = tuple(text for part in parts for text in texts_of(c.w, part))
    whole = parts[0].shape._replace(columns=sum(part.columns for part in parts))
    c.held[op.result] = Registers(parts[0].dtype, *whole, texts)


def special_register(name: str, c: Context, op: Op) -> Held:
    del op
    return Scalar(nvvm.special_register(c.w, name), I32, nonnegative=True)


def define(value_of: Callable[[Context, Any], Held], c: Context, op: Any) -> None:
    c.held[op.result] = value_of(c, op)


VALUES: dict[type[Op], Callable[[Context, Any], Held]] = {
    t.DimSize: lambda c, op: c.sizes[op.dim],
    b.CtaIndex: partial(special_register, "ctaid.x"),
    b.NumCtas: partial(special_register, "nctaid.x"),
    b.ClusterIndex: partial(special_register, "clusterid.x"),
    b.NumClusters: partial(special_register, "nclusterid.x"),
    b.CtaRank: partial(special_register, "cluster.ctarank"),
    b.WarpgroupIndex: lambda c, _: Scalar(c.own_warpgroup(), I32, nonnegative=True),
    b.LaunchNarrowing: lambda c, _: Scalar(c.narrower, I32, nonnegative=True),
    b.InitialState: lambda _, op: StateAt("0", str(op.parity)),
    m.MakeTensorMap: lambda c, _: next(c.maps),
    f.AsAccumulator: lambda c, op: c.registers(op.x),
    f.Slice: lambda c, op: cut_columns(c.registers(op.x), op.start, op.result.type.columns),
    f.Iota: lambda c, op: iota(c, c.scalar(op.start), shape_of(op.result.type), op.apart),
}
"""The results of ops of one line."""
ARMS: Arms = {
    **{kind: partial(define, value_of) for kind, value_of in VALUES.items()},
    t.Constant: convert_constant,
    t.Map: convert_map,
    t.Cast: convert_cast,
    t.Bitcast: convert_bitcast,
    t.Full: convert_full,
    t.If: control.convert_if,
    b.ForRange: control.convert_for_range,
    b.Elect: control.convert_elect,
    b.SetMaxRegisters: convert_set_max_registers,
    m.AllocateShared: convert_allocate_shared,
    m.AllocateGlobal: lambda _, __: None,  # an argument like any other tensor
    p.PrefetchTensorMap: lambda c, op: inline_ptx.prefetch_tensor_map(c.w, c.pointer(op.map).text),
    p.PrefetchBox: convert_prefetch_box,
    m.TmaLoad: convert_tma_load,
    m.ThreadLoad: convert_thread_load,
    m.ClearPanels: convert_clear_panels,
    p.PrefetchTile: convert_prefetch_tile,
    m.ThreadStore: convert_thread_store,
    m.LoadPanels: convert_load_panels,
    m.SendFragment: convert_send_fragment,
    m.ReceiveFragment: convert_receive_fragment,
    m.StoreShared: convert_store_shared,
    m.TmaStore: convert_tma_store,
    m.TmaStoreCommit: lambda c, _: inline_ptx.tma_store_commit(c.w, c.threads.first_lane),
    m.TmaStoreWait: lambda c, op: inline_ptx.tma_store_wait(
        c.w, op.pending, op.read, c.threads.first_lane
    ),
    m.LoadShared: convert_load_shared,
    m.LoadGlobal: convert_load_global,
    m.StoreGlobal: convert_store_global,
    f.Join: convert_join,
    f.ConvertLayout: convert_layout,
    **(barriers.ARMS | counters.ARMS | products.ARMS | tensor_memory.ARMS | transposes.ARMS),
    f.ReduceColumns: reductions.convert_reduce_columns,
    f.MmaSync: reductions.convert_mma_sync,
    f.ScanColumns: convert_scan_columns,
    m.StorePartials: reductions.convert_store_partials,
    m.ReducePartials: reductions.convert_reduce_partials,
}
HANDLED_BY_REGION: frozenset[type[Op]] = frozenset({t.Yield, b.LaunchGrid, Partition})
