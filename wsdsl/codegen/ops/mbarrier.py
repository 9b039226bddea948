"""mbarriers and pipeline states."""

from __future__ import annotations

from wsdsl.codegen import inline_ptx, nvvm
from wsdsl.codegen.addresses.smem_addresses import item_at, placed
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import At
from wsdsl.codegen.value_registers import SharedAt, StateAt
from wsdsl.ir import ops
from wsdsl.ir.types import Barriers


def convert_allocate_mbarriers(c: Context, op: ops.AllocateMbarriers) -> None:
    num = op.result.type_as(Barriers).num
    c.held[op.result] = SharedAt(placed(op), 8, num, op.label, op.arrivals)


def convert_mbarrier_init(c: Context, op: ops.MbarrierInit) -> None:
    held = c.shared(op.barriers)
    for i in range(held.num):
        inline_ptx.barrier_init(c.w, At(c.smem, held.offset + 8 * i), held.arrivals, held.label)


def convert_fence_mbarrier_init(c: Context, op: ops.FenceMbarrierInit) -> None:
    c.w.call("llvm.nvvm.fence.mbarrier_init.release.cluster", "void")
    # TMA completes transactions on the barriers through the async proxy.
    nvvm.fence_async_proxy(c.w)


def convert_advance(c: Context, op: ops.Advance) -> None:
    w, state = c.w, c.state(op.state)
    if op.num == 1:
        c.held[op.result] = StateAt("0", w.binary("xor", "i32", state.parity, 1))
        return
    following = w.binary("add", "i32", state.stage, 1)
    wraps = w.compare("eq", following, op.num)
    flipped = w.binary("xor", "i32", state.parity, 1)
    stage = w.select(wraps, "i32", "0", following)
    c.held[op.result] = StateAt(stage, w.select(wraps, "i32", flipped, state.parity))


def convert_mbarrier_wait(c: Context, op: ops.MbarrierWait) -> None:
    at, label = item_at(c, op.barriers, op.state), c.shared(op.barriers).label
    inline_ptx.barrier_wait(c.w, at, c.state(op.state).parity, label)


def convert_mbarrier_arrive(c: Context, op: ops.MbarrierArrive) -> None:
    pred = None if op.pred is None else c.scalar(op.pred).text
    if op.each_warp:
        first = c.threads.first_lane
        pred = first if pred is None else c.w.binary("and", "i1", first, pred)
    elif not op.each_thread:
        pred = c.one_thread(pred)
    at, label = item_at(c, op.barriers, op.state), c.shared(op.barriers).label
    if op.cta is None:
        inline_ptx.barrier_arrive(c.w, at, pred, label)
    else:
        address = c.w.add(at.base, at.offset)
        inline_ptx.barrier_arrive_remote(c.w, address, c.scalar(op.cta).text, pred, label)


def convert_mbarrier_arrive_expect_tx(c: Context, op: ops.MbarrierArriveExpectTx) -> None:
    at, label = item_at(c, op.barriers, op.state), c.shared(op.barriers).label
    if op.cta is None:
        expected = str(op.tx_bytes)
        if op.narrower is not None:
            fewer = c.w.multiply(c.scalar(op.narrower).text, op.line_bytes)
            expected = c.w.binary("sub", "i32", expected, fewer)
        inline_ptx.barrier_mbarrier_arrive_expect_tx(c.w, at, expected, label)
    else:
        inline_ptx.expect_remote(c.w, at, c.scalar(op.cta).text, op.tx_bytes, label)


def convert_initial_state(c: Context, op: ops.InitialState) -> None:
    c.held[op.result] = StateAt("0", str(op.parity))
