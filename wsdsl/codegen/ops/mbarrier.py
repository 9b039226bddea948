"""mbarriers, named barriers, flags, fences and pipeline state: one function per op."""

from __future__ import annotations

from wsdsl.codegen import inline_ptx, nvvm
from wsdsl.codegen.addresses.gmem_addresses import Addresses
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import At, comment
from wsdsl.codegen.value_registers import Scalar, Shape, SharedAt, StateAt
from wsdsl.diagnostics import CompileError
from wsdsl.ir import ops
from wsdsl.ir.ops import NOTHING_LEFT, Tcgen05Alloc
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.types import I32, Barriers, Value


def convert_allocate_mbarriers(c: Context, op: ops.AllocateMbarriers) -> None:
    num = op.result.type_as(Barriers).num
    c.held[op.result] = SharedAt(placed(op), 8, num, op.label, op.arrivals)


def placed(op: ops.AllocateMbarriers | ops.AllocateShared | Tcgen05Alloc) -> int:
    if op.offset < 0:
        label = "tensor memory" if isinstance(op, Tcgen05Alloc) else op.label
        raise CompileError(f"WS0605 `{label}` has no offset", op.loc, IR_HINT)
    return op.offset


def item_at(c: Context, shared: Value, state: Value) -> At:
    """The barrier, or the item of a tile, that `state` is at."""
    held = c.shared(shared)
    return At(c.item(held, c.state(state).stage), held.offset)


def convert_mbarrier_init(c: Context, op: ops.MbarrierInit) -> None:
    held = c.shared(op.barriers)
    for i in range(held.num):
        inline_ptx.barrier_init(c.w, At(c.smem, held.offset + 8 * i), held.arrivals, held.label)


def convert_fence_mbarrier_init(c: Context, op: ops.FenceMbarrierInit) -> None:
    nvvm.fence_mbarrier_init(c.w)
    # TMA completes transactions on the barriers through the async proxy.
    nvvm.fence_async_proxy(c.w)


def convert_griddep_wait(c: Context, op: ops.GriddepWait) -> None:
    if c.place.inside:
        inline_ptx.griddep_wait(c.w)
    else:
        nvvm.griddep_wait(c.w)


def convert_named_barrier_sync(
    c: Context, op: ops.NamedBarrierSync | ops.NamedBarrierArrive
) -> None:
    number = str(op.barrier) if op.item is None else c.w.add(c.scalar(op.item).text, op.barrier)
    threads, waits = 128 * op.num_warpgroups, isinstance(op, ops.NamedBarrierSync)
    nvvm.named_barrier(c.w, number, threads, waits)


convert_named_barrier_arrive = convert_named_barrier_sync


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
        pred = _and(c, c.threads.first_lane, pred)
    elif not op.each_thread:
        pred = _one_thread(c, pred)
    at, label = item_at(c, op.barriers, op.state), c.shared(op.barriers).label
    if op.cta is None:
        inline_ptx.barrier_arrive(c.w, at, pred, label)
    else:
        address = c.w.add(at.base, at.offset)
        inline_ptx.barrier_arrive_remote(c.w, address, c.scalar(op.cta).text, pred, label)


def _one_thread(c: Context, pred: str | None = None) -> str | None:
    """Where `pred` holds, and in one thread of the warpgroup, or of the CTA outside partitions."""
    if c.place.elected:
        return pred
    one = c.threads.first_thread if c.place.inside else c.w.compare("eq", c.threads.tid, 0)
    return _and(c, one, pred)


def _and(c: Context, one: str, pred: str | None) -> str:
    return one if pred is None else c.w.binary("and", "i1", one, pred)


def convert_semaphore_arrive(c: Context, op: ops.SemaphoreArrive) -> None:
    kind, amount = "add.s32", str(op.amount) if op.by is None else c.scalar(op.by).text
    if op.wrap is not None:
        kind, amount = "inc.u32", c.scalar(op.wrap).text
    order = "release" if op.release else "relaxed"
    inline_ptx.flag_arrive(c.w, _flag(c, op), f"{order}.gpu.global.{kind}", amount, _one_thread(c))


def convert_semaphore_wait(c: Context, op: ops.SemaphoreWait) -> None:
    inline_ptx.flag_wait(c.w, _flag(c, op), c.scalar(op.count).text)


def _flag(c: Context, op: ops.SemaphoreArrive | ops.SemaphoreWait) -> inline_ptx.Global:
    return Addresses(c, op.tensor, op.index, Shape(1, 1)).at(0)


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


# Cluster launch control (CLC).
ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
QUERY = "clusterlaunchcontrol.query_cancel"


def convert_clc_try_cancel(c: Context, op: ops.ClcTryCancel) -> None:
    to, on = item_at(c, op.shared, op.state), item_at(c, op.barriers, op.state)
    many = ".multicast::cluster::all" if op.ctas > 1 else ""
    ptx = f"{ASK}{many}.b128 {to.ptx(0)}, {on.ptx(1)}; // {comment(c.shared(op.shared).label)}"
    c.w.asm(ptx, [to.held, on.held])


def convert_clc_query_cancel(c: Context, op: ops.ClcQueryCancel) -> None:
    """The answer has the index of the cluster's first CTA."""
    at, w, shift = item_at(c, op.shared, op.state), c.w, op.ctas.bit_length() - 1
    ptx = (
        "{\n.reg .b128 answer;\n.reg .pred there;\n"
        f"ld.shared.b128 answer, {at.ptx(1)};\n"
        f"{QUERY}.is_canceled.pred.b128 there, answer;\n"
        f"mov.b32 $0, {NOTHING_LEFT};\n"
        f"@there {QUERY}.get_first_ctaid::x.b32.b128 $0, answer;\n"
        + (f"@there shr.u32 $0, $0, {shift};\n" if shift else "")
        + "}"
    )
    found = w.asm_value(ptx, [at.held], early=True)
    c.held[op.result] = Scalar(found, I32, nonnegative=True)
