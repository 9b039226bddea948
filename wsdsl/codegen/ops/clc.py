"""Cluster launch control (CLC)."""

from wsdsl.codegen.addresses.smem_addresses import item_at
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.value_registers import Scalar
from wsdsl.ir.ops import NOTHING_LEFT, ClcQueryCancel, ClcTryCancel
from wsdsl.ir.types import I32

# Cluster launch control (CLC).
ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"


QUERY = "clusterlaunchcontrol.query_cancel"


def convert_clc_try_cancel(c: Context, op: ClcTryCancel) -> None:
    to, on = item_at(c, op.shared, op.state), item_at(c, op.barriers, op.state)
    many = ".multicast::cluster::all" if op.ctas > 1 else ""
    ptx = f"{ASK}{many}.b128 {to.ptx(0)}, {on.ptx(1)}; {c.shared(op.shared).comment}"
    c.w.asm(ptx, [to.operand, on.operand])


def convert_clc_query_cancel(c: Context, op: ClcQueryCancel) -> None:
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
    result = w.asm_value(ptx, [at.operand], early=True)
    c.values[op.result] = Scalar(result, I32, nonnegative=True)
