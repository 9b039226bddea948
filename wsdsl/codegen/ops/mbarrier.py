"""mbarriers and pipeline states."""

from wsdsl.codegen import nvvm
from wsdsl.codegen.addresses.smem_addresses import item_at, placed
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import At, number_or_value, predicate, predicate_operand
from wsdsl.codegen.value_registers import SharedAt, StateAt
from wsdsl.ir import ops
from wsdsl.ir.types import Barriers


def convert_allocate_mbarriers(c: Context, op: ops.AllocateMbarriers) -> None:
    num = op.result.type_as(Barriers).num
    c.values[op.result] = SharedAt(placed(op), 8, num, op.label, op.arrivals)


def convert_mbarrier_init(c: Context, op: ops.MbarrierInit) -> None:
    value = c.shared(op.barriers)
    for i in range(value.num):
        at = At(c.smem, value.offset + 8 * i)
        ptx = f"mbarrier.init.shared::cta.b64 {at.ptx(0)}, {value.arrivals}; {value.comment}"
        c.w.asm(ptx, [at.operand])


def convert_fence_mbarrier_init(c: Context, op: ops.FenceMbarrierInit) -> None:
    c.w.call("llvm.nvvm.fence.mbarrier_init.release.cluster", "void")
    # TMA completes transactions on the barriers through the async proxy.
    nvvm.fence_async_proxy(c.w)


def convert_advance(c: Context, op: ops.Advance) -> None:
    w, state = c.w, c.state(op.state)
    if op.num == 1:
        c.values[op.result] = StateAt("0", w.binary("xor", "i32", state.parity, 1))
        return
    following = w.binary("add", "i32", state.stage, 1)
    wraps = w.compare("eq", following, op.num)
    flipped = w.binary("xor", "i32", state.parity, 1)
    stage = w.select(wraps, "i32", "0", following)
    c.values[op.result] = StateAt(stage, w.select(wraps, "i32", flipped, state.parity))


def convert_mbarrier_wait(c: Context, op: ops.MbarrierWait) -> None:
    at, comment = item_at(c, op.barriers, op.state), c.shared(op.barriers).comment
    ptx = (
        "{\n.reg .pred done;\n"
        "WAIT_${:uid}:\n"
        f"mbarrier.try_wait.parity.shared::cta.b64 done, {at.ptx(0)}, $1; {comment}\n"
        "@!done bra WAIT_${:uid};\n}"
    )
    c.w.asm(ptx, [at.operand, ("i32", c.state(op.state).parity)])


def convert_mbarrier_arrive(c: Context, op: ops.MbarrierArrive) -> None:
    """Arrive on the CTA's barrier, or on the one at the same address in another CTA of the cluster:
    without `.release.cluster`, which is a fence of the whole GPU and halves the speed of a GEMM.

    The arrival orders reads of a pipeline stage before another CTA's copy to it: wgmma has read
    when it is waited for, and the async proxy copies after the phase is complete. That partial
    results of another CTA have been read when the warpgroups have synchronized (bar.sync) is an
    assumption (docs/prover.md).
    """
    pred = None if op.pred is None else c.scalar(op.pred).text
    if op.each_warp:
        first = c.threads.first_lane
        pred = first if pred is None else c.w.binary("and", "i1", first, pred)
    elif not op.each_thread:
        pred = c.one_thread(pred)
    at, comment = item_at(c, op.barriers, op.state), c.shared(op.barriers).comment
    if op.cta is None:
        ptx = f"{predicate(pred, 1)}mbarrier.arrive.shared::cta.b64 _, {at.ptx(0)}; {comment}"
        c.w.asm(ptx, [at.operand, *predicate_operand(pred)])
        return
    ptx = (
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, $0, $1;\n"
        f"{predicate(pred, 2)}mbarrier.arrive.shared::cluster.b64 _, [remote]; {comment}\n}}"
    )
    address = c.w.add(at.base, at.offset)
    args = [("i32", address), ("i32", c.scalar(op.cta).text)]
    c.w.asm(ptx, [*args, *predicate_operand(pred)])


def convert_mbarrier_arrive_expect_tx(c: Context, op: ops.MbarrierArriveExpectTx) -> None:
    at, comment = item_at(c, op.barriers, op.state), c.shared(op.barriers).comment
    if op.cta is not None:
        arrive = "mbarrier.arrive.expect_tx.shared::cluster.b64"
        ptx = (
            "{\n.reg .b32 remote;\n"
            "mapa.shared::cluster.u32 remote, $0, $1;\n"
            f"{arrive} _, [remote+{at.offset}], {op.tx_bytes}; {comment}\n}}"
        )
        c.w.asm(ptx, [at.operand, ("i32", c.scalar(op.cta).text)])
        return
    expected = str(op.tx_bytes)
    if op.narrower is not None:
        fewer = c.w.multiply(c.scalar(op.narrower).text, op.line_bytes)
        expected = c.w.binary("sub", "i32", expected, fewer)
    shown, args = number_or_value(expected)
    ptx = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {at.ptx(0)}, {shown}; {comment}"
    c.w.asm(ptx, [at.operand, *args])


def convert_initial_state(c: Context, op: ops.InitialState) -> None:
    c.values[op.result] = StateAt("0", str(op.parity))
