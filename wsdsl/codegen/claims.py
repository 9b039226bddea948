"""Clusters that have not started: to ask for one, and to read the answer."""

from __future__ import annotations

from wsdsl.codegen.barriers import barrier_at
from wsdsl.codegen.context import Context
from wsdsl.codegen.held import Scalar
from wsdsl.codegen.inline_ptx import At, comment
from wsdsl.ir.barrier_ops import ClaimCluster, ClaimedCluster
from wsdsl.ir.claims import NOTHING_LEFT
from wsdsl.ir.op import Value
from wsdsl.ir.types import I32

ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
QUERY = "clusterlaunchcontrol.query_cancel"


def _answer(c: Context, shared: Value, state: Value) -> At:
    held = c.shared(shared)
    return At(c.item(held, c.state(state).stage), held.offset)


def convert_claim_cluster(c: Context, op: ClaimCluster) -> None:
    to, on = _answer(c, op.shared, op.state), barrier_at(c, op.barriers, op.state)
    many = ".multicast::cluster::all" if op.ctas > 1 else ""
    ptx = f"{ASK}{many}.b128 {to.ptx(0)}, {on.ptx(1)}; // {comment(c.shared(op.shared).label)}"
    c.w.asm(ptx, "void", "r,r", [("i32", to.base), ("i32", on.base)])


def convert_claimed_cluster(c: Context, op: ClaimedCluster) -> None:
    """The answer has the index of the cluster's first CTA."""
    at, w, shift = _answer(c, op.shared, op.state), c.w, op.ctas.bit_length() - 1
    ptx = (
        "{\n.reg .b128 answer;\n.reg .pred there;\n"
        f"ld.shared.b128 answer, {at.ptx(1)};\n"
        f"{QUERY}.is_canceled.pred.b128 there, answer;\n"
        f"mov.b32 $0, {NOTHING_LEFT};\n"
        f"@there {QUERY}.get_first_ctaid::x.b32.b128 $0, answer;\n"
        + (f"@there shr.u32 $0, $0, {shift};\n" if shift else "")
        + "}"
    )
    found = w.asm(ptx, "i32", "=&r,r", [("i32", at.base)])
    c.held[op.result] = Scalar(found, I32, nonnegative=True)


ARMS = {ClaimCluster: convert_claim_cluster, ClaimedCluster: convert_claimed_cluster}
